//! Pace of a job: how far those who set it have come. A job whose submitter reads slowly waits, as a program does whose pipe is
//! full.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use tokio::sync::Notify;

/// A follower that sets the pace tells here how far it has come.
#[derive(Debug)]
pub(super) struct Pacer {
    offset: Arc<AtomicU64>,
    progress: Arc<Notify>,
}

impl Pacer {
    /// It has come so far.
    pub(super) fn come_to(&self, offset: u64) {
        self.offset.store(offset, Ordering::Relaxed);
        self.progress.notify_one();
    }
}

impl Drop for Pacer {
    fn drop(&mut self) {
        // Nobody waits for who is gone.
        self.come_to(u64::MAX);
    }
}

/// Those who set the pace of a job.
#[derive(Debug, Default)]
pub(super) struct Pace(Vec<Weak<AtomicU64>>);

impl Pace {
    /// One more, who begins at `offset`. Each step is told to `progress`.
    pub(super) fn join(&mut self, offset: u64, progress: Arc<Notify>) -> Pacer {
        let offset = Arc::new(AtomicU64::new(offset));
        self.0.retain(|other| other.strong_count() > 0);
        self.0.push(Arc::downgrade(&offset));
        Pacer { offset, progress }
    }

    /// How far the last of them has come, if there is any.
    pub(super) fn slowest(&self) -> Option<u64> {
        let offsets = self.0.iter().filter_map(Weak::upgrade);
        offsets.map(|offset| offset.load(Ordering::Relaxed)).min()
    }
}
