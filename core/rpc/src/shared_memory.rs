//! Shared memory of a call: a server grants it to a client on its machine, and arrays go through it instead of chunks.

use crate::codec::{Cursor, DecodeError};
use alloc::vec::Vec;

/// Tag of an array that the client wants to pass through shared memory.
pub(crate) const SHARED: u8 = 9;

const SENT: u8 = 1;
const RETURNED: u8 = 2;
/// Bytes of a grant without its parts and without the numbers of freed memories.
const HEAD: usize = 17;
/// Bytes of a part of a grant.
const PART: usize = 19;

/// The directions in which an array goes through memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SharedDirections {
    /// The client writes the input there.
    pub sent: bool,
    /// The client reads the result there.
    pub returned: bool,
}

/// An array in granted memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GrantedArray {
    /// The parameter.
    pub argument: u16,
    /// The directions that use the memory; the others use chunks.
    pub share: SharedDirections,
    /// First byte in the memory.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
}

/// The shared memory that a server grants to a call.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MemoryGrant {
    /// Its number; 0: none is granted, and all arrays use chunks.
    pub memory: u32,
    /// Its length in bytes.
    pub length: u64,
    /// The client does not have it yet: its descriptor comes with this frame.
    pub fresh: bool,
    /// The arrays in the memory, in ascending order of their parameters.
    pub parts: Vec<GrantedArray>,
    /// Memories that the server has freed.
    pub gone: Vec<u32>,
}

impl SharedDirections {
    fn bits(self) -> u8 {
        (if self.sent { SENT } else { 0 }) | (if self.returned { RETURNED } else { 0 })
    }

    fn of(bits: u8) -> Result<SharedDirections, DecodeError> {
        if bits == 0 || bits & !(SENT | RETURNED) != 0 {
            return Err(DecodeError::Tag);
        }
        Ok(SharedDirections { sent: bits & SENT != 0, returned: bits & RETURNED != 0 })
    }

    /// Whether `other` has all of these directions.
    #[must_use]
    pub fn is_part_of(self, other: SharedDirections) -> bool {
        (other.sent || !self.sent) && (other.returned || !self.returned)
    }

    pub(crate) fn encode(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[SHARED, self.bits()]);
    }

    pub(crate) fn decode(cursor: &mut Cursor<'_>) -> Result<SharedDirections, DecodeError> {
        SharedDirections::of(cursor.u8()?)
    }
}

impl MemoryGrant {
    /// Most freed memories that one grant reports.
    pub const MOST_GONE: usize = 1024;

    /// Whether the client writes inputs to the memory, and then sends FILLED.
    #[must_use]
    pub fn fills(&self) -> bool {
        self.parts.iter().any(|part| part.share.sent)
    }

    /// Appends the encoded bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.reserve(HEAD + PART * self.parts.len() + 4 * self.gone.len());
        out.extend_from_slice(&self.memory.to_le_bytes());
        out.extend_from_slice(&self.length.to_le_bytes());
        out.push(u8::from(self.fresh));
        // Parameters are numbered in 16 bits.
        out.extend_from_slice(&u16::try_from(self.parts.len()).unwrap_or(u16::MAX).to_le_bytes());
        for part in &self.parts {
            out.extend_from_slice(&part.argument.to_le_bytes());
            out.push(part.share.bits());
            out.extend_from_slice(&part.offset.to_le_bytes());
            out.extend_from_slice(&part.length.to_le_bytes());
        }
        // The next grant reports the rest.
        let gone = &self.gone[..self.gone.len().min(MemoryGrant::MOST_GONE)];
        out.extend_from_slice(&(gone.len() as u16).to_le_bytes());
        gone.iter().for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
    }

    /// Decodes a grant that fills `bytes`. All its parts lie inside the memory.
    ///
    /// # Errors
    /// The bytes are malformed.
    pub fn decode(bytes: &[u8]) -> Result<MemoryGrant, DecodeError> {
        let mut cursor = Cursor::new(bytes);
        let (memory, length) = (cursor.u32()?, cursor.u64()?);
        let fresh = match cursor.u8()? {
            0 => false,
            1 => true,
            _ => return Err(DecodeError::Tag),
        };
        let count = cursor.u16()?;
        let mut parts: Vec<GrantedArray> = Vec::new();
        for _ in 0..count {
            let argument = cursor.u16()?;
            let share = SharedDirections::decode(&mut cursor)?;
            let (offset, bytes) = (cursor.u64()?, cursor.u64()?);
            let follows = parts.last().is_none_or(|last| last.argument < argument);
            let inside = offset.checked_add(bytes).is_some_and(|end| end <= length);
            if !(follows && inside) {
                return Err(DecodeError::Order);
            }
            parts.push(GrantedArray { argument, share, offset, length: bytes });
        }
        // A grant without memory has no arrays, and one with memory has some.
        if parts.is_empty() != (memory == 0) || memory == 0 && (fresh || length > 0) {
            return Err(DecodeError::Order);
        }
        let count = usize::from(cursor.u16()?);
        if count > MemoryGrant::MOST_GONE {
            return Err(DecodeError::Long);
        }
        let mut gone = Vec::new();
        for _ in 0..count {
            gone.push(cursor.u32()?);
        }
        cursor.end()?;
        Ok(MemoryGrant { memory, length, fresh, parts, gone })
    }
}
