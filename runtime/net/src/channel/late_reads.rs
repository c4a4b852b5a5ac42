//! Reads before deadlines: before an expired deadline is acted on, datagrams that wait in the socket
//! are read, since they may hold the awaited answer.

use crate::channel::ChannelError;
use crate::channel::core::{ChannelCore, Handler};
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
