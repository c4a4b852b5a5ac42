//! Event loop of one replication of a model of calls.
//!
//! A call is submitted, passes the metaserver, and waits there until the broker starts it. It then travels to
//! a server, is computed, and travels back. Its slot is free when the client has the results, because the
//! routine's process keeps them until then.

mod clients;

use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};

use kumi_broker::{
    Action, Broker, CallId, ClientId, Config, Event, Link, Offer, Outcome, RejectReason, Request,
    ServerId, SiteId, Time, UserId,
};

use super::model::{Discipline, Law};
use super::plan::Plan;
use super::run::Options;
use super::station::Station;
use super::tally::{CompletedCall, Tally};
use crate::engine::Monitor;
use crate::error::SimError;
use crate::random::RandomStream;
use clients::SimulatedClient;

/// An event.
#[derive(Clone, Copy, Debug)]
enum EventKind {
    /// A client calls.
    Call(usize),
    /// The next job of a station ends, unless the station has changed since.
    Station(usize, u64),
    /// Background traffic sends something over a path.
    Background(usize),
    /// A call's last byte arrives.
    Arrive(u64),
    /// The broker asked to be called at this time.
    Tick,
    /// Measuring begins.
    WarmedUp,
}

#[derive(Clone, Copy, Debug)]
struct ScheduledEvent {
    time: f64,
    number: u64,
    what: EventKind,
}

impl PartialEq for ScheduledEvent {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for ScheduledEvent {}

impl PartialOrd for ScheduledEvent {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ScheduledEvent {
    /// The greatest event happens first.
    fn cmp(&self, other: &Self) -> Ordering {
        other.time.total_cmp(&self.time).then(other.number.cmp(&self.number))
    }
}

/// Place of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Metaserver,
    Out,
    Computing,
    Back,
}

/// A call in progress.
#[derive(Clone, Copy, Debug)]
struct Running {
    caller: usize,
    routine: usize,
    /// Its work, as a multiple of the routine's.
    work: f64,
    pinned: Option<usize>,
    server: usize,
    attempt: u32,
    phase: Phase,
    submitted: f64,
    started: f64,
    arrived: f64,
    served: f64,
    computed: f64,
}

/// A job of the background traffic.
const OTHERS: u64 = u64::MAX;

/// A replication in progress.
pub(super) struct Engine<'a> {
    plan: &'a Plan<'a>,
    options: &'a Options,
    broker: Broker,
    now: f64,
    due: BinaryHeap<ScheduledEvent>,
    numbers: u64,
    /// Two for each link (there and back), then the servers, then the metaserver.
    stations: Vec<Station>,
    calls: HashMap<u64, Running>,
    next_call: u64,
    callers: Vec<SimulatedClient<'a>>,
    /// Random numbers of transfers, and two streams for each path's background traffic. Clients have streams
    /// of their own.
    draws: (RandomStream, Vec<RandomStream>),
    tick: f64,
    tally: Tally,
    /// The broker did something impossible for a sensible model.
    refused: Option<String>,
}

/// First stream of random numbers for clients; the others have lower numbers.
const CLIENT_STREAMS: u64 = 1 << 32;

pub(super) fn run(
    plan: &Plan<'_>,
    options: &Options,
    seed: u64,
    monitor: &Monitor,
) -> Result<Tally, SimError> {
    let mut engine = Engine::new(plan, options, seed)?;
    let mut told = 0;
    let mut events = 0u64;
    while let Some(due) = engine.due.pop() {
        if options.time_s.is_some_and(|end| due.time > end) {
            break;
        }
        engine.now = due.time;
        engine.happen(due.what);
        if let Some(reason) = engine.refused.take() {
            return Err(SimError::Model { reason });
        }
        events += 1;
        if events.is_multiple_of(4096) {
            if monitor.is_cancelled() {
                return Err(SimError::Cancelled);
            }
            let all = options.time_s.unwrap_or(f64::INFINITY);
            let permille = (1000.0 * engine.now / all) as u64;
            monitor.advance(permille.saturating_sub(told));
            told = told.max(permille);
        }
        if options.time_s.is_none() && engine.is_over() {
            break;
        }
    }
    monitor.advance(1000u64.saturating_sub(told));
    let end = options.time_s.unwrap_or(engine.now);
    Ok(engine.finish(end))
}

