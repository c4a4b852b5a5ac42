//! Two nodes, each a thread in a network namespace of its own, and ranks on them.

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

use crate::two_ranks::{Frames, Keep, attach, segment, wait_for};

pub const DEVICE: &str = "veth0";
/// The identification of frames that AF_XDP has sent.
pub const MARK: [u8; 2] = [0x6b, 0x78];

pub fn ip(arguments: &str) -> String {
    let done = Command::new("ip").args(arguments.split(' ')).output().expect("ip");
    assert!(done.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8_lossy(&done.stdout).into_owned()
}

pub fn address(node: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 99, 0, node + 1)
}

pub fn mac(node: u8) -> [u8; 6] {
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
pub struct Node {
    pub number: u8,
    pub index: u32,
    pub max_datagram: u16,
}

/// Runs `body` with two nodes, each in a thread and a namespace of its own.
pub fn with_nodes(name: &str, body: impl Fn(Node, Duplex) + Copy + Send + 'static) {
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
pub struct Duplex {
    tell: Sender<Vec<u8>>,
    told: Receiver<Vec<u8>>,
}

impl Duplex {
    fn pair() -> (Duplex, Duplex) {
        let ((a, b), (c, d)) = (channel(), channel());
        (Duplex { tell: a, told: d }, Duplex { tell: c, told: b })
    }

    pub fn tell(&self, bytes: &[u8]) {
        self.tell.send(bytes.to_vec()).expect("the other node");
    }

    pub fn told(&self) -> Vec<u8> {
        self.told.recv_timeout(Duration::from_secs(30)).expect("the other node")
    }

    pub fn meet(&self) {
        self.tell(&[]);
        self.told();
    }
}

/// A rank with AF_XDP or without.
pub struct Rank {
    pub channel: Channel<Keep>,
    pub frames: Frames,
    segment: Segment,
    pub port: u16,
    pub peer: SocketAddrV4,
    pub steering: Option<Steering>,
    /// Frames that were waited for.
    pub seen: Cell<usize>,
}

impl Rank {
    pub fn start(node: &Node, duplex: &Duplex, xdp: bool) -> Rank {
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

    pub fn send(&self, frame: &[u8]) {
        let mut guard = self.channel.lock().expect("lock");
        while !guard.send(1 - self.channel.attachment().rank(), &[frame]).expect("send") {
            guard.progress().expect("progress");
        }
        guard.transmit().expect("transmit");
    }

    pub fn wait_for(&self, count: usize) {
        wait_for(&self.channel, &self.frames, count);
    }

    pub fn counter(&self, name: &str) -> u64 {
        self.channel.publish();
        let sample = self.segment.sample(0);
        let found = sample.counters.iter().find(|(counter, _)| *counter == name);
        found.expect("a counter").1
    }

    /// Waits until a counter is at least this.
    pub fn until(&self, name: &str, count: u64) {
        let end = Instant::now() + Duration::from_secs(20);
        while self.counter(name) < count {
            assert!(Instant::now() < end, "{name} is {}, not {count}", self.counter(name));
            self.channel.lock().expect("lock").progress().expect("progress");
        }
    }

    /// Sends so many frames to and fro.
    pub fn ping_pong(&self, rounds: usize) {
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
