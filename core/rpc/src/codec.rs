//! Reading and writing of bodies.

use alloc::string::String;
use thiserror::Error;

/// Why bytes cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// They end too early.
    #[error("it ends too early")]
    Short,
    /// Something is left.
    #[error("it is longer than what it says")]
    Long,
    /// No UTF-8.
    #[error("a text is not UTF-8")]
    Text,
    /// A tag of a value that is not known.
    #[error("a value of an unknown type")]
    Tag,
    /// Parameters twice or out of order.
    #[error("parameters are not in ascending order")]
    Order,
    /// A name that is empty, too long or has control characters.
    #[error("a name is empty, too long or has control characters")]
    Name,
}

/// Bytes that are read from first to last.
pub struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    pub fn new(bytes: &'a [u8]) -> Cursor<'a> {
        Cursor(bytes)
    }

    pub fn take(&mut self, count: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(DecodeError::Short)?;
        self.0 = rest;
        Ok(taken)
    }

    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (taken, rest) = self.0.split_first_chunk::<N>().ok_or(DecodeError::Short)?;
        self.0 = rest;
        Ok(*taken)
    }

    /// The next byte, which stays.
    pub fn peek(&self) -> Option<u8> {
        self.0.first().copied()
    }

    pub fn u8(&mut self) -> Result<u8, DecodeError> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub fn u16(&mut self) -> Result<u16, DecodeError> {
        self.array().map(u16::from_le_bytes)
    }

    pub fn u32(&mut self) -> Result<u32, DecodeError> {
        self.array().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Result<u64, DecodeError> {
        self.array().map(u64::from_le_bytes)
    }

    pub fn i64(&mut self) -> Result<i64, DecodeError> {
        self.array().map(i64::from_le_bytes)
    }

    pub fn f64(&mut self) -> Result<f64, DecodeError> {
        self.array().map(f64::from_le_bytes)
    }

    pub fn text(&mut self, length: usize) -> Result<&'a str, DecodeError> {
        core::str::from_utf8(self.take(length)?).map_err(|_| DecodeError::Text)
    }

    /// All that is left.
    pub fn rest(&mut self) -> &'a [u8] {
        core::mem::take(&mut self.0)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn end(self) -> Result<(), DecodeError> {
        if self.0.is_empty() { Ok(()) } else { Err(DecodeError::Long) }
    }
}

/// What somebody else wrote, to be shown: control characters but tabs and ends of lines are escaped, so that it does
/// nothing to a terminal.
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter.is_control() && !matches!(letter, '\n' | '\t') {
            shown.extend(letter.escape_default());
        } else {
            shown.push(letter);
        }
    }
    shown
}

/// The longest beginning of `text` that has at most `most` bytes.
pub fn shortened(text: &str, most: usize) -> &str {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
