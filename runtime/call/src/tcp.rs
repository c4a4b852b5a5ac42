//! What connections over TCP are set to, at both ends.

use std::io;
use std::os::fd::AsFd;

use nix::sys::socket::{setsockopt, sockopt};

/// A connection on which nothing was said for so many seconds is probed; then so often, so many times. So an end that
/// has vanished without a word is found, and what is held for it is freed.
const IDLE: u32 = 30;
const PROBE_EVERY: u32 = 10;
const PROBES: u32 = 3;

/// Sets it.
///
/// # Errors
/// The connection has gone.
pub(crate) fn prepare(socket: &impl AsFd) -> io::Result<()> {
    setsockopt(socket, sockopt::TcpNoDelay, &true)?;
    setsockopt(socket, sockopt::KeepAlive, &true)?;
    setsockopt(socket, sockopt::TcpKeepIdle, &IDLE)?;
    setsockopt(socket, sockopt::TcpKeepInterval, &PROBE_EVERY)?;
    setsockopt(socket, sockopt::TcpKeepCount, &PROBES)?;
    Ok(())
}
