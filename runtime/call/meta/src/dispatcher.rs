//! Central state of a metaserver, from the request of a place to the end of a call.
//!
//! The module `connection` has the sockets, and `members` the servers.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::rc::Rc;
use std::time::{Duration, Instant};

use kumi_broker::{
    Action, Broker, CallId, ClientId, Event, RejectReason, Request, ServerId, SiteId, Time, UserId,
};
use kumi_call_wire::context::Span;
use kumi_call_wire::state::{CallState, CounterState};
use kumi_rpc::{AttemptReport, AttemptState, Code, Failure, Placement, PlacementRequest, Ticket};

use super::Config;
use super::catalogue::{Catalogue, key};
use super::etcd::Leadership;
use super::last_places::LastPlaces;
use super::members::Member;
use super::names::NameTable;
use super::outcome::{self, Reasons};
use super::paths::Paths;
use super::peer::Peer;
use super::span_log;
use super::startup_queue::{QueuedRequest, StartupQueue, StartupRequest};
use super::store::Store;

/// How long after the start servers of an earlier metaserver may still register.
const EARLY: u64 = 10 * Time::SECOND;
/// Number of finished calls that are shown.
const MOST_RECENT: usize = 64;

/// The present attempt of a call.
#[derive(Debug)]
pub struct CurrentAttempt {
    pub ticket: Ticket,
    pub server: ServerId,
    pub address: String,
    pub name: String,
    /// Its path, and how many calls sent on it at the beginning. `None`: its arguments have arrived.
    pub sending: Option<(SiteId, SiteId, u32)>,
    /// Mean number of calls that sent on the path meanwhile.
    pub sharers: f64,
    /// Whether its client may be told.
    pub granted: bool,
    /// Since when the client may have come to the server, if it has not. `None`: it may not come yet, or has
    /// come.
    pub awaited: Option<Time>,
    /// The server's connection on which the metaserver withdrew the place of an absent client.
    pub expires: Option<u64>,
}

impl CurrentAttempt {
    /// An attempt at the server with this address and name, of which its client is not told yet.
    pub fn new(ticket: Ticket, server: ServerId, address: String, name: String) -> CurrentAttempt {
        CurrentAttempt {
            ticket,
            server,
            address,
            name,
            sending: None,
            sharers: 1.0,
            granted: false,
            awaited: None,
            expires: None,
        }
    }
}

/// A call that is not over.
#[derive(Debug)]
pub struct OpenCall {
    pub key: (u64, u64),
    /// The client's connection and stream. `None`: the client is away.
    pub peer: Option<(Rc<Peer>, u32)>,
    pub routine: String,
    pub hash: u64,
    pub request: Request,
    pub submitted: Time,
    pub running: Option<CurrentAttempt>,
    /// The server reports that the attempt is no longer there.
    pub gone: bool,
    /// The server's report on that attempt.
    pub fate: AttemptState,
    /// The client's report of success, and since when it waits for the server's.
    pub client_report: Option<(AttemptReport, Time)>,
    /// Since when the client is away.
    pub orphan: Option<Time>,
    /// Attempts before this metaserver knew of the call.
    pub attempts: u32,
    /// Failed attempts since then.
    pub tried: u32,
    /// An earlier metaserver placed it, and the broker does not know it yet.
    pub restored: bool,
    /// The client asked for its place before its server was back.
    pub placement_untold: bool,
    /// Why its attempts failed.
    pub reasons: Reasons,
    /// Its span, if it is in a trace.
    pub span: Option<Span>,
}

impl OpenCall {
    /// A call without a server, that somebody asks for now.
    pub fn new(
        key: (u64, u64),
        routine: String,
        hash: u64,
        request: Request,
        now: Time,
    ) -> OpenCall {
        OpenCall {
            key,
            peer: None,
            routine,
            hash,
            request,
            submitted: now,
            running: None,
            gone: false,
            fate: AttemptState::Unknown,
            client_report: None,
            orphan: None,
            attempts: 0,
            tried: 0,
            restored: false,
            placement_untold: false,
            reasons: Reasons::default(),
            span: None,
        }
    }

    /// Whether this server has its present attempt.
    pub fn is_at(&self, server: ServerId) -> bool {
        self.running.as_ref().is_some_and(|running| running.server == server)
    }

