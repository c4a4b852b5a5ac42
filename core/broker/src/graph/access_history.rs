//! Who wrote which bytes of a buffer last, and who has read them since.

use alloc::collections::{BTreeMap, BTreeSet};

use super::Node;

#[derive(Clone, Debug, Default)]
struct Interval {
    end: u64,
    /// `None`: the client's.
    writer: Option<Node>,
    readers: BTreeSet<Node>,
}

/// The bytes of one buffer, in pieces that do not overlap, by their first byte. What no piece has was not
/// touched yet.
#[derive(Clone, Debug, Default)]
pub(super) struct AccessHistory {
    pieces: BTreeMap<u64, Interval>,
}

/// A part of a range: first byte, behind the last, and who wrote it.
pub(super) type Part = (u64, u64, Option<Node>);

impl AccessHistory {
    /// The pieces that overlap a range; none if it is empty.
    fn over(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, &Interval)> {
        let before = self.pieces.range(..start).next_back();
        let before = before.filter(|(_, piece)| piece.end > start && start < end);
        before.into_iter().chain(self.pieces.range(start..end)).map(|(&at, piece)| (at, piece))
    }

    /// Who wrote the range, piece by piece; gaps are the client's.
    pub fn written(&self, start: u64, end: u64) -> alloc::vec::Vec<Part> {
        let mut found = alloc::vec::Vec::new();
        let mut at = start;
        for (first, piece) in self.over(start, end) {
            if first > at {
                found.push((at, first, None));
            }
            let until = piece.end.min(end);
            found.push((first.max(start), until, piece.writer));
            at = until;
        }
        if at < end {
            found.push((at, end, None));
        }
        found
    }

    /// Who has read parts of the range since they were written.
    pub fn readers(&self, start: u64, end: u64) -> BTreeSet<Node> {
        self.over(start, end).flat_map(|(_, piece)| piece.readers.iter().copied()).collect()
    }

    /// Makes a boundary between two pieces.
    fn cut(&mut self, at: u64) {
        let Some((_, piece)) = self.pieces.range_mut(..at).next_back() else { return };
        if piece.end > at {
            let second = piece.clone();
            piece.end = at;
            self.pieces.insert(at, second);
        }
    }

    pub fn read(&mut self, start: u64, end: u64, node: Node) {
        self.cut(start);
        self.cut(end);
        for (first, until, writer) in self.written(start, end) {
            let piece = self.pieces.entry(first).or_default();
            (piece.end, piece.writer) = (until, writer);
            piece.readers.insert(node);
        }
    }

    pub fn write(&mut self, start: u64, end: u64, node: Node) {
        self.cut(start);
        self.cut(end);
        let mut behind = self.pieces.split_off(&start);
        self.pieces.append(&mut behind.split_off(&end));
        self.pieces.insert(start, Interval { end, writer: Some(node), readers: BTreeSet::new() });
    }

    /// Every part that a call wrote.
    pub fn results(&self) -> impl Iterator<Item = (u64, u64, Node)> {
        let parts = self.pieces.iter();
        parts.filter_map(|(&start, piece)| piece.writer.map(|node| (start, piece.end, node)))
    }
}
