//! Hand-over of the channel between the handler thread and those who need it: the main thread, and threads that ask for
//! service. All that decides who drives the channel, and when, is here; it makes no system call, and the models run it.
//!
//! The handler thread sleeps until its timer or a descriptor wakes it; all others only set flags and
//! that timer. No request is lost, because:
//!
//! - a requester sets its flag *before* the timer;
//! - the handler clears the flags *before* it serves;
//! - the handler looks at them once more *after* it has set the timer to its own time.
//!
//! A main thread that holds the lock for long is left alone: the handler stops its timer and sleeps deep. No end of such
//! a hold is missed, because:
//!
//! - the handler stops the timer, *then* sets the flag, *then* looks whether the lock is free after all;
//! - the main thread gives the lock back, *then* looks at the flag.
//!
//! One of the two therefore sees the other. The main thread does this at the end of each operation, so its fence between
//! the two steps costs nothing: the handler makes the system fence all threads of the process in its place.
//!
//! Any thread of the program may be the main thread of these lines. One that finds another one there does as the handler: it
//! counts itself among the waiters, *then* has all threads fenced, *then* looks whether the lock is free after all, and
//! sleeps. So a program of one thread pays nothing for the others but a look at their number. A thread that waits for
//! something drives the channel until it has come, and lets others have the lock in between. Those that wait for
//! something meanwhile sleep until there is news.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use crate::channel::lock::DriveLock;
use crate::sync::{
    AtomicU32, AtomicU64, LOCK_TRIES, futex_wait, futex_wait_for, futex_wake, futex_wake_all,
    heavy_fence, light_fence, spin_loop,
};

/// First tick after the main thread was seen, in microseconds.
pub(crate) const TICK: u64 = 500;
/// Longest tick while the main thread goes on communicating.
const LONGEST_TICK: u64 = 1_000;
/// As soon as possible, in microseconds: 0 would stop the timer.
const NOW: u64 = 1;

/// The timer that wakes the handler thread.
pub(crate) trait Timer {
    /// Wakes the handler after so many microseconds, or not. Replaces the time set before.
    fn after(&self, microseconds: Option<u64>);
}

/// Work of the handler thread, with the channel's lock held.
pub(crate) trait Service {
    type Error;

    /// Takes what has arrived at the socket, and with `rings` what lies in the rings.
    fn serve(&mut self, rings: bool) -> Result<(), Self::Error>;

    /// Has the socket, and with `rings` the doorbell, wake the handler. Returns the microseconds until the
    /// next deadline, if there is one; 0 if a ring holds something already.
    fn listen(&mut self, rings: bool) -> Result<Option<u64>, Self::Error>;
}

/// State of the handler thread between two rounds.
#[derive(Debug)]
pub(crate) struct TickState {
    /// The main thread's epoch at the last tick.
    epoch: u64,
    tick: u64,
}

impl TickState {
    pub(crate) fn new() -> TickState {
        TickState { epoch: 0, tick: TICK }
    }

    /// The main thread has taken the lock since the last tick: look again after a longer one.
    fn main_is_active(&mut self, epoch: u64, timer: &impl Timer) {
        self.epoch = epoch;
        self.tick = (self.tick * 2).min(LONGEST_TICK);
        timer.after(Some(self.tick));
    }
}

/// The lock of a channel, and the flags that pass it between the threads of a rank.
#[derive(Debug, Default)]
pub(crate) struct Handover {
    lock: DriveLock,
    /// Times the main thread took the lock.
    epoch: AtomicU64,
    /// The handler sleeps without a tick because the main thread has held the lock for long.
    deep: AtomicU32,
    /// Somebody has asked for service since the handler last began to serve.
    requested: AtomicU32,
    /// The handler serves the rings too, not only the socket.
    rings: AtomicU32,
    /// Threads of the program that want the lock and may sleep for it.
    waiters: AtomicU32,
    /// Rises when the lock is given back while somebody wants it: what these sleep at.
    turn: AtomicU32,
    /// Rises when something has come that a thread may wait for which does not drive: what these sleep at.
    news: AtomicU32,
}

