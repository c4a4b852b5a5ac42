//! Frames, the contents of data packets: checked encoding and decoding. Byte tables are in
//! `docs/reference/channel-protocol.md`.
//!
//! A frame is a header of a few bytes, in some kinds a list, and data. [`Frame::write`] writes them to where they are to
//! be, in [`crate::Endpoint::send_with`] straight into the ring; [`Frame::header`] gives the header alone.
//!
//! Header and list are decoded from bytes that nobody else can write. The data stays where it is: see [`Payload`].

mod bytes;
mod decode;
mod list;
mod multicast;
mod one_sided;
mod padding;
mod payload;
mod put;
mod service;

use bytes::{Reader, Writer, zero};
pub use list::{
    GET_LIST_BYTES, GetList, MOST_GET_PIECES, PIECE_BYTES, PUT_LIST_BYTES, PutList, pieces,
};
pub use multicast::{
    MULTICAST_APPEND_BYTES, MULTICAST_APPEND_DONE_BYTES, MulticastAppend, MulticastAppendDone,
    members,
};
pub use padding::pad;
pub use payload::Payload;
pub use put::{PutFrame, decode_put};
pub use service::{SERVICE_BYTES, SERVICE_PART_BYTES, ServiceMessage};

/// The name of a window at one rank: unguessable, chosen by that rank, see `docs/reference/channel-protocol.md`. How its bits are used is
/// its owner's affair.
pub type WindowKey = u64;
/// The name that no window has.
pub const NO_WINDOW: WindowKey = 0;

/// Bytes before the data of a [`Frame::Message`].
pub const MESSAGE_BYTES: usize = 16;
/// Bytes before the data of a [`Frame::MessagePart`].
pub const MESSAGE_PART_BYTES: usize = 4;
/// Bytes before the data of a [`Frame::Put`].
pub const PUT_BYTES: usize = 24;
/// Bytes of a [`Frame::GetRequest`].
pub const GET_REQUEST_BYTES: usize = 32;
/// Bytes before the data of a [`Frame::GetReply`].
pub const GET_REPLY_BYTES: usize = 16;
/// Bytes of a [`Frame::AtomicRequest`].
pub const ATOMIC_REQUEST_BYTES: usize = 44;
/// Bytes of a [`Frame::AtomicReply`].
pub const ATOMIC_REPLY_BYTES: usize = 20;
/// Bytes of a [`Frame::Refused`].
pub const REFUSED_BYTES: usize = 12;
/// Bytes before the data of a [`Frame::PutCounted`].
pub const PUT_COUNTED_BYTES: usize = 32;
/// Bytes of a [`Frame::PutDone`].
pub const PUT_DONE_BYTES: usize = 12;
/// Bytes before the data of a [`Frame::PutStrided`].
pub const PUT_STRIDED_BYTES: usize = 44;
/// Bytes of a [`Frame::GetStrided`].
pub const GET_STRIDED_BYTES: usize = 44;
/// Bytes before the members and the data of a [`Frame::Multicast`].
pub const MULTICAST_BYTES: usize = 32;
/// Bytes of a [`Frame::MulticastDone`].
pub const MULTICAST_DONE_BYTES: usize = 16;
/// Bytes before the record of a [`Frame::Append`].
pub const APPEND_BYTES: usize = 28;
/// Bytes of a [`Frame::AppendReply`].
pub const APPEND_REPLY_BYTES: usize = 12;
/// Bytes that name a member in a list.
pub const MEMBER_BYTES: usize = 4;
/// Most bytes before a frame's list and data.
pub const MOST_HEADER_BYTES: usize = ATOMIC_REQUEST_BYTES;

/// [`Frame::Refused`]: the operation reaches beyond the window.
pub const REFUSED_BOUNDS: u8 = 1;
/// [`Frame::Refused`]: the window does not permit this operation.
pub const REFUSED_RIGHT: u8 = 2;
/// [`Frame::Refused`]: there is no window of this name.
pub const REFUSED_WINDOW: u8 = 3;
/// [`Frame::Refused`]: there is no such notify counter.
pub const REFUSED_NOTIFY: u8 = 4;
/// [`Frame::Refused`]: an atomic operation's offset is not a multiple of its width.
pub const REFUSED_ALIGNMENT: u8 = 5;

