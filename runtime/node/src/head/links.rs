//! Links of the head: connections of nodes' daemons, and the gossip that travels on them.

use std::collections::BTreeMap;
use std::time::Duration;

use kumi_control::disclosure::{Disclosure, LinkPeer, NodeFacts};
use kumi_control::head::{HeadEvent, LinkId};
use kumi_control::message::{Command, Down, NodeSet, RefusalKind};
use kumi_control::tree::subtree;
use kumi_sched::ClusterTime;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::identity::Origin;
use super::{Event, Shared, clients};
use crate::client::refusal;
use crate::clock::monotonic;
use crate::handshake_limit::{HandshakeLimit, HandshakePermit, MAX_PENDING_HANDSHAKES};
use crate::link::{self, AcceptedStream, LinkError, LinkHello, Outbox, Purpose, Refusals};

/// Most bytes that may wait for one link before clients are left alone.
const MAX_QUEUED: usize = 8 << 20;
/// How long what is queued may take to leave when the head ends.
const FLUSH: Duration = Duration::from_secs(1);

/// The links that are up.
#[derive(Debug)]
pub(super) struct Links {
    outboxes: BTreeMap<LinkId, Outbox>,
    gossip: Disclosure,
    refusals: Refusals,
    /// Whether some link has so many bytes queued that clients must not send more.
    congestion: watch::Sender<bool>,
}

impl Links {
    /// No links yet, of a cluster with so many nodes.
    pub(super) fn new(nodes: u32, refusals: Refusals) -> Self {
        let gossip = Disclosure::new(None, nodes);
        let congestion = watch::Sender::new(false);
        Self { outboxes: BTreeMap::new(), gossip, refusals, congestion }
    }

    pub(super) fn up(&mut self, link: LinkId, outbox: Outbox) {
        self.outboxes.insert(link, outbox);
        self.gossip.link_up(LinkPeer::Child(link));
    }

    pub(super) fn down(&mut self, link: LinkId) {
        self.outboxes.remove(&link);
        self.gossip.link_down(LinkPeer::Child(link));
    }

    /// Queues a command for nodes below `link`; of a link that is down nothing is sent. A message from one node of a job to
    /// another, of which there may be any number, waits for no slow link: who sent it asks again.
    pub(super) fn send(&self, link: LinkId, nodes: NodeSet, command: Command) {
        let relayed = matches!(command, Command::Relayed { .. });
        let has_room = |outbox: &&Outbox| !relayed || outbox.queued() < MAX_QUEUED;
        if let Some(outbox) = self.outboxes.get(&link).filter(has_room) {
            outbox.send(&Down::Command(nodes, command));
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

/// Accepts nodes' daemons, and the clients that they relay.
pub(super) async fn serve(listener: TcpListener, shared: Shared) {
    let limiter = HandshakeLimit::new(MAX_PENDING_HANDSHAKES);
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                tokio::task::spawn_local(attend(stream, limiter.admit(), shared.clone()));
            }
            Err(error) => {
                tracing::warn!(%error, "a link could not be accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn attend(stream: TcpStream, permit: HandshakePermit, shared: Shared) {
    let agree = |hello: &LinkHello| {
        shared.config.node(hello.node).map(drop).map_err(|error| {
            refusal(
                RefusalKind::BadRequest,
                format!("{error}; all hosts must have the same cluster.toml"),
            )
        })
    };
    let answer = link::accept(&shared.credentials, &shared.config.name, stream, agree);
    match permit.complete(answer).await {
        Ok((hello, stream)) => {
            let revoked = shared.credentials.watch_peer(hello.node, stream.get_ref().1);
            match hello.purpose.clone() {
                Purpose::Tree => attend_link(&hello, stream, revoked, &shared).await,
                Purpose::Client(peer) => tokio::select! {
                    () = clients::attend(stream, *peer, Origin::Node(hello.node), shared) => {}
                    () = revoked => {}
                },
            }
        }
        Err(error) => {
            shared.refusals.count_link(&error);
        }
    }
}

async fn attend_link(
    hello: &LinkHello,
    stream: AcceptedStream,
    revoked: impl Future<Output = ()>,
    shared: &Shared,
) {
    let id = LinkId(shared.next_id());
    tracing::info!(node = %hello.node, "attached");
    let (read, write) = tokio::io::split(stream);
    let (outbox, writing) = Outbox::start(write, shared.traffic.clone());
    if shared.events.send(Event::LinkUp(id, outbox.clone())).await.is_err() {
        return;
    }
    // The cluster's clock is this machine's.
    let time = || ClusterTime(monotonic());
    let deliver =
        async |up| shared.events.send(Event::Head(HeadEvent::Child(id, up))).await.is_ok();
    let below = subtree(hello.node, shared.config.node_count(), shared.config.fan_out);
    let known = (&below, &shared.traffic);
    let error = tokio::select! {
        error = link::serve_child(read, (outbox, writing), known, time, deliver) => error,
        () = revoked => LinkError::Revoked,
    };
    tracing::info!(node = %hello.node, %error, "detached");
    shared.refusals.count_end(&error);
    // Fails only when the head is about to end.
    let _ = shared.events.send(Event::LinkDown(id)).await;
}
