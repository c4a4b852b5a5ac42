//! Frames: what is put into data packets. Checked encoding and decoding; byte tables in
//! `docs/protocol.md`.
//!
//! A frame is a header of a few bytes and data. [`Frame::header`] writes the header into a small array, so that
//! [`crate::Endpoint::send`] copies header and data once, straight into the ring.

mod one_sided;

/// Bytes before the data of a [`Frame::Message`].
pub const MESSAGE_BYTES: usize = 16;
/// Bytes before the data of a [`Frame::MessagePart`].
pub const MESSAGE_PART_BYTES: usize = 4;
/// Bytes before the data of a [`Frame::Put`].
pub const PUT_BYTES: usize = 20;
/// Bytes of a [`Frame::GetRequest`].
pub const GET_REQUEST_BYTES: usize = 28;
/// Bytes before the data of a [`Frame::GetReply`].
pub const GET_REPLY_BYTES: usize = 16;
/// Bytes of a [`Frame::AtomicRequest`].
pub const ATOMIC_REQUEST_BYTES: usize = 40;
/// Bytes of a [`Frame::AtomicReply`].
pub const ATOMIC_REPLY_BYTES: usize = 20;
/// Bytes of a [`Frame::Refused`].
pub const REFUSED_BYTES: usize = 12;
/// Bytes before the data of a [`Frame::PutCounted`].
pub const PUT_COUNTED_BYTES: usize = 28;
/// Bytes of a [`Frame::PutDone`].
pub const PUT_DONE_BYTES: usize = 12;
/// Bytes before the data of a [`Frame::PutStrided`].
pub const PUT_STRIDED_BYTES: usize = 40;
/// Bytes of a [`Frame::GetStrided`].
pub const GET_STRIDED_BYTES: usize = 40;
/// Most bytes before a frame's data.
pub const MOST_HEADER_BYTES: usize = ATOMIC_REQUEST_BYTES;

/// [`Frame::Refused`]: the operation reaches beyond the window.
pub const REFUSED_BOUNDS: u8 = 1;
/// [`Frame::Refused`]: the window does not permit this operation.
pub const REFUSED_RIGHT: u8 = 2;
/// [`Frame::Refused`]: there is no such window.
pub const REFUSED_WINDOW: u8 = 3;
/// [`Frame::Refused`]: there is no such notify counter.
pub const REFUSED_NOTIFY: u8 = 4;
/// [`Frame::Refused`]: an atomic operation's offset is not a multiple of its width.
pub const REFUSED_ALIGNMENT: u8 = 5;

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

/// One frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'d> {
    /// First fragment of a message.
    Message {
        /// The message's tag: the bits of an `i32`.
        tag: u32,
        /// Bytes of the whole message.
        total: u64,
        /// This fragment.
        data: &'d [u8],
    },
    /// Next fragment of the pair's current message.
    MessagePart {
        /// This fragment.
        data: &'d [u8],
    },
    /// Write into a window of the rank addressed.
    Put {
        /// The window's number.
        window: u32,
        /// Where in the window, in bytes.
        offset: u64,
        /// The notify counter to raise by one afterwards.
        notify: Option<u32>,
        /// What to write.
        data: &'d [u8],
    },
    /// Ask for bytes of a window.
    GetRequest {
        /// Chosen by the asking rank; comes back with the reply.
        token: u64,
        /// The window's number.
        window: u32,
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
        data: &'d [u8],
    },
    /// Ask for an atomic operation.
    AtomicRequest {
        /// Chosen by the asking rank; comes back with the reply.
        token: u64,
        /// The window's number.
        window: u32,
        /// Where in the window, in bytes.
        offset: u64,
        /// What to do.
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
        /// The window's number.
        window: u32,
        /// Where in the window, in bytes.
        offset: u64,
        /// The notify counter to raise by one afterwards.
        notify: Option<u32>,
        /// What to write.
        data: &'d [u8],
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
        /// The window's number.
        window: u32,
        /// Where in the window the first block begins, in bytes.
        offset: u64,
        /// From the start of a block to that of the next, in bytes; at least a block.
        stride: u64,
        /// Bytes of a block, not 0.
        block: u32,
        /// The notify counter to raise by one afterwards.
        notify: Option<u32>,
        /// The blocks, one behind the other; at least one.
        data: &'d [u8],
    },
    /// Ask for blocks of equal length at equal distances; answered as a [`Frame::GetRequest`] is.
    GetStrided {
        /// Chosen by the asking rank; comes back with the reply.
        token: u64,
        /// The window's number.
        window: u32,
        /// Where in the window the first block begins, in bytes.
        offset: u64,
        /// From the start of a block to that of the next, in bytes; at least a block.
        stride: u64,
        /// Bytes of a block, not 0.
        block: u32,
        /// How many blocks, not 0; all together have less than 2^32 bytes.
        count: u32,
    },
}

/// Why bytes are not a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// No bytes at all.
    #[error("a frame without bytes")]
    Empty,
    /// The first byte is no kind of frame.
    #[error("unknown kind of frame {0}; the sender speaks another version")]
    Kind(u8),
    /// Too short or too long for its kind.
    #[error("{length} bytes are no frame of kind {kind}")]
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

