//! Decoding of frame bodies.

use alloc::string::String;
use thiserror::Error;

/// Why bytes cannot be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// The bytes end too early.
    #[error("it ends too early")]
    Short,
    /// Bytes are left over, or a length is above its limit.
    #[error("it is longer than what it says")]
    Long,
    /// A text is not UTF-8.
    #[error("a text is not UTF-8")]
    Text,
    /// A value has an unknown tag.
    #[error("a value of an unknown type")]
    Tag,
    /// Entries are repeated, out of order or out of range.
    #[error("parameters are not in ascending order")]
    Order,
    /// A name is empty, too long or has control characters.
    #[error("a name is empty, too long or has control characters")]
    Name,
    /// A request asks for nothing.
    #[error("it asks for nothing")]
    Nothing,
}

/// A reader of bytes from first to last.
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

    /// The next byte, without taking it.
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

    /// All remaining bytes.
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

/// Whether a character changes the direction of those around it.
#[must_use]
pub fn reorders_text(letter: char) -> bool {
    matches!(letter, '\u{200e}' | '\u{200f}' | '\u{61c}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Foreign text made safe for terminals and logs: control characters other than tabs and line ends are escaped, and so is
/// what shows text in another order than it has.
#[must_use]
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        if reorders_text(letter) || letter.is_control() && !matches!(letter, '\n' | '\t') {
            shown.extend(letter.escape_default());
        } else {
            shown.push(letter);
        }
    }
    shown
}

/// The longest prefix of `text` with at most `most` bytes.
pub fn shortened(text: &str, most: usize) -> &str {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
