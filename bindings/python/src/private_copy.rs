//! Private copies of memory that operations of the library cannot work on.

use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use kumi_mem::{Error, SharedBytes, SharedBytesMut};

/// A copy of bytes, aligned for every element that can be reduced.
pub struct PrivateCopy {
    words: Box<[AtomicU64]>,
    bytes: usize,
}

impl PrivateCopy {
    /// Copies; `what` names the copy in messages.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn of(bytes: SharedBytes<'_>, what: &'static str) -> Result<PrivateCopy, Error> {
        let count = bytes.len().div_ceil(size_of::<u64>());
        let mut words = Vec::new();
        let full = |_| Error::OutOfMemory { bytes: bytes.len() as u64, what };
        words.try_reserve_exact(count).map_err(full)?;
        words.resize_with(count, AtomicU64::default);
        let copy = PrivateCopy { words: words.into_boxed_slice(), bytes: bytes.len() };
        copy.shared().copy_from(bytes);
        Ok(copy)
    }

    /// Its bytes.
    pub fn shared(&self) -> SharedBytesMut<'_> {
        let start = NonNull::from(&*self.words).cast::<u8>();
        // SAFETY: the box has at least these bytes, stays while it is borrowed, and is reached as shared bytes only; its cells
        // permit writes.
        unsafe { SharedBytesMut::new(start, self.bytes) }
    }
}

/// A copy of memory that an operation writes to, and what was there before.
pub struct WorkingCopy {
    before: PrivateCopy,
    now: PrivateCopy,
}

impl WorkingCopy {
    /// Copies; `what` names the copy in messages.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn of(bytes: SharedBytes<'_>, what: &'static str) -> Result<WorkingCopy, Error> {
        let before = PrivateCopy::of(bytes, what)?;
        let now = PrivateCopy::of(before.shared().shared(), what)?;
        Ok(WorkingCopy { before, now })
    }

    /// The bytes to work on.
    pub fn shared(&self) -> SharedBytesMut<'_> {
        self.now.shared()
    }

    /// Writes what has changed. Other bytes are left alone: somebody else may have written them meanwhile.
    pub fn write_back(&self, into: SharedBytesMut<'_>) {
        let (before, now) =
            (self.before.shared().shared().to_vec(), self.now.shared().shared().to_vec());
        let mut at = 0;
        for run in before
            .iter()
            .zip(&now)
            .map(|(old, new)| old != new)
            .collect::<Vec<_>>()
            .chunk_by(|one, next| one == next)
        {
            if run[0] {
                into.slice(at, run.len())
                    .copy_from(self.now.shared().shared().slice(at, run.len()));
            }
            at += run.len();
        }
    }
}
