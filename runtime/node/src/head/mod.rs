//! `kumid head`: the daemon that places and records jobs, and that clients talk to.
//!
//! [`HeadDaemon`] only routes: events go to the state machine ([`kumi_control::head`]), and each action that comes out
//! goes to the owner of what it concerns:
//!
//! | file | owns |
//! |---|---|
//! | `links`, `leases` | connections of nodes' daemons, gossip; a thread of its own |
//! | `clients`, `identity` | connections of clients, and who they are |
//! | `records`, `job_table`, `reserve`, `state` | records of jobs on the disk or in etcd, and those that wait for it; who leads |
//! | `documents`, `drains` | small files on their way to the disk, such as the list of drained nodes |
//! | `joining` | tokens of machines that join, and their certificates |
//! | `token_file`, `shared_tokens` | the file of these tokens; tokens that heads share |
//! | `live_config`, `shared_settings` | the configuration, whose nodes change; what of it all heads share |
//! | `held_actions` | what waits until records are on the disk |
//! | `spool` | output of jobs, and how much of it is kept |
//! | `copies` | copies of output at heads that wait, and what is acknowledged before they have it |
//! | `metrics` | counts, and the page for Prometheus |
//! | `usage` | questions about what jobs have used |
//! | `monitor` | load of ranks, pictures, history |
//! | `web` | the web server: questions of browsers, tickets |

mod clients;
mod copies;
mod documents;
mod drains;
mod held_actions;
mod identity;
mod job_table;
mod joining;
mod leases;
mod life;
mod links;
mod live_config;
mod make;
mod metrics;
mod monitor;
mod records;
mod reserve;
mod shared_settings;
mod shared_tokens;
mod spool;
mod state;
mod token_file;
mod usage;
mod web;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use kumi_control::disclosure::EXCHANGE;
use kumi_control::head::{ClientId, Head, HeadAction, HeadEvent};
use kumi_control::message::{
    ClientReply, ClientRequest, HeadTroubles, JobRecord, JobState, RefusalKind, Up, User,
};
use kumi_etcd::Certainty;
use tokio::sync::{mpsc, watch};

use crate::client::refusal;
use crate::clock::monotonic;
use crate::config::ClusterConfig;
use crate::exit::Failure;
use crate::link::{Refusals, Traffic};
use crate::names::NameService;
use crate::node::setup::{listen_for_scrapes, listen_unix, write_pid};
use crate::paths;
use crate::service::{self, Signals};
use crate::tls::{Credentials, Identity};
use crate::user_connections::UserConnections;
use clients::{ClientOutbox, Clients};
use copies::OutputCopies;
use documents::Documents;
use drains::DrainFile;
use held_actions::{HeldActions, needs_no_record};
pub(crate) use job_table::UsageRetention;
use joining::Joining;
use leases::Leases;
pub use life::run;
use life::{HeadEnd, open_state};
use links::{LinkEvent, Links};
use live_config::LiveConfig;
use make::make_head;
use metrics::HeadCounters;
use monitor::{MONITOR, MONITOR_USER, Monitor};
use records::{JobRecords, WriteNumber, Written};
use shared_settings::{FirstSettings, SettingsOnTheWay};
use shared_tokens::TokensOnTheWay;
use spool::Spools;
use state::{LeaderTerm, OwnAddress, StatePlace};
use usage::UsageReader;
use web::WebService;

/// Between attempts to write records that could not be written.
const RETRY: Duration = Duration::from_secs(1);
/// Between looks for what is still on the disk of ended jobs: keys and environments, and records that are not kept.
const FORGET: Duration = Duration::from_secs(1);

/// What a user reads whose job is refused since this head may not lead any more.
const IN_DOUBT: &str = "etcd, which has the job table, does not answer the head; jobs that run go on, try again when it does";

/// Between looks whether the bytes that wait for a link have gone.
const DRAIN_LOOK: Duration = Duration::from_millis(5);

/// Between looks whether a head that is not sure to lead is sure again.
const DOUBT_LOOK: Duration = Duration::from_millis(100);

/// Event from a client for the main loop.
#[derive(Debug)]
enum Event {
    Head(HeadEvent),
    ClientUp(ClientId, ClientOutbox),
    ClientDown(ClientId),
}

