//! Links of the head: connections of nodes' daemons, and the gossip that travels on them.
//!
//! The [thread of the links](link_thread) accepts, reads and writes, answers clock probes and renews leases.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kumi_control::copying::CopyHello;
use kumi_control::disclosure::{Disclosure, LinkPeer, NodeFacts};
use kumi_control::head::LinkId;
use kumi_control::message::{Command, Down, NodeSet, RefusalKind, Report, Up};
use kumi_control::tree::subtree;
use kumi_sched::{ClusterTime, NodeId};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::MissedTickBehavior;

use super::identity::Origin;
use super::joining::{Caller, JoinRequest, Joining};
use super::leases::Leases;
use super::live_config::LiveConfig;
use super::{Shared, clients};
use crate::client::refusal;
use crate::clock::monotonic;
use crate::config::MOST_NUMBERS;
use crate::exit::Failure;
use crate::handshake_limit::{HandshakeLimit, HandshakePermit, MAX_PENDING_HANDSHAKES};
use crate::link::{self, AcceptedStream, LinkError, LinkHello, Outbox, Purpose, Refusals, Traffic};
use crate::link_thread;
use crate::listening;
use crate::peer::ClientPeer;
use crate::tls::Credentials;

/// Most bytes that may wait for one link before clients are left alone.
const MAX_QUEUED: usize = 8 << 20;
/// How long what is queued may take to leave when the head ends.
const FLUSH: Duration = Duration::from_secs(1);

/// How often the thread of the links looks whether leases are to be renewed.
const LEASE_LOOK: Duration = Duration::from_millis(100);

/// What the thread of the links tells the main loop.
pub(super) enum LinkEvent {
    Up(LinkId, Outbox),
    Down(LinkId),
    Child(LinkId, Up),
    /// A node relays a client.
    Client(Box<RelayedClient>),
    /// A machine with a token wants to join.
    Join(Box<JoinRequest>),
    /// A head that waits wants copies of output.
    Standby(Box<(CopyHello, AcceptedStream)>),
}

/// A client that a node relays, on a connection of its own.
pub(super) struct RelayedClient {
    pub(super) stream: AcceptedStream,
    pub(super) node: NodeId,
    pub(super) peer: ClientPeer,
}

impl RelayedClient {
    /// Carries it until it ends or its node is believed no more.
    pub(super) async fn attend(self: Box<Self>, shared: Shared) {
        let Self { stream, node, peer } = *self;
        let revoked = shared.credentials.watch_peer(node, stream.get_ref().1);
        tokio::select! {
            () = clients::attend(stream, peer, Origin::Node(node), shared) => {}
            () = revoked => {}
        }
    }
}

/// What the thread of the links has.
#[derive(Clone)]
struct LinkThread {
    config: LiveConfig,
    credentials: Credentials,
    refusals: Refusals,
    traffic: Traffic,
    leases: Leases,
    joining: Joining,
    events: mpsc::Sender<LinkEvent>,
    /// Number of the last link.
    last: Arc<AtomicU64>,
}

/// The links that are up.
#[derive(Debug)]
pub(super) struct Links {
    outboxes: BTreeMap<LinkId, Outbox>,
    gossip: Disclosure,
    leases: Leases,
    refusals: Refusals,
    /// Whether some link has so many bytes queued that clients must not send more.
    congestion: watch::Sender<bool>,
}

impl Links {
    /// No links yet. Nodes may be added later.
    pub(super) fn new(refusals: Refusals, leases: Leases) -> Self {
        let gossip = Disclosure::new(None, MOST_NUMBERS);
        let congestion = watch::Sender::new(false);
        Self { outboxes: BTreeMap::new(), gossip, leases, refusals, congestion }
    }

    pub(super) fn up(&mut self, link: LinkId, outbox: Outbox) {
        self.outboxes.insert(link, outbox);
        self.gossip.link_up(LinkPeer::Child(link));
    }

