//! Settling of a rank's channel: no packet of this rank is on the wire any more.

use std::time::Duration;

use crate::channel::core::Handler;
use crate::channel::guard::Guard;
use crate::channel::{Channel, ChannelError};
use crate::sys;
use crate::wait::{Wait, WaitFlags};

/// How long the socket is polled before the wait blocks, microseconds: some round trips.
const SPIN: u64 = 500;

/// Opens the channel again however the wait ends.
struct ReopenGuard<'g, 'c, H: Handler>(&'g mut Guard<'c, H>);

impl<H: Handler> Drop for ReopenGuard<'_, '_, H> {
    fn drop(&mut self) {
        if let Some(remote) = &mut self.0.core().remote {
            remote.now = sys::now();
            remote.endpoint.reopen(remote.now);
        }
    }
}

impl<H: Handler> Channel<H> {
    /// Closes the channel for packets of this rank, waits until none is on the wire (acked, refused or
    /// found lost), and opens it again. Returns how long that took. `None` if `patience` ended first: a
    /// peer is stopped, or the network is down.
    ///
    /// # Errors
    /// Those of the channel.
    pub fn quiesce(&self, patience: Duration) -> Result<Option<Duration>, ChannelError> {
        let mut guard = self.lock()?;
        let begin = sys::now();
        let end = begin.saturating_add(u64::try_from(patience.as_micros()).unwrap_or(u64::MAX));
        let Some(remote) = &mut guard.core().remote else { return Ok(Some(Duration::ZERO)) };
        remote.endpoint.quiesce();
        let opening = ReopenGuard(&mut guard);
        let taken = settle(opening.0, begin, end);
        drop(opening);
        // Work that was put off meanwhile.
        guard.transmit()?;
        taken
    }
}

/// Drives a closed channel until it is settled, at most until `end`.
fn settle<H: Handler>(
    guard: &mut Guard<'_, H>,
    begin: u64,
    end: u64,
) -> Result<Option<Duration>, ChannelError> {
    loop {
        guard.core().update_clock();
        guard.let_others()?;
        guard.progress()?;
        let settled =
            guard.core_ref().remote.as_ref().is_none_or(|remote| remote.endpoint.settled());
        let now = guard.core().update_clock();
        if settled {
            return Ok(Some(Duration::from_micros(now - begin)));
        }
        if now >= end {
            return Ok(None);
        }
        if now - begin > SPIN {
            let mut waiting = WaitFlags::new(&guard.shared.attachment, Wait::Frames, false);
            waiting.sleeping(false);
            guard.sleep(&mut waiting, Some(end));
        }
    }
}
