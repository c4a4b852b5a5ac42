//! The process of a call slot: it opens the libraries of one routine and runs one call after the other.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use kumi_idl::Interface;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::Signal;
use nix::unistd::{dup, dup2_stdin, dup2_stdout};

use crate::native::{
    Arena, Routine, open_line, receive_with_descriptor, routine_runs, send_with_descriptor,
};
use crate::protocol::{MOST, Order, Reply, Setup};

/// Runs until the server closes the socket, which is this process's standard input.
///
/// # Errors
/// The socket fails, or the server says what this version does not know.
pub fn run() -> io::Result<()> {
    // The server's end is the end of a slot, whatever the routine does.
    set_pdeathsig(Signal::SIGKILL)?;
    let socket = take_socket()?;
    let mut arenas = HashMap::new();
    let mut routine = None;
    let mut buffer = vec![0; MOST];
    loop {
        let (length, descriptor) = receive_with_descriptor(socket.as_fd(), &mut buffer, true)?;
        if length == 0 {
            return Ok(());
        }
        let order = Order::decode(&buffer[..length]).ok_or(io::ErrorKind::InvalidData)?;
        let reply = match order {
            Order::Map(number, bytes) => {
                let file: OwnedFd = descriptor.ok_or(io::ErrorKind::InvalidData)?;
                let bytes = usize::try_from(bytes).map_err(|_| io::ErrorKind::OutOfMemory)?;
                arenas.insert(number, Arena::of(file, bytes)?);
                continue;
            }
            Order::Unmap(number) => {
                arenas.remove(&number);
                continue;
            }
            Order::SetUp(number, bytes) => {
                let arena = arenas.get(&number).ok_or(io::ErrorKind::InvalidData)?;
                match set_up(&arena.read(0, usize::try_from(bytes).unwrap_or(0))) {
                    Ok((loaded, callback)) => {
                        routine = Some(loaded);
                        open_line(socket.try_clone()?, callback);
                        Reply::Done(0)
                    }
                    Err(why) => Reply::Failed(why),
                }
            }
            // Only a function of the client returns, and its caller waits for that.
            Order::Return(_) => return Err(io::ErrorKind::InvalidData.into()),
            Order::Run(number, slots) => {
                let arena = arenas.get(&number).ok_or(io::ErrorKind::InvalidData)?;
                let routine = routine.as_ref().ok_or(io::ErrorKind::InvalidData)?;
                let begin = Instant::now();
                routine_runs(true);
                routine.call(arena, &slots);
                routine_runs(false);
                Reply::Done(u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX))
            }
        };
        send_with_descriptor(socket.as_fd(), &reply.encode(), None)?;
    }
}

/// Takes the socket away from standard input, so that no routine reads from it, and what routines print to where
/// their errors go.
fn take_socket() -> io::Result<OwnedFd> {
    let socket = dup(io::stdin())?;
    fcntl(&socket, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    dup2_stdin(File::open("/dev/null")?)?;
    dup2_stdout(io::stderr())?;
    Ok(socket)
}

/// The routine, and most bytes of a call of a client's function.
fn set_up(json: &[u8]) -> Result<(Routine, u64), String> {
    let setup: Setup = serde_json::from_slice(json).map_err(|error| error.to_string())?;
    let interface =
        Interface::from_json(setup.interface.as_bytes()).map_err(|error| error.to_string())?;
    let limit = |resource, most| {
        setrlimit(resource, most, most).map_err(|error| format!("a limit cannot be set: {error}"))
    };
    limit(Resource::RLIMIT_CORE, 0)?;
    if setup.memory > 0 {
        limit(Resource::RLIMIT_AS, setup.memory)?;
    }
    let routine = Routine::load(&interface, &setup.libraries);
    routine.map(|routine| (routine, setup.callback)).map_err(|error| error.to_string())
}