impl<'a> Engine<'a> {
    fn new(plan: &'a Plan<'a>, options: &'a Options, seed: u64) -> Result<Self, SimError> {
        let model = plan.model;
        let most_waiting = model.most_waiting.unwrap_or(usize::MAX);
        let config = Config { most_waiting, most_waiting_of_user: usize::MAX, ..Config::default() };
        let broker = Broker::new(kumi_broker::by_name(&model.policy)?, config);
        let mut stations = Vec::new();
        for link in &plan.links {
            for _ in 0..2 {
                stations.push(Station::new(link.discipline, 1, link.bandwidth));
            }
        }
        for server in &model.servers {
            stations.push(Station::new(server.discipline, server.processors, server.speed));
        }
        stations.push(Station::new(Discipline::Fcfs, 1, 1.0));
        let background =
            (0..2 * plan.links.len() as u64).map(|path| RandomStream::new(seed, 2 + path));
        let mut engine = Self {
            plan,
            options,
            broker,
            now: 0.0,
            due: BinaryHeap::new(),
            numbers: 0,
            stations,
            calls: HashMap::new(),
            next_call: 0,
            callers: clients::all(plan, seed, CLIENT_STREAMS),
            draws: (RandomStream::new(seed, 1), background.collect()),
            tick: f64::INFINITY,
            tally: Tally::new(plan),
            refused: None,
        };
        engine.set_up();
        match engine.refused.take() {
            Some(reason) => Err(SimError::Model { reason }),
            None => Ok(engine),
        }
    }

    fn at(&mut self, time: f64, what: EventKind) {
        self.numbers += 1;
        self.due.push(ScheduledEvent { time, number: self.numbers, what });
    }

    fn set_up(&mut self) {
        let plan = self.plan;
        let sites = plan.model.sites.len() as u32;
        for (number, server) in (0u32..).zip(&plan.model.servers) {
            let offered =
                |name: &&String| server.routines.is_empty() || server.routines.contains(name);
            let all = plan.model.routines.iter().map(|routine| &routine.name);
            let mut routines: Vec<String> = all.filter(offered).cloned().collect();
            if plan.pinned {
                let pinned: Vec<String> =
                    routines.iter().map(|name| format!("{name}@{number}")).collect();
                routines.extend(pinned);
            }
            let offer = Offer {
                site: SiteId(sites + number),
                routines,
                limit: server.limit.unwrap_or(u32::MAX),
                processors: server.processors,
                speed: server.speed,
            };
            self.tell_at(Time(0), Event::Joined(ServerId(number), offer));
            for (site, ways) in (0u32..).zip(&plan.ways) {
                let Some(link) = ways[number as usize].map(|way| plan.links[way]) else { continue };
                let free = link.bandwidth * (1.0 - link.background);
                let path = Link { out: free, back: free, latency: link.latency_s };
                let event = Event::Network(SiteId(site), SiteId(sites + number), path);
                self.tell_at(Time(0), event);
            }
        }
        for path in 0..2 * plan.links.len() {
            self.next_background(path);
        }
        for caller in 0..self.callers.len() {
            self.next_call(caller, true);
        }
        self.at(self.options.warm_up_s, EventKind::WarmedUp);
    }

    fn is_over(&self) -> bool {
        self.calls.is_empty() && self.callers.iter().all(SimulatedClient::is_over)
    }

    fn finish(mut self, end: f64) -> Tally {
        self.stations.iter_mut().for_each(|station| station.pass(end.max(self.now)));
        let stations = self.stations.iter().map(|station| station.integrals).collect();
        self.tally.finish(end - self.options.warm_up_s, self.now, stations);
        self.tally
    }

    fn happen(&mut self, what: EventKind) {
        match what {
            EventKind::Call(caller) => self.submit(caller),
            EventKind::Station(station, version) => {
                if self.stations[station].version == version
                    && let Some((job, begin)) = self.stations[station].pop(self.now)
                {
                    self.watch(station);
                    if job != OTHERS {
                        self.left(job, begin);
                    }
                }
            }
            EventKind::Background(path) => {
                let link = self.plan.links[path / 2];
                let bytes = link.background_bytes * self.draws.1[path].exponential();
                self.put(path, OTHERS, bytes);
                self.next_background(path);
            }
            EventKind::Arrive(job) => self.arrived(job),
            // An event that was moved to an earlier time has happened already.
            EventKind::Tick if self.now < self.tick => {}
            EventKind::Tick => {
                self.tick = f64::INFINITY;
                // The broker's clock is finer than this one.
                let now = clock(self.now);
                let due = self.broker.next_time().filter(|due| due.0.abs_diff(now.0) <= ROUNDING);
                self.tell_at(due.map_or(now, |due| due.max(now)), Event::Tick);
            }
            EventKind::WarmedUp => {
                for station in &mut self.stations {
                    station.pass(self.now);
                    station.integrals = super::station::Integrals::default();
                }
            }
        }
    }

