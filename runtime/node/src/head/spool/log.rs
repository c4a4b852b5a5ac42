//! Index of one job's log: which of its bytes are on disk, which wait in memory, and what is missing.
//!
//! No input or output: the writer says what it did, and readers ask where to go on.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use kumi_control::message::Stream;
use kumi_leadership::{TermEnds, common_end};

use super::memory::JobMemory;
use super::segment::FrameContent;
use super::term::TERM;

/// A segment on disk. Offsets are those of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    /// Where it begins.
    pub(super) start: u64,
    /// Where it ends.
    pub(super) end: u64,
    /// Bytes of output before it, and in it.
    pub(super) before: u64,
    pub(super) output: u64,
    /// Where its first frame is in its file.
    pub(super) body: u64,
}

impl Segment {
    /// Length of its file.
    pub(super) fn length(&self) -> u64 {
        self.body + (self.end - self.start)
    }
}

/// A piece that waits for the disk.
#[derive(Clone, Debug)]
pub(super) struct WaitingPiece {
    pub(super) offset: u64,
    /// Bytes of output before it.
    pub(super) before: u64,
    pub(super) content: FrameContent,
    /// Where its bytes begin in their stream.
    pub(super) at: u64,
    /// Bytes of output in it.
    pub(super) output: u64,
    pub(super) frame: Arc<[u8]>,
    /// How far streams had come before it of which the last bytes never came.
    pub(super) gaps: Gaps,
}

/// Streams of which the last bytes never came, and how far they had come then.
pub(super) type Gaps = BTreeMap<(u32, Stream), u64>;

impl WaitingPiece {
    fn end(&self) -> u64 {
        self.offset + self.frame.len() as u64
    }
}

/// Where a reader goes on.
#[derive(Clone, Debug)]
pub(super) enum Place {
    /// In this segment.
    Disk(Segment),
    /// With this frame.
    Memory(Arc<[u8]>),
    /// Behind a hole.
    Hole {
        /// The offset there.
        until: u64,
        /// Bytes of output before it.
        before: u64,
    },
    /// Nothing more is there.
    End,
}

/// The log of a job.
#[derive(Debug, Default)]
pub(super) struct Log {
    segments: BTreeMap<u64, Segment>,
    waiting: VecDeque<WaitingPiece>,
    /// Output in `waiting`, and its frames, in bytes.
    waiting_output: u64,
    memory: JobMemory,
    /// Behind the last piece that has come.
    end: u64,
    /// Bytes of output up to there.
    total: u64,
    /// How far it had come in earlier terms.
    earlier: WrittenOutput,
    /// Streams that have come further since the last piece, without bytes.
    gaps: Gaps,
    /// Of what stands before this something was missing here when the term began, and is marked.
    lenient: u64,
}

/// Where a copy goes on.
#[derive(Clone, Debug)]
pub(super) enum CopyPlace {
    /// In this segment.
    Disk(Segment),
    /// With these pieces, one behind the other.
    Memory(Vec<WaitingPiece>),
    /// Behind a hole.
    Hole(u64),
    /// At the end, before which something is missing.
    Tail { end: u64, before: u64, gaps: Gaps },
    /// Nothing more is there.
    End,
}

/// How far a log had come: its end, and the bytes of output before that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::head) struct WrittenOutput {
    pub(in crate::head) end: u64,
    pub(in crate::head) bytes: u64,
}

impl Log {
    /// A log of these segments, of which the last one ends with this much output in all.
    pub(super) fn of(
        segments: impl IntoIterator<Item = Segment>,
        total: u64,
        memory: JobMemory,
    ) -> Self {
        let segments: BTreeMap<u64, Segment> =
            segments.into_iter().map(|segment| (segment.start, segment)).collect();
        let end = segments.last_key_value().map_or(0, |(_, last)| last.end);
        Self { segments, end, total, memory, ..Self::default() }
    }

    pub(super) fn end(&self) -> u64 {
        self.end
    }

