//! Conditions (`jia_setcv`, `jia_waitcv`): a flag at its manager. Setting it is a release, waiting for it an acquire.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::notices::Interval;
use crate::{Rank, Ticket};

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
struct Condition {
    holds: bool,
    intervals: Vec<Interval>,
    waiting: Vec<Rank>,
}

/// The conditions that this rank manages, and its own waits.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Conditions {
    managed: BTreeMap<u32, Condition>,
    waits: BTreeMap<u32, Vec<Ticket>>,
}

impl Conditions {
    /// The condition holds: who has waited, and what to tell them.
    pub(crate) fn set(&mut self, number: u32, made: Vec<Interval>) -> (Vec<Rank>, Vec<Interval>) {
        let condition = self.managed.entry(number).or_default();
        condition.holds = true;
        for interval in made {
            // A rank that sets it again tells all of its epoch.
            condition.intervals.retain(|earlier| {
                earlier.writer != interval.writer || earlier.number != interval.number
            });
            condition.intervals.push(interval);
        }
        (core::mem::take(&mut condition.waiting), condition.intervals.clone())
    }

    pub(crate) fn reset(&mut self, number: u32) {
        self.managed.entry(number).or_default().holds = false;
    }

    /// A rank waits: what to tell it, if the condition holds.
    pub(crate) fn asked(&mut self, number: u32, from: Rank) -> Option<Vec<Interval>> {
        let condition = self.managed.entry(number).or_default();
        if condition.holds {
            return Some(condition.intervals.clone());
        }
        condition.waiting.push(from);
        None
    }

    /// A thread of this rank waits; whether it is the first and the manager is to be asked.
    pub(crate) fn wait(&mut self, number: u32, ticket: Ticket) -> bool {
        let waits = self.waits.entry(number).or_default();
        waits.push(ticket);
        waits.len() == 1
    }

    /// The condition holds: the waits that are over.
    pub(crate) fn granted(&mut self, number: u32) -> Vec<Ticket> {
        self.waits.remove(&number).unwrap_or_default()
    }

    /// All ranks know of what was written in epochs before this one.
    pub(crate) fn depart(&mut self, epoch: u32) {
        for condition in self.managed.values_mut() {
            condition.intervals.retain(|interval| interval.epoch >= epoch);
        }
    }
}
