//! Arrays that stay at servers between calls (docs/reference/call-protocol.md, "Arrays that stay").

mod gaps;
mod table;

pub(crate) use gaps::Gaps;
pub(crate) use table::{Charge, Full, Holder, Missing, Table};

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use kumi_rpc::HeldName;

/// Where the bytes of a server's arrays came from and went to.
#[derive(Debug, Default)]
pub struct Traffic {
    /// From clients, as arguments of calls.
    pub from_clients: AtomicU64,
    /// To clients, as results of calls.
    pub to_clients: AtomicU64,
    /// Of both, what clients on this machine have put into the memory of calls and taken from there.
    pub in_memory: AtomicU64,
    /// From other servers, which held them.
    pub from_servers: AtomicU64,
    /// To whoever fetched what is held here: clients and other servers.
    pub fetched: AtomicU64,
    /// Copied from what is held here to a call's arguments.
    pub copied: AtomicU64,
}

impl Traffic {
    pub(crate) fn add(counter: &AtomicU64, bytes: u64) {
        counter.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes so far, of one of the counters.
    #[must_use]
    pub fn of(counter: &AtomicU64) -> u64 {
        counter.load(Ordering::Relaxed)
    }
}

/// Names for arrays, which nobody guesses.
#[derive(Debug)]
pub struct Names {
    secret: [u8; 16],
    next: u32,
}

impl Names {
    /// Names that nobody has used.
    ///
    /// # Errors
    /// The system gives no random bytes.
    pub fn new() -> io::Result<Names> {
        use std::io::Read as _;
        let mut secret = [0; 16];
        std::fs::File::open("/dev/urandom")?.read_exact(&mut secret)?;
        Ok(Names { secret, next: 0 })
    }

    /// One more name.
    pub fn fresh(&mut self) -> HeldName {
        self.next = self.next.wrapping_add(1);
        HeldName { secret: self.secret, index: self.next }
    }
}