    /// Attempts since this metaserver knows of the call.
    pub fn tried(&self) -> u32 {
        self.running.as_ref().map_or(self.tried, |running| running.ticket.attempt)
    }
}

/// The whole state.
pub struct Dispatcher {
    pub config: Config,
    pub broker: Broker,
    pub begin: Instant,
    pub catalogue: Catalogue,
    pub members: BTreeMap<ServerId, Member>,
    /// Numbers of servers by name and address.
    pub identities: HashMap<String, ServerId>,
    /// Owners of servers, if users are distinguished.
    pub owners: HashMap<String, String>,
    pub sites: NameTable,
    pub users: NameTable,
    pub calls: HashMap<u64, OpenCall>,
    pub keys: HashMap<(u64, u64), u64>,
    /// Calls by connection and stream.
    pub streams: HashMap<(u64, u32), u64>,
    /// Attempts that their servers must end and have not.
    pub stopping: HashMap<Ticket, ServerId>,
    pub paths: Paths,
    /// The latest finished calls, and when they ended.
    pub recent: VecDeque<(CallState, Time)>,
    /// Where calls were placed last.
    pub last_places: LastPlaces,
    /// Totals, without those that the broker has or that follow from others.
    pub counters: CounterState,
    /// Time of all placement decisions.
    pub deciding: Duration,
    /// Number of the next call. The high bits belong to this process alone.
    pub next: u64,
    pub connections: usize,
    /// Servers seen so far.
    pub servers_seen: u32,
    peers: u64,
    /// How long the routine of the latest finished call ran.
    pub ran: f64,
    pub store: Option<Box<dyn Store>>,
    /// An earlier metaserver has used the store: its servers are expected back.
    pub succeeds: bool,
    /// Leadership among several metaservers. `None`: there is only one.
    pub leadership: Option<Rc<Leadership>>,
    /// Attempts whose clients are told when the store has kept the note with this number.
    pub grants: VecDeque<(u64, Ticket)>,
    /// Requests for routines that nobody offers, while servers may still register.
    pub startup_queue: StartupQueue,
    /// Weights of users that the broker was told.
    pub weights: HashMap<u32, u32>,
}

impl Dispatcher {
    /// A dispatcher without servers and calls. Calls are numbered from `first`.
    pub fn new(config: Config, broker: Broker, first: u64) -> Dispatcher {
        let startup_queue = StartupQueue::new(config.waiting, config.waiting_of_user());
        Dispatcher {
            config,
            broker,
            begin: Instant::now(),
            catalogue: Catalogue::default(),
            members: BTreeMap::new(),
            identities: HashMap::new(),
            owners: HashMap::new(),
            sites: NameTable::default(),
            users: NameTable::default(),
            calls: HashMap::new(),
            keys: HashMap::new(),
            streams: HashMap::new(),
            stopping: HashMap::new(),
            paths: Paths::default(),
            recent: VecDeque::new(),
            last_places: LastPlaces::default(),
            counters: CounterState::default(),
            deciding: Duration::ZERO,
            next: first,
            connections: 0,
            servers_seen: 0,
            peers: 0,
            ran: 0.0,
            store: None,
            succeeds: false,
            leadership: None,
            grants: VecDeque::new(),
            startup_queue,
            weights: HashMap::new(),
        }
    }

    /// A number for a connection.
    pub fn number(&mut self) -> u64 {
        self.peers += 1;
        self.peers
    }

