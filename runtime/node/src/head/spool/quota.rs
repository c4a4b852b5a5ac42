//! How much output the head keeps of a job and of a user.

use std::collections::BTreeMap;

use kumi_sched::JobId;

use crate::config::Quotas;

/// Bytes of a MiB.
const MIB: u64 = 1 << 20;

/// Jobs of a user that are not over have written as much as is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("of the jobs of a user {0} MiB are kept together, spool_mib_per_user in cluster.toml")]
pub(super) struct UserShareFull(u64);

/// Output of one job.
#[derive(Clone, Copy, Debug, Default)]
struct JobOutput {
    user: u32,
    bytes: u64,
    over: bool,
}

/// What is kept of each job and each user.
#[derive(Debug)]
pub(in crate::head) struct SpoolQuota {
    quotas: Quotas,
    jobs: BTreeMap<JobId, JobOutput>,
    users: BTreeMap<u32, u64>,
    /// Bytes of jobs that are over, and the most of them.
    over: u64,
    most_over: u64,
}

impl SpoolQuota {
    /// Nothing yet. Jobs that are over may have so many MiB together.
    pub(in crate::head) fn new(quotas: Quotas, over_mib: u64) -> Self {
        let most_over = over_mib.saturating_mul(MIB);
        Self { quotas, jobs: BTreeMap::new(), users: BTreeMap::new(), over: 0, most_over }
    }

    /// The job is this user's, and over or not.
    pub(super) fn know(&mut self, job: JobId, user: u32, over: bool) {
        let output = self.jobs.entry(job).or_default();
        match (std::mem::replace(&mut output.over, over), over) {
            (false, true) => self.over = self.over.saturating_add(output.bytes),
            (true, false) => self.over = self.over.saturating_sub(output.bytes),
            _ => {}
        }
        if output.user != user {
            let bytes = output.bytes;
            let before = std::mem::replace(&mut output.user, user);
            self.add(before, 0, bytes);
            self.add(user, bytes, 0);
        }
    }

    /// The job is not known any more. Before that its entry says whose it is: output may come to the disk after its end.
    pub(super) fn discard(&mut self, job: JobId) {
        self.set(job, 0);
        self.jobs.remove(&job);
    }

    fn add(&mut self, user: u32, more: u64, less: u64) {
        let bytes = self.users.entry(user).or_default();
        *bytes = bytes.saturating_add(more).saturating_sub(less);
        if *bytes == 0 {
            self.users.remove(&user);
        }
    }

    /// So many bytes are kept of the job.
    pub(super) fn set(&mut self, job: JobId, bytes: u64) {
        let output = self.jobs.entry(job).or_default();
        let (user, before) = (output.user, std::mem::replace(&mut output.bytes, bytes));
        if output.over {
            self.over = self.over.saturating_add(bytes).saturating_sub(before);
        }
        self.add(user, bytes, before);
    }

    /// The jobs that are over of which output has to go for that of all of them, oldest first.
    pub(super) fn excess(&self) -> Vec<JobId> {
        if self.over <= self.most_over {
            return Vec::new();
        }
        let mut left = self.over;
        let over = self.jobs.iter().filter(|(_, output)| output.over && output.bytes > 0);
        let gone = over.take_while(|(_, output)| {
            let excessive = left > self.most_over;
            left = left.saturating_sub(output.bytes);
            excessive
        });
        gone.map(|(&job, _)| job).collect()
    }

    /// Whether the job is known to be over.
    pub(super) fn is_over(&self, job: JobId) -> bool {
        self.jobs.get(&job).is_some_and(|output| output.over)
    }

    /// Bytes that the job has now.
    pub(super) fn bytes(&self, job: JobId) -> u64 {
        self.jobs.get(&job).map_or(0, |output| output.bytes)
    }

    /// Bytes that are kept of a job.
    pub(super) fn ring(&self) -> u64 {
        self.quotas.spool_mib_per_job.saturating_mul(MIB)
    }

    /// What is said when they are not enough.
    pub(super) fn ring_is_full(&self) -> String {
        let mib = self.quotas.spool_mib_per_job;
        format!("of a job the last {mib} MiB are kept, spool_mib_per_job in cluster.toml")
    }