/// Flag of puts: raise a notify counter.
const NOTIFY: u8 = 1;
/// Flag of counted puts: the last frame.
const LAST: u8 = 2;

/// Writes fields one behind the other.
struct Writer(FrameHeader);

impl Writer {
    fn new(start: [u8; 4]) -> Self {
        let mut bytes = [0; MOST_HEADER_BYTES];
        bytes[..4].copy_from_slice(&start);
        Self(FrameHeader { bytes, length: 4 })
    }

    fn put<const N: usize>(mut self, field: [u8; N]) -> Self {
        let at = self.0.length;
        self.0.bytes[at..at + N].copy_from_slice(&field);
        self.0.length += N;
        self
    }

    fn u32(self, value: u32) -> Self {
        self.put(value.to_le_bytes())
    }

    fn u64(self, value: u64) -> Self {
        self.put(value.to_le_bytes())
    }
}

/// Reads fields one behind the other.
struct Reader<'d> {
    kind: u8,
    frame: &'d [u8],
    at: usize,
}

impl<'d> Reader<'d> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], FrameError> {
        let rest = self.frame.get(self.at..).and_then(|rest| rest.first_chunk::<N>());
        self.at += N;
        rest.copied().ok_or_else(|| self.bad_length())
    }

    fn u32(&mut self) -> Result<u32, FrameError> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, FrameError> {
        self.take().map(u64::from_le_bytes)
    }

    fn bad_length(&self) -> FrameError {
        FrameError::Length { kind: self.kind, length: self.frame.len() }
    }

    fn bad(&self, field: &'static str) -> FrameError {
        FrameError::Field { kind: self.kind, field }
    }

    /// A notify counter and whether there is one.
    fn notify(&self, has_notify: u8, notify: u32) -> Result<Option<u32>, FrameError> {
        match has_notify {
            1 => Ok(Some(notify)),
            0 if notify == 0 => Ok(None),
            _ => Err(self.bad("notify")),
        }
    }

    fn rest(&self) -> &'d [u8] {
        &self.frame[self.at..]
    }

    /// The frame must end here.
    fn end(&self) -> Result<(), FrameError> {
        if self.at == self.frame.len() { Ok(()) } else { Err(self.bad_length()) }
    }
}

fn flags(notify: Option<u32>, last: bool) -> u8 {
    u8::from(notify.is_some()) * NOTIFY + u8::from(last) * LAST
}

fn zero(reader: &Reader<'_>, reserved: &[u8]) -> Result<(), FrameError> {
    if reserved.iter().all(|&byte| byte == 0) { Ok(()) } else { Err(reader.bad("reserved")) }
}

impl<'d> Frame<'d> {
    /// The bytes before the data.
    pub fn header(&self) -> FrameHeader {
        let writer = match *self {
            Self::Message { tag, total, .. } => Writer::new([MESSAGE, 0, 0, 0]).u32(tag).u64(total),
            Self::MessagePart { .. } => Writer::new([MESSAGE_PART, 0, 0, 0]),
            Self::Put { window, offset, notify, .. } => {
                Writer::new([PUT, u8::from(notify.is_some()), 0, 0])
                    .u32(window)
                    .u64(offset)
                    .u32(notify.unwrap_or(0))
            }
            Self::GetRequest { token, window, offset, len } => {
                Writer::new([GET_REQUEST, 0, 0, 0]).u32(window).u64(offset).u64(token).u32(len)
            }
            Self::GetReply { token, offset_in_request, .. } => {
                Writer::new([GET_REPLY, 0, 0, 0]).u32(offset_in_request).u64(token)
            }
            Self::AtomicRequest { token, window, offset, operation, width, operand, operand2 } => {
                Writer::new([ATOMIC_REQUEST, operation as u8, width as u8, 0])
                    .u32(window)
                    .u64(offset)
                    .u64(token)
                    .u64(operand)
                    .u64(operand2)
            }
            Self::AtomicReply { token, value } => {
                Writer::new([ATOMIC_REPLY, 0, 0, 0]).u64(token).u64(value)
            }
            Self::Refused { token, code } => Writer::new([REFUSED, code, 0, 0]).u64(token),
            Self::PutCounted { token, last, window, offset, notify, .. } => {
                Writer::new([PUT_COUNTED, flags(notify, last), 0, 0])
                    .u32(window)
                    .u64(offset)
                    .u32(notify.unwrap_or(0))
                    .u64(token)
            }
            Self::PutDone { token } => Writer::new([PUT_DONE, 0, 0, 0]).u64(token),
            Self::PutStrided { token, last, window, offset, stride, block, notify, .. } => {
                Writer::new([PUT_STRIDED, flags(notify, last), 0, 0])
                    .u32(window)
                    .u64(offset)
                    .u64(stride)
                    .u32(block)
                    .u32(notify.unwrap_or(0))
                    .u64(token)
            }
            Self::GetStrided { token, window, offset, stride, block, count } => {
                Writer::new([GET_STRIDED, 0, 0, 0])
                    .u32(window)
                    .u64(offset)
                    .u64(token)
                    .u64(stride)
                    .u32(block)
                    .u32(count)
            }
        };
        writer.0
    }