/// [`Frame::Refused`]: there is no such FIFO or signal port.
pub const REFUSED_FIFO: u8 = 16;
/// [`Frame::Refused`]: the FIFO is full.
pub const REFUSED_FULL: u8 = 17;
/// [`Frame::Refused`]: the record is longer than the FIFO takes.
pub const REFUSED_RECORD: u8 = 18;
/// [`Frame::Refused`]: the FIFO's memory is damaged.
pub const REFUSED_DAMAGE: u8 = 19;

/// An atomic operation on eight or four bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Operation {
    /// Adds the operand, wrapping.
    FetchAdd = 0,
    /// Stores the operand.
    Swap = 1,
    /// Stores the second operand if the value equals the first.
    CompareSwap = 2,
    /// Ands the operand, bit by bit.
    FetchAnd = 3,
    /// Ors the operand, bit by bit.
    FetchOr = 4,
    /// Exclusive-ors the operand, bit by bit.
    FetchXor = 5,
}

/// How many bytes an atomic operation is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Width {
    /// Eight bytes.
    Eight = 0,
    /// Four bytes: the upper halves of operands and values are 0.
    Four = 1,
}

impl Width {
    /// The number of bytes.
    #[must_use]
    pub fn bytes(self) -> u64 {
        match self {
            Self::Eight => 8,
            Self::Four => 4,
        }
    }
}

