//! Progress of a job's ranks on a node, as a few words of their contexts tell it.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::Segment;
use crate::segment::counters::Counter;
use crate::segment::layout::RankContext;
use crate::shm::mapping::Mapping;

/// Reads how far ranks have come. It has mappings of its own rights, so another thread than the segment's may have it.
#[derive(Debug)]
pub struct ProgressReader {
    contexts: Vec<Arc<Mapping>>,
}

impl Segment {
    /// A reader of the progress of the first ranks here, at most so many.
    #[must_use]
    pub fn progress_reader(&self, most: usize) -> ProgressReader {
        let contexts = self.ranks.iter().take(most).map(|rank| Arc::clone(&rank.context));
        ProgressReader { contexts: contexts.collect() }
    }
}

impl ProgressReader {
    /// Frames that the ranks have sent and taken so far. A rank can write anything there: the sum wraps.
    #[must_use]
    pub fn frames(&self) -> u64 {
        let frames = |context: &Arc<Mapping>| {
            // SAFETY: RankContext consists of atomics only.
            let context: &RankContext = unsafe { context.view(0) };
            let of = |counter: Counter| context.counters[counter as usize].load(Relaxed);
            of(Counter::Sent).wrapping_add(of(Counter::Delivered))
        };
        self.contexts.iter().map(frames).fold(0, u64::wrapping_add)
    }
}
