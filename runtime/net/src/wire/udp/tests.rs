//! ICMP reports about a path, by messages made here, and refused runs.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::FromRawFd;

use super::*;

/// Two addresses of this machine; ICMP of their family, and the reports that it makes.
struct Icmp {
    here: IpAddr,
    there: IpAddr,
    protocol: libc::c_int,
    /// Types and codes that a connected socket reports at any time.
    hard: Vec<(u8, u8)>,
    /// Those that come only while it watches for peers that have gone.
    soft: Vec<(u8, u8)>,
    /// "Nobody listens at that port".
    nobody: (u8, u8),
}

impl Icmp {
    fn v4() -> Icmp {
        // "Destination unreachable", "time exceeded" and "parameter problem".
        let (unreachable, time_exceeded, parameter) = (3, 11, 12);
        let all = |codes: &[u8]| codes.iter().map(|code| (unreachable, *code)).collect::<Vec<_>>();
        Icmp {
            here: Ipv4Addr::new(127, 0, 0, 1).into(),
            there: Ipv4Addr::new(127, 0, 0, 2).into(),
            protocol: libc::IPPROTO_ICMP,
            hard: [all(&[2, 3, 6, 7, 8, 9, 10, 13, 14, 15]), vec![(parameter, 0)]].concat(),
            soft: [all(&[0, 1, 5, 11, 12]), vec![(time_exceeded, 0)]].concat(),
            nobody: (unreachable, 3),
        }
    }

    fn v6() -> Icmp {
        let (unreachable, time_exceeded, parameter) = (1, 3, 4);
        Icmp {
            here: Ipv6Addr::LOCALHOST.into(),
            there: Ipv6Addr::LOCALHOST.into(),
            protocol: libc::IPPROTO_ICMPV6,
            hard: vec![(unreachable, 1), (unreachable, 4), (unreachable, 5), (parameter, 1)],
            soft: vec![(unreachable, 0), (unreachable, 2), (unreachable, 3), (time_exceeded, 0)],
            nobody: (unreachable, 4),
        }
    }

    /// A socket for its messages, if this process may have one.
    fn socket(&self) -> Option<OwnedFd> {
        let family = if self.here.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
        // SAFETY: no pointers.
        let raw = unsafe { libc::socket(family, libc::SOCK_RAW, self.protocol) };
        // SAFETY: a descriptor that was just made.
        (raw >= 0).then(|| unsafe { OwnedFd::from_raw_fd(raw) })
    }

    /// The packet that a message is about: headers of IP and UDP.
    fn packet(&self, from: u16, to: u16) -> Vec<u8> {
        let udp = libc::IPPROTO_UDP as u8;
        let mut packet = match (self.here, self.there) {
            (IpAddr::V4(here), IpAddr::V4(there)) => {
                let start = [0x45, 0, 0, 29, 0, 0, 0, 0, 64, udp, 0, 0];
                start.into_iter().chain(here.octets()).chain(there.octets()).collect::<Vec<_>>()
            }
            (IpAddr::V6(here), IpAddr::V6(there)) => {
                let start = [0x60, 0, 0, 0, 0, 9, udp, 64];
                start.into_iter().chain(here.octets()).chain(there.octets()).collect()
            }
            _ => unreachable!("both are of one family"),
        };
        packet.extend([from.to_be_bytes(), to.to_be_bytes(), [0, 9], [0, 0]].concat());
        packet
    }

    /// Says to the socket at a port of this machine that what it sent to another did not get there.
    fn tell(&self, icmp: &OwnedFd, (kind, code): (u8, u8), from: u16, to: u16) {
        let mut message = vec![kind, code, 0, 0, 0, 0, 0, 0];
        message.extend(self.packet(from, to));
        // The kernel computes the sum of ICMPv6.
        if self.here.is_ipv4() {
            let pairs = message.chunks(2);
            let mut sum: u32 =
                pairs.map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
            while sum > 0xffff {
                sum = (sum & 0xffff) + (sum >> 16);
            }
            message[2..4].copy_from_slice(&(!sum as u16).to_be_bytes());
        }
        let address = RawAddress::new((self.here, 0).into());
        let (name, length) = address.as_raw();
        // SAFETY: pointers and lengths describe the message and the address.
        let sent = unsafe {
            let (start, bytes) = (message.as_ptr().cast(), message.len());
            libc::sendto(icmp.as_raw_fd(), start, bytes, 0, name, length)
        };
        assert_eq!(sent, message.len() as isize, "{}", io::Error::last_os_error());
    }
}

