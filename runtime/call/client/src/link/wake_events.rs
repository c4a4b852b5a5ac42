//! Wake events of threads that wait for calls of several connections, and so read from none of them for long.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use super::{Link, State};
use crate::WakeEvent;

/// The way in which the next input of a connection arrives.
pub enum Reader<'a> {
    /// Over this socket; no thread reads.
    NoThread(BorrowedFd<'a>),
    /// Another thread reads.
    OtherThread,
    /// It is in the buffer already.
    Buffered,
}

impl Link {
    /// Sets the wake event whenever something arrived for any stream, and when the reading thread stops
    /// reading.
    pub fn listen(&self, wake_event: &Arc<WakeEvent>) {
        // A forked process hears nothing of its parent's connection.
        if self.is_ours() {
            self.lock().wake_events.add(wake_event);
        }
    }

    /// Removes the wake event.
    pub fn stop_listening(&self, wake_event: &Arc<WakeEvent>) {
        if self.is_ours() {
            self.lock().wake_events.remove(wake_event);
        }
    }

    /// Says how the next input arrives. Another reading thread sets the event that was registered before.
    pub fn reader(&self) -> Reader<'_> {
        let driving = self.lock().driving;
        match () {
            () if driving => Reader::OtherThread,
            () if self.wire.has_input() => Reader::Buffered,
            () => Reader::NoThread(self.wire.as_fd()),
        }
    }

    /// The reading thread stops, so other waiting threads take over.
    pub(super) fn hand_over(&self, state: &State) {
        if state.waiting > 0 {
            self.turn.notify_all();
        }
        state.wake_events.wake();
    }
}
