//! Quota of the memory that the head keeps for the jobs of users.
//!
//! The head must not grow as large as its users like, and no user must take all of it.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec::Vec;

use super::refusal;
use crate::batch::After;
use crate::message::{JobRequest, Refusal, RefusalKind};

/// Jobs that are not over; more are refused, so that a runaway script does not fill the head.
const MOST_LIVE: usize = 16_000;
/// Requests of jobs that are not over and input that waits for them may take so much together, in bytes.
const MOST_BYTES: usize = 256 << 20;
/// Users other than the owner and root get at most one of so many parts of the bytes.
const PART: usize = 2;

/// Jobs that are not over, and the bytes that are kept for them.
#[derive(Clone, Copy, Debug, Default)]
struct Usage {
    jobs: usize,
    bytes: usize,
}

/// About what a request takes in memory, in bytes.
pub(super) fn request_bytes(request: &JobRequest) -> usize {
    const TEXT: usize = 32;
    let args = request.args.iter().map(|arg| arg.len() + TEXT);
    let env = request.env.iter().map(|(name, value)| name.len() + value.len() + 2 * TEXT);
    let others = request.name.len() + request.cwd.len() + request.program.path.len();
    let content = request.batch.content.as_ref().map_or(0, Vec::len);
    let after = request.batch.after.len() * size_of::<After>();
    args.chain(env).sum::<usize>() + others + content + after + 512
}

/// A user as the quota sees them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Account {
    pub(super) uid: u32,
    /// Owns the cluster, or is root.
    pub(super) privileged: bool,
}

/// Memory that is in use for the jobs of each user.
#[derive(Debug)]
pub(super) struct Quota {
    /// Most jobs of a user other than the owner and root.
    most_jobs: usize,
    total: Usage,
    by_user: BTreeMap<u32, Usage>,
}

impl Quota {
    /// Nothing is in use.
    pub(super) fn new(most_jobs: u32) -> Self {
        let most_jobs = usize::try_from(most_jobs).unwrap_or(usize::MAX);
        Self { most_jobs, total: Usage::default(), by_user: BTreeMap::new() }
    }

    /// Whether there is room for so many more jobs of this user.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn check_jobs(
        &self,
        user: Account,
        request: &JobRequest,
        count: u32,
    ) -> Result<(), Refusal> {
        let more = usize::try_from(count).unwrap_or(usize::MAX);
        let full = |message| Err(refusal(RefusalKind::NoResources, message));
        if self.total.jobs.saturating_add(more) > MOST_LIVE {
            let own = self.total.jobs;
            return full(format!(
                "{own} jobs are waiting or running, and a cluster has at most {MOST_LIVE}; try again later"
            ));
        }
        let own = self.of(user).jobs;
        if !user.privileged && own.saturating_add(more) > self.most_jobs {
            let message = format!(
                "{own} of your jobs are waiting or running, and a user may have {}; try again later",
                self.most_jobs
            );
            return Err(refusal(RefusalKind::Quota, message));
        }
        self.check_bytes(user, request_bytes(request).saturating_mul(more))
    }

    /// Whether so many bytes more may be kept for jobs of this user.
    ///
    /// # Errors
    /// They may not.
    pub(super) fn check_bytes(&self, user: Account, bytes: usize) -> Result<(), Refusal> {
        let part = if user.privileged { 1 } else { PART };
        let own = self.of(user).bytes;
        let whose = if self.total.bytes.saturating_add(bytes) > MOST_BYTES {
            "all jobs"
        } else if own.saturating_add(bytes) > MOST_BYTES / part {
            "your jobs"
        } else {
            return Ok(());
        };
        let message = format!(
            "arguments, environments and waiting input of {whose} fill the memory that the head \
             has for them; try again later, or pass less"
        );
        Err(refusal(RefusalKind::NoResources, message))
    }

    fn of(&self, user: Account) -> Usage {
        self.by_user.get(&user.uid).copied().unwrap_or_default()
    }

    /// A job comes, or more is kept for it.
    pub(super) fn charge(&mut self, uid: u32, jobs: usize, bytes: usize) {
        for usage in [&mut self.total, self.by_user.entry(uid).or_default()] {
            usage.jobs += jobs;
            usage.bytes += bytes;
        }
    }

    /// A job is over, or less is kept for it.
    pub(super) fn refund(&mut self, uid: u32, jobs: usize, bytes: usize) {
        for usage in [&mut self.total, self.by_user.entry(uid).or_default()] {
            usage.jobs = usage.jobs.saturating_sub(jobs);
            usage.bytes = usage.bytes.saturating_sub(bytes);
            debug_assert!(usage.jobs > 0 || usage.bytes == 0, "{} bytes of no job", usage.bytes);
        }
        self.by_user.retain(|_, usage| usage.jobs > 0);
    }
}
