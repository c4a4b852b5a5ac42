//! What goes over a connection of library calls (docs/reference/call-protocol.md): frames, and the state of both ends.
//!
//! Bytes go in, and out come events and places: where the next bytes of an array belong, so that a driver reads them
//! from its socket straight to there. What is to be written comes as pieces: bytes of headers, and ranges of arrays.
//!
//! Nothing here knows a socket, a clock, a description of a routine, or an array.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

mod callback;
mod client;
mod codec;
mod frame;
mod frame_reader;
mod held_array;
mod hello;
mod incoming_arrays;
mod message;
mod metaserver;
mod placement;
mod registered_server;
mod send_queue;
mod server;
mod shared_memory;

pub use callback::{CallbackHead, CallbackReturn};
pub use client::{Client, ClientEvent, RequestTooLong};
pub use codec::DecodeError;
pub use frame::{HEADER, chunk_header, chunks};
pub use frame_reader::{ArrayPosition, Step};
pub use held_array::{FetchRequest, HeldArrayName, HeldArrayPart, HeldArrays, HeldResult};
pub use hello::{ClientHello, LocalEndpoint, Role, ServerHello, VERSIONS, VoucherSupport};
pub use incoming_arrays::ArraySize;
pub use message::{CallHead, Code, Failure, ResultHead, Value};
pub use metaserver::{FrameStep, Metaserver, MetaserverEvent};
pub use placement::{
    AttemptOutcome, AttemptReport, AttemptState, InputLocation, LoadReport, Placement,
    PlacementRequest, ServerRegistration, SigningKey, Ticket, Transfer,
};
pub use registered_server::{RegisteredServer, RegisteredServerEvent};
pub use send_queue::{SendPiece, SendQueue};
pub use server::{Server, ServerEvent};
pub use shared_memory::{GrantedArray, MemoryGrant, SharedDirections};

use thiserror::Error;

/// Longest body of a frame from a client that is no chunk, in bytes.
pub const MOST_REQUEST: usize = 64 << 10;
/// Longest body of a frame from a server that is no chunk, in bytes.
pub const MOST_ANSWER: usize = 4 << 20;
/// Most bytes of answers, without arrays, that may wait for a client that asks for more.
pub const MOST_UNREAD: usize = 4 * MOST_ANSWER;
/// Longest chunk that is taken, in bytes.
pub const MOST_CHUNK: usize = 16 << 20;
/// Length of the chunks that are sent, in bytes.
pub const CHUNK: usize = 1 << 20;
/// Longest name of a routine, in bytes.
pub const MOST_NAME: usize = 512;

/// The other side broke the protocol: the connection cannot go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ProtocolError {
    /// The first bytes are not those of this protocol.
    #[error("the other side does not speak the protocol of library calls")]
    Magic,
    /// The hello's fields.
    #[error("the hello is malformed: {0}")]
    Hello(DecodeError),
    /// A kind that does not exist or is not for this side.
    #[error("a frame of kind {0}, which is not known or not for this side")]
    Kind(u8),
    /// Flags or numbers that must be 0 or must not.
    #[error("a frame of kind {kind} with wrong flags, argument or stream {stream}")]
    Header {
        /// Its kind.
        kind: u8,
        /// Its stream.
        stream: u32,
    },
    /// A body that is too long for its kind.
    #[error("a frame of kind {kind} with {length} bytes of at most {most}")]
    Length {
        /// Its kind.
        kind: u8,
        /// Its length, bytes.
        length: usize,
        /// The limit, bytes.
        most: usize,
    },
    /// A body that cannot be read.
    #[error("a frame of kind {kind} that is malformed: {why}")]
    Body {
        /// Its kind.
        kind: u8,
        /// Why.
        why: DecodeError,
    },
    /// A stream that is in use.
    #[error("stream {0} is begun and is open already")]
    Reused(u32),
    /// A client that asks and does not read what it is answered.
    #[error("{0} bytes of answers wait to be read; read them before more is asked for")]
    Unread(usize),
    /// Bytes that no array has room for.
    #[error("stream {stream} brings more bytes of argument {argument} than it has")]
    Excess {
        /// The stream.
        stream: u32,
        /// The parameter.
        argument: u16,
    },
    /// An answer to what was not asked, or a second.
    #[error("a frame of kind {kind} for stream {stream} answers nothing")]
    Unasked {
        /// Its kind.
        kind: u8,
        /// Its stream.
        stream: u32,
    },
}
