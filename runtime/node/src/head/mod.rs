//! `kumid head`: the daemon that places and records jobs, and that clients talk to.

mod clients;
mod job_table;
mod metrics;
mod spool;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use kumi_control::disclosure::{Disclosure, EXCHANGE, LinkPeer};
use kumi_control::head::{ClientId, Head, HeadAction, HeadConfig, HeadEvent, LinkId};
use kumi_control::message::{ClientReply, ClientRequest, Down, JobRecord, RefusalKind, Up};
use kumi_sched::{ClusterTime, JobId};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};

use crate::client::refusal;
use crate::clock::{monotonic, wall_ms};
use crate::config::ClusterConfig;
use crate::exit::{ExitCode, Failure};
use crate::handshake_limit::{HandshakeLimit, HandshakePermit, MAX_PENDING_HANDSHAKES};
use crate::link::{self, AcceptedStream, LinkError, LinkHello, Outbox, Purpose, Refusals, Traffic};
use crate::node::setup::{listen, listen_for_scrapes, listen_unix, raise_open_files, write_pid};
use crate::paths;
use crate::tls::{Credentials, Identity};
use clients::ClientOutbox;
use job_table::JobTable;
use metrics::{HeadCounters, HeadMetrics};
use spool::Spools;

/// How long a node may be away before its jobs fail.
const DETACH_GRACE: Duration = Duration::from_secs(1);
/// Between attempts to write records that could not be written.
const RETRY: Duration = Duration::from_secs(1);
/// Between looks for keys of ended jobs that are still on the disk.
const FORGET: Duration = Duration::from_secs(1);

/// Most bytes that may wait for one link before clients are left alone, and how often to look
/// whether they have gone.
const MAX_QUEUED: usize = 8 << 20;
const DRAIN_LOOK: Duration = Duration::from_millis(5);

/// Event from a link or a client for the main loop.
#[derive(Debug)]
enum Event {
    Head(HeadEvent),
    LinkUp(LinkId, Outbox),
    LinkDown(LinkId),
    ClientUp(ClientId, ClientOutbox),
    ClientDown(ClientId),
}

/// State that links and clients share.
#[derive(Clone)]
struct Shared {
    config: Arc<ClusterConfig>,
    credentials: Credentials,
    events: mpsc::Sender<Event>,
    refusals: Refusals,
    traffic: Traffic,
    /// Whether some link has so many bytes queued that clients must not send more.
    congested: watch::Receiver<bool>,
    ids: Rc<Cell<u64>>,
}

impl Shared {
    /// A number for a link or client, never given again.
    fn next_id(&self) -> u64 {
        self.ids.set(self.ids.get() + 1);
        self.ids.get()
    }
}

/// Runs the head of the cluster in `dir` until it is told to stop. `metrics` replaces what cluster.toml says of
/// where figures are served.
///
/// # Errors
/// The head could not start, or failed.
pub fn run(dir: &Path, metrics: Option<&str>) -> Result<(), Failure> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| {
            Failure::new(
                ExitCode::MachineLimits,
                format!("no event loop can be made: {error}; raise the limit of open files"),
            )
        })?;
    let tasks = tokio::task::LocalSet::new();
    tasks.block_on(&runtime, async { HeadDaemon::start(dir, metrics).await?.run().await })
}

struct HeadDaemon {
    /// Never borrowed across an await: the task that serves metrics runs then.
    head: Rc<RefCell<Head>>,
    counts: Rc<HeadCounters>,
    /// The client whose submission is being handled.
    submitting: Option<ClientId>,
    table: JobTable,
    /// Records that could not be written yet, the latest of each job.
    unwritten: BTreeMap<JobId, JobRecord>,
    spools: Spools,
    links: BTreeMap<LinkId, Outbox>,
    clients: BTreeMap<ClientId, ClientOutbox>,
    gossip: Disclosure,
    refusals: Refusals,
    events: mpsc::Receiver<Event>,
    congestion: watch::Sender<bool>,
    files: [PathBuf; 2],
    done: bool,
}

fn seed() -> Result<[u8; 32], Failure> {
    let mut seed = [0; 32];
    fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut seed)).map_err(
        |error| {
            Failure::new(ExitCode::MachineLimits, format!("/dev/urandom cannot be read: {error}"))
        },
    )?;
    Ok(seed)
}

