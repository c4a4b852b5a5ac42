//! Guard of a slot outside of a sandbox: ends whatever its routine has left, also what has left its session and group.
//!
//! ```text
//! server ── guard ── the slot's process ── what the routine starts
//! ```
//!
//! The kernel gives orphans among the guard's descendants to the guard (`PR_SET_CHILD_SUBREAPER`). When the slot's process has
//! ended, the guard kills them, and then ends as that process did: the server sees the same crash as without a guard. The
//! server orders the end by SIGTERM, since a guard that is killed can end nobody. The guard runs no code of the routine.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::prctl::{set_child_subreaper, set_dumpable, set_pdeathsig};
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::socket::{MsgFlags, send};
use nix::unistd::{Pid, dup2_stdin, getpid, getppid};

use crate::native::{Ended, end_as, reap, reap_ended};
use crate::slot_protocol::Reply;

/// The word that makes an executable of slots a guard. The server's process number, a program and its arguments follow.
pub const GUARD: &str = "--guard";

/// How long it waits before it looks again for a child that it did not see.
const AGAIN: Duration = Duration::from_millis(1);

/// Starts a slot's process and guards it. Does not return unless it fails before.
///
/// # Errors
/// The arguments are not a server's, or an error of the system. The server has been told if the program cannot be
/// started.
pub fn guard(arguments: impl IntoIterator<Item = OsString>) -> io::Result<()> {
    let mut arguments = arguments.into_iter();
    let server = arguments.next().and_then(|number| number.to_str()?.parse().ok());
    let (Some(server), Some(program)) = (server, arguments.next()) else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the server and a program"));
    };
    let mut awaited = SigSet::empty();
    awaited.add(Signal::SIGTERM);
    awaited.add(Signal::SIGCHLD);
    awaited.thread_block()?;
    set_child_subreaper(true)?;
    set_pdeathsig(Signal::SIGTERM)?;
    if getppid() != Pid::from_raw(server) {
        return Err(io::Error::new(io::ErrorKind::BrokenPipe, "the server has gone"));
    }
    // It ends as the slot's process does, but leaves no core. The routine may be of the same user.
    setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
    set_dumpable(false)?;
    let started = Command::new(&program).args(arguments).process_group(0).spawn();
    let child = started.map_err(|error| tell(&program, error))?;
    let slot = Pid::from_raw(child.id().cast_signed());
    // The server is to hear when the slot's process closes its end.
    dup2_stdin(std::fs::File::open("/dev/null")?)?;
    let ended = wait(slot, &awaited)?;
    end_descendants()?;
    end_as(ended)
}

/// Tells the server why the program cannot be started. Returns the error.
fn tell(program: &OsString, error: io::Error) -> io::Error {
    let text = format!("the process of a slot ({}) cannot be started: {error}", program.display());
    let reply = Reply::Failed(text).encode();
    match send(io::stdin().as_fd().as_raw_fd(), &reply, MsgFlags::MSG_NOSIGNAL) {
        Ok(_) => error,
        Err(errno) => errno.into(),
    }
}

/// Waits for the end of the slot's process, or ends it when the server says so.
fn wait(slot: Pid, awaited: &SigSet) -> io::Result<Ended> {
    loop {
        if awaited.wait()? == Signal::SIGTERM {
            kill(slot, Signal::SIGKILL)?;
        }
        while let Some((pid, ended)) = reap_ended()? {
            if pid == slot {
                return Ok(ended);
            }
        }
    }
}

/// Kills all children until there are none. The children of each are the guard's when it has ended.
fn end_descendants() -> io::Result<()> {
    loop {
        match reap_ended() {
            Err(Errno::ECHILD) => return Ok(()),
            Ok(Some(_)) => continue,
            ended => ended?,
        };
        let children = children()?;
        for child in &children {
            kill(*child, Signal::SIGKILL)?;
        }
        if children.is_empty() {
            std::thread::sleep(AGAIN);
        } else {
            match reap() {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// The children of this process that have not been waited for, so that their numbers are theirs.
fn children() -> io::Result<Vec<Pid>> {
    let own = getpid().to_string();
    let numbers = std::fs::read_dir("/proc")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    let is_own = |number: &i32| {
        // A process that has ended meanwhile is no child.
        std::fs::read(format!("/proc/{number}/stat")).is_ok_and(|stat| parent(&stat) == Some(&own))
    };
    Ok(numbers.filter(is_own).map(Pid::from_raw).collect())
}

/// The parent's number in the text of `/proc/PID/stat`. The name before it, in parentheses, may have any bytes.
fn parent(stat: &[u8]) -> Option<&str> {
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    str::from_utf8(&stat[end..]).ok()?.split(' ').nth(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_is_found_whatever_the_name_is() {
        assert_eq!(parent(b"7 (sh) S 5 7 7 0"), Some("5"));
        assert_eq!(parent(b"7 (a) R 9 (\xff b) S 5 7 7 0"), Some("5"));
        assert_eq!(parent(b"7 (sh"), None);
        assert_eq!(parent(b""), None);
    }
}
