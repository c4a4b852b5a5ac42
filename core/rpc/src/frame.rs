//! Frame headers: kinds of frames and their limits.

use crate::codec::{DecodeError, Encode};
use crate::incoming_arrays::ArraySize;
use crate::resources::RESOURCES;
use crate::trace_context::TRACE_PARENT;
use crate::{CHUNK, MOST_ANSWER, MOST_CHUNK, MOST_REQUEST, ProtocolError};
use alloc::vec::Vec;
use core::cmp::Ordering;
use thiserror::Error;

/// Bytes of a frame's header.
pub const HEADER: usize = 12;

/// What a frame is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Subject {
    /// Its stream, which is not 0.
    Stream,
    /// The connection itself: stream 0.
    Connection,
    /// One of both.
    Either,
}

/// Kinds with their numbers; with what they are about, if that is not their stream; and with the length of their bodies, if all
/// have the same.
macro_rules! kinds {
    ($(
        $(#[$doc:meta])*
        $name:ident = $number:literal $(on $subject:ident)? $(of $length:expr)?,
    )*) => {
        /// The kind of a frame. The numbers are those on the wire.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        pub enum FrameKind {
            $($(#[$doc])* $name = $number,)*
        }

        impl FrameKind {
            fn of(byte: u8) -> Option<FrameKind> {
                match byte {
                    $($number => Some(FrameKind::$name),)*
                    _ => None,
                }
            }

            fn subject(self) -> Subject {
                match self {
                    $($(FrameKind::$name => Subject::$subject,)?)*
                    _ => Subject::Stream,
                }
            }

            fn exact_length(self) -> Option<usize> {
                match self {
                    $($(FrameKind::$name => Some($length),)?)*
                    _ => None,
                }
            }
        }
    };
}

kinds! {
    /// Asks for a description.
    Interface = 1,
    /// Asks for names.
    List = 2,
    /// The head of a call.
    Call = 3,
    /// Bytes of an array.
    Chunk = 4,
    /// Ends a call.
    Cancel = 5 of 0,
    /// Asks for a PONG.
    Ping = 6 on Connection of 8,
    /// Answers a PING.
    Pong = 7 on Connection of 8,
    /// A description.
    Description = 8,
    /// Names of routines.
    Names = 9,
    /// The head of a result.
    Result = 10,
    /// A failure.
    Error = 11 on Either,
    /// The routine calls a function of the client.
    Callback = 12,
    /// The function has returned, or failed.
    CallbackReturn = 13,
    /// Asks a metaserver to place a call.
    Place = 32,
    /// The server that the metaserver has chosen.
    Placed = 33,
    /// A client's report on an attempt.
    AttemptReport = 34 on Either,
    /// Closes the stream of a placed call.
    Closed = 35,
    /// Registers a server at a metaserver.
    Register = 36 on Connection,
    /// A routine of a server.
    Offer = 37 on Connection,
    /// The tickets of calls that run at a server.
    RunningTickets = 38 on Connection,
    /// Confirms the registration of a server.
    Registered = 39 on Connection,
    /// A server's load.
    Report = 40 on Connection,
    /// A server's answer about a ticket.
    TicketState = 41 on Connection,
    /// Has a server stop an attempt.
    Stop = 42 on Connection,
    /// A server accepts no new calls.
    Leave = 43 on Connection,
    /// Asks a metaserver for its state.
    Status = 44,
    /// The state.
    State = 45,
    /// The ticket of the call that follows.
    Ticket = 46,
    /// Asks a server about a ticket.
    Ask = 47 on Connection,
    /// Asks for bytes of a held array.
    Fetch = 14,
    /// Releases held arrays.
    Drop = 15 on Connection,
    /// Asks for a new object of a class.
    Create = 16,
    /// The object exists.
    Created = 17 of 0,
    /// The head of a call on an object.
    Invoke = 18,
    /// Grants a call shared memory.
    Grant = 20,
    /// The client has written its arrays to the shared memory.
    Filled = 21 of 0,
    /// The client no longer uses a shared memory.
    Release = 23 on Connection of 4,
    /// Asks for a voucher for a held array.
    Vouch = 24,
    /// The voucher.
    Voucher = 25,
    /// A server asks its metaserver whether there is a server at an address. From 128 on, so that older metaservers
    /// skip it.
    AskAddress = 128 on Connection,
    /// The metaserver's answer.
    AddressState = 129 on Connection,
    /// A client's words about an attempt that failed, before its report.
    AttemptReason = 130,
    /// A client wants what the routine of the call that follows prints.
    Listen = 131 of 0,
    /// What the routine has printed.
    Output = 132,
    /// The place in a trace of the call, or of the request for its place, that follows.
    Trace = 133 of TRACE_PARENT,
    /// The threads and the memory for the call, or for the one whose place is requested, that follows.
    Resources = 134 of RESOURCES,
    /// An array of the client is to be held. Its bytes follow as chunks.
    Hold = 215,
    /// Asks a server for its log of calls, or a metaserver for the servers that have such logs.
    Logs = 216,
}

/// The end of a connection that reads a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadingEnd {
    Client,
    Server,
}

/// What is wrong with a frame.
#[derive(Debug, Error)]
pub(crate) enum FrameError {
    /// Its body.
    #[error(transparent)]
    Body(#[from] DecodeError),
    /// Its kind is not allowed here.
    #[error("it is not allowed here")]
    Kind,
    /// It answers nothing.
    #[error("it answers nothing")]
    Unasked,
    /// Something else.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
}

impl FrameError {
    /// The violation by a frame of this kind on this stream.
    pub fn of(self, kind: FrameKind, stream: u32) -> ProtocolError {
        let kind = kind as u8;
        match self {
            FrameError::Body(why) => ProtocolError::Body { kind, why },
            FrameError::Kind => ProtocolError::Kind(kind),
            FrameError::Unasked => ProtocolError::Unasked { kind, stream },
            FrameError::Protocol(error) => error,
        }
    }
}

/// A frame's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Bytes of the body.
    pub length: usize,
    /// The stream; 0: the connection itself.
    pub stream: u32,
    /// The kind; `None`: an unknown extension, which is skipped.
    pub kind: Option<FrameKind>,
    /// The parameter of a chunk.
    pub argument: u16,
}

impl Header {
    /// Decodes a header and checks everything that does not depend on the state of the connection.
    pub(crate) fn decode(bytes: &[u8; HEADER], end: ReadingEnd) -> Result<Header, ProtocolError> {
        let [l0, l1, l2, l3, s0, s1, s2, s3, kind, flags, a0, a1] = *bytes;
        let length = u32::from_le_bytes([l0, l1, l2, l3]);
        let stream = u32::from_le_bytes([s0, s1, s2, s3]);
        let argument = u16::from_le_bytes([a0, a1]);
        let known = FrameKind::of(kind);
        if known.is_none() && kind < 128 {
            return Err(ProtocolError::Kind(kind));
        }
        let most = match (known, end) {
            (Some(FrameKind::Chunk) | None, _) => MOST_CHUNK,
            (Some(_), ReadingEnd::Server) => MOST_REQUEST,
            (Some(_), ReadingEnd::Client) => MOST_ANSWER,
        };
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length > most {
            return Err(ProtocolError::Length { kind, length, most });
        }
        let exact = known.and_then(FrameKind::exact_length).unwrap_or(length);
        match length.cmp(&exact) {
            Ordering::Less => return Err(ProtocolError::Body { kind, why: DecodeError::Short }),
            Ordering::Greater => return Err(ProtocolError::Body { kind, why: DecodeError::Long }),
            Ordering::Equal => {}
        }
        let is_about_it = match known.map_or(Subject::Either, FrameKind::subject) {
            Subject::Stream => stream != 0,
            Subject::Connection => stream == 0,
            Subject::Either => true,
        };
        let argument_fits = argument == 0 || matches!(known, Some(FrameKind::Chunk) | None);
        let flags_fit = flags == 0 || known.is_none();
        if !(is_about_it && argument_fits && flags_fit) {
            return Err(ProtocolError::Header { kind, stream });
        }
        Ok(Header { length, stream, kind: known, argument })
    }
}

/// Appends a frame. Bodies are far shorter than 4 GiB.
pub(crate) fn put(out: &mut Vec<u8>, kind: FrameKind, stream: u32, body: impl Encode) {
    let at = out.len();
    (0_u32, stream, [kind as u8, 0, 0, 0], body).put(out);
    let length = u32::try_from(out.len() - at - HEADER).unwrap_or(u32::MAX);
    out[at..at + 4].copy_from_slice(&length.to_le_bytes());
}

/// Inserts a frame before what `out` has from byte `at` on.
pub(crate) fn insert(
    out: &mut Vec<u8>,
    at: usize,
    kind: FrameKind,
    stream: u32,
    body: impl Encode,
) {
    let mut frame = Vec::new();
    put(&mut frame, kind, stream, body);
    out.splice(at..at, frame);
}

/// The header of a chunk of `length` bytes (at most [`MOST_CHUNK`]) of `argument`.
#[must_use]
pub fn chunk_header(stream: u32, argument: u16, length: u32) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..4].copy_from_slice(&length.to_le_bytes());
    header[4..8].copy_from_slice(&stream.to_le_bytes());
    header[8] = FrameKind::Chunk as u8;
    header[10..].copy_from_slice(&argument.to_le_bytes());
    header
}

/// The chunks of arrays of these sizes: parameter, offset in bytes, length.
pub fn chunks(sizes: &[ArraySize]) -> impl Iterator<Item = (u16, u64, u32)> + '_ {
    sizes.iter().flat_map(|size| {
        let step = CHUNK as u64;
        (0..size.bytes.div_ceil(step)).map(move |index| {
            let offset = index * step;
            let length = (size.bytes - offset).min(step);
            // At most CHUNK.
            (size.argument, offset, u32::try_from(length).unwrap_or(CHUNK as u32))
        })
    })
}
