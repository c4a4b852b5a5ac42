//! The bytes of messages; see docs/reference/messaging-protocol.md. Numbers are little-endian.

use thiserror::Error;

/// Bytes of a header without what follows in some kinds.
pub const HEADER_BYTES: usize = 48;
/// Most pieces of exposed memory.
pub const MOST_PIECES: usize = 4;
const PIECE_BYTES: usize = 24;
const ACCESS_BYTES: usize = 24;
/// Bytes of the longest header.
pub const LONGEST_HEADER: usize = HEADER_BYTES + ACCESS_BYTES + MOST_PIECES * PIECE_BYTES;

/// A message that is none: the sender's fault.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BadMessage {
    /// It ends in its header.
    #[error("a message of {0} bytes ends in its header")]
    Short(usize),
    /// Its kind is unknown.
    #[error("a message of kind {0}")]
    Kind(u8),
    /// Unknown flags.
    #[error("a message with flags {0:#x}")]
    Flags(u8),
    /// Too many pieces, or more bytes than a number has.
    #[error("exposed memory in {0} pieces, or of more bytes than there can be")]
    Exposure(u16),
    /// Its data is not as long as its header says.
    #[error("a message with {found} bytes of data, where {said} were announced")]
    Length {
        /// Bytes that came.
        found: usize,
        /// Bytes that the header names.
        said: u64,
    },
    /// It names a request that its sender has no part in.
    #[error("an answer to request {0:#x}, which its sender was not asked")]
    Request(u64),
    /// It used more room than it was given.
    #[error("{0} bytes more than the credit for unexpected messages")]
    Credit(u64),
    /// It has announced more messages than it may, or asks for more than it takes.
    #[error("more announced messages, or more questions, than there may be")]
    TooMany,
    /// It gives room back that was not used.
    #[error("{0} bytes of credit returned that were not used")]
    Returned(u64),
}

/// What a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A message of a program, with its data.
    Eager = 1,
    /// A message of a program whose data is still with its sender.
    Announce = 2,
    /// Asks for the data of a message that was announced without exposed memory.
    Want = 3,
    /// Data that was asked for.
    Data = 4,
    /// A request is over.
    Done = 5,
    /// Room for unexpected messages is free again.
    Credit = 6,
    /// Data for registered memory.
    Write = 7,
    /// Asks to fetch data for registered memory.
    FetchWrite = 8,
    /// Asks for data of registered memory.
    Read = 9,
    /// Atomic operations on registered memory.
    Atomic = 10,
}

impl Kind {
    fn from_byte(byte: u8) -> Result<Kind, BadMessage> {
        use Kind::{Announce, Atomic, Credit, Data, Done, Eager, FetchWrite, Read, Want, Write};
        let all = [Eager, Announce, Want, Data, Done, Credit, Write, FetchWrite, Read, Atomic];
        all.into_iter().find(|kind| *kind as u8 == byte).ok_or(BadMessage::Kind(byte))
    }

    /// A request for registered memory, with [`AccessHeader`] or [`AtomicHeader`].
    fn is_access(self) -> bool {
        matches!(self, Kind::Write | Kind::FetchWrite | Kind::Read | Kind::Atomic)
    }
}

const TAGGED: u8 = 1;
const IMMEDIATE: u8 = 2;
const ANSWER: u8 = 4;
const ALL_FLAGS: u8 = TAGGED | IMMEDIATE | ANSWER;

/// A piece of exposed memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ExposedPiece {
    /// By which the channel's transfers name it.
    pub key: u64,
    /// Where it lies in its process; for copies between processes of a node.
    pub address: u64,
    /// Bytes.
    pub length: u64,
}

/// Memory that another rank may read, or write, until it is concealed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Exposure {
    /// Number of the process, in its own node's space of numbers.
    pub process: u32,
    count: u16,
    pieces: [ExposedPiece; MOST_PIECES],
}

impl Exposure {
    /// Without a piece.
    #[must_use]
    pub fn new(process: u32) -> Exposure {
        Exposure { process, ..Exposure::default() }
    }

    /// Adds a piece; false if there is no room for it.
    pub fn add(&mut self, piece: ExposedPiece) -> bool {
        let Some(place) = self.pieces.get_mut(usize::from(self.count)) else { return false };
        *place = piece;
        self.count += 1;
        true
    }

    /// The pieces in their order.
    #[must_use]
    pub fn pieces(&self) -> &[ExposedPiece] {
        &self.pieces[..usize::from(self.count)]
    }

    /// Bytes of all together.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.pieces().iter().fold(0, |sum, piece| sum.saturating_add(piece.length))
    }
}

/// What an atomic operation is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AtomicHeader {
    /// Type of elements, by libfabric's number.
    pub datatype: u8,
    /// The operation, by libfabric's number.
    pub op: u8,
    /// 0: changes memory; 1: returns what was there, too; 2: compares, perhaps changes, and returns what was there.
    pub kind: u8,
}

/// The header of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// What it is.
    pub kind: Kind,
    /// Endpoint that it is for.
    pub endpoint: u16,
    /// Endpoint that it is of.
    pub source: u16,
    /// The sender gives back so many bytes of credit.
    pub credit: u32,
    /// The message has a tag.
    pub tagged: bool,
    /// Tag of a message; key of registered memory; of [`Kind::Want`] the request of the receiver.
    pub tag: u64,
    /// A word beside the message.
    pub immediate: Option<u64>,
    /// Bytes of the data, which follow or are announced.
    pub length: u64,
    /// The request that an answer names; none: no answer is wanted.
    pub request: Option<u64>,
    /// How a request has ended ([`Kind::Done`]).
    pub status: u8,
    /// Address in registered memory.
    pub address: u64,
    /// What to do there ([`Kind::Atomic`]).
    pub atomic: AtomicHeader,
    /// Memory of the sender.
    pub exposure: Exposure,
}

