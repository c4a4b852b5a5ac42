//! Polls of a program that waits by itself: each takes what is there and returns.

use crate::channel::ChannelError;
use crate::channel::core::{ChannelCore, Handler};
use crate::channel::guard::Guard;
use crate::segment::attachment::Attachment;

/// Most polls between two looks at the socket. A look costs several times what a poll of rings costs, and a packet may lie
/// in the socket for as long as all of these take.
const MOST_POLLS: u32 = 16;

impl<H: Handler> Guard<'_, H> {
    /// Takes what has arrived, does what is due, and returns: for a program that calls this again and again. True if frames
    /// were taken. As in a wait, the socket is looked at less often while only ranks of this node send.
    ///
    /// # Errors
    /// Those of the channel.
    #[inline]
    pub fn poll(&mut self) -> Result<bool, ChannelError> {
        let attachment = &self.shared.attachment;
        let core = self.core();
        let near = core.ring_hint(attachment) || !core.stalled.is_empty();
        let far = core.remote.is_some() && core.socket_is_due();
        let due = near || far || core.handler.owes_answers() || core.holds_back();
        if due { self.poll_all(near, far) } else { Ok(false) }
    }

    fn poll_all(&mut self, near: bool, far: bool) -> Result<bool, ChannelError> {
        let attachment = &self.shared.attachment;
        let core = self.core();
        let before = core.delivered();
        if near {
            core.drain_rings(attachment)?;
        }
        let came = far && core.poll()?;
        if came {
            core.take_datagrams(attachment);
        } else if far {
            core.poll_less_often(attachment);
            core.check_unreachable()?;
        }
        if near || came || core.is_due(attachment) {
            core.service(attachment)?;
            self.tell_parked();
        }
        Ok(self.core().delivered() != before)
    }
}

impl<H: Handler> ChannelCore<H> {
    /// Counts a poll; whether it is to look at the socket.
    #[inline]
    fn socket_is_due(&mut self) -> bool {
        // What was just sent may have its answer soon.
        let polls = self.waits.polls.min(self.interval);
        self.waits.polls = polls.saturating_sub(1);
        if polls <= 1 {
            self.waits.polls = self.interval.min(MOST_POLLS);
        }
        polls <= 1
    }

    /// Whether there is something to do without news.
    fn is_due(&mut self, attachment: &Attachment) -> bool {
        self.publish_sometimes(attachment);
        let now = self.remote.as_ref().map_or(0, |remote| remote.now);
        let late = self.deadline().is_some_and(|deadline| deadline <= now);
        late || self.holds_back() || self.handler.owes_answers()
    }
}