impl HeadDaemon {
    async fn start(dir: &Path, at: Option<&str>) -> Result<Self, Failure> {
        let config = Arc::new(ClusterConfig::load(dir)?);
        let credentials = Credentials::load(dir, Identity::Head)?;
        raise_open_files();
        if let Err(error) = kumi_net::priority::prefer_this_thread() {
            tracing::info!(%error, "no preference: the head waits for its turn on a busy machine");
        }
        // First, since it makes sure that there is only one head.
        let listener = listen(config.head).await?;
        let scrapes = listen_for_scrapes(config.metrics_of_head(at)?, "head_metrics").await?;
        let mut table = JobTable::open(&paths::head_db(dir))?;
        let records = table.load()?;
        let known: std::collections::BTreeSet<_> = records.iter().map(|r| r.spec.job).collect();
        let spools = open_spools(dir, |job| known.contains(&job))?;
        let jobs = records.len();
        let head = make_head(&config, records)?;
        let (head, counts) = (Rc::new(RefCell::new(head)), Rc::new(HeadCounters::default()));
        counts.spool_bytes.set(spools.bytes());
        let (sender, events) = mpsc::channel(256);
        let congestion = watch::Sender::new(false);
        let shared = Shared {
            config: Arc::clone(&config),
            credentials,
            events: sender,
            refusals: Refusals::default(),
            traffic: Traffic::default(),
            congested: congestion.subscribe(),
            ids: Rc::default(),
        };
        let (gossip, refusals) =
            (Disclosure::new(None, config.node_count()), shared.refusals.clone());
        let socket = paths::head_socket(dir);
        let local = listen_unix(&socket)?;
        if let Some(scrapes) = scrapes {
            let (head, counts) = (Rc::clone(&head), Rc::clone(&counts));
            let source = HeadMetrics { shared: shared.clone(), head, counts };
            tokio::task::spawn_local(crate::metrics::serve(scrapes, source));
        }
        tokio::task::spawn_local(clients::serve(local, shared.clone()));
        tokio::task::spawn_local(serve_links(listener, shared));
        let pid = paths::head_pid(dir);
        write_pid(&pid)?;
        tracing::info!(cluster = config.name, address = %config.head, nodes = config.nodes.len(), jobs, "ready");
        Ok(Self {
            head,
            counts,
            submitting: None,
            table,
            unwritten: BTreeMap::new(),
            spools,
            links: BTreeMap::new(),
            clients: BTreeMap::new(),
            gossip,
            refusals,
            events,
            congestion,
            files: [socket, pid],
            done: false,
        })
    }

    async fn run(&mut self) -> Result<(), Failure> {
        let failed = |error: std::io::Error| {
            Failure::new(ExitCode::Internal, format!("signals cannot be received: {error}"))
        };
        let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
        let mut exchange = tokio::time::interval(Duration::from_nanos(EXCHANGE));
        let mut forget = tokio::time::interval(FORGET);
        for interval in [&mut exchange, &mut forget] {
            interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        }
        while !self.done {
            let timeout = self.next_timeout();
            tokio::select! {
                biased;
                // First: a flood of events must not keep it from ending. Jobs run on; the next
                // head takes over.
                _ = terminate.recv() => self.done = true,
                _ = interrupt.recv() => self.done = true,
                Some(event) = self.events.recv() => self.event(event),
                _ = exchange.tick() => self.gossip(),
                _ = forget.tick() => self.forget_keys(),
                () = tokio::time::sleep(timeout) => {
                    self.write_again();
                    self.handle(HeadEvent::Timeout);
                }
            }
            let congested = self.links.values().any(|outbox| outbox.queued() > MAX_QUEUED);
            self.congestion.send_if_modified(|now| std::mem::replace(now, congested) != congested);
        }
        self.flush().await;
        tracing::info!("stopped");
        for path in &self.files {
            if let Err(error) = fs::remove_file(path) {
                tracing::warn!(path = %path.display(), %error, "a file is left");
            }
        }
        Ok(())
    }