    pub(super) fn segments(&self) -> impl DoubleEndedIterator<Item = Segment> + '_ {
        self.segments.values().copied()
    }

    pub(super) fn segment_count(&self) -> usize {
        self.segments.len()
    }

    /// Output that waits for the disk, in bytes.
    pub(super) fn waiting_output(&self) -> u64 {
        self.waiting_output
    }

    /// Memory that waiting pieces take.
    pub(super) fn memory(&self) -> &JobMemory {
        &self.memory
    }

    pub(super) fn first_waiting(&self) -> Option<&WaitingPiece> {
        self.waiting.front()
    }

    /// So many bytes of output never came: what comes next stands behind a hole.
    pub(super) fn skip(&mut self, missing: u64) {
        self.total = self.total.saturating_add(missing);
        self.end += 1;
    }

    /// A stream has come so far without bytes. What comes next stands behind that, so that copies know of it.
    pub(super) fn note_gap(&mut self, stream: (u32, Stream), position: u64) {
        self.gaps.insert(stream, position);
        self.end += 1;
    }

    /// What comes next stands at `end`, and so many bytes of output are before it. It is the place in another head's log.
    pub(super) fn go_to(&mut self, end: u64, before: u64) {
        (self.end, self.total) = (end, before);
    }

    /// Whatever stood before `end` is not to be read, about so many bytes of output. What comes next stands behind.
    pub(super) fn skip_to(&mut self, end: u64, missing: u64) {
        self.end = self.end.max(end);
        self.total = self.total.saturating_add(missing);
    }

    /// What comes next stands this far behind, without a loss.
    pub(super) fn begin_anew(&mut self, distance: u64) {
        self.end += distance;
    }

    /// How far it has come.
    pub(super) fn written(&self) -> WrittenOutput {
        WrittenOutput { end: self.end, bytes: self.total }
    }

    /// What comes next stands at `offset` or behind it, without a loss. In earlier terms, perhaps on other machines, the log had
    /// come as far as `earlier`. Returns how many bytes of that are missing here.
    pub(super) fn begin_term(&mut self, offset: u64, earlier: WrittenOutput) -> u64 {
        self.earlier = earlier;
        self.end = self.end.max(offset);
        let missing = earlier.bytes.saturating_sub(self.total);
        if missing > 0 {
            self.lenient = offset;
            self.skip(missing);
        }
        missing
    }

    /// Whether a segment has this offset.
    pub(super) fn has(&self, offset: u64) -> bool {
        let segment = self.segments.range(..=offset).next_back();
        segment.is_some_and(|(_, segment)| offset < segment.end)
    }

    /// What is here, term by term.
    pub(super) fn term_ends(&self) -> TermEnds {
        self.term_ends_before(u64::MAX)
    }

    /// The same of what stands before this offset.
    pub(super) fn term_ends_before(&self, most: u64) -> TermEnds {
        let segments = self.segments.range(..most).map(|(_, segment)| segment);
        let segments =
            segments.map(|segment| (segment.start, segment.end.min(most), segment.before));
        let waiting = self.waiting.iter().take_while(|piece| piece.offset < most);
        let waiting = waiting.map(|piece| (piece.offset, piece.end(), piece.before));
        let mut here = TermEnds::default();
        for (start, end, before) in segments.chain(waiting) {
            if here.ends.is_empty() && before > 0 {
                here.first = start;
            }
            let known = here.ends.entry(start / TERM).or_default();
            *known = end.max(*known);
        }
        here
    }

    /// Where the last output ends that is here.
    pub(super) fn data_end(&self) -> u64 {
        let waiting = self.waiting.back().map(WaitingPiece::end);
        let segment = self.segments.last_key_value().map(|(_, segment)| segment.end);
        waiting.max(segment).unwrap_or(0)
    }

    /// Up to where a standby has the same, which has this.
    pub(super) fn common_end(&self, standby: &TermEnds) -> u64 {
        common_end(&self.term_ends(), standby, self.lenient)
    }

    /// Output before `offset` that whoever has come there has seen; none if that is not known.
    pub(super) fn seen_at(&self, offset: u64) -> Option<u64> {
        let WrittenOutput { end, bytes } = self.earlier;
        let here = self.segments.range(..=offset).next_back();
        (end > 0 && offset >= end && here.is_none()).then_some(bytes)
    }

    /// A piece has come.
    pub(super) fn push(&mut self, content: FrameContent, at: u64, frame: Vec<u8>, output: u64) {
        let (offset, before) = (self.end, self.total);
        self.end += frame.len() as u64;
        self.total = self.total.saturating_add(output);
        self.waiting_output += output;
        self.memory.add(frame.len());
        let (frame, gaps) = (frame.into(), std::mem::take(&mut self.gaps));
        self.waiting.push_back(WaitingPiece { offset, before, content, at, output, frame, gaps });
    }

    /// Takes the first waiting piece off: it is on disk, or dropped.
    pub(super) fn pop_waiting(&mut self) -> Option<WaitingPiece> {
        let piece = self.waiting.pop_front()?;
        self.waiting_output -= piece.output;
        self.memory.remove(piece.frame.len());
        Some(piece)
    }

    /// A segment is new, or longer.
    pub(super) fn set_segment(&mut self, segment: Segment) {
        self.segments.insert(segment.start, segment);
    }

    /// The oldest segment goes.
    pub(super) fn pop_segment(&mut self) -> Option<Segment> {
        self.segments.pop_first().map(|(_, segment)| segment)
    }

    /// Nothing is kept any more.
    pub(super) fn clear(&mut self) {
        self.segments.clear();
        self.waiting.clear();
        self.waiting_output = 0;
        self.memory.clear();
    }

    /// Where the segment begins that has this offset, or whatever is kept first.
    pub(super) fn begin_of(&self, offset: u64) -> u64 {
        let segment =
            self.segments.range(..=offset).next_back().or(self.segments.first_key_value());
        let waiting = self.waiting.front().map(|piece| piece.offset);
        segment.map(|(&start, _)| start).or(waiting).unwrap_or(self.end)
    }

    /// Where a copy goes on that has come to `offset`; of pieces in memory no more than about `most` bytes.
    pub(super) fn place_to_copy(&self, offset: u64, most: usize) -> CopyPlace {
        let before = self.segments.range(..=offset).next_back();
        if let Some((_, &segment)) = before.filter(|(_, segment)| offset < segment.end) {
            return CopyPlace::Disk(segment);
        }
        let index = self.waiting.partition_point(|piece| piece.offset < offset);
        let (mut next, mut bytes) = (offset, 0);
        let pieces = self.waiting.iter().skip(index).take_while(|piece| {
            let goes_on = piece.offset == next && bytes < most;
            (next, bytes) = (piece.end(), bytes + piece.frame.len());
            goes_on
        });
        let pieces: Vec<WaitingPiece> = pieces.cloned().collect();
        if !pieces.is_empty() {
            return CopyPlace::Memory(pieces);
        }
        if offset >= self.end {
            return CopyPlace::End;
        }
        let segment = self.segments.range(offset..).next().map(|(&start, _)| start);
        match segment.or(self.waiting.get(index).map(|piece| piece.offset)) {
            Some(until) => CopyPlace::Hole(until),
            None => {
                let (end, before, gaps) = (self.end, self.total, self.gaps.clone());
                CopyPlace::Tail { end, before, gaps }
            }
        }
    }

    /// Where a reader goes on that has come to `offset`.
    pub(super) fn place(&self, offset: u64) -> Place {
        let before = self.segments.range(..=offset).next_back();
        if let Some((_, &segment)) = before.filter(|(_, segment)| offset < segment.end) {
            return Place::Disk(segment);
        }
        let index = self.waiting.partition_point(|piece| piece.end() <= offset);
        let waiting = self.waiting.get(index);
        if let Some(piece) = waiting.filter(|piece| piece.offset == offset) {
            return Place::Memory(Arc::clone(&piece.frame));
        }
        let segment = self.segments.range(offset..).next();
        let segment = segment.map(|(_, segment)| (segment.start, segment.before));
        let next = segment.or(waiting.map(|piece| (piece.offset, piece.before)));
        let WrittenOutput { end, bytes } = self.earlier;
        if offset < end && next.is_none_or(|(start, _)| start >= end) {
            return Place::Hole { until: end, before: bytes };
        }
        match next.or((offset < self.end).then_some((self.end, self.total))) {
            Some((until, before)) => Place::Hole { until, before },
            None => Place::End,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kumi_control::message::Stream;

    const PIECE: FrameContent = FrameContent::Piece { rank: 0, stream: Stream::Out };

    fn hole(log: &Log, offset: u64) -> Option<(u64, u64)> {
        match log.place(offset) {
            Place::Hole { until, before } => Some((until, before)),
            _ => None,
        }
    }

    #[test]
    fn readers_find_disk_memory_and_holes() {
        let mut log = Log::default();
        assert!(matches!(log.place(0), Place::End));
        for at in [0, 10, 20] {
            log.push(PIECE, at, vec![0; 12], 10);
        }
        assert!(matches!(log.place(12), Place::Memory(_)));
        assert!(matches!(log.place(36), Place::End));
        let first = log.pop_waiting().unwrap();
        assert_eq!((first.offset, first.before, log.waiting_output()), (0, 0, 20));
        log.set_segment(Segment { start: 0, end: 12, before: 0, output: 10, body: 24 });
        assert!(matches!(log.place(0), Place::Disk(segment) if segment.end == 12));
        // The second is dropped.
        log.pop_waiting();
        assert_eq!(hole(&log, 12), Some((24, 20)));
        assert!(matches!(log.place(24), Place::Memory(_)));
        log.pop_waiting();
        assert_eq!(hole(&log, 12), Some((36, 30)), "the end");
        log.skip(7);
        log.push(PIECE, 37, vec![0; 12], 10);
        assert_eq!(hole(&log, 36), Some((37, 37)));
        assert_eq!(hole(&log, 12), Some((37, 37)));
        log.clear();
        assert_eq!(hole(&log, 0), Some((49, 47)));
    }
}
