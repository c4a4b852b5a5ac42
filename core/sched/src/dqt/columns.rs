//! Timetable columns of a queue tree: the slots to come.

use alloc::vec;
use alloc::vec::Vec;

use super::Dqt;
use super::front::Front;
use crate::ProcessorColumn;

/// How often the slots of an irregular first round must fit into a sequence that contains them
/// once.
const DILUTION: usize = 16;

/// Future slots, produced one by one by a copy of the tree.
pub(super) struct Slots {
    pub(super) copy: Front,
    pub(super) members: Vec<u32>,
    /// Where each slot ends in `members`.
    ends: Vec<usize>,
}

impl Slots {
    pub(super) fn of(copy: Front) -> Self {
        Self { copy, members: Vec::new(), ends: Vec::new() }
    }

    fn len(&self) -> usize {
        self.ends.len()
    }

    /// No slots so far.
    pub(super) fn clear(&mut self) {
        self.members.clear();
        self.ends.clear();
    }

    /// Adds slots until the root begins a round; `None` if that takes more than `most` slots in
    /// all.
    pub(super) fn push_round(&mut self, most: usize) -> Option<()> {
        while self.len() < most {
            if self.push() {
                return Some(());
            }
        }
        None
    }

    /// The same slots, beginning with `first`; those before it come last.
    pub(super) fn rotate(&mut self, first: usize) {
        let begin = first.checked_sub(1).map_or(0, |before| self.ends[before]);
        let all = self.members.len();
        for (index, end) in self.ends.iter_mut().enumerate() {
            *end = if index < first { *end + all - begin } else { *end - begin };
        }
        self.members.rotate_left(begin);
        self.ends.rotate_left(first);
    }

    /// Adds one slot. Returns whether the root begins a round after it.
    fn push(&mut self) -> bool {
        let rounds = self.copy.rounds;
        self.copy.next_turn(|member, _| self.members.push(member));
        self.ends.push(self.members.len());
        self.copy.rounds > rounds
    }

    /// Adds exactly this many slots.
    fn exactly(mut self, slots: usize) -> Self {
        while self.len() < slots {
            self.push();
        }
        self.ends.truncate(slots);
        self.members.truncate(self.ends.last().copied().unwrap_or(0));
        self
    }

    /// Each slot's members.
    pub(super) fn iter(&self) -> impl Iterator<Item = &[u32]> {
        let begins = core::iter::once(0).chain(self.ends.iter().copied());
        begins.zip(&self.ends).map(|(begin, &end)| &self.members[begin..end])
    }

    /// Whether the first slots have the same members as those `later`, in any order.
    fn repeat(&self, slots: usize, later: usize) -> bool {
        let sorted = |members: &[u32]| {
            let mut members = members.to_vec();
            members.sort_unstable();
            members
        };
        let ours = self.iter().take(slots).map(sorted);
        ours.eq(self.iter().skip(later).take(slots).map(sorted))
    }
}

/// The slots to come; see [`crate::Policy::columns`] of [`Dqt`].
///
/// When the root begins a round, the front is always the same. After some rounds (the cycle) the
/// positions in the queues are the same too. The rest of the present round mostly looks like the
/// end of a cycle; then the cycle is the answer. It looks different if a change has made this round
/// unlike later ones.
///
/// `None` if the answer would have more than `most` slots.
fn run_on(front: &Front, horizon: usize, most: usize) -> Option<Slots> {
    let mut slots = Slots::of(front.clone());
    slots.push_round(most)?;
    let (rest, begun) = (slots.len(), slots.copy.clone());
    slots.push_round(most)?;
    let round = slots.len() - rest;
    let in_rounds = (rest + round).div_ceil(round) * round;
    let fits = |slots: &usize| *slots <= most;
    // All positions in the queues can be the same again only where a round begins.
    let mut begins = true;
    while !(begins && slots.copy.same(&begun)) {
        if slots.len() >= horizon {
            let longest = horizon.max(rest + round) / round * round;
            return Some(longest.max(in_rounds)).filter(fits).map(|length| slots.exactly(length));
        }
        begins = slots.push();
    }
    let cycle = slots.len() - rest;
    if slots.repeat(rest, cycle) {
        return Some(slots.exactly(cycle));
    }
    let enough = (rest * DILUTION).min(horizon).max(rest + cycle);
    let lengths = [enough.next_multiple_of(cycle), (rest + cycle).next_multiple_of(cycle)];
    let length = lengths.into_iter().chain([in_rounds]).find(fits)?;
    Some(slots.exactly(length))
}

impl Dqt {
    pub(super) fn compile(&self) -> Vec<ProcessorColumn> {
        let rings = &self.front.rings;
        let mut columns = Vec::new();
        // ProcessorColumn of each leaf.
        let mut at = vec![usize::MAX; self.front.shape.width() as usize];
        for &member in self.jobs.values().filter(|&&member| rings.members[member as usize].active())
        {
            self.held[member as usize].iter().for_each(|node| at[node.0 as usize] = 0);
        }
        if at.iter().all(|&index| index == usize::MAX) {
            return columns;
        }
        let most = self.config.most_slots as usize;
        let horizon = most.min(self.config.horizon as usize);
        let slots = run_on(&self.front, horizon, most).or_else(|| self.shortened(most));
        let Some(slots) = slots else { return self.by_rows() };
        for (leaf, index) in at.iter_mut().enumerate().filter(|(_, index)| **index == 0) {
            *index = columns.len();
            let processor = crate::ProcessorId(leaf as u32);
            columns.push(ProcessorColumn { processor, slots: vec![None; slots.len()] });
        }
        for (slot, members) in slots.iter().enumerate() {
            for &member in members {
                let job = rings.members[member as usize].id;
                for node in self.held[member as usize].iter() {
                    columns[at[node.0 as usize]].slots[slot] = Some(job);
                }
            }
        }
        columns
    }
}
