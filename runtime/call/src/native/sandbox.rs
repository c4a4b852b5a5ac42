//! System calls for which there is no safe function.

use std::ffi::{CStr, CString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Version 3 of the structures of capabilities.
const CAPABILITIES: u32 = 0x2008_0522;

fn checked(result: libc::c_long) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Makes everything that is mounted read-only, and this process's mounts its own.
///
/// # Errors
/// What the system says; `ENOSYS` before Linux 5.12.
pub(crate) fn mounts_read_only() -> io::Result<()> {
    let attributes = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_RDONLY,
        attr_clr: 0,
        propagation: libc::MS_PRIVATE,
        userns_fd: 0,
    };
    set_attributes(c"/", libc::AT_RECURSIVE, &attributes)
}

/// Lets what is mounted at a place be written, as data.
///
/// # Errors
/// What the system says.
pub(crate) fn mount_writable(place: &Path) -> io::Result<()> {
    let attributes = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV,
        attr_clr: libc::MOUNT_ATTR_RDONLY,
        propagation: 0,
        userns_fd: 0,
    };
    set_attributes(&CString::new(place.as_os_str().as_bytes())?, 0, &attributes)
}

fn set_attributes(
    place: &CStr,
    flags: libc::c_int,
    attributes: &libc::mount_attr,
) -> io::Result<()> {
    // SAFETY: the path ends with a zero, the structure is of the length that is given, and the kernel only reads both.
    checked(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            place.as_ptr(),
            flags,
            std::ptr::from_ref(attributes),
            size_of::<libc::mount_attr>(),
        )
    })
}

/// Gives up all capabilities of this thread, which is the process's only one.
///
/// # Errors
/// What the system says.
pub(crate) fn drop_capabilities() -> io::Result<()> {
    // The version, and this thread; then two halves of the effective, permitted and inheritable sets.
    let header = [CAPABILITIES, 0];
    let none = [0_u32; 6];
    // SAFETY: both have the layout of version 3, and the kernel only reads them.
    checked(unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), none.as_ptr()) })
}
