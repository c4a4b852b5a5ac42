//! Patterns of communication among some members in a row: trees, rings, doubling.

use std::borrow::Cow;
use std::ops::Range;

use super::{Builder, Span};

/// Members in a row. Patterns number them by their place in it.
#[derive(Debug, Clone)]
pub(crate) enum Line<'a> {
    /// All members of the group, from this one on, round and round.
    All { members: u32, first: u32 },
    /// These members.
    Some(Cow<'a, [u32]>),
}

impl<'a> Line<'a> {
    /// These members, but this one of them first.
    pub(crate) fn led(members: &'a [u32], first: u32) -> Line<'a> {
        if members.first() == Some(&first) {
            return Line::Some(members.into());
        }
        let rest = members.iter().copied().filter(|member| *member != first);
        Line::Some(std::iter::once(first).chain(rest).collect())
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Line::All { members, .. } => *members as usize,
            Line::Some(list) => list.len(),
        }
    }

    /// The member at a place, counted round and round.
    pub(crate) fn at(&self, place: usize) -> u32 {
        let place = place % self.len();
        match self {
            Line::All { members, first } => {
                ((u64::from(*first) + place as u64) % u64::from(*members)) as u32
            }
            Line::Some(list) => list[place],
        }
    }

    /// Whether a member is in it.
    pub(crate) fn contains(&self, member: u32) -> bool {
        match self {
            Line::All { members, .. } => member < *members,
            Line::Some(list) => list.contains(&member),
        }
    }

    /// The place of a member that is in it.
    ///
    /// # Panics
    /// If it is not.
    pub(crate) fn place(&self, member: u32) -> usize {
        match self {
            Line::All { members, first } => {
                let (members, first) = (u64::from(*members), u64::from(*first));
                ((u64::from(member) + members - first) % members) as usize
            }
            Line::Some(list) => {
                let place = list.iter().position(|other| *other == member);
                place.unwrap_or_else(|| panic!("member {member} is not in this line"))
            }
        }
    }
}

/// The parts of data that begin and end at these elements.
pub(super) fn pieces(data: Span, starts: &[usize]) -> Vec<Span> {
    starts.windows(2).map(|ends| data.part(ends[0]..ends[1])).collect()
}

/// A binomial tree over places 0 to `count`: a place stands for itself and the `bit - 1` places behind it.
fn subtree(place: usize, count: usize) -> usize {
    let mut bit = 1;
    while bit < count && place & bit == 0 {
        bit *= 2;
    }
    bit
}

/// The places from `place` on that a subtree of this width has.
fn covered(place: usize, width: usize, count: usize) -> Range<usize> {
    place..place.saturating_add(width).min(count)
}