/// A thread sleeps at most so long for the lock on a system without [`heavy_fence`], in microseconds.
const PATIENCE: u64 = 200;

/// Gives the lock back, also if the layer above panics.
struct HandlerLock<'l>(&'l DriveLock);

impl Drop for HandlerLock<'_> {
    fn drop(&mut self) {
        self.0.unlock_handler();
    }
}

impl Handover {
    /// A thread of the program takes the lock. `nudge` wakes one that has it and sleeps in a wait.
    #[inline]
    pub(crate) fn enter_main(&self, nudge: impl Fn()) {
        if !self.lock.try_lock_main() {
            self.enter_when_free(nudge);
        }
        self.epoch.store(self.epoch.load(Relaxed) + 1, Relaxed);
    }

    #[cold]
    fn enter_when_free(&self, nudge: impl Fn()) {
        if self.spin() {
            return;
        }
        self.waiters.fetch_add(1, SeqCst);
        loop {
            // Whoever gives the lock back from here on changes it.
            let turn = self.turn.load(SeqCst);
            let fenced = heavy_fence();
            if self.spin() {
                break;
            }
            // The handler tells at the lock itself that it gives it back, and nobody who comes later.
            if self.lock.await_handler() || !self.lock.is_held_by_main() {
                continue;
            }
            nudge();
            if fenced {
                futex_wait(&self.turn, turn);
            } else {
                futex_wait_for(&self.turn, turn, PATIENCE);
            }
        }
        self.waiters.fetch_sub(1, SeqCst);
    }

    /// Tries for the lock for a while.
    fn spin(&self) -> bool {
        (0..LOCK_TRIES).any(|_| {
            let taken = self.lock.try_lock_main();
            if !taken {
                spin_loop();
            }
            taken
        })
    }

    /// A thread of the program gives the lock back, restarts the tick of a handler in deep sleep, and wakes a thread that
    /// wants the lock.
    #[inline]
    pub(crate) fn leave_main<T: Timer>(&self, timer: Option<&T>) {
        self.lock.unlock_main();
        light_fence();
        if self.deep.load(Relaxed) != 0 {
            self.end_deep_sleep(timer);
        }
        if self.waiters.load(Relaxed) != 0 {
            self.pass_on();
        }
    }

    #[cold]
    fn pass_on(&self) {
        self.turn.fetch_add(1, SeqCst);
        futex_wake(&self.turn);
    }

    /// Another thread of the program wants the lock.
    #[inline]
    pub(crate) fn is_wanted(&self) -> bool {
        self.waiters.load(Relaxed) != 0
    }

