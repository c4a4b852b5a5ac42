//! Memory of the output of all jobs that waits for the disk.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// From so many bytes on, no job whose output comes may have more than [`LEAST`].
const MOST: usize = 256 << 20;
/// What each job has at least. With as many jobs as there can be that is [`MOST`] once more: no more than twice as much waits.
pub(super) const LEAST: usize = 16 << 10;

/// What waits of all jobs together. All copies are the same.
#[derive(Clone, Debug)]
pub(super) struct WaitingMemory {
    bytes: Arc<AtomicUsize>,
    most: usize,
}

impl Default for WaitingMemory {
    fn default() -> Self {
        Self { bytes: Arc::default(), most: MOST }
    }
}

impl WaitingMemory {
    /// With another bound: for tests.
    #[cfg(test)]
    pub(super) fn of(most: usize) -> Self {
        Self { most, ..Self::default() }
    }

    /// In bytes.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// What waits of one job, which is nothing yet.
    pub(super) fn of_job(&self) -> JobMemory {
        JobMemory { own: 0, all: self.clone() }
    }
}

/// What waits of one job. It leaves the sum when this goes.
#[derive(Debug, Default)]
pub(super) struct JobMemory {
    own: usize,
    all: WaitingMemory,
}

impl JobMemory {
    pub(super) fn bytes(&self) -> usize {
        self.own
    }

    /// Whether too much waits of all jobs, and more than its least part of this one.
    pub(super) fn is_too_much(&self) -> bool {
        self.own > LEAST && self.all.bytes.load(Ordering::Relaxed) > self.all.most
    }

    pub(super) fn add(&mut self, bytes: usize) {
        self.own += bytes;
        self.all.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn remove(&mut self, bytes: usize) {
        self.own -= bytes;
        self.all.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(super) fn clear(&mut self) {
        self.remove(self.own);
    }
}

impl Drop for JobMemory {
    fn drop(&mut self) {
        self.clear();
    }
}