    fn next_timeout(&self) -> Duration {
        let now = monotonic();
        let head = self.head.borrow().next_timeout();
        let head = head
            .map_or(Duration::from_secs(3600), |at| Duration::from_nanos(at.saturating_sub(now)));
        let head = if *self.congestion.borrow() { head.min(DRAIN_LOOK) } else { head };
        if self.unwritten.is_empty() { head } else { head.min(RETRY) }
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Head(HeadEvent::Child(link, Up::Disclosed(facts))) => {
                let from = LinkPeer::Child(link);
                for _ in 0..self.gossip.receive(monotonic(), from, facts) {
                    self.refusals.count("disclosure refused");
                }
            }
            Event::Head(event) => {
                if let Some(refused) = self.refuse_submission(&event) {
                    return refused;
                }
                if let HeadEvent::Client(client, _, ClientRequest::Submit(_)) = &event {
                    self.submitting = Some(*client);
                }
                self.handle(event);
                self.submitting = None;
            }
            Event::LinkUp(link, outbox) => {
                self.links.insert(link, outbox);
                self.gossip.link_up(LinkPeer::Child(link));
                self.handle(HeadEvent::ChildUp(link));
            }
            Event::LinkDown(link) => {
                self.links.remove(&link);
                self.gossip.link_down(LinkPeer::Child(link));
                self.handle(HeadEvent::ChildDown(link));
            }
            Event::ClientUp(client, outbox) => {
                self.clients.insert(client, outbox);
                self.counts.clients.set(self.clients.len());
            }
            Event::ClientDown(client) => {
                self.clients.remove(&client);
                self.counts.clients.set(self.clients.len());
                self.handle(HeadEvent::ClientGone(client));
            }
        }
    }

    /// Passes on what nodes say of themselves to those that do not know it yet.
    fn gossip(&mut self) {
        for (&link, outbox) in self.links.iter().filter(|(_, link)| link.queued() < MAX_QUEUED) {
            let facts = self.gossip.message(monotonic(), LinkPeer::Child(link));
            if !facts.is_empty() {
                outbox.send(&Down::Disclosed(facts));
            }
        }
    }

    /// While records cannot be written no new job is taken: it could be lost.
    fn refuse_submission(&self, event: &HeadEvent) -> Option<()> {
        let HeadEvent::Client(client, _, ClientRequest::Submit(_)) = event else {
            return None;
        };
        if self.unwritten.is_empty() {
            return None;
        }
        let message = "the job table cannot be written (is the disk of the head full?); jobs that run go on, new ones are refused until it can";
        self.count_refused_submission();
        self.reply(*client, ClientReply::Refused(refusal(RefusalKind::NoResources, message)));
        Some(())
    }

    fn count_refused_submission(&self) {
        self.counts.submissions_refused.set(self.counts.submissions_refused.get() + 1);
    }

    fn handle(&mut self, event: HeadEvent) {
        let mut events = std::collections::VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            self.head.borrow_mut().handle(monotonic(), wall_ms(), event);
            let mut records = BTreeMap::new();
            while let Some(action) = self.next_action() {
                match action {
                    HeadAction::Persist(record) => {
                        records.insert(record.spec.job, *record);
                    }
                    action => {
                        self.persist(std::mem::take(&mut records));
                        events.extend(self.act(action));
                    }
                }
            }
            self.persist(records);
        }
    }

    fn next_action(&self) -> Option<HeadAction> {
        self.head.borrow_mut().poll_action()
    }

    /// Makes records durable, those that failed before included.
    fn persist(&mut self, records: BTreeMap<JobId, JobRecord>) {
        if records.is_empty() {
            return;
        }
        self.unwritten.extend(records);
        self.write_again();
    }

    fn write_again(&mut self) {
        if self.unwritten.is_empty() {
            return;
        }
        match self.table.persist(self.unwritten.values()) {
            Ok(()) => self.unwritten.clear(),
            Err(error) => {
                tracing::error!(%error, jobs = self.unwritten.len(), "records are kept in memory");
            }
        }
        self.counts.unwritten.set(self.unwritten.len());
    }

    fn forget_keys(&mut self) {
        if let Err(error) = self.table.forget_keys() {
            tracing::error!(%error, "keys of jobs that are over are still in the log of the job table");
        }
    }

    fn act(&mut self, action: HeadAction) -> Option<HeadEvent> {
        match action {
            HeadAction::Persist(record) => {
                self.persist(BTreeMap::from([(record.spec.job, *record)]));
            }
            HeadAction::ToChild(link, nodes, command) => {
                if let Some(outbox) = self.links.get(&link) {
                    outbox.send(&Down::Command(nodes, command));
                }
            }
            HeadAction::ToClient(client, reply) => {
                if self.submitting == Some(client) && matches!(reply, ClientReply::Refused(_)) {
                    self.count_refused_submission();
                }
                self.reply(client, reply);
            }
            HeadAction::Spool { job, rank, stream, data } => {
                return Some(match self.spools.append(job, rank, stream, &data) {
                    Ok(end) => {
                        self.counts.spool_bytes.set(self.spools.bytes());
                        HeadEvent::Spooled { job, end }
                    }
                    Err(error) => {
                        tracing::error!(%job, %error, "output cannot be kept");
                        self.counts.spool_failures.set(self.counts.spool_failures.get() + 1);
                        HeadEvent::SpoolFailed { job, reason: error.to_string() }
                    }
                });
            }
            HeadAction::Follow { client, job, offset, wait } => {
                if let Some(outbox) = self.clients.get(&client) {
                    match outbox.follower() {
                        Ok((output, one)) => {
                            let following = self.spools.follow(job, offset, wait, output);
                            tokio::task::spawn_local(async move {
                                following.await;
                                drop(one);
                            });
                        }
                        Err(refused) => self.reply(client, ClientReply::Refused(refused)),
                    }
                }
            }
            HeadAction::EndSpool { job, outcome } => self.spools.finish(job, outcome),
            HeadAction::Shutdown => self.done = true,
        }
        None
    }

    fn reply(&self, client: ClientId, reply: ClientReply) {
        if let Some(outbox) = self.clients.get(&client)
            && !outbox.answer(reply)
        {
            tracing::debug!(client = client.0, "a client is gone");
        }
    }

    /// Lets what is queued leave before the connections are closed.
    async fn flush(&mut self) {
        let end = tokio::time::Instant::now() + Duration::from_secs(1);
        // Clients' answers are written by their tasks, which get their turn here too.
        tokio::time::sleep(Duration::from_millis(20)).await;
        while self.links.values().any(|outbox| outbox.queued() > 0)
            && tokio::time::Instant::now() < end
        {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

/// The outputs of jobs that are known; others go.
fn open_spools(dir: &Path, known: impl Fn(JobId) -> bool) -> Result<Spools, Failure> {
    Spools::open(paths::spool(dir), known).map_err(|error| {
        let text = format!("{} cannot be used: {error}", paths::spool(dir).display());
        Failure::new(ExitCode::Io, text)
    })
}

fn make_head(config: &ClusterConfig, records: Vec<JobRecord>) -> Result<Head, Failure> {
    let head = Head::new(head_config(config), records, seed()?);
    head.map_err(|error| Failure::new(ExitCode::BadConfig, error.to_string()))
}

fn head_config(config: &ClusterConfig) -> HeadConfig {
    HeadConfig {
        cluster_name: config.name.clone(),
        nodes: config.nodes.iter().map(|node| node.name.clone()).collect(),
        mode: config.mode(),
        slice_ns: config.slice_ns(),
        policy: config.policy.clone(),
        max_jobs_per_node: config.max_jobs_per_node,
        max_priority: config.max_priority,
        priority: config.job.priority.unwrap_or(1),
        estimate_ns: config.job.estimate_ns(),
        owner_uid: config.owner_uid,
        lease_ns: config.lease_ms.saturating_mul(1_000_000),
        detach_grace_ns: u64::try_from(DETACH_GRACE.as_nanos()).unwrap_or(u64::MAX),
        encrypt: config.encrypt,
        env: config.job.to_env(),
    }
}

async fn serve_links(listener: TcpListener, shared: Shared) {
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
        Ok((hello, stream)) => match hello.purpose.clone() {
            Purpose::Tree => attend_link(&hello, stream, &shared).await,
            Purpose::Client(user) => clients::attend(stream, user, shared).await,
        },
        Err(error) => {
            shared.refusals.count_link(&error);
        }
    }
}

async fn attend_link(hello: &LinkHello, stream: AcceptedStream, shared: &Shared) {
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
    let error = link::serve_child(read, (outbox, writing), &shared.traffic, time, deliver).await;
    tracing::info!(node = %hello.node, %error, "detached");
    if let LinkError::Frame(error) = &error {
        shared.refusals.count_frame(error);
    }
    // Fails only when the head is about to end.
    let _ = shared.events.send(Event::LinkDown(id)).await;
}
