//! Jobs that have ranks, for whoever watches them.

use alloc::collections::BTreeSet;

use kumi_sched::JobId;

use super::Head;
use crate::message::{JobRecord, JobState};

impl Head {
    /// The jobs whose ranks exist, ascending. It costs a look at these alone, however many others there are.
    pub fn running(&self) -> impl Iterator<Item = &JobRecord> + '_ {
        let nodes = self.jobs.busy_nodes();
        let placed: BTreeSet<JobId> = nodes.flat_map(|node| self.jobs.on_node(node)).collect();
        let records = placed.into_iter().filter_map(|job| self.jobs.get(job));
        let records = records.map(|job| &job.record);
        records.filter(|record| matches!(record.state, JobState::Running))
    }

    /// The running jobs that are outside the rotation, because all their ranks wait.
    pub fn idle(&self) -> BTreeSet<JobId> {
        self.idle.running(&self.jobs).into_iter().collect()
    }

    /// How many jobs wait in the queue. It costs a look at all jobs.
    pub fn queued(&self) -> usize {
        self.records().filter(|record| record.state == JobState::Queued).count()
    }
}
