//! A PID namespace of a slot's process.
//!
//! ```text
//! server ── guard (the server's child) ── init (number 1) ── the routine's process (number 2)
//! ```
//!
//! Who has number 1 in a namespace gets no signal that it does not handle, not even its own SIGABRT. So an init stands
//! between. When the routine's process ends, init ends, and the kernel kills whatever else is in the namespace, also
//! what has left its session and process group. The guard then ends in the way that the routine's process did, so the
//! server sees the same crash as without a namespace. Guard and init run no code of the routine.

use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;

use nix::errno::Errno;
use nix::sys::prctl::{set_dumpable, set_pdeathsig};
use nix::sys::signal::Signal;
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, fork, getppid, pipe};

use super::end::{Ended, end_as, exit, reap};

/// Checks that this process has one thread: a fork of others would find locks that nobody gives back.
///
/// # Errors
/// It has more.
pub(crate) fn one_thread() -> io::Result<()> {
    match std::fs::read_dir("/proc/self/task")?.count() {
        1 => Ok(()),
        threads => Err(io::Error::other(format!(
            "the process has {threads} threads before it can be confined: a library that its executable is linked with, or a \
             module that Python loads at its start, has started them"
        ))),
    }
}

/// Goes on as a process of the PID namespace that `unshare` has made for children of this process. This process is the
/// only thread. It stays behind as the guard and never returns.
///
/// # Errors
/// An error of the system.
pub(crate) fn enter_pid_namespace() -> io::Result<()> {
    one_thread()?;
    let (ends, end) = pipe()?;
    // SAFETY: this process has one thread, as was looked at, so the copy finds no lock held by another.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => {
            drop(end);
            guard(child, ends)
        }
        ForkResult::Child => {
            drop(ends);
            begin_init(end)
        }
    }
}

/// Waits for init and ends as the routine's process did.
fn guard(init: Pid, ends: OwnedFd) -> ! {
    let mut status = [0; 4];
    let told = std::fs::File::from(ends).read_exact(&mut status);
    while waitpid(init, None) == Err(Errno::EINTR) {}
    if told.is_err() {
        exit(1);
    }
    end_as(Ended(libc::c_int::from_ne_bytes(status)))
}

/// The process with number 1: starts the routine's process, which returns, and waits for it.
fn begin_init(end: OwnedFd) -> io::Result<()> {
    // The guard may have ended before this; then its number, which is outside, is 0 in either case.
    set_pdeathsig(Signal::SIGKILL)?;
    // SAFETY: as above: one thread.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => {
            // The routine may be of the same user.
            if set_dumpable(false).is_err() {
                exit(1);
            }
            init(child, end)
        }
        ForkResult::Child => {
            drop(end);
            set_pdeathsig(Signal::SIGKILL)?;
            if getppid() != Pid::from_raw(1) {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            Ok(())
        }
    }
}

/// Reaps all processes of the namespace until that of the routine has ended, and tells the guard how.
fn init(routine: Pid, end: OwnedFd) -> ! {
    let status = loop {
        match reap() {
            Ok((pid, ended)) if pid == routine => break ended.0,
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => exit(1),
        }
    };
    let _guard_gone = std::fs::File::from(end).write_all(&status.to_ne_bytes());
    exit(0)
}
