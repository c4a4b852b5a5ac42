//! The ends of processes.

use std::ffi::{c_int, c_void};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr::{null_mut, without_provenance_mut};
use std::sync::atomic::{AtomicBool, Ordering};

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

/// Exit code of a rank whose routine has called `exit(0)`.
const ROUTINE_EXITED: c_int = 70;

/// Whether this process is about to end by itself, and not because its routine has called `exit`.
static LEAVES: AtomicBool = AtomicBool::new(false);

unsafe extern "C" {
    /// Has a function called when the process exits, with its exit code (`on_exit(3)`).
    fn on_exit(function: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
}

/// Has an `exit(0)` of the routine, which is no success, end this process as a failure: other ranks would wait for it.
pub(crate) fn exits_fail() {
    let pid = without_provenance_mut(std::process::id() as usize);
    // SAFETY: the function may be called at any time, and its argument is a number only. Where there is no memory for
    // it, exits are not told apart.
    unsafe { on_exit(exiting, pid) };
}

/// From now on an exit is that of this process itself.
pub(crate) fn leaves() {
    LEAVES.store(true, Ordering::SeqCst);
}

/// Called at `exit`; forks of the routine call it too, which may end as they like.
extern "C" fn exiting(code: c_int, pid: *mut c_void) {
    let own = std::process::id() as usize == pid.addr();
    if code == 0 && own && !LEAVES.load(Ordering::SeqCst) {
        // SAFETY: what the routine has printed is written out, as `exit` would; nothing is used afterwards.
        unsafe {
            libc::fflush(null_mut());
            libc::_exit(ROUTINE_EXITED);
        }
    }
}
