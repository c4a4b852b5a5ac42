//! Encoding and decoding of frame bodies.

use alloc::string::String;
use alloc::vec::Vec;
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

/// What has a form on the wire.
pub trait Encode {
    /// Appends it.
    fn put(&self, out: &mut Vec<u8>);

    /// Appends several, one after the other.
    fn put_all(all: &[Self], out: &mut Vec<u8>)
    where
        Self: Sized,
    {
        all.iter().for_each(|one| one.put(out));
    }
}

/// What can be decoded without knowing its length before.
pub trait Decode: Sized {
    /// Takes it from the front.
    fn take(cursor: &mut Cursor<'_>) -> Result<Self, DecodeError>;
}

impl<P: Encode + ?Sized> Encode for &P {
    fn put(&self, out: &mut Vec<u8>) {
        P::put(self, out);
    }
}

impl Encode for u8 {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(*self);
    }

    fn put_all(all: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(all);
    }
}

impl Decode for u8 {
    fn take(cursor: &mut Cursor<'_>) -> Result<u8, DecodeError> {
        cursor.get::<[u8; 1]>().map(|[byte]| byte)
    }
}

impl Encode for bool {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
}

impl Decode for bool {
    fn take(cursor: &mut Cursor<'_>) -> Result<bool, DecodeError> {
        match cursor.get()? {
            0_u8 => Ok(false),
            1 => Ok(true),
            _ => Err(DecodeError::Tag),
        }
    }
}

/// Numbers of several bytes are little-endian.
macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl Encode for $number {
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
        }

        impl Decode for $number {
            fn take(cursor: &mut Cursor<'_>) -> Result<$number, DecodeError> {
                cursor.get().map(<$number>::from_le_bytes)
            }
        }
    )*};
}

numbers! { u16 u32 u64 i64 f64 }

/// Without a count.
impl<P: Encode> Encode for [P] {
    fn put(&self, out: &mut Vec<u8>) {
        P::put_all(self, out);
    }
}

impl<const LENGTH: usize> Encode for [u8; LENGTH] {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }
}

impl<const LENGTH: usize> Decode for [u8; LENGTH] {
    fn take(cursor: &mut Cursor<'_>) -> Result<[u8; LENGTH], DecodeError> {
        let (taken, rest) = cursor.0.split_first_chunk().ok_or(DecodeError::Short)?;
        cursor.0 = rest;
        Ok(*taken)
    }
}

/// Several values are one after the other.
macro_rules! tuples {
    ($($name:ident)*) => {
        #[allow(non_snake_case)]
        impl<$($name: Encode),*> Encode for ($($name,)*) {
            fn put(&self, _out: &mut Vec<u8>) {
                let ($($name,)*) = self;
                $($name.put(_out);)*
            }
        }

        impl<$($name: Decode),*> Decode for ($($name,)*) {
            fn take(_cursor: &mut Cursor<'_>) -> Result<($($name,)*), DecodeError> {
                Ok(($($name::take(_cursor)?,)*))
            }
        }
    };
}

tuples! {}
tuples! { A B }
tuples! { A B C }
tuples! { A B C D }

/// Records are their fields one after the other, in this order.
macro_rules! records {
    ($($record:ident { $($field:ident),* })*) => {$(
        impl $crate::codec::Encode for $record {
            fn put(&self, out: &mut alloc::vec::Vec<u8>) {
                $(self.$field.put(out);)*
            }
        }

        impl $crate::codec::Decode for $record {
            fn take(
                cursor: &mut $crate::codec::Cursor<'_>,
            ) -> Result<$record, $crate::codec::DecodeError> {
                Ok($record { $($field: cursor.get()?),* })
            }
        }
    )*};
}
pub(crate) use records;

/// Bodies that also drivers encode and decode.
macro_rules! bodies {
    ($($body:ident)*) => {$(
        impl $body {
            /// Appends the encoded bytes.
            pub fn encode(&self, out: &mut alloc::vec::Vec<u8>) {
                $crate::codec::Encode::put(self, out);
            }

            /// Decodes `bytes`, all of them.
            ///
            /// # Errors
            /// The bytes are malformed.
            pub fn decode(bytes: &[u8]) -> Result<$body, $crate::codec::DecodeError> {
                $crate::codec::whole(bytes)
            }
        }
    )*};
}
pub(crate) use bodies;

/// Decodes `bytes`, all of them.
pub fn whole<T: Decode>(bytes: &[u8]) -> Result<T, DecodeError> {
    let mut cursor = Cursor::new(bytes);
    let taken = cursor.get()?;
    if cursor.is_empty() { Ok(taken) } else { Err(DecodeError::Long) }
}

/// Decodes what `bytes` are, one after the other.
pub fn list<T: Decode>(bytes: &[u8]) -> Result<Vec<T>, DecodeError> {
    let mut cursor = Cursor::new(bytes);
    let mut all = Vec::new();
    while !cursor.is_empty() {
        all.push(cursor.get()?);
    }
    Ok(all)
}

/// Decodes text that fills `bytes`.
pub fn text(bytes: &[u8]) -> Result<&str, DecodeError> {
    core::str::from_utf8(bytes).map_err(|_| DecodeError::Text)
}

/// Appends the length of a text, which is at most 65,535 bytes long, and the text.
pub fn put_text(text: &str, out: &mut Vec<u8>) {
    u16::try_from(text.len()).unwrap_or(u16::MAX).put(out);
    text.as_bytes().put(out);
}

/// The count of what follows. What has more is over every limit of a body anyway.
pub fn count<T>(all: &[T]) -> u16 {
    u16::try_from(all.len()).unwrap_or(u16::MAX)
}

/// A reader of bytes from first to last.
pub struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    pub fn new(bytes: &'a [u8]) -> Cursor<'a> {
        Cursor(bytes)
    }

    /// The next value.
    pub fn get<T: Decode>(&mut self) -> Result<T, DecodeError> {
        T::take(self)
    }

    /// So many bytes.
    pub fn bytes(&mut self, count: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(DecodeError::Short)?;
        self.0 = rest;
        Ok(taken)
    }

    /// The bytes whose number is before them.
    pub fn counted(&mut self) -> Result<&'a [u8], DecodeError> {
        let count: u16 = self.get()?;
        self.bytes(usize::from(count))
    }

    /// The next byte, without taking it.
    pub fn peek(&self) -> Option<u8> {
        self.0.first().copied()
    }

    /// All remaining bytes.
    pub fn rest(&mut self) -> &'a [u8] {
        core::mem::take(&mut self.0)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
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
