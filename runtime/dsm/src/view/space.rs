//! The addresses of a view.

use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use kumi_net::ForkCheck;

use super::error::{ViewError, failed};
use super::faults::table::MOST_VIEWS;
use crate::node_memory::{Geometry, NodeMemory};

/// Views begin at multiples of this, so that each unit lies at a multiple of its size if that is a power of two, and page
/// tables are used whole.
const ALIGNMENT: usize = 2 << 20;

/// Where views begin if nothing else is there, and how far apart those of one process are: 1 TiB from 32 TiB on, and
/// 16 GiB from 128 GiB on for processors with addresses of 39 bits. Linux places programs, heaps, libraries and stacks
/// elsewhere, and so do sanitizers of memory. So all ranks of a job get the same addresses. See also [`LOW`].
const PLACES: [(usize, usize); 2] = [(32 << 40, 1 << 40), (128 << 30, 16 << 30)];

/// A mapping of a node's copy at addresses of its own. Children of the process do not have it, and core dumps leave it out.
#[derive(Debug)]
pub(super) struct Space {
    base: NonNull<u8>,
    length: usize,
    memory: Arc<NodeMemory>,
    /// This process, for advice about several ranges at once; none where the kernel refuses that.
    process: Option<OwnedFd>,
}

// SAFETY: address space, valid in every thread; this type only changes what is visible there and never reads it.
unsafe impl Send for Space {}
// SAFETY: as above.
unsafe impl Sync for Space {}

impl Space {
    /// Maps the copy with the rights `protection`.
    pub(super) fn new(
        memory: &Arc<NodeMemory>,
        protection: libc::c_int,
    ) -> Result<Space, ViewError> {
        let too_long = |_| failed("mmap")(io::ErrorKind::OutOfMemory.into());
        let length = usize::try_from(memory.bytes()).map_err(too_long)?;
        let base = reserve_aligned(length)?;
        // From here on a failure gives the addresses back.
        let mut space = Space { base, length, memory: Arc::clone(memory), process: None };
        let flags = libc::MAP_SHARED | libc::MAP_NORESERVE | libc::MAP_FIXED;
        let file = memory.copy_file().as_raw_fd();
        // SAFETY: the range was reserved above, and nobody knows of it yet.
        let address =
            unsafe { libc::mmap(base.as_ptr().cast(), length, protection, flags, file, 0) };
        if address == libc::MAP_FAILED {
            return Err(failed("mmap")(io::Error::last_os_error()));
        }
        for advice in [libc::MADV_DONTFORK, libc::MADV_DONTDUMP] {
            space.advise(&(0..length as u64), advice).map_err(failed("madvise"))?;
        }
        // Units appear page by page, never as a huge page. Kernels without huge pages refuse the advice, which is as good.
        let _ = space.advise(&(0..length as u64), libc::MADV_NOHUGEPAGE);
        space.process = own_process();
        if space.advise_together(&[0..0, 0..0], libc::MADV_DONTNEED).is_err() {
            space.process = None;
        }
        Ok(space)
    }

    pub(super) fn base(&self) -> NonNull<u8> {
        self.base
    }

    pub(super) fn memory(&self) -> &NodeMemory {
        &self.memory
    }

    pub(super) fn shared_memory(&self) -> &Arc<NodeMemory> {
        &self.memory
    }

    pub(super) fn geometry(&self) -> Geometry {
        self.memory.geometry()
    }

    pub(super) fn forks(&self) -> ForkCheck {
        self.memory.forks()
    }

    /// Its addresses.
    pub(super) fn addresses(&self) -> Range<usize> {
        let start = self.base.as_ptr().addr();
        start..start + self.length
    }

    /// The first address of byte `at`, as the kernel takes it.
    pub(super) fn address(&self, at: u64) -> u64 {
        self.base.as_ptr().addr() as u64 + at
    }

    /// The bytes of units.
    pub(super) fn bytes_of(&self, units: &Range<u64>) -> Range<u64> {
        let unit = self.geometry().unit();
        units.start * unit..units.end * unit
    }

    /// `madvise` of bytes of it.
    pub(super) fn advise(&self, bytes: &Range<u64>, advice: libc::c_int) -> io::Result<()> {
        let (place, length) = self.part(bytes);
        // SAFETY: a part of this mapping. Callers advise what leaves contents alone; MADV_DONTNEED only takes pages of the
        // memory file out of sight.
        check(unsafe { libc::madvise(place, length, advice) })
    }

    /// As [`Space::advise`], of several ranges: by few calls where the kernel has them (Linux 6.13).
    pub(super) fn advise_all(&self, ranges: &[Range<u64>], advice: libc::c_int) -> io::Result<()> {
        match ranges {
            [one] => self.advise(one, advice),
            several if self.process.is_some() => {
                several.chunks(RANGES).try_for_each(|some| self.advise_together(some, advice))
            }
            several => several.iter().try_for_each(|one| self.advise(one, advice)),
        }
    }