    /// The present time.
    pub fn now(&self) -> Time {
        Time(u64::try_from(self.begin.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// When the next timed action is due.
    pub fn due(&self) -> Option<Instant> {
        let Time(nanos) = self.broker.next_time()?;
        self.begin.checked_add(Duration::from_nanos(nanos))
    }

    /// Gives an event to the broker and carries out its actions.
    pub fn tell(&mut self, event: Event) {
        let now = self.now();
        self.broker.handle(now, event);
        while let Some(action) = self.broker.poll() {
            match action {
                Action::Start(CallId(call), server, attempt) => {
                    self.start(Ticket { call, attempt }, server);
                }
                Action::Stop(CallId(call), server, attempt) => {
                    self.stop(Ticket { call, attempt }, server);
                }
                Action::Done(CallId(call), outcome) => self.done(call, &outcome),
                Action::Queued(CallId(call), _) => self.requeue(call),
                Action::Declined(server) => self.declined(server),
            }
        }
    }

    /// A client asks for the place of a call.
    pub fn place(
        &mut self,
        peer: &Rc<Peer>,
        stream: u32,
        placing: PlacementRequest,
        span: Option<Span>,
    ) {
        let user = match self.may_call(peer, &placing.routine) {
            Ok(user) => user,
            Err(failure) => return self.reject(peer, stream, &failure),
        };
        let bound = self.bound_server(&placing).filter(|_| placing.bound);
        if let Some(call) = self.keys.get(&placing.key).copied() {
            return self.reattach(call, peer, stream);
        }
        if let Some(failure) = self.is_stuck() {
            return self.reject(peer, stream, &failure);
        }
        let PlacementRequest { hash, routine, .. } = &placing;
        let is_bound_to_nobody = placing.bound && bound.is_none();
        if (is_bound_to_nobody || self.catalogue.find(routine).is_none()) && self.is_early() {
            return self.queue_request(peer, stream, StartupRequest::Place(placing, span));
        }
        if let Some(failure) = self.unplaceable(peer, &placing, is_bound_to_nobody) {
            return self.reject(peer, stream, &failure);
        }
        let entry = self.catalogue.exactly(routine, *hash);
        let idempotent = placing.idempotent || entry.is_some_and(|entry| entry.idempotent);
        let request = Request { bound, ..self.request(peer, user, &placing, idempotent) };
        let PlacementRequest { key, routine, hash, attempts, .. } = placing;
        self.submit(OpenCall {
            peer: Some((Rc::clone(peer), stream)),
            attempts,
            span,
            ..OpenCall::new(key, routine, hash, request, self.now())
        });
    }

    /// Refuses a call.
    fn reject(&mut self, peer: &Peer, stream: u32, failure: &Failure) {
        self.counters.rejected += 1;
        peer.fail(stream, failure);
    }

    /// Why no server can run a call.
    fn unplaceable(
        &self,
        peer: &Peer,
        placing: &PlacementRequest,
        is_bound_to_nobody: bool,
    ) -> Option<Failure> {
        let routine = &placing.routine;
        if is_bound_to_nobody {
            return Some(outcome::rejected(routine, &RejectReason::BoundServerGone));
        }
        if self.catalogue.exactly(routine, placing.hash).is_some() {
            return None;
        }
        Some(match self.catalogue.find(routine) {
            None => self.unknown(peer, routine),
            Some(_) => {
                let text = format!("the description of `{routine}` has changed");
                Failure::new(Code::InterfaceChanged, 0, text)
            }
        })
    }

    /// The request to the broker for a call.
    fn request(
        &mut self,
        peer: &Peer,
        user: UserId,
        placing: &PlacementRequest,
        idempotent: bool,
    ) -> Request {
        let now = self.now();
        let site = self.site(&peer.site.borrow());
        let limit = u64::from(placing.time_ms) * (Time::SECOND / 1000);
        Request {
            routine: key(&placing.routine, placing.hash),
            client: ClientId(peer.id),
            user,
            site,
            bytes_out: placing.bytes_out,
            bytes_back: placing.bytes_back,
            operations: known(placing.operations),
            priority: placing.priority.min(peer.priority()),
            idempotent,
            deadline: (limit > 0).then(|| Time(now.0.saturating_add(limit))),
            held: self.held(&placing.input_locations),
            bound: None,
        }
    }

    /// Numbers a call and gives it to the broker.
    pub fn submit(&mut self, open: OpenCall) {
        let call = self.next;
        self.next += 1;
        let request = open.request.clone();
        self.keys.insert(open.key, call);
        if let Some((peer, stream)) = &open.peer {
            self.streams.insert((peer.id, *stream), call);
        }
        self.calls.insert(call, open);
        let begin = Instant::now();
        self.tell(Event::Submit(CallId(call), request));
        let took = begin.elapsed();
        self.counters.decisions += 1;
        self.deciding += took;
        let longest = &mut self.counters.decision_longest;
        *longest = longest.max(took.as_secs_f64());
    }

    /// Whether servers of an earlier metaserver may still register.
    fn is_early(&self) -> bool {
        // Some come only after they notice that the earlier leader is silent.
        self.now().0 < if self.leadership.is_some() { 2 * EARLY } else { EARLY }
    }

    /// Whether servers of an earlier metaserver are expected, and may still register.
    pub fn waits_for_servers(&self) -> bool {
        (self.leadership.is_some() || self.succeeds) && self.is_early()
    }

    /// Queues a request until servers are there.
    pub fn queue_request(&mut self, peer: &Rc<Peer>, stream: u32, request: StartupRequest) {
        let user = UserId(self.users.number(&peer.user()));
        if let Err(why) = self.startup_queue.add(peer, stream, user, request) {
            self.reject(peer, stream, &Failure::new(Code::Busy, 0, why));
        }
    }

    /// Repeats the queued requests for routines that nobody offered.
    pub fn replay_queued_requests(&mut self) {
        for QueuedRequest { peer, stream, request, .. } in self.startup_queue.take() {
            match request {
                StartupRequest::Place(placing, span) => {
                    self.place(&peer, stream, placing, span);
                }
                StartupRequest::Describe(name) => self.describe(&peer, stream, name),
            }
        }
        let calls = self.calls_that(|open| open.placement_untold);
        calls.into_iter().for_each(|call| self.tell_place(call));
    }

    /// The open calls that are so.
    pub fn calls_that(&self, are: impl Fn(&OpenCall) -> bool) -> Vec<u64> {
        self.calls.iter().filter(|(_, open)| are(open)).map(|(call, _)| *call).collect()
    }

    /// A client asks again for a known call, on another connection.
    fn reattach(&mut self, call: u64, peer: &Rc<Peer>, stream: u32) {
        let Some(open) = self.calls.get_mut(&call) else { return };
        if self.users.name(open.request.user.0) != peer.user() {
            let failure = Failure::new(Code::NotPermitted, 0, "this is another user's call");
            return peer.fail(stream, &failure);
        }
        if let Some((before, old)) = open.peer.replace((Rc::clone(peer), stream)) {
            before.tell(|rpc| rpc.close(old));
            self.streams.remove(&(before.id, old));
        }
        self.streams.insert((peer.id, stream), call);
        // Its server may not come back.
        open.orphan = open.orphan.filter(|_| open.restored);
        self.tell_place(call);
    }

    /// Tells a call's client its place, if it has one.
    fn tell_place(&mut self, call: u64) {
        let Some(open) = self.calls.get_mut(&call) else { return };
        let (Some((peer, stream)), Some(running)) = (&open.peer, &open.running) else { return };
        if !running.granted {
            return;
        }
        let member = self.members.get_mut(&running.server);
        open.placement_untold = member.is_none();
        let Some(member) = member else { return };
        let user = self.users.name(open.request.user.0);
        let placed = Placement {
            ticket: running.ticket,
            address: running.address.clone(),
            server: running.name.clone(),
            pass: member.pass(running.ticket, &open.routine, user),
        };
        peer.tell(|rpc| rpc.placed(*stream, &placed));
        span_log::placed(open.span.as_ref(), &open.routine, user, &placed);
    }

    fn start(&mut self, ticket: Ticket, server: ServerId) {
        let now = self.now();
        let (Some(open), Some(member)) =
            (self.calls.get_mut(&ticket.call), self.members.get(&server))
        else {
            return;
        };
        let (from, to) = (open.request.site, member.site);
        end_sending(&mut self.paths, open.running.as_mut());
        (open.gone, open.fate, open.client_report) = (false, AttemptState::Unknown, None);
        let (address, name) = (member.address.clone(), member.register.name.clone());
        let sending = Some((from, to, self.paths.begin(from, to)));
        let running =
            CurrentAttempt { sending, ..CurrentAttempt::new(ticket, server, address, name) };
        self.counters.placed += 1;
        self.last_places.note(self.users.name(open.request.user.0), &running, now);
        open.running = Some(running);
        self.keep_placed(ticket.call);
        self.grants.push_back((self.store.as_ref().map_or(0, |store| store.noted()), ticket));
        self.grant();
    }

    /// Tells clients their places, as far as the store has kept them and this metaserver leads.
    pub fn grant(&mut self) {
        let kept = self.store.as_ref().map_or(0, |store| store.kept());
        let leads = self.leadership.as_ref().is_none_or(|leadership| leadership.leads());
        let now = self.now();
        while let Some((_, ticket)) =
            self.grants.front().copied().filter(|at| leads && at.0 <= kept)
        {
            self.grants.pop_front();
            let Some(open) = self.calls.get_mut(&ticket.call) else { continue };
            let is_it = |running: &&mut CurrentAttempt| running.ticket == ticket;
            let Some(running) = open.running.as_mut().filter(is_it) else { continue };
            running.granted = true;
            running.awaited = Some(now);
            self.tell_place(ticket.call);
        }
    }

    /// An attempt failed, and the call waits for the next.
    fn requeue(&mut self, call: u64) {
        let Some(open) = self.calls.get_mut(&call) else { return };
        let Some(mut running) = open.running.take() else { return };
        end_sending(&mut self.paths, Some(&mut running));
        open.tried = running.ticket.attempt;
        (open.gone, open.fate, open.placement_untold) = (false, AttemptState::Unknown, false);
        open.client_report = None;
        // Like any waiting call: its client asks the next metaserver for it.
        if let Some(store) = &mut self.store {
            store.over(call);
        }
    }

    fn stop(&mut self, ticket: Ticket, server: ServerId) {
        self.stopping.insert(ticket, server);
        self.forbid(ticket, server);
    }

    /// Ends a call and tells its client.
    pub fn done(&mut self, call: u64, end: &kumi_broker::Outcome) {
        let Some(mut open) = self.calls.remove(&call) else { return };
        if let (Some(store), Some(_)) = (&mut self.store, &open.running) {
            store.over(call);
        }
        self.keys.remove(&open.key);
        end_sending(&mut self.paths, open.running.as_mut());
        let told = outcome::told(&open, end);
        outcome::count(&mut self.counters, end);
        if let Some((peer, stream)) = &open.peer {
            self.streams.remove(&(peer.id, *stream));
            peer.tell(|rpc| match &told.failure {
                None => rpc.close(*stream),
                Some(failure) => rpc.fail(*stream, failure),
            });
        }
        let user = self.users.name(open.request.user.0);
        span_log::ended(open.span.as_ref(), &open.routine, user, call, told.word);
        let now = self.now();
        let running = open.running.as_ref();
        if let Some(member) = running.and_then(|running| self.members.get_mut(&running.server)) {
            member.ended(end);
        }
        if self.recent.len() >= MOST_RECENT {
            self.recent.pop_front();
        }
        let call = CallState {
            reason: told.reason(&open.reasons),
            address: running.map_or_else(String::new, |running| running.address.clone()),
            user: self.users.name(open.request.user.0).to_owned(),
            server: running.map_or_else(String::new, |running| running.name.clone()),
            attempts: open.attempts + open.tried(),
            routine: open.routine,
            outcome: told.word.to_owned(),
            seconds: now.seconds_since(open.submitted),
            ran: std::mem::take(&mut self.ran),
            ago: 0.0,
        };
        self.recent.push_back((call, now));
    }

    /// A client cancels the call of a stream.
    pub fn cancel(&mut self, peer: &Peer, stream: u32) {
        if let Some(QueuedRequest { request, .. }) = self.startup_queue.remove(peer, stream) {
            let text = match request {
                StartupRequest::Place(placing, _) => {
                    format!("the call of `{}` was cancelled", placing.routine)
                }
                StartupRequest::Describe(name) => {
                    format!("the question for `{name}` was cancelled")
                }
            };
            return peer.fail(stream, &Failure::new(Code::Cancelled, 0, text));
        }
        let Some(call) = self.streams.get(&(peer.id, stream)).copied() else { return };
        // A client that has the results has nothing to give up.
        if self.calls.get(&call).is_some_and(|open| open.client_report.is_none()) {
            self.tell(Event::Cancel(CallId(call)));
        }
    }
}

fn known(operations: f64) -> Option<f64> {
    (operations.is_finite() && operations >= 0.0).then_some(operations)
}

/// The arguments of an attempt have arrived, or never will.
pub fn end_sending(paths: &mut Paths, running: Option<&mut CurrentAttempt>) {
    let Some(running) = running else { return };
    if let Some((from, to, at_begin)) = running.sending.take() {
        running.sharers = f64::from(at_begin + paths.end(from, to)) / 2.0;
    }
}
