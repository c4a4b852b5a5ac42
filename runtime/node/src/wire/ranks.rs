//! AF_XDP of a job's ranks on this node: its parts, and the tasks that bind sockets and keep the table of next hops.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use kumi_net::xdp::{Mac, NextHops, XdpDescriptors, XdpError, XdpSocket};
use kumi_sched::JobId;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::task::JoinSet;

use super::NodeXdp;
use super::netlink::Netlink;

/// How often a table is brought up to date, and how often as long as some rank's place is not known.
const EVERY: Duration = Duration::from_secs(1);
const SOON: Duration = Duration::from_millis(50);
/// So many times soon; later the rank may be on another network.
const SOON_TIMES: u32 = 40;
/// So many times a queue is asked for that somebody has.
const BUSY_TIMES: u32 = 20;

/// A rank's parts, before it starts.
#[derive(Debug)]
pub(crate) struct RankWire {
    rank: u32,
    port: u16,
    socket: XdpSocket,
    hops: Rc<NextHops>,
    ready: pipe::Receiver,
    ready_end: OwnedFd,
    queue: Queue,
}

/// A queue that a rank has, until it is dropped.
#[derive(Debug)]
struct Queue {
    xdp: Rc<NodeXdp>,
    number: u32,
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.xdp.taken.borrow_mut().remove(&self.number);
    }
}

impl Queue {
    /// The queue of a job's rank with this place on its node. The same on all nodes, so that frames between ranks of equal
    /// places come to the right queue where a network keeps queues apart.
    fn take(xdp: &Rc<NodeXdp>, job: JobId, local: u32) -> Result<Queue, String> {
        let number = u32::try_from((job.0 + u64::from(local)) % u64::from(xdp.queues));
        let number = number.unwrap_or(0);
        if !xdp.taken.borrow_mut().insert(number) {
            let name = &xdp.interface.name;
            return Err(format!("another rank has queue {number} of {name}"));
        }
        Ok(Queue { xdp: Rc::clone(xdp), number })
    }
}

/// A port that is steered to a rank's socket, until it is dropped. Whoever else has the socket then, no frames come to it.
#[derive(Debug)]
struct SteeredPort {
    xdp: Rc<NodeXdp>,
    port: u16,
    job: JobId,
}

impl SteeredPort {
    fn steer(
        xdp: &Rc<NodeXdp>,
        (port, job): (u16, JobId),
        socket: &XdpSocket,
    ) -> Result<SteeredPort, XdpError> {
        xdp.steering.steer(port, socket.socket())?;
        xdp.steered.borrow_mut().insert(port, job);
        Ok(SteeredPort { xdp: Rc::clone(xdp), port, job })
    }
}

impl Drop for SteeredPort {
    fn drop(&mut self) {
        let SteeredPort { xdp, port, job } = self;
        // A job that has begun since may have the port.
        if xdp.steered.borrow().get(port) != Some(job) {
            return;
        }
        xdp.steered.borrow_mut().remove(port);
        if let Err(error) = xdp.steering.unsteer(*port) {
            tracing::warn!(%job, port, %error, "frames to this port still go to a socket of an ended job");
        }
    }
}

/// The table of next hops for a job with so many ranks.
///
/// # Errors
/// The kernel's, in a few words.
pub(crate) fn hops_of(xdp: &NodeXdp, ranks: u32) -> Result<Rc<NextHops>, String> {
    NextHops::create(ranks, xdp.interface.mac).map(Rc::new).map_err(|error| error.to_string())
}

impl RankWire {
    /// Makes the parts for a rank of a job; `port` is that of its UDP socket.
    ///
    /// # Errors
    /// Why it has to do without, in a few words.
    pub(crate) fn make(
        xdp: &Rc<NodeXdp>,
        job: JobId,
        (rank, local): (u32, u32),
        port: u16,
        hops: &Rc<NextHops>,
    ) -> Result<RankWire, String> {
        let queue = Queue::take(xdp, job, local)?;
        let text = |error: io::Error| error.to_string();
        let socket = XdpSocket::create(&xdp.interface.name).map_err(|error| error.to_string())?;
        let (ready_end, ready) = pipe::pipe().map_err(text)?;
        let ready_end = ready_end.into_nonblocking_fd().map_err(text)?;
        let hops = Rc::clone(hops);
        Ok(RankWire { rank, port, socket, hops, ready, ready_end, queue })
    }

    /// What the rank inherits.
    pub(crate) fn inherited(&self) -> [BorrowedFd<'_>; 4] {
        [self.socket.socket(), self.socket.memory(), self.hops.as_fd(), self.ready_end.as_fd()]
    }

    /// The variable that tells the rank.
    pub(crate) fn to_env(&self) -> (String, String) {
        let [socket, memory, hops, ready] = self.inherited().map(|fd| fd.as_raw_fd());
        XdpDescriptors { socket, memory, hops, ready }.to_env()
    }

