//! Threads and memory that a client asks for a call.

use alloc::vec::Vec;
use core::num::{NonZeroU32, NonZeroU64};

use crate::codec::{Cursor, Decode, DecodeError, Encode};

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
}

impl Encode for Resources {
    fn put(&self, out: &mut Vec<u8>) {
        let threads = self.threads.map_or(0, NonZeroU32::get);
        (threads, self.memory.map_or(0, NonZeroU64::get)).put(out);
    }
}

impl Decode for Resources {
    fn take(cursor: &mut Cursor<'_>) -> Result<Resources, DecodeError> {
        let (threads, memory) = cursor.get()?;
        Resources::new(threads, memory).ok_or(DecodeError::Nothing)
    }
}