    /// How often threads of the program have taken the lock. The holder asks, to see later whether another has had it.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Relaxed)
    }

    /// What a thread sleeps at that waits while another drives. The holder of the lock asks.
    pub(crate) fn news(&self) -> u32 {
        self.news.load(SeqCst)
    }

    /// Sleeps until there is other news than this, or at most so many microseconds.
    pub(crate) fn await_news(&self, seen: u32, most: Option<u64>) {
        match most {
            None => futex_wait(&self.news, seen),
            Some(most) => futex_wait_for(&self.news, seen, most),
        }
    }

    /// Wakes all threads that wait while another drives. The holder of the lock does it.
    pub(crate) fn tell_news(&self) {
        self.news.fetch_add(1, SeqCst);
        futex_wake_all(&self.news);
    }

    #[cold]
    fn end_deep_sleep<T: Timer>(&self, timer: Option<&T>) {
        self.deep.store(0, Relaxed);
        if let Some(timer) = timer {
            timer.after(Some(TICK));
        }
    }

    /// The rings are served too.
    pub(crate) fn serves_rings(&self) -> bool {
        self.rings.load(SeqCst) != 0
    }

    /// From now on the handler serves the rings too, or no longer.
    pub(crate) fn set_serves_rings<T: Timer>(&self, serve: bool, timer: Option<&T>) {
        let before = self.rings.swap(u32::from(serve), SeqCst);
        if serve
            && before == 0
            && let Some(timer) = timer
        {
            self.request(timer);
        }
    }

    /// Has the handler serve the channel soon. Write what it is to see before.
    pub(crate) fn request(&self, timer: &impl Timer) {
        self.requested.swap(1, SeqCst);
        timer.after(Some(NOW));
    }

    /// What the handler does when something has woken it. `service` is called, and its value lives, while the lock is held.
    pub(crate) fn turn<S: Service>(
        &self,
        state: &mut TickState,
        timer: &impl Timer,
        service: impl FnOnce() -> S,
    ) -> Result<(), S::Error> {
        if !self.lock.try_lock_handler() {
            self.lock_refused(state, timer);
            return Ok(());
        }
        let _lock = HandlerLock(&self.lock);
        self.round(state, timer, &mut service())
    }

    /// The handler has not got the lock: it looks again later, or when the main thread calls.
    fn lock_refused(&self, state: &mut TickState, timer: &impl Timer) {
        let epoch = self.epoch.load(Relaxed);
        if epoch != state.epoch {
            state.main_is_active(epoch, timer);
            return;
        }
        timer.after(None);
        self.deep.store(1, Relaxed);
        // A system without this fence costs a tick from time to time, no more.
        if !heavy_fence() || self.lock.is_free() {
            self.deep.store(0, Relaxed);
            timer.after(Some(TICK));
        }
    }

    /// One round of the handler, which holds the lock.
    fn round<S: Service>(
        &self,
        state: &mut TickState,
        timer: &impl Timer,
        service: &mut S,
    ) -> Result<(), S::Error> {
        self.deep.store(0, Relaxed);
        self.requested.swap(0, SeqCst);
        let rings = self.serves_rings();
        service.serve(rings)?;
        let epoch = self.epoch.load(Relaxed);
        if epoch == state.epoch {
            state.tick = TICK;
            let deadline = service.listen(rings)?;
            timer.after(deadline.map(|time| time.max(NOW)));
        } else {
            state.main_is_active(epoch, timer);
        }
        if self.requested.load(SeqCst) != 0 {
            timer.after(Some(NOW));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;
    use std::time::{Duration, Instant};

    struct NoTimer;

    impl Timer for NoTimer {
        fn after(&self, _: Option<u64>) {}
    }

    /// A thread that wants the lock while the handler has it gets it, at whichever step the handler gives it back: nobody
    /// else is there who would wake it.
    #[test]
    fn the_handler_leaves_nobody_asleep_who_wants_the_lock() {
        let handover = Arc::new(Handover::default());
        let stop = Arc::new(AtomicBool::new(false));
        let (other, ended) = (Arc::clone(&handover), Arc::clone(&stop));
        let main = std::thread::spawn(move || {
            while !ended.load(SeqCst) {
                other.enter_main(|| {});
                other.leave_main(None::<&NoTimer>);
            }
        });
        for round in 0..if cfg!(miri) { 40 } else { 20_000 } {
            while !handover.lock.try_lock_handler() {
                std::thread::yield_now();
            }
            let epoch = handover.epoch();
            // Held for about as long as a thread tries before it sleeps.
            (0..round % (8 * LOCK_TRIES)).for_each(|_| std::hint::spin_loop());
            handover.lock.unlock_handler();
            // The handler does not come again before the thread has had the lock.
            let patience = Instant::now() + Duration::from_secs(60);
            while handover.epoch() == epoch {
                let lost = "a thread sleeps for a lock that nobody has";
                assert!(Instant::now() < patience, "{lost} (round {round})");
                std::thread::yield_now();
            }
        }
        stop.store(true, SeqCst);
        main.join().expect("the main thread ends");
    }
}