    /// The data behind the header; empty for a kind without data.
    pub fn data(&self) -> &'d [u8] {
        match *self {
            Self::Message { data, .. }
            | Self::MessagePart { data }
            | Self::Put { data, .. }
            | Self::GetReply { data, .. }
            | Self::PutCounted { data, .. }
            | Self::PutStrided { data, .. } => data,
            Self::GetRequest { .. }
            | Self::AtomicRequest { .. }
            | Self::AtomicReply { .. }
            | Self::Refused { .. }
            | Self::PutDone { .. }
            | Self::GetStrided { .. } => &[],
        }
    }

    /// The frame that `bytes` are.
    ///
    /// # Errors
    /// [`FrameError`] for anything that [`Self::header`] followed by data cannot have made.
    pub fn decode(bytes: &'d [u8]) -> Result<Self, FrameError> {
        let &kind = bytes.first().ok_or(FrameError::Empty)?;
        if !(MESSAGE..=GET_STRIDED).contains(&kind) {
            return Err(FrameError::Kind(kind));
        }
        let mut r = Reader { kind, frame: bytes, at: 1 };
        let [parameter, second, third] = r.take::<3>()?;
        let used = match kind {
            ATOMIC_REQUEST => 2,
            PUT | REFUSED | PUT_COUNTED | PUT_STRIDED => 1,
            _ => 0,
        };
        zero(&r, &[parameter, second, third][used..])?;
        match kind {
            MESSAGE => Self::decode_message(r),
            MESSAGE_PART if r.rest().is_empty() => Err(r.bad_length()),
            MESSAGE_PART => Ok(Self::MessagePart { data: r.rest() }),
            PUT => Self::decode_put(r, parameter),
            GET_REQUEST => {
                let (window, offset, token, len) = (r.u32()?, r.u64()?, r.u64()?, r.u32()?);
                r.end()?;
                Ok(Self::GetRequest { token, window, offset, len })
            }
            GET_REPLY => {
                let (offset_in_request, token) = (r.u32()?, r.u64()?);
                Ok(Self::GetReply { token, offset_in_request, data: r.rest() })
            }
            ATOMIC_REQUEST => Self::decode_atomic(r, parameter, second),
            ATOMIC_REPLY => {
                let (token, value) = (r.u64()?, r.u64()?);
                r.end()?;
                Ok(Self::AtomicReply { token, value })
            }
            PUT_COUNTED => Self::decode_put_counted(r, parameter),
            PUT_DONE => {
                let token = r.u64()?;
                r.end()?;
                Ok(Self::PutDone { token })
            }
            PUT_STRIDED => Self::decode_put_strided(r, parameter),
            GET_STRIDED => Self::decode_get_strided(r),
            _ => {
                let token = r.u64()?;
                r.end()?;
                if parameter == 0 {
                    return Err(r.bad("code"));
                }
                Ok(Self::Refused { token, code: parameter })
            }
        }
    }

    fn decode_message(mut r: Reader<'d>) -> Result<Self, FrameError> {
        let (tag, total) = (r.u32()?, r.u64()?);
        let data = r.rest();
        if (data.len() as u64) > total {
            return Err(r.bad("total"));
        }
        Ok(Self::Message { tag, total, data })
    }

    fn decode_put(mut r: Reader<'d>, has_notify: u8) -> Result<Self, FrameError> {
        let (window, offset, notify) = (r.u32()?, r.u64()?, r.u32()?);
        let notify = r.notify(has_notify, notify)?;
        Ok(Self::Put { window, offset, notify, data: r.rest() })
    }

    fn decode_atomic(mut r: Reader<'d>, operation: u8, width: u8) -> Result<Self, FrameError> {
        let (window, offset, token) = (r.u32()?, r.u64()?, r.u64()?);
        let (operand, operand2) = (r.u64()?, r.u64()?);
        r.end()?;
        let operation = match operation {
            0 => Operation::FetchAdd,
            1 => Operation::Swap,
            2 => Operation::CompareSwap,
            3 => Operation::FetchAnd,
            4 => Operation::FetchOr,
            5 => Operation::FetchXor,
            _ => return Err(r.bad("operation")),
        };
        let width = match width {
            0 => Width::Eight,
            1 => Width::Four,
            _ => return Err(r.bad("width")),
        };
        if width == Width::Four && operand > u64::from(u32::MAX) {
            return Err(r.bad("operand"));
        }
        if width == Width::Four && operand2 > u64::from(u32::MAX) {
            return Err(r.bad("operand2"));
        }
        if operation != Operation::CompareSwap && operand2 != 0 {
            return Err(r.bad("operand2"));
        }
        Ok(Self::AtomicRequest { token, window, offset, operation, width, operand, operand2 })
    }
}
