//! Waits of the main thread: spinning first, then a blocking sleep.

#[cfg_attr(miri, path = "../miri/blocking_wait.rs")]
pub(crate) mod blocking_wait;
pub mod description;
pub(crate) mod spin;

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

use crate::channel::ChannelError;
use crate::channel::core::Handler;
use crate::channel::guard::Guard;
use crate::segment::attachment::Attachment;
use crate::segment::counters::Counter;
use crate::shm::idle_flag::set_idle;
use crate::wait::spin::{AdaptiveSpin, BlockReason, SpinLimit};
use crate::{sys, tracepoints};

/// Condition that ends a wait, beside a frame from anywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Only frames.
    Frames,
    /// Room in a ring to a rank of this node.
    Room,
    /// The own notification counter with this index reaches this count.
    Counter {
        /// Window slot × [`crate::segment::layout::NOTIFIES`] + number.
        index: usize,
        /// The count.
        at_least: u64,
    },
}

/// Event that [`Guard::watch`] saw.
pub(crate) enum WaitEvent {
    Counter,
    Ring,
    Socket,
    Deadline,
    Turn,
    Bound,
    /// Another thread wants the channel.
    Wanted,
}

/// Spins between two looks at the clock.
const CLOCK_SPINS: u32 = 512;
/// Spins between two tries of a wait for room; divides [`CLOCK_SPINS`].
const ROOM_SPINS: u32 = 64;
/// How many spins one yield counts as: the clock is read after every fourth.
const YIELD_SPINS: u32 = CLOCK_SPINS / 4;
/// How many spins one look at the socket counts as.
const SOCKET_SPINS: u32 = 64;

/// Lets others use the processor, or parts of it, for a moment; how many spins that counts as.
#[inline]
fn pause(yields: bool) -> u32 {
    if yields {
        std::thread::yield_now();
        return YIELD_SPINS;
    }
    std::hint::spin_loop();
    1
}

impl<H: Handler> Guard<'_, H> {
    /// Spins until something may have happened.
    pub(crate) fn watch(
        &mut self,
        waiting: &mut WaitFlags<'_>,
        limit: SpinLimit<'_>,
    ) -> Result<WaitEvent, ChannelError> {
        let bound = limit.bound;
        let mut spins = waiting.spins;
        let mut socket = self.core().interval;
        let remote = self.core().remote.is_some();
        let attachment = &self.shared.attachment;
        let (wake, words) = (&attachment.own_lines().wake, attachment.local_count().div_ceil(64));
        if self.core().ring_hint(attachment) {
            return Ok(WaitEvent::Ring);
        }
        if bound == Some(0) && waiting.blocks_unseen(limit.at_once) {
            return Ok(WaitEvent::Bound);
        }
        loop {
            if waiting.satisfied(Acquire) {
                return Ok(WaitEvent::Counter);
            }
            if wake.any(words) {
                return Ok(WaitEvent::Ring);
            }
            if self.shared.handover.is_wanted() {
                return Ok(WaitEvent::Wanted);
            }
            if remote {
                socket -= 1;
                if socket == 0 {
                    if self.core().poll()? {
                        return Ok(WaitEvent::Socket);
                    }
                    if !limit.yields {
                        self.core().poll_less_often(attachment);
                    }
                    socket = self.core().interval;
                    spins += SOCKET_SPINS;
                }
            }
            spins += pause(limit.yields);
            let clock = spins >= CLOCK_SPINS || bound == Some(0);
            let room = waiting.wait == Wait::Room || self.core().blocked;
            if room && !clock && spins >= waiting.next_try {
                waiting.next_try = spins + ROOM_SPINS;
                waiting.spins = spins;
                self.unblock()?;
                return Ok(WaitEvent::Turn);
            }
            if clock {
                (spins, waiting.spins, waiting.next_try) = (0, 0, ROOM_SPINS);
                if let Some(seen) = self.update_clock(waiting, limit) {
                    return Ok(seen);
                }
            }
        }
    }

    /// Whether time ends the spinning: a deadline, or the limit.
    #[inline]
    fn update_clock(
        &mut self,
        waiting: &mut WaitFlags<'_>,
        limit: SpinLimit<'_>,
    ) -> Option<WaitEvent> {
        let attachment = &self.shared.attachment;
        let core = self.core();
        let now = core.update_clock();
        core.publish_sometimes(attachment);
        if core.deadline().is_some_and(|deadline| deadline <= now) {
            return Some(WaitEvent::Deadline);
        }
        if waiting.latest.is_some_and(|latest| latest <= now) {
            return Some(WaitEvent::Turn);
        }
        let why = limit.ends(waiting.spun(now), core.handler.awaits())?;
        waiting.why(why);
        Some(WaitEvent::Bound)
    }

    /// Sets the flags by which peers know that this rank sleeps. Then looks for room once more: a peer
    /// that made room before has not seen the flags.
    pub(crate) fn before_sleep(&mut self, waiting: &mut WaitFlags<'_>) -> Result<(), ChannelError> {
        waiting.sleeping(waiting.wait == Wait::Room || self.core().blocked);
        self.unblock()
    }

    /// Blocks until the socket, the doorbell, a deadline or the latest time calls. The caller has
    /// set the `sleeping` flag; it is cleared here. Go straight to what woke it; deadlines are looked at
    /// when nothing did.
    pub(crate) fn sleep(&mut self, waiting: &mut WaitFlags<'_>, latest: Option<u64>) {
        let (attachment, handover) = (&self.shared.attachment, &self.shared.handover);
        attachment.own_lines().sleep.sleep_unless(
            self.core(),
            |core| {
                let wanted = handover.is_wanted();
                wanted || waiting.satisfied(SeqCst) || core.ring_hint(attachment)
            },
            |core| {
                let until = match (core.deadline(), latest) {
                    (Some(one), Some(other)) => Some(one.min(other)),
                    (one, other) => one.or(other),
                };
                attachment.count(Counter::Sleeps, 1);
                tracepoints::sleep();
                core.publish_all(attachment);
                let bell = attachment.own_bell();
                match &mut core.remote {
                    Some(remote) => remote.blocking_wait.sleep(bell, remote.wire.sleep_on(), until),
                    // Without packets there are no deadlines.
                    None => {
                        let most = until.map(|until| until.saturating_sub(sys::now()));
                        let _ = sys::wait_readable([bell], most);
                    }
                }
            },
        );
        waiting.since = 0;
        self.core().update_clock();
        // The cause may be at the socket, which is otherwise polled only now and then.
        self.core().interval = 1;
    }
}

