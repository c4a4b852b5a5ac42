//! Frame bodies of calls: heads of calls and results, values, and failures.

use crate::codec::{Cursor, DecodeError, printable, shortened};
use crate::held_array::HeldArrays;
use crate::shared_memory::SharedDirections;
use crate::{MOST_ANSWER, MOST_NAME};
use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;

/// A scalar or a text.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A signed integer.
    I64(i64),
    /// An unsigned integer.
    U64(u64),
    /// A number.
    F64(f64),
    /// A complex number: real and imaginary part.
    Complex(f64, f64),
    /// A text.
    Text(String),
    /// Length of a file, whose content is sent like an array.
    FileLength(u64),
}

/// The head of a call.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CallHead {
    /// Hash of the client's description.
    pub hash: u64,
    /// Time limit in milliseconds; 0: the server's limit.
    pub timeout_ms: u32,
    /// The routine.
    pub routine: String,
    /// Scalar and text inputs: parameter and value, in ascending order.
    pub values: Vec<(u16, Value)>,
    /// Held arrays that the call uses or creates.
    pub held: HeldArrays,
    /// Arrays for which the client requests shared memory, in ascending order of their parameters.
    pub shared: Vec<(u16, SharedDirections)>,
    /// The stream of the object whose method is called; 0: none. It is sent before the head.
    pub object: u32,
}

/// The head of a result.
#[derive(Debug, Clone, PartialEq)]
pub struct ResultHead {
    /// Nanoseconds that the call waited for a slot.
    pub waited_ns: u64,
    /// Nanoseconds that the routine ran.
    pub ran_ns: u64,
    /// Scalar and text results: parameter and value, in ascending order.
    pub values: Vec<(u16, Value)>,
}

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The kind of failure.
    pub code: Code,
    /// A number whose meaning depends on the code; see the table in the protocol's reference.
    pub detail: i64,
    /// The message.
    pub text: String,
}

/// Kinds of failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// The server has no such routine.
    NoSuchRoutine,
    /// The client's description is out of date.
    InterfaceChanged,
    /// The values do not fit the description.
    BadArguments,
    /// The call needs more memory than is allowed.
    TooLarge,
    /// The queue of waiting calls is full.
    Busy,
    /// The routine crashed or ended its process.
    Crashed,
    /// The call exceeded its time limit.
    TimedOut,
    /// The client cancelled the call.
    Cancelled,
    /// The library or the symbol is missing.
    NotRunnable,
    /// The token does not permit this.
    NotPermitted,
    /// The client broke the protocol.
    Protocol,
    /// The server is shutting down.
    Ending,
    /// Client and server have no common version.
    Version,
    /// A callback failed at the client.
    Callback,
    /// The server holds no array of this name.
    NotHeld,
    /// The call that creates the array is still running.
    NotYet,
    /// An array could not be fetched from the server that holds it.
    NoSource,
    /// The server has no memory left for held arrays.
    HeldFull,
    /// The server cannot store a file of the call, or the routine left no file that can be sent.
    Storage,
    /// The token has expired.
    Expired,
    /// The server requires TLS.
    TlsWanted,
    /// The metaserver has given up the attempt.
    NoTicket,
    /// No remaining server can run the call.
    NoServer,
    /// The server of the last attempt was lost; the call may have run.
    ServerLost,
    /// Another metaserver is the leader.
    NotLeading,
    /// The routine raised an exception.
    Raised,
    /// The object has ended, or belongs to another connection.
    ObjectLost,
    /// The server does not give the call the threads or the memory that its client asks for.
    NoResources,
    /// A code of a newer version.
    Other(u16),
}

const CODES: [(u16, Code); 28] = [
    (1, Code::NoSuchRoutine),
    (2, Code::InterfaceChanged),
    (3, Code::BadArguments),
    (4, Code::TooLarge),
    (5, Code::Busy),
    (6, Code::Crashed),
    (7, Code::TimedOut),
    (8, Code::Cancelled),
    (9, Code::NotRunnable),
    (10, Code::NotPermitted),
    (11, Code::Protocol),
    (12, Code::Ending),
    (13, Code::Version),
    (14, Code::Callback),
    (15, Code::NotHeld),
    (16, Code::NotYet),
    (17, Code::NoSource),
    (18, Code::HeldFull),
    (20, Code::NoTicket),
    (21, Code::NoServer),
    (22, Code::ServerLost),
    (23, Code::NotLeading),
    (25, Code::Expired),
    (26, Code::TlsWanted),
    (30, Code::Storage),
    (31, Code::Raised),
    (32, Code::ObjectLost),
    (33, Code::NoResources),
];

