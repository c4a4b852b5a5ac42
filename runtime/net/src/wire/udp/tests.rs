//! ICMP reports about a path, by messages made here, and refused runs.

use std::net::Ipv4Addr;
use std::os::fd::FromRawFd;

use super::*;

const HERE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 1);
const THERE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// ICMP's "destination unreachable", "time exceeded" and "parameter problem".
const UNREACHABLE: u8 = 3;
const TIME_EXCEEDED: u8 = 11;
const PARAMETER: u8 = 12;

/// A socket for messages of ICMP, if this process may have one.
fn icmp() -> Option<OwnedFd> {
    // SAFETY: no pointers.
    let raw = unsafe { libc::socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_ICMP) };
    // SAFETY: a descriptor that was just made.
    (raw >= 0).then(|| unsafe { OwnedFd::from_raw_fd(raw) })
}

/// Says to the socket at a port of this machine that what it sent to another did not get there.
fn tell(icmp: &OwnedFd, (kind, code): (u8, u8), from: u16, to: u16) {
    let mut message = vec![kind, code, 0, 0, 0, 0, 0, 0];
    // The packet it is about: headers of IPv4 and UDP.
    message.extend([0x45, 0, 0, 29, 0, 0, 0, 0, 64, libc::IPPROTO_UDP as u8, 0, 0]);
    message.extend(HERE.octets().into_iter().chain(THERE.octets()));
    message.extend([from.to_be_bytes(), to.to_be_bytes(), [0, 9], [0, 0]].concat());
    let mut sum: u32 =
        message.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    message[2..4].copy_from_slice(&(!sum as u16).to_be_bytes());
    let address = sys::raw_address(SocketAddrV4::new(HERE, 0));
    let length = size_of_val(&address) as libc::socklen_t;
    // SAFETY: pointers and lengths describe the message and the address.
    let sent = unsafe {
        let (start, bytes) = (message.as_ptr().cast(), message.len());
        libc::sendto(icmp.as_raw_fd(), start, bytes, 0, (&raw const address).cast(), length)
    };
    assert_eq!(sent, message.len() as isize, "{}", io::Error::last_os_error());
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
fn what_is_said_of_a_path_ends_nothing() {
    let Some(icmp) = icmp() else {
        let test = "what_is_said_of_a_path_ends_nothing";
        return kumi_skip::skip(test, "raw sockets are not permitted");
    };
    let (socket, port) = sys::bind_socket(HERE).expect("socket");
    let (other, there) = sys::bind_socket(THERE).expect("socket");
    let there = SocketAddrV4::new(THERE, there);
    let mut udp = UdpDriver::new(socket, Some(there)).expect("connect");
    let mut other = UdpDriver::new(other, Some(SocketAddrV4::new(HERE, port))).expect("connect");
    // Errors that a connected socket reports at any time; the others come only while it watches for
    // peers that have gone.
    let hard = [2, 3, 6, 7, 8, 9, 10, 13, 14, 15].map(|code| (UNREACHABLE, code));
    let soft = [0, 1, 5, 11, 12].map(|code| (UNREACHABLE, code));
    let others = [(PARAMETER, 0), (TIME_EXCEEDED, 0)];
    let always = hard.iter().chain(&others[..1]).map(|what| (false, *what));
    let watching = hard.iter().chain(&soft).chain(&others).map(|what| (true, *what));
    let mut watched = false;
    for (watch, what) in always.chain(watching) {
        if watch && !watched {
            udp.watch_for_gone().expect("watch");
            watched = true;
        }
        tell(&icmp, what, port, there.port());
        wait_for_error(&udp);
        assert!(!udp.receive().unwrap_or_else(|error| panic!("{what:?}: {error}")));
        // And told of by a send, which is tried again.
        while watch && udp.unreachable().is_some() {}
        tell(&icmp, what, port, there.port());
        wait_for_error(&udp);
        let sent = udp.send_once(false, |udp| udp.send_plain(&sys::raw_address(there), b"packet"));
        assert!(sent.unwrap_or_else(|error| panic!("{what:?}: {error}")), "{what:?}");
        assert!(other.receive().expect("it comes") && other.received().bytes == b"packet");
        // Only who says that nobody listens there says that a peer has gone.
        let gone = if watch { udp.unreachable() } else { None };
        assert_eq!(gone.is_some(), watch && what == (UNREACHABLE, 3), "{what:?}");
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
