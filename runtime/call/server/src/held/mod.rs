//! Arrays that servers hold between calls (docs/reference/call-protocol.md, "Arrays that stay").

mod table;

pub(crate) use kumi_call_wire::gaps::Gaps;
pub(crate) use table::{Holder, LookupError, ReserveError, Table};

use std::sync::atomic::{AtomicU64, Ordering};

/// Traffic counters of a server's arrays, in bytes.
#[derive(Debug, Default)]
pub struct Traffic {
    /// From clients, as arguments of calls.
    pub from_clients: AtomicU64,
    /// To clients, as results of calls.
    pub to_clients: AtomicU64,
    /// The part of both that clients on this machine exchanged through shared memory.
    pub in_memory: AtomicU64,
    /// From other servers, which held them.
    pub from_servers: AtomicU64,
    /// To clients and other servers that fetched held arrays.
    pub fetched: AtomicU64,
    /// From held arrays to arguments of calls on this server.
    pub copied: AtomicU64,
}

impl Traffic {
    pub(crate) fn add(counter: &AtomicU64, bytes: u64) {
        counter.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The value of one counter.
    #[must_use]
    pub fn of(counter: &AtomicU64) -> u64 {
        counter.load(Ordering::Relaxed)
    }
}
