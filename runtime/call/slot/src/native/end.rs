//! How children end, and ends of this process that look the same.

use nix::errno::Errno;
use nix::sys::signal::{SigHandler, SigSet, Signal, raise, signal};
use nix::unistd::Pid;

/// How a process has ended, as the kernel says. It may be by a signal that has no name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ended(pub(super) libc::c_int);

/// Waits for the end of any child.
///
/// # Errors
/// `ECHILD`: there is none. `EINTR`: a signal came.
pub(crate) fn reap() -> nix::Result<(Pid, Ended)> {
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
    if libc::WIFSIGNALED(status)
        && let Ok(by) = Signal::try_from(libc::WTERMSIG(status))
    {
        end_by(by);
    }
    exit(libc::WEXITSTATUS(status))
}

/// Ends this process by a signal.
fn end_by(by: Signal) {
    // SAFETY: the default action is no function of this process.
    let _kill_has_none = unsafe { signal(by, SigHandler::SigDfl) };
    // No other: one that waits would come first.
    let mut allowed = SigSet::empty();
    allowed.add(by);
    let _allowed = allowed.thread_unblock();
    let _ended = raise(by);
}

/// Ends this process at once.
pub(super) fn exit(code: libc::c_int) -> ! {
    // SAFETY: nothing of this process is used afterwards. What a library has registered for its exit is the routine's.
    unsafe { libc::_exit(code) }
}