impl Code {
    /// Its number on the wire.
    #[must_use]
    pub fn number(self) -> u16 {
        match self {
            Code::Other(number) => number,
            known => CODES.iter().find(|(_, code)| *code == known).map_or(0, |(number, _)| *number),
        }
    }

    /// The code of a number.
    #[must_use]
    pub fn of(number: u16) -> Code {
        let known = CODES.iter().find(|(other, _)| *other == number);
        known.map_or(Code::Other(number), |(_, code)| *code)
    }
}

impl Value {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Value::I64(value) => {
                out.push(1);
                out.extend_from_slice(&value.to_le_bytes());
            }
            Value::U64(value) => {
                out.push(2);
                out.extend_from_slice(&value.to_le_bytes());
            }
            Value::F64(value) => {
                out.push(3);
                out.extend_from_slice(&value.to_le_bytes());
            }
            Value::Complex(real, imaginary) => {
                out.push(4);
                out.extend_from_slice(&real.to_le_bytes());
                out.extend_from_slice(&imaginary.to_le_bytes());
            }
            Value::Text(text) => {
                out.push(5);
                // A longer text exceeds every limit of a body anyway.
                out.extend_from_slice(&u32::try_from(text.len()).unwrap_or(u32::MAX).to_le_bytes());
                out.extend_from_slice(text.as_bytes());
            }
            Value::FileLength(bytes) => {
                out.push(6);
                out.extend_from_slice(&bytes.to_le_bytes());
            }
        }
    }

    pub(crate) fn decode(cursor: &mut Cursor<'_>) -> Result<Value, DecodeError> {
        Ok(match cursor.u8()? {
            1 => Value::I64(cursor.i64()?),
            2 => Value::U64(cursor.u64()?),
            3 => Value::F64(cursor.f64()?),
            4 => Value::Complex(cursor.f64()?, cursor.f64()?),
            5 => {
                let length = cursor.u32()?;
                let length = usize::try_from(length).map_err(|_| DecodeError::Short)?;
                Value::Text(cursor.text(length)?.to_owned())
            }
            6 => Value::FileLength(cursor.u64()?),
            _ => return Err(DecodeError::Tag),
        })
    }
}

pub(crate) fn put_values(out: &mut Vec<u8>, values: &[(u16, Value)]) {
    // Parameters are numbered in 16 bits, so there are no more values.
    out.extend_from_slice(&u16::try_from(values.len()).unwrap_or(u16::MAX).to_le_bytes());
    for (parameter, value) in values {
        out.extend_from_slice(&parameter.to_le_bytes());
        value.encode(out);
    }
}

pub(crate) fn take_values(cursor: &mut Cursor<'_>) -> Result<Vec<(u16, Value)>, DecodeError> {
    let count = cursor.u16()?;
    let mut values: Vec<(u16, Value)> = Vec::new();
    for _ in 0..count {
        let parameter = cursor.u16()?;
        if values.last().is_some_and(|(last, _)| *last >= parameter) {
            return Err(DecodeError::Order);
        }
        values.push((parameter, Value::decode(cursor)?));
    }
    Ok(values)
}

/// Most bytes of one frame of output.
pub(crate) const MOST_OUTPUT: usize = 64 << 10;

/// Decodes output: whether something is missing behind it, and its bytes.
pub(crate) fn output(bytes: &[u8]) -> Result<(bool, &[u8]), DecodeError> {
    match bytes.split_first().ok_or(DecodeError::Short)? {
        (_, text) if text.len() > MOST_OUTPUT => Err(DecodeError::Long),
        (0, text) => Ok((false, text)),
        (1, text) => Ok((true, text)),
        _ => Err(DecodeError::Tag),
    }
}

/// Decodes a name of a routine that fills `bytes`.
pub fn name(bytes: &[u8]) -> Result<&str, DecodeError> {
    if bytes.is_empty() || bytes.len() > MOST_NAME {
        return Err(DecodeError::Name);
    }
    let name = core::str::from_utf8(bytes).map_err(|_| DecodeError::Text)?;
    if name.chars().any(char::is_control) { Err(DecodeError::Name) } else { Ok(name) }
}

