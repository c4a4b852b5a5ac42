//! Memory of a rank's channel context: the end of its rank file.

use std::ptr::NonNull;
use std::slice;

use kumi_proto::ContextMemory;

/// The region in which the endpoint of a rank keeps its state. The daemon may read it at any time.
///
/// Its bytes are slices, unlike all others of a segment, because nobody else writes them: other ranks get their file for
/// reading, the daemon maps it for reading, and in this process nobody else has them. Since the rank has mapped it, the file
/// is sealed against new writers, also to its own user.
///
/// The limit of that: a process of the daemon's user that opened the file before the seal can still write it, and on kernels
/// before 5.1, which lack the seal, one can open it at any time. No code of Kumi does either. It is as with a debugger, which
/// can write any memory of a process.
#[derive(Debug)]
pub(crate) struct ChannelRegion {
    start: NonNull<u8>,
    /// Bytes in use.
    length: usize,
    capacity: usize,
}

// SAFETY: address space that this value alone uses, whatever the thread.
unsafe impl Send for ChannelRegion {}

impl ChannelRegion {
    /// # Safety
    /// As long as the value lives, the `capacity` bytes at `start` are mapped to be read and written, and only this value
    /// reaches them in this process. No other process writes them.
    pub(crate) unsafe fn new(start: NonNull<u8>, capacity: usize) -> ChannelRegion {
        ChannelRegion { start, length: 0, capacity }
    }
}

impl ContextMemory for ChannelRegion {
    fn capacity(&self) -> usize {
        self.capacity
    }

    /// # Panics
    /// If there is not so much.
    fn grow(&mut self, bytes: usize) {
        assert!(bytes <= self.capacity, "a channel context longer than its region");
        // What was never written in a memory file reads as zeros.
        self.length = self.length.max(bytes);
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        // SAFETY: mapped and initialised by the kernel; nobody writes them but by `bytes_mut`, see `new`.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }

    #[inline]
    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `self` is borrowed mutably.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_grows_and_keeps_what_it_has() {
        let mut memory = [0_u64; 4];
        let start = NonNull::from(&mut memory).cast();
        // SAFETY: the array outlives the region, which alone uses it.
        let mut region = unsafe { ChannelRegion::new(start, 32) };
        assert_eq!((region.capacity(), region.bytes()), (32, &[][..]));
        region.grow(8);
        region.bytes_mut()[7] = 5;
        region.grow(16);
        region.grow(4);
        assert_eq!((region.bytes().len(), region.bytes()[7], region.bytes()[15]), (16, 5, 0));
    }

    #[test]
    #[should_panic(expected = "longer than its region")]
    fn a_region_never_grows_beyond_its_end() {
        // SAFETY: nothing is reached.
        unsafe { ChannelRegion::new(NonNull::dangling(), 8) }.grow(9);
    }
}
