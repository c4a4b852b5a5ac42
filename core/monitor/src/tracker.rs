//! Loads of ranks as differences of counts.
//!
//! A node's daemon counts for ever, and says how far it is. So any number of readers take differences of their own, and what
//! one of them misses makes its next difference longer, not wrong.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::UNKNOWN;

/// How often a node looked at a job, since it has the job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobCounts {
    /// The job.
    pub job: u64,
    /// Its lowest rank on the node.
    pub first: u32,
    /// Looks in which it could run.
    pub turns: u64,
    /// Of these, for each of its ranks on the node, those in which the rank had something to do.
    pub busy: Vec<u64>,
}

/// A job as a tracker has it.
#[derive(Debug, Default)]
struct TrackedJob {
    /// Counts by node, as of the last time.
    counts: BTreeMap<u32, JobCounts>,
    loads: Vec<u8>,
}

/// The loads of the ranks of all jobs, by the counts that came last.
#[derive(Debug, Default)]
pub struct LoadTracker {
    jobs: BTreeMap<u64, TrackedJob>,
}

impl LoadTracker {
    /// Forgets all jobs but these, which have so many ranks.
    pub fn retain(&mut self, ranks: impl Fn(u64) -> Option<u32>) {
        self.jobs.retain(|&job, _| ranks(job).is_some());
    }

    /// A node says how far it is with a job of so many ranks. A load stays as it was if the job could not run meanwhile. Ranks
    /// that the job does not have are left out: counts come from a wire.
    pub fn update(&mut self, node: u32, ranks: u32, counts: JobCounts) {
        let job = self.jobs.entry(counts.job).or_default();
        let ranks = usize::try_from(ranks).unwrap_or(usize::MAX);
        job.loads.resize(ranks, UNKNOWN);
        let before = job.counts.get(&node).filter(|before| before.precedes(&counts));
        let turns = counts.turns.saturating_sub(before.map_or(0, |before| before.turns));
        let first = usize::try_from(counts.first).unwrap_or(usize::MAX);
        if turns > 0 {
            for (place, &busy) in counts.busy.iter().enumerate() {
                let earlier = before.and_then(|before| before.busy.get(place)).copied();
                let busy = busy.saturating_sub(earlier.unwrap_or(0)).min(turns);
                let load = first.checked_add(place).and_then(|rank| job.loads.get_mut(rank));
                if let Some(load) = load {
                    *load = per_cent(busy, turns);
                }
            }
        }
        job.counts.insert(node, counts);
    }

    /// The loads of a job's ranks in per cent, [`UNKNOWN`] where nothing is known.
    #[must_use]
    pub fn loads(&self, job: u64) -> &[u8] {
        self.jobs.get(&job).map_or(&[], |job| &job.loads)
    }
}

impl JobCounts {
    /// Whether counts of the same daemon are later than these: those of a new daemon begin anew.
    fn precedes(&self, later: &Self) -> bool {
        self.first == later.first
            && self.busy.len() == later.busy.len()
            && self.turns <= later.turns
            && self.busy.iter().zip(&later.busy).all(|(before, after)| before <= after)
    }
}

/// A share in per cent, rounded.
#[must_use]
pub fn per_cent(part: u64, whole: u64) -> u8 {
    let share = (u128::from(part) * 100 + u128::from(whole) / 2).checked_div(u128::from(whole));
    u8::try_from(share.unwrap_or(0).min(100)).unwrap_or(100)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(turns: u64, busy: &[u64]) -> JobCounts {
        JobCounts { job: 7, first: 2, turns, busy: busy.to_vec() }
    }

    #[test]
    fn a_load_is_the_share_of_looks_since_the_last_time() {
        let mut tracker = LoadTracker::default();
        tracker.update(0, 4, counts(10, &[10, 0]));
        assert_eq!(tracker.loads(7), [UNKNOWN, UNKNOWN, 100, 0]);
        tracker.update(0, 4, counts(30, &[10, 5]));
        assert_eq!(tracker.loads(7), [UNKNOWN, UNKNOWN, 0, 25]);
        // It had no turn: nothing new is known.
        tracker.update(0, 4, counts(30, &[10, 5]));
        assert_eq!(tracker.loads(7), [UNKNOWN, UNKNOWN, 0, 25]);
        // A new daemon counts from the beginning.
        tracker.update(0, 4, counts(4, &[4, 1]));
        assert_eq!(tracker.loads(7), [UNKNOWN, UNKNOWN, 100, 25]);
        tracker.retain(|job| (job != 7).then_some(1));
        assert_eq!(tracker.loads(7), [] as [u8; 0]);
    }

    #[test]
    fn nodes_say_nothing_of_ranks_that_are_none() {
        let mut tracker = LoadTracker::default();
        tracker.update(0, 3, counts(1, &[1, 1, 1]));
        assert_eq!(tracker.loads(7), [UNKNOWN, UNKNOWN, 100]);
        let far = JobCounts { first: u32::MAX, ..counts(1, &[u64::MAX; 3]) };
        tracker.update(1, 3, far);
        assert_eq!(tracker.loads(7), [UNKNOWN, UNKNOWN, 100]);
    }

    #[test]
    fn shares_are_rounded_and_bounded() {
        assert_eq!([per_cent(1, 3), per_cent(2, 3), per_cent(9, 3)], [33, 67, 100]);
        assert_eq!((per_cent(0, 0), per_cent(u64::MAX, u64::MAX)), (0, 100));
    }
}
