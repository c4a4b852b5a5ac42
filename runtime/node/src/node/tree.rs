//! Links of the node in the control tree: to its parent, and from its children.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kumi_control::clock::ClockFilter;
use kumi_control::message::{CONTROL_VERSION, ControlMessage, Down, RefusalKind, Up};
use kumi_control::tree::{LinkId, Parent, parent_candidates, subtree};
use kumi_sched::NodeId;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior};

use super::backpressure::{Backpressure, Gate};
use super::heads::Heads;
use super::{Shared, TreeEvent};
use crate::client::refusal;
use crate::clock::{SuspendedTime, monotonic, wall_ms};
use crate::config::{ClusterConfig, MOST_NUMBERS, Place, further};
use crate::handshake_limit::{HandshakeLimit, HandshakePermit, MAX_PENDING_HANDSHAKES};
use crate::link::{self, ConnectedStream, LinkError, LinkHello, Outbox, Purpose};
use crate::listening;
use crate::lookup::Lookup;
use crate::service;
use crate::tls::{Credentials, Identity};

/// Time between probes of the parent's clock, which also show that the link lives.
const PROBE: Duration = Duration::from_millis(250);
/// Probes sent at once at first, to have a good offset soon, and the time between them.
const FIRST_PROBES: u32 = 8;
const FIRST_PROBE: Duration = Duration::from_millis(4);
/// Pauses between rounds of attempts to find a parent: from, to.
const BACK_OFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));
/// How long the configured parent is waited for before its ancestors are asked: at the start of
/// the daemon, when the others may just be starting too, and after a link was lost.
const PATIENCE_AT_START: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_millis(300);

/// State that the links need.
#[derive(Clone)]
pub(super) struct Tree {
    pub(super) config: Arc<ClusterConfig>,
    pub(super) node: NodeId,
    /// The interface to the others, where addresses need one.
    pub(super) scope: u32,
    pub(super) heads: Heads,
    pub(super) incarnation: u64,
    lookup: Lookup,
    /// Number of the last link of a child.
    last_child: Arc<AtomicU64>,
    pub(super) credentials: Credentials,
    pub(super) shared: Shared,
    pub(super) events: mpsc::Sender<TreeEvent>,
    pub(super) from_parent: Gate,
    pub(super) from_children: Gate,
}

impl Tree {
    /// For this life of the node, which is later than those before. `scope` is its interface to the others.
    pub(super) fn new(
        config: &Arc<ClusterConfig>,
        (node, scope): (NodeId, u32),
        credentials: &Credentials,
        shared: &Shared,
        (events, backpressure): (mpsc::Sender<TreeEvent>, &Backpressure),
    ) -> Tree {
        let incarnation = wall_ms() << 16 | u64::from(std::process::id() & 0xffff);
        let heads = Heads::new(config.places_of_heads());
        let (config, shared) = (Arc::clone(config), shared.clone());
        let credentials = credentials.clone();
        let (from_parent, from_children) =
            (backpressure.gate_of_parent(), backpressure.gate_of_children());
        Tree {
            config,
            node,
            scope,
            heads,
            incarnation,
            lookup: Lookup::default(),
            last_child: Arc::default(),
            credentials,
            shared,
            events,
            from_parent,
            from_children,
        }
    }

    pub(super) fn hello(&self, purpose: Purpose) -> LinkHello {
        LinkHello {
            version: CONTROL_VERSION,
            cluster: self.config.name.clone(),
            node: self.node,
            incarnation: self.incarnation,
            purpose,
        }
    }

    fn candidates(&self, of: NodeId) -> Vec<Parent> {
        parent_candidates(of, MOST_NUMBERS, self.config.fan_out)
    }

    fn places(&self, parent: Parent) -> Option<(Identity, Vec<Place>)> {
        match parent {
            Parent::Head => Some((Identity::Head, self.heads.likely().to_vec())),
            Parent::Node(node) => Some((Identity::Node(node), self.config.places_of(node).ok()?)),
        }
    }

    /// Connects to another daemon at the first of its places that answers.
    ///
    /// # Errors
    /// As [`link::connect_at`].
    pub(super) async fn connect(
        &self,
        peer: (Identity, &[Place]),
        hello: &LinkHello,
    ) -> Result<(ConnectedStream, u32), LinkError> {
        link::connect_at(&self.credentials, peer, (&self.lookup, self.scope), hello).await
    }

