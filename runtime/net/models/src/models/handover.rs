//! The hand-over of the channel to the handler thread. A request that is lost leaves it asleep for ever.

use std::convert::Infallible;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, SeqCst};

use loom::sync::Arc;
use loom::thread;

use super::explore;
use crate::handover::{Handover, Service, TICK, TickState, Timer};
use crate::lock::DriveLock;
use crate::sync::{AtomicU32, begin};

/// The timer of the handler thread; any time that is set is over when it is waited for.
#[derive(Debug)]
struct ModelTimer(AtomicU32);

impl ModelTimer {
    /// Waits until a time is set. A handler that nobody wakes any more goes round here until the checker gives up.
    fn wait(&self) {
        while self.0.swap(0, AcqRel) == 0 {
            thread::yield_now();
        }
    }
}

impl Timer for ModelTimer {
    fn after(&self, microseconds: Option<u64>) {
        // One step, as the system call is: a timer orders what is done before it is set.
        self.0.swap(microseconds.is_some().into(), AcqRel);
    }
}

/// What the threads of a rank share.
struct Rank {
    lock: DriveLock,
    handover: Handover,
    timer: ModelTimer,
    /// Something for the handler to see.
    work: AtomicU32,
}

impl Rank {
    fn new() -> Arc<Rank> {
        let timer = ModelTimer(AtomicU32::default());
        let (lock, handover, work) = Default::default();
        Arc::new(Rank { lock, handover, timer, work })
    }

    /// As `handler_thread::run`, until it has seen the work.
    fn handle(&self, work_in_rings: bool) {
        let mut state = TickState::new();
        self.timer.after(Some(TICK));
        let mut seen = Seen { work: &self.work, in_rings: work_in_rings, seen: false };
        while !seen.seen {
            self.timer.wait();
            if self.lock.try_lock_handler() {
                let Ok(()) = self.handover.round(&mut state, &self.timer, &mut seen);
                self.lock.unlock_handler();
            } else {
                self.handover.lock_refused(&mut state, &self.timer);
                thread::yield_now();
            }
        }
    }
}

/// Looks for the work, as the handler thread looks at sockets and rings.
struct Seen<'w> {
    work: &'w AtomicU32,
    in_rings: bool,
    seen: bool,
}

impl Service for Seen<'_> {
    type Error = Infallible;

    fn serve(&mut self, rings: bool) -> Result<(), Infallible> {
        self.seen |= (rings || !self.in_rings) && self.work.load(Relaxed) != 0;
        Ok(())
    }

    fn listen(&mut self, _: bool) -> Result<Option<u64>, Infallible> {
        Ok(None)
    }
}

/// A thread that does not drive the channel asks for service, whatever the handler is just doing.
pub fn a_request_is_served() {
    explore(4, || {
        let _run = begin(std::ptr::null(), 0);
        let rank = Rank::new();
        let other = Arc::clone(&rank);
        let requester = thread::spawn(move || {
            other.work.store(1, Relaxed);
            other.handover.request(&other.timer);
        });
        rank.handle(false);
        requester.join().expect("the requester ends");
    });
}

/// The same while the main thread takes the lock and gives it back.
pub fn a_request_is_served_while_main_comes_and_goes() {
    explore(2, || {
        let _run = begin(std::ptr::null(), 0);
        let rank = Rank::new();
        let handler = Arc::clone(&rank);
        let handler = thread::spawn(move || handler.handle(false));
        let other = Arc::clone(&rank);
        let requester = thread::spawn(move || {
            other.work.store(1, Relaxed);
            other.handover.request(&other.timer);
        });
        rank.lock.lock_main();
        rank.handover.main_locked();
        rank.lock.unlock_main();
        rank.handover.main_unlocked(Some(&rank.timer));
        requester.join().expect("the requester ends");
        handler.join().expect("the handler ends");
    });
}

/// The main thread has the rings served too, in one of which there is something already.
pub fn rings_are_served_from_now_on() {
    explore(4, || {
        let _run = begin(std::ptr::null(), 0);
        let rank = Rank::new();
        rank.work.store(1, SeqCst);
        let handler = Arc::clone(&rank);
        let handler = thread::spawn(move || handler.handle(true));
        rank.handover.set_serves_rings(true, Some(&rank.timer));
        handler.join().expect("the handler ends");
    });
}
