//! Threads and memory that a client asks for a call.

use alloc::vec::Vec;
use core::num::{NonZeroU32, NonZeroU64};

use crate::codec::{Cursor, DecodeError};

/// Bytes of a request for resources.
pub(crate) const RESOURCES: usize = 12;

/// What a client asks for the process of a call. At least one of both: [`Resources::new`] makes no other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resources {
    threads: Option<NonZeroU32>,
    memory: Option<NonZeroU64>,
}

impl Resources {
    /// So many threads, and so many bytes of memory. `None`: both are zero, which asks for nothing.
    #[must_use]
    pub fn new(threads: u32, memory: u64) -> Option<Resources> {
        let (threads, memory) = (NonZeroU32::new(threads), NonZeroU64::new(memory));
        (threads.is_some() || memory.is_some()).then_some(Resources { threads, memory })
    }

    /// How many threads the routine is to use. `None`: as many as the server gives.
    #[must_use]
    pub fn threads(&self) -> Option<NonZeroU32> {
        self.threads
    }

    /// Bytes of memory that the routine is to have with all that it starts. `None`: as many as the server gives.
    #[must_use]
    pub fn memory(&self) -> Option<NonZeroU64> {
        self.memory
    }

    /// Appends the body of a frame.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.threads.map_or(0, NonZeroU32::get).to_le_bytes());
        out.extend_from_slice(&self.memory.map_or(0, NonZeroU64::get).to_le_bytes());
    }

    /// Decodes the body of a frame.
    ///
    /// # Errors
    /// It has another length, or asks for nothing.
    pub(crate) fn decode(body: &[u8]) -> Result<Resources, DecodeError> {
        let mut cursor = Cursor::new(body);
        let (threads, memory) = (cursor.u32()?, cursor.u64()?);
        if !cursor.is_empty() {
            return Err(DecodeError::Long);
        }
        Resources::new(threads, memory).ok_or(DecodeError::Nothing)
    }
}
