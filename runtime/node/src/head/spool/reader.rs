//! Reader of one job's log: pieces in order, and how much is missing between them.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use kumi_control::message::Stream;
use kumi_sched::JobId;
use kumi_web::{Output, OutputPiece};

use super::log::{Place, Segment};
use super::segment::{self, FrameContent, SpoolRecord, parse};
use super::writer::{SharedLog, path};

/// How much of a file is read at once, in bytes.
const READ: u64 = 256 << 10;
/// About how much a step passes over, in bytes: whoever runs beside others lets them have their turn after it.
const PASSED: u64 = READ;
/// About how many bytes of output a part has.
const PART: u64 = 64 << 10;

/// One step through a log.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A piece of output.
    Piece { rank: u32, stream: Stream, data: Vec<u8> },
    /// The job was started again, this often with that time.
    Restart { restarts: u32, reason: String },
    /// So many bytes of output are missing here.
    Lost(u64),
    /// The reader has come closer to where it begins.
    Passed,
    /// Nothing more is there now.
    End,
}

/// A reader. It takes the lock of the log for lookups only.
#[derive(Debug)]
pub(super) struct Reader {
    folder: PathBuf,
    job: JobId,
    log: SharedLog,
    offset: u64,
    /// Bytes of output before that.
    seen: u64,
    knows_seen: bool,
    /// Where the last step began.
    at: u64,
    /// Where it was to begin. The pieces before that, in the same segment, are passed over: so it knows what it has seen.
    begin: u64,
    file: Option<(u64, File)>,
    /// What was read of it, from `offset` on.
    buffer: Vec<u8>,
    used: usize,
}

impl Reader {
    /// A reader from `offset` on.
    pub(super) fn new(folder: &Path, job: JobId, log: SharedLog, begin: u64) -> Self {
        let (offset, seen) = {
            let log = log.lock();
            let offset = log.begin_of(begin).min(begin);
            (offset, log.seen_at(offset))
        };
        Self {
            folder: folder.to_owned(),
            job,
            log,
            offset,
            seen: seen.unwrap_or(0),
            knows_seen: begin == 0 || seen.is_some(),
            at: offset,
            begin,
            file: None,
            buffer: Vec::new(),
            used: 0,
        }
    }

    /// Where the last step began.
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    /// Where the next step begins.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// The next step.
    ///
    /// # Errors
    /// A file cannot be read, or the reader did not begin where a piece does.
    pub(super) fn next(&mut self) -> io::Result<Step> {
        let from = self.offset;
        loop {
            self.at = self.offset;
            let step = self.step()?;
            let passes = self.at < self.begin;
            match step {
                Step::Piece { .. } | Step::Restart { .. } if passes && self.offset > self.begin => {
                    return Err(self.no_piece(self.begin));
                }
                Step::Piece { .. } | Step::Restart { .. } | Step::Lost(_)
                    if passes && self.offset <= self.begin =>
                {
                    if self.offset - from >= PASSED {
                        return Ok(Step::Passed);
                    }
                }
                step => return Ok(step),
            }
        }
    }

    fn step(&mut self) -> io::Result<Step> {
        loop {
            let place = self.log.lock().place(self.offset);
            match place {
                Place::End => return Ok(Step::End),
                Place::Hole { until, before } => {
                    let mut lost = before.saturating_sub(self.seen);
                    if !self.knows_seen {
                        // What was here once is gone. No more can be missing than there is room for.
                        lost = lost.min(until - self.offset);
                    }
                    self.go_to(until);
                    if lost == 0 {
                        self.at = until;
                    }
                    (self.seen, self.knows_seen) = (before, true);
                    if lost > 0 {
                        return Ok(Step::Lost(lost));
                    }
                }
                Place::Memory(frame) => {
                    let Ok(Some(record)) = parse(&frame) else {
                        return Err(self.no_piece(self.offset));
                    };
                    return Ok(self.taken(&record));
                }
                Place::Disk(segment) => {
                    if let Some(step) = self.read_segment(&segment)? {
                        return Ok(step);
                    }
                }
            }
        }
    }

    fn go_to(&mut self, offset: u64) {
        self.offset = offset;
        self.file = None;
        self.buffer.clear();
        self.used = 0;
    }

    fn no_piece(&self, offset: u64) -> io::Error {
        let job = self.job;
        let message = format!("{offset} is not where a piece of the output of job {job} begins");
        io::Error::new(io::ErrorKind::InvalidInput, message)
    }