/// What comes to the main loop.
enum Incoming {
    Link(LinkEvent),
    Client(Event),
}

/// The next event. Neither links nor clients can keep the others from being heard.
async fn next(
    links: &mut mpsc::Receiver<LinkEvent>,
    clients: &mut mpsc::Receiver<Event>,
) -> Incoming {
    tokio::select! {
        Some(event) = links.recv() => Incoming::Link(event),
        Some(event) = clients.recv() => Incoming::Client(event),
        else => std::future::pending().await,
    }
}

/// State that clients share.
#[derive(Clone)]
struct Shared {
    config: LiveConfig,
    credentials: Credentials,
    events: mpsc::Sender<Event>,
    refusals: Refusals,
    traffic: Traffic,
    /// Who users are on this machine.
    names: NameService,
    joining: Joining,
    /// Connections of clients, by user.
    connections: UserConnections,
    /// Whether some link has so many bytes queued that clients must not send more.
    congested: watch::Receiver<bool>,
    ids: Ids,
}

/// Numbers of links and clients.
#[derive(Clone, Debug, Default)]
struct Ids(Rc<Cell<u64>>);

impl Ids {
    /// A number that is never given again; the first is 1.
    fn next(&self) -> u64 {
        self.0.set(self.0.get() + 1);
        self.0.get()
    }
}

impl Shared {
    fn new(
        (dir, config): (&Path, &Arc<ClusterConfig>),
        (credentials, joining): (&Credentials, Joining),
        events: mpsc::Sender<Event>,
        (refusals, congested): (Refusals, watch::Receiver<bool>),
    ) -> Self {
        let most = config.quota.connections_per_user;
        Self {
            config: LiveConfig::new(dir, config),
            credentials: credentials.clone(),
            events,
            refusals,
            traffic: Traffic::default(),
            names: NameService::default(),
            joining,
            connections: UserConnections::new(most, config.owner_uid),
            congested,
            ids: Ids::default(),
        }
    }

    /// A number for a link or client, never given again.
    fn next_id(&self) -> u64 {
        self.ids.next()
    }
}

/// The state machine of the cluster, and the owners of what it acts on.
struct HeadDaemon {
    /// Never borrowed across an await: the task that serves metrics runs then.
    head: Rc<RefCell<Head>>,
    records: JobRecords,
    held: HeldActions,
    spools: Spools,
    copies: OutputCopies,
    usage: UsageReader,
    links: Links,
    clients: Clients,
    monitor: Monitor,
    web: WebService,
    shared: Shared,
    credentials: Credentials,
    drains: DrainFile,
    settings: SettingsOnTheWay,
    /// Of machines that join, if heads share them.
    tokens: Option<TokensOnTheWay>,
    term: LeaderTerm,
    documents: Documents,
    /// The write with counts of output for which all actions wait.
    counts_until: WriteNumber,
    events: mpsc::Receiver<Event>,
    link_events: mpsc::Receiver<LinkEvent>,
    files: [PathBuf; 3],
    done: bool,
    /// Another head leads.
    deposed: bool,
}

