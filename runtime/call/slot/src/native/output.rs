//! Buffers of what a routine prints.

use std::ptr;

unsafe extern "C" {
    /// C's standard output.
    static stdout: *mut libc::FILE;
}

/// Lets C's standard output leave at the end of each line, so that the lines of a routine that crashes are not lost.
pub fn print_by_lines() {
    // SAFETY: nothing has been printed yet, and C allocates the buffer. If that fails, output leaves later.
    let _later = unsafe { libc::setvbuf(stdout, ptr::null_mut(), libc::_IOLBF, 0) };
}

/// Empties the buffers of all of C's files.
pub fn flush() {
    // SAFETY: null stands for all files. The reader of standard output hears of what cannot be written by its end.
    let _lost = unsafe { libc::fflush(ptr::null_mut()) };
}
