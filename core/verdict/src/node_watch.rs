//! A node's readings of a job, one after another: which of them are settled, and what the head is to know.

use crate::reading::{FINAL_ROUND, NodeReading, Summary};

use serde::{Deserialize, Serialize};

/// So many readings in a row that are not quiet take back what was told. MPI programs leave their waits for moments to look
/// for themselves.
const MOST_MISSES: u32 = 3;

/// What nodes say of a job.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Standing {
    /// The latest settled standing does not hold any more.
    Changed,
    /// Two readings in a row were quiet and equal.
    Settled(Summary),
}

/// Readings of a job on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NodeWatch {
    last: Option<NodeReading>,
    /// The latest reading is the one that was told.
    told: bool,
    misses: u32,
    /// The latest round that the head has begun, and that this node has answered.
    asked: u64,
    answered: u64,
    /// All ranks are over, and that was told.
    over: bool,
}

impl NodeWatch {
    /// The head begins a round. Every reading that is taken from here on belongs to it.
    pub fn confirm(&mut self, round: u64) {
        self.asked = self.asked.max(round);
    }

    /// Whether a settled standing was told, or may be soon: then the next reading is worth its cost.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.told
    }

    /// A reading, which was taken after everything that this was told before. What to tell.
    pub fn read(&mut self, reading: NodeReading) -> Option<Standing> {
        if reading.is_quiet() {
            return self.quiet(reading);
        }
        self.misses = self.misses.saturating_add(1);
        let moved = self.last.as_ref().is_none_or(|last| last.counts() != reading.counts());
        if !moved && self.misses < MOST_MISSES {
            return None;
        }
        self.last = None;
        self.over = false;
        core::mem::take(&mut self.told).then_some(Standing::Changed)
    }

    fn quiet(&mut self, reading: NodeReading) -> Option<Standing> {
        self.misses = 0;
        if self.over {
            return None;
        }
        if reading.is_over() {
            // Nobody there does anything any more, so one reading is enough.
            let summary = reading.summary(FINAL_ROUND, true);
            (self.last, self.told, self.over) = (Some(reading), true, true);
            return Some(Standing::Settled(summary));
        }
        if self.last.as_ref() != Some(&reading) {
            self.last = Some(reading);
            return core::mem::take(&mut self.told).then_some(Standing::Changed);
        }
        if !self.told {
            // The head has not heard of this standing, so it cannot have asked whether it still holds.
            self.told = true;
            self.answered = self.asked;
            return Some(Standing::Settled(reading.summary(0, false)));
        }
        if self.asked > self.answered {
            self.answered = self.asked;
            return Some(Standing::Settled(reading.summary(self.asked, true)));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{RankReading, Wait};
    use alloc::vec;

    fn reading(number: u64, idle: bool, sent: u64) -> NodeReading {
        let waits = vec![Wait { number, ..Wait::default() }];
        let rank = RankReading { idle, waits, sent, ..RankReading::default() };
        NodeReading { ranks: vec![rank], ..NodeReading::default() }
    }

    fn round(standing: Option<Standing>) -> Option<u64> {
        match standing {
            Some(Standing::Settled(summary)) => Some(summary.round),
            _ => None,
        }
    }

    #[test]
    fn two_equal_quiet_readings_settle() {
        let mut watch = NodeWatch::default();
        assert_eq!(watch.read(reading(1, true, 0)), None);
        assert_eq!(watch.read(reading(2, true, 0)), None, "another wait");
        assert_eq!(watch.read(reading(2, true, 1)), None, "it has sent something");
        assert_eq!(round(watch.read(reading(2, true, 1))), Some(0));
        assert_eq!(watch.read(reading(2, true, 1)), None, "told already");
        assert_eq!(watch.read(reading(3, true, 1)), Some(Standing::Changed));
    }

    #[test]
    fn a_round_is_answered_by_a_later_reading() {
        let mut watch = NodeWatch::default();
        watch.confirm(1);
        watch.read(reading(1, true, 0));
        assert_eq!(round(watch.read(reading(1, true, 0))), Some(0), "that round is older");
        watch.confirm(2);
        assert_eq!(round(watch.read(reading(1, true, 0))), Some(2));
        watch.confirm(3);
        assert_eq!(watch.read(reading(1, true, 5)), Some(Standing::Changed));
        assert_eq!(round(watch.read(reading(1, true, 5))), Some(0));
    }

    #[test]
    fn a_wait_left_for_a_moment_is_the_same_wait() {
        let mut watch = NodeWatch::default();
        watch.read(reading(1, true, 0));
        watch.read(reading(1, true, 0));
        for _ in 1..MOST_MISSES {
            assert_eq!(watch.read(reading(1, false, 0)), None);
        }
        watch.confirm(1);
        assert_eq!(round(watch.read(reading(1, true, 0))), Some(1));
        assert_eq!(watch.read(reading(1, false, 1)), Some(Standing::Changed), "it did something");
        watch.read(reading(1, true, 1));
        watch.read(reading(1, true, 1));
        for _ in 1..MOST_MISSES {
            assert_eq!(watch.read(reading(1, false, 1)), None);
        }
        assert_eq!(watch.read(reading(1, false, 1)), Some(Standing::Changed));
        assert_eq!(watch.read(reading(1, false, 1)), None, "told once");
    }

    #[test]
    fn what_could_end_by_itself_is_not_quiet() {
        let mut timed = reading(1, true, 0);
        timed.ranks[0].waits[0].timed = true;
        assert!(!timed.is_quiet());
        let outside = NodeReading { outside: true, ..reading(1, true, 0) };
        assert!(!outside.is_quiet() && reading(1, true, 0).is_quiet());
        assert!(!reading(1, false, 0).is_quiet());
        let mut silent = reading(1, true, 0);
        silent.ranks[0].waits.clear();
        assert!(!silent.is_quiet(), "it does not say for what it waits");
    }

    #[test]
    fn a_node_whose_ranks_are_over_has_answered_all_rounds() {
        let mut watch = NodeWatch::default();
        let mut over = reading(1, false, 7);
        over.ranks[0].over = true;
        assert_eq!(round(watch.read(over.clone())), Some(FINAL_ROUND));
        assert_eq!(watch.read(over), None);
    }
}
