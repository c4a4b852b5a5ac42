//! Clients that wait for news of a job: those that follow it, those that had it killed, and those that wait for its end.

use alloc::collections::{BTreeMap, BTreeSet};

use kumi_sched::JobId;

use super::ClientId;

/// The subscribers of all jobs that are not over.
#[derive(Debug, Default)]
pub(super) struct Subscribers {
    followers: BTreeMap<JobId, BTreeSet<ClientId>>,
    killers: BTreeMap<JobId, BTreeSet<ClientId>>,
    waiters: BTreeMap<JobId, BTreeSet<ClientId>>,
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

    /// The client waits for the end of the job, and wants to know how it ends.
    pub(super) fn await_outcome(&mut self, job: JobId, client: ClientId) {
        self.waiters.entry(job).or_default().insert(client);
    }

    /// The clients that waited for the outcome of the job, which is over.
    pub(super) fn take_waiters(&mut self, job: JobId) -> BTreeSet<ClientId> {
        self.waiters.remove(&job).unwrap_or_default()
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
        self.waiters.remove(&job);
    }

    pub(super) fn forget_client(&mut self, client: ClientId) {
        let killers = self.killers.values_mut();
        for clients in self.followers.values_mut().chain(killers).chain(self.waiters.values_mut()) {
            clients.remove(&client);
        }
    }
}
