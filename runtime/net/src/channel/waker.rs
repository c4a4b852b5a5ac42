//! Waker: has a channel served from a thread that does not drive it.

use std::sync::Arc;

use crate::channel::Shared;
use crate::channel::core::Handler;
use crate::segment::attachment::Attachment;

/// A way to a channel for a thread that does not drive it. Keeps the channel's memory mapped.
#[derive(Clone)]
pub struct ChannelWaker(Arc<dyn WakeTarget>);

impl std::fmt::Debug for ChannelWaker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ChannelWaker").field(self.attachment()).finish()
    }
}

impl ChannelWaker {
    pub(crate) fn new<H: Handler>(shared: Arc<Shared<H>>) -> ChannelWaker {
        ChannelWaker(shared)
    }

    /// Has the channel served soon: by the main thread if it waits, otherwise by the handler thread if
    /// there is one. Write what they are to see before.
    pub fn serve(&self) {
        self.0.serve();
    }

    /// Where this rank is.
    #[must_use]
    pub fn attachment(&self) -> &Attachment {
        self.0.attachment()
    }
}

trait WakeTarget: Send + Sync {
    fn serve(&self);
    fn attachment(&self) -> &Attachment;
}

impl<H: Handler> WakeTarget for Shared<H> {
    fn serve(&self) {
        let me = self.attachment.local();
        // A main thread that spins looks at its rings; nothing lies in the one to itself.
        self.attachment.own_lines().wake.mark(me, false);
        self.attachment.wake(me);
        if let Some(wait_set) = self.wait_set.get() {
            self.handover.request(wait_set);
        }
    }

    fn attachment(&self) -> &Attachment {
        &self.attachment
    }
}
