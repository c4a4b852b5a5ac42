//! Shortened timetables, for rounds that are longer than a timetable may be.
//!
//! Rounds are too long where many jobs have many turns, or where jobs placed by another policy lie
//! across partitions. Then a sequence of its own is published, in which every job has a turn. It
//! begins with the next jobs of the tree, whose own slots go on counting in full. So however often
//! a change makes a new timetable, every job comes first in one of them in the end.

use alloc::vec::Vec;

use super::Dqt;
use super::columns::Slots;
use super::front::Front;
use crate::{ClusterTime, MatrixGang, Policy, ProcessorColumn, Request};

impl Dqt {
    /// A round in which all jobs have an equal part of their turns, at least one. The part is the
    /// whole, half, a quarter and so on, until the round fits.
    pub(super) fn shortened(&self, most: usize) -> Option<Slots> {
        let longest = self.front.rings.members.iter().map(|member| member.turns).max()?;
        let mut part: u16 = 1;
        loop {
            let slots = self.one_round(part, most);
            if slots.is_some() || part >= longest {
                return slots;
            }
            part = part.saturating_mul(2);
        }
    }

    /// The members that have the next slot.
    fn next_members(&self) -> Vec<u32> {
        let mut next = Vec::new();
        self.front.clone().next_turn(|member, _| next.push(member));
        next
    }

    fn one_round(&self, part: u16, most: usize) -> Option<Slots> {
        let front = &self.front;
        let mut fresh = Front::new(front.shape, self.config.fair, self.config.shares);
        let mut known = Vec::new();
        for queue in &front.queues {
            for member in front.rings.active(queue) {
                let old = &front.rings.members[member as usize];
                let turns = old.turns.div_ceil(part);
                let new = fresh.add_task(old.id, old.user, turns, old.node);
                fresh.join(new);
                known.push(member);
            }
        }
        let mut slots = Slots::of(fresh);
        // Not all members have had a turn within the first round.
        slots.push_round(most)?;
        slots.clear();
        slots.push_round(most)?;
        slots.members.iter_mut().for_each(|member| *member = known[*member as usize]);
        let next = self.next_members();
        let first = slots.iter().position(|slot| slot.iter().any(|member| next.contains(member)));
        slots.rotate(first.unwrap_or(0));
        Some(slots)
    }

    /// All jobs have turns like the rows of a matrix, in as few slots as possible.
    pub(super) fn by_rows(&self) -> Vec<ProcessorColumn> {
        let rings = &self.front.rings;
        let mut matrix = MatrixGang::new(u32::MAX);
        for (&job, &member) in &self.jobs {
            if rings.members[member as usize].active() {
                let nodes: Vec<_> = self.held[member as usize].iter().collect();
                let restored = matrix.restore(&Request::new(job, 0), &nodes, ClusterTime(0));
                debug_assert!(restored.is_ok(), "each job is there once and has nodes");
                matrix.set_active(job, true);
            }
        }
        let next = self.next_members().into_iter().map(|member| rings.members[member as usize].id);
        let next: Vec<_> = next.collect();
        let mut columns = matrix.columns();
        let length = columns.first().map_or(0, |column| column.slots.len());
        let has_next = |slot: &usize| {
            let mut jobs = columns.iter().filter_map(|column| column.slots[*slot]);
            jobs.any(|job| next.contains(&job))
        };
        let first = (0..length).find(has_next).unwrap_or(0);
        columns.iter_mut().for_each(|column| column.slots.rotate_left(first));
        columns
    }
}
