//! What an attacker on the wire sees and sends.

use kumi_tests::faults::within;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, recv, sendto,
    setsockopt, socket, sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

/// Longest datagram of a wire with an MTU of 1,500.
pub const DATAGRAM: usize = 1_472;
/// Datagrams that the attacker keeps, to send old ones too.
const KEPT: usize = 64;
/// The attacker's own port; those of ranks are not that low.
const PORT: u16 = 4_242;
/// The identification of frames that a rank has sent by AF_XDP: marked ones go to the ring of a rank that has it.
const MARK: u16 = 0x6b78;

/// A packet of the channel protocol on the wire.
#[derive(Clone)]
struct Seen {
    from: SocketAddrV4,
    to: SocketAddrV4,
    packet: Vec<u8>,
}

/// Reads the wire at the cluster's switch, and sends from another node.
pub struct Attacker {
    stop: Arc<AtomicBool>,
    tap: JoinHandle<()>,
    attack: JoinHandle<u64>,
}

impl Attacker {
    /// It changes bits among the first `reach` bytes of a packet.
    pub fn start(switch: &str, node: &str, reach: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (give, take) = sync_channel(256);
        let stopped = Arc::clone(&stop);
        let tap = within(switch, move || listen(&stopped, &give));
        let attack = within(node, move || attack(&take, reach));
        Self { stop, tap, attack }
    }

    /// Ends it; how many packets it has sent.
    ///
    /// # Panics
    /// When it failed.
    pub fn finish(self) -> u64 {
        self.stop.store(true, Ordering::Release);
        self.tap.join().expect("the tap does not fail");
        self.attack.join().expect("the attacker does not fail")
    }
}

/// Hands on packets of ranks that pass the switch, as fast as the attacker takes them.
fn listen(stop: &AtomicBool, seen: &SyncSender<Seen>) {
    let everything = SockProtocol::EthAll;
    let tap = socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_CLOEXEC, everything);
    let tap = tap.expect("a packet socket");
    setsockopt(&tap, sockopt::ReceiveTimeout, &TimeVal::milliseconds(20)).expect("timeout");
    let mut frame = vec![0; 1 << 17];
    while !stop.load(Ordering::Acquire) {
        let Ok(length) = recv(tap.as_raw_fd(), &mut frame, MsgFlags::empty()) else { continue };
        // Ethernet 14 bytes, IPv4 20, UDP 8; protocol 17; the packet has `K` `U` at byte 4.
        let frame = &frame[..length];
        let Some(payload) = frame.get(42..).filter(|payload| payload.len() <= DATAGRAM) else {
            continue;
        };
        // What the attacker sends lives one hop; or it has its port.
        let own = frame[34..36] == PORT.to_be_bytes() || frame[22] == 1;
        if frame[23] != 17 || own || payload.get(4..6) != Some(b"KU") {
            continue;
        }
        let address = |at: usize, port: usize| {
            let [a, b, c, d] = [frame[at], frame[at + 1], frame[at + 2], frame[at + 3]];
            let port = u16::from_be_bytes([frame[port], frame[port + 1]]);
            SocketAddrV4::new(Ipv4Addr::new(a, b, c, d), port)
        };
        let (from, to) = (address(26, 34), address(30, 36));
        // What the attacker has no time for is not attacked.
        drop(seen.try_send(Seen { from, to, packet: payload.to_vec() }));
    }
}

/// Sends datagrams whose sender's address is forged.
struct Forger(OwnedFd);

impl Forger {
    fn new() -> Self {
        let flags = SockFlag::SOCK_CLOEXEC;
        let made = socket(AddressFamily::Inet, SockType::Raw, flags, SockProtocol::Raw);
        Self(made.expect("a raw socket"))
    }

