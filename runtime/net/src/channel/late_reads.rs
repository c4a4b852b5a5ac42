//! Reads before deadlines: before an expired deadline is acted on, datagrams that wait in the socket
//! are read, since they may hold the awaited answer. And frames of a rank of this node that were refused are looked at once
//! more when the program waits for that rank: the handler then takes them.

use kumi_proto::Rank;

use crate::channel::ChannelError;
use crate::channel::core::{ChannelCore, Handler};
use crate::channel::guard::Guard;
use crate::segment::attachment::Attachment;

/// Most reads before the deadlines are acted on all the same.
const MOST_READS: usize = 8;

impl<H: Handler> ChannelCore<H> {
    /// If a deadline has passed, takes what has arrived. To be called before deadlines are acted on.
    pub(crate) fn read_before_deadlines(
        &mut self,
        attachment: &Attachment,
    ) -> Result<(), ChannelError> {
        for _ in 0..MOST_READS {
            let Some(now) = self.remote.as_ref().map(|remote| remote.now) else { break };
            if self.deadline().is_none_or(|deadline| deadline > now) || !self.receive()? {
                break;
            }
            self.take_datagrams(attachment);
        }
        Ok(())
    }
}

impl<H: Handler> Guard<'_, H> {
    /// Looks at refused frames again if the program waits for another rank than `before`, which becomes the new one.
    pub(crate) fn retry_refused(&mut self, before: &mut Option<Rank>) {
        let attachment = &self.shared.attachment;
        let core = self.core();
        let awaited = core.handler.awaits();
        if awaited == *before {
            return;
        }
        *before = awaited;
        let local = awaited.and_then(|rank| attachment.local_of(rank));
        if let Some(local) = local.filter(|local| core.stalled.contains(local)) {
            core.stalled.retain(|other| *other != local);
            core.unfinished.push(local);
        }
    }
}
