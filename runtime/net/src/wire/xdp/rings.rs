//! The four rings of an AF_XDP socket, and the memory of its frames, as a rank maps them.
//!
//! The kernel writes there at any time. Every access is an atomic word or a copy out, and every number that comes from
//! a ring is checked before it is used.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::shared_bytes::{SharedBytes, SharedBytesMut};
use crate::wire::xdp::{CHUNK, CHUNKS, RECEIVE_CHUNKS, SEND_CHUNKS};

/// Bytes of the memory of frames.
pub(crate) const FRAME_MEMORY: usize = CHUNKS as usize * CHUNK;

/// A mapping of a socket's ring or of the memory of frames; unmapped on drop.
#[derive(Debug)]
struct SharedMemory {
    base: NonNull<u8>,
    length: usize,
}

// SAFETY: plain address space, valid from every thread, reached only through atomics and `SharedBytes`.
unsafe impl Send for SharedMemory {}

impl SharedMemory {
    fn new(file: BorrowedFd<'_>, length: usize, offset: libc::off_t) -> io::Result<SharedMemory> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        let (none, raw) = (std::ptr::null_mut(), file.as_raw_fd());
        // SAFETY: a fresh mapping at an address of the kernel's choice touches no memory of this process.
        let address = unsafe { libc::mmap(none, length, protection, flags, raw, offset) };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(address.cast())
            .ok_or_else(|| io::Error::other("the kernel mapped a ring at address 0"))?;
        let memory = SharedMemory { base, length };
        // A child made with `fork` would share it.
        // SAFETY: the whole of our own mapping; neither its contents nor its protection change.
        match unsafe { libc::madvise(address, length, libc::MADV_DONTFORK) } {
            0 => Ok(memory),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// The address of an atomic of `bytes` bytes.
    fn at(&self, offset: usize, bytes: usize) -> NonNull<u8> {
        let inside = offset.checked_add(bytes).is_some_and(|end| end <= self.length);
        assert!(inside && offset.is_multiple_of(bytes), "outside of a ring");
        // SAFETY: just checked to be inside of the mapping.
        unsafe { self.base.add(offset) }
    }

    fn word(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: inside of the mapping and aligned (pages are); it lives as long as `self`, and everybody in this
        // process reaches it by atomics.
        unsafe { AtomicU32::from_ptr(self.at(offset, 4).cast().as_ptr()) }
    }

    fn long(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: as in `word`.
        unsafe { AtomicU64::from_ptr(self.at(offset, 8).cast().as_ptr()) }
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: this is the mapping made in `new`; nothing borrowed from it outlives `self`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.length) };
    }
}

/// A ring whose indices or entries cannot be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RingBroken;

/// A ring with entries of `WORDS` words, of which this process owns one index.
#[derive(Debug)]
pub(crate) struct Ring<const WORDS: usize> {
    memory: SharedMemory,
    producer: usize,
    consumer: usize,
    entries: usize,
    size: u32,
    /// The own index: of the next entry to write or to read.
    own: u32,
}

/// Where the parts of a ring lie, by the kernel.
pub(crate) type RingOffsets = libc::xdp_ring_offset;

/// One of a socket's rings, as an offset for `mmap`.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RingKind {
    Receive,
    Send,
    Fill,
    Completion,
}

impl RingKind {
    fn offset(self) -> libc::off_t {
        match self {
            RingKind::Receive => libc::XDP_PGOFF_RX_RING,
            RingKind::Send => libc::XDP_PGOFF_TX_RING,
            RingKind::Fill => libc::XDP_UMEM_PGOFF_FILL_RING as libc::off_t,
            RingKind::Completion => libc::XDP_UMEM_PGOFF_COMPLETION_RING as libc::off_t,
        }
    }
}

impl<const WORDS: usize> Ring<WORDS> {
    /// Maps a ring with `size` entries of a socket that is not bound yet.
    ///
    /// # Errors
    /// The kernel's error; `InvalidData` if its offsets cannot be.
    pub(crate) fn map(
        socket: BorrowedFd<'_>,
        which: RingKind,
        size: u32,
        offsets: &RingOffsets,
    ) -> io::Result<Ring<WORDS>> {
        let bad = || io::Error::from(io::ErrorKind::InvalidData);
        let offset = |value: u64, align: usize| {
            let value = usize::try_from(value).ok().filter(|at| *at < 1 << 20);
            value.filter(|at| at.is_multiple_of(align)).ok_or_else(bad)
        };
        let entries = offset(offsets.desc, 8)?;
        let length = entries + size as usize * WORDS * 8;
        let ring = Ring {
            memory: SharedMemory::new(socket, length, which.offset())?,
            producer: offset(offsets.producer, 4)?,
            consumer: offset(offsets.consumer, 4)?,
            entries,
            size,
            own: 0,
        };
        let words = [ring.producer, ring.consumer];
        if !size.is_power_of_two() || words.iter().any(|at| at + 4 > length) {
            return Err(bad());
        }
        Ok(ring)
    }