/// One frame, with its list, if its kind has one, and its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'l, D> {
    /// First fragment of a message.
    Message {
        /// The message's tag: the bits of an `i32`.
        tag: u32,
        /// Bytes of the whole message.
        total: u64,
        /// This fragment.
        data: D,
    },
    /// Next fragment of the pair's current message.
    MessagePart {
        /// This fragment.
        data: D,
    },
    /// Write into a window of the rank addressed.
    Put {
        /// The window's name at the rank addressed.
        window: WindowKey,
        /// Where in the window, in bytes.
        offset: u64,
        /// The notify counter to raise by one afterwards.
        notify: Option<u32>,
        /// The bytes to write.
        data: D,
    },
    /// Ask for bytes of a window.
    GetRequest {
        /// Chosen by the asking rank; comes back with the reply.
        token: u64,
        /// The window's name at the rank addressed.
        window: WindowKey,
        /// Where in the window, in bytes.
        offset: u64,
        /// How many bytes.
        len: u32,
    },
    /// Some or all of the bytes asked for.
    GetReply {
        /// The request's.
        token: u64,
        /// Where in the request these bytes belong.
        offset_in_request: u32,
        /// The bytes.
        data: D,
    },
    /// Ask for an atomic operation.
    AtomicRequest {
        /// Chosen by the asking rank; comes back with the reply.
        token: u64,
        /// The window's name at the rank addressed.
        window: WindowKey,
        /// Where in the window, in bytes.
        offset: u64,
        /// The operation.
        operation: Operation,
        /// On how many bytes.
        width: Width,
        /// Operand; of a compare-swap: the value expected.
        operand: u64,
        /// Of a compare-swap: the new value. Otherwise 0.
        operand2: u64,
    },
    /// The value before an atomic operation.
    AtomicReply {
        /// The request's.
        token: u64,
        /// The value.
        value: u64,
    },
    /// An operation was refused and memory is untouched.
    Refused {
        /// The request's; 0 for a put.
        token: u64,
        /// One of the `REFUSED_` constants; an unknown one is to be shown as its number.
        code: u8,
    },
    /// As [`Frame::Put`], for a sender that wants to know when it is in place.
    PutCounted {
        /// Chosen by the sender, greater than those before, not 0; comes back with the answer.
        token: u64,
        /// This is the last frame of the put: to be answered.
        last: bool,
        /// The window's name at the rank addressed.
        window: WindowKey,
        /// Where in the window, in bytes.
        offset: u64,
        /// The notify counter to raise by one afterwards.
        notify: Option<u32>,
        /// The bytes to write.
        data: D,
    },
    /// The sender's puts with tokens up to this one are in place, but for those refused before.
    PutDone {
        /// That of the last put.
        token: u64,
    },
    /// Write blocks of equal length at equal distances.
    PutStrided {
        /// As for [`Frame::PutCounted`]; 0: nobody wants to know.
        token: u64,
        /// As for [`Frame::PutCounted`].
        last: bool,
        /// The window's name at the rank addressed.
        window: WindowKey,
        /// Where in the window the first block begins, in bytes.
        offset: u64,
        /// From the start of a block to that of the next, in bytes; at least a block.
        stride: u64,
        /// Bytes of a block, not 0.
        block: u32,
        /// The notify counter to raise by one afterwards.
        notify: Option<u32>,
        /// The blocks, one after the other; at least one.
        data: D,
    },
    /// Ask for blocks of equal length at equal distances; answered as a [`Frame::GetRequest`] is.
    GetStrided {
        /// Chosen by the asking rank; comes back with the reply.
        token: u64,
        /// The window's name at the rank addressed.
        window: WindowKey,
        /// Where in the window the first block begins, in bytes.
        offset: u64,
        /// From the start of a block to that of the next, in bytes; at least a block.
        stride: u64,
        /// Bytes of a block, not 0.
        block: u32,
        /// How many blocks, not 0; all together have less than 2^32 bytes.
        count: u32,
    },
    /// Write into a window of the rank addressed and of others, to which it forwards this.
    Multicast {
        /// Chosen by the rank that sends or forwards; comes back with the answer. 0: no answer.
        token: u64,
        /// The window's name at the rank addressed.
        window: WindowKey,
        /// Where in the window, in bytes.
        offset: u64,
        /// The notify counter to raise by one afterwards.
        notify: Option<u32>,
        /// The numbers of other ranks that the receiver forwards it to, 4 bytes each: see [`members`].
        members: &'l [u8],
        /// The bytes to write.
        data: D,
    },
    /// A rank and all its members have a multicast.
    MulticastDone {
        /// The request's.
        token: u64,
        /// The first rank that refused it, and the reason: one of the `REFUSED_` constants, not 0.
        refused: Option<(u32, u8)>,
    },
    /// Append a record to a FIFO in a window of the rank addressed.
    Append {
        /// Chosen by the asking rank; comes back with the reply.
        token: u64,
        /// The window's name at the rank addressed.
        window: WindowKey,
        /// Where the FIFO begins in the window, in bytes.
        offset: u64,
        /// If it is full: answer only when there is room.
        wait: bool,
        /// The FIFO is a signal port, whose handler is to run.
        signal: bool,
        /// The record.
        data: D,
    },
    /// An [`Frame::Append`] has been taken, or may be asked for again.
    AppendReply {
        /// The request's.
        token: u64,
        /// The FIFO was full and has room now; the record was not taken.
        again: bool,
    },
    /// Write pieces of any lengths at any places.
    PutList(PutList<'l, D>),
    /// Ask for pieces of any lengths at any places; answered as a [`Frame::GetRequest`] is.
    GetList(GetList<'l>),
    /// Append a record to FIFOs of the rank addressed and of others, to which it forwards this.
    MulticastAppend(MulticastAppend<'l, D>),
    /// A rank and all its members have a record, or no room for it.
    MulticastAppendDone(MulticastAppendDone<'l>),
    /// First part of a message to a service.
    Service(ServiceMessage<D>),
    /// Next part of the pair's current message to a service.
    ServicePart {
        /// This part.
        data: D,
    },
}

/// Why bytes are not a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// No bytes at all.
    #[error("an empty frame")]
    Empty,
    /// The first byte is no kind of frame.
    #[error("unknown kind of frame {0}; the sender speaks another version")]
    Kind(u8),
    /// Too short or too long for its kind.
    #[error("a frame of kind {kind} cannot have {length} bytes")]
    Length {
        /// The first byte.
        kind: u8,
        /// Bytes of the frame.
        length: usize,
    },
    /// A field has a value it may not have.
    #[error("a frame of kind {kind} with a forbidden value of its field {field}")]
    Field {
        /// The first byte.
        kind: u8,
        /// Name of the field.
        field: &'static str,
    },
}

/// A frame's header, ready to be sent before its data.
#[derive(Clone, Copy, Debug)]
pub struct FrameHeader {
    bytes: [u8; MOST_HEADER_BYTES],
    length: usize,
}

impl core::ops::Deref for FrameHeader {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

const MESSAGE: u8 = 1;
const MESSAGE_PART: u8 = 2;
const PUT: u8 = 3;
const GET_REQUEST: u8 = 4;
const GET_REPLY: u8 = 5;
const ATOMIC_REQUEST: u8 = 6;
const ATOMIC_REPLY: u8 = 7;
const REFUSED: u8 = 8;
const PUT_COUNTED: u8 = 9;
const PUT_DONE: u8 = 10;
const PUT_STRIDED: u8 = 11;
const GET_STRIDED: u8 = 12;
const MULTICAST: u8 = 13;
const MULTICAST_DONE: u8 = 14;
const APPEND: u8 = 16;
const APPEND_REPLY: u8 = 17;
const PUT_LIST: u8 = 20;
const GET_LIST: u8 = 21;
const MULTICAST_APPEND: u8 = 22;
const MULTICAST_APPEND_DONE: u8 = 23;
const SERVICE: u8 = 24;
const SERVICE_PART: u8 = 25;

/// Flags of a [`Frame::Append`].
const APPEND_WAIT: u8 = 1;
const APPEND_SIGNAL: u8 = 2;

/// Flag of puts: raise a notify counter.
const NOTIFY: u8 = 1;
/// Flag of counted puts: the last frame.
const LAST: u8 = 2;

fn flags(notify: Option<u32>, last: bool) -> u8 {
    u8::from(notify.is_some()) * NOTIFY + u8::from(last) * LAST
}

fn append_flags(wait: bool, signal: bool) -> u8 {
    u8::from(wait) * APPEND_WAIT + u8::from(signal) * APPEND_SIGNAL
}

/// The number of a list's entries as a header tells it. Of a list that is too long, the lower bits: the decoder then
/// finds another length.
fn count(list: &[u8], entry: usize) -> [u8; 2] {
    let [low, high, ..] = (list.len() / entry).to_le_bytes();
    [low, high]
}

impl<'l, D: Payload> Frame<'l, D> {
    /// The bytes before the list and the data.
    pub fn header(&self) -> FrameHeader {
        let mut bytes = [0; MOST_HEADER_BYTES];
        let length = self.write_header(&mut bytes);
        FrameHeader { bytes, length }
    }

    /// Writes header, list and data to the beginning of `room`; how many bytes that are.
    ///
    /// # Panics
    /// If they do not fit: the caller's fault.
    #[inline]
    pub fn write(&self, room: &mut [u8]) -> usize {
        let (header, list, data) = (self.write_header(room), self.list(), self.data());
        let listed = header + list.len();
        if !list.is_empty() {
            room[header..listed].copy_from_slice(list);
        }
        let length = listed + data.len();
        data.copy_to(&mut room[listed..length]);
        length
    }

    /// Writes the header; its length.
    #[inline]
    fn write_header(&self, bytes: &mut [u8]) -> usize {
        let to = Writer::to(bytes);
        let writer = match *self {
            Self::Message { tag, total, .. } => to.start([MESSAGE, 0, 0, 0]).u32(tag).u64(total),
            Self::MessagePart { .. } => to.start([MESSAGE_PART, 0, 0, 0]),
            Self::Put { window, offset, notify, .. } => {
                let start = [PUT, u8::from(notify.is_some()), 0, 0];
                to.start(start).at(window, offset).notify(notify)
            }
            Self::GetRequest { token, window, offset, len } => {
                to.start([GET_REQUEST, 0, 0, 0]).at(window, offset).u64(token).u32(len)
            }
            Self::GetReply { token, offset_in_request, .. } => {
                to.start([GET_REPLY, 0, 0, 0]).u32(offset_in_request).u64(token)
            }
            Self::AtomicRequest { token, window, offset, operation, width, operand, operand2 } => {
                let start = [ATOMIC_REQUEST, operation as u8, width as u8, 0];
                to.start(start).at(window, offset).u64(token).u64(operand).u64(operand2)
            }
            Self::AtomicReply { token, value } => {
                to.start([ATOMIC_REPLY, 0, 0, 0]).u64(token).u64(value)
            }
            Self::Refused { token, code } => to.start([REFUSED, code, 0, 0]).u64(token),
            Self::PutCounted { token, last, window, offset, notify, .. } => {
                let start = [PUT_COUNTED, flags(notify, last), 0, 0];
                to.start(start).at(window, offset).notify(notify).u64(token)
            }
            Self::PutDone { token } => to.start([PUT_DONE, 0, 0, 0]).u64(token),
            Self::PutStrided { token, last, window, offset, stride, block, notify, .. } => {
                let start = [PUT_STRIDED, flags(notify, last), 0, 0];
                to.start(start).at(window, offset).blocks(stride, block).notify(notify).u64(token)
            }
            Self::GetStrided { token, window, offset, stride, block, count } => {
                let start = [GET_STRIDED, 0, 0, 0];
                to.start(start).at(window, offset).u64(token).blocks(stride, block).u32(count)
            }
            Self::Multicast { token, window, offset, notify, members, .. } => {
                let [low, high] = count(members, MEMBER_BYTES);
                let start = [MULTICAST, flags(notify, false), low, high];
                to.start(start).at(window, offset).notify(notify).u64(token)
            }
            Self::MulticastDone { token, refused } => {
                let (rank, code) = refused.unwrap_or((0, 0));
                to.start([MULTICAST_DONE, code, 0, 0]).u64(token).u32(rank)
            }
            Self::Append { token, window, offset, wait, signal, .. } => {
                to.start([APPEND, append_flags(wait, signal), 0, 0]).at(window, offset).u64(token)
            }
            Self::AppendReply { token, again } => {
                to.start([APPEND_REPLY, u8::from(again), 0, 0]).u64(token)
            }
            Self::PutList(ref list) => list.write(to),
            Self::GetList(ref list) => list.write(to),
            Self::MulticastAppend(ref cast) => cast.write(to),
            Self::MulticastAppendDone(ref done) => done.write(to),
            Self::Service(ref message) => message.write(to),
            Self::ServicePart { .. } => service::write_part(to),
        };
        writer.done()
    }

    /// The list between header and data; empty for a kind without one.
    #[inline]
    pub fn list(&self) -> &'l [u8] {
        match *self {
            Self::Multicast { members, .. }
            | Self::MulticastAppend(MulticastAppend { members, .. }) => members,
            Self::PutList(PutList { pieces, .. }) | Self::GetList(GetList { pieces, .. }) => pieces,
            Self::MulticastAppendDone(MulticastAppendDone { full, .. }) => full,
            _ => &[],
        }
    }

    /// The data behind them; empty for a kind without data.
    #[inline]
    pub fn data(&self) -> D {
        match *self {
            Self::Message { data, .. }
            | Self::MessagePart { data }
            | Self::Put { data, .. }
            | Self::GetReply { data, .. }
            | Self::Append { data, .. }
            | Self::PutCounted { data, .. }
            | Self::PutStrided { data, .. }
            | Self::Multicast { data, .. }
            | Self::PutList(PutList { data, .. })
            | Self::MulticastAppend(MulticastAppend { data, .. })
            | Self::Service(ServiceMessage { data, .. })
            | Self::ServicePart { data } => data,
            Self::GetRequest { .. }
            | Self::AtomicRequest { .. }
            | Self::AtomicReply { .. }
            | Self::Refused { .. }
            | Self::AppendReply { .. }
            | Self::PutDone { .. }
            | Self::GetStrided { .. }
            | Self::GetList(_)
            | Self::MulticastDone { .. }
            | Self::MulticastAppendDone(_) => D::default(),
        }
    }
}