    /// Whether the output of the job may grow to `bytes`, as far as its user is concerned; the jobs of which output has to go
    /// first, oldest first.
    ///
    /// # Errors
    /// It may not; then nothing has to go.
    pub(super) fn admit(&self, job: JobId, bytes: u64) -> Result<Vec<JobId>, UserShareFull> {
        let mib = self.quotas.spool_mib_per_user;
        let output = self.jobs.get(&job).copied().unwrap_or_default();
        let most = mib.saturating_mul(MIB);
        let used = self.users.get(&output.user).copied().unwrap_or(0);
        let mut used = used.saturating_sub(output.bytes).saturating_add(bytes);
        let mut gone = Vec::new();
        if used > most {
            let kept = |entry: &(&JobId, &JobOutput)| {
                let (&id, other) = *entry;
                other.over && other.user == output.user && other.bytes > 0 && id != job
            };
            for (&id, other) in self.jobs.iter().filter(kept) {
                if used <= most {
                    break;
                }
                used = used.saturating_sub(other.bytes);
                gone.push(id);
            }
        }
        if used > most { Err(UserShareFull(mib)) } else { Ok(gone) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_and_a_user_have_their_share_and_old_output_makes_room() {
        let quotas = Quotas { spool_mib_per_job: 3, spool_mib_per_user: 5, ..Quotas::default() };
        let mut quota = SpoolQuota::new(quotas, 1_000);
        for (job, user) in [(1, 7), (2, 7), (3, 7), (4, 8)] {
            quota.know(JobId(job), user, false);
        }
        assert_eq!(quota.admit(JobId(1), 3 * MIB), Ok(vec![]));
        assert_eq!(quota.ring(), 3 * MIB);
        quota.set(JobId(1), 2 * MIB);
        quota.set(JobId(2), 2 * MIB);
        assert_eq!(quota.admit(JobId(3), 2 * MIB), Err(UserShareFull(5)));
        assert_eq!(quota.admit(JobId(4), 3 * MIB), Ok(vec![]), "another user's");
        quota.know(JobId(2), 7, true);
        assert_eq!(quota.admit(JobId(3), 2 * MIB), Ok(vec![JobId(2)]));
        quota.know(JobId(1), 7, true);
        assert_eq!(quota.admit(JobId(3), 2 * MIB), Ok(vec![JobId(1)]), "the oldest");
        quota.set(JobId(1), 0);
        quota.set(JobId(3), 2 * MIB);
        assert_eq!(quota.admit(JobId(3), 3 * MIB), Ok(vec![]));
    }

    #[test]
    fn jobs_that_are_over_have_a_share_together() {
        let mut quota = SpoolQuota::new(Quotas::default(), 5);
        for (job, user) in [(1, 7), (2, 8), (3, 9), (4, 9)] {
            quota.know(JobId(job), user, false);
            quota.set(JobId(job), 2 * MIB);
        }
        assert_eq!(quota.excess(), [], "they run");
        for (job, user) in [(2, 8), (3, 9)] {
            quota.know(JobId(job), user, true);
        }
        assert_eq!(quota.excess(), []);
        quota.know(JobId(4), 9, true);
        assert_eq!(quota.excess(), [JobId(2)]);
        quota.set(JobId(2), 0);
        assert_eq!(quota.excess(), []);
        quota.know(JobId(1), 7, true);
        quota.set(JobId(4), 5 * MIB);
        assert_eq!(quota.excess(), [JobId(1), JobId(3)]);
        quota.discard(JobId(4));
        assert_eq!((quota.excess(), quota.over), (vec![], 4 * MIB));
    }

    #[test]
    fn only_a_job_that_is_not_known_any_more_has_no_entry() {
        let mut quota = SpoolQuota::new(Quotas::default(), 5);
        quota.know(JobId(1), 7, true);
        quota.set(JobId(1), MIB);
        assert_eq!((quota.users.get(&7), quota.over), (Some(&MIB), MIB));
        quota.set(JobId(1), 0);
        quota.set(JobId(1), 2 * MIB);
        assert_eq!((quota.users.get(&7), quota.over), (Some(&(2 * MIB)), 2 * MIB));
        quota.discard(JobId(1));
        quota.discard(JobId(2));
        assert!(quota.jobs.is_empty() && quota.users.is_empty() && quota.over == 0);
    }
}
