//! The kernel's interfaces for userfaultfd and for scans of page tables (linux/userfaultfd.h, linux/fs.h), which neither the
//! C library's headers nor older kernel headers have in full.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// A range of addresses.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct UffdioRange {
    pub(super) start: u64,
    pub(super) len: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct UffdioApi {
    pub(super) api: u64,
    pub(super) features: u64,
    pub(super) ioctls: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct UffdioRegister {
    pub(super) range: UffdioRange,
    pub(super) mode: u64,
    pub(super) ioctls: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct UffdioContinue {
    pub(super) range: UffdioRange,
    pub(super) mode: u64,
    /// Bytes mapped, or a negative error number.
    pub(super) mapped: i64,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct UffdioWriteProtect {
    pub(super) range: UffdioRange,
    pub(super) mode: u64,
}

/// What a scan looks for.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct PageScan {
    pub(super) size: u64,
    pub(super) flags: u64,
    pub(super) start: u64,
    pub(super) end: u64,
    /// Up to where the kernel came.
    pub(super) walk_end: u64,
    pub(super) vec: u64,
    pub(super) vec_len: u64,
    pub(super) max_pages: u64,
    pub(super) category_inverted: u64,
    pub(super) category_mask: u64,
    pub(super) category_anyof_mask: u64,
    pub(super) return_mask: u64,
}

/// A range that a scan found.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PageRegion {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) categories: u64,
}

const USERFAULTFD: u32 = 0xAA;
const UFFDIO_API: libc::Ioctl = libc::_IOWR::<UffdioApi>(USERFAULTFD, 0x3F);
const UFFDIO_REGISTER: libc::Ioctl = libc::_IOWR::<UffdioRegister>(USERFAULTFD, 0x00);
const UFFDIO_CONTINUE: libc::Ioctl = libc::_IOWR::<UffdioContinue>(USERFAULTFD, 0x07);
const UFFDIO_WRITEPROTECT: libc::Ioctl = libc::_IOWR::<UffdioWriteProtect>(USERFAULTFD, 0x06);
const PAGEMAP_SCAN: libc::Ioctl = libc::_IOWR::<PageScan>(b'f' as u32, 16);

const UFFD_USER_MODE_ONLY: libc::c_int = 1;
pub(super) const UFFD_API: u64 = 0xAA;
pub(super) const FEATURE_SIGBUS: u64 = 1 << 7;
pub(super) const FEATURE_MINOR_SHMEM: u64 = 1 << 10;
pub(super) const FEATURE_WP_SHMEM: u64 = 1 << 12;
pub(super) const FEATURE_WP_UNPOPULATED: u64 = 1 << 13;
pub(super) const FEATURE_WP_ASYNC: u64 = 1 << 15;
pub(super) const REGISTER_MISSING: u64 = 1;
pub(super) const REGISTER_WP: u64 = 1 << 1;
pub(super) const REGISTER_MINOR: u64 = 1 << 2;
pub(super) const CONTINUE_WP: u64 = 1 << 1;

/// A page may be written, or is not there and was not protected when it went.
pub(super) const PAGE_IS_WRITTEN: u64 = 1 << 1;
/// A page is not there, but its protection is remembered.
pub(super) const PAGE_IS_SWAPPED: u64 = 1 << 4;
/// Protects the pages that it finds.
pub(super) const SCAN_PROTECT: u64 = 1;
/// Refuses memory that is not protected asynchronously.
pub(super) const SCAN_CHECK_ASYNC: u64 = 1 << 1;

/// A descriptor for faults of programs only, which needs no privilege.
pub(super) fn userfaultfd() -> io::Result<OwnedFd> {
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK | UFFD_USER_MODE_ONLY;
    // SAFETY: no pointers.
    let raw = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
    let raw = i32::try_from(raw).ok().filter(|raw| *raw >= 0);
    // SAFETY: a new descriptor that nobody else owns.
    raw.map(|raw| unsafe { OwnedFd::from_raw_fd(raw) }).ok_or_else(io::Error::last_os_error)
}

pub(super) fn api(uffd: BorrowedFd<'_>, argument: &mut UffdioApi) -> io::Result<()> {
    // SAFETY: the structure of this call, which the kernel reads and writes.
    let result = unsafe { libc::ioctl(uffd.as_raw_fd(), UFFDIO_API, &raw mut *argument) };
    check(result).map(drop)
}

/// # Safety
/// The range is a mapping of the caller's that expects to be governed.
pub(super) unsafe fn register(
    uffd: BorrowedFd<'_>,
    argument: &mut UffdioRegister,
) -> io::Result<()> {
    // SAFETY: the structure of this call, which the kernel reads and writes.
    let result = unsafe { libc::ioctl(uffd.as_raw_fd(), UFFDIO_REGISTER, &raw mut *argument) };
    check(result).map(drop)
}

/// Makes pages that are in the memory file visible. The kernel does so only in ranges that were registered with `uffd`.
pub(super) fn make_visible(uffd: BorrowedFd<'_>, argument: &mut UffdioContinue) -> io::Result<()> {
    // SAFETY: the structure of this call, which the kernel reads and writes.
    let result = unsafe { libc::ioctl(uffd.as_raw_fd(), UFFDIO_CONTINUE, &raw mut *argument) };
    check(result).map(drop)
}

/// Protects pages against writing, or opens them. The kernel does so only in ranges that were registered with `uffd`.
pub(super) fn write_protect(
    uffd: BorrowedFd<'_>,
    range: UffdioRange,
    protect: bool,
) -> io::Result<()> {
    let mode = u64::from(protect);
    let mut argument = UffdioWriteProtect { range, mode };
    // SAFETY: the structure of this call, which the kernel reads.
    let result = unsafe { libc::ioctl(uffd.as_raw_fd(), UFFDIO_WRITEPROTECT, &raw mut argument) };
    check(result).map(drop)
}

/// Scans page tables; how many of `found` the kernel has filled in. Fields for `found` and sizes are set here.
pub(super) fn scan(
    pagemap: BorrowedFd<'_>,
    argument: &mut PageScan,
    found: &mut [PageRegion],
) -> io::Result<usize> {
    argument.size = size_of::<PageScan>() as u64;
    argument.vec = found.as_mut_ptr().addr() as u64;
    argument.vec_len = found.len() as u64;
    found.as_mut_ptr().expose_provenance();
    // SAFETY: the structure of this call, which the kernel reads and writes; in it address and length of `found`, which is
    // written up to that length. Page tables change only in what they remember of writes.
    let result = unsafe { libc::ioctl(pagemap.as_raw_fd(), PAGEMAP_SCAN, &raw mut *argument) };
    Ok((check(result)? as usize).min(found.len()))
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
