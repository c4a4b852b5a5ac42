//! System calls of sandboxes for which no safe wrapper exists.

use std::ffi::{CStr, CString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Version 3 of the capability structures.
const CAPABILITIES: u32 = 0x2008_0522;

fn checked(result: libc::c_long) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Makes all mounts read-only in a mount namespace of this process.
///
/// # Errors
/// An error of the system; `ENOSYS` before Linux 5.12.
pub(crate) fn mounts_read_only() -> io::Result<()> {
    set_attributes(c"/", libc::AT_RECURSIVE, (libc::MOUNT_ATTR_RDONLY, 0), libc::MS_PRIVATE)
}

/// Makes the mount at a place writable, without programs and devices.
///
/// # Errors
/// An error of the system.
pub(crate) fn mount_writable(place: &Path) -> io::Result<()> {
    let set = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;
    let place = CString::new(place.as_os_str().as_bytes())?;
    set_attributes(&place, 0, (set, libc::MOUNT_ATTR_RDONLY), 0)
}

/// Makes the mount at a place read-only, without those below it.
///
/// # Errors
/// An error of the system.
pub(crate) fn mount_read_only(place: &Path) -> io::Result<()> {
    let place = CString::new(place.as_os_str().as_bytes())?;
    set_attributes(&place, 0, (libc::MOUNT_ATTR_RDONLY, 0), 0)
}

/// Sets the first of these attributes of a mount and clears the others.
fn set_attributes(
    place: &CStr,
    flags: libc::c_int,
    (attr_set, attr_clr): (u64, u64),
    propagation: u64,
) -> io::Result<()> {
    let attributes = libc::mount_attr { attr_set, attr_clr, propagation, userns_fd: 0 };
    // SAFETY: the path ends with a zero, the structure is of the length that is given, and the kernel only reads both.
    checked(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            place.as_ptr(),
            flags,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    })
}

/// Drops all capabilities of this thread, the only one of the process.
///
/// # Errors
/// An error of the system.
pub(crate) fn drop_capabilities() -> io::Result<()> {
    // The version and this thread; then two halves of the effective, permitted and inheritable sets.
    let header = [CAPABILITIES, 0];
    let none = [0_u32; 6];
    // SAFETY: both have the layout of version 3, and the kernel only reads them.
    checked(unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), none.as_ptr()) })
}
