//! Schedules: what one member of a group does in a collective, as a list of steps.
//!
//! A schedule is a pure function of the call, the member's index, the members by node, and sizes. It knows no channel and
//! no types: lengths are numbers of elements. [`super::execute`] carries it out; the tests carry out those of all
//! members in memory.
//!
//! Two rules make any order of arrival safe. A member sends to another what that one receives from it, in the same
//! order. And no step uses a place that a step under way receives into.

mod blocks;
mod choice;
mod lines;
mod node;
mod plan;
mod reductions;
mod topology;

use std::ops::Range;

pub(crate) use choice::{Limits, Shape};
pub(crate) use lines::Line;
pub(crate) use node::SHARED_BYTES;
pub(crate) use plan::{Call, Counts, plan, share_words, wants_memory};
pub(crate) use topology::Topology;

/// Which memory a step uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// What the caller gives.
    Input,
    /// What the caller gets; of reductions in place also what it gives.
    Output,
    /// Memory of the schedule's own.
    Scratch,
    /// A piece that a member of the same node shares with the others there.
    Shared(u32),
}

/// Elements of a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) place: Place,
    pub(crate) start: usize,
    pub(crate) length: usize,
}

impl Span {
    /// The first elements of a place.
    pub(crate) fn first(place: Place, length: usize) -> Span {
        Span { place, start: 0, length }
    }

    /// A part of these elements.
    ///
    /// # Panics
    /// If it is not inside of them.
    pub(crate) fn part(self, range: Range<usize>) -> Span {
        assert!(range.start <= range.end && range.end <= self.length, "a part outside of its span");
        Span { start: self.start + range.start, length: range.end - range.start, ..self }
    }

    /// Behind the last element.
    pub(crate) fn end(self) -> usize {
        self.start + self.length
    }
}

/// A step of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// To this member.
    Send { to: u32, from: Span },
    /// Exactly as many elements from this member.
    Receive { from: u32, into: Span },
    /// Both at the same time.
    Exchange { to: u32, out: Span, from: u32, into: Span },
    /// A copy between places that do not overlap.
    Copy { from: Span, into: Span },
    /// `into` becomes the reduction of `into` and `other`, or of `other` and `into` if `other` comes first in the members
    /// order. `other` keeps its value or not.
    Combine { into: Span, other: Span, other_first: bool },
}

/// The steps of a member in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Schedule {
    pub(crate) steps: Vec<Step>,
    /// Elements of memory of its own.
    pub(crate) scratch: usize,
}

/// Makes the schedule of a member.
pub(crate) struct Builder<'t> {
    topology: &'t Topology,
    me: u32,
    schedule: Schedule,
}

impl<'t> Builder<'t> {
    fn new(topology: &'t Topology, me: u32) -> Builder<'t> {
        Builder { topology, me, schedule: Schedule::default() }
    }

    /// More memory of the schedule's own.
    fn scratch(&mut self, length: usize) -> Span {
        let start = self.schedule.scratch;
        self.schedule.scratch += length;
        Span { place: Place::Scratch, start, length }
    }

    fn send(&mut self, to: u32, from: Span) {
        self.schedule.steps.push(Step::Send { to, from });
    }

    fn receive(&mut self, from: u32, into: Span) {
        self.schedule.steps.push(Step::Receive { from, into });
    }

    fn exchange(&mut self, to: u32, out: Span, from: u32, into: Span) {
        self.schedule.steps.push(Step::Exchange { to, out, from, into });
    }

    fn copy(&mut self, from: Span, into: Span) {
        debug_assert_eq!(from.length, into.length);
        if from != into && from.length > 0 {
            self.schedule.steps.push(Step::Copy { from, into });
        }
    }

    fn combine(&mut self, into: Span, other: Span, other_first: bool) {
        debug_assert_eq!(other.length, into.length);
        if into.length > 0 {
            self.schedule.steps.push(Step::Combine { into, other, other_first });
        }
    }
}

/// Where each of `count` even pieces of so many elements begins, and where the last one ends.
fn even(length: usize, count: usize) -> Vec<usize> {
    // In 128 bits: a long vector times many members.
    (0..=count).map(|piece| (length as u128 * piece as u128 / count as u128) as usize).collect()
}

/// Where each block begins, and where the last one ends.
pub(crate) fn starts(counts: impl IntoIterator<Item = usize>) -> Vec<usize> {
    let mut at = 0usize;
    let mut starts = vec![0];
    for count in counts {
        at = at.saturating_add(count);
        starts.push(at);
    }
    starts
}

#[cfg(test)]
mod tests;
