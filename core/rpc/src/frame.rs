//! Headers of frames.

use crate::codec::DecodeError;
use crate::incoming_arrays::ArraySize;
use crate::{CHUNK, MOST_ANSWER, MOST_CHUNK, MOST_REQUEST, ProtocolError};
use alloc::vec::Vec;
use core::cmp::Ordering;

/// Bytes of a frame's header.
pub const HEADER: usize = 12;

/// What a frame is. The numbers are those of the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameKind {
    /// Asks for a description.
    Interface = 1,
    /// Asks for names.
    List = 2,
    /// A call's head.
    Call = 3,
    /// Bytes of an array.
    Chunk = 4,
    /// Ends a call.
    Cancel = 5,
    /// Asks for a sign of life.
    Ping = 6,
    /// Gives it.
    Pong = 7,
    /// A description.
    Description = 8,
    /// Names of routines.
    Names = 9,
    /// A result's head.
    Result = 10,
    /// A failure.
    Error = 11,
    /// The routine calls a function of the client.
    Callback = 12,
    /// The function has returned, or failed.
    CallbackReturn = 13,
    /// Asks where a call is to go.
    Place = 32,
    /// Says it.
    Placed = 33,
    /// How an attempt went.
    Over = 34,
    /// A call is over.
    Closed = 35,
    /// Who a server is.
    Register = 36,
    /// A routine of a server.
    Offer = 37,
    /// What a server runs.
    Holds = 38,
    /// A server is known.
    Registered = 39,
    /// A server's load.
    Report = 40,
    /// What is with a ticket.
    Told = 41,
    /// Ends an attempt.
    Stop = 42,
    /// A server takes no new calls.
    Leave = 43,
    /// Asks for the state.
    Status = 44,
    /// The state.
    State = 45,
    /// The ticket of the call that follows.
    Ticket = 46,
    /// Asks what is with a ticket.
    Ask = 47,
    /// Asks for a held array.
    Fetch = 14,
    /// Ends the holding of arrays.
    Drop = 15,
    /// Asks for an object of a class.
    Create = 16,
    /// It is there.
    Created = 17,
    /// The head of a call on an object.
    Invoke = 18,
    /// The memory of a call.
    Grant = 20,
    /// The client has put its arrays there.
    Filled = 21,
    /// The client touches a memory no more.
    Release = 23,
    /// Asks for a voucher for a held array.
    Vouch = 24,
    /// The voucher.
    Voucher = 25,
}

impl FrameKind {
    fn of(byte: u8) -> Option<FrameKind> {
        const ALL: [FrameKind; 39] = [
            FrameKind::Interface,
            FrameKind::List,
            FrameKind::Call,
            FrameKind::Chunk,
            FrameKind::Cancel,
            FrameKind::Ping,
            FrameKind::Pong,
            FrameKind::Description,
            FrameKind::Names,
            FrameKind::Result,
            FrameKind::Error,
            FrameKind::Callback,
            FrameKind::CallbackReturn,
            FrameKind::Place,
            FrameKind::Placed,
            FrameKind::Over,
            FrameKind::Closed,
            FrameKind::Register,
            FrameKind::Offer,
            FrameKind::Holds,
            FrameKind::Registered,
            FrameKind::Report,
            FrameKind::Told,
            FrameKind::Stop,
            FrameKind::Leave,
            FrameKind::Status,
            FrameKind::State,
            FrameKind::Ticket,
            FrameKind::Ask,
            FrameKind::Fetch,
            FrameKind::Drop,
            FrameKind::Create,
            FrameKind::Created,
            FrameKind::Invoke,
            FrameKind::Grant,
            FrameKind::Filled,
            FrameKind::Release,
            FrameKind::Vouch,
            FrameKind::Voucher,
        ];
        ALL.into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// Which end of a connection reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadingEnd {
    Client,
    Server,
}

/// A frame's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Bytes of the body.
    pub length: usize,
    /// The stream; 0: the connection.
    pub stream: u32,
    /// What it is; `None`: an extension to be skipped.
    pub kind: Option<FrameKind>,
    /// The parameter of a chunk.
    pub argument: u16,
}

impl Header {
    /// Reads a header and checks it as far as the reading end alone can.
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
        let exact = match known {
            Some(FrameKind::Cancel | FrameKind::Filled | FrameKind::Created) => length.cmp(&0),
            Some(FrameKind::Release) => length.cmp(&4),
            Some(FrameKind::Ping | FrameKind::Pong) => length.cmp(&8),
            _ => Ordering::Equal,
        };
        match exact {
            Ordering::Less => return Err(ProtocolError::Body { kind, why: DecodeError::Short }),
            Ordering::Greater => return Err(ProtocolError::Body { kind, why: DecodeError::Long }),
            Ordering::Equal => {}
        }
        let of_connection = match known {
            Some(
                FrameKind::Ping
                | FrameKind::Pong
                | FrameKind::Drop
                | FrameKind::Release
                | FrameKind::Register
                | FrameKind::Offer
                | FrameKind::Holds
                | FrameKind::Registered
                | FrameKind::Report
                | FrameKind::Told
                | FrameKind::Stop
                | FrameKind::Ask
                | FrameKind::Leave,
            ) => stream == 0,
            Some(FrameKind::Error | FrameKind::Over) | None => true,
            Some(_) => stream != 0,
        };
        let argument_fits = argument == 0 || matches!(known, Some(FrameKind::Chunk) | None);
        let flags_fit = flags == 0 || known.is_none();
        if !(of_connection && argument_fits && flags_fit) {
            return Err(ProtocolError::Header { kind, stream });
        }
        Ok(Header { length, stream, kind: known, argument })
    }
}

/// Appends a frame whose body `write` appends; bodies are far shorter than 4 GiB.
pub(crate) fn put(
    out: &mut Vec<u8>,
    kind: FrameKind,
    stream: u32,
    write: impl FnOnce(&mut Vec<u8>),
) {
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&stream.to_le_bytes());
    out.extend_from_slice(&[kind as u8, 0, 0, 0]);
    write(out);
    let length = u32::try_from(out.len() - at - HEADER).unwrap_or(u32::MAX);
    out[at..at + 4].copy_from_slice(&length.to_le_bytes());
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

/// The chunks in which arrays of these sizes are sent: parameter, offset in bytes, length.
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