    fn next_background(&mut self, path: usize) {
        let link = self.plan.links[path / 2];
        if link.background > 0.0 {
            let rate = link.background * link.bandwidth / link.background_bytes;
            let wait = self.draws.1[path].exponential() / rate;
            self.at(self.now + wait, EventKind::Background(path));
        }
    }

    fn put(&mut self, station: usize, job: u64, work: f64) {
        self.stations[station].add(self.now, job, work);
        self.watch(station);
    }

    fn watch(&mut self, station: usize) {
        if let Some(time) = self.stations[station].next() {
            let version = self.stations[station].version;
            self.at(time.max(self.now), EventKind::Station(station, version));
        }
    }

    fn metaserver(&self) -> usize {
        self.stations.len() - 1
    }

    fn next_call(&mut self, caller: usize, first: bool) {
        if let Some(time) = self.callers[caller].next(self.now, first) {
            self.at(time, EventKind::Call(caller));
        }
    }

    fn submit(&mut self, caller: usize) {
        let job = self.next_call;
        self.next_call += 1;
        let task = self.callers[caller].call();
        let law = self.plan.model.routines[task.routine].law;
        let work = task.work.unwrap_or_else(|| scatter(law, self.callers[caller].draws()));
        let running = Running {
            caller,
            routine: task.routine,
            work,
            pinned: task.server,
            server: 0,
            attempt: 0,
            phase: Phase::Metaserver,
            submitted: self.now,
            started: 0.0,
            arrived: 0.0,
            served: 0.0,
            computed: 0.0,
        };
        self.calls.insert(job, running);
        if self.callers[caller].is_open() {
            self.next_call(caller, false);
        }
        if self.plan.model.metaserver_s > 0.0 {
            self.put(self.metaserver(), job, self.plan.model.metaserver_s);
        } else {
            self.ask(job);
        }
    }

    /// Gives a call to the broker.
    fn ask(&mut self, job: u64) {
        let Some(call) = self.calls.get(&job) else { return };
        let routine = &self.plan.model.routines[call.routine];
        let client = &self.callers[call.caller];
        let name = match call.pinned {
            Some(server) => format!("{}@{server}", routine.name),
            None => routine.name.clone(),
        };
        let request = Request {
            routine: name,
            client: ClientId(call.caller as u64),
            user: UserId(client.user),
            site: SiteId(client.site as u32),
            bytes_out: routine.bytes_out,
            bytes_back: routine.bytes_back,
            operations: Some(routine.operations),
            priority: 0,
            idempotent: false,
            deadline: None,
            held: Vec::new(),
            bound: None,
        };
        self.tell(Event::Submit(CallId(job), request));
    }

    fn tell(&mut self, event: Event) {
        self.tell_at(clock(self.now), event);
    }

    fn tell_at(&mut self, time: Time, event: Event) {
        self.broker.handle(time, event);
        while let Some(action) = self.broker.poll() {
            match action {
                Action::Start(call, server, attempt) => {
                    if let Some(call) = self.calls.get_mut(&call.0) {
                        call.server = server.0 as usize;
                        (call.attempt, call.started) = (attempt, self.now);
                        call.phase = Phase::Out;
                    }
                    self.send(call.0);
                }
                Action::Done(call, Outcome::Completed) => self.completed(call.0),
                Action::Done(
                    call,
                    Outcome::Rejected(RejectReason::QueueFull | RejectReason::UserQueueFull),
                ) => self.turned_away(call.0),
                Action::Done(_, outcome) => {
                    self.refused = Some(format!("a call is not made: {outcome:?}"));
                }
                Action::Declined(server) => {
                    let name = &self.plan.model.servers[server.0 as usize].name;
                    self.refused = Some(format!(
                        "server {name:?} is not taken: it offers too much, or there are too many"
                    ));
                }
                Action::Queued(..) | Action::Stop(..) => {}
            }
        }
        #[allow(clippy::cast_precision_loss)]
        let next = self.broker.next_time().map(|time| time.0 as f64 / Time::SECOND as f64);
        if let Some(next) = next.filter(|&next| next < self.tick) {
            self.tick = next.max(self.now);
            self.at(self.tick, EventKind::Tick);
        }
    }

