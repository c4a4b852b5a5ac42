//! What a connection's bytes go over: a socket, or TLS on one.

use std::collections::VecDeque;
use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{Shutdown, getsockopt, shutdown, sockopt};
use nix::unistd::geteuid;

use super::{CallError, Options};
use crate::native::{self, Source, Target};
use crate::tls::{self, TlsSession};

/// A socket that waits, and what is spoken on it.
#[derive(Debug)]
pub struct Wire {
    socket: OwnedFd,
    /// Held only while nothing is waited for: who reads and who writes take turns.
    secured: Option<Mutex<TlsSession>>,
    /// The process that connected.
    process: u32,
    /// Its port, if it is a TCP connection to this machine.
    here: Option<u16>,
    /// Descriptors that have come, if any may come.
    passed: Option<Mutex<VecDeque<OwnedFd>>>,
}

/// The time that is left, as `poll` wants it.
fn left(deadline: Option<Instant>) -> PollTimeout {
    let Some(deadline) = deadline else { return PollTimeout::NONE };
    let left = deadline.saturating_duration_since(Instant::now());
    // Rounded up, so that it does not end a little too early again and again.
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

    /// Over a Unix socket, through which memory may come.
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

    /// Connects to the server on this machine that is found by this. It is given what this process says to the other
    /// server only if it is nobody else's: of this process's user, or of the system's.
    ///
    /// # Errors
    /// There is none, or it is somebody else's.
    pub fn nearby(secret: &[u8; 16]) -> io::Result<Wire> {
        let socket = crate::nearby::connect(secret)?;
        let user = getsockopt(&socket, sockopt::PeerCredentials)?.uid();
        if user != 0 && user != geteuid().as_raw() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        Ok(Wire::unix(socket, true))
    }

    /// Whether nothing is encrypted.
    pub fn is_plain(&self) -> bool {
        self.secured.is_none()
    }

    /// Its port, if it is a TCP connection to this machine.
    pub fn here(&self) -> Option<u16> {
        self.here
    }

    /// How many descriptors have come that nobody has taken.
    pub fn descriptors(&self) -> usize {
        self.passed.as_ref().map_or(0, |passed| Wire::queue(passed).len())
    }

    /// The first of them.
    pub fn descriptor(&self) -> Option<OwnedFd> {
        self.passed.as_ref().and_then(|passed| Wire::queue(passed).pop_front())
    }

    fn queue(passed: &Mutex<VecDeque<OwnedFd>>) -> MutexGuard<'_, VecDeque<OwnedFd>> {
        passed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(secured: &Mutex<TlsSession>) -> MutexGuard<'_, TlsSession> {
        // Who panicked has left a session that fails, at worst.
        secured.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Agrees with the server on how to encrypt; it is who it should be when this is done.
    fn agree(&self, deadline: Option<Instant>) -> io::Result<()> {
        let Some(secured) = &self.secured else { return Ok(()) };
        let mut secured = Wire::lock(secured);
        loop {
            match secured.agree(self.as_fd()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    // What is said first is short: only the answer is ever waited for.
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

    /// Writes as much of the pieces as can be without waiting; the number of bytes.
    pub fn write<'a>(&self, pieces: impl Iterator<Item = Source<'a>>) -> io::Result<usize> {
        match &self.secured {
            None => native::write(self.as_fd(), pieces),
            Some(secured) => Wire::lock(secured).write(self.as_fd(), pieces),
        }
    }

    /// Writes what was taken and is not on its way yet; `WouldBlock`: not all of it.
    pub fn flush(&self) -> io::Result<()> {
        let Some(secured) = &self.secured else { return Ok(()) };
        match Wire::lock(secured).flush(self.as_fd())? {
            true => Ok(()),
            false => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    /// Reads what has come into the target, and what is beyond it into `rest`; the number of bytes, 0 at the end. With
    /// `wait` it waits for the first.
    pub fn read(&self, target: Target<'_>, rest: &mut [u8], wait: bool) -> io::Result<usize> {
        let Some(secured) = &self.secured else {
            let Some(passed) = &self.passed else {
                return native::read(self.as_fd(), target, rest, wait);
            };
            let mut came = Vec::new();
            let read = native::read_with(self.as_fd(), target, rest, wait, Some(&mut came));
            if !came.is_empty() {
                Wire::queue(passed).extend(came);
            }
            return read;
        };
        loop {
            let mut secured = Wire::lock(secured);
            let read = secured.read(self.as_fd(), target, rest);
            if secured.wants_write() {
                // New keys are acknowledged; what the socket does not take now goes before whatever is written next.
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

    /// Waits until it can be read or written; false: the time is over.
    pub fn ready(&self, flags: PollFlags, deadline: Option<Instant>) -> io::Result<bool> {
        if flags.contains(PollFlags::POLLIN) && self.has_input() {
            return Ok(true);
        }
        Ok(poll(&mut [PollFd::new(self.as_fd(), flags)], left(deadline))? > 0)
    }

    /// Whether there is something to read though nothing more may come.
    pub fn has_input(&self) -> bool {
        self.secured.as_ref().is_some_and(|secured| Wire::lock(secured).has_input())
    }

    /// Ends it; whoever waits in a read wakes up.
    pub fn shut(&self) {
        if let Some(secured) = &self.secured {
            Wire::lock(secured).close(self.as_fd());
        }
        // One that has ended already is shut.
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
        // A fork of the process says nothing, since the connection is not its own.
        if let Some(secured) = &mut self.secured
            && self.process == std::process::id()
        {
            let secured = secured.get_mut().unwrap_or_else(PoisonError::into_inner);
            secured.close(self.socket.as_fd());
        }
    }
}
