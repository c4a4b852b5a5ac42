//! TCP connections between daemons, with timeouts that keep them from hanging.
//!
//! A path may carry less than its ends believe, with a router in between whose messages about that ("fragmentation
//! needed") are lost. TCP then sends the same long segment over and over. So segments are short enough for
//! nearly every path from the start; a link of the tree that falls silent is made anew by those who talk over it; and a
//! peer that has vanished while nothing was to be said is found by probes. What stays unacknowledged breaks nothing
//! here (TCP_USER_TIMEOUT): the kernel counts data too that a reader takes its time with, such as a client whose output
//! waits in a pager.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;

use nix::sys::socket::{setsockopt, sockopt};
use tokio::net::{TcpSocket, TcpStream};

/// Bytes of data in a segment, at most: with the headers of IPv6 and TCP and TCP's options less than 1,280, which every
/// path of IPv6 carries, and those of IPv4 that are not made to be difficult.
const SEGMENT: u32 = 1_200;
/// A connection on which nothing was said for so many seconds is probed; then so often, so many times.
const IDLE: u32 = 5;
const PROBE_EVERY: u32 = 2;
const PROBES: u32 = 3;

/// Sets what a listening socket hands on to its connections, or a connection has before it is made.
///
/// # Errors
/// When the kernel knows none of it.
pub(crate) fn prepare(socket: &impl AsFd) -> io::Result<()> {
    setsockopt(socket, sockopt::TcpMaxSeg, &SEGMENT)?;
    setsockopt(socket, sockopt::KeepAlive, &true)?;
    setsockopt(socket, sockopt::TcpKeepIdle, &IDLE)?;
    setsockopt(socket, sockopt::TcpKeepInterval, &PROBE_EVERY)?;
    setsockopt(socket, sockopt::TcpKeepCount, &PROBES)?;
    Ok(())
}

/// Connects to a daemon.
///
/// # Errors
/// When nobody answers there.
pub(crate) async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    prepare(&socket)?;
    let stream = socket.connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::socket::getsockopt;
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
    use tokio::net::TcpListener;

    /// Both ends have all of it, the accepted one from its listener.
    #[tokio::test(flavor = "current_thread")]
    async fn both_ends_look_for_each_other_and_send_short_segments() {
        for ip in [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)] {
            let listener = TcpListener::bind((ip, 0)).await.unwrap();
            prepare(&listener).unwrap();
            let address = listener.local_addr().unwrap();
            let (called, accepted) = tokio::join!(connect(address), listener.accept());
            for end in [called.unwrap(), accepted.unwrap().0] {
                // The kernel takes the options of each segment off.
                let segment = getsockopt(&end, sockopt::TcpMaxSeg).unwrap();
                assert!((1_100..=SEGMENT).contains(&segment), "{segment}");
                assert!(getsockopt(&end, sockopt::KeepAlive).unwrap());
                assert_eq!(getsockopt(&end, sockopt::TcpKeepIdle).unwrap(), IDLE);
                assert_eq!(getsockopt(&end, sockopt::TcpKeepInterval).unwrap(), PROBE_EVERY);
                assert_eq!(getsockopt(&end, sockopt::TcpKeepCount).unwrap(), PROBES);
            }
        }
    }
}
