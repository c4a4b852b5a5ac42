//! AF_XDP: short packets go past the kernel's network stack, by rings that the rank shares with the kernel.
//!
//! The daemon has the rights for it. It makes socket and memory ([`setup`]), steers packets to them ([`steering`]), and
//! knows how other ranks are reached ([`table`]). The rank drives the rings.
//!
//! The rank's UDP socket stays. It takes what AF_XDP does not:
//!
//! | packets | why by UDP |
//! |---|---|
//! | runs of several, and lent data | the kernel segments them and joins them again |
//! | fragments, and packets too long for a frame | AF_XDP moves single frames |
//! | to ranks whose hardware address is not known now | the kernel finds out |
//! | from ranks without AF_XDP, or that came to another queue | the kernel gives only marked frames of the own queue to the ring |
//!
//! So a rank with AF_XDP and one without understand each other.

pub(crate) mod driver;
mod frame;
mod launch;
pub(crate) mod rings;
mod setup;
mod steering;
mod table;

pub use frame::Mac;
pub use launch::{XdpDescriptors, XdpParts};
pub use setup::{XdpError, XdpSocket, queues, try_out};
pub use steering::Steering;
pub use table::NextHops;

/// Bytes of a chunk, which holds one frame.
const CHUNK: usize = 2048;
/// Chunks to receive into. As many entries have the rings for receiving.
const RECEIVE_CHUNKS: u32 = 256;
/// Chunks to send from. As many entries have the rings for sending.
const SEND_CHUNKS: u32 = 64;
const CHUNKS: u32 = RECEIVE_CHUNKS + SEND_CHUNKS;
