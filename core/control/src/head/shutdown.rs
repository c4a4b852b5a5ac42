//! Shutdown of the cluster, from the first request until the head may stop.

use alloc::vec::Vec;

use super::ClientId;
use crate::message::Nanos;

/// How long daemons have to stop.
const GRACE: Nanos = 5_000_000_000;

/// A shutdown that somebody has asked for.
#[derive(Debug)]
pub(super) struct Shutdown {
    clients: Vec<ClientId>,
    deadline: Nanos,
    done: bool,
}

impl Shutdown {
    pub(super) fn new(client: ClientId, now: Nanos) -> Self {
        let deadline = now.saturating_add(GRACE);
        Self { clients: Vec::from([client]), deadline, done: false }
    }

    /// Another client waits for the end.
    pub(super) fn add_client(&mut self, client: ClientId) {
        self.clients.push(client);
    }

    pub(super) fn remove_client(&mut self, client: ClientId) {
        self.clients.retain(|&other| other != client);
    }

    /// Finishes once everything is gone or the daemons took too long. Returns the clients to tell.
    pub(super) fn take_finished(&mut self, all_gone: bool, now: Nanos) -> Option<Vec<ClientId>> {
        if self.done || !(all_gone || now >= self.deadline) {
            return None;
        }
        self.done = true;
        Some(core::mem::take(&mut self.clients))
    }

    pub(super) fn deadline(&self) -> Option<Nanos> {
        (!self.done).then_some(self.deadline)
    }
}
