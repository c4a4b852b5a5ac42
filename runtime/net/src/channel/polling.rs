//! Polls of a program that waits by itself: each takes what is there and returns.

use crate::channel::ChannelError;
use crate::channel::core::{ChannelCore, Handler};
use crate::channel::guard::Guard;
use crate::segment::attachment::Attachment;
use crate::shm::ring::Consumer;

/// Most polls between two looks at the socket. A look costs several times what a poll of rings costs, and a packet may lie
/// in the socket for as long as all of these take.
const MOST_POLLS: u32 = 16;
/// So many polls in a row may find frames in the same ring before all are looked at.
const MOST_IN_A_ROW: u32 = 16;

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
        if let Some(hot) = core.hot_ring() {
            return self.poll_ring(hot);
        }
        let near = core.others_are_marked(attachment);
        let far = core.remote.is_some() && core.socket_is_due();
        let due = near || far || core.handler.owes_answers() || core.holds_back();
        if due { self.poll_all(near, far) } else { Ok(false) }
    }

    /// Takes what lies in the ring that had frames last. Its mark stays: what is marked is looked at by itself, and whoever
    /// sleeps takes all marks away before.
    fn poll_ring(&mut self, local: usize) -> Result<bool, ChannelError> {
        let attachment = &self.shared.attachment;
        let core = self.core();
        let before = core.delivered();
        core.drain_ring(attachment, local)?;
        if core.handler.owes_answers() {
            core.service(attachment)?;
        }
        self.tell_parked();
        Ok(self.core().delivered() != before)
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
    /// The ring that had frames last, if it has some again. Now and then others come first.
    #[inline]
    fn hot_ring(&mut self) -> Option<usize> {
        let hot = self.hot?;
        let more = self.incoming[hot].as_ref().is_some_and(Consumer::has_more);
        self.waits.in_a_row = if more { self.waits.in_a_row + 1 } else { 0 };
        (more && !self.waits.in_a_row.is_multiple_of(MOST_IN_A_ROW)).then_some(hot)
    }

    /// Something may lie in a ring that is not the one that had frames last.
    #[inline]
    fn others_are_marked(&self, attachment: &Attachment) -> bool {
        let (wake, words) = (&attachment.own_lines().wake, attachment.local_count().div_ceil(64));
        let marked = match self.hot.filter(|_| self.waits.in_a_row == 0) {
            Some(hot) => wake.any_but(words, hot),
            None => wake.any(words),
        };
        marked || !self.unfinished.is_empty() || !self.stalled.is_empty()
    }

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
