//! Frame bodies of calls: heads of calls and results, values, and failures.

use crate::codec::{
    self, Cursor, Decode, DecodeError, Encode, bodies, printable, records, shortened,
};
use crate::held_array::HeldArrays;
use crate::shared_memory::SharedDirections;
use crate::{MOST_ANSWER, MOST_NAME};
use alloc::borrow::ToOwned;
use alloc::format;
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

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $number:literal,)*) => {
        /// Kinds of failures.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Code {
            $($(#[$doc])* $name,)*
            /// A code of a newer version.
            Other(u16),
        }

        impl Code {
            /// Its number on the wire.
            #[must_use]
            pub fn number(self) -> u16 {
                match self {
                    $(Code::$name => $number,)*
                    Code::Other(number) => number,
                }
            }

            /// The code of a number.
            #[must_use]
            pub fn of(number: u16) -> Code {
                match number {
                    $($number => Code::$name,)*
                    other => Code::Other(other),
                }
            }
        }
    };
}

codes! {
    /// The server has no such routine.
    NoSuchRoutine = 1,
    /// The client's description is out of date.
    InterfaceChanged = 2,
    /// The values do not fit the description.
    BadArguments = 3,
    /// The call needs more memory than is allowed.
    TooLarge = 4,
    /// The queue of waiting calls is full.
    Busy = 5,
    /// The routine crashed or ended its process.
    Crashed = 6,
    /// The call exceeded its time limit.
    TimedOut = 7,
    /// The client cancelled the call.
    Cancelled = 8,
    /// The library or the symbol is missing.
    NotRunnable = 9,
    /// The token does not permit this.
    NotPermitted = 10,
    /// The client broke the protocol.
    Protocol = 11,
    /// The server is shutting down.
    Ending = 12,
    /// Client and server have no common version.
    Version = 13,
    /// A callback failed at the client.
    Callback = 14,
    /// The server holds no array of this name.
    NotHeld = 15,
    /// The call that creates the array is still running.
    NotYet = 16,
    /// An array could not be fetched from the server that holds it.
    NoSource = 17,
    /// The server has no memory left for held arrays.
    HeldFull = 18,
    /// The server cannot store a file of the call, or the routine left no file that can be sent.
    Storage = 30,
    /// The token has expired.
    Expired = 25,
    /// The server requires TLS.
    TlsWanted = 26,
    /// The metaserver has given up the attempt.
    NoTicket = 20,
    /// No remaining server can run the call.
    NoServer = 21,
    /// The server of the last attempt was lost; the call may have run.
    ServerLost = 22,
    /// Another metaserver is the leader.
    NotLeading = 23,
    /// The routine raised an exception.
    Raised = 31,
    /// The object has ended, or belongs to another connection.
    ObjectLost = 32,
    /// The server does not give the call the threads or the memory that its client asks for.
    NoResources = 33,
}

records! { ResultHead { waited_ns, ran_ns, values } }
bodies! { CallHead ResultHead Failure }

impl Encode for Value {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Value::I64(value) => (1_u8, *value).put(out),
            Value::U64(value) => (2_u8, *value).put(out),
            Value::F64(value) => (3_u8, *value).put(out),
            Value::Complex(real, imaginary) => (4_u8, *real, *imaginary).put(out),
            Value::Text(text) => {
                // A longer text exceeds every limit of a body anyway.
                let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
                (5_u8, length, text.as_bytes()).put(out);
            }
            Value::FileLength(bytes) => (6_u8, *bytes).put(out),
        }
    }
}

impl Decode for Value {
    fn take(cursor: &mut Cursor<'_>) -> Result<Value, DecodeError> {
        Ok(match cursor.get()? {
            1_u8 => Value::I64(cursor.get()?),
            2 => Value::U64(cursor.get()?),
            3 => Value::F64(cursor.get()?),
            4 => Value::Complex(cursor.get()?, cursor.get()?),
            5 => {
                let length: u32 = cursor.get()?;
                let length = usize::try_from(length).map_err(|_| DecodeError::Short)?;
                Value::Text(codec::text(cursor.bytes(length)?)?.to_owned())
            }
            6 => Value::FileLength(cursor.get()?),
            _ => return Err(DecodeError::Tag),
        })
    }
}

/// Values by parameter, in ascending order.
pub(crate) fn put_values(values: &[(u16, Value)], out: &mut Vec<u8>) {
    (codec::count(values), values).put(out);
}

impl Encode for Vec<(u16, Value)> {
    fn put(&self, out: &mut Vec<u8>) {
        put_values(self, out);
    }
}

