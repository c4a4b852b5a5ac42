//! Readings of ranks, and what a node or a subtree makes of them.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::wait::{Wait, WaitKind};

/// Most ranks whose waits a summary lists.
pub const MOST_LISTED: usize = 1_024;

/// Most waits of a rank that are described.
pub const MOST_WAITS: usize = 8;

/// Most locks of a rank that are listed.
pub const MOST_HELD: usize = 16;

/// Round of what stays as it is: all ranks of the nodes are over.
pub const FINAL_ROUND: u64 = u64::MAX;

/// What a rank does, by its context and its processes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct RankReading {
    /// The rank.
    pub rank: u32,
    /// It has left its job or its process has ended. Read before everything else: what it counted is final then.
    pub over: bool,
    /// Its idle flag is set, and no counter has what one of its waits is for.
    pub idle: bool,
    /// The waits of its threads.
    pub waits: Vec<Wait>,
    /// Locks of shared memory that it holds.
    pub held: Vec<u64>,
    /// Frames sent.
    pub sent: u64,
    /// Frames taken.
    pub delivered: u64,
}

impl RankReading {
    fn is_quiet(&self) -> bool {
        self.over || (self.idle && !self.waits.is_empty())
    }

    /// It is in a wait that ends only when all ranks are in such a wait, or over.
    fn ends(&self) -> bool {
        !self.over && self.waits.iter().any(|wait| wait.kind == WaitKind::MpiFinalize)
    }

    /// It waits, and only its job can end that.
    fn waits_for_its_job(&self) -> bool {
        self.over || self.waits.iter().all(|wait| !wait.timed)
    }
}

/// What the ranks of a job on a node do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NodeReading {
    /// All of them.
    pub ranks: Vec<RankReading>,
    /// A thread beside the waits does something, or waits for something outside the job.
    pub outside: bool,
}

impl NodeReading {
    /// Nothing but the job itself can go on here.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        let ranks = self.ranks.iter();
        !self.outside
            && ranks.clone().all(RankReading::is_quiet)
            && ranks.clone().all(RankReading::waits_for_its_job)
    }

    /// Whether every rank is over.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.ranks.iter().all(|rank| rank.over)
    }

    /// Frames sent and taken.
    #[must_use]
    pub fn counts(&self) -> (u64, u64) {
        let sum =
            |of: fn(&RankReading) -> u64| self.ranks.iter().map(of).fold(0, u64::wrapping_add);
        (sum(|rank| rank.sent), sum(|rank| rank.delivered))
    }

    /// The sums, of this round; `listed`: with the waits.
    #[must_use]
    pub fn summary(&self, round: u64, listed: bool) -> Summary {
        let (sent, delivered) = self.counts();
        let waiting = self.ranks.iter().filter(|rank| !rank.over).count() as u32;
        let ending = self.ranks.iter().filter(|rank| rank.ends()).count() as u32;
        let listed = if listed { &self.ranks[..self.ranks.len().min(MOST_LISTED)] } else { &[] };
        Summary {
            round,
            ranks: self.ranks.len() as u32,
            waiting,
            ending,
            sent,
            delivered,
            listed: listed.iter().map(RankStanding::of).collect(),
        }
    }
}

/// A rank in a report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RankStanding {
    /// The rank.
    pub rank: u32,
    /// It is over.
    pub over: bool,
    /// What its threads wait for.
    pub waits: Vec<Wait>,
    /// Locks of shared memory that it holds.
    pub held: Vec<u64>,
}

impl RankStanding {
    fn of(reading: &RankReading) -> Self {
        let RankReading { rank, over, .. } = *reading;
        let waits = if over { Vec::new() } else { reading.waits.clone() };
        Self { rank, over, waits, held: reading.held.clone() }
    }
}

