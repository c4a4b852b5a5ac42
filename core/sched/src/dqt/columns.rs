//! The slots to come, as a timetable.

use alloc::vec;
use alloc::vec::Vec;

use super::Dqt;
use super::front::Front;
use crate::Column;

/// Who runs, slot by slot.
#[derive(Default)]
struct Slots {
    members: Vec<u32>,
    /// Where each slot ends in `members`.
    ends: Vec<usize>,
}

impl Slots {
    fn truncate(&mut self, slots: usize) {
        self.ends.truncate(slots);
        self.members.truncate(self.ends.last().copied().unwrap_or(0));
    }

    /// Each slot's members.
    fn iter(&self) -> impl Iterator<Item = &[u32]> {
        let begins = core::iter::once(0).chain(self.ends.iter().copied());
        begins.zip(&self.ends).map(|(begin, &end)| &self.members[begin..end])
    }
}

/// How often the slots of a first round that is not like the others must go into a sequence in which
/// they come once.
const DILUTION: usize = 16;

/// Lets a copy run on until it is as it was.
///
/// If the present round is unlike those to come, because of a change, that never happens: then the
/// slots are cut where the copy is as it was when the root began its next round, if the rest of the
/// present round is a small part of them. If there is no such place within `horizon` slots, they are
/// cut after the last of those rounds, counted from the present slot, after which the front is where
/// it is now and only the jobs whose turn it is are others; or else after the last round of the
/// root. One whole round of the root is in the slots in any case.
fn run_on(front: &Front, horizon: usize) -> Slots {
    let mut copy = front.clone();
    let mut slots = Slots::default();
    let (mut like_now, mut round_ends) = (None, None);
    let mut next_round: Option<(usize, Front)> = None;
    loop {
        let rounds = copy.rounds;
        copy.next_turn(|member, _| slots.members.push(member));
        slots.ends.push(slots.members.len());
        let length = slots.ends.len();
        if copy.same(front) {
            return slots;
        }
        if copy.same_front(front) {
            like_now = Some(length);
        }
        if copy.rounds > rounds {
            match &next_round {
                None => next_round = Some((length, copy.clone())),
                Some((rest, begun)) if length >= rest * DILUTION && copy.same(begun) => {
                    return slots;
                }
                Some(_) => round_ends = Some(length),
            }
        }
        if let (true, Some(cut)) = (length >= horizon, like_now.or(round_ends)) {
            slots.truncate(cut);
            return slots;
        }
    }
}

impl Dqt {
    pub(super) fn compile(&self) -> Vec<Column> {
        let rings = &self.front.rings;
        let mut columns = Vec::new();
        // By leaf its column.
        let mut at = vec![usize::MAX; self.front.shape.size(self.front.shape.height) as usize];
        for &member in self.jobs.values().filter(|&&member| rings.members[member as usize].active())
        {
            self.held[member as usize].iter().for_each(|node| at[node.0 as usize] = 0);
        }
        if at.iter().all(|&index| index == usize::MAX) {
            return columns;
        }
        let slots = run_on(&self.front, self.config.horizon as usize);
        for (leaf, index) in at.iter_mut().enumerate().filter(|(_, index)| **index == 0) {
            *index = columns.len();
            let node = crate::NodeId(leaf as u32);
            columns.push(Column { node, slots: vec![None; slots.ends.len()] });
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
