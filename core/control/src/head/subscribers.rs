//! Clients that wait for news of a job: those that follow it, and those that had it killed.

use alloc::collections::{BTreeMap, BTreeSet};

use kumi_sched::JobId;

use super::ClientId;

/// The subscribers of all jobs that are not over.
#[derive(Debug, Default)]
pub(super) struct Subscribers {
    followers: BTreeMap<JobId, BTreeSet<ClientId>>,
    killers: BTreeMap<JobId, BTreeSet<ClientId>>,
}

impl Subscribers {
    /// The client wants to know every state of the job.
    pub(super) fn follow(&mut self, job: JobId, client: ClientId) {
        self.followers.entry(job).or_default().insert(client);
    }

    /// The client waits for the end of a job that it has had killed.
    pub(super) fn await_end(&mut self, job: JobId, client: ClientId) {
        self.killers.entry(job).or_default().insert(client);
    }

    pub(super) fn followers(&self, job: JobId) -> BTreeSet<ClientId> {
        self.followers.get(&job).cloned().unwrap_or_default()
    }

    /// The clients that waited for the end of the job, which is over.
    pub(super) fn take_killers(&mut self, job: JobId) -> BTreeSet<ClientId> {
        self.killers.remove(&job).unwrap_or_default()
    }

    /// The job is over, and its followers were told.
    pub(super) fn forget_job(&mut self, job: JobId) {
        self.followers.remove(&job);
        self.killers.remove(&job);
    }

    pub(super) fn forget_client(&mut self, client: ClientId) {
        for clients in self.followers.values_mut().chain(self.killers.values_mut()) {
            clients.remove(&client);
        }
    }
}