    /// Entries that the kernel has left to this process to read.
    #[inline]
    pub(crate) fn filled(&self) -> Result<u32, RingBroken> {
        let filled = self.memory.word(self.producer).load(Acquire).wrapping_sub(self.own);
        if filled > self.size { Err(RingBroken) } else { Ok(filled) }
    }

    /// Entries that this process may write.
    pub(crate) fn room(&self) -> Result<u32, RingBroken> {
        let used = self.own.wrapping_sub(self.memory.word(self.consumer).load(Acquire));
        self.size.checked_sub(used).ok_or(RingBroken)
    }

    fn entry(&self) -> usize {
        self.entries + (self.own & (self.size - 1)) as usize * WORDS * 8
    }

    /// Reads the next entry, of which there is one by [`Ring::filled`]. The kernel may use its place once
    /// [`Ring::release`] was called.
    pub(crate) fn take(&mut self) -> [u64; WORDS] {
        let at = self.entry();
        self.own = self.own.wrapping_add(1);
        std::array::from_fn(|word| self.memory.long(at + word * 8).load(Relaxed))
    }

    /// Gives the places of the entries that were read back to the kernel.
    pub(crate) fn release(&self) {
        self.memory.word(self.consumer).store(self.own, Release);
    }

    /// Writes the next entry, for which there is room by [`Ring::room`]. The kernel sees it once [`Ring::publish`] was
    /// called.
    pub(crate) fn put(&mut self, words: [u64; WORDS]) {
        let at = self.entry();
        for (word, value) in words.into_iter().enumerate() {
            self.memory.long(at + word * 8).store(value, Relaxed);
        }
        self.own = self.own.wrapping_add(1);
    }

    /// Shows the kernel the entries that were written.
    pub(crate) fn publish(&self) {
        self.memory.word(self.producer).store(self.own, Release);
    }
}

/// The ring by which the kernel gets chunks to receive into.
#[derive(Debug)]
pub(crate) struct FillRing {
    ring: Ring<1>,
    /// Chunks for which there was no room.
    waiting: Vec<u32>,
}

impl FillRing {
    pub(crate) fn new(ring: Ring<1>) -> FillRing {
        FillRing { ring, waiting: Vec::with_capacity(RECEIVE_CHUNKS as usize) }
    }

    /// Gives a chunk to the kernel, now or with a later one. The kernel shows a frame before it shows that the place of
    /// the frame's chunk in this ring is free.
    pub(crate) fn give(&mut self, chunk: u32) -> Result<(), RingBroken> {
        self.waiting.push(chunk);
        let count = (self.ring.room()? as usize).min(self.waiting.len());
        if count > 0 {
            for chunk in self.waiting.drain(..count) {
                self.ring.put(FrameMemory::fill_entry(chunk));
            }
            self.ring.publish();
        }
        Ok(())
    }
}

/// Memory of frames: chunks to receive into, then chunks to send from.
#[derive(Debug)]
pub(crate) struct FrameMemory(SharedMemory);

/// A frame that the kernel has received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReceivedFrame {
    pub(crate) chunk: u32,
    at: usize,
    pub(crate) length: usize,
}

impl FrameMemory {
    /// Maps a file that is [`FRAME_MEMORY`] bytes long and sealed against shrinking.
    pub(crate) fn map(file: BorrowedFd<'_>) -> io::Result<FrameMemory> {
        SharedMemory::new(file, FRAME_MEMORY, 0).map(FrameMemory)
    }

    /// Checks an entry of the receive ring: its bytes lie in one chunk of those to receive into.
    pub(crate) fn received(entry: [u64; 2]) -> Result<ReceivedFrame, RingBroken> {
        let at = usize::try_from(entry[0]).map_err(|_| RingBroken)?;
        let length = entry[1] as u32 as usize;
        let chunk = u32::try_from(at / CHUNK).map_err(|_| RingBroken)?;
        let fits = length <= CHUNK && at % CHUNK + length <= CHUNK;
        if !fits || chunk >= RECEIVE_CHUNKS {
            return Err(RingBroken);
        }
        Ok(ReceivedFrame { chunk, at, length })
    }

