//! Socket options of TCP connections, at both ends.

use std::io;
use std::os::fd::AsFd;

use nix::sys::socket::{setsockopt, sockopt};

/// Keep-alive: seconds of silence before the first probe, seconds between probes, and number of probes. So an
/// end that has vanished is found, and its resources are freed.
const IDLE: u32 = 30;
const PROBE_EVERY: u32 = 10;
const PROBES: u32 = 3;

/// Sets the options.
///
/// # Errors
/// The connection is closed.
pub fn prepare(socket: &impl AsFd) -> io::Result<()> {
    setsockopt(socket, sockopt::TcpNoDelay, &true)?;
    setsockopt(socket, sockopt::KeepAlive, &true)?;
    setsockopt(socket, sockopt::TcpKeepIdle, &IDLE)?;
    setsockopt(socket, sockopt::TcpKeepInterval, &PROBE_EVERY)?;
    setsockopt(socket, sockopt::TcpKeepCount, &PROBES)?;
    Ok(())
}