    /// A future that ends when the certificate of the parent is revoked.
    fn watch(&self, parent: Parent, stream: &ConnectedStream) -> impl Future<Output = ()> + use<> {
        let watched = match parent {
            Parent::Node(node) => Some(self.credentials.watch_peer(node, stream.get_ref().1)),
            Parent::Head => None,
        };
        async move {
            match watched {
                Some(watched) => watched.await,
                None => std::future::pending().await,
            }
        }
    }

    /// Notes what came from the parent.
    fn heard(&self, parent: Parent, down: &Down) {
        self.shared.traffic.count(down.kind());
        self.shared.head.hear(parent, down);
    }
}

/// Keeps the links until the main loop is over.
pub(super) async fn serve(listener: TcpListener, tree: Tree) {
    let events = tree.events.clone();
    serve_children_also(&tree);
    tokio::select! {
        () = serve_children(listener, tree.clone()) => {}
        () = keep_parent(tree) => {}
        () = events.closed() => {}
    }
}

/// Keeps a link to a parent: the configured one, or the nearest ancestor that answers.
async fn keep_parent(tree: Tree) {
    let candidates = tree.candidates(tree.node);
    let mut filter = ClockFilter::new();
    let mut patience = PATIENCE_AT_START;
    loop {
        let (parent, (stream, version)) = find_parent(&tree, &candidates, patience).await;
        patience = PATIENCE;
        tracing::info!(?parent, version, "attached");
        service::status(&match parent {
            Parent::Head => format!("node {} is attached to the head", tree.node),
            Parent::Node(parent) => format!("node {} is attached to node {parent}", tree.node),
        });
        let revoked = tree.watch(parent, &stream);
        let error = tokio::select! {
            error = attend_parent(&tree, parent, (stream, version), &mut filter) => error,
            () = revoked => LinkError::Revoked,
        };
        tracing::warn!(?parent, %error, "the link to the parent is gone");
        if parent == Parent::Head {
            tree.heads.leave();
        }
        service::status(&format!("node {} looks for the head", tree.node));
        tree.shared.refusals.count_end(&error);
        if tree.events.send(TreeEvent::ParentDown).await.is_err() {
            return;
        }
    }
}

async fn find_parent(
    tree: &Tree,
    candidates: &[Parent],
    patience: Duration,
) -> (Parent, (ConnectedStream, u32)) {
    let start = Instant::now();
    let mut pause = BACK_OFF.0;
    let mut complained = false;
    loop {
        for (index, &parent) in candidates.iter().enumerate() {
            if index > 0 && start.elapsed() < patience {
                break;
            }
            let daemons = if parent == Parent::Head { tree.heads.count() } else { 1 };
            for _ in 0..daemons {
                let Some((identity, places)) = tree.places(parent) else { continue };
                match tree.connect((identity, &places), &tree.hello(Purpose::Tree)).await {
                    Ok(connected) => return (parent, connected),
                    Err(error) if complained => tracing::debug!(?parent, %error, "no link"),
                    Err(error) => {
                        let places: Vec<String> = places.iter().map(Place::to_string).collect();
                        tracing::info!(?parent, ?places, %error, "no link yet; trying on");
                    }
                }
                if parent == Parent::Head {
                    tree.heads.leave();
                }
            }
        }
        complained |= start.elapsed() > patience;
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(BACK_OFF.1);
    }
}