    fn taken(&mut self, record: &SpoolRecord<'_>) -> Step {
        self.offset += record.length as u64;
        match record.content {
            FrameContent::Piece { rank, stream } => {
                self.seen = self.seen.saturating_add(record.data.len() as u64);
                Step::Piece { rank, stream, data: record.data.to_vec() }
            }
            FrameContent::Restart(restarts) => {
                let reason = String::from_utf8_lossy(record.data).into_owned();
                Step::Restart { restarts, reason }
            }
        }
    }

    /// The next piece of a segment; none if the reader is to look again where it is.
    fn read_segment(&mut self, segment: &Segment) -> io::Result<Option<Step>> {
        if self.offset == segment.start {
            (self.seen, self.knows_seen) = (segment.before, true);
        }
        if self.file.as_ref().is_none_or(|(start, _)| *start != segment.start) {
            let file = match File::open(path(&self.folder, self.job, segment.start)) {
                // It has just gone, which the log knows.
                Err(error) if error.kind() == io::ErrorKind::NotFound && self.is_gone(segment) => {
                    return Ok(None);
                }
                opened => opened?,
            };
            self.go_to(self.offset);
            self.file = Some((segment.start, file));
        }
        loop {
            let bytes = std::mem::take(&mut self.buffer);
            let parsed = parse(&bytes[self.used..]);
            let step = match parsed {
                Err(()) => return Err(self.no_piece(self.offset)),
                Ok(None) => None,
                Ok(Some(record)) => {
                    self.used += record.length;
                    Some(self.taken(&record))
                }
            };
            self.buffer = bytes;
            if step.is_some() {
                return Ok(step);
            }
            self.buffer.drain(..self.used);
            self.used = 0;
            if !self.read_more(segment)? {
                // Cut off by a crash.
                self.go_to(segment.end);
                return Ok(None);
            }
        }
    }

    fn is_gone(&self, segment: &Segment) -> bool {
        match self.log.lock().place(segment.start) {
            Place::Disk(now) => now.start != segment.start,
            _ => true,
        }
    }

    /// Reads on in the segment. Returns whether there was more.
    fn read_more(&mut self, segment: &Segment) -> io::Result<bool> {
        let Some((_, file)) = &mut self.file else { return Ok(false) };
        let at = self.offset + self.buffer.len() as u64;
        let more = segment.end.saturating_sub(at).min(READ);
        if more == 0 {
            return Ok(false);
        }
        let place = segment.body + (at - segment.start);
        Ok(segment::read_at(file, place, more, &mut self.buffer)? > 0)
    }
}

/// What is said between the output of ranks.
fn remark(text: &str) -> OutputPiece {
    OutputPiece { rank: 0, error: true, data: text.as_bytes().to_vec() }
}

/// A part of a log for those who look at the end of it: from byte `from` on, or the last one.
///
/// # Errors
/// A file cannot be read, or no piece begins at `from`.
pub(super) fn read_part(
    folder: &Path,
    (job, log): (JobId, SharedLog),
    from: Option<u64>,
) -> io::Result<Output> {
    let (end, begin) = {
        let log = log.lock();
        let begin = log.begin_of(log.end().saturating_sub(PART));
        (log.end(), from.map_or(begin, |from| from.min(log.end())))
    };
    let mut reader = Reader::new(folder, job, log, begin);
    let mut pieces: VecDeque<(u64, OutputPiece)> = VecDeque::new();
    let (mut bytes, mut next) = (0, begin);
    while next < end {
        let piece = match reader.next()? {
            Step::End => break,
            Step::Passed => continue,
            Step::Piece { rank, stream, data } => {
                OutputPiece { rank, error: stream == Stream::Err, data }
            }
            Step::Lost(lost) => remark(&format!("kumi: {lost} bytes of output are missing here\n")),
            Step::Restart { restarts, reason } => {
                remark(&format!("kumi: started again ({restarts}): {reason}\n"))
            }
        };
        let at = reader.at();
        next = reader.offset();
        bytes += piece.data.len() as u64;
        pieces.push_back((at, piece));
        if from.is_some() && bytes >= PART {
            break;
        }
        while from.is_none() && bytes > PART && pieces.len() > 1 {
            bytes -= pieces.pop_front().map_or(0, |(_, piece)| piece.data.len() as u64);
        }
    }
    let begin = pieces.front().map_or(next, |&(at, _)| at);
    Ok(Output { pieces: pieces.into_iter().map(|(_, piece)| piece).collect(), begin, next })
}
