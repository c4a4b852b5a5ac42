//! Calls whoever drives a channel, from another thread of its process.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use crate::channel::Shared;
use crate::channel::core::Handler;
use crate::segment::attachment::Place;

/// A way to a channel for a thread that does not drive it. Keeps the channel's memory mapped.
#[derive(Clone)]
pub struct Nudge(Arc<dyn Nudged>);

impl std::fmt::Debug for Nudge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Nudge").field(self.place()).finish()
    }
}

impl Nudge {
    pub(crate) fn new<H: Handler>(shared: Arc<Shared<H>>) -> Nudge {
        Nudge(shared)
    }

    /// Has the channel served soon: by the main thread if that waits, otherwise by the handler thread
    /// (if there is one). What is to be seen then must have been written before.
    pub fn serve(&self) {
        self.0.serve();
    }

    /// Where this rank is.
    #[must_use]
    pub fn place(&self) -> &Place {
        self.0.place()
    }
}

trait Nudged: Send + Sync {
    fn serve(&self);
    fn place(&self) -> &Place;
}

impl<H: Handler> Nudged for Shared<H> {
    fn serve(&self) {
        let me = self.place.local();
        // A main thread that spins looks at its rings; nothing lies in the one to itself.
        self.place.own().wake.mark(me);
        self.place.wake(me);
        if let Some(alarm) = self.alarm.get() {
            // Before the alarm: the handler may be about to set it to another time.
            self.nudged.store(true, SeqCst);
            alarm.now();
        }
    }

    fn place(&self) -> &Place {
        &self.place
    }
}
