//! AF_XDP between two network namespaces that a veth pair joins: what goes past the network stack, what does not, and
//! what strangers can do. Only root can make namespaces.
#![cfg(not(miri))] // There is no network there.

use std::cell::Cell;
use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::{AsFd, OwnedFd};
use std::process::Command;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use kumi_net::launch::bind_socket;
use kumi_net::segment::Segment;
use kumi_net::xdp::{NextHops, Steering, XdpParts, XdpSocket, queues};
use kumi_net::{Channel, ChannelSettings, SpinMode, Wire};

mod two_ranks;
use two_ranks::{Frames, Keep, attach, segment, wait_for};

const DEVICE: &str = "veth0";
/// The identification of frames that AF_XDP has sent.
const MARK: [u8; 2] = [0x6b, 0x78];

fn ip(arguments: &str) -> String {
    let done = Command::new("ip").args(arguments.split(' ')).output().expect("ip");
    assert!(done.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8_lossy(&done.stdout).into_owned()
}

fn address(node: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 99, 0, node + 1)
}

fn mac(node: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, node + 1]
}

/// Moves this thread, and what it starts, into a network namespace of its own.
fn leave() -> Result<(), String> {
    // SAFETY: no pointers; only this thread moves.
    match unsafe { libc::unshare(libc::CLONE_NEWNET) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error().to_string()),
    }
}

/// A node: its thread is in its namespace.
struct Node {
    number: u8,
    index: u32,
    max_datagram: u16,
}

/// Runs `body` with two nodes, each in a thread and a namespace of its own.
fn with_nodes(name: &str, body: fn(Node, Duplex)) {
    // SAFETY: no pointers.
    if unsafe { libc::geteuid() } != 0 {
        return kumi_skip::skip(name, "only root can make network namespaces");
    }
    let (one, other) = Duplex::pair();
    let (tell, told) = channel();
    let second = std::thread::spawn(move || {
        leave()?;
        // SAFETY: no pointers.
        let thread = unsafe { libc::syscall(libc::SYS_gettid) };
        tell.send(thread).expect("the first node waits");
        body(started(1, &other)?, other);
        Ok::<(), String>(())
    });
    let first = std::thread::spawn(move || {
        leave()?;
        let Ok(thread) = told.recv() else { return Err("no second namespace".to_owned()) };
        let [a, b] = [mac(0), mac(1)].map(|mac| mac.map(|byte| format!("{byte:02x}")).join(":"));
        ip(&format!(
            "link add {DEVICE} address {a} type veth peer name {DEVICE} address {b} netns {thread}"
        ));
        one.tell.send(Vec::new()).expect("the second node waits");
        body(started(0, &one)?, one);
        Ok(())
    });
    for thread in [first, second] {
        match thread.join().expect("a node") {
            Ok(()) => {}
            Err(reason) => return kumi_skip::skip(name, &reason),
        }
    }
}

fn started(number: u8, duplex: &Duplex) -> Result<Node, String> {
    if number == 1 {
        duplex.told.recv().map_err(|error| error.to_string())?;
    }
    ip(&format!("address add {}/24 dev {DEVICE}", address(number)));
    ip(&format!("link set {DEVICE} up"));
    let name = std::ffi::CString::new(DEVICE).expect("a name");
    // SAFETY: a C string.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    Ok(Node { number, index, max_datagram: 1_472 })
}

/// How the threads of the nodes talk.
struct Duplex {
    tell: Sender<Vec<u8>>,
    told: Receiver<Vec<u8>>,
}

impl Duplex {
    fn pair() -> (Duplex, Duplex) {
        let ((a, b), (c, d)) = (channel(), channel());
        (Duplex { tell: a, told: d }, Duplex { tell: c, told: b })
    }

    fn tell(&self, bytes: &[u8]) {
        self.tell.send(bytes.to_vec()).expect("the other node");
    }

    fn told(&self) -> Vec<u8> {
        self.told.recv_timeout(Duration::from_secs(30)).expect("the other node")
    }

    fn meet(&self) {
        self.tell(&[]);
        self.told();
    }
}

/// A rank with AF_XDP or without.
struct Rank {
    channel: Channel<Keep>,
    frames: Frames,
    segment: Segment,
    port: u16,
    peer: SocketAddrV4,
    steering: Option<Steering>,
    /// Frames that were waited for.
    seen: Cell<usize>,
}

