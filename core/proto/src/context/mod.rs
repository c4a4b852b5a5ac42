//! Context of an endpoint: everything that it needs to go on, in one region of memory that its caller gives.
//!
//! The region holds no pointers, so a copy of it can be continued in another process, at another address and
//! on another machine of the same byte order. `docs/reference/channel-context.md` has the bytes.

mod flag;
mod layout;
mod memory;
mod report;
mod resume;

pub use layout::{CONTEXT_VERSION, ContextLayout};
pub use memory::{ContextMemory, HeapMemory};
pub use report::{ContextReport, PeerReport};

pub(crate) use flag::Flag;
pub(crate) use layout::{Block, Identity, Parts, Totals, record, records, totals};
pub(crate) use memory::mark;
pub(crate) use resume::{Rebuilt, rebuild};

use crate::{ConfigError, Rank};

/// Why an endpoint cannot be made in a region, or cannot go on with what is in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ContextError {
    /// The settings are wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The region is too small.
    #[error("the region has {have} bytes; a context of this channel needs {need}")]
    TooSmall {
        /// Bytes of the region.
        have: usize,
        /// Bytes that it must have.
        need: usize,
    },
    /// The region does not start at a multiple of eight bytes.
    #[error("the region starts at an odd address; align it to eight bytes")]
    Alignment,
    /// There is no context in the region, or one of a machine of the other byte order.
    #[error("there is no channel context here, or one of a machine with another byte order")]
    Magic,
    /// The layout has another version.
    #[error("the context has version {0}; this program knows version {CONTEXT_VERSION}")]
    Version(u32),
    /// The copy was taken while the endpoint was changing its state.
    #[error(
        "the context was copied in the middle of a change; let its rank run on and copy it again"
    )]
    Busy,
    /// The context belongs to another channel.
    #[error("the context was made with {field} {found}, not {wanted}")]
    Mismatch {
        /// What differs.
        field: &'static str,
        /// The context's value.
        found: u64,
        /// The caller's.
        wanted: u64,
    },
    /// A value is one that no endpoint writes.
    #[error("the context is damaged: {what}{}", OfPeer(*peer))]
    Damaged {
        /// What is wrong.
        what: &'static str,
        /// In the state of this peer.
        peer: Option<Rank>,
    },
    /// The bytes of a packet were lent, and the caller cannot find them.
    #[error(
        "a packet to rank {to} was lent at {place} and is not in the copy; take back what is lent before copying"
    )]
    Lent {
        /// The rank addressed.
        to: Rank,
        /// Where the bytes were, as their lender called it.
        place: u64,
    },
}

/// Shows the peer of an error.
struct OfPeer(Option<Rank>);

impl core::fmt::Display for OfPeer {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.0 {
            Some(peer) => write!(f, " (peer {peer})"),
            None => Ok(()),
        }
    }
}

impl ContextError {
    pub(crate) fn damaged(what: &'static str) -> Self {
        Self::Damaged { what, peer: None }
    }

    pub(crate) fn of_peer(what: &'static str, peer: Rank) -> Self {
        Self::Damaged { what, peer: Some(peer) }
    }
}
