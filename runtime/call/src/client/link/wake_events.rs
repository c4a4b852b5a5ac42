//! Threads that wait for calls of several connections, and so read from none of them for long.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use super::{Link, State};
use crate::client::WakeEvent;

/// Who reads what comes next.
pub enum Reader<'a> {
    /// Nobody: it comes over this socket.
    Nobody(BorrowedFd<'a>),
    /// Another thread.
    Another,
    /// It has been read already, and has to be looked at.
    NotNeeded,
}

impl Link {
    /// Has a bell ring whenever something was taken in for anybody, or the thread that reads reads no more.
    pub fn listen(&self, wake_event: &Arc<WakeEvent>) {
        // Of the connection of the process from which this one was forked nothing is heard.
        if self.is_ours() {
            self.lock().wake_events.add(wake_event);
        }
    }

    /// It rings no more.
    pub fn stop_listening(&self, wake_event: &Arc<WakeEvent>) {
        if self.is_ours() {
            self.lock().wake_events.remove(wake_event);
        }
    }

    /// Who reads what comes next. Another thread that does rings, if it was asked for before.
    pub fn reader(&self) -> Reader<'_> {
        let driving = self.lock().driving;
        match () {
            () if driving => Reader::Another,
            () if self.wire.has_input() => Reader::NotNeeded,
            () => Reader::Nobody(self.wire.as_fd()),
        }
    }

    /// The thread that reads, or looks, goes: others that wait take over.
    pub(super) fn hand_over(&self, state: &State) {
        if state.waiting > 0 {
            self.turn.notify_all();
        }
        state.wake_events.ring();
    }
}