    /// The bytes of a frame.
    pub(crate) fn frame(&self, frame: ReceivedFrame) -> SharedBytes<'_> {
        let start = self.0.at(frame.at, 1);
        debug_assert!(frame.at + frame.length <= self.0.length);
        // SAFETY: `received` has checked that it lies in one chunk, and chunks lie in the mapping, which is borrowed.
        unsafe { SharedBytes::new(start, frame.length) }
    }

    /// The chunk to send from with this number, below [`SEND_CHUNKS`].
    pub(crate) fn send_chunk(&self, number: u32) -> SharedBytesMut<'_> {
        let start = self.0.at((RECEIVE_CHUNKS + number) as usize * CHUNK, 1);
        assert!(number < SEND_CHUNKS);
        // SAFETY: a whole chunk, which lies in the mapping, which is borrowed.
        unsafe { SharedBytesMut::new(start, CHUNK) }
    }

    /// The number of a chunk to send from, by an entry of the completion ring.
    pub(crate) fn completed(entry: u64) -> Result<u32, RingBroken> {
        let chunk = usize::try_from(entry).map_err(|_| RingBroken)? / CHUNK;
        let number = u32::try_from(chunk).ok().and_then(|chunk| chunk.checked_sub(RECEIVE_CHUNKS));
        number.filter(|number| *number < SEND_CHUNKS).ok_or(RingBroken)
    }

    /// Entry of the fill ring for a chunk to receive into.
    pub(crate) fn fill_entry(chunk: u32) -> [u64; 1] {
        [u64::from(chunk) * CHUNK as u64]
    }

    /// Entry of the send ring for the first bytes of a chunk to send from.
    pub(crate) fn send_entry(number: u32, length: usize) -> [u64; 2] {
        // The upper half of the second word has options: none.
        [u64::from(RECEIVE_CHUNKS + number) * CHUNK as u64, length as u64]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_outside_of_the_memory_of_frames_are_refused() {
        let chunk = CHUNK as u64;
        let last = u64::from(RECEIVE_CHUNKS) * chunk;
        for (at, length, chunk) in [(256, 60, 0), (chunk, 2048, 1), (last - 1, 1, 255)] {
            let frame = FrameMemory::received([at, length]).expect("inside");
            assert_eq!((frame.chunk, frame.length as u64), (chunk, length));
        }
        let beyond = [
            [256, chunk],
            [chunk - 1, 2],
            [0, chunk + 1],
            [last, 60],
            [u64::MAX, 1],
            [0, u64::from(u32::MAX)],
            [u64::MAX - chunk, u64::MAX],
        ];
        for entry in beyond {
            assert_eq!(FrameMemory::received(entry), Err(RingBroken), "{entry:?}");
        }
        assert_eq!(FrameMemory::completed(last + 3 * chunk), Ok(3));
        for entry in [0, last - 1, last + u64::from(SEND_CHUNKS) * chunk, u64::MAX] {
            assert_eq!(FrameMemory::completed(entry), Err(RingBroken), "{entry}");
        }
        assert_eq!(FrameMemory::completed(FrameMemory::send_entry(7, 60)[0]), Ok(7));
        assert_eq!(FrameMemory::received([FrameMemory::fill_entry(9)[0], 1]).unwrap().chunk, 9);
    }

    /// A ring in a plain file, both ends of which this test drives.
    fn ring<const WORDS: usize>() -> (Ring<WORDS>, Ring<WORDS>) {
        use std::os::fd::AsFd;
        let file = tempfile();
        let offsets = RingOffsets { producer: 0, consumer: 64, desc: 128, flags: 68 };
        let map = || Ring::map(file.as_fd(), RingKind::Receive, 4, &offsets).expect("ring");
        (map(), map())
    }

    fn tempfile() -> std::os::fd::OwnedFd {
        use std::os::fd::FromRawFd;
        // SAFETY: a C string; the descriptor is just made and owned once.
        let file =
            unsafe { std::os::fd::OwnedFd::from_raw_fd(libc::memfd_create(c"ring".as_ptr(), 0)) };
        // SAFETY: plain system call on our own descriptor.
        assert_eq!(unsafe { libc::ftruncate(file.as_raw_fd(), 4096) }, 0);
        file
    }

    #[test]
    #[cfg_attr(miri, ignore = "mappings are the kernel's")]
    fn entries_go_around_and_impossible_indices_are_refused() {
        let (mut writer, mut reader) = ring::<2>();
        for round in 0..10 {
            assert_eq!((reader.filled(), writer.room()), (Ok(0), Ok(4)));
            for entry in 0..4 {
                writer.put([round, entry]);
            }
            assert_eq!(reader.filled(), Ok(0), "not published");
            writer.publish();
            assert_eq!((reader.filled(), writer.room()), (Ok(4), Ok(0)));
            assert!((0..4).all(|entry| reader.take() == [round, entry]));
            assert_eq!(writer.room(), Ok(0), "not released");
            reader.release();
        }
        writer.memory.word(writer.producer).store(45, Relaxed);
        assert_eq!(reader.filled(), Err(RingBroken));
        reader.memory.word(reader.consumer).store(41, Relaxed);
        assert_eq!(writer.room(), Err(RingBroken), "more read than written");
    }

    #[test]
    #[cfg_attr(miri, ignore = "mappings are the kernel's")]
    fn a_chunk_for_which_there_is_no_room_yet_is_given_later() {
        let (writer, mut kernel) = ring::<1>();
        let mut fill = FillRing::new(writer);
        for chunk in 0..4 {
            fill.give(chunk).expect("room");
        }
        assert_eq!((kernel.filled(), kernel.take()), (Ok(4), FrameMemory::fill_entry(0)));
        // The kernel has not released its place.
        fill.give(0).expect("it waits");
        assert_eq!(kernel.filled(), Ok(3));
        kernel.take();
        kernel.release();
        fill.give(1).expect("room for two");
        assert_eq!(kernel.filled(), Ok(4));
        let order: Vec<_> = (0..4).map(|_| kernel.take()[0]).collect();
        assert_eq!(order, [2, 3, 0, 1].map(|chunk| FrameMemory::fill_entry(chunk)[0]));
    }
}