/// Appends as many names as fit into an answer.
pub fn put_names<'a>(out: &mut Vec<u8>, names: impl IntoIterator<Item = &'a str>) {
    let mut room = MOST_ANSWER;
    for name in names {
        let Some(left) = room.checked_sub(name.len() + 2) else { break };
        room = left;
        let length = u16::try_from(name.len()).unwrap_or(u16::MAX);
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(name.as_bytes());
    }
}

impl CallHead {
    /// Appends the encoded bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.hash.to_le_bytes());
        out.extend_from_slice(&self.timeout_ms.to_le_bytes());
        let name = shortened(&self.routine, MOST_NAME + 1);
        out.extend_from_slice(&u16::try_from(name.len()).unwrap_or(u16::MAX).to_le_bytes());
        out.extend_from_slice(name.as_bytes());
        let entries = self.values.len() + self.held.entries() + self.shared.len();
        // Parameters are numbered in 16 bits; more entries exceed every limit of a body anyway.
        out.extend_from_slice(&u16::try_from(entries).unwrap_or(u16::MAX).to_le_bytes());
        self.held.encode(out, &self.values, &self.shared);
    }

    /// Decodes `bytes`, all of them.
    ///
    /// # Errors
    /// The bytes are malformed.
    pub fn decode(bytes: &[u8]) -> Result<CallHead, DecodeError> {
        let mut cursor = Cursor::new(bytes);
        let hash = cursor.u64()?;
        let timeout_ms = cursor.u32()?;
        let length = cursor.u16()?;
        let routine = name(cursor.take(usize::from(length))?)?.to_owned();
        let count = cursor.u16()?;
        let (values, held, shared) = HeldArrays::decode(&mut cursor, count)?;
        cursor.end()?;
        Ok(CallHead { hash, timeout_ms, routine, values, held, shared, object: 0 })
    }

    /// Decodes the object and the head of a method call, which fill `bytes`.
    ///
    /// # Errors
    /// The bytes are malformed.
    pub(crate) fn decode_on_object(bytes: &[u8]) -> Result<CallHead, DecodeError> {
        let mut cursor = Cursor::new(bytes);
        let object = cursor.u32()?;
        if object == 0 {
            return Err(DecodeError::Order);
        }
        Ok(CallHead { object, ..CallHead::decode(cursor.rest())? })
    }
}

impl ResultHead {
    /// Appends the encoded bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.waited_ns.to_le_bytes());
        out.extend_from_slice(&self.ran_ns.to_le_bytes());
        put_values(out, &self.values);
    }

    /// Decodes `bytes`, all of them.
    ///
    /// # Errors
    /// The bytes are malformed.
    pub fn decode(bytes: &[u8]) -> Result<ResultHead, DecodeError> {
        let mut cursor = Cursor::new(bytes);
        let waited_ns = cursor.u64()?;
        let ran_ns = cursor.u64()?;
        let values = take_values(&mut cursor)?;
        cursor.end()?;
        Ok(ResultHead { waited_ns, ran_ns, values })
    }
}

impl Failure {
    /// Longest message, in bytes.
    pub(crate) const MOST_TEXT: usize = 2048;

    /// A failure with its message.
    #[must_use]
    pub fn new(code: Code, detail: i64, text: impl Into<String>) -> Failure {
        Failure { code, detail, text: text.into() }
    }

    /// The failure that client and server have no common version.
    #[must_use]
    pub fn version(highest: u16) -> Failure {
        let text = "client and server have no version of the protocol in common; update the older";
        Failure::new(Code::Version, i64::from(highest), text)
    }

    /// Appends the encoded bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.code.number().to_le_bytes());
        out.extend_from_slice(&self.detail.to_le_bytes());
        out.extend_from_slice(shortened(&self.text, Failure::MOST_TEXT).as_bytes());
    }

    /// Decodes a failure that fills `bytes`. A long message is cut, and its control characters are escaped.
    ///
    /// # Errors
    /// The bytes are malformed.
    pub fn decode(bytes: &[u8]) -> Result<Failure, DecodeError> {
        let mut cursor = Cursor::new(bytes);
        let code = Code::of(cursor.u16()?);
        let detail = cursor.i64()?;
        let text = core::str::from_utf8(cursor.rest()).map_err(|_| DecodeError::Text)?;
        Ok(Failure { code, detail, text: printable(shortened(text, Failure::MOST_TEXT)) })
    }
}