impl Builder<'_> {
    /// From the first member to all, along a binomial tree.
    pub(super) fn tree_down(&mut self, line: &Line<'_>, data: Span) {
        let (place, count) = (line.place(self.me), line.len());
        let mut bit = subtree(place, count);
        if place != 0 {
            self.receive(line.at(place - bit), data);
        }
        while bit > 1 {
            bit /= 2;
            if place + bit < count {
                self.send(line.at(place + bit), data);
            }
        }
    }

    /// The reduction of all members' data at the first, along a binomial tree, in the line's order.
    pub(super) fn tree_up(&mut self, line: &Line<'_>, data: Span, other: Span) {
        let (place, count) = (line.place(self.me), line.len());
        let mut bit = 1;
        while bit < count {
            if place & bit != 0 {
                self.send(line.at(place - bit), data);
                return;
            }
            if place + bit < count {
                self.receive(line.at(place + bit), other);
                self.combine(data, other, false);
            }
            bit *= 2;
        }
    }

    /// The reduction at all members, in the line's order, by recursive doubling. Beyond a power of two, one member of a
    /// pair stands back and gets the result from the other.
    pub(super) fn doubling(&mut self, line: &Line<'_>, data: Span, other: Span) {
        let (place, count) = (line.place(self.me), line.len());
        let power = 1 << count.ilog2();
        let extra = count - power;
        if place < 2 * extra && place % 2 == 1 {
            self.send(line.at(place - 1), data);
            self.receive(line.at(place - 1), data);
            return;
        }
        if place < 2 * extra {
            self.receive(line.at(place + 1), other);
            self.combine(data, other, false);
        }
        let real = |number: usize| if number < extra { 2 * number } else { number + extra };
        let number = if place < 2 * extra { place / 2 } else { place - extra };
        let mut bit = 1;
        while bit < power {
            let partner = line.at(real(number ^ bit));
            self.exchange(partner, data, partner, other);
            self.combine(data, other, number & bit != 0);
            bit *= 2;
        }
        if place < 2 * extra {
            self.send(line.at(place + 1), data);
        }
    }

    /// Pieces go round and are combined: afterwards each member has the piece of its place complete.
    pub(super) fn ring_combine(&mut self, line: &Line<'_>, pieces: &[Span], other: Span) {
        let (place, count) = (line.place(self.me), line.len());
        let (to, from) = (line.at(place + 1), line.at(place + count - 1));
        for step in 1..count {
            let out = pieces[(place + count - step) % count];
            let mine = pieces[(place + 2 * count - step - 1) % count];
            let other = other.part(0..mine.length);
            self.exchange(to, out, from, other);
            self.combine(mine, other, false);
        }
    }

    /// Each member has the piece of its place; pieces go round until all have all.
    pub(super) fn ring_show(&mut self, line: &Line<'_>, pieces: &[Span]) {
        let (place, count) = (line.place(self.me), line.len());
        let (to, from) = (line.at(place + 1), line.at(place + count - 1));
        for step in 0..count - 1 {
            let out = pieces[(place + count - step) % count];
            let into = pieces[(place + 2 * count - step - 1) % count];
            self.exchange(to, out, from, into);
        }
    }

    /// From the first member to each its piece, along a binomial tree; what goes through a member stays in its `data`. Of that
    /// only the part is used that [`Builder::behind`] tells.
    pub(super) fn deal(&mut self, line: &Line<'_>, starts: &[usize], data: Span) {
        let (place, count) = (line.place(self.me), line.len());
        let span = |range: Range<usize>| data.part(starts[range.start]..starts[range.end]);
        let mut bit = subtree(place, count);
        if place != 0 {
            self.receive(line.at(place - bit), span(covered(place, bit, count)));
        }
        while bit > 1 {
            bit /= 2;
            if place + bit < count {
                let part = span(covered(place + bit, bit, count));
                self.send(line.at(place + bit), part);
            }
        }
    }

    /// Where the pieces begin in memory for those that go through this member in [`Builder::deal`] and [`Builder::collect`]:
    /// its own, which comes first, and those behind it in the tree. Also their length in all.
    pub(super) fn behind(&self, line: &Line<'_>, starts: &[usize]) -> (Vec<usize>, usize) {
        let (place, count) = (line.place(self.me), line.len());
        let range = covered(place, subtree(place, count), count);
        let (first, end) = (starts[range.start], starts[range.end]);
        (starts.iter().map(|start| (*start).clamp(first, end) - first).collect(), end - first)
    }

    /// The reverse: each member has its piece in `data`, and the first gets all.
    pub(super) fn collect(&mut self, line: &Line<'_>, starts: &[usize], data: Span) {
        let (place, count) = (line.place(self.me), line.len());
        let span = |range: Range<usize>| data.part(starts[range.start]..starts[range.end]);
        let mut bit = 1;
        while bit < count {
            if place & bit != 0 {
                let part = span(covered(place, bit, count));
                self.send(line.at(place - bit), part);
                return;
            }
            if place + bit < count {
                let part = span(covered(place + bit, bit, count));
                self.receive(line.at(place + bit), part);
            }
            bit *= 2;
        }
    }

    /// Each member has the piece of its place in `data`; afterwards all have all, after log2(n) rounds (Bruck et al. 1997).
    pub(super) fn bruck(&mut self, line: &Line<'_>, starts: &[usize], data: Span) {
        let (place, count) = (line.place(self.me), line.len());
        let total = starts[count];
        let held = self.scratch(total);
        // held has the pieces from the own one on, round and round; this is where the i-th of them begins.
        let begin = |i: usize| match place + i {
            at if at <= count => starts[at] - starts[place],
            at => total - starts[place] + starts[at - count],
        };
        let own = data.part(starts[place]..starts[place + 1]);
        self.copy(own, held.part(0..own.length));
        let mut have = 1;
        while have < count {
            let take = have.min(count - have);
            let (to, from) = (line.at(place + count - have), line.at(place + have));
            let into = held.part(begin(have)..begin(have + take));
            // What the other takes are its own pieces from its place on: the first `take` of mine.
            self.exchange(to, held.part(0..begin(take)), from, into);
            have += take;
        }
        let turn = total - starts[place];
        self.copy(held.part(0..turn), data.part(starts[place]..total));
        self.copy(held.part(turn..total), data.part(0..starts[place]));
    }

    /// Returns when all members of the line have come so far (Hensgen, Finkel, Manber 1988: in round k a member tells the
    /// one 2^k ahead).
    pub(super) fn meet(&mut self, line: &Line<'_>) {
        let (place, count) = (line.place(self.me), line.len());
        let nothing = Span::first(super::Place::Scratch, 0);
        let mut distance = 1;
        while distance < count {
            let (to, from) = (line.at(place + distance), line.at(place + count - distance));
            self.exchange(to, nothing, from, nothing);
            distance *= 2;
        }
    }
}
