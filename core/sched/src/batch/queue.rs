//! Queue of waiting jobs, in order of arrival unless they are put into another.

use alloc::collections::VecDeque;
use core::ops::Index;

use crate::demand::Demand;
use crate::policy::reorder_queue;
use crate::shares::QueueRank;
use crate::{ClusterTime, JobId, Request};

/// A waiting job.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitingJob {
    pub(crate) job: JobId,
    /// Processors, as many as [`super::pool::Pool::count`] says.
    pub(crate) count: u32,
    pub(crate) demand: Demand,
    /// Nanoseconds; 0 where the policy ignores it.
    pub(crate) estimate: u64,
    /// Planned start, for policies with reservations; `UNPLANNED` before.
    pub(crate) start: u64,
    priority: u16,
    arrived: ClusterTime,
}

/// Not planned yet, or too few processors are up for it.
pub(crate) const UNPLANNED: u64 = u64::MAX;

impl WaitingJob {
    pub(crate) fn new(request: &Request, count: u32, now: ClusterTime) -> Self {
        let &Request { job, demand, priority, estimate_ns, .. } = request;
        let estimate = estimate_ns.unwrap_or(0);
        Self { job, count, demand, estimate, start: UNPLANNED, priority, arrived: now }
    }
}

/// First come, first served; among jobs of one instant, the most important comes first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queue(VecDeque<WaitingJob>);

impl Queue {
    pub(crate) fn push(&mut self, waiting: WaitingJob) {
        let after = |other: &&WaitingJob| {
            other.arrived == waiting.arrived && other.priority < waiting.priority
        };
        let place = self.0.len() - self.0.iter().rev().take_while(after).count();
        self.0.insert(place, waiting);
    }

    pub(crate) fn withdraw(&mut self, job: JobId) -> Option<WaitingJob> {
        let index = self.0.iter().position(|waiting| waiting.job == job)?;
        self.0.remove(index)
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &WaitingJob> + ExactSizeIterator {
        self.0.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut WaitingJob> {
        self.0.iter_mut()
    }

    pub(crate) fn position(&self, matches: impl FnMut(&WaitingJob) -> bool) -> Option<usize> {
        self.0.iter().position(matches)
    }

    /// Puts the jobs in the order of these ranks. Returns whether that is another order.
    pub(crate) fn reorder(&mut self, rank: &mut dyn FnMut(JobId) -> QueueRank) -> bool {
        reorder_queue(&mut self.0, |waiting| waiting.job, rank)
    }

    pub(crate) fn remove(&mut self, index: usize) {
        self.0.remove(index);
    }
}

impl Index<usize> for Queue {
    type Output = WaitingJob;

    fn index(&self, index: usize) -> &WaitingJob {
        &self.0[index]
    }
}
