//! Access history of a buffer: the last writer of each byte, and its readers since.

use alloc::collections::{BTreeMap, BTreeSet};

use super::Node;

#[derive(Clone, Debug, Default)]
struct Interval {
    end: u64,
    /// The call that wrote it last; `None`: the client.
    writer: Option<Node>,
    readers: BTreeSet<Node>,
}

/// The bytes of one buffer in disjoint intervals, by their first byte. Bytes outside were not accessed yet.
#[derive(Clone, Debug, Default)]
pub(super) struct AccessHistory {
    pieces: BTreeMap<u64, Interval>,
}

/// A part of a range: first byte, end, and writer.
pub(super) type Part = (u64, u64, Option<Node>);

impl AccessHistory {
    /// The intervals that overlap a range.
    fn over(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, &Interval)> {
        let before = self.pieces.range(..start).next_back();
        let before = before.filter(|(_, piece)| piece.end > start && start < end);
        before.into_iter().chain(self.pieces.range(start..end)).map(|(&at, piece)| (at, piece))
    }

    /// The writers of a range; gaps belong to the client.
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

    /// The calls that have read parts of the range since they were written.
    pub fn readers(&self, start: u64, end: u64) -> BTreeSet<Node> {
        self.over(start, end).flat_map(|(_, piece)| piece.readers.iter().copied()).collect()
    }

    /// Splits an interval at a byte.
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

    /// All parts that a call wrote.
    pub fn results(&self) -> impl Iterator<Item = (u64, u64, Node)> {
        let parts = self.pieces.iter();
        parts.filter_map(|(&start, piece)| piece.writer.map(|node| (start, piece.end, node)))
    }
}
