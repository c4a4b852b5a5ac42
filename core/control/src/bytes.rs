//! Serialisation of a byte vector as one piece.
//!
//! The encoding is that of a sequence of `u8`. Taken element by element, a chunk would need
//! milliseconds in a debug build, and a flood of output would keep the head from everything else.

use alloc::vec::Vec;
use core::fmt;
use serde::de::{Deserializer, Error, Visitor};
use serde::ser::Serializer;

pub(crate) fn serialize<S: Serializer>(data: &[u8], to: S) -> Result<S::Ok, S::Error> {
    to.serialize_bytes(data)
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
    from.deserialize_byte_buf(Bytes)
}

struct Bytes;

impl Visitor<'_> for Bytes {
    type Value = Vec<u8>;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("bytes")
    }

    fn visit_bytes<E: Error>(self, data: &[u8]) -> Result<Vec<u8>, E> {
        Ok(data.to_vec())
    }

    fn visit_byte_buf<E: Error>(self, data: Vec<u8>) -> Result<Vec<u8>, E> {
        Ok(data)
    }
}
