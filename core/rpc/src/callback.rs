//! Bodies of the frames by which a routine calls functions of its client.

use crate::codec::{Cursor, DecodeError, printable, shortened};
use crate::message::{Failure, Value, put_values, take_values};
use alloc::string::String;
use alloc::vec::Vec;

/// A routine calls a function of its client.
#[derive(Debug, Clone, PartialEq)]
pub struct CallbackHead {
    /// The routine's parameter that is the function.
    pub parameter: u16,
    /// What is sent of scalars and texts: parameter of the function and value, in ascending order.
    pub values: Vec<(u16, Value)>,
}

/// How a function of the client ended.
#[derive(Debug, Clone, PartialEq)]
pub enum CallbackReturn {
    /// It has returned: what comes back of scalars and texts, in ascending order of the function's parameters.
    Done(Vec<(u16, Value)>),
    /// It has failed: a sentence.
    Failed(String),
}

impl CallbackHead {
    /// Appends its bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.parameter.to_le_bytes());
        put_values(out, &self.values);
    }

    /// Reads one, which is all of `bytes`.
    ///
    /// # Errors
    /// They are malformed.
    pub fn decode(bytes: &[u8]) -> Result<CallbackHead, DecodeError> {
        let mut cursor = Cursor::new(bytes);
        let parameter = cursor.u16()?;
        let values = take_values(&mut cursor)?;
        cursor.end()?;
        Ok(CallbackHead { parameter, values })
    }
}

impl CallbackReturn {
    /// Appends its bytes.
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

    /// Reads one, which is all of `bytes`. A sentence that is too long is cut; its control characters are escaped.
    ///
    /// # Errors
    /// They are malformed.
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
    /// They are malformed.
    pub fn values_of(bytes: &[u8]) -> Result<Vec<(u16, Value)>, DecodeError> {
        let mut cursor = Cursor::new(bytes);
        let values = take_values(&mut cursor)?;
        cursor.end()?;
        Ok(values)
    }
}
