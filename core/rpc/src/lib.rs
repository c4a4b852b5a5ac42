//! The call protocol (docs/reference/call-protocol.md): frames, and a state machine for each end of a connection.
//!
//! A driver passes the bytes that it has read. The state machine returns events, and positions in arrays, so that the
//! driver can read array data from its socket directly into place. Output is a list of pieces: bytes of frames, and ranges
//! of arrays.
//!
//! This crate knows no socket, no clock, no description of a routine and no array.
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
mod log_request;
mod message;
mod metaserver;
mod placement;
mod registered_server;
mod resources;
mod send_queue;
mod server;
mod shared_memory;
mod trace_context;

pub use callback::{CallbackHead, CallbackReturn};
pub use client::{CallMetadata, Client, ClientEvent, RequestTooLong};
pub use codec::{DecodeError, printable, reorders_text};
pub use frame::{HEADER, chunk_header, chunks};
pub use frame_reader::{ArrayPosition, Step};
pub use held_array::{
    FetchRequest, HeldArrayName, HeldArrayPart, HeldArrays, HeldResult, HoldRequest,
};
pub use hello::{ClientHello, LocalEndpoint, Role, ServerHello, VERSIONS, VoucherSupport};
pub use incoming_arrays::ArraySize;
pub use log_request::LogRequest;
pub use message::{CallHead, Code, Failure, ResultHead, Value};
pub use metaserver::{FrameStep, Metaserver, MetaserverEvent};
pub use placement::{
    AttemptOutcome, AttemptReport, AttemptState, InputLocation, LoadReport, Placement,
    PlacementRequest, ServerRegistration, SigningKey, Ticket, Transfer,
};
pub use registered_server::{RegisteredServer, RegisteredServerEvent};
pub use resources::Resources;
pub use send_queue::{SendPiece, SendQueue};
pub use server::{Server, ServerEvent};
pub use shared_memory::{GrantedArray, MemoryGrant, SharedDirections};
pub use trace_context::{HexDigits, TRACE_PARENT, TraceContext, TraceContextError, TraceId};

use thiserror::Error;

/// Longest body of a client's frame other than a chunk, in bytes.
pub const MOST_REQUEST: usize = 64 << 10;
/// Longest body of a server's frame other than a chunk, in bytes.
pub const MOST_ANSWER: usize = 4 << 20;
/// Most unsent bytes of answers, without arrays, at which a client may send further requests.
pub const MOST_UNREAD: usize = 4 * MOST_ANSWER;
/// Longest chunk that is accepted, in bytes.
pub const MOST_CHUNK: usize = 16 << 20;
/// Length of the chunks that this code sends, in bytes.
pub const CHUNK: usize = 1 << 20;
/// Longest name of a routine, in bytes.
pub const MOST_NAME: usize = 512;

/// A violation of the protocol by the other side. It ends the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ProtocolError {
    /// The first bytes are not those of this protocol.
    #[error("the other side does not speak Kumi's call protocol")]
    Magic,
    /// A field of the hello is malformed.
    #[error("the hello is malformed: {0}")]
    Hello(DecodeError),
    /// The frame's kind does not exist, or is not allowed in this direction.
    #[error("a frame of kind {0}, which is unknown or not allowed here")]
    Kind(u8),
    /// Flags, argument or stream are not allowed for this kind of frame.
    #[error("a frame of kind {kind} with wrong flags, argument or stream {stream}")]
    Header {
        /// Its kind.
        kind: u8,
        /// Its stream.
        stream: u32,
    },
    /// The body is too long for its kind.
    #[error("a frame of kind {kind} with {length} bytes of at most {most}")]
    Length {
        /// Its kind.
        kind: u8,
        /// Its length, bytes.
        length: usize,
        /// The limit, bytes.
        most: usize,
    },
    /// The body cannot be decoded.
    #[error("a malformed frame of kind {kind}: {why}")]
    Body {
        /// Its kind.
        kind: u8,
        /// Why.
        why: DecodeError,
    },
    /// A new request uses the number of an open stream.
    #[error("a request on stream {0}, which is open already")]
    Reused(u32),
    /// The client sends requests and does not read the answers.
    #[error("{0} bytes of answers are unread; read them before sending further requests")]
    Unread(usize),
    /// A chunk goes beyond the end of its array.
    #[error("stream {stream} brings more bytes than argument {argument} has")]
    Excess {
        /// The stream.
        stream: u32,
        /// The parameter.
        argument: u16,
    },
    /// An answer without a request, or a second answer.
    #[error("a frame of kind {kind} for stream {stream} answers nothing")]
    Unasked {
        /// Its kind.
        kind: u8,
        /// Its stream.
        stream: u32,
    },
}