    fn advise_together(&self, ranges: &[Range<u64>], advice: libc::c_int) -> io::Result<()> {
        let process = self.process.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        let mut parts: Vec<_> = ranges
            .iter()
            .map(|range| self.part(range))
            .map(|(iov_base, iov_len)| libc::iovec { iov_base, iov_len })
            .collect();
        let mut left = &mut parts[..];
        loop {
            // SAFETY: parts of this mapping, advised as `advise` says; the kernel only reads the list.
            let done = unsafe {
                libc::syscall(
                    libc::SYS_process_madvise,
                    process.as_raw_fd(),
                    left.as_ptr(),
                    left.len(),
                    advice,
                    0,
                )
            };
            let mut done = usize::try_from(done).map_err(|_| io::Error::last_os_error())?;
            // It may stop early, in the middle of one.
            while let Some(part) = left.first_mut() {
                if done < part.iov_len {
                    part.iov_base = part.iov_base.wrapping_byte_add(done);
                    part.iov_len -= done;
                    break;
                }
                done -= part.iov_len;
                left = &mut left[1..];
            }
            if left.is_empty() {
                return Ok(());
            }
        }
    }

    /// Changes the rights of bytes of it.
    pub(super) fn protect(&self, bytes: &Range<u64>, protection: libc::c_int) -> io::Result<()> {
        let (place, length) = self.part(bytes);
        // SAFETY: a part of this mapping, to which Rust has no references.
        check(unsafe { libc::mprotect(place, length, protection) })
    }

    fn part(&self, bytes: &Range<u64>) -> (*mut libc::c_void, usize) {
        let inside = bytes.start <= bytes.end && bytes.end <= self.length as u64;
        assert!(inside, "bytes outside of the view, although its units were checked");
        let place = self.base.as_ptr().wrapping_add(bytes.start as usize);
        (place.cast(), (bytes.end - bytes.start) as usize)
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        // A child does not have the mapping, and something else may be at its addresses there.
        if self.forks().is_child() {
            return;
        }
        // SAFETY: the range that `new` reserved. The view has ended, and with it the program's right to use its addresses.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.length) };
    }
}

/// Most ranges of one call: the kernel takes 1,024.
const RANGES: usize = 512;

/// A descriptor of this process.
fn own_process() -> Option<OwnedFd> {
    // SAFETY: no pointers.
    let raw = unsafe { libc::syscall(libc::SYS_pidfd_open, std::process::id(), 0) };
    let raw = i32::try_from(raw).ok().filter(|raw| *raw >= 0)?;
    // SAFETY: a new descriptor that nobody else owns.
    Some(unsafe { OwnedFd::from_raw_fd(raw) })
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Where a short view begins if that is free, so that it ends below 2 GiB: for programs that keep addresses in 32 bits. Linux
/// begins the heap of programs that are linked at fixed addresses anywhere in the first GiB; 256 MiB are left for it to grow.
const LOW: usize = 1280 << 20;
const LONGEST_LOW: usize = 768 << 20;

/// Address space of that length, with nothing in it: at the first of [`PLACES`] that is free, otherwise anywhere.
fn reserve_aligned(length: usize) -> Result<NonNull<u8>, ViewError> {
    let places = PLACES.iter().flat_map(|(first, apart)| {
        (0..MOST_VIEWS).filter_map(move |view| first.checked_add(view * apart))
    });
    let low = (length <= LONGEST_LOW).then_some(LOW);
    match low.into_iter().chain(places).find_map(|place| reserve_at(place, length)) {
        Some(base) => Ok(base),
        None => reserve_anywhere(length),
    }
}

/// Reserves addresses from `place` on; nothing if some of them are in use or cannot be.
fn reserve_at(place: usize, length: usize) -> Option<NonNull<u8>> {
    let wanted = std::ptr::without_provenance_mut(place);
    let flags = RESERVED | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: the kernel maps nothing over what is there.
    let address = unsafe { libc::mmap(wanted, length, libc::PROT_NONE, flags, -1, 0) };
    if address == libc::MAP_FAILED {
        return None;
    }
    if address != wanted {
        // Kernels before 4.17 take the address as a wish.
        // SAFETY: the mapping that was made above, which nobody uses.
        unsafe { libc::munmap(address, length) };
        return None;
    }
    NonNull::new(address.cast())
}

const RESERVED: libc::c_int = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;

fn reserve_anywhere(length: usize) -> Result<NonNull<u8>, ViewError> {
    let error = |error| failed("mmap")(error);
    let more =
        length.checked_add(ALIGNMENT).ok_or_else(|| error(io::ErrorKind::OutOfMemory.into()))?;
    // SAFETY: a new mapping where the kernel finds room changes no memory of this process.
    let address =
        unsafe { libc::mmap(std::ptr::null_mut(), more, libc::PROT_NONE, RESERVED, -1, 0) };
    if address == libc::MAP_FAILED {
        return Err(error(io::Error::last_os_error()));
    }
    let before = address.addr().next_multiple_of(ALIGNMENT) - address.addr();
    let base = address.cast::<u8>().wrapping_add(before);
    // SAFETY: the parts before and behind the aligned range, of a mapping that nobody uses. Lengths of 0 are left out.
    unsafe {
        if before > 0 {
            libc::munmap(address, before);
        }
        libc::munmap(base.wrapping_add(length).cast(), ALIGNMENT - before);
    }
    Ok(NonNull::new(base).expect("the kernel maps nothing at address 0 unless told"))
}
