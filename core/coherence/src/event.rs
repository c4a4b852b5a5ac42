//! What the driver has to do.

use alloc::vec::Vec;
use core::ops::Range;

use crate::message::Message;
use crate::{PageSet, Rank, Ticket};

/// What an acquire makes visible: the driver acts on it before the program goes on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Acquired {
    /// Pages that ranks of other nodes wrote, without those that have their home on this node: the next access fetches them.
    pub stale: PageSet,
    /// Pages that have their home on this node from now on. Its copy is the newest one.
    pub homed: PageSet,
    /// Barriers passed, this one included, if this was a barrier with effect on memory.
    pub epoch: Option<u32>,
    /// For [`crate::Coherence::forgotten`].
    pub number: u64,
}

/// An action of the driver. Events are carried out in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Send this message to another rank.
    Send {
        /// The receiver, never this rank.
        to: Rank,
        /// What to send.
        message: Message,
    },
    /// Write these diffs (see [`Message::Diffs`]) into this node's copy: it is the home of the pages.
    Apply {
        /// The rank that wrote.
        from: Rank,
        /// The diffs.
        diffs: Vec<u8>,
    },
    /// Write these diffs into this node's copy and its twin, of pages with [`crate::Sharing::Update`]. Each page is locked meanwhile
    /// ([`crate::PageState::lock`]).
    Update {
        /// The rank that sent them.
        from: Rank,
        /// The diffs.
        diffs: Vec<u8>,
    },
    /// Send [`Message::Subscribed`] with the twins of these pages, whose home is here: what was released so far. Each page is locked
    /// while its twin is read.
    SendTwins {
        /// The receiver.
        to: Rank,
        /// For the message.
        ticket: u64,
        /// The pages.
        pages: Range<u32>,
    },
    /// These bytes are the copies and twins of pages from this one on; their fetch is over.
    Install {
        /// The rank that sent them.
        from: Rank,
        /// The first page.
        first: u32,
        /// Whole pages.
        bytes: Vec<u8>,
    },
    /// A wait of the program is over.
    Resume {
        /// The wait.
        ticket: Ticket,
        /// What it makes visible.
        acquired: Acquired,
    },
}

/// Events in their order.
pub type Events = Vec<Event>;