/// Settled readings of some nodes, added up.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Summary {
    /// The latest round that all of these nodes have answered: 0 if they have answered none.
    pub round: u64,
    /// Ranks.
    pub ranks: u32,
    /// Of them, those that wait; all others are over.
    pub waiting: u32,
    /// Of those that wait, those that wait for all ranks to end MPI.
    pub ending: u32,
    /// Frames sent, modulo 2⁶⁴ as all sums.
    pub sent: u64,
    /// Frames taken.
    pub delivered: u64,
    /// The lowest ranks, at most [`MOST_LISTED`], if this answers a round.
    pub listed: Vec<RankStanding>,
}

impl Summary {
    /// Of no node: adding it changes nothing.
    pub const EMPTY: Self = Self {
        round: FINAL_ROUND,
        ranks: 0,
        waiting: 0,
        ending: 0,
        sent: 0,
        delivered: 0,
        listed: Vec::new(),
    };

    /// Both together. The order does not matter.
    #[must_use]
    pub fn combine(mut self, other: &Self) -> Self {
        self.round = self.round.min(other.round);
        self.ranks = self.ranks.saturating_add(other.ranks);
        self.waiting = self.waiting.saturating_add(other.waiting);
        self.ending = self.ending.saturating_add(other.ending);
        self.sent = self.sent.wrapping_add(other.sent);
        self.delivered = self.delivered.wrapping_add(other.delivered);
        self.listed.extend_from_slice(&other.listed);
        self.listed.sort_by_key(|rank| rank.rank);
        self.listed.truncate(MOST_LISTED);
        self
    }

    /// Whether its list has the bounds that lists of others' daemons must have.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let bounded =
            |rank: &RankStanding| rank.waits.len() <= MOST_WAITS && rank.held.len() <= MOST_HELD;
        self.listed.len() <= MOST_LISTED && self.listed.iter().all(bounded)
    }

    /// Some rank waits for something else than the end of all, and nothing is on its way.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.waiting > self.ending && self.sent == self.delivered
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    fn summary() -> impl Strategy<Value = Summary> {
        let numbers = (any::<u64>(), 0..9_u32, 0..9_u32, any::<u64>(), any::<u64>());
        (numbers, prop::collection::btree_set(0..5_000_u32, 0..1_400)).prop_map(
            |((round, waiting, ending, sent, delivered), ranks)| Summary {
                round,
                ranks: ranks.len() as u32,
                waiting,
                ending,
                sent,
                delivered,
                listed: ranks
                    .into_iter()
                    .take(MOST_LISTED)
                    .map(|rank| RankStanding { rank, ..RankStanding::default() })
                    .collect(),
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(50))]

        #[test]
        fn summaries_add_up_in_any_order(a in summary(), b in summary(), c in summary()) {
            let left = a.clone().combine(&b).combine(&c);
            let right = a.clone().combine(&b.clone().combine(&c));
            prop_assert_eq!(&left, &right);
            prop_assert_eq!(&left.listed, &c.clone().combine(&a).combine(&b).listed);
            prop_assert_eq!(a.clone().combine(&Summary::EMPTY), a);
        }
    }
    #[test]
    fn ranks_that_end_together_are_not_stopped() {
        let in_wait = |kind| {
            let waits = vec![Wait { kind, ..Wait::default() }];
            RankReading { idle: true, waits, ..RankReading::default() }
        };
        let over = RankReading { over: true, ..in_wait(WaitKind::MpiFinalize) };
        let summary = |ranks: &[RankReading]| {
            NodeReading { ranks: ranks.to_vec(), outside: false }.summary(1, false)
        };
        let end = in_wait(WaitKind::MpiFinalize);
        let all = summary(&[end.clone(), over]).combine(&summary(core::slice::from_ref(&end)));
        assert_eq!((all.waiting, all.ending, all.is_stopped()), (2, 2, false));
        let one_receives = all.combine(&summary(&[in_wait(WaitKind::MpiReceive)]));
        assert!(one_receives.is_stopped(), "the others never come to their end");
    }
}
