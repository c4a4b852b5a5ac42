//! Turns of one job, as the switching thread tells others of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use kumi_net::disclosure::{JobPage, Turn};

use crate::clock::monotonic;

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
    /// Nanoseconds that turns lasted which are over.
    lasted: AtomicU64,
    /// When the turn under way began, on the machine's clock; 0 if none is.
    since: AtomicU64,
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

    /// How long its turns have lasted, in nanoseconds. A look at the very moment of a switch may miss one turn, or count it twice.
    pub fn lasted(&self) -> u64 {
        let since = self.since.load(Ordering::Relaxed);
        let now = if since > 0 { monotonic().saturating_sub(since) } else { 0 };
        self.lasted.load(Ordering::Relaxed).saturating_add(now)
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
        self.measure(turn != Turn::None);
    }

    /// Its turn begins, goes on in another way, or is over.
    fn measure(&self, has_turn: bool) {
        match (self.since.load(Ordering::Relaxed), has_turn) {
            (0, true) => self.since.store(monotonic().max(1), Ordering::Relaxed),
            (0, false) | (1.., true) => {}
            (since, false) => {
                self.since.store(0, Ordering::Relaxed);
                let lasted = monotonic().saturating_sub(since);
                self.lasted.fetch_add(lasted, Ordering::Relaxed);
            }
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

    #[test]
    fn turns_last_from_their_beginning_to_their_end() {
        let turns = JobTurns::new(None);
        turns.set_turn(Turn::None);
        assert_eq!(turns.lasted(), 0);
        turns.set_turn(Turn::Own);
        std::thread::sleep(std::time::Duration::from_millis(2));
        turns.set_turn(Turn::Filled);
        let first = turns.lasted();
        assert!(first >= 2_000_000, "both are its turn");
        std::thread::sleep(std::time::Duration::from_millis(1));
        turns.set_turn(Turn::None);
        let both = turns.lasted();
        assert!(both > first);
        std::thread::sleep(std::time::Duration::from_millis(1));
        assert_eq!(turns.lasted(), both, "others have theirs");
    }
}