impl HeadDaemon {
    /// Whoever starts it gives it the term, in whose time it starts.
    async fn start(
        (dir, config): (&Path, Arc<ClusterConfig>),
        own: OwnAddress,
        (certainty, place): (&Certainty, StatePlace),
        at: Option<&str>,
    ) -> Result<Self, Failure> {
        let credentials = Credentials::load(dir, Identity::Head)?;
        // Before anything is read or changed: a file has one head.
        let (address, listener) = (own.address(), own.listen()?);
        let scrapes = listen_for_scrapes(config.metrics_of_head(at)?, "head_metrics").await?;
        let counts = Rc::new(HeadCounters::default());
        let (mut records, mut spools, mut known) =
            open_state(dir, (&config, &credentials), place, &counts).await?;
        let FirstSettings { config, drains, drained, settings } =
            shared_settings::take_over((dir, &config), &mut known, &mut records)?;
        let copies = OutputCopies::new((dir, &config, address), (&mut spools, &counts), &known);
        let revocations = credentials.revocations();
        let known_now = (known.tokens.take(), &mut records);
        let (tokens, joining) = shared_tokens::take_over(dir, (revocations, certainty), known_now)?;
        let head = make_head(&config, revocations.list(), drained, known)?;
        let head = with_output(head, &mut spools);
        let (refusals, leases) = (Refusals::default(), Leases::new(certainty.clone()));
        let (sender, events) = mpsc::channel(256);
        let links = Links::new(refusals.clone(), leases.clone());
        let refusals = (refusals, links.congestion());
        let shared = Shared::new((dir, &config), (&credentials, joining), sender, refusals);
        let files = [paths::head_socket(dir), paths::head_pid(dir), paths::web_socket(dir)];
        let local = listen_unix(&files[0])?;
        metrics::serve_figures(scrapes, &shared, &head, &counts);
        tokio::task::spawn_local(clients::serve(local, shared.clone()));
        let link_events = links::start(listener, &shared, leases)?;
        let monitor = Monitor::new(&config, &paths::history(dir));
        let web = WebService::start(dir, (&config, address.ip()), &monitor).await?;
        tell_ready(&files[1], (&config, address), head.borrow().records().count())?;
        Ok(Self {
            head,
            records,
            held: HeldActions::default(),
            spools,
            copies,
            usage: UsageReader::start(paths::head_db(dir))?,
            links,
            clients: Clients::new(counts),
            monitor,
            web,
            shared,
            credentials,
            drains,
            settings,
            tokens,
            term: LeaderTerm::without_end(),
            documents: Documents::start()?,
            counts_until: 0,
            events,
            link_events,
            files,
            done: false,
            deposed: false,
        })
    }

