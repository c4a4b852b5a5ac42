//! What the daemons say to the service manager that started them: that they are ready, and what they wait for.
//!
//! A service of `Type=notify` has a socket in `NOTIFY_SOCKET` (`sd_notify(3)`). Without one nobody wants to know.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::{ExitCode, Failure};

const VARIABLE: &str = "NOTIFY_SOCKET";

/// The daemon's sockets are open, and it hears signals.
pub fn ready() {
    say("READY=1");
}

/// What the daemon does or waits for, for `systemctl status`.
pub fn status(status: &str) {
    say(&format!("STATUS={}", one_line(status)));
}

/// The daemon was told to stop, and ends what it has.
pub fn stopping() {
    say("STOPPING=1");
}

/// What the service manager and users send. While nobody listens here, they end the daemon as they end any program.
#[derive(Debug)]
pub struct Signals {
    /// The daemon is to stop.
    pub terminate: Signal,
    /// The same, from a terminal.
    pub interrupt: Signal,
    /// Certificates are to be read anew.
    pub hangup: Signal,
}

impl Signals {
    /// Listens to them from now on.
    ///
    /// # Errors
    /// The system refuses.
    pub fn listen() -> Result<Self, Failure> {
        Ok(Self {
            terminate: hear(SignalKind::terminate())?,
            interrupt: hear(SignalKind::interrupt())?,
            hangup: hear(SignalKind::hangup())?,
        })
    }
}

/// Listens to one kind of signal.
///
/// # Errors
/// The system refuses.
pub fn hear(kind: SignalKind) -> Result<Signal, Failure> {
    signal(kind).map_err(|error| {
        Failure::new(ExitCode::Internal, format!("signals cannot be received: {error}"))
    })
}

/// Lines are assignments.
fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

fn say(message: &str) {
    let Some(name) = std::env::var_os(VARIABLE) else { return };
    if let Err(error) = address(Path::new(&name)).and_then(|to| send(&to, message)) {
        tracing::warn!(%error, socket = %name.display(), "the service manager does not hear this daemon");
    }
}

/// A path, or behind `@` a name that is in no file system.
fn address(name: &Path) -> io::Result<SocketAddr> {
    match name.as_os_str().as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        _ => SocketAddr::from_pathname(name),
    }
}

fn send(to: &SocketAddr, message: &str) -> io::Result<()> {
    let socket = UnixDatagram::unbound()?;
    // A manager that hangs must not hold up the daemon.
    socket.set_nonblocking(true)?;
    socket.send_to_addr(message.as_bytes(), to).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(socket: &UnixDatagram) -> String {
        let mut buffer = [0; 256];
        let length = socket.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    }

    #[test]
    fn both_kinds_of_sockets_are_reached() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let in_files = UnixDatagram::bind(&path).unwrap();
        send(&address(&path).unwrap(), "READY=1").unwrap();
        assert_eq!(received(&in_files), "READY=1");
        let name = format!("@kumi-test-{}", std::process::id());
        let own = address(Path::new(&name)).unwrap();
        let abstract_one = UnixDatagram::bind_addr(&own).unwrap();
        send(&own, "STOPPING=1").unwrap();
        assert_eq!(received(&abstract_one), "STOPPING=1");
    }

    #[test]
    fn a_socket_that_is_gone_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        assert!(send(&address(&path).unwrap(), "READY=1").is_err());
    }

    #[test]
    fn a_status_is_one_line() {
        assert_eq!(one_line("waits\nREADY=1"), "waits READY=1");
    }
}
