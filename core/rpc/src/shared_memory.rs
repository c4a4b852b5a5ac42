//! Shared memory of a call: a server grants it to a client on its machine, and arrays go through it instead of chunks.

use crate::codec::{Cursor, Decode, DecodeError, Encode, bodies, count, records};
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

impl Encode for SharedDirections {
    fn put(&self, out: &mut Vec<u8>) {
        out.push((u8::from(self.sent) * SENT) | (u8::from(self.returned) * RETURNED));
    }
}

impl Decode for SharedDirections {
    fn take(cursor: &mut Cursor<'_>) -> Result<SharedDirections, DecodeError> {
        let bits: u8 = cursor.get()?;
        if bits == 0 || bits & !(SENT | RETURNED) != 0 {
            return Err(DecodeError::Tag);
        }
        Ok(SharedDirections { sent: bits & SENT != 0, returned: bits & RETURNED != 0 })
    }
}

records! { GrantedArray { argument, share, offset, length } }
bodies! { MemoryGrant }

impl SharedDirections {
    /// Whether `other` has all of these directions.
    #[must_use]
    pub fn is_part_of(self, other: SharedDirections) -> bool {
        (other.sent || !self.sent) && (other.returned || !self.returned)
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
}

impl Encode for MemoryGrant {
    fn put(&self, out: &mut Vec<u8>) {
        out.reserve(HEAD + PART * self.parts.len() + 4 * self.gone.len());
        (self.memory, self.length, self.fresh).put(out);
        (count(&self.parts), &self.parts[..]).put(out);
        // The next grant reports the rest.
        let gone = &self.gone[..self.gone.len().min(MemoryGrant::MOST_GONE)];
        (count(gone), gone).put(out);
    }
}

impl Decode for MemoryGrant {
    /// All its parts lie inside the memory.
    fn take(cursor: &mut Cursor<'_>) -> Result<MemoryGrant, DecodeError> {
        let (memory, length, fresh, count): (u32, u64, bool, u16) = cursor.get()?;
        let mut parts: Vec<GrantedArray> = Vec::new();
        for _ in 0..count {
            let part: GrantedArray = cursor.get()?;
            let follows = parts.last().is_none_or(|last| last.argument < part.argument);
            let end = part.offset.checked_add(part.length);
            if !(follows && end.is_some_and(|end| end <= length)) {
                return Err(DecodeError::Order);
            }
            parts.push(part);
        }
        // A grant without memory has no arrays, and one with memory has some.
        if parts.is_empty() != (memory == 0) || memory == 0 && (fresh || length > 0) {
            return Err(DecodeError::Order);
        }
        let count: u16 = cursor.get()?;
        if usize::from(count) > MemoryGrant::MOST_GONE {
            return Err(DecodeError::Long);
        }
        let gone = (0..count).map(|_| cursor.get()).collect::<Result<_, _>>()?;
        Ok(MemoryGrant { memory, length, fresh, parts, gone })
    }
}
