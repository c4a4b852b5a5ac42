//! Questions to the kernel's tables of routes and neighbours, by route netlink.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};

use kumi_net::xdp::Mac;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, send,
    socket,
};

const NEW_ROUTE: u16 = 24;
const GET_ROUTE: u16 = 26;
const NEW_NEIGHBOUR: u16 = 28;
const GET_NEIGHBOUR: u16 = 30;
const ERROR: u16 = 2;
const REQUEST: u16 = 0x1;
const ACKNOWLEDGE: u16 = 0x4;
const CREATE: u16 = 0x400;
const IPV4: u8 = 2;
/// Attributes: where a route leads and to where, whose neighbour and its hardware address.
const DESTINATION: u16 = 1;
const OUT_INTERFACE: u16 = 4;
const GATEWAY: u16 = 5;
const HARDWARE: u16 = 2;
/// A route to another machine.
const UNICAST: u8 = 1;
/// States of a neighbour whose address may be used: permanent, no need to ask, reachable, probed, delayed, stale.
const USABLE: u16 = 0x80 | 0x40 | 0x02 | 0x10 | 0x08 | 0x04;
/// "I use it": the kernel finds the address out, or makes sure of it.
const USE: u8 = 1;
const HEADER: usize = 16;
/// Longest answer: one route or neighbour with its attributes.
const LONGEST: usize = 8192;

/// A socket for the questions.
#[derive(Debug)]
pub(super) struct Netlink {
    socket: OwnedFd,
    sequence: u32,
}

/// One message: its kind and what follows its header.
struct Answer {
    kind: u16,
    body: Vec<u8>,
}

fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the kernel's answer is malformed")
}

/// The first `N` bytes at `at`.
fn bytes<const N: usize>(from: &[u8], at: usize) -> Option<[u8; N]> {
    from.get(at..at.checked_add(N)?)?.try_into().ok()
}

/// The value of the first attribute of this kind, of those from `at` on.
fn attribute(body: &[u8], mut at: usize, wanted: u16) -> Option<&[u8]> {
    loop {
        let length = usize::from(u16::from_ne_bytes(bytes(body, at)?));
        let kind = u16::from_ne_bytes(bytes(body, at + 2)?);
        let value = body.get(at + 4..at.checked_add(length)?)?;
        if kind == wanted {
            return Some(value);
        }
        at += length.next_multiple_of(4).max(4);
    }
}

fn address_attribute(address: Ipv4Addr) -> [u8; 8] {
    let mut attribute = [0; 8];
    attribute[..2].copy_from_slice(&8u16.to_ne_bytes());
    attribute[2..4].copy_from_slice(&DESTINATION.to_ne_bytes());
    attribute[4..].copy_from_slice(&address.octets());
    attribute
}

/// Body of a message about a neighbour.
fn neighbour_body(address: Ipv4Addr, interface: u32, flags: u8) -> Vec<u8> {
    let mut body = vec![IPV4, 0, 0, 0];
    body.extend(interface.to_ne_bytes());
    body.extend([0, 0, flags, 0]);
    body.extend(address_attribute(address));
    body
}

