//! A row of history: what nodes, jobs and ranks did in one stretch of time.

use alloc::vec::Vec;

/// The load of a rank of which nothing is known.
pub const UNKNOWN: u8 = u8::MAX;

/// All that is kept of one stretch of time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// When it began, in seconds since the epoch.
    pub at_s: u64,
    /// The nodes that answered, ascending.
    pub nodes: Vec<NodeCell>,
    /// Jobs with ranks, ascending.
    pub jobs: Vec<JobRow>,
}

/// A node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeCell {
    /// Its number.
    pub node: u32,
    /// Use of its processors, by whatever, in per cent.
    pub busy: u8,
    /// Memory in use, in per cent.
    pub memory: u8,
    /// Time that switches took, in hundredths of a per cent.
    pub switching: u16,
    /// What its network interfaces carried, in KiB a second.
    pub network_kib: u32,
}

/// A job's ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobRow {
    /// The job.
    pub job: u64,
    /// How many ranks it has.
    pub ranks: u32,
    /// Their loads in per cent, or [`UNKNOWN`]. If these are fewer than the ranks, each is the mean of as many successive
    /// ranks; the last may be of fewer.
    pub loads: Vec<u8>,
}

impl JobRow {
    /// How many ranks each load stands for.
    #[must_use]
    pub fn ranks_per_load(&self) -> u32 {
        let loads = u32::try_from(self.loads.len()).unwrap_or(u32::MAX).max(1);
        self.ranks.div_ceil(loads).max(1)
    }

    /// Makes half as many loads, each the mean of two. Returns whether there were more than one.
    pub(crate) fn halve(&mut self) -> bool {
        if self.loads.len() < 2 {
            return false;
        }
        self.loads = self.loads.chunks(2).map(mean).collect();
        true
    }
}

/// The mean of the loads that are known.
pub(crate) fn mean(loads: &[u8]) -> u8 {
    let known = || loads.iter().filter(|&&load| load != UNKNOWN);
    let sum: u32 = known().map(|&load| u32::from(load)).sum();
    let count = u32::try_from(known().count()).unwrap_or(u32::MAX);
    let rounded = (sum + count / 2).checked_div(count);
    rounded.map_or(UNKNOWN, |mean| u8::try_from(mean).unwrap_or(UNKNOWN))
}