/// The flags of a wait in the own context; they are cleared when it ends, however it ends.
pub(crate) struct WaitFlags<'p> {
    attachment: &'p Attachment,
    wait: Wait,
    /// First look at the clock.
    began: u64,
    /// First look at the clock since something happened.
    pub(crate) since: u64,
    pub(crate) slept: bool,
    /// Why it blocked, the first time.
    why: Option<BlockReason>,
    /// The rank that the program waits for, if it is one and known.
    pub(crate) awaited: Option<u32>,
    /// Spins since the last look at the clock, and at how many a wait for room tries again.
    spins: u32,
    next_try: u32,
    yields: bool,
    /// When the wait is asked again whatever has come.
    pub(crate) latest: Option<u64>,
}

impl<'p> WaitFlags<'p> {
    /// It waits for room to send to a rank of this node.
    pub(crate) fn is_for_room(&self) -> bool {
        self.wait == Wait::Room
    }

    /// `yields`: the wait gives the processor away, and is told how long that took.
    pub(crate) fn new(attachment: &'p Attachment, wait: Wait, yields: bool) -> WaitFlags<'p> {
        tracepoints::wait();
        let began = if yields { sys::now() } else { 0 };
        WaitFlags {
            attachment,
            wait,
            began,
            since: began,
            slept: false,
            why: None,
            awaited: None,
            spins: 0,
            next_try: ROOM_SPINS,
            yields,
            latest: None,
        }
    }

    #[inline]
    fn satisfied(&self, order: std::sync::atomic::Ordering) -> bool {
        match self.wait {
            Wait::Counter { index, at_least } => {
                self.attachment.own_lines().notifies.0[index].count.load(order) >= at_least
            }
            _ => false,
        }
    }

    /// A wait that blocks at once need not poll the socket first: the kernel does before it blocks.
    fn blocks_unseen(&mut self, why: BlockReason) -> bool {
        self.why(why);
        !self.slept && !self.satisfied(Acquire)
    }

    /// Sets or clears the idle flag. Before it is set, what is waited for is said once more: while this thread let others
    /// have the channel, the end of a wait of theirs may have taken that away.
    #[inline]
    pub(crate) fn idle(&self, idle: bool) {
        let state = &self.attachment.own().state;
        if let (true, Wait::Counter { index, at_least }) = (idle, self.wait) {
            state.wait_at_least.store(at_least, Relaxed);
            state.wait_counter.store(index as u32 + 1, Release);
        }
        set_idle(&state.idle, idle);
    }

    fn why(&mut self, why: BlockReason) {
        self.why.get_or_insert(why);
    }

    /// Microseconds since something happened.
    fn spun(&mut self, now: u64) -> u64 {
        if self.since == 0 {
            self.since = now;
            if self.began == 0 {
                self.began = now;
            }
        }
        now - self.since
    }

    pub(crate) fn sleeping(&mut self, room: bool) {
        self.slept = true;
        self.attachment.own_lines().sleep.announce_sleep(room);
    }

    pub(crate) fn awake(&self) {
        self.attachment.own_lines().sleep.end_sleep();
    }

    pub(crate) fn over(&mut self, spin: &mut AdaptiveSpin) {
        tracepoints::resume(self.slept);
        if self.slept {
            self.attachment.count(Counter::WaitsBlocked, 1);
            if let Some(why) = self.why {
                self.attachment.count(why.counter(), 1);
            }
            spin.blocked(sys::now().saturating_sub(self.began));
        } else {
            self.attachment.count(Counter::WaitsSpun, 1);
            spin.spun(self.yields.then(|| sys::now().saturating_sub(self.began)));
        }
    }
}

impl Drop for WaitFlags<'_> {
    fn drop(&mut self) {
        let context = self.attachment.own();
        context.state.idle.store(0, Release);
        context.state.wait_counter.store(0, Relaxed);
        if self.attachment.own_lines().sleep.sleeping.load(Relaxed) != 0 {
            self.awake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disclosure::RankState;
    use crate::segment::state_of;

    #[test]
    fn a_rank_that_waits_for_a_counter_is_not_idle_once_it_rises_whoever_had_the_channel_meanwhile()
    {
        let attachment = Attachment::singleton(1 << 20).expect("attachment");
        let state = || state_of(attachment.own(), attachment.own_lines());
        let waiting = WaitFlags::new(&attachment, Wait::Counter { index: 3, at_least: 2 }, false);
        waiting.idle(true);
        assert_eq!(state(), RankState::Idle);
        waiting.idle(false);
        // Another thread gets the channel, and waits for it to settle.
        drop(WaitFlags::new(&attachment, Wait::Frames, false));
        waiting.idle(true);
        assert_eq!(state(), RankState::Idle);
        attachment.own_lines().notifies.0[3].count.store(2, Relaxed);
        assert_eq!(state(), RankState::Running);
        drop(waiting);
        assert_eq!(attachment.own().state.wait_counter.load(Relaxed), 0);
    }
}