impl Rank {
    fn start(node: &Node, duplex: &Duplex, xdp: bool) -> Rank {
        let own = address(node.number);
        let (socket, port) = bind_socket((own, 0)).expect("socket");
        duplex.tell(&port.to_be_bytes());
        let theirs = duplex.told();
        let peer =
            SocketAddrV4::new(address(1 - node.number), u16::from_be_bytes([theirs[0], theirs[1]]));
        let mut peers = [SocketAddr::from((own, port)); 2];
        peers[usize::from(1 - node.number)] = peer.into();
        let rank = u32::from(node.number);
        let (segment, files) = segment(rank, peers, node.max_datagram);
        let (attachment, socket) = attach(&files, rank, socket);
        let frames = Frames::default();
        let settings = ChannelSettings { spin: SpinMode::Fixed(20), handler: None };
        let start = |wire| {
            let handler = Keep(Frames::clone(&frames));
            Channel::start_on(attachment, Some(wire), settings, handler).expect("start")
        };
        let (channel, steering) = match xdp {
            true => {
                let (channel, steering) = with_xdp(node, socket, port, start);
                (channel, Some(steering))
            }
            false => (start(Wire::Udp(socket)), None),
        };
        duplex.meet();
        Rank { channel, frames, segment, port, peer, steering, seen: Cell::new(0) }
    }

    fn send(&self, frame: &[u8]) {
        let mut guard = self.channel.lock().expect("lock");
        while !guard.send(1 - self.channel.attachment().rank(), &[frame]).expect("send") {
            guard.progress().expect("progress");
        }
        guard.transmit().expect("transmit");
    }

    fn wait_for(&self, count: usize) {
        wait_for(&self.channel, &self.frames, count);
    }

    fn counter(&self, name: &str) -> u64 {
        self.channel.publish();
        let sample = self.segment.sample(0);
        let found = sample.counters.iter().find(|(counter, _)| *counter == name);
        found.expect("a counter").1
    }

    /// Waits until a counter is at least this.
    fn until(&self, name: &str, count: u64) {
        let end = Instant::now() + Duration::from_secs(20);
        while self.counter(name) < count {
            assert!(Instant::now() < end, "{name} is {}, not {count}", self.counter(name));
            self.channel.lock().expect("lock").progress().expect("progress");
        }
    }

    /// Sends so many frames to and fro.
    fn ping_pong(&self, rounds: usize) {
        let first = self.channel.attachment().rank() == 0;
        for round in 0..rounds {
            // Not how many there are: the handler thread may have taken one already.
            let before = self.seen.replace(self.seen.get() + 1);
            if first {
                self.send(&round.to_le_bytes());
            }
            self.wait_for(before + 1);
            assert_eq!(self.frames.lock().expect("frames")[before], round.to_le_bytes());
            if !first {
                self.send(&round.to_le_bytes());
            }
        }
    }
}

fn with_xdp(
    node: &Node,
    socket: OwnedFd,
    port: u16,
    start: impl FnOnce(Wire) -> Channel<Keep>,
) -> (Channel<Keep>, Steering) {
    let steering = Steering::attach(node.index, address(node.number)).expect("steering");
    assert_eq!(queues(DEVICE).expect("queues"), 1);
    let own = XdpSocket::create(DEVICE).expect("AF_XDP socket");
    let hops = NextHops::create(2, mac(node.number)).expect("table");
    let (mut ready, ready_end) = std::io::pipe().expect("pipe");
    let clone = |fd: std::os::fd::BorrowedFd<'_>| fd.try_clone_to_owned().expect("dup");
    let parts = XdpParts {
        socket: clone(own.socket()),
        memory: clone(own.memory()),
        hops: clone(hops.as_fd()),
        ready: clone(ready_end.as_fd()),
    };
    let channel = start(Wire::Xdp(socket, parts));
    drop(ready_end);
    let mut byte = Vec::new();
    ready.read_to_end(&mut byte).expect("the rank is ready");
    assert_eq!(byte.len(), 1);
    own.bind(node.index, 0).expect("bind");
    steering.steer(port, own.socket()).expect("steer");
    hops.set(u32::from(1 - node.number), Some(mac(1 - node.number)));
    (channel, steering)
}

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
        drop(rank.steering.take());
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
