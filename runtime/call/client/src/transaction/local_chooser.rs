//! Chooser for a given list of servers, with a broker of the transaction's own.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kumi_broker::{
    Action, Broker, CallId, ClientId, Config, Event, Failure, Link, Offer, Outcome, Request,
    ServerId, SiteId, Time, UserId, by_name,
};

use super::chooser::{ChooserEvent, PlacementDecision, ServerChooser, SubmittedCall};
use super::drive::Server;
use super::{RunOptions, TransactionError};
use crate::routed_call::RoutedCall;
use crate::{CallError, Client, KnownRoutine, Outcome as CallOutcome};

/// Assumed link between any two places until one is measured: bytes per second and seconds.
const WAY: Link = Link { out: 1e9, back: 1e9, latency: 1e-4 };
/// Assumed operations per second of a processor.
const SPEED: f64 = 1e9;
/// Assumed operations per byte, and per call, of a call that does not say.
const WORK: (f64, f64) = (10.0, 1e6);

/// Connects to all servers that can be reached.
pub fn connect(servers: &[&str], options: &RunOptions) -> Result<Vec<Server>, TransactionError> {
    let results: Vec<Result<Client, CallError>> = std::thread::scope(|scope| {
        let threads: Vec<_> = servers
            .iter()
            .map(|address| scope.spawn(|| Client::connect(address, &options.connect)))
            .collect();
        let panicked = |_| Err(CallError::Interrupted);
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(panicked)).collect()
    });
    let mut why = Vec::new();
    let mut connected = Vec::new();
    for (address, result) in servers.iter().zip(results) {
        let client = result.map_err(|error| why.push(error.to_string())).ok();
        let runs = |client: &Client| !client.is_metaserver();
        if client.as_ref().is_some_and(Client::is_metaserver) {
            why.push(format!("{address} is a metaserver, not a server: name it as one"));
        }
        connected.push(Server { address: (*address).to_owned(), client: client.filter(runs) });
    }
    if connected.iter().all(|server| server.client.is_none()) {
        let none = || "none was named".to_owned();
        return Err(TransactionError::NoServer(why.into_iter().next().unwrap_or_else(none)));
    }
    Ok(connected)
}

/// Asks one server after the other for a description.
pub fn describe(servers: &[Server], routine: &str) -> Result<Arc<KnownRoutine>, CallError> {
    let mut last = None;
    for client in servers.iter().filter_map(|server| server.client.as_ref()) {
        match client.interface(routine) {
            Ok(found) => return Ok(found),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or(CallError::Interrupted))
}

/// The broker's number of a site: 0 is the client's, and each server has its own.
fn site(server: Option<ServerId>) -> SiteId {
    SiteId(server.map_or(0, |server| server.0 + 1))
}

/// A broker, and its clock.
pub struct LocalChooser {
    broker: Broker,
    begun: Instant,
    in_flight: u32,
}

impl LocalChooser {
    /// A chooser without servers.
    pub fn new(options: &RunOptions) -> Result<LocalChooser, TransactionError> {
        let policy = by_name(&options.policy)?;
        let config = Config { most_attempts: u32::MAX, patience: 1, ..Config::default() };
        let broker = Broker::new(policy, config);
        Ok(LocalChooser { broker, begun: Instant::now(), in_flight: options.in_flight.max(1) })
    }

    fn now(&self) -> Time {
        Time(u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn tell(&mut self, event: Event) {
        self.broker.handle(self.now(), event);
    }

    /// Tells the broker the servers. A server that cannot list its routines counts as none.
    pub fn join(&mut self, servers: &mut [Server]) {
        let mut sites = vec![site(None)];
        for (id, server) in (0..).map(ServerId).zip(servers) {
            let Some(client) = server.client.clone() else { continue };
            let Ok(routines) = client.names("") else {
                server.client = None;
                continue;
            };
            let here = site(Some(id));
            let limit = self.in_flight;
            let offer = Offer { site: here, routines, limit, processors: 1, speed: SPEED };
            self.tell(Event::Joined(id, offer));
            for &other in &sites {
                self.tell(Event::Network(other, here, WAY));
                self.tell(Event::Network(here, other, WAY));
            }
            sites.push(here);
        }
    }
}

impl ServerChooser for LocalChooser {
    fn submit(&mut self, ready: &SubmittedCall<'_>) {
        let call = ready.prepared;
        #[allow(clippy::cast_precision_loss)]
        let guess = WORK.0 * (call.plan.sent + call.plan.returned) as f64;
        let request = Request {
            routine: call.known.name.clone(),
            client: ClientId(0),
            user: UserId(0),
            site: site(None),
            bytes_out: call.plan.sent,
            bytes_back: ready.back,
            operations: Some(call.plan.operations.unwrap_or(guess).max(WORK.1)),
            priority: 0,
            idempotent: call.known.idempotent,
            deadline: None,
            held: ready.held.clone(),
            bound: None,
        };
        self.tell(Event::Submit(ready.call, request));
    }

    fn lend(&mut self, _: CallId) -> Option<Box<RoutedCall<'static>>> {
        None
    }

    fn give_back(&mut self, _: CallId, _: Box<RoutedCall<'static>>) {}

    fn ended(&mut self, call: CallId, number: u32, outcome: &CallOutcome, _: Option<(u64, u64)>) {
        self.tell(Event::Ended(call, number, outcome.ran.as_secs_f64()));
    }

    fn failed(&mut self, call: CallId, number: u32, failure: Failure, _: &str) {
        self.tell(Event::Failed(call, number, failure));
    }

    fn withdrawn(&mut self, call: CallId, number: u32) {
        self.failed(call, number, Failure::Routine, "");
    }

    fn cancel(&mut self, call: CallId) {
        self.tell(Event::Cancel(call));
    }

    fn left(&mut self, server: ServerId) {
        self.tell(Event::Left(server));
    }

    fn heard(&mut self, _: ChooserEvent) {}

    fn tick(&mut self) {
        self.tell(Event::Tick);
    }

    fn poll(&mut self) -> Option<PlacementDecision> {
        loop {
            return Some(match self.broker.poll()? {
                Action::Start(call, server, number) => {
                    PlacementDecision::Start(call, server, number)
                }
                Action::Done(call, outcome) => {
                    let why = match outcome {
                        Outcome::Rejected(reject) => reject.to_string(),
                        _ => "it could not be run".to_owned(),
                    };
                    PlacementDecision::NotStarted(call, why)
                }
                // This chooser cancels no running call and sets no times.
                Action::Stop(..) | Action::Queued(..) | Action::Declined(_) => continue,
            });
        }
    }

    fn patience(&self) -> Option<Duration> {
        let next = self.broker.next_time()?;
        Some(Duration::from_nanos(next.0.saturating_sub(self.now().0)))
    }
}
