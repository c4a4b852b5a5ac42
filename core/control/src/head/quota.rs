//! How much the head keeps for users: it must not grow as large as they like, and one of them must not take it all.

use alloc::format;

use super::Head;
use super::jobs::{Job, refusal};
use crate::message::{JobRequest, Refusal, RefusalKind, User};

/// Jobs that are not over; more are refused, so that a runaway script does not fill the head.
const MOST_LIVE: usize = 10_000;
/// What the requests of jobs that are not over, and input that waits for them, may take together, in bytes.
const MOST_BYTES: usize = 256 << 20;
/// What the requests of jobs that are over and remembered may take together, in bytes.
pub(super) const MOST_ENDED_BYTES: usize = 32 << 20;
/// Of jobs and of bytes, users other than the owner and root get at most one of so many parts each.
const PART: usize = 2;

/// What is kept for jobs of a user, or of all, that are not over.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Usage {
    jobs: usize,
    bytes: usize,
}

/// About what a request takes in memory, in bytes.
pub(super) fn request_bytes(request: &JobRequest) -> usize {
    const TEXT: usize = 32;
    let args = request.args.iter().map(|arg| arg.len() + TEXT);
    let env = request.env.iter().map(|(name, value)| name.len() + value.len() + 2 * TEXT);
    let others = request.name.len() + request.cwd.len() + request.program.path.len();
    args.chain(env).sum::<usize>() + others + 512
}

/// What waits to be read by a job.
pub(super) fn input_bytes(job: &Job) -> usize {
    job.input.iter().map(|data| data.len() + 64).sum()
}

impl Head {
    /// Whether there is room for one more job of this user.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn check_room(&self, user: &User, request: &JobRequest) -> Result<(), Refusal> {
        let full = |message| Err(refusal(RefusalKind::NoResources, message));
        if self.held.jobs >= MOST_LIVE {
            return full(format!("{MOST_LIVE} jobs are waiting or running; try again later"));
        }
        let own = self.held_by(user).jobs;
        if !self.owns_cluster(user) && own >= MOST_LIVE / PART {
            return full(format!("{own} of your jobs are waiting or running; try again later"));
        }
        self.check_bytes(user, request_bytes(request))
    }

    /// Whether so many bytes more may be kept for jobs of this user.
    ///
    /// # Errors
    /// They may not.
    pub(super) fn check_bytes(&self, user: &User, bytes: usize) -> Result<(), Refusal> {
        let part = if self.owns_cluster(user) { 1 } else { PART };
        let own = self.held_by(user).bytes;
        let whose = if self.held.bytes + bytes > MOST_BYTES {
            "all jobs"
        } else if own + bytes > MOST_BYTES / part {
            "your jobs"
        } else {
            return Ok(());
        };
        let message = format!(
            "arguments, environments and waiting input of {whose} that are not over take as much \
             as the head keeps; try again later, or with less"
        );
        Err(refusal(RefusalKind::NoResources, message))
    }

    fn held_by(&self, user: &User) -> Usage {
        self.held_by_user.get(&user.uid).copied().unwrap_or_default()
    }

    /// A job comes, or more is kept for it.
    pub(super) fn hold(&mut self, uid: u32, jobs: usize, bytes: usize) {
        for held in [&mut self.held, self.held_by_user.entry(uid).or_default()] {
            held.jobs += jobs;
            held.bytes += bytes;
        }
    }

    /// A job is over, or less is kept for it.
    pub(super) fn release(&mut self, uid: u32, jobs: usize, bytes: usize) {
        for held in [&mut self.held, self.held_by_user.entry(uid).or_default()] {
            held.jobs = held.jobs.saturating_sub(jobs);
            held.bytes = held.bytes.saturating_sub(bytes);
        }
        self.held_by_user.retain(|_, held| held.jobs > 0);
    }
}
