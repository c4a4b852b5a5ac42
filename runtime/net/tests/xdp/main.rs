//! AF_XDP between two network namespaces that a veth pair joins: what goes past the network stack, what does not, and
//! what strangers can do. Only root can make namespaces.
#![cfg(not(miri))] // There is no network there.

use std::net::SocketAddrV4;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

mod hostile;
mod nodes;
#[path = "../two_ranks/mod.rs"]
mod two_ranks;

use nodes::{DEVICE, MARK, Node, Rank, address, ip, with_nodes};

#[test]
fn short_packets_go_past_the_stack_and_long_runs_do_not() {
    with_nodes("short packets by AF_XDP", |node, duplex| {
        let rank = Rank::start(&node, &duplex, true);
        rank.ping_pong(200);
        assert!(rank.counter("xdp_in") >= 200 && rank.counter("xdp_out") >= 200);
        assert_eq!((rank.counter("xdp_dropped"), rank.counter("invalid")), (0, 0));
        duplex.meet();
        let before = rank.counter("xdp_in");
        let long: Vec<Vec<u8>> = (0..2_000u32).map(|i| i.to_le_bytes().repeat(300)).collect();
        if node.number == 0 {
            let mut guard = rank.channel.lock().expect("lock");
            for frame in &long {
                while !guard.send(1, &[frame]).expect("send") {
                    guard.transmit().expect("transmit");
                    guard.progress().expect("progress");
                }
            }
            guard.transmit().expect("transmit");
            drop(guard);
        } else {
            rank.wait_for(200 + long.len());
            let frames = rank.frames.lock().expect("frames");
            assert!(frames[200..].iter().eq(&long), "in order and whole");
            drop(frames);
            // At least the first ones were queued together, however slow the machine is.
            let single = rank.counter("xdp_in") - before;
            assert!(single < long.len() as u64, "runs came by the stack: {single}");
        }
        rank.channel.lock().expect("lock").progress().expect("progress");
        duplex.meet();
    });
}

/// A packet that is too long for a frame goes by UDP, and the short one just behind it does not overtake it.
#[test]
fn short_packets_follow_a_long_one() {
    const ROUNDS: usize = 100;
    with_nodes("a short packet behind a long one", |node, duplex| {
        ip(&format!("link set {DEVICE} mtu 9000"));
        let rank = Rank::start(&Node { max_datagram: 8_972, ..node }, &duplex, true);
        rank.ping_pong(20);
        let (before, own) = (rank.counter("xdp_out"), rank.seen.get());
        for round in 0..ROUNDS {
            if rank.channel.attachment().rank() == 0 {
                rank.send(&[1; 5_000]);
                rank.send(&[2; 100]);
                duplex.told();
            } else {
                rank.wait_for(own + 2 * round + 2);
                let frames = rank.frames.lock().expect("frames");
                let [long, short] = [&frames[own + 2 * round], &frames[own + 2 * round + 1]];
                assert_eq!((long.len(), short.len()), (5_000, 100));
                duplex.tell(&[]);
            }
        }
        if rank.channel.attachment().rank() == 0 {
            let overtook = rank.counter("xdp_out") - before;
            assert!(overtook < ROUNDS as u64 / 2, "{overtook} of {ROUNDS} went as frames");
        }
        duplex.meet();
    });
}

#[test]
fn a_rank_with_af_xdp_and_one_without_understand_each_other() {
    with_nodes("mixed wires", |node, duplex| {
        let rank = Rank::start(&node, &duplex, node.number == 0);
        rank.ping_pong(200);
        let (sent, received) = (rank.counter("xdp_out"), rank.counter("xdp_in"));
        // The kernel checks the frames of the one; those of the other take the normal way.
        assert!((sent >= 200) == (node.number == 0) && received == 0, "{sent} {received}");
        duplex.meet();
    });
}

/// Sends IPv4 packets with headers of one's own.
struct Stranger(OwnedFd);

