//! Local sockets, by which clients find a server on their machine that they know by a TCP address.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};

use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, UnixAddr, getpeername, socket,
};

/// Random part of a local socket's name. Such names belong to a network namespace. Nobody else can have this
/// name while the server listens.
pub type Secret = [u8; 16];

/// The socket address for this secret.
///
/// # Errors
/// An error of the system.
pub fn address(secret: &Secret) -> io::Result<SocketAddr> {
    let digits: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
    SocketAddr::from_abstract_name(format!("kumi-call-{digits}"))
}

/// Connects to the server with this secret.
///
/// # Errors
/// There is no such server, or it does not accept at once.
pub fn connect(secret: &Secret) -> io::Result<UnixStream> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    let address = address(secret)?;
    let name = address.as_abstract_name().unwrap_or_default();
    nix::sys::socket::connect(socket.as_raw_fd(), &UnixAddr::new_abstract(name)?)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// The port at the other end of a TCP connection.
pub fn port_of_peer(socket: &OwnedFd) -> Option<u16> {
    let peer: SockaddrStorage = getpeername(socket.as_raw_fd()).ok()?;
    let (four, six) = (peer.as_sockaddr_in(), peer.as_sockaddr_in6());
    four.map(|it| it.port()).or_else(|| six.map(|it| it.port()))
}
