//! What this rank's shared memory has done so far, for the program and for `kumi stats`.

use std::sync::atomic::{AtomicU64, Ordering};

use kumi_coherence::Message;
use kumi_net::counters::Counter;

use crate::context::SharedContext;

/// What is counted, with the counter that shows it.
macro_rules! counts {
    ($($(#[$doc:meta])* $count:ident = $name:literal $counter:ident,)*) => {
        /// What is counted.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Count {
            $($(#[$doc])* $count,)*
        }

        const COUNTS: &[(&str, Counter)] = &[$(($name, Counter::$counter),)*];
    };
}

counts! {
    /// Accesses to pages that were not visible.
    Faults = "faults" SharedFaults,
    /// Faults that found a copy which another rank of the node had fetched.
    CopiesFound = "copies" SharedCopiesFound,
    /// Requests for pages.
    Fetches = "fetches" SharedFetches,
    /// Pages that came by them.
    PagesFetched = "pages" SharedPagesFetched,
    /// Diffs sent.
    Diffs = "diffs" SharedDiffs,
    /// Their bytes.
    DiffBytes = "diff_bytes" SharedDiffBytes,
    /// Pages of which a diff came to this rank's copy.
    Updates = "updates" SharedUpdates,
    /// Locks taken.
    Locks = "locks" SharedLocks,
    /// Barriers passed.
    Barriers = "barriers" SharedBarriers,
    /// Pages that acquires made stale.
    StalePages = "stale" SharedStale,
    /// Pages that came to this node to stay.
    PagesHomed = "homed" SharedHomed,
    /// Pages that were asked for before the program touched them, and used.
    AheadUsed = "ahead_used" SharedAheadUsed,
    /// Pages that were asked for before the program touched them, for nothing.
    AheadUnused = "ahead_unused" SharedAheadUnused,
    /// Messages for locks that this rank has sent.
    LockMessages = "lock_messages" SharedLockMessages,
    /// Messages for barriers.
    BarrierMessages = "barrier_messages" SharedBarrierMessages,
    /// Messages for conditions.
    ConditionMessages = "condition_messages" SharedConditionMessages,
    /// Messages with diffs, and answers to them.
    DiffMessages = "diff_messages" SharedDiffMessages,
    /// Messages about the homes of pages.
    HomeMessages = "home_messages" SharedHomeMessages,
    /// Messages about copies that are updated.
    UpdateMessages = "update_messages" SharedUpdateMessages,
}

/// As what a message is counted.
pub(crate) fn count_of(message: &Message) -> Count {
    match message {
        Message::LockRequest { .. } | Message::LockForward { .. } | Message::LockGrant { .. } => {
            Count::LockMessages
        }
        Message::Arrive { .. } | Message::Depart { .. } => Count::BarrierMessages,
        Message::ConditionSet { .. }
        | Message::ConditionReset { .. }
        | Message::ConditionWait { .. }
        | Message::ConditionGrant { .. } => Count::ConditionMessages,
        Message::Diffs { .. } | Message::UpdateDiffs { .. } | Message::DiffsDone { .. } => {
            Count::DiffMessages
        }
        Message::Locate { .. } | Message::Located { .. } => Count::HomeMessages,
        Message::Subscribe { .. }
        | Message::Subscribed { .. }
        | Message::Update { .. }
        | Message::UpdateDone { .. } => Count::UpdateMessages,
    }
}

/// Counters of one rank.
#[derive(Debug)]
pub struct Statistics {
    counters: [AtomicU64; COUNTS.len()],
    context: SharedContext,
}

impl Statistics {
    pub(crate) fn new(context: SharedContext) -> Statistics {
        Statistics { counters: Default::default(), context }
    }

    pub(crate) fn count(&self, what: Count, more: u64) {
        let before = self.counters[what as usize].fetch_add(more, Ordering::Relaxed);
        // Of two threads at once the earlier number may stay until the next count.
        self.context.publish_counter(COUNTS[what as usize].1, before + more);
    }

    /// One counter.
    #[must_use]
    pub fn get(&self, what: Count) -> u64 {
        self.counters[what as usize].load(Ordering::Relaxed)
    }

    /// All by name.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, u64)> {
        COUNTS
            .iter()
            .zip(&self.counters)
            .map(|((name, _), one)| (*name, one.load(Ordering::Relaxed)))
    }
}
