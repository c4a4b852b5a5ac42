//! Accounts of the last jobs that are over, in etcd: for heads that did not lead when those jobs ended.
//!
//! Records of such jobs may be gone when another head begins to lead. It adds the accounts to those on its own disk.

use std::collections::{BTreeMap, BTreeSet};

use kumi_control::message::{CONTROL_VERSION, JobRecord, JobUsage};
use kumi_etcd::api::{Change, Pair};
use kumi_sched::JobId;

use super::Records;
use crate::head::job_table::{TableError, account_of};

/// Most accounts in etcd, some hundred bytes each. A head that has not led for so many jobs misses the oldest.
const MOST: usize = 10_000;

/// Which accounts etcd has.
#[derive(Debug)]
pub(super) struct SharedAccounts {
    most: usize,
    /// With the time of the end of each, in milliseconds since the epoch.
    ends: BTreeMap<JobId, u64>,
    /// The same, the oldest first.
    order: BTreeSet<(u64, JobId)>,
}

impl Default for SharedAccounts {
    fn default() -> Self {
        Self { most: MOST, ends: BTreeMap::new(), order: BTreeSet::new() }
    }
}

impl SharedAccounts {
    fn add(&mut self, job: JobId, ended_ms: u64) {
        if let Some(before) = self.ends.insert(job, ended_ms) {
            self.order.remove(&(before, job));
        }
        self.order.insert((ended_ms, job));
    }

    /// Removes the oldest that are too many. Returns them.
    fn trim(&mut self) -> Vec<JobId> {
        let mut gone = Vec::new();
        while self.order.len() > self.most
            && let Some((_, job)) = self.order.pop_first()
        {
            self.ends.remove(&job);
            gone.push(job);
        }
        gone
    }

    /// Takes the accounts of those jobs that are over. Returns them, without those that are too old already, and the jobs whose
    /// accounts are to go.
    fn take(&mut self, usages: impl Iterator<Item = JobUsage>) -> (Vec<JobUsage>, Vec<JobId>) {
        let mut added: BTreeMap<JobId, JobUsage> = BTreeMap::new();
        for usage in usages {
            if let Some(ended_ms) = usage.ended_ms {
                self.add(usage.job, ended_ms);
                added.insert(usage.job, usage);
            }
        }
        // A key can change once in a transaction.
        let gone = self.trim().into_iter().filter(|job| added.remove(job).is_none()).collect();
        (added.into_values().collect(), gone)
    }

    /// Fewer, for tests.
    #[cfg(test)]
    pub(super) fn of_at_most(most: usize) -> Self {
        Self { most, ..Self::default() }
    }
}

impl Records {
    fn account_key(&self, job: JobId) -> String {
        format!("{}/accounts/{:016x}", self.prefix, job.0)
    }

    /// Changes of keys for those of these jobs that are over.
    pub(super) fn account_changes<'a>(
        &mut self,
        records: impl Iterator<Item = &'a JobRecord>,
    ) -> Result<Vec<Change>, TableError> {
        let (added, gone) = self.shared_accounts.take(records.filter_map(account_of));
        let mut changes = Vec::new();
        for usage in added {
            let value = postcard::to_allocvec(&(CONTROL_VERSION, &usage))?;
            changes.push((self.account_key(usage.job), Some(value)));
        }
        changes.extend(gone.into_iter().map(|job| (self.account_key(job), None)));
        Ok(changes)
    }

    /// The accounts in etcd. One that another version has written is passed over, and stays until it is too old.
    pub(super) async fn read_accounts(&mut self) -> Result<Vec<JobUsage>, TableError> {
        let (mut usages, mut passed_over) = (Vec::new(), 0_usize);
        for Pair { key, value, .. } in self.all(&format!("{}/accounts/", self.prefix)).await? {
            let job = self.job_of("/accounts/", &key)?;
            let usage =
                postcard::take_from_bytes::<u32>(&value).ok().and_then(|(version, rest)| {
                    let usage: JobUsage = postcard::from_bytes(rest).ok()?;
                    (version == CONTROL_VERSION && usage.job == job).then_some(usage)
                });
            let ended_ms = usage.as_ref().and_then(|usage| usage.ended_ms);
            self.shared_accounts.add(job, ended_ms.unwrap_or_default());
            match usage {
                Some(usage) => usages.push(usage),
                None => passed_over += 1,
            }
        }
        if passed_over > 0 {
            tracing::warn!(passed_over, "accounts of another version are passed over");
        }
        Ok(usages)
    }
}
