//! Access to a server: identification of clients, ownership, tickets, and the limit of unidentified connections.

pub(super) mod local_peer;
pub(super) mod owner;
pub(super) mod tickets;
