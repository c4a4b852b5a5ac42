//! What may still run of jobs on nodes that are lost: until their leases are over.

use alloc::collections::BTreeSet;

use kumi_sched::{JobId, NodeId};

use crate::message::Nanos;

/// Parts of jobs on nodes that are lost. One that was freed since, or came back, stays listed, and is passed over when it
/// is due.
#[derive(Debug, Default)]
pub(super) struct LostParts {
    ends: BTreeSet<(Nanos, JobId, NodeId)>,
}

impl LostParts {
    /// Until `end` something of the job may run on the node.
    pub(super) fn add(&mut self, end: Nanos, job: JobId, node: NodeId) {
        self.ends.insert((end, job, node));
    }

    /// The next part of which nothing runs any more.
    pub(super) fn take_over(&mut self, now: Nanos) -> Option<(JobId, NodeId)> {
        let &(_, job, node) = self.ends.first().filter(|(end, ..)| *end <= now)?;
        self.ends.pop_first();
        Some((job, node))
    }

    /// When the next one is over.
    pub(super) fn next_end(&self) -> Option<Nanos> {
        self.ends.first().map(|(end, ..)| *end)
    }
}
