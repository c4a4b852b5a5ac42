//! Frame bodies of callbacks: a routine calls a function of its client.

use crate::codec::{Cursor, DecodeError, printable, shortened};
use crate::message::{Failure, Value, put_values, take_values};
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

impl CallbackHead {
    /// Appends the encoded bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.parameter.to_le_bytes());
        put_values(out, &self.values);
    }

    /// Decodes `bytes`, all of them.
    ///
    /// # Errors
    /// The bytes are malformed.
    pub fn decode(bytes: &[u8]) -> Result<CallbackHead, DecodeError> {
        let mut cursor = Cursor::new(bytes);
        let parameter = cursor.u16()?;
        let values = take_values(&mut cursor)?;
        cursor.end()?;
        Ok(CallbackHead { parameter, values })
    }
}

impl CallbackReturn {
    /// Appends the encoded bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            CallbackReturn::Done(values) => {
                out.push(0);
                put_values(out, values);
            }
            CallbackReturn::Failed(text) => {
                out.push(1);
                out.extend_from_slice(shortened(text, Failure::MOST_TEXT).as_bytes());
            }
        }
    }

    /// Decodes `bytes`, all of them. A sentence that is too long is cut; its control characters are escaped.
    ///
    /// # Errors
    /// The bytes are malformed.
    pub fn decode(bytes: &[u8]) -> Result<CallbackReturn, DecodeError> {
        let mut cursor = Cursor::new(bytes);
        match cursor.u8()? {
            0 => {
                let values = take_values(&mut cursor)?;
                cursor.end()?;
                Ok(CallbackReturn::Done(values))
            }
            1 => {
                let text = core::str::from_utf8(cursor.rest()).map_err(|_| DecodeError::Text)?;
                let text = printable(shortened(text, Failure::MOST_TEXT));
                Ok(CallbackReturn::Failed(text))
            }
            _ => Err(DecodeError::Tag),
        }
    }

    /// The values alone, as [`CallbackReturn::Done`] has them.
    #[must_use]
    pub fn values(values: &[(u16, Value)]) -> Vec<u8> {
        let mut out = Vec::new();
        put_values(&mut out, values);
        out
    }

    /// Reads values, which are all of `bytes`.
    ///
    /// # Errors
    /// The bytes are malformed.
    pub fn values_of(bytes: &[u8]) -> Result<Vec<(u16, Value)>, DecodeError> {
        let mut cursor = Cursor::new(bytes);
        let values = take_values(&mut cursor)?;
        cursor.end()?;
        Ok(values)
    }
}
