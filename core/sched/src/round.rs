//! Round: slots of a policy that repeat.

use alloc::vec::Vec;

use crate::JobId;

/// The jobs of the slots to come while nothing changes: a *round* of slots that repeats without
/// end.
///
/// It is made of *lines*. A line is a ring of jobs, often of one, that take turns. In each of its
/// slots the next job of the ring runs. So a line has the same slots in every round, and only its
/// jobs rotate. No job is in two lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Round {
    length: u64,
    /// Where each line ends in `slots` and in `jobs`.
    ends: Vec<(usize, usize)>,
    slots: Vec<u32>,
    jobs: Vec<JobId>,
}

/// A line of a [`Round`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// The slots of the round in which it has a turn, ascending; at least one.
    pub slots: &'a [u32],
    /// Its jobs in the order of their turns, the next one first; at least one.
    pub jobs: &'a [JobId],
}

impl Round {
    /// Slots of the round.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Its lines.
    pub fn lines(&self) -> impl Iterator<Item = Line<'_>> {
        let begins = core::iter::once((0, 0)).chain(self.ends.iter().copied());
        begins.zip(&self.ends).map(|((slot, job), &(slots, jobs))| Line {
            slots: &self.slots[slot..slots],
            jobs: &self.jobs[job..jobs],
        })
    }

    /// Begins a new round of this many slots, still without lines.
    pub(crate) fn begin(&mut self, length: u64) {
        self.length = length;
        self.ends.clear();
        self.slots.clear();
        self.jobs.clear();
    }

    /// Turns of all lines.
    pub(crate) fn turns(&self) -> usize {
        self.slots.len()
    }

    /// Adds a line, whose turns follow with [`Round::put`].
    pub(crate) fn line(&mut self, turns: usize, jobs: impl IntoIterator<Item = JobId>) {
        self.slots.resize(self.slots.len() + turns, 0);
        self.jobs.extend(jobs);
        self.ends.push((self.slots.len(), self.jobs.len()));
    }

    /// In which slots the turns from number `from` are, counted over all lines.
    pub(crate) fn put(&mut self, from: usize, slots: impl IntoIterator<Item = u32>) {
        self.slots[from..].iter_mut().zip(slots).for_each(|(turn, slot)| *turn = slot);
    }

    /// The round with these slots, each job in a line of its own.
    pub(crate) fn of_slots<'a>(&mut self, slots: impl Iterator<Item = &'a [JobId]>) {
        let mut turns: Vec<(JobId, u32)> = Vec::new();
        let mut length = 0;
        for (index, slot) in (0..).zip(slots) {
            turns.extend(slot.iter().map(|&job| (job, index)));
            length = u64::from(index) + 1;
        }
        turns.sort_unstable();
        self.begin(length);
        for line in turns.chunk_by(|one, two| one.0 == two.0) {
            let from = self.turns();
            self.line(line.len(), [line[0].0]);
            self.put(from, line.iter().map(|&(_, slot)| slot));
        }
    }
}

impl Line<'_> {
    /// Turns that it has in the first `slots` slots of a round of `length` slots.
    pub fn turns(&self, slots: u64, length: u64) -> u64 {
        let rest = slots % length;
        let begun = self.slots.partition_point(|&slot| u64::from(slot) < rest);
        slots / length * self.slots.len() as u64 + begun as u64
    }

    /// The slot, from the beginning of a round of `length` slots, in which it has its turn number
    /// `turn`, counted from 0; at most [`u64::MAX`].
    pub fn slot_of(&self, turn: u64, length: u64) -> u64 {
        let count = self.slots.len() as u64;
        let slot = u64::from(self.slots[(turn % count) as usize]);
        (turn / count).saturating_mul(length).saturating_add(slot)
    }
}
