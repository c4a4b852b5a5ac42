//! Turns of one job, as the switching thread tells others of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use kumi_net::disclosure::{JobPage, Turn};

/// What the daemon's other threads and the job's ranks may know of its turns. Only the switching thread changes it, one word
/// at a time, so nobody waits.
#[derive(Debug, Default)]
pub struct JobTurns {
    /// Page of the job's ranks, if the node has pages; it shows the same.
    page: Option<Arc<JobPage>>,
    /// A [`Turn`].
    turn: AtomicU8,
    /// Turns that have begun.
    begun: AtomicU64,
    /// It is not its turn, and it has what others leave idle.
    fills: AtomicBool,
    /// It cannot be put behind others.
    unfit: AtomicBool,
}

impl JobTurns {
    /// For a job with this page that had no turn yet.
    pub fn new(page: Option<Arc<JobPage>>) -> Self {
        Self { page, ..Self::default() }
    }

    /// What the job has of the processors now.
    pub fn turn(&self) -> Turn {
        let word = self.turn.load(Ordering::Relaxed);
        let turns = [Turn::Own, Turn::Shared, Turn::Filled];
        turns.into_iter().find(|&turn| turn as u8 == word).unwrap_or(Turn::None)
    }

    /// Whether it is its turn, alone or with others.
    pub fn has_turn(&self) -> bool {
        self.turn() != Turn::None
    }

    /// How many turns have begun.
    pub fn begun(&self) -> u64 {
        self.begun.load(Ordering::Relaxed)
    }

    /// Whether it has what others leave idle now, since it is not its turn.
    pub fn fills(&self) -> bool {
        self.fills.load(Ordering::Relaxed)
    }

    /// Whether it was found that it cannot be put behind others.
    pub fn unfit(&self) -> bool {
        self.unfit.load(Ordering::Relaxed)
    }

    pub(super) fn set_fills(&self, fills: bool) {
        self.fills.store(fills, Ordering::Relaxed);
    }

    pub(super) fn set_unfit(&self) {
        self.unfit.store(true, Ordering::Relaxed);
    }

    pub(super) fn set_turn(&self, turn: Turn) {
        if self.turn.swap(turn as u8, Ordering::Relaxed) == turn as u8 {
            return;
        }
        if let Some(page) = &self.page {
            page.set_turn(turn);
        }
    }

    pub(super) fn count(&self) {
        self.begun.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_and_daemon_show_the_same() {
        let page = Arc::new(JobPage::create(7, 1, [(0, 0..1)]).unwrap());
        let turns = JobTurns::new(Some(Arc::clone(&page)));
        for turn in [Turn::Own, Turn::None, Turn::Filled, Turn::Shared, Turn::None] {
            turns.set_turn(turn);
            assert_eq!((turns.turn(), page.turn()), (turn, turn));
            assert_eq!(turns.has_turn(), turn != Turn::None);
        }
        assert_eq!(turns.begun(), 0);
        turns.count();
        assert_eq!(turns.begun(), 1);
    }
}
