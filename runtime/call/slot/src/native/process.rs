//! Control of how processes end.

use std::ffi::{c_int, c_void};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr::{null, null_mut, without_provenance_mut};
use std::sync::atomic::{AtomicBool, Ordering};

use kumi_call_wire::native::open_process;
use nix::errno::Errno;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use nix::unistd::Pid;

/// Makes the system send this signal to a command when the thread that started it ends.
pub fn end_with_parent(command: &mut Command, signal: Signal) {
    // SAFETY: between fork and exec only a system call is made, which allocates nothing and takes no lock.
    unsafe { command.pre_exec(move || Ok(set_pdeathsig(signal)?)) };
}

/// Starts a command with no signal blocked, whatever this process blocks.
pub(crate) fn start_unblocked(command: &mut Command) {
    let none = SigSet::empty();
    // SAFETY: between fork and exec only a system call is made, which allocates nothing and takes no lock.
    unsafe {
        command.pre_exec(move || Ok(sigprocmask(SigmaskHow::SIG_SETMASK, Some(&none), None)?))
    };
}

/// Makes a command join control groups before it starts. These are their files, open for writing.
pub(crate) fn join_before_start(command: &mut Command, groups: Vec<File>) {
    let join = move || {
        for group in &groups {
            // 0 is the process that writes.
            nix::unistd::write(group, b"0")?;
        }
        Ok(())
    };
    // SAFETY: between fork and exec only system calls are made, which allocate nothing and take no lock. The files are open
    // as long as the command is there.
    unsafe { command.pre_exec(join) };
}

/// Sends a process a signal if a condition holds for its number. The signal goes to no other process, also when that one ends
/// meanwhile and another gets its number.
///
/// # Errors
/// `ESRCH`: it has ended. `ENOSYS`: the kernel is older than Linux 5.3.
pub(crate) fn signal_if(pid: Pid, signal: Signal, holds: impl Fn() -> bool) -> nix::Result<()> {
    let of_errno = |error: io::Error| error.raw_os_error().map_or(Errno::EBADF, Errno::from_raw);
    let file = open_process(pid.as_raw()).map_err(of_errno)?;
    // Looked at after the descriptor was made: if the number is another's by now, the descriptor's process has ended.
    if !holds() {
        return Ok(());
    }
    let no_details: *const libc::siginfo_t = null();
    // SAFETY: without details the kernel reads only numbers.
    let sent = unsafe {
        let (file, signal) = (file.as_raw_fd(), signal as c_int);
        libc::syscall(libc::SYS_pidfd_send_signal, file, signal, no_details, 0)
    };
    Errno::result(sent).map(drop)
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
