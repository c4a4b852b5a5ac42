//! Byte transport of a client's connection: a socket, or TLS over a socket.

use std::collections::VecDeque;
use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{Shutdown, getsockopt, shutdown, sockopt};
use nix::unistd::geteuid;

use super::super::{CallError, Options, locked};
use crate::native::{self, Source, Target};
use crate::tls::{self, TlsSession};

/// A blocking socket, with TLS if it is encrypted.
#[derive(Debug)]
pub struct Wire {
    socket: OwnedFd,
    /// Held only for operations that do not block; reader and writer take turns.
    secured: Option<Mutex<TlsSession>>,
    /// The process that connected.
    process: u32,
    /// The server's port, if this is a TCP connection within this machine.
    here: Option<u16>,
    /// File descriptors that have arrived. `None`: the transport passes none.
    passed: Option<Mutex<VecDeque<OwnedFd>>>,
}

/// The remaining time as `poll` takes it.
fn left(deadline: Option<Instant>) -> PollTimeout {
    let Some(deadline) = deadline else { return PollTimeout::NONE };
    let left = deadline.saturating_duration_since(Instant::now());
    // Rounded up, so that `poll` does not return slightly too early again and again.
    let left = left.as_millis().saturating_add(u128::from(left.subsec_nanos() > 0));
    PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
}

/// Connects to `HOST:PORT`.
fn tcp(address: &str, bare: &str, time: Duration) -> Result<TcpStream, CallError> {
    let failed = |source| CallError::Connect { address: address.to_owned(), source };
    if !bare.contains(':') {
        return Err(CallError::Address(address.to_owned()));
    }
    let mut error = io::Error::from(io::ErrorKind::NotFound);
    for candidate in bare.to_socket_addrs().map_err(failed)? {
        match TcpStream::connect_timeout(&candidate, time) {
            Ok(stream) => {
                crate::tcp::prepare(&stream).map_err(failed)?;
                return Ok(stream);
            }
            Err(refused) => error = refused,
        }
    }
    Err(failed(error))
}

impl Wire {
    fn new(socket: OwnedFd, secured: Option<TlsSession>) -> Wire {
        let (secured, process) = (secured.map(Mutex::new), std::process::id());
        Wire { socket, secured, process, here: None, passed: None }
    }

    /// A Unix socket, over which the server may pass memory.
    fn unix(socket: UnixStream, passes: bool) -> Wire {
        let passed = passes.then(Mutex::default);
        let mut wire = Wire::new(socket.into(), None);
        wire.passed = passed;
        wire
    }

    /// Connects to `HOST:PORT`, `tls://HOST:PORT` or `unix:PATH`.
    pub fn open(
        address: &str,
        options: &Options,
        deadline: Option<Instant>,
    ) -> Result<Wire, CallError> {
        if let Some(path) = address.strip_prefix("unix:") {
            let socket = UnixStream::connect(path);
            let failed = |source| CallError::Connect { address: address.to_owned(), source };
            return Ok(Wire::unix(socket.map_err(failed)?, options.share_memory));
        }
        if let Some(bare) = address.strip_prefix("tls://") {
            let insecure = |text| CallError::Tls { address: address.to_owned(), text };
            let secured = tls::begin(tls::host(bare), options.ca.as_deref());
            let secured = secured.map_err(|error| insecure(error.to_string()))?;
            let socket = tcp(address, bare, options.connect_time)?;
            let wire = Wire::new(socket.into(), Some(secured));
            wire.agree(deadline).map_err(|error| insecure(tls::advice(&error)))?;
            return Ok(wire);
        }
        let bare = address.strip_prefix("kumi://").unwrap_or(address);
        let socket = tcp(address, bare, options.connect_time)?;
        let ends = (socket.local_addr(), socket.peer_addr());
        let here = match ends {
            (Ok(ours), Ok(theirs)) => {
                let is_here = theirs.ip().is_loopback() || theirs.ip() == ours.ip();
                is_here.then(|| ours.port())
            }
            _ => None,
        };
        let mut wire = Wire::new(socket.into(), None);
        wire.here = here;
        Ok(wire)
    }

    /// Connects to the local server with this socket name. The server must run as this process's user or as
    /// root, since it receives what this process sends.
    ///
    /// # Errors
    /// The socket does not exist, or belongs to another user.
    pub fn nearby(secret: &[u8; 16]) -> io::Result<Wire> {
        let socket = crate::nearby::connect(secret)?;
        let user = getsockopt(&socket, sockopt::PeerCredentials)?.uid();
        if user != 0 && user != geteuid().as_raw() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        Ok(Wire::unix(socket, true))
    }

    /// Whether the transport is unencrypted.
    pub fn is_plain(&self) -> bool {
        self.secured.is_none()
    }

