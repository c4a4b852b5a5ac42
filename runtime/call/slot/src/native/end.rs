//! How children end, and ends of this process that look the same.

use nix::errno::Errno;
use nix::unistd::Pid;

/// How a process has ended, as the kernel says. It may be by a signal that has no name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ended(pub(super) libc::c_int);

/// Waits for the end of any child.
///
/// # Errors
/// `ECHILD`: there is none. `EINTR`: a signal came.
pub(super) fn reap() -> nix::Result<(Pid, Ended)> {
    let (ended, status) = wait_for_any(0)?;
    Ok((Pid::from_raw(ended), Ended(status)))
}

/// A child that has ended. `None`: none has.
///
/// # Errors
/// `ECHILD`: there is none.
pub(crate) fn reap_ended() -> nix::Result<Option<(Pid, Ended)>> {
    let (ended, status) = wait_for_any(libc::WNOHANG)?;
    Ok((ended != 0).then(|| (Pid::from_raw(ended), Ended(status))))
}

fn wait_for_any(flags: libc::c_int) -> nix::Result<(libc::pid_t, libc::c_int)> {
    let mut status = 0;
    // SAFETY: the place for the status is this function's own.
    let ended = unsafe { libc::waitpid(-1, &raw mut status, flags) };
    Errno::result(ended).map(|ended| (ended, status))
}

/// Ends this process as another has ended.
pub(crate) fn end_as(Ended(status): Ended) -> ! {
    if libc::WIFSIGNALED(status) {
        let by = libc::WTERMSIG(status);
        end_by(by);
        // As a shell tells a signal.
        exit(128 + by)
    }
    exit(libc::WEXITSTATUS(status))
}

/// Ends this process by a signal. It may be one of the real-time signals, for which there are no names.
fn end_by(by: libc::c_int) {
    // No other is allowed: one that waits would come first. Those that the C library keeps for itself are never blocked.
    // SAFETY: the default action is no function of this process, and the set is this function's own.
    unsafe {
        libc::signal(by, libc::SIG_DFL);
        let mut allowed: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut allowed);
        libc::sigaddset(&raw mut allowed, by);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const allowed, std::ptr::null_mut());
        libc::raise(by);
    }
}

/// Ends this process at once.
pub(super) fn exit(code: libc::c_int) -> ! {
    // SAFETY: nothing of this process is used afterwards. What a library has registered for its exit is the routine's.
    unsafe { libc::_exit(code) }
}
