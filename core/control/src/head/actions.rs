//! Queue of the actions that the driver of the head has to carry out, in order.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::starts::Starts;
use super::{ClientId, HeadAction};
use crate::message::{ClientReply, Command, NodeSet};
use crate::tree::{LinkId, Routes};

/// Actions that the driver has not taken yet.
#[derive(Debug, Default)]
pub(super) struct ActionQueue {
    queue: VecDeque<HeadAction>,
    /// Control messages sent and received.
    messages: u64,
    /// How nodes name jobs.
    pub(super) starts: Starts,
}

impl ActionQueue {
    pub(super) fn push(&mut self, action: HeadAction) {
        self.queue.push_back(action);
    }

    pub(super) fn pop(&mut self) -> Option<HeadAction> {
        self.queue.pop_front()
    }

    /// Sends a command to those of the nodes that are attached.
    pub(super) fn send(&mut self, routes: &Routes, nodes: &NodeSet, command: &Command) {
        for (link, below) in routes.by_link(nodes) {
            self.send_on(link, below, command.clone());
        }
    }

    /// Sends a command to nodes that `link` reaches.
    pub(super) fn send_on(&mut self, link: LinkId, nodes: NodeSet, mut command: Command) {
        self.messages += 1;
        self.starts.outgoing(&mut command);
        self.push(HeadAction::ToChild(link, nodes, command));
    }

    pub(super) fn reply(&mut self, client: ClientId, reply: ClientReply) {
        self.push(HeadAction::ToClient(client, reply));
    }

    /// The same reply for all of these clients.
    pub(super) fn reply_to_all(&mut self, clients: Vec<ClientId>, reply: ClientReply) {
        match clients[..] {
            [] => {}
            [client] => self.reply(client, reply),
            _ => self.push(HeadAction::ToClients(clients, reply)),
        }
    }

    /// Counts a report that a daemon sent.
    pub(super) fn count_report(&mut self) {
        self.messages += 1;
    }

    pub(super) fn messages(&self) -> u64 {
        self.messages
    }
}
