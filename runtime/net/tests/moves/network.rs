//! Two network namespaces that a veth pair joins, and AF_XDP for the first rank of each, as a daemon would make it. All goes
//! with the last process that has a descriptor of it.

use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read};
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, RawFd};
use std::process::Command;
use std::sync::mpsc::channel;
use std::time::Duration;

use kumi_net::xdp::{NextHops, Steering, XdpDescriptors, XdpSocket};

use crate::job::{RANKS, node_of, wait_for};

const DEVICE: &str = "veth0";

fn mac(node: usize) -> [u8; 6] {
    [2, 0, 0, 0, 0, node as u8 + 1]
}

fn ip(arguments: &str) -> Result<(), String> {
    let done = Command::new("ip").args(arguments.split(' ')).output();
    let done = done.map_err(|error| format!("ip: {error}"))?;
    let said = String::from_utf8_lossy(&done.stderr);
    if done.status.success() { Ok(()) } else { Err(format!("ip {arguments}: {said}")) }
}

/// A network namespace.
struct Namespace(File);

impl Namespace {
    fn new() -> io::Result<Namespace> {
        // SAFETY: no pointers; only this thread moves.
        match unsafe { libc::unshare(libc::CLONE_NEWNET) } {
            0 => File::open("/proc/thread-self/ns/net").map(Namespace),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Runs `body` on a thread in the namespace.
    fn within<R: Send>(&self, body: impl FnOnce() -> R + Send) -> R {
        let raw = self.0.as_raw_fd();
        let inside = move || {
            // SAFETY: no pointers; only this thread moves.
            let done = unsafe { libc::setns(raw, libc::CLONE_NEWNET) };
            assert_eq!(done, 0, "{}", io::Error::last_os_error());
            body()
        };
        std::thread::scope(|scope| scope.spawn(inside).join().expect("a thread"))
    }
}

/// See the module.
pub struct Network([Namespace; 2]);

impl Network {
    /// With an address for each of so many places of a job.
    ///
    /// # Errors
    /// Why it cannot be had.
    pub fn make(places: u8) -> Result<Network, String> {
        let text = |error: io::Error| error.to_string();
        let [first, second] = std::thread::scope(|scope| {
            let ((tell, told), (done, wait)) = (channel(), channel::<()>());
            let second = scope.spawn(move || {
                let made = Namespace::new();
                // SAFETY: no pointers.
                tell.send(unsafe { libc::syscall(libc::SYS_gettid) }).expect("the other waits");
                // As long as the other needs this thread's number. It says nothing, and goes.
                assert!(wait.recv().is_err());
                made
            });
            let first = scope.spawn(move || {
                let _done = done;
                let made = Namespace::new().map_err(text)?;
                let thread = told.recv().map_err(|error| error.to_string())?;
                let [a, b] =
                    [0, 1].map(|node| mac(node).map(|byte| format!("{byte:02x}")).join(":"));
                let peer = format!("peer name {DEVICE} address {b} netns {thread}");
                ip(&format!("link add {DEVICE} address {a} type veth {peer}"))?;
                Ok::<_, String>(made)
            });
            let first = first.join().expect("a thread");
            [first, second.join().expect("a thread").map_err(text)]
        });
        let network = Network([first?, second?]);
        for (node, namespace) in network.0.iter().enumerate() {
            namespace.within(|| {
                ip("link set lo up")?;
                ip(&format!("link set {DEVICE} up"))?;
                (1..=places).try_for_each(|place| {
                    ip(&format!("address add {}/24 dev {DEVICE}", Network::address(place, node)))
                })
            })?;
        }
        Ok(network)
    }

    /// The address of a node at a place.
    pub fn address(place: u8, node: usize) -> Ipv4Addr {
        Ipv4Addr::new(10, 98, place, node as u8 + 1)
    }

    pub fn within<R: Send>(&self, node: usize, body: impl FnOnce() -> R + Send) -> R {
        self.0[node].within(body)
    }

    /// The namespace of a node, for `setns`.
    pub fn namespace(&self, node: usize) -> RawFd {
        self.0[node].0.as_raw_fd()
    }
}

/// AF_XDP of the first rank of a node.
pub struct RankXdp {
    node: usize,
    index: u32,
    port: u16,
    socket: XdpSocket,
    hops: NextHops,
    ready: PipeReader,
    ready_end: Option<PipeWriter>,
    steering: Steering,
}

impl RankXdp {
    /// Makes it; `port` is that of the rank's UDP socket.
    pub fn make(network: &Network, place: u8, node: usize, port: u16) -> RankXdp {
        let (index, socket, steering) = network.within(node, || {
            let name = std::ffi::CString::new(DEVICE).expect("a name");
            // SAFETY: a C string.
            let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
            let mut steering = None;
            // A process of another test that is just being started has the descriptor of the program before for a moment.
            wait_for("the interface", || {
                steering = Steering::attach(index, Network::address(place, node)).ok();
                steering.is_some()
            });
            let socket = XdpSocket::create(DEVICE).expect("AF_XDP socket");
            (index, socket, steering.expect("steering"))
        });
        let hops = NextHops::create(RANKS, mac(node)).expect("table");
        for rank in (0..RANKS).filter(|rank| node_of(*rank) != node) {
            hops.set(rank, Some(mac(1 - node)));
        }
        let (ready, ready_end) = io::pipe().expect("pipe");
        RankXdp { node, index, port, socket, hops, ready, ready_end: Some(ready_end), steering }
    }

    /// What the rank inherits.
    pub fn descriptors(&self) -> XdpDescriptors {
        let ready = self.ready_end.as_ref().expect("not started yet").as_raw_fd();
        XdpDescriptors {
            socket: self.socket.socket().as_raw_fd(),
            memory: self.socket.memory().as_raw_fd(),
            hops: self.hops.as_fd().as_raw_fd(),
            ready,
        }
    }

    /// Binds the socket once the rank has mapped its rings, and steers its port there.
    pub fn bind_when_ready(&mut self, network: &Network) {
        drop(self.ready_end.take());
        self.ready.read_exact(&mut [0]).expect("the rank has mapped its rings");
        // The kernel lets go of a queue some milliseconds after the socket of the rank before was closed.
        wait_for("the queue", || {
            let bound = network.within(self.node, || self.socket.bind(self.index, 0).is_ok());
            if !bound {
                std::thread::sleep(Duration::from_millis(5));
            }
            bound
        });
        self.steering.steer(self.port, self.socket.socket()).expect("steer");
    }
}