    pub(super) fn down(&mut self, link: LinkId) {
        self.outboxes.remove(&link);
        // It may have been granted something after it had ended.
        self.leases.ended(link);
        self.gossip.link_down(LinkPeer::Child(link));
    }

    /// Queues a command for nodes below `link`; of a link that is down nothing is sent. A message from one node of a job to
    /// another, of which there may be any number, waits for no slow link: who sent it asks again.
    pub(super) fn send(&self, link: LinkId, nodes: NodeSet, command: Command) {
        let relayed = matches!(command, Command::Relayed { .. });
        let has_room = |outbox: &&Outbox| !relayed || outbox.queued() < MAX_QUEUED;
        if let Some(outbox) = self.outboxes.get(&link).filter(has_room) {
            if let Command::Lease { nanos, .. } = command {
                self.leases.granted((link, outbox), &nodes, nanos, monotonic());
            }
            outbox.send(&Down::Command(nodes, command));
        }
    }

    /// Notes what a report means for the link, before the state machine hears it.
    pub(super) fn reported(&self, link: LinkId, up: &Up) {
        if let Up::Report(Report::Detached(nodes)) = up {
            self.leases.detached(link, nodes);
        }
    }

    /// Nodes said something of themselves.
    pub(super) fn disclosed(&mut self, link: LinkId, facts: Vec<NodeFacts>) {
        for _ in 0..self.gossip.receive(monotonic(), LinkPeer::Child(link), facts) {
            self.refusals.count("disclosure refused");
        }
    }

    /// Passes on what nodes say of themselves to those that do not know it yet.
    pub(super) fn exchange(&mut self) {
        for (&link, outbox) in self.outboxes.iter().filter(|(_, link)| link.queued() < MAX_QUEUED) {
            let facts = self.gossip.message(monotonic(), LinkPeer::Child(link));
            if !facts.is_empty() {
                outbox.send(&Down::Disclosed(facts));
            }
        }
    }

    /// Tells clients whether they may send, if that has changed.
    pub(super) fn update_congestion(&self) {
        let congested = self.outboxes.values().any(|outbox| outbox.queued() > MAX_QUEUED);
        self.congestion.send_if_modified(|now| std::mem::replace(now, congested) != congested);
    }

    pub(super) fn is_congested(&self) -> bool {
        *self.congestion.borrow()
    }

    /// What tells clients whether they may send.
    pub(super) fn congestion(&self) -> watch::Receiver<bool> {
        self.congestion.subscribe()
    }