    /// The server's port, if this is a TCP connection within this machine.
    pub fn here(&self) -> Option<u16> {
        self.here
    }

    /// Number of file descriptors that have arrived and were not taken.
    pub fn descriptors(&self) -> usize {
        self.passed.as_ref().map_or(0, |passed| locked(passed).len())
    }

    /// The first of them.
    pub fn descriptor(&self) -> Option<OwnedFd> {
        self.passed.as_ref().and_then(|passed| locked(passed).pop_front())
    }

    /// Finishes the TLS handshake. Afterwards the server's identity is proved.
    fn agree(&self, deadline: Option<Instant>) -> io::Result<()> {
        let Some(secured) = &self.secured else { return Ok(()) };
        let mut secured = locked(secured);
        loop {
            match secured.agree(self.as_fd()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    // The first message is short, so only the answer is waited for.
                    let mut polled = [PollFd::new(self.as_fd(), PollFlags::POLLIN)];
                    match poll(&mut polled, left(deadline)) {
                        Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
                        Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                        Err(errno) => return Err(errno.into()),
                    }
                }
                other => return other,
            }
        }
    }

    /// Writes as much as the socket takes without waiting. Returns the number of bytes.
    pub fn write<'a>(&self, pieces: impl Iterator<Item = Source<'a>>) -> io::Result<usize> {
        match &self.secured {
            None => native::write(self.as_fd(), pieces),
            Some(secured) => locked(secured).write(self.as_fd(), pieces),
        }
    }

    /// Sends buffered bytes. `WouldBlock`: some are left.
    pub fn flush(&self) -> io::Result<()> {
        let Some(secured) = &self.secured else { return Ok(()) };
        match locked(secured).flush(self.as_fd())? {
            true => Ok(()),
            false => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    /// Reads into `target`, and what is beyond it into `rest`. Returns the number of bytes, 0 at the end.
    /// With `wait`, waits for the first byte.
    pub fn read(&self, target: Target<'_>, rest: &mut [u8], wait: bool) -> io::Result<usize> {
        let Some(secured) = &self.secured else {
            let Some(passed) = &self.passed else {
                return native::read(self.as_fd(), target, rest, wait);
            };
            let mut came = Vec::new();
            let read = native::read_with(self.as_fd(), target, rest, wait, Some(&mut came));
            if !came.is_empty() {
                locked(passed).extend(came);
            }
            return read;
        };
        loop {
            let mut secured = locked(secured);
            let read = secured.read(self.as_fd(), target, rest);
            if secured.wants_write() {
                // TLS acknowledges new keys. What the socket does not take now goes out before the next
                // write.
                secured.flush(self.as_fd())?;
            }
            drop(secured);
            match read {
                Err(error) if wait && error.kind() == io::ErrorKind::WouldBlock => {
                    poll(&mut [PollFd::new(self.as_fd(), PollFlags::POLLIN)], PollTimeout::NONE)?;
                }
                other => return other,
            }
        }
    }

    /// Waits until the socket is ready; false: the time is over.
    pub fn ready(&self, flags: PollFlags, deadline: Option<Instant>) -> io::Result<bool> {
        if flags.contains(PollFlags::POLLIN) && self.has_input() {
            return Ok(true);
        }
        Ok(poll(&mut [PollFd::new(self.as_fd(), flags)], left(deadline))? > 0)
    }

    /// Whether decrypted input is waiting although the socket may have none.
    pub fn has_input(&self) -> bool {
        self.secured.as_ref().is_some_and(|secured| locked(secured).has_input())
    }

    /// Shuts the connection down, which wakes a thread that reads.
    pub fn shut(&self) {
        if let Some(secured) = &self.secured {
            locked(secured).close(self.as_fd());
        }
        // An error means that it is shut already.
        let _shut = shutdown(self.socket.as_raw_fd(), Shutdown::Both);
    }
}

impl AsFd for Wire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        // A forked process sends nothing, since the connection belongs to its parent.
        if let Some(secured) = &mut self.secured
            && self.process == std::process::id()
        {
            let secured = secured.get_mut().unwrap_or_else(PoisonError::into_inner);
            secured.close(self.socket.as_fd());
        }
    }
}

#[cfg(all(test, not(feature = "tls")))]
mod tests {
    use super::Wire;
    use crate::{CallError, Options};

    #[test]
    fn without_the_feature_an_address_of_tls_is_refused_and_nothing_is_sent() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = format!("tls://{}", listener.local_addr().unwrap());
        let refused = Wire::open(&address, &Options::default(), None).unwrap_err();
        assert!(matches!(&refused, CallError::Tls { .. }), "{refused}");
        assert!(refused.to_string().contains("built without TLS"), "{refused}");
        assert_eq!(listener.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    }
}
