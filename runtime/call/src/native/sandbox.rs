//! System calls for which there is no safe function.

use std::io;

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
    // SAFETY: the path ends with a zero, the structure is of the length that is given, and the kernel only reads both.
    checked(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            c"/".as_ptr(),
            libc::AT_RECURSIVE,
            &raw const attributes,
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
