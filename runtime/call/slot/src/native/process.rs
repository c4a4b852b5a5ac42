//! Control of how processes end.

use std::ffi::{c_int, c_void};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr::{null_mut, without_provenance_mut};
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;

/// Makes the system send this signal to a command when the thread that started it ends.
pub fn end_with_parent(command: &mut Command, signal: Signal) {
    // SAFETY: between fork and exec only a system call is made, which allocates nothing and takes no lock.
    unsafe { command.pre_exec(move || Ok(set_pdeathsig(signal)?)) };
}

/// Ends this process at once, whatever its other threads do.
pub fn end_now() -> ! {
    // SAFETY: nothing of this process is used afterwards.
    unsafe { libc::_exit(1) }
}

/// Exit code of a rank whose routine has called `exit(0)`.
const ROUTINE_EXITED: c_int = 70;

/// Whether this process is ending by itself, and not because its routine has called `exit`.
static LEAVES: AtomicBool = AtomicBool::new(false);

unsafe extern "C" {
    /// Registers a function that gets the exit code when the process exits (`on_exit(3)`).
    fn on_exit(function: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
}

/// Makes an `exit(0)` of the routine a failure of this process, because the other ranks would wait for it.
pub fn exits_fail() {
    let pid = without_provenance_mut(std::process::id() as usize);
    // SAFETY: the function may run at any time, and its argument is only a number. Without memory to register
    // it, exits are not distinguished.
    unsafe { on_exit(exiting, pid) };
}

/// From now on an exit is this process's own.
pub fn leaves() {
    LEAVES.store(true, Ordering::SeqCst);
}

/// Runs at `exit`. Forks of the routine run it too, and may end as they like.
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