    /// Binds the socket once the rank is ready, and steers its port there as long as the task lives.
    async fn bind_when_ready(self, job: JobId) {
        let RankWire { rank, port, socket, hops: _, mut ready, ready_end, queue } = self;
        // Only the rank's is left: the pipe ends if the rank ends, or takes no part.
        drop(ready_end);
        if ready.read_u8().await.is_err() {
            return;
        }
        let bound = bind(&socket, &queue).await;
        let steered = bound.and_then(|()| SteeredPort::steer(&queue.xdp, (port, job), &socket));
        let _steered = match steered {
            Ok(steered) => steered,
            Err(error) => {
                tracing::warn!(%job, rank, %error, "a rank has no AF_XDP; it uses UDP");
                return;
            }
        };
        // The rank has the only descriptor from here on, if it has not given it away.
        drop(socket);
        tracing::debug!(%job, rank, queue = queue.number, "a rank has AF_XDP");
        // The socket stays the rank's, and so does its queue.
        std::future::pending::<()>().await;
    }
}

/// Binds the socket to its queue. The kernel lets go of a queue only some milliseconds after the socket of the rank before
/// was closed.
async fn bind(socket: &XdpSocket, queue: &Queue) -> Result<(), XdpError> {
    let index = queue.xdp.interface.index;
    for _ in 0..BUSY_TIMES {
        match socket.bind(index, queue.number) {
            Err(error) if error.kernel().kind() == io::ErrorKind::ResourceBusy => {
                tokio::time::sleep(SOON).await;
            }
            done => return done,
        }
    }
    socket.bind(index, queue.number)
}

/// Hardware addresses by the address of the peer; none: not known now, or not over this interface.
type KnownHops = BTreeMap<IpAddr, Option<Mac>>;

/// Keeps a job's table up to date. As long as the kernel does not answer, nobody is reached by frames.
async fn refresh_hops(
    (hops, peers): (Rc<NextHops>, Rc<Vec<SocketAddr>>),
    (job, rank): (JobId, u32),
    interface: u32,
) {
    let own = usize::try_from(rank).ok().and_then(|own| peers.get(own)).map(SocketAddr::ip);
    let (mut netlink, mut soon, mut told) = (None, SOON_TIMES, false);
    loop {
        let known = match look_up_all(&mut netlink, &peers, own, interface).await {
            Ok(known) => known,
            Err(error) => {
                netlink = None;
                if !std::mem::replace(&mut told, true) {
                    tracing::warn!(%job, %error, "routes are not known for now; ranks send by UDP");
                }
                KnownHops::new()
            }
        };
        for (peer, address) in (0..).zip(peers.iter()) {
            hops.set(peer, known.get(&address.ip()).copied().flatten());
        }
        let all = known.values().all(Option::is_some);
        let pause = if all || soon == 0 { EVERY } else { SOON };
        soon = soon.saturating_sub(1);
        tokio::time::sleep(pause).await;
    }
}

/// Asks for all addresses but the own one, and lets the daemon do other work in between.
async fn look_up_all(
    netlink: &mut Option<Netlink>,
    peers: &[SocketAddr],
    own: Option<IpAddr>,
    interface: u32,
) -> io::Result<KnownHops> {
    let netlink = match netlink {
        Some(netlink) => netlink,
        none => none.insert(Netlink::open()?),
    };
    let mut known = KnownHops::new();
    for ip in peers.iter().map(SocketAddr::ip) {
        if Some(ip) != own && !known.contains_key(&ip) {
            known.insert(ip, look_up(netlink, ip, interface)?);
            tokio::task::yield_now().await;
        }
    }
    Ok(known)
}

/// How an address is reached over the interface, if it is and the kernel knows. It finds out otherwise.
fn look_up(netlink: &mut Netlink, to: IpAddr, interface: u32) -> io::Result<Option<Mac>> {
    let IpAddr::V4(to) = to else { return Ok(None) };
    let Some(hop) = netlink.next_hop(to, interface)? else { return Ok(None) };
    netlink.use_neighbour(hop, interface)?;
    netlink.neighbour(hop, interface)
}

/// The tasks of a job's ranks with AF_XDP; they end when it is dropped.
#[derive(Debug, Default)]
pub(crate) struct JobWires {
    waiting: Vec<RankWire>,
    tasks: JoinSet<()>,
}

impl JobWires {
    pub(crate) fn new(waiting: Vec<RankWire>) -> JobWires {
        JobWires { waiting, tasks: JoinSet::new() }
    }

    /// The ranks are about to start; these are the addresses of all ranks.
    pub(crate) fn start(&mut self, job: JobId, peers: &[SocketAddr]) {
        if let Some(first) = self.waiting.first() {
            let table = (Rc::clone(&first.hops), Rc::new(peers.to_vec()));
            let interface = first.queue.xdp.interface.index;
            self.tasks.spawn_local(refresh_hops(table, (job, first.rank), interface));
        }
        for wire in self.waiting.drain(..) {
            self.tasks.spawn_local(wire.bind_when_ready(job));
        }
    }
}