/// Waits until the kernel has an error for the socket.
fn wait_for_error(udp: &UdpDriver) {
    let mut poll = libc::pollfd { fd: udp.raw(), events: 0, revents: 0 };
    // SAFETY: one structure of our own.
    let ready = unsafe { libc::poll(&raw mut poll, 1, 10_000) };
    assert!(ready == 1 && poll.revents & libc::POLLERR != 0, "the kernel has not heard of it");
}

/// Everything that ICMP says of a way is "nothing came" and "lost"; afterwards packets go on.
#[test]
#[cfg_attr(miri, ignore = "there are no sockets")]
fn what_is_said_of_a_path_ends_nothing() {
    for says in [Icmp::v4(), Icmp::v6()] {
        let Some(icmp) = says.socket() else {
            let test = "what_is_said_of_a_path_ends_nothing";
            return kumi_skip::skip(test, "raw sockets are not permitted");
        };
        ends_nothing(&says, &icmp);
    }
}

fn ends_nothing(says: &Icmp, icmp: &OwnedFd) {
    let (socket, port) = sys::bind_socket((says.here, 0)).expect("socket");
    let (other, there) = sys::bind_socket((says.there, 0)).expect("socket");
    let there = SocketAddr::new(says.there, there);
    let mut udp = UdpDriver::new(socket, Some(there)).expect("connect");
    let mut other = UdpDriver::new(other, Some(SocketAddr::new(says.here, port))).expect("connect");
    let always = says.hard.iter().map(|what| (false, *what));
    let watching = says.hard.iter().chain(&says.soft).map(|what| (true, *what));
    let mut watched = false;
    for (watch, what) in always.chain(watching) {
        if watch && !watched {
            udp.watch_for_gone().expect("watch");
            watched = true;
        }
        says.tell(icmp, what, port, there.port());
        wait_for_error(&udp);
        assert!(!udp.receive().unwrap_or_else(|error| panic!("{what:?}: {error}")));
        // And told of by a send, which is tried again.
        while watch && udp.unreachable().is_some() {}
        says.tell(icmp, what, port, there.port());
        wait_for_error(&udp);
        let sent = udp.send_once(false, |udp| udp.send_plain(&RawAddress::new(there), b"packet"));
        assert!(sent.unwrap_or_else(|error| panic!("{what:?}: {error}")), "{what:?}");
        assert!(other.receive().expect("it comes") && other.received().bytes == b"packet");
        // Only who says that nobody listens there says that a peer has gone.
        let gone = if watch { udp.unreachable() } else { None };
        assert_eq!(gone, (watch && what == says.nobody).then_some(there), "{what:?}");
        while watch && udp.unreachable().is_some() {}
    }
}

/// A route may be away for a moment, and a firewall may say no: losses.
#[test]
fn errors_are_sorted() {
    for code in [libc::EHOSTDOWN, libc::ENONET, libc::ENOPROTOOPT, libc::EPROTO, libc::EACCES] {
        assert!(is_of_path(code), "{}", io::Error::from_raw_os_error(code));
    }
    for code in [libc::EBADF, libc::ENOTSOCK, libc::EFAULT, libc::EMSGSIZE] {
        assert!(!is_of_path(code), "{}", io::Error::from_raw_os_error(code));
    }
}

#[test]
fn runs_are_given_up_only_where_they_never_leave() {
    let error = |code| io::Error::from_raw_os_error(code);
    let mut runs = OffloadState::default();
    // Perhaps the packets were too long, or did not leave singly either.
    (0..100).for_each(|_| runs.refused(&error(libc::EIO), false));
    runs.refused(&error(libc::EOPNOTSUPP), false);
    assert!(runs.are_tried());
    // Now and then.
    for turn in 0..100 {
        runs.refused(&error(libc::EINVAL), true);
        if turn % 5 == 0 {
            runs.left(&Ok(true));
        }
        runs.left(&Ok(false));
        assert!(runs.are_tried());
    }
    runs.left(&Ok(true));
    (1..RUNS_REFUSED).for_each(|_| runs.refused(&error(libc::EIO), true));
    assert!(runs.are_tried());
    runs.refused(&error(libc::EIO), true);
    assert!(!runs.are_tried(), "again and again");
    let mut runs = OffloadState::default();
    runs.refused(&error(libc::EOPNOTSUPP), true);
    assert!(!runs.are_tried(), "the kernel does not know them");
}
