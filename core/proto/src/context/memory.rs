//! The memory of a context, and the counter that tells whether its contents are whole.

use super::layout::{MUTATIONS, cast};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering, fence};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// The memory in which an endpoint keeps its state.
///
/// It belongs to the endpoint alone. Another process may copy it while the endpoint's process is stopped, or
/// look at it as at something that may change. It must start at a multiple of eight bytes and stay where it
/// is between two calls of [`Self::grow`].
pub trait ContextMemory {
    /// Most bytes that [`Self::grow`] can make.
    fn capacity(&self) -> usize;
    /// Makes it at least `bytes` long, which is not above [`Self::capacity`]. New bytes are 0, older ones
    /// stay as they are.
    fn grow(&mut self, bytes: usize);
    /// All of it.
    fn bytes(&self) -> &[u8];
    /// All of it, to be written.
    fn bytes_mut(&mut self) -> &mut [u8];
}

/// Memory of the process itself, for endpoints that nobody copies, and for copies.
#[derive(Debug, Default)]
pub struct HeapMemory(Vec<Line>);

/// One cache line.
#[derive(Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C, align(64))]
struct Line([u8; 64]);

impl HeapMemory {
    /// A copy of the bytes of another context.
    #[must_use]
    pub fn copy_of(bytes: &[u8]) -> Self {
        let mut memory = Self::default();
        memory.grow(bytes.len());
        memory.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
        memory
    }
}

impl ContextMemory for HeapMemory {
    fn capacity(&self) -> usize {
        usize::MAX
    }

    /// # Panics
    /// If the process has no memory left, as every allocation does.
    fn grow(&mut self, bytes: usize) {
        let more = bytes.div_ceil(size_of::<Line>()).saturating_sub(self.0.len());
        let done = if self.0.is_empty() {
            // Pages that the system gives as zeros are not touched.
            Line::new_vec_zeroed(more).map(|lines| self.0 = lines)
        } else {
            Line::extend_vec_zeroed(&mut self.0, more)
        };
        done.expect("memory for a channel's context");
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    #[inline]
    fn bytes_mut(&mut self) -> &mut [u8] {
        self.0.as_mut_bytes()
    }
}

/// Stores the number of changes begun and ended: odd while the endpoint is changing its state.
///
/// A process that is stopped has written everything that its program wrote before, so a copy with an even
/// number is whole. The order of the stores also holds for readers of a running process.
#[inline(always)]
pub(crate) fn mark(bytes: &mut [u8], changes: u64) {
    let cell = cast(AtomicU64::mut_from_bytes(&mut bytes[MUTATIONS..MUTATIONS + 8]));
    if changes & 1 == 1 {
        cell.store(changes, Ordering::Relaxed);
        fence(Ordering::Release);
    } else {
        cell.store(changes, Ordering::Release);
    }
}
