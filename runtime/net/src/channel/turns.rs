//! Turns of the program's threads: one drives the channel while it waits, the others get the lock in between, and those
//! that wait, too, are told when something has come.

use std::cell::Cell;
use std::sync::atomic::Ordering::SeqCst;

use crate::channel::core::Handler;
use crate::channel::guard::Guard;
use crate::channel::{ChannelError, Shared};
use crate::sys;
use crate::wait::Wait;
use crate::wait::spin::{AdaptiveSpin, SpinMode};

/// How long a thread that does not drive sleeps at most if it waits for what no frame tells, in microseconds: at first, and
/// in the end.
const LOOKS: [u64; 2] = [20, 1_000];
/// Yields of a driver after which it drives on, though a thread that wanted the lock has not taken it.
const YIELDS: u32 = 100;

/// Waits of the program's threads.
#[derive(Debug)]
pub(crate) struct WaitState {
    /// How long they spin.
    pub(crate) spin: AdaptiveSpin,
    /// One of them drives the channel until something comes.
    pub(crate) driven: bool,
    /// So many others wait meanwhile.
    parked: usize,
    /// Of these, those that have been told of news and have not looked yet what it is.
    unsettled: usize,
    /// How often they were told.
    tellings: u64,
    /// Places for described waits that are taken, by bit.
    pub(crate) places: u32,
    /// Polls until the next look at the socket.
    pub(crate) polls: u32,
    /// Polls that have found frames in the same ring, one after another.
    pub(crate) in_a_row: u32,
}

impl WaitState {
    pub(crate) fn new() -> WaitState {
        WaitState {
            spin: AdaptiveSpin::new(SpinMode::Blind, 1, 1),
            driven: false,
            parked: 0,
            unsettled: 0,
            tellings: 0,
            places: 0,
            polls: 0,
            in_a_row: 0,
        }
    }
}

impl WaitState {
    /// There is news for those that are parked; whether some are. Each of them has to look at it.
    fn news(&mut self) -> bool {
        self.unsettled = self.parked;
        self.tellings = self.tellings.wrapping_add(u64::from(self.parked > 0));
        self.parked > 0
    }

    /// A thread that was parked when so much had been told has the lock, and looks.
    fn unpark(&mut self, told: u64) {
        self.parked -= 1;
        if self.tellings != told {
            self.unsettled -= 1;
        }
    }

    /// Whether every other thread that waits has looked at all there was.
    pub(crate) fn are_settled(&self) -> bool {
        self.unsettled == 0
    }
}

impl<H: Handler> Shared<H> {
    /// Takes the lock for a thread of the program. A thread that has it and sleeps in a wait is woken. Until it gives the
    /// lock back, the context says that it is wanted.
    #[inline]
    pub(crate) fn enter(&self) {
        let attachment = &self.attachment;
        let wanting = &attachment.own().state.wanting;
        let wants = Cell::new(false);
        self.handover.enter_main(|| {
            if !wants.replace(true) {
                wanting.fetch_add(1, SeqCst);
            }
            attachment.wake(attachment.local());
        });
        if wants.get() {
            wanting.fetch_sub(1, SeqCst);
        }
    }

    fn leave(&self) {
        self.handover.leave_main(self.wait_set.get());
    }
}

/// This thread drives the channel, as long as the value is there. Dropped while its lock is held.
pub(crate) struct DriverGuard<'c, H: Handler>(&'c Shared<H>);

impl<H: Handler> Drop for DriverGuard<'_, H> {
    fn drop(&mut self) {
        // SAFETY: the guard by which this was made is there until afterwards, and nothing borrows from it now.
        let core = unsafe { &mut *self.0.core() };
        core.waits.driven = false;
        if core.waits.news() {
            // One of them drives from now on.
            self.0.handover.tell_news();
        }
    }
}

impl<'c, H: Handler> Guard<'c, H> {
    /// From here on this thread drives. The guard is dropped after what this returns.
    pub(crate) fn begin_driving(&mut self) -> DriverGuard<'c, H> {
        self.core().waits.driven = true;
        DriverGuard(self.shared)
    }

    /// Lets others have the lock that want it, and takes it again after them.
    pub(crate) fn let_others(&mut self) -> Result<(), ChannelError> {
        let handover = &self.shared.handover;
        if !handover.is_wanted() {
            return Ok(());
        }
        let epoch = handover.epoch();
        self.shared.leave();
        for _ in 0..YIELDS {
            if !handover.is_wanted() || handover.epoch() != epoch {
                break;
            }
            std::thread::yield_now();
        }
        self.shared.enter();
        self.after_pause()?;
        // What the others did may be what those wait for that do not drive.
        self.tell_parked();
        Ok(())
    }

    /// Wakes the threads that wait while this one drives: something has come.
    #[inline]
    pub(crate) fn tell_parked(&mut self) {
        if self.core().waits.news() {
            self.shared.handover.tell_news();
        }
    }

    /// Waits until the thread that drives tells of news, or drives no more, or it is `latest`.
    pub(crate) fn park(
        &mut self,
        wait: Wait,
        looks: u32,
        latest: Option<u64>,
    ) -> Result<(), ChannelError> {
        let most = match wait {
            Wait::Frames => None,
            // Room in a ring and counters come without frames.
            Wait::Room | Wait::Counter { .. } => Some((LOOKS[0] << looks.min(10)).min(LOOKS[1])),
        };
        let left = latest.map(|latest| latest.saturating_sub(sys::now()));
        let most = left.map_or(most, |left| Some(most.map_or(left, |most| most.min(left))));
        let news = self.shared.handover.news();
        let waits = &mut self.core().waits;
        waits.parked += 1;
        let told = waits.tellings;
        self.shared.leave();
        self.shared.handover.await_news(news, most);
        self.shared.enter();
        self.core().waits.unpark(told);
        self.after_pause()
    }

    /// The lock is back after others had it.
    fn after_pause(&mut self) -> Result<(), ChannelError> {
        if let Some(message) = self.shared.failed.get() {
            return Err(ChannelError::HandlerThread(message.clone()));
        }
        self.disarm();
        Ok(())
    }

    /// Reads the clock, and has the handler leave the channel alone.
    #[inline]
    pub(crate) fn disarm(&mut self) {
        let shared = self.shared;
        let core = self.core();
        // Nobody else looks at the time.
        if core.remote.is_some() {
            core.update_clock();
        }
        if core.armed {
            core.armed = false;
            if let Some(wait_set) = shared.wait_set.get() {
                wait_set.disarm(shared.handover.serves_rings());
            }
        }
    }
}