    /// From whom and to whom `seen` says; the kernel fills in length and checksum of the IPv4 header. `spoil` changes the UDP
    /// header after its checksum was made.
    fn send(&self, seen: &Seen, mark: u16, packet: &[u8], spoil: impl FnOnce(&mut [u8])) -> bool {
        let addresses = [seen.from.ip().octets(), seen.to.ip().octets()].concat();
        let length = (8 + packet.len() as u16).to_be_bytes();
        let ports = [seen.from.port().to_be_bytes(), seen.to.port().to_be_bytes()].concat();
        let mut udp = [&ports[..], &length, &[0; 2]].concat();
        let sum = checksum(&[&addresses, &[0, 17], &length, &udp, packet]);
        udp[6..].copy_from_slice(&sum.to_be_bytes());
        spoil(&mut udp);
        let mark = mark.to_be_bytes();
        let header = [0x45, 0, 0, 0, mark[0], mark[1], 0x40, 0, 1, 17, 0, 0];
        let bytes = [&header[..], &addresses, &udp, packet].concat();
        let to = SockaddrIn::from(SocketAddrV4::new(*seen.to.ip(), 0));
        sendto(self.0.as_raw_fd(), &bytes, &to, MsgFlags::empty()).is_ok()
    }
}

/// The sum of 16-bit words by which UDP checks; all parts but the last have even lengths.
fn checksum(parts: &[&[u8]]) -> u16 {
    let words = parts.iter().flat_map(|part| part.chunks(2));
    let word = |word: &[u8]| u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0));
    let sum: u32 = words.map(word).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    match !((folded & 0xffff) + (folded >> 16)) as u16 {
        // 0 would say that there is none.
        0 => 0xffff,
        sum => sum,
    }
}

/// The packet with one bit of its first `reach` bytes changed.
fn with_bit_changed(packet: &[u8], at: usize, reach: usize) -> Vec<u8> {
    let mut changed = packet.to_vec();
    let bit = at % (8 * packet.len().min(reach));
    changed[bit / 8] ^= 1 << (bit % 8);
    changed
}

/// Sends again what was seen: as it was, old, to somebody else, cut, longer, of another version, with bits
/// changed among the first `reach` bytes, and noise. How many.
fn attack(seen: &Receiver<Seen>, reach: usize) -> u64 {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT)).expect("a socket");
    let forger = Forger::new();
    let mut kept: Vec<Seen> = Vec::new();
    let mut sent = 0;
    for (turn, seen) in seen.iter().enumerate() {
        let (to, packet) = (seen.to, &seen.packet);
        let mut send = |to: SocketAddrV4, bytes: &[u8]| {
            // A rank that has ended has no socket: the kernel says so at the next one.
            sent += u64::from(socket.send_to(bytes, to).is_ok());
        };
        send(to, packet);
        if let Some(old) = kept.get(turn % KEPT) {
            send(old.to, &old.packet);
            send(to, &old.packet);
        }
        send(to, &packet[..turn % packet.len()]);
        send(to, &[&packet[..], &[turn as u8; 9]].concat());
        let mut version = packet.clone();
        version[6] ^= 3;
        send(to, &version);
        for at in [turn, turn * 7 + 1, turn * 31 + 2] {
            send(to, &with_bit_changed(packet, at, reach));
        }
        let noise: Vec<u8> =
            packet.iter().map(|byte| byte.wrapping_mul(167) ^ turn as u8).collect();
        send(to, &noise);
        sent += forge(&forger, &seen, kept.get(turn % KEPT), turn, reach);
        if kept.len() < KEPT {
            kept.push(seen);
        } else {
            kept[turn % KEPT] = seen;
        }
    }
    sent
}

/// Sends as if from whom the packet came: unmarked, and marked as what goes by AF_XDP. How many.
fn forge(forger: &Forger, seen: &Seen, old: Option<&Seen>, turn: usize, reach: usize) -> u64 {
    let changed = with_bit_changed(&seen.packet, turn * 13 + 5, reach);
    let mut sent = 0;
    for mark in [0, MARK] {
        sent += u64::from(forger.send(seen, mark, &seen.packet, |_| ()));
        if let Some(old) = old {
            sent += u64::from(forger.send(old, mark, &old.packet, |_| ()));
        }
        sent += u64::from(forger.send(seen, mark, &changed, |_| ()));
    }
    // Length or checksum of the UDP header are wrong.
    for (at, bits) in [(5, 1 << (turn % 8)), (6, 0x55), (7, 1 << (turn % 8))] {
        sent += u64::from(forger.send(seen, MARK, &seen.packet, |udp| udp[at] ^= bits));
    }
    sent
}
