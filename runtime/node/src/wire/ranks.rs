//! AF_XDP of a job's ranks on this node: its parts, and the tasks that bind sockets and keep tables of next hops.

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
    hops: NextHops,
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

impl RankWire {
    /// Makes the parts for a rank of a job with so many; `port` is that of its UDP socket.
    ///
    /// # Errors
    /// Why it has to do without, in a few words.
    pub(crate) fn make(
        xdp: &Rc<NodeXdp>,
        job: JobId,
        (rank, ranks, local): (u32, u32, u32),
        port: u16,
    ) -> Result<RankWire, String> {
        let queue = Queue::take(xdp, job, local)?;
        let text = |error: io::Error| error.to_string();
        let socket = XdpSocket::create(&xdp.interface.name).map_err(|error| error.to_string())?;
        let hops = NextHops::create(ranks, xdp.interface.mac).map_err(text)?;
        let (ready_end, ready) = pipe::pipe().map_err(text)?;
        let ready_end = ready_end.into_nonblocking_fd().map_err(text)?;
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

    /// Binds the socket once the rank is ready, and keeps its table from then on.
    async fn attend(self, job: JobId, peers: Rc<Vec<SocketAddr>>) {
        let RankWire { rank, port, socket, hops, mut ready, ready_end, queue } = self;
        // Only the rank's is left: the pipe ends if the rank ends, or takes no part.
        drop(ready_end);
        if ready.read_u8().await.is_err() {
            return;
        }
        let xdp = &queue.xdp;
        let bound = bind(&socket, &queue).await;
        let steered = bound.and_then(|()| xdp.steering.steer(port, socket.socket()));
        if let Err(error) = steered {
            tracing::warn!(%job, rank, %error, "a rank has no AF_XDP; it uses UDP");
            return;
        }
        // With its last descriptor, the rank's, the kernel takes the socket out of the map.
        drop(socket);
        tracing::debug!(%job, rank, queue = queue.number, "a rank has AF_XDP");
        if let Err(error) = keep(&hops, rank, &peers, xdp.interface.index).await {
            tracing::warn!(%job, rank, %error, "routes are not known any more; a rank sends by UDP");
        }
        for peer in 0..u32::try_from(peers.len()).unwrap_or(u32::MAX) {
            hops.set(peer, None);
        }
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

/// Keeps a rank's table up to date. Ends with an error only.
async fn keep(hops: &NextHops, rank: u32, peers: &[SocketAddr], interface: u32) -> io::Result<()> {
    let mut netlink = Netlink::open()?;
    let own = usize::try_from(rank).ok().and_then(|own| peers.get(own)).map(SocketAddr::ip);
    let mut soon = SOON_TIMES;
    loop {
        let mut known: BTreeMap<IpAddr, Option<Mac>> = BTreeMap::new();
        for (peer, address) in (0..).zip(peers) {
            let ip = address.ip();
            if Some(ip) == own {
                continue;
            }
            let mac = match known.get(&ip) {
                Some(mac) => *mac,
                None => {
                    let mac = look_up(&mut netlink, ip, interface)?;
                    known.insert(ip, mac);
                    mac
                }
            };
            hops.set(peer, mac);
        }
        let all = known.values().all(Option::is_some);
        let pause = if all || soon == 0 { EVERY } else { SOON };
        soon = soon.saturating_sub(1);
        tokio::time::sleep(pause).await;
    }
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
        let peers = Rc::new(peers.to_vec());
        for wire in self.waiting.drain(..) {
            self.tasks.spawn_local(wire.attend(job, Rc::clone(&peers)));
        }
    }
}
