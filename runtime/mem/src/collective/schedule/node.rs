//! Much data among the members of a node: through pieces of memory that they share, or by messages where they have none.
//!
//! Every member writes its own piece only and tells the others by empty messages, so what they read is complete. Each
//! pattern ends when nobody reads any more.

use std::ops::Range;

use super::lines::pieces;
use super::{Builder, Line, Place, Span};

/// Bytes of the memory that a member shares with those of its node.
pub(crate) const SHARED_BYTES: usize = 256 * 1024;

/// Ranges of at most `most` elements.
pub(super) fn chunks(length: usize, most: usize) -> impl Iterator<Item = Range<usize>> {
    (0..length).step_by(most).map(move |start| start..length.min(start + most))
}

fn shared(member: u32, range: Range<usize>) -> Span {
    let length = range.end - range.start;
    Span { place: Place::Shared(member), start: range.start, length }
}

/// How members of a node reach one another.
#[derive(Debug, Clone, Copy)]
pub(super) struct NodeWay {
    /// They share memory.
    pub(super) shares: bool,
    /// Elements of each member's piece of it, and of what is done at a time without it.
    pub(super) capacity: usize,
}

impl Builder<'_> {
    /// As [`Builder::ring_combine`], for no more elements than there is room for.
    pub(super) fn node_combine(
        &mut self,
        way: NodeWay,
        line: &Line<'_>,
        starts: &[usize],
        data: Span,
        other: Span,
    ) {
        if !way.shares {
            return self.ring_combine(line, &pieces(data, starts), other);
        }
        let (me, place, count) = (self.me, line.place(self.me), line.len());
        let own = starts[place]..starts[place + 1];
        for range in [0..own.start, own.end..data.length] {
            self.copy(data.part(range.clone()), shared(me, range));
        }
        self.meet(line);
        for ahead in 1..count {
            let other = shared(line.at(place + ahead), own.clone());
            self.combine(data.part(own.clone()), other, false);
        }
    }

    /// As [`Builder::ring_show`], for no more elements than there is room for.
    pub(super) fn node_show(
        &mut self,
        way: NodeWay,
        line: &Line<'_>,
        starts: &[usize],
        data: Span,
    ) {
        if !way.shares {
            return self.ring_show(line, &pieces(data, starts));
        }
        let (place, count) = (line.place(self.me), line.len());
        let piece = |place: usize| starts[place % count]..starts[place % count + 1];
        self.copy(data.part(piece(place)), shared(self.me, piece(place)));
        self.meet(line);
        for ahead in 1..count {
            let range = piece(place + ahead);
            self.copy(shared(line.at(place + ahead), range.clone()), data.part(range));
        }
        self.meet(line);
    }

    /// As [`Builder::ring_show`], for pieces of any length.
    pub(super) fn node_show_blocks(&mut self, way: NodeWay, line: &Line<'_>, pieces: &[Span]) {
        if !way.shares {
            return self.ring_show(line, pieces);
        }
        let (place, count) = (line.place(self.me), line.len());
        let most = pieces.iter().map(|piece| piece.length).max().unwrap_or_default();
        for range in chunks(most, way.capacity) {
            let part = |piece: &Span| {
                let (start, end) = (range.start.min(piece.length), range.end.min(piece.length));
                (piece.part(start..end), 0..end - start)
            };
            let (own, at) = part(&pieces[place]);
            self.copy(own, shared(self.me, at));
            self.meet(line);
            for ahead in 1..count {
                let (into, at) = part(&pieces[(place + ahead) % count]);
                self.copy(shared(line.at(place + ahead), at), into);
            }
            self.meet(line);
        }
    }

    /// Each member has the piece of its place; the first gets all. For no more elements than there is room for.
    pub(super) fn node_collect(
        &mut self,
        way: NodeWay,
        line: &Line<'_>,
        starts: &[usize],
        data: Span,
    ) {
        if !way.shares {
            return self.collect(line, starts, data);
        }
        let (place, count) = (line.place(self.me), line.len());
        if place != 0 {
            let own = starts[place]..starts[place + 1];
            self.copy(data.part(own.clone()), shared(self.me, own));
        }
        self.meet(line);
        if place == 0 {
            for other in 1..count {
                let range = starts[other]..starts[other + 1];
                self.copy(shared(line.at(other), range.clone()), data.part(range));
            }
        }
        self.meet(line);
    }

    /// From the first member to all: it writes one half of its piece while the others read the other half.
    pub(super) fn node_down(&mut self, way: NodeWay, line: &Line<'_>, data: Span) {
        let half = way.capacity / 2;
        if !way.shares || half == 0 {
            return self.tree_down(line, data);
        }
        let (first, nothing) = (line.at(0), Span::first(Place::Scratch, 0));
        let others = 1..line.len();
        let mut rounds = 0;
        for (round, range) in chunks(data.length, half).enumerate() {
            let start = round % 2 * half;
            let middle = shared(first, start..start + range.len());
            rounds += 1;
            if self.me != first {
                self.receive(first, nothing);
                self.copy(middle, data.part(range));
                self.send(first, nothing);
                continue;
            }
            if round >= 2 {
                others.clone().for_each(|place| self.receive(line.at(place), nothing));
            }
            self.copy(data.part(range), middle);
            others.clone().for_each(|place| self.send(line.at(place), nothing));
        }
        if self.me == first {
            for _ in 0..rounds.min(2) {
                others.clone().for_each(|place| self.receive(line.at(place), nothing));
            }
        }
    }
}