    async fn run(&mut self, mut signals: Signals) -> Result<HeadEnd, Failure> {
        service::ready();
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
                _ = signals.terminate.recv() => self.done = true,
                _ = signals.interrupt.recv() => self.done = true,
                _ = signals.hangup.recv() => self.reload_certificates(),
                () = self.term.over() => self.depose(),
                written = self.records.written() => self.written(written),
                written = self.documents.written() => self.document_written(written),
                incoming = next(&mut self.link_events, &mut self.events), if !self.held.is_full() => {
                    match incoming {
                        Incoming::Link(event) => self.link_event(event),
                        Incoming::Client(event) => self.event(event),
                    }
                }
                _ = exchange.tick() => self.links.exchange(),
                _ = forget.tick() => self.clean_up(),
                () = at(self.monitor.due()) => {
                    let request = self.monitor.ask();
                    self.handle(HeadEvent::Client(MONITOR, MONITOR_USER, request));
                }
                question = self.web.question() => self.question(question),
                (client, reply) = self.usage.answered() => self.clients.reply(client, reply),
                told = self.copies.told() => self.copies.take(told, &mut self.spools),
                () = self.spools.progress() => {
                    let events = self.spools.release();
                    events.into_iter().for_each(|event| self.handle(event));
                }
                () = tokio::time::sleep(timeout) => {
                    self.records.write_again();
                    self.handle(HeadEvent::Timeout);
                }
            }
            self.serve_standbys();
            self.links.update_congestion();
        }
        service::stopping();
        Ok(self.finish().await)
    }

    fn next_timeout(&self) -> Duration {
        let now = monotonic();
        let head = self.head.borrow().next_timeout();
        let head = head
            .map_or(Duration::from_secs(3600), |at| Duration::from_nanos(at.saturating_sub(now)));
        let head = if self.links.is_congested() { head.min(DRAIN_LOOK) } else { head };
        let head = if self.term.leads() { head } else { head.min(DOUBT_LOOK) };
        let head = self.copies.next_look().map_or(head, |look| head.min(look));
        if self.records.has_failed() { head.min(RETRY) } else { head }
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Head(HeadEvent::Client(client, user, request)) if request.is_submission() => {
                self.submission(client, user, request);
            }
            Event::Head(HeadEvent::Client(client, user, ClientRequest::WebTicket { act })) => {
                self.ticket(client, user, act);
            }
            Event::Head(HeadEvent::Client(client, _, ClientRequest::Heads)) => {
                self.clients.reply(client, ClientReply::Heads(self.copies.heads()));
            }
            Event::Head(HeadEvent::Client(client, _, ClientRequest::Troubles)) => {
                let (output, jobs) = (self.spools.trouble(), self.records.trouble());
                self.clients.reply(client, ClientReply::Troubles(HeadTroubles { output, jobs }));
            }
            Event::Head(HeadEvent::Client(client, user, ClientRequest::Usage(query))) => {
                self.usage_question(client, &user, query);
            }
            Event::Head(event) => {
                if let HeadEvent::Client(client, _, ClientRequest::Revoke { .. }) = event {
                    self.documents.revokes(client);
                }
                self.handle(event);
            }
            Event::ClientUp(client, outbox) => self.clients.connected(client, outbox),
            Event::ClientDown(client) => {
                self.clients.disconnected(client);
                self.documents.forget(client);
                self.handle(HeadEvent::ClientGone(client));
            }
        }
    }

    fn link_event(&mut self, event: LinkEvent) {
        match event {
            LinkEvent::Child(link, Up::Disclosed(facts)) => self.links.disclosed(link, facts),
            LinkEvent::Child(link, up) => {
                self.links.reported(link, &up);
                self.handle(HeadEvent::Child(link, up));
            }
            LinkEvent::Up(link, outbox) => {
                self.links.up(link, outbox);
                self.handle(HeadEvent::ChildUp(link));
            }
            LinkEvent::Down(link) => {
                self.links.down(link);
                self.records.link_gone(link);
                self.handle(HeadEvent::ChildDown(link));
            }
            LinkEvent::Join(request) => self.answer_machine(*request),
            LinkEvent::Standby(caller) => self.standby_connects(&caller.0, caller.1),
            LinkEvent::Client(client) => {
                tokio::task::spawn_local(client.attend(self.shared.clone()));
            }
        }
    }

    /// What is to be done each second: old things leave the disk, and what it did not take is tried again.
    fn clean_up(&mut self) {
        self.note_written();
        self.records.clean_up();
        self.keep_owed_revocations();
        for event in self.spools.write_again() {
            self.handle(event);
        }
    }

    /// A client submits a job. While records cannot be written no new job is taken: it could be lost.
    fn submission(&mut self, client: ClientId, user: User, request: ClientRequest) {
        self.clients.set_submitting(Some(client));
        let doubt = (!self.term.leads()).then(|| IN_DOUBT.to_owned());
        match self.records.trouble().or(doubt) {
            None => self.handle(HeadEvent::Client(client, user, request)),
            Some(message) => {
                let refused = refusal(RefusalKind::NoResources, message);
                self.clients.reply(client, ClientReply::Refused(refused));
            }
        }
        self.clients.set_submitting(None);
    }

    fn handle(&mut self, event: HeadEvent) {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            self.take_event(event);
            while let Some(action) = self.next_action() {
                match action {
                    HeadAction::Persist(record) => {
                        // A later head that knows of the end knows how much output there was.
                        if is_over(&record) {
                            let job = record.spec.job;
                            let count = self.copies.count_at_end(job, &mut self.spools);
                            self.records.add_written(count);
                        }
                        self.records.add(JobRecord::clone(&record));
                        self.held.push(self.records.needed(), HeadAction::Persist(record));
                    }
                    HeadAction::Revoke { node, list } => {
                        self.records.revoke(list.clone());
                        self.revoke_token(node);
                        self.held.push(self.records.needed(), HeadAction::Revoke { node, list });
                    }
                    HeadAction::KeepDrains { client, drains } if self.settings.are_shared() => {
                        self.share_drains(&drains);
                        self.held
                            .push(self.records.needed(), HeadAction::KeepDrains { client, drains });
                    }
                    action if needs_no_record(&action) && self.term.leads() => {
                        events.extend(self.act(action));
                    }
                    action => self.held.push(self.records.needed(), action),
                }
            }
            self.records.write();
            events.extend(self.act_on_settled());
            events.extend(self.settle_shared_nodes());
        }
        self.settle_tokens();
    }

    /// Carries out what need not wait for the disk any more, while this head leads for certain. Returns what comes of it.
    fn act_on_settled(&mut self) -> Vec<HeadEvent> {
        let mut events = Vec::new();
        while self.term.leads()
            && !self.documents.holds_actions()
            && self.records.is_settled(self.counts_until)
            && let Some(action) = self.held.pop(|write| self.records.is_settled(write))
        {
            events.extend(self.act(action));
        }
        events
    }

    /// Records are on the disk, or could not be written.
    fn written(&mut self, written: Written) {
        self.records.take(written);
        if self.records.is_deposed() {
            return self.depose();
        }
        self.send_forgets();
        let mut events = self.act_on_settled();
        events.extend(self.settle_shared_nodes());
        self.settle_tokens();
        events.into_iter().for_each(|event| self.handle(event));
    }

    fn next_action(&self) -> Option<HeadAction> {
        self.head.borrow_mut().poll_action()
    }

    fn act(&mut self, action: HeadAction) -> Vec<HeadEvent> {
        match action {
            // Its write is over. Spools learn of it between the output before it and the end behind it.
            HeadAction::Persist(record) => {
                self.spools.know(&record);
                // Output that was held up until now: who reads the end knows that heads of later terms know of it.
                if is_over(&record)
                    && let Some(more) = self.copies.count_at_end(record.spec.job, &mut self.spools)
                {
                    self.counts_until = self.records.need_written(more);
                }
                if record.state == JobState::Running {
                    self.monitor.job_runs();
                }
            }
            HeadAction::ToChild(..) => self.send_to_child(action),
            HeadAction::ToClient(MONITOR, ClientReply::Samples(samples)) => {
                self.monitor.answered(&samples, &self.head.borrow());
            }
            HeadAction::ToClients(clients, reply) => return self.reply_to_all(clients, reply),
            HeadAction::ToClient(client, reply) => {
                let reply = self.documents.answer(client, reply);
                if let Some(reply) = self.web.reply(client, reply) {
                    self.clients.reply(client, reply);
                }
            }
            HeadAction::Spool { job, rank, stream, at, data } => {
                return self.spools.keep(job, (rank, stream), at, &data);
            }
            HeadAction::Follow { client, job, offset, wait, paces } => {
                let spools = &mut self.spools;
                self.clients
                    .follow(client, |output| spools.follow(job, offset, (wait, paces), output));
            }
            HeadAction::MarkRestart { job, restarts, reason } => {
                return self.spools.mark_restart(job, restarts, &reason).into_iter().collect();
            }
            HeadAction::EndSpool { job, outcome, not_kept } => {
                self.spools.finish(job, outcome, not_kept);
            }
            HeadAction::Discard(job) => {
                self.records.discard(job);
                self.spools.discard(job);
            }
            HeadAction::Revoke { list, .. } => self.keep_revocations(&list),
            HeadAction::KeepDrains { client, drains } => self.keep_drains(client, drains),
            HeadAction::AddNode { client, definition } => self.add_node(client, definition),
            HeadAction::IssueToken { client, node, valid_ms } => {
                self.issue_token(client, node, valid_ms);
            }
            HeadAction::RemoveNode { client, node } => self.remove_node(client, node),
            HeadAction::Shutdown => self.done = true,
        }
        Vec::new()
    }

    /// The monitor and browsers have no connection: what they get is not encoded.
    fn reply_to_all(&mut self, clients: Vec<ClientId>, reply: ClientReply) -> Vec<HeadEvent> {
        let inside = |client: &ClientId| *client == MONITOR || self.web.waits(*client);
        let (inside, connected): (Vec<ClientId>, Vec<ClientId>) =
            clients.into_iter().partition(inside);
        let tell = |client| self.act(HeadAction::ToClient(client, reply.clone()));
        let events = inside.into_iter().flat_map(tell).collect();
        self.clients.reply_to_all(&connected, reply);
        events
    }
}

/// The state machine, which knows from now on how far the output of jobs has come.
fn with_output(mut head: Head, spools: &mut Spools) -> Rc<RefCell<Head>> {
    spools.restore(&mut head);
    Rc::new(RefCell::new(head))
}

/// Says that the head leads, and has so many jobs; also in the file `pid`.
fn tell_ready(
    pid: &Path,
    (config, address): (&ClusterConfig, SocketAddr),
    jobs: usize,
) -> Result<(), Failure> {
    write_pid(pid)?;
    tracing::info!(cluster = config.name, %address, nodes = config.members().count(), jobs, "ready");
    service::status(&format!("the head of {} listens on {address}", config.name));
    Ok(())
}

/// Waits until then, or for ever.
async fn at(time: Option<tokio::time::Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

fn is_over(record: &JobRecord) -> bool {
    matches!(record.state, JobState::Ended(_))
}
