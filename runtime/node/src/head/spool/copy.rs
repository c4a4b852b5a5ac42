//! What a standby gets of one job's log: frames as they are on the disk or in memory, and where they stand.

use std::fs::File;
use std::io;
use std::path::Path;

use kumi_control::copying::{CopyDown, LogPlace, MOST_ENTRIES};
use kumi_control::message::Stream;
use kumi_sched::JobId;

use super::log::{CopyPlace, Gaps, Segment, WaitingPiece};
use super::segment::{self, FrameContent, HEADER, MAX_PIECE, Positions, SegmentHeader, parse};
use super::writer::{SharedLog, path};

/// About how many bytes go at once.
const READ: usize = 256 << 10;

/// How far the copy of a log has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::head) struct CopyPosition {
    offset: u64,
    /// What comes next continues what came last: the standby knows where it stands.
    goes_on: bool,
}

impl CopyPosition {
    /// At the end of a standby's log.
    pub(in crate::head) fn at(offset: u64) -> Self {
        Self { offset, goes_on: false }
    }
}

/// The copy of a log that a standby has. The lock of the log is taken for lookups only.
#[derive(Debug)]
pub(in crate::head) struct LogCopy {
    job: JobId,
    log: SharedLog,
    at: CopyPosition,
}

impl LogCopy {
    /// One that has come so far.
    pub(in crate::head) fn new(job: JobId, log: SharedLog, at: CopyPosition) -> Self {
        Self { job, log, at }
    }

    /// How far it has come.
    pub(in crate::head) fn position(&self) -> CopyPosition {
        self.at
    }

    /// Whether nothing more is there now.
    pub(in crate::head) fn is_whole(&self) -> bool {
        self.at.offset >= self.log.lock().end()
    }

    /// The next messages; none if nothing more is there. It may read the disk.
    pub(in crate::head) fn next(&mut self, folder: &Path) -> Vec<CopyDown> {
        loop {
            let place = self.log.lock().place_to_copy(self.at.offset, READ);
            match place {
                CopyPlace::End => return Vec::new(),
                CopyPlace::Hole(until) => self.skip_to(until),
                CopyPlace::Tail { end, before, gaps } => {
                    self.skip_to(end);
                    return self.place((end, before), None, &gaps);
                }
                CopyPlace::Memory(pieces) => return self.copy_pieces(&pieces),
                CopyPlace::Disk(segment) => match self.copy_segment(folder, &segment) {
                    Ok(messages) => return messages,
                    Err(_) if self.is_gone(&segment) => {}
                    Err(error) => {
                        let (job, start) = (self.job, segment.start);
                        tracing::error!(%job, start, %error, "a segment of output cannot be copied");
                        self.skip_to(segment.end);
                    }
                },
            }
        }
    }

    fn skip_to(&mut self, offset: u64) {
        self.at = CopyPosition::at(offset);
    }

    /// A segment that was removed meanwhile.
    fn is_gone(&self, segment: &Segment) -> bool {
        let place = self.log.lock().place_to_copy(self.at.offset, 0);
        !matches!(place, CopyPlace::Disk(now) if now.start == segment.start)
    }

    /// Says where the log goes on, in as many messages as the list of streams needs.
    fn place(
        &self,
        (offset, before): (u64, u64),
        restarts: Option<u32>,
        streams: &Gaps,
    ) -> Vec<CopyDown> {
        let streams = streams.iter().map(|(&(rank, stream), &at)| (rank, stream, at));
        let mut left: Vec<(u32, Stream, u64)> = streams.collect();
        let mut messages = Vec::new();
        loop {
            let rest = left.split_off(left.len().min(MOST_ENTRIES));
            let place = LogPlace { offset, before, restarts, positions: left };
            messages.push(CopyDown::Place(self.job, place));
            if rest.is_empty() {
                return messages;
            }
            left = rest;
        }
    }

    fn frames(&mut self, frames: Vec<u8>) -> CopyDown {
        let offset = self.at.offset;
        self.at.offset += frames.len() as u64;
        CopyDown::Frames { job: self.job, offset, frames }
    }

    fn copy_pieces(&mut self, pieces: &[WaitingPiece]) -> Vec<CopyDown> {
        let mut messages = Vec::new();
        if !std::mem::replace(&mut self.at.goes_on, true)
            && let Some(first) = pieces.first()
        {
            let mut streams = first.gaps.clone();
            if let FrameContent::Piece { rank, stream } = first.content {
                streams.insert((rank, stream), first.at);
            }
            messages = self.place((first.offset, first.before), None, &streams);
        }
        let frames: Vec<u8> = pieces.iter().flat_map(|piece| piece.frame.iter().copied()).collect();
        messages.push(self.frames(frames));
        messages
    }

    fn copy_segment(&mut self, folder: &Path, segment: &Segment) -> io::Result<Vec<CopyDown>> {
        let mut file = File::open(path(folder, self.job, segment.start))?;
        let mut messages = Vec::new();
        if !self.at.goes_on {
            messages = self.find(&mut file, segment)?;
            self.at.goes_on = true;
            if self.at.offset >= segment.end {
                return Ok(messages);
            }
        }
        let frames = read_frames(&mut file, segment, self.at.offset)?;
        messages.push(self.frames(frames));
        Ok(messages)
    }

    /// Goes to the next whole frame. All before it is looked through for how far the streams have come.
    fn find(&mut self, file: &mut File, segment: &Segment) -> io::Result<Vec<CopyDown>> {
        let header = SegmentHeader::read(file)?;
        let (mut positions, mut restarts): (Positions, u32) = (header.positions, header.restarts);
        let from = (self.at.offset - segment.start).min(segment.end - segment.start);
        let passed = |whole: &segment::WholeFrames| whole.length >= from;
        let whole = segment::scan_to(file, (&mut positions, &mut restarts), passed)?;
        if whole.length < from {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.at.offset = segment.start + whole.length;
        let before = segment.before.saturating_add(whole.output);
        Ok(self.place((self.at.offset, before), Some(restarts), &positions))
    }
}

/// Whole frames of a segment from an offset of its log on.
fn read_frames(file: &mut File, segment: &Segment, offset: u64) -> io::Result<Vec<u8>> {
    let damaged = || io::Error::new(io::ErrorKind::InvalidData, "a frame is damaged");
    let place = segment.body + (offset - segment.start);
    let mut most = READ;
    loop {
        let mut bytes = Vec::new();
        let more = (segment.end - offset).min(most as u64);
        segment::read_at(file, place, more, &mut bytes)?;
        let mut whole = 0;
        while let Some(frame) = parse(&bytes[whole..]).map_err(|()| damaged())? {
            whole += frame.length;
        }
        if whole > 0 {
            bytes.truncate(whole);
            return Ok(bytes);
        }
        if most > READ {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        most = HEADER + MAX_PIECE;
    }
}