impl Header {
    /// Of a kind, between two endpoints, with nothing else.
    #[must_use]
    pub fn new(kind: Kind, endpoint: u16, source: u16) -> Header {
        Header {
            kind,
            endpoint,
            source,
            credit: 0,
            tagged: false,
            tag: 0,
            immediate: None,
            length: 0,
            request: None,
            status: 0,
            address: 0,
            atomic: AtomicHeader::default(),
            exposure: Exposure::default(),
        }
    }

    /// Its bytes, and how many they are.
    #[must_use]
    #[inline]
    pub fn encode(&self) -> ([u8; LONGEST_HEADER], usize) {
        let mut bytes = [0; LONGEST_HEADER];
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        bytes[0] = self.kind as u8;
        bytes[1] = flag(self.tagged, TAGGED)
            | flag(self.immediate.is_some(), IMMEDIATE)
            | flag(self.request.is_some(), ANSWER);
        bytes[2..4].copy_from_slice(&self.endpoint.to_le_bytes());
        bytes[4..6].copy_from_slice(&self.source.to_le_bytes());
        bytes[6] = self.exposure.count as u8;
        bytes[7] = self.status;
        bytes[8..12].copy_from_slice(&self.credit.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.exposure.process.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.tag.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.immediate.unwrap_or_default().to_le_bytes());
        bytes[32..40].copy_from_slice(&self.length.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.request.unwrap_or_default().to_le_bytes());
        let mut end = HEADER_BYTES;
        if self.kind.is_access() {
            let AtomicHeader { datatype, op, kind } = self.atomic;
            bytes[end..end + 8].copy_from_slice(&self.address.to_le_bytes());
            bytes[end + 8..end + 11].copy_from_slice(&[datatype, op, kind]);
            end += ACCESS_BYTES;
        }
        for piece in self.exposure.pieces() {
            for word in [piece.key, piece.address, piece.length] {
                bytes[end..end + 8].copy_from_slice(&word.to_le_bytes());
                end += 8;
            }
        }
        (bytes, end)
    }

    /// Reads the header of a message of `length` bytes, whose first ones these are: as many as there are, at most
    /// [`LONGEST_HEADER`]. Also how many bytes the header has.
    ///
    /// # Errors
    /// It is none.
    #[inline]
    pub fn decode(bytes: &[u8]) -> Result<(Header, usize), BadMessage> {
        let short = || BadMessage::Short(bytes.len());
        let (fixed, rest) = bytes.split_first_chunk::<HEADER_BYTES>().ok_or_else(short)?;
        let kind = Kind::from_byte(fixed[0])?;
        let flags = fixed[1];
        if flags & !ALL_FLAGS != 0 {
            return Err(BadMessage::Flags(flags));
        }
        let word = |at: usize| u64::from_le_bytes(core::array::from_fn(|i| fixed[at + i]));
        let half = |at: usize| u32::from_le_bytes(core::array::from_fn(|i| fixed[at + i]));
        let mut header = Header {
            kind,
            endpoint: u16::from_le_bytes([fixed[2], fixed[3]]),
            source: u16::from_le_bytes([fixed[4], fixed[5]]),
            credit: half(8),
            tagged: flags & TAGGED != 0,
            tag: word(16),
            immediate: (flags & IMMEDIATE != 0).then(|| word(24)),
            length: word(32),
            request: (flags & ANSWER != 0).then(|| word(40)),
            status: fixed[7],
            address: 0,
            atomic: AtomicHeader::default(),
            exposure: Exposure::new(half(12)),
        };
        let (access, exposed) = if kind.is_access() {
            rest.split_at_checked(ACCESS_BYTES).ok_or_else(short)?
        } else {
            rest.split_at(0)
        };
        if let Some((address, [datatype, op, kind, ..])) = access.split_first_chunk() {
            header.address = u64::from_le_bytes(*address);
            header.atomic = AtomicHeader { datatype: *datatype, op: *op, kind: *kind };
        }
        header
            .decode_exposure(usize::from(fixed[6]), exposed)
            .map_err(|error| error.unwrap_or_else(short))?;
        Ok((header, HEADER_BYTES + access.len() + usize::from(fixed[6]) * PIECE_BYTES))
    }

    /// No error: too few bytes.
    fn decode_exposure(&mut self, count: usize, bytes: &[u8]) -> Result<(), Option<BadMessage>> {
        let bad = BadMessage::Exposure(count as u16);
        if count > MOST_PIECES {
            return Err(Some(bad));
        }
        let bytes = bytes.get(..count * PIECE_BYTES).ok_or(None)?;
        let mut total = 0_u64;
        for piece in bytes.as_chunks::<PIECE_BYTES>().0 {
            let word = |at: usize| u64::from_le_bytes(core::array::from_fn(|i| piece[at + i]));
            let piece = ExposedPiece { key: word(0), address: word(8), length: word(16) };
            total = total.checked_add(piece.length).ok_or(bad.clone())?;
            self.exposure.add(piece);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