impl Decode for Vec<(u16, Value)> {
    fn take(cursor: &mut Cursor<'_>) -> Result<Vec<(u16, Value)>, DecodeError> {
        let count: u16 = cursor.get()?;
        let mut values: Vec<(u16, Value)> = Vec::new();
        for _ in 0..count {
            let parameter = cursor.get()?;
            if values.last().is_some_and(|(last, _)| *last >= parameter) {
                return Err(DecodeError::Order);
            }
            values.push((parameter, cursor.get()?));
        }
        Ok(values)
    }
}

/// Most bytes of one frame of output.
pub(crate) const MOST_OUTPUT: usize = 64 << 10;

/// Decodes output: whether something is missing behind it, and its bytes.
pub(crate) fn output(bytes: &[u8]) -> Result<(bool, &[u8]), DecodeError> {
    let mut cursor = Cursor::new(bytes);
    let (is_cut, text) = (cursor.get()?, cursor.rest());
    if text.len() > MOST_OUTPUT { Err(DecodeError::Long) } else { Ok((is_cut, text)) }
}

/// Decodes a text for lists and logs that fills `bytes`: the name of a routine, an address, a reason.
pub fn name(bytes: &[u8]) -> Result<&str, DecodeError> {
    if bytes.is_empty() || bytes.len() > MOST_NAME {
        return Err(DecodeError::Name);
    }
    let name = codec::text(bytes)?;
    if name.chars().any(char::is_control) { Err(DecodeError::Name) } else { Ok(name) }
}

/// The name of a routine, with its length before it.
pub struct CountedName(pub String);

impl Decode for CountedName {
    fn take(cursor: &mut Cursor<'_>) -> Result<CountedName, DecodeError> {
        name(cursor.counted()?).map(|name| CountedName(name.to_owned()))
    }
}

/// As many names as fit into an answer.
pub fn fitting<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<u8> {
    let (mut out, mut room) = (Vec::new(), MOST_ANSWER);
    for name in names {
        let Some(left) = room.checked_sub(name.len() + 2) else { break };
        room = left;
        codec::put_text(name, &mut out);
    }
    out
}

impl Encode for CallHead {
    fn put(&self, out: &mut Vec<u8>) {
        (self.hash, self.timeout_ms).put(out);
        codec::put_text(shortened(&self.routine, MOST_NAME + 1), out);
        let entries = self.values.len() + self.held.entries() + self.shared.len();
        // Parameters are numbered in 16 bits; more entries exceed every limit of a body anyway.
        u16::try_from(entries).unwrap_or(u16::MAX).put(out);
        self.held.encode(out, &self.values, &self.shared);
    }
}

impl Decode for CallHead {
    fn take(cursor: &mut Cursor<'_>) -> Result<CallHead, DecodeError> {
        let (hash, timeout_ms, CountedName(routine), count) = cursor.get()?;
        let (values, held, shared) = HeldArrays::decode(cursor, count)?;
        Ok(CallHead { hash, timeout_ms, routine, values, held, shared, object: 0 })
    }
}

impl CallHead {
    /// Decodes the object and the head of a method call, which fill `bytes`.
    ///
    /// # Errors
    /// The bytes are malformed.
    pub(crate) fn decode_on_object(bytes: &[u8]) -> Result<CallHead, DecodeError> {
        match codec::whole(bytes)? {
            (0, _) => Err(DecodeError::Order),
            (object, head) => Ok(CallHead { object, ..head }),
        }
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

    /// The failure of a request beyond the most that a connection may have open.
    pub(crate) fn too_many(most: usize) -> Failure {
        let text = format!("too many calls at once on this connection: {most} may be open");
        Failure::new(Code::Busy, i64::try_from(most).unwrap_or(i64::MAX), text)
    }

    /// The failure that client and server have no common version.
    #[must_use]
    pub fn version(highest: u16) -> Failure {
        let text = "client and server have no version of the protocol in common; update the older";
        Failure::new(Code::Version, i64::from(highest), text)
    }
}

impl Encode for Failure {
    fn put(&self, out: &mut Vec<u8>) {
        let text = shortened(&self.text, Failure::MOST_TEXT);
        (self.code.number(), self.detail, text.as_bytes()).put(out);
    }
}

impl Decode for Failure {
    /// A long message is cut, and its control characters are escaped.
    fn take(cursor: &mut Cursor<'_>) -> Result<Failure, DecodeError> {
        let (code, detail) = cursor.get()?;
        let text = shortened(codec::text(cursor.rest())?, Failure::MOST_TEXT);
        Ok(Failure { code: Code::of(code), detail, text: printable(text) })
    }
}
