//! Frame bodies of callbacks: a routine calls a function of its client.

use crate::codec::{
    Cursor, Decode, DecodeError, Encode, bodies, printable, records, shortened, text, whole,
};
use crate::message::{Failure, Value, put_values};
use alloc::string::String;
use alloc::vec::Vec;

/// The call of a client's function by a routine.
#[derive(Debug, Clone, PartialEq)]
pub struct CallbackHead {
    /// The parameter of the routine that is the function.
    pub parameter: u16,
    /// Scalar and text inputs: parameter of the function and value, in ascending order.
    pub values: Vec<(u16, Value)>,
}

/// The outcome of a client's function.
#[derive(Debug, Clone, PartialEq)]
pub enum CallbackReturn {
    /// It has returned, with these scalar and text results in ascending order of the function's parameters.
    Done(Vec<(u16, Value)>),
    /// It has failed, for this reason.
    Failed(String),
}

records! { CallbackHead { parameter, values } }
bodies! { CallbackHead CallbackReturn }

impl Encode for CallbackReturn {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            CallbackReturn::Done(values) => (0_u8, values).put(out),
            CallbackReturn::Failed(text) => {
                (1_u8, shortened(text, Failure::MOST_TEXT).as_bytes()).put(out);
            }
        }
    }
}

impl Decode for CallbackReturn {
    /// A sentence that is too long is cut; its control characters are escaped.
    fn take(cursor: &mut Cursor<'_>) -> Result<CallbackReturn, DecodeError> {
        match cursor.get()? {
            0_u8 => Ok(CallbackReturn::Done(cursor.get()?)),
            1 => {
                let text = shortened(text(cursor.rest())?, Failure::MOST_TEXT);
                Ok(CallbackReturn::Failed(printable(text)))
            }
            _ => Err(DecodeError::Tag),
        }
    }
}

impl CallbackReturn {
    /// The values alone, as [`CallbackReturn::Done`] has them.
    #[must_use]
    pub fn values(values: &[(u16, Value)]) -> Vec<u8> {
        let mut out = Vec::new();
        put_values(values, &mut out);
        out
    }

    /// Reads values, which are all of `bytes`.
    ///
    /// # Errors
    /// The bytes are malformed.
    pub fn values_of(bytes: &[u8]) -> Result<Vec<(u16, Value)>, DecodeError> {
        whole(bytes)
    }
}