    /// Sends a call's bytes, there or back.
    fn send(&mut self, job: u64) {
        let Some(call) = self.calls.get(&job) else { return };
        let routine = &self.plan.model.routines[call.routine];
        let back = call.phase == Phase::Back;
        let bytes = if back { routine.bytes_back } else { routine.bytes_out };
        let way = self.plan.ways[self.callers[call.caller].site][call.server];
        match way {
            Some(way) if bytes > 0 => {
                #[allow(clippy::cast_precision_loss)]
                let work = bytes as f64 * scatter(self.plan.links[way].law, &mut self.draws.0);
                self.put(2 * way + usize::from(back), job, work);
            }
            Some(way) => self.at(self.now + self.plan.links[way].latency_s, EventKind::Arrive(job)),
            None => self.arrived(job),
        }
    }

    /// A call has left a station.
    fn left(&mut self, job: u64, begin: f64) {
        let Some(call) = self.calls.get_mut(&job) else { return };
        match call.phase {
            Phase::Metaserver => self.ask(job),
            Phase::Computing => {
                (call.served, call.computed) = (begin, self.now);
                call.phase = Phase::Back;
                self.send(job);
            }
            Phase::Out | Phase::Back => {
                let way = self.plan.ways[self.callers[call.caller].site][call.server];
                let latency = way.map_or(0.0, |way| self.plan.links[way].latency_s);
                self.at(self.now + latency, EventKind::Arrive(job));
            }
        }
    }

    /// All bytes of a call have arrived.
    fn arrived(&mut self, job: u64) {
        let Some(call) = self.calls.get_mut(&job) else { return };
        let id = CallId(job);
        let server = &self.plan.model.servers[call.server];
        let operations = self.plan.model.routines[call.routine].operations * call.work;
        if call.phase == Phase::Out {
            (call.phase, call.arrived) = (Phase::Computing, self.now);
            let (attempt, station) = (call.attempt, 2 * self.plan.links.len() + call.server);
            self.tell(Event::Started(id, attempt));
            self.put(station, job, operations + server.overhead_s * server.speed);
        } else {
            let seconds = operations / server.speed + server.overhead_s;
            let attempt = call.attempt;
            self.tell(Event::Ended(id, attempt, seconds));
        }
    }

    fn completed(&mut self, job: u64) {
        let Some(call) = self.calls.remove(&job) else { return };
        if self.now >= self.options.warm_up_s {
            let routine = &self.plan.model.routines[call.routine];
            let communication = (call.arrived - call.started) + (self.now - call.computed);
            #[allow(clippy::cast_precision_loss)]
            let bytes = (routine.bytes_out + routine.bytes_back) as f64;
            self.tally.ended(&CompletedCall {
                site: self.callers[call.caller].site,
                routine: call.routine,
                server: call.server,
                operations: routine.operations * call.work,
                bytes,
                response_s: self.now - call.submitted,
                waiting_s: (call.started - call.submitted) + (call.served - call.arrived),
                communication_s: communication,
            });
        }
        self.over(call.caller);
    }

    fn turned_away(&mut self, job: u64) {
        let Some(call) = self.calls.remove(&job) else { return };
        if self.now >= self.options.warm_up_s {
            self.tally.turned_away(self.callers[call.caller].site, call.routine);
        }
        self.over(call.caller);
    }

    fn over(&mut self, caller: usize) {
        if !self.callers[caller].is_open() {
            self.next_call(caller, false);
        }
    }
}

/// Rounding error of a time in seconds, in nanoseconds.
const ROUNDING: u64 = 1000;

fn clock(seconds: f64) -> Time {
    Time::default().after_seconds(seconds)
}

/// A factor with mean 1.
fn scatter(law: Law, draws: &mut RandomStream) -> f64 {
    match law {
        Law::Constant => 1.0,
        Law::Exponential => draws.exponential(),
        Law::Hyper(variation) => {
            // Two phases with equal shares of the work (balanced means).
            let squared = variation * variation;
            let likely = 0.5 * (1.0 + ((squared - 1.0) / (squared + 1.0)).sqrt());
            let p = if draws.unit() <= likely { likely } else { 1.0 - likely };
            draws.exponential() / (2.0 * p)
        }
    }
}
