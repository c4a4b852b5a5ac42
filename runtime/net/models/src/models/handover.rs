//! The hand-over of the channel to the handler thread. A request that is lost leaves it asleep for ever.

use std::cell::Cell;
use std::convert::Infallible;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, SeqCst};

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use super::explore;
use crate::handover::{Handover, Service, TICK, TickState, Timer};
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
    handover: Handover,
    timer: ModelTimer,
    /// Something for the handler to see.
    work: AtomicU32,
    /// What the lock protects.
    core: UnsafeCell<u32>,
}

// SAFETY: the core is only touched with the lock held, which the model checks.
unsafe impl Send for Rank {}
// SAFETY: as above.
unsafe impl Sync for Rank {}

impl Rank {
    fn new() -> Arc<Rank> {
        let timer = ModelTimer(AtomicU32::default());
        let (handover, work) = Default::default();
        Arc::new(Rank { handover, timer, work, core: UnsafeCell::new(0) })
    }

    fn touch_core(&self) {
        // SAFETY: the callers hold the lock.
        self.core.with_mut(|count| unsafe { *count += 1 });
    }

    /// As `handler_thread::run`, until it has seen the work.
    fn handle(&self, work_in_rings: bool) {
        let mut state = TickState::new();
        self.timer.after(Some(TICK));
        let seen = Cell::new(false);
        while !seen.get() {
            self.timer.wait();
            let service = || Seen { rank: self, in_rings: work_in_rings, seen: &seen };
            let Ok(()) = self.handover.turn(&mut state, &self.timer, service);
        }
    }

    /// One operation of the main thread.
    fn operate(&self) {
        self.handover.enter_main(|| {});
        self.touch_core();
        self.handover.leave_main(Some(&self.timer));
    }
}

/// Looks for the work, as the handler thread looks at sockets and rings.
struct Seen<'r> {
    rank: &'r Rank,
    in_rings: bool,
    seen: &'r Cell<bool>,
}

impl Service for Seen<'_> {
    type Error = Infallible;

    fn serve(&mut self, rings: bool) -> Result<(), Infallible> {
        self.rank.touch_core();
        let work = self.rank.work.load(Relaxed) != 0;
        self.seen.set(self.seen.get() || work && (rings || !self.in_rings));
        Ok(())
    }

    fn listen(&mut self, _: bool) -> Result<Option<u64>, Infallible> {
        self.rank.touch_core();
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
        rank.operate();
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

/// Something has come while the main thread held the lock for long, and then it computes: the handler, which was refused
/// so often that it sleeps without a timer, serves it.
pub fn the_end_of_a_long_wait_is_noticed() {
    explore(5, || {
        let _run = begin(std::ptr::null(), 0);
        let rank = Rank::new();
        rank.handover.enter_main(|| {});
        rank.work.store(1, SeqCst);
        let handler = Arc::clone(&rank);
        let handler = thread::spawn(move || handler.handle(false));
        rank.touch_core();
        rank.handover.leave_main(Some(&rank.timer));
        handler.join().expect("the handler ends");
    });
}

/// The same while the main thread takes the lock once more before it computes.
pub fn the_end_of_a_long_wait_is_noticed_behind_another_operation() {
    explore(3, || {
        let _run = begin(std::ptr::null(), 0);
        let rank = Rank::new();
        rank.handover.enter_main(|| {});
        rank.work.store(1, SeqCst);
        let handler = Arc::clone(&rank);
        let handler = thread::spawn(move || handler.handle(false));
        rank.touch_core();
        rank.handover.leave_main(Some(&rank.timer));
        rank.operate();
        handler.join().expect("the handler ends");
    });
}

/// Three threads of the program want the lock: each gets it, and none sleeps for ever.
pub fn threads_of_a_program_pass_the_lock_on() {
    explore(3, || {
        let _run = begin(std::ptr::null(), 0);
        let rank = Rank::new();
        let other = Arc::clone(&rank);
        let second = thread::spawn(move || {
            other.operate();
            other.operate();
        });
        let other = Arc::clone(&rank);
        let third = thread::spawn(move || other.operate());
        rank.operate();
        second.join().expect("it ends");
        third.join().expect("it ends");
        // SAFETY: the other threads have ended.
        assert_eq!(rank.core.with(|count| unsafe { *count }), 4);
    });
}

/// A thread waits while another drives. What it waits for comes while the other has the lock, or between: it is told.
pub fn a_thread_that_does_not_drive_is_told_the_news() {
    explore(4, || {
        let _run = begin(std::ptr::null(), 0);
        let rank = Rank::new();
        let other = Arc::clone(&rank);
        let waits = thread::spawn(move || {
            loop {
                other.handover.enter_main(|| {});
                // SAFETY: the lock is held.
                let come = other.core.with(|count| unsafe { *count }) > 0;
                let news = other.handover.news();
                other.handover.leave_main(Some(&other.timer));
                if come {
                    return;
                }
                other.handover.await_news(news, None);
            }
        });
        rank.handover.enter_main(|| {});
        rank.touch_core();
        rank.handover.tell_news();
        rank.handover.leave_main(Some(&rank.timer));
        waits.join().expect("it ends");
    });
}
