//! The ends of processes.

use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;

/// Has the process of a command get this signal when the thread that starts it has ended.
pub(crate) fn end_with_parent(command: &mut Command, signal: Signal) {
    // SAFETY: between fork and exec only a system call is made, which allocates nothing and takes no lock.
    unsafe { command.pre_exec(move || Ok(set_pdeathsig(signal)?)) };
}

/// Ends this process at once, whatever its other threads do.
pub(crate) fn end_now() -> ! {
    // SAFETY: nothing of this process is used afterwards.
    unsafe { libc::_exit(1) }
}
