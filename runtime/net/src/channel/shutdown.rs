//! Shutdown of a channel: waits until everything sent has been acked.

use std::time::Duration;

use crate::channel::core::Handler;
use crate::channel::guard::Guard;
use crate::channel::{Channel, ChannelError};
use crate::sys;
use crate::wait::{Wait, WaitFlags};

impl<H: Handler> Channel<H> {
    /// Waits until everything sent to ranks of other nodes has been acked, or their processes have
    /// ended; then stops the handler thread. False if `patience` has passed since the last progress.
    ///
    /// A peer whose last ack got lost resends to nobody once this rank has ended. The kernel's
    /// answer ("port unreachable") tells it so; without that answer its patience ends.
    ///
    /// # Errors
    /// Those of the channel.
    pub fn finish(&mut self, patience: Duration) -> Result<bool, ChannelError> {
        let flushed = self.linger(patience);
        self.publish();
        self.stop_thread();
        flushed
    }

    fn linger(&self, patience: Duration) -> Result<bool, ChannelError> {
        let patience = patience.as_micros() as u64;
        let attachment = &self.shared.attachment;
        let mut guard = self.lock()?;
        let mut progress = sys::now();
        let mut seen = None;
        let mut gone = vec![false; attachment.ranks() as usize];
        if let Some(remote) = &guard.core_ref().remote {
            remote.wire.watch_for_gone()?;
        }
        loop {
            guard.progress()?;
            let Some(remote) = &guard.core_ref().remote else { return Ok(true) };
            while let Some(rank) = remote.wire.gone(attachment) {
                gone[rank as usize] = true;
            }
            if guard.send_delayed_acks(&gone) {
                guard.last_acks()?;
                return Ok(true);
            }
            guard.transmit()?;
            let Some(remote) = &guard.core_ref().remote else { return Ok(true) };
            let now = sys::now();
            let counters = remote.endpoint.counters();
            let state = Some((counters.acks_in, counters.data_in, counters.nacks_in));
            if state != seen {
                (seen, progress) = (state, now);
            }
            if now > progress + patience {
                return Ok(false);
            }
            let mut waiting = WaitFlags::new(attachment, Wait::Frames, false);
            waiting.sleeping(false);
            guard.sleep(&mut waiting, Some(progress + patience + 1));
        }
    }
}

impl<H: Handler> Guard<'_, H> {
    /// Asks the peers for the acks that finishing waits for; true if it waits for none.
    fn send_delayed_acks(&mut self, gone: &[bool]) -> bool {
        let Some(remote) = &mut self.core().remote else { return true };
        if remote.endpoint.all_flushed() {
            return true;
        }
        let mut none = true;
        for (rank, gone) in (0..).zip(gone) {
            if !gone && !remote.endpoint.flushed(rank) {
                remote.endpoint.request_ack(rank);
                none = false;
            }
        }
        none
    }

    /// Sends the acks that are still held back: nobody will do it later.
    fn last_acks(&mut self) -> Result<(), ChannelError> {
        if let Some(remote) = &mut self.core().remote {
            remote.endpoint.send_delayed_acks();
        }
        self.transmit()
    }
}