/// Carries the link to the parent until it ends, and keeps the clock by it.
async fn attend_parent(
    tree: &Tree,
    parent: Parent,
    (stream, version): (ConnectedStream, u32),
    filter: &mut ClockFilter,
) -> LinkError {
    let (mut read, write) = tokio::io::split(stream);
    let (outbox, writing) = Outbox::start(write, version, tree.shared.traffic.clone());
    if tree.events.send(TreeEvent::ParentUp(outbox.clone())).await.is_err() {
        return LinkError::Closed;
    }
    let filter = std::cell::RefCell::new(filter);
    let (mut gate, silence, before) =
        (tree.from_parent.clone(), tree.config.silence(), SuspendedTime::now());
    let reading = async {
        loop {
            gate.pass().await;
            let down = match link::receive::<Down>(&mut read, silence).await {
                Ok(down) => down,
                Err(error) => return error,
            };
            // A grant that waited meanwhile would last from now on, by a clock that stood still.
            if let Some(slept) = SuspendedTime::now().since(before) {
                return LinkError::Slept(slept);
            }
            let received = monotonic();
            tree.heard(parent, &down);
            if let Down::Clock { stamp, time } = down {
                let mut filter = filter.borrow_mut();
                filter.sample(stamp, time, received);
                tree.shared.clock.set(received, filter.cluster_time(received));
            } else if tree.events.send(TreeEvent::Parent(down)).await.is_err() {
                return LinkError::Closed;
            }
        }
    };
    let probing = async {
        for count in 0_u32.. {
            outbox.send(&Up::ClockProbe { stamp: monotonic() });
            let pause = if count < FIRST_PROBES { FIRST_PROBE } else { PROBE };
            let mut steps = tokio::time::interval(pause.min(PROBE / 10));
            steps.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let end = Instant::now() + pause;
            while Instant::now() < end {
                steps.tick().await;
                // The filter approaches a new offset gradually; the switching thread sees steps.
                let (now, filter) = (monotonic(), filter.borrow());
                if filter.synchronised() {
                    tree.shared.clock.set(now, filter.cluster_time(now));
                }
            }
        }
        LinkError::Closed
    };
    tokio::select! {
        error = reading => error,
        error = probing => error,
        written = writing => written.err().map_or(LinkError::Closed, LinkError::Io),
    }
}

/// Accepts the links of children at the further addresses of the node.
fn serve_children_also(tree: &Tree) {
    let places = tree.config.places_of(tree.node).unwrap_or_default();
    for address in further(&places) {
        let tree = tree.clone();
        tokio::task::spawn_local(async move {
            serve_children(listening::listen_also(address).await, tree).await;
        });
    }
}

/// Accepts the links of children.
async fn serve_children(listener: TcpListener, tree: Tree) {
    let limiter = HandshakeLimit::new(MAX_PENDING_HANDSHAKES);
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let link = LinkId(tree.last_child.fetch_add(1, Ordering::Relaxed) + 1);
                let attended = attend_child(tree.clone(), link, stream, limiter.admit());
                tokio::task::spawn_local(attended);
            }
            Err(error) => {
                tracing::warn!(%error, "a child could not be accepted");
                tokio::time::sleep(BACK_OFF.0).await;
            }
        }
    }
}

async fn attend_child(tree: Tree, id: LinkId, stream: TcpStream, permit: HandshakePermit) {
    let agree = |hello: &LinkHello| {
        let ours = tree.candidates(hello.node).contains(&Parent::Node(tree.node));
        if ours && hello.purpose == Purpose::Tree {
            Ok(())
        } else {
            Err(refusal(
                RefusalKind::BadRequest,
                format!(
                    "node {} is not below node {}; all hosts must have the same cluster.toml",
                    hello.node, tree.node
                ),
            ))
        }
    };
    let answer = link::accept(&tree.credentials, &tree.config.name, stream, agree);
    let (hello, stream) = match permit.complete(answer).await {
        Ok(answered) => answered,
        Err(error) => return tree.shared.refusals.count_link(&error),
    };
    tracing::info!(node = %hello.node, version = hello.version, "child attached");
    let revoked = tree.credentials.watch_peer(hello.node, stream.get_ref().1);
    let (read, write) = tokio::io::split(stream);
    let (outbox, writing) = Outbox::start(write, hello.version, tree.shared.traffic.clone());
    if tree.events.send(TreeEvent::ChildUp(id, outbox.clone())).await.is_err() {
        return;
    }
    let time = || tree.shared.clock.now();
    let gate = &tree.from_children;
    let deliver = async |up| {
        gate.clone().pass().await;
        tree.events.send(TreeEvent::Child(id, up)).await.is_ok()
    };
    // Which nodes there are, and whose certificates count, the authority and the head say.
    let below = subtree(hello.node, MOST_NUMBERS, tree.config.fan_out);
    let known = (&below, &tree.shared.traffic, tree.config.silence());
    let error = tokio::select! {
        error = link::serve_child(read, (outbox, writing), known, time, deliver) => error,
        () = revoked => LinkError::Revoked,
    };
    tracing::info!(node = %hello.node, %error, "child gone");
    tree.shared.refusals.count_end(&error);
    // Fails only when the daemon is about to end.
    let _ = tree.events.send(TreeEvent::ChildDown(id)).await;
}
