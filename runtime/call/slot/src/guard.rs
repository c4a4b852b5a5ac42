//! Guard of a slot outside of a sandbox: ends whatever its routine has left, also what has left its session and group.
//!
//! ```text
//! server ── guard ── the slot's process ── what the routine starts
//! ```
//!
//! The kernel gives orphans among the guard's descendants to the guard (`PR_SET_CHILD_SUBREAPER`). When the slot's process has
//! ended, the guard ends them ([`descendants`]), and then ends as that process did: the server sees the same crash as without a
//! guard. The server orders the end by SIGTERM, since a guard that is killed can end nobody. The guard runs no code of the
//! routine.

mod descendants;

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::prctl::{set_child_subreaper, set_dumpable, set_pdeathsig};
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::socket::{MsgFlags, send};
use nix::unistd::{Pid, dup2_stdin, getppid};

use crate::native::{Ended, end_as, join_before_start, reap_ended, start_unblocked};
use crate::slot_protocol::Reply;

/// The word that makes an executable of slots a guard. The [words](crate::join::words) of the slot's control groups, the
/// server's process number, the seconds that children have to end by themselves, a program and its arguments follow.
pub const GUARD: &str = "--guard";

/// Seconds that the children of a proxy of parallel routines have: it starts `kumi run`, which gets SIGTERM when the proxy
/// ends, and then ends its job.
pub const PROXY_SECONDS: u64 = 5;

/// How long a guard tries to end what a routine has left. A process that hangs in the kernel cannot be ended.
pub const MOST: Duration = Duration::from_secs(10);

/// Starts a slot's process and guards it. Does not return unless it fails before.
///
/// # Errors
/// The arguments are not a server's, or an error of the system. The server has been told if the program cannot be
/// started.
pub fn guard(arguments: impl IntoIterator<Item = OsString>) -> io::Result<()> {
    let mut arguments = arguments.into_iter();
    // The guard itself stays outside: what ends the groups leaves it to say how the slot's process ended.
    let groups = crate::join::files(&mut arguments);
    let server = arguments.next().and_then(|number| number.to_str()?.parse().ok());
    let seconds = arguments.next().and_then(|number| number.to_str()?.parse().ok());
    let (Some(server), Some(seconds), Some(program)) = (server, seconds, arguments.next()) else {
        let text = "the server, seconds and a program are missing";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
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
    let mut command = Command::new(&program);
    command.args(arguments).process_group(0);
    // What the guard waits for, the routine and its children are to get.
    start_unblocked(&mut command);
    join_before_start(&mut command, groups.map_err(|error| tell(&program, error))?);
    let child = command.spawn().map_err(|error| tell(&program, error))?;
    // It holds the files of groups.
    drop(command);
    let slot = Pid::from_raw(child.id().cast_signed());
    // The server is to hear when the slot's process closes its end.
    dup2_stdin(std::fs::File::open("/dev/null")?)?;
    let ended = wait(slot, &awaited)?;
    let done = descendants::wait(Duration::from_secs(seconds))
        .and_then(|()| descendants::end(Instant::now() + MOST));
    if let Err(error) = done {
        // The server logs it. It is to hear of the end all the same.
        eprintln!("processes that a routine has left go on: {error}");
    }
    end_as(ended)
}

/// Tells the server why the program cannot be started. Returns the error.
pub(crate) fn tell(program: &OsString, error: io::Error) -> io::Error {
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