impl Stranger {
    fn new() -> Stranger {
        use std::os::fd::FromRawFd;
        // SAFETY: no pointers; the descriptor was just made.
        Stranger(unsafe {
            OwnedFd::from_raw_fd(libc::socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_RAW))
        })
    }

    /// A marked datagram with these fields; the kernel fills in length and checksum of the header.
    fn send(
        &self,
        to: SocketAddrV4,
        fragment: [u8; 2],
        udp_length: u16,
        checksum: u16,
        body: &[u8],
    ) {
        use std::os::fd::AsRawFd;
        let mut packet =
            vec![0x45, 0, 0, 0, MARK[0], MARK[1], fragment[0], fragment[1], 64, 17, 0, 0];
        packet.extend([0; 4]);
        packet.extend(to.ip().octets());
        packet.extend(7u16.to_be_bytes());
        packet.extend(to.port().to_be_bytes());
        packet.extend(udp_length.to_be_bytes());
        packet.extend(checksum.to_be_bytes());
        packet.extend(body);
        let name = libc::sockaddr_in {
            sin_family: libc::AF_INET as u16,
            sin_port: 0,
            sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(to.ip().octets()) },
            sin_zero: [0; 8],
        };
        // SAFETY: pointers and lengths describe the packet and the address.
        let sent = unsafe {
            libc::sendto(
                self.0.as_raw_fd(),
                packet.as_ptr().cast(),
                packet.len(),
                0,
                (&raw const name).cast(),
                size_of_val(&name) as u32,
            )
        };
        assert_eq!(sent, packet.len() as isize, "{}", std::io::Error::last_os_error());
    }
}

#[test]
fn strangers_frames_are_dropped_and_counted() {
    with_nodes("strangers' frames", |node, duplex| {
        let rank = Rank::start(&node, &duplex, true);
        rank.ping_pong(10);
        if node.number == 0 {
            let stranger = Stranger::new();
            for length in [0, 7, 8, 9, 40, 49, 0xffff] {
                stranger.send(rank.peer, [0x40, 0], length, 0x1234, &[0xee; 40]);
            }
            stranger.send(rank.peer, [0x40, 0], 48, 0, &[0xee; 40]);
            // Fragments, marked or not, are the stack's.
            stranger.send(rank.peer, [0x20, 0], 48, 0, &[0xee; 40]);
            stranger.send(rank.peer, [0x00, 5], 48, 0, &[0xee; 40]);
            // Marked, to a port that no rank has.
            let nobody = SocketAddrV4::new(*rank.peer.ip(), rank.peer.port() ^ 1);
            stranger.send(nobody, [0x40, 0], 48, 0, &[0xee; 40]);
        } else {
            rank.until("xdp_dropped", 8);
        }
        duplex.meet();
        rank.ping_pong(10);
        assert_eq!(rank.counter("xdp_dropped"), u64::from(node.number) * 8);
        duplex.meet();
    });
}

#[test]
fn other_ports_are_untouched_and_nothing_is_left() {
    with_nodes("other ports", |node, duplex| {
        let mut rank = Rank::start(&node, &duplex, true);
        assert!(
            ip(&format!("-details link show {DEVICE}")).contains("xdp"),
            "the program is there"
        );
        // Another program on this node sends and receives as ever.
        let plain = std::net::UdpSocket::bind((address(node.number), 9_999)).expect("socket");
        plain.set_read_timeout(Some(Duration::from_secs(20))).expect("timeout");
        duplex.meet();
        plain.send_to(b"plain", (address(1 - node.number), 9_999)).expect("sent");
        let mut room = [0; 16];
        assert_eq!(plain.recv(&mut room).expect("received"), 5);
        rank.ping_pong(10);
        duplex.meet();
        assert!(rank.port != 0);
        // The port alone is taken from the socket, which still is there.
        let steering = rank.steering.take().expect("a rank with AF_XDP");
        steering.unsteer(rank.port).expect("the port is steered");
        let before = rank.counter("xdp_in");
        duplex.meet();
        rank.ping_pong(10);
        assert_eq!(rank.counter("xdp_in"), before);
        steering.unsteer(rank.port).expect("it was not steered");
        drop(steering);
        // The other node may be starting a program just now, whose process has all descriptors for a moment.
        let end = Instant::now() + Duration::from_secs(60);
        while ip(&format!("-details link show {DEVICE}")).contains("xdp") {
            assert!(Instant::now() < end, "the program stays");
        }
        // Without it everything goes by the stack.
        let before = rank.counter("xdp_in");
        duplex.meet();
        rank.ping_pong(10);
        assert_eq!(rank.counter("xdp_in"), before);
        duplex.meet();
    });
}