    /// Lets what is queued leave before the connections are closed.
    pub(super) async fn flush(&self) {
        let end = tokio::time::Instant::now() + FLUSH;
        while self.outboxes.values().any(|outbox| outbox.queued() > 0)
            && tokio::time::Instant::now() < end
        {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

/// Starts the thread of the links, which accepts nodes' daemons and the clients that they relay. Returns what it tells; the
/// thread ends when nobody listens to that any more.
///
/// # Errors
/// There is no thread, or no event loop for it.
pub(super) fn start(
    listener: TcpListener,
    shared: &Shared,
    leases: Leases,
) -> Result<mpsc::Receiver<LinkEvent>, Failure> {
    let (events, receiver) = mpsc::channel(256);
    let thread = LinkThread {
        config: shared.config.clone(),
        credentials: shared.credentials.clone(),
        refusals: shared.refusals.clone(),
        traffic: shared.traffic.clone(),
        leases,
        joining: shared.joining.clone(),
        events,
        last: Arc::default(),
    };
    link_thread::start(listener, async move |listener| serve(listener, thread).await)
        .map(|()| receiver)
}

async fn serve(listener: TcpListener, thread: LinkThread) {
    let limiter = HandshakeLimit::new(MAX_PENDING_HANDSHAKES);
    let further = listener.local_addr().map(|own| thread.config.get().further_of_head(own));
    for address in further.unwrap_or_default() {
        tokio::task::spawn_local(accept_also(address, Rc::clone(&limiter), thread.clone()));
    }
    let mut look = tokio::time::interval(LEASE_LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let accepted = tokio::select! {
            () = thread.events.closed() => return,
            _ = look.tick() => {
                thread.leases.renew(monotonic());
                continue;
            }
            accepted = listener.accept() => accepted,
        };
        take(accepted, &limiter, &thread).await;
    }
}

/// Accepts links at a further address of the head.
async fn accept_also(address: SocketAddr, limiter: Rc<HandshakeLimit>, thread: LinkThread) {
    let listener = listening::listen_also(address).await;
    loop {
        take(listener.accept().await, &limiter, &thread).await;
    }
}

async fn take(
    accepted: io::Result<(TcpStream, SocketAddr)>,
    limiter: &Rc<HandshakeLimit>,
    thread: &LinkThread,
) {
    match accepted {
        Ok((stream, _)) => {
            tokio::task::spawn_local(attend(stream, limiter.admit(), thread.clone()));
        }
        Err(error) => {
            tracing::warn!(%error, "a link could not be accepted");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

async fn attend(stream: TcpStream, permit: HandshakePermit, thread: LinkThread) {
    let config = thread.config.get();
    let agree = |hello: &LinkHello| {
        config.node(hello.node).map(drop).map_err(|error| {
            refusal(
                RefusalKind::BadRequest,
                format!("{error}; all hosts must have the same cluster.toml"),
            )
        })
    };
    let known = (&thread.credentials, config.name.as_str());
    match permit.complete(thread.joining.accept(known, stream, agree)).await {
        Ok(Caller::Machine(hello, stream)) => {
            thread.joining.serve((hello, stream), &thread.events).await;
        }
        Ok(Caller::Standby(hello, stream)) => {
            // Fails only when the head is about to end.
            let _ = thread.events.send(LinkEvent::Standby(Box::new((hello, stream)))).await;
        }
        Ok(Caller::Daemon(hello, stream)) => match hello.purpose.clone() {
            Purpose::Tree => attend_link(&hello, stream, &thread).await,
            Purpose::Client(peer) => {
                let client = RelayedClient { stream, node: hello.node, peer: *peer };
                // Fails only when the head is about to end.
                let _ = thread.events.send(LinkEvent::Client(Box::new(client))).await;
            }
        },
        Err(error) => {
            thread.refusals.count_link(&error);
        }
    }
}

async fn attend_link(hello: &LinkHello, stream: AcceptedStream, thread: &LinkThread) {
    let id = LinkId(thread.last.fetch_add(1, Ordering::Relaxed) + 1);
    tracing::info!(node = %hello.node, version = hello.version, "attached");
    let revoked = thread.credentials.watch_peer(hello.node, stream.get_ref().1);
    let (read, write) = tokio::io::split(stream);
    let (outbox, writing) = Outbox::start(write, hello.version, thread.traffic.clone());
    if thread.events.send(LinkEvent::Up(id, outbox.clone())).await.is_err() {
        return;
    }
    // The cluster's clock is this machine's.
    let time = || ClusterTime(monotonic());
    let deliver = async |up| thread.events.send(LinkEvent::Child(id, up)).await.is_ok();
    let config = thread.config.get();
    let below = subtree(hello.node, MOST_NUMBERS, config.fan_out);
    let known = (&below, &thread.traffic, config.silence());
    let error = tokio::select! {
        error = link::serve_child(read, (outbox, writing), known, time, deliver) => error,
        () = revoked => LinkError::Revoked,
    };
    tracing::info!(node = %hello.node, %error, "detached");
    thread.leases.ended(id);
    thread.refusals.count_end(&error);
    // Fails only when the head is about to end.
    let _ = thread.events.send(LinkEvent::Down(id)).await;
}
