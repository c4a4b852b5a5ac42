//! `kumi-pmi-server`: the process on each node of a job that tells the ranks of an MPI program who they are. A node's daemon
//! starts it as the job's user; it is not for people.
//!
//! It speaks PMI-1 and PMI-2 on sockets that ranks inherit, and PMIx through `libpmix`, which runs here and not in the
//! daemon: what ranks send is read with the rights that ranks have anyway.

mod ffi;
mod info;
mod library;
mod pmix;
mod server;

use std::os::fd::{FromRawFd, OwnedFd};
use std::process::ExitCode;

fn main() -> ExitCode {
    let given = std::env::args().nth(1).and_then(|text| text.parse::<i32>().ok());
    let Some(fd) = given.filter(|&fd| fd > 2) else {
        eprintln!("kumi-pmi-server is started by kumid, not by people");
        return ExitCode::from(64);
    };
    // SAFETY: the daemon let this process inherit the descriptor for this purpose; nothing else here uses it.
    let door = unsafe { OwnedFd::from_raw_fd(fd) };
    match server::run(door) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("kumi-pmi-server: {error}");
            ExitCode::FAILURE
        }
    }
}