impl Netlink {
    pub(super) fn open() -> io::Result<Netlink> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let (family, protocol) = (AddressFamily::Netlink, SockProtocol::NetlinkRoute);
        let socket = socket(family, SockType::Raw, flags, protocol)?;
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, 0))?;
        Ok(Netlink { socket, sequence: 0 })
    }

    /// Asks, and takes the one answer. The kernel answers before `send` returns.
    fn ask(&mut self, kind: u16, flags: u16, body: &[u8]) -> io::Result<Answer> {
        self.sequence = self.sequence.wrapping_add(1);
        let length = u32::try_from(HEADER + body.len()).map_err(|_| malformed())?;
        let mut message = Vec::from(length.to_ne_bytes());
        message.extend(kind.to_ne_bytes());
        message.extend((REQUEST | flags).to_ne_bytes());
        message.extend(self.sequence.to_ne_bytes());
        message.extend([0; 4]);
        message.extend(body);
        let raw = self.socket.as_raw_fd();
        send(raw, &message, MsgFlags::empty())?;
        loop {
            let mut room = [0; LONGEST];
            let got = recv(raw, &mut room, MsgFlags::empty())?;
            let answer = room.get(..got).ok_or_else(malformed)?;
            let sequence = bytes(answer, 8).map(u32::from_ne_bytes).ok_or_else(malformed)?;
            if sequence != self.sequence {
                // Of a question whose answer was not taken.
                continue;
            }
            let kind = bytes(answer, 4).map(u16::from_ne_bytes).ok_or_else(malformed)?;
            let body = answer.get(HEADER..).ok_or_else(malformed)?.to_vec();
            return Ok(Answer { kind, body });
        }
    }

    /// The next machine on the way to an address, if the way leads over this interface.
    ///
    /// # Errors
    /// The kernel's error.
    pub(super) fn next_hop(
        &mut self,
        to: Ipv4Addr,
        interface: u32,
    ) -> io::Result<Option<Ipv4Addr>> {
        let mut body = vec![IPV4, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        body.extend(address_attribute(to));
        let answer = self.ask(GET_ROUTE, 0, &body)?;
        if answer.kind != NEW_ROUTE || answer.body.get(7) != Some(&UNICAST) {
            // No route, or one to this machine itself.
            return Ok(None);
        }
        let out = attribute(&answer.body, 12, OUT_INTERFACE).and_then(|value| bytes(value, 0));
        if out.map(u32::from_ne_bytes) != Some(interface) {
            return Ok(None);
        }
        let gateway = attribute(&answer.body, 12, GATEWAY).and_then(|value| bytes::<4>(value, 0));
        Ok(Some(gateway.map_or(to, Ipv4Addr::from)))
    }

    /// The hardware address of a neighbour, if the kernel knows it now.
    ///
    /// # Errors
    /// The kernel's error.
    pub(super) fn neighbour(&mut self, hop: Ipv4Addr, interface: u32) -> io::Result<Option<Mac>> {
        let answer = self.ask(GET_NEIGHBOUR, 0, &neighbour_body(hop, interface, 0))?;
        if answer.kind != NEW_NEIGHBOUR {
            return Ok(None);
        }
        let state = bytes(&answer.body, 8).map(u16::from_ne_bytes).ok_or_else(malformed)?;
        let mac = attribute(&answer.body, 12, HARDWARE).and_then(|value| bytes(value, 0));
        Ok(mac.filter(|_| state & USABLE != 0))
    }

    /// Has the kernel find out a neighbour's hardware address, or make sure of it if that was long ago. Frames that go
    /// past its stack do not tell it that it is in use.
    ///
    /// # Errors
    /// The kernel's error.
    pub(super) fn use_neighbour(&mut self, hop: Ipv4Addr, interface: u32) -> io::Result<()> {
        let body = neighbour_body(hop, interface, USE);
        let answer = self.ask(NEW_NEIGHBOUR, CREATE | ACKNOWLEDGE, &body)?;
        let code = bytes(&answer.body, 0).map(i32::from_ne_bytes).ok_or_else(malformed)?;
        match (answer.kind, code) {
            (ERROR, 0) => Ok(()),
            (ERROR, code) => Err(io::Error::from_raw_os_error(code.saturating_neg())),
            _ => Err(malformed()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_found_and_malformed_ones_end_the_search() {
        let body = [5, 0, 3, 0, 9, 0, 0, 0, 8, 0, 1, 0, 10, 0, 0, 7];
        assert_eq!(attribute(&body, 0, 3), Some(&[9][..]));
        assert_eq!(attribute(&body, 0, 1), Some(&[10, 0, 0, 7][..]));
        assert_eq!(attribute(&body, 0, 2), None);
        for at in 0..body.len() {
            // Never beyond the end, and never for ever.
            assert!(attribute(&body[..at], 0, 4).is_none());
        }
        assert_eq!(attribute(&[0; 64], 0, 1), None);
        assert_eq!(attribute(&[3, 0, 1, 0], 0, 1), None);
    }

    #[test]
    fn this_machine_is_not_reached_over_an_interface() {
        let mut netlink = Netlink::open().unwrap();
        let loopback = nix::net::if_::if_nametoindex("lo").unwrap();
        assert_eq!(netlink.next_hop(Ipv4Addr::LOCALHOST, loopback).unwrap(), None);
        assert_eq!(netlink.neighbour(Ipv4Addr::new(192, 0, 2, 1), loopback).unwrap(), None);
    }
}
