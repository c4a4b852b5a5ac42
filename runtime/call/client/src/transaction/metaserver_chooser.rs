//! Chooser that lets a metaserver place the calls of a transaction.

use std::collections::{HashMap, VecDeque};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use kumi_broker::{CallId, Failure, HeldInput, ServerId};
use kumi_routing::{Action, CallEnd, Event, GiveUpReason, RetryReason};
use kumi_rpc::{AttemptReport, InputLocation, Placement, PlacementRequest};

use super::chooser::{
    ChooserEvent, CompletedCall, DriverMessage, PlacementDecision, ServerChooser, SubmittedCall,
};
use super::drive::Server;
use crate::routed_call::{NO_MORE_TIME, Place, measured, nanoseconds, over, reported};
use crate::{CallError, Client, Grid, PlacementAnswer, PlacementEvent, PlacementHandle};

/// Most calls that wait at the metaserver; the others wait here.
const WINDOW: usize = 256;
/// Pause after the metaserver refused a call because too many wait.
const REST: Duration = Duration::from_millis(100);

/// A call, with what it has at the metaserver. An attempt's error is the transaction's: here it is empty, but for
/// servers that were not reached.
#[derive(Debug)]
struct Call {
    placing: PlacementRequest,
    routing: kumi_routing::Call<Place, String>,
    /// The request at the metaserver, if there is one.
    asked: Option<PlacementHandle>,
    /// It counts as one that waits at the metaserver.
    waits: bool,
    /// The report on its latest attempt.
    over: Option<AttemptReport>,
    /// The number of the latest attempt.
    number: u32,
}

/// Chooser with the placement state of all calls.
pub struct MetaserverChooser {
    grid: Grid,
    /// `None`: a metaserver is being looked for.
    meta: Option<Client>,
    tell: Sender<DriverMessage>,
    calls: HashMap<CallId, Call>,
    streams: HashMap<u32, CallId>,
    /// Requests of finished calls whose ends the metaserver has not confirmed.
    closing: HashMap<u32, (PlacementHandle, AttemptReport)>,
    /// Calls without an attempt to request, as far as the limit allows.
    backlog: VecDeque<CallId>,
    /// Calls with an attempt to request: a metaserver that does not know of it would count it as lost.
    rejoining: VecDeque<CallId>,
    /// Number of calls that wait at the metaserver, and its limit.
    waiting: usize,
    window: usize,
    /// No requests before this time.
    rest: Option<Instant>,
    /// Names and addresses of all servers so far, by number.
    names: Vec<(String, String)>,
    /// Connected servers by address.
    servers: HashMap<String, ServerId>,
    /// Calls that wait for a connection, by address.
    connecting: HashMap<String, Vec<CallId>>,
    choices: VecDeque<PlacementDecision>,
    /// The beginning of the times that the routings see.
    begun: Instant,
}

impl MetaserverChooser {
    /// Listens on this connection to a metaserver, which nobody else uses.
    pub fn new(grid: Grid, meta: Client, tell: Sender<DriverMessage>) -> MetaserverChooser {
        let told = tell.clone();
        grid.listen(meta.clone(), move |heard| {
            told.send(DriverMessage::Event(ChooserEvent::Meta(heard))).is_ok()
        });
        MetaserverChooser {
            grid,
            meta: Some(meta),
            tell,
            calls: HashMap::new(),
            streams: HashMap::new(),
            closing: HashMap::new(),
            backlog: VecDeque::new(),
            rejoining: VecDeque::new(),
            waiting: 0,
            window: WINDOW,
            rest: None,
            names: Vec::new(),
            servers: HashMap::new(),
            connecting: HashMap::new(),
            choices: VecDeque::new(),
            begun: Instant::now(),
        }
    }

    /// The locations of inputs that servers hold.
    fn locations(&self, held: &[HeldInput]) -> Vec<InputLocation> {
        let known = |held: &HeldInput| {
            let (server, address) = self.names.get(held.server.0 as usize)?.clone();
            let there = self.servers.get(&address) == Some(&held.server);
            there.then_some(InputLocation { server, address, bytes: held.bytes })
        };
        let mut locations: Vec<InputLocation> = held.iter().filter_map(known).collect();
        // If there are too many, only the most important are reported.
        locations.sort_by_key(|locations| std::cmp::Reverse(locations.bytes));
        locations
    }

    /// Requests calls with an attempt, then others as far as the limit allows.
    fn pump(&mut self) {
        if self.rest.is_some_and(|rest| Instant::now() < rest) {
            return;
        }
        self.rest = None;
        while self.may_ask()
            && let Some(id) = self.rejoining.pop_front()
        {
            match self.calls.get(&id).map(|call| &call.routing) {
                Some(call) if call.wants_metaserver() && call.has_attempt() => self.ask(id),
                // The attempt has failed meanwhile.
                Some(call) if call.wants_metaserver() => self.backlog.push_front(id),
                _ => {}
            }
        }
        while self.may_ask()
            && self.waiting < self.window
            && let Some(id) = self.backlog.pop_front()
        {
            if self.calls.get(&id).is_some_and(|call| call.routing.wants_metaserver()) {
                self.ask(id);
            }
        }
    }

    fn may_ask(&self) -> bool {
        self.meta.is_some() && self.rest.is_none()
    }

    /// Has a call requested when that may be.
    fn enqueue(&mut self, id: CallId) {
        let has_attempt = self.calls.get(&id).is_some_and(|call| call.routing.has_attempt());
        if has_attempt { &mut self.rejoining } else { &mut self.backlog }.push_back(id);
    }

    /// Requests a call.
    fn ask(&mut self, id: CallId) {
        let (Some(meta), Some(call)) = (&self.meta, self.calls.get_mut(&id)) else { return };
        match meta.ask(&call.placing) {
            Ok(asked) => {
                self.streams.insert(asked.stream(), id);
                call.asked = Some(asked);
                self.tell(id, Event::Asked);
            }
            // The listener notices the lost connection too.
            Err(CallError::Lost(_)) => {
                self.meta = None;
                self.enqueue(id);
            }
            // An attempt goes on without a metaserver, until one takes the request.
            Err(_) if call.routing.has_attempt() => {
                self.rest = Some(Instant::now() + REST);
                self.enqueue(id);
            }
            Err(error) => self.tell(id, Event::Stopped(error.to_string())),
        }
    }

    /// Tells the routing of a call what has happened, and does what follows.
    fn tell(&mut self, id: CallId, event: Event<Place, String>) {
        let now = nanoseconds(self.begun.elapsed());
        let Some(call) = self.calls.get_mut(&id) else { return };
        call.routing.handle(now, event);
        while let Some(action) = self.calls.get_mut(&id).and_then(|call| call.routing.poll()) {
            self.carry_out(id, action);
        }
        let Some(call) = self.calls.get_mut(&id) else { return };
        let waits = call.asked.is_some() && !call.routing.has_attempt();
        match (std::mem::replace(&mut call.waits, waits), waits) {
            (false, true) => self.waiting += 1,
            (true, false) => self.waiting -= 1,
            _ => {}
        }
    }

    fn carry_out(&mut self, id: CallId, action: Action<Place, String>) {
        let Some(call) = self.calls.get_mut(&id) else { return };
        match action {
            Action::Ask => self.enqueue(id),
            Action::Start(place) => self.connect(id, &place),
            Action::Leave => self.choices.push_back(PlacementDecision::Abandon(id, call.number)),
            Action::Report(place, outcome) => {
                let measured = call.over.filter(|_| outcome == kumi_routing::Outcome::Done);
                let over = measured.unwrap_or_else(|| over(&place, reported(outcome)));
                call.over = Some(over);
                if call.asked.as_ref().is_none_or(|asked| !asked.tell(&over)) {
                    self.grid.report(self.meta.as_ref(), &over);
                }
            }
            Action::CancelRequest => drop(self.forget(id)),
            Action::CloseRequest => {
                let over = call.over;
                if let (Some(asked), Some(over)) = (self.forget(id), over) {
                    self.closing.insert(asked.stream(), (asked, over));
                }
            }
            Action::End(CallEnd::Done | CallEnd::Failed(_)) => self.remove(id),
            Action::End(CallEnd::GivenUp(why)) => {
                let why = match why {
                    GiveUpReason::Because(why) => why,
                    GiveUpReason::Unknown => {
                        "it may have run, and no metaserver knows it".to_owned()
                    }
                    GiveUpReason::RetryTime => NO_MORE_TIME.to_owned(),
                    GiveUpReason::Elsewhere => "the metaserver has named another server".to_owned(),
                };
                let before = match call.routing.tried().last() {
                    Some((_, RetryReason::Failed(before))) if !before.is_empty() => {
                        format!("{before}; ")
                    }
                    _ => String::new(),
                };
                self.choices.push_back(PlacementDecision::NotStarted(id, before + &why));
                self.remove(id);
            }
        }
    }

    /// Releases the request of a call. Whoever drops it gives up the call at the metaserver.
    fn forget(&mut self, id: CallId) -> Option<PlacementHandle> {
        let asked = self.calls.get_mut(&id)?.asked.take()?;
        self.streams.remove(&asked.stream());
        Some(asked)
    }

    fn remove(&mut self, id: CallId) {
        self.forget(id);
        if self.calls.remove(&id).is_some_and(|call| call.waits) {
            self.waiting -= 1;
        }
    }

    fn answered(&mut self, stream: u32) {
        use PlacementAnswer::{Busy, Closed, Failed, OtherMetaserver, Placed};
        let Some(id) = self.streams.get(&stream).copied() else {
            if let Some((asked, _)) = self.closing.get_mut(&stream)
                && matches!(asked.take(""), Some(Closed | Failed(_) | Busy))
            {
                self.closing.remove(&stream);
            }
            return;
        };
        let Some(call) = self.calls.get_mut(&id) else { return };
        let said = call.asked.as_mut().and_then(|asked| asked.take(&call.placing.routine));
        match said {
            None => return,
            Some(Placed(placed)) => {
                if call.waits {
                    self.window = (self.window + 1).min(WINDOW);
                }
                return self.tell(id, Event::Placed(Place::new(placed)));
            }
            _ => drop(self.forget(id)),
        }
        match said {
            Some(Busy) => {
                self.window = self.waiting.saturating_sub(1).max(1);
                self.rest = Some(Instant::now() + REST);
                self.tell(id, Event::MetaserverLost);
            }
            Some(OtherMetaserver) => {
                // The listener notices the lost connection and looks for another.
                if let Some(meta) = self.meta.take() {
                    meta.disconnect();
                }
                self.tell(id, Event::MetaserverLost);
            }
            Some(Failed(error)) => self.tell(id, Event::RequestEnded(error.to_string())),
            _ => self.tell(id, Event::RequestEnded("the metaserver ended the call".to_owned())),
        }
    }

    /// A call has a place. It starts when its server is connected.
    fn connect(&mut self, id: CallId, place: &Place) {
        let Some(call) = self.calls.get_mut(&id) else { return };
        call.placing.attempts = place.ticket.attempt;
        if let Some(server) = self.servers.get(&place.address).copied() {
            return self.start(id, server);
        }
        let waits = self.connecting.entry(place.address.clone()).or_default();
        let asked = !waits.is_empty();
        // It may have moved to another server and back meanwhile.
        if !waits.contains(&id) {
            waits.push(id);
        }
        if asked {
            return;
        }
        let (grid, tell, place) = (self.grid.clone(), self.tell.clone(), place.shared());
        std::thread::spawn(move || {
            let client = grid.connect_server(&place);
            // If nobody receives this, the transaction is over.
            let _over = tell.send(DriverMessage::Event(ChooserEvent::Server(place, client)));
        });
    }

    fn start(&mut self, id: CallId, server: ServerId) {
        let Some(call) = self.calls.get_mut(&id) else { return };
        let Some(place) = call.routing.last().map(Place::shared) else { return };
        call.number += 1;
        let start = PlacementDecision::Start(id, server, call.number, Some(place));
        self.choices.push_back(start);
        self.tell(id, Event::Sent);
    }

    /// A server is connected, or cannot be.
    fn connected(&mut self, placed: &Placement, client: Result<Client, CallError>) {
        let address = placed.address.as_str();
        let here = |call: &Call| {
            let there = call.routing.last().is_some_and(|place| place.address == address);
            call.routing.is_connecting() && there
        };
        let waited = self.connecting.remove(address).unwrap_or_default();
        let calls: Vec<CallId> =
            waited.into_iter().filter(|id| self.calls.get(id).is_some_and(here)).collect();
        match client {
            Ok(client) => {
                let number = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
                let server = Server { address: address.to_owned(), client: Some(client) };
                self.names.push((placed.server.clone(), address.to_owned()));
                self.servers.insert(address.to_owned(), ServerId(number));
                self.choices.push_back(PlacementDecision::NewServer(server));
                calls.into_iter().for_each(|id| self.start(id, ServerId(number)));
            }
            Err(error) => {
                let why = error.to_string();
                calls.into_iter().for_each(|id| self.tell(id, Event::NotBegun(why.clone())));
            }
        }
    }

    /// The calls of which this is true.
    fn those(&self, is: impl Fn(&Call) -> bool) -> Vec<CallId> {
        self.calls.iter().filter(|(_, call)| is(call)).map(|(id, _)| *id).collect()
    }

    /// The connection to the metaserver is lost.
    fn away(&mut self) {
        self.meta = None;
        for id in self.those(|call| call.asked.is_some()) {
            drop(self.forget(id));
            self.tell(id, Event::MetaserverLost);
        }
        // It may not have received these reports.
        for (_, (_, over)) in std::mem::take(&mut self.closing) {
            self.grid.report(None, &over);
        }
    }

    /// No metaserver can be found: waiting calls get no place.
    fn unreachable(&mut self, why: &str) {
        for id in self.those(|call| call.routing.wants_metaserver()) {
            self.tell(id, Event::NoMetaserver(why.to_owned()));
        }
    }
}

impl ServerChooser for MetaserverChooser {
    fn submit(&mut self, ready: &SubmittedCall<'_>) {
        let plan = &ready.prepared.plan;
        let bytes = (plan.sent, ready.back);
        let operations = plan.operations.unwrap_or(f64::NAN);
        let locations = self.locations(&ready.held);
        let placing = self.grid.placing(&ready.prepared.known, bytes, operations);
        let placing = PlacementRequest { input_locations: locations, ..placing };
        let routing = kumi_routing::Call::new(self.grid.rules(placing.idempotent));
        let call = Call { placing, routing, asked: None, waits: false, over: None, number: 0 };
        self.calls.insert(ready.call, call);
        // For the first action: it asks.
        self.tell(ready.call, Event::Tick);
        self.pump();
    }

    fn ended(&mut self, id: CallId, _: u32, completed: &CompletedCall<'_>) {
        let Some(call) = self.calls.get_mut(&id) else { return };
        call.over =
            call.routing.last().map(|place| measured(place, completed.outcome, completed.bytes));
        self.tell(id, Event::Done);
        self.pump();
    }

    fn failed(&mut self, id: CallId, number: u32, failure: Failure, why: &str) {
        let Some(call) = self.calls.get(&id).filter(|call| call.number == number) else { return };
        if let (Some(asked), Some(place)) = (&call.asked, call.routing.last()) {
            asked.give_reason(place.ticket, why);
        }
        let why = why.to_owned();
        self.tell(
            id,
            match failure {
                Failure::Routine => Event::Failed(why),
                Failure::NotBegun | Failure::Unclaimed => Event::NotBegun(why),
                Failure::Broken => Event::Broken(why),
            },
        );
        self.pump();
    }

    fn withdrawn(&mut self, id: CallId, number: u32) {
        match self.calls.get(&id) {
            // An input did not arrive, which is no failure of its server.
            Some(call) if call.number == number && call.asked.is_some() => self.cancel(id),
            // The metaserver is away or has forgotten the call. A report ends it there.
            _ => return self.failed(id, number, Failure::Routine, "an input did not arrive"),
        }
        self.pump();
    }

    fn cancel(&mut self, id: CallId) {
        self.remove(id);
    }

    fn left(&mut self, server: ServerId) {
        self.servers.retain(|_, id| *id != server);
    }

    fn heard(&mut self, news: ChooserEvent) {
        match news {
            ChooserEvent::Meta(PlacementEvent::Answered(stream)) => self.answered(stream),
            ChooserEvent::Meta(PlacementEvent::Disconnected) => self.away(),
            ChooserEvent::Meta(PlacementEvent::Reconnected(meta)) => self.meta = Some(meta),
            ChooserEvent::Meta(PlacementEvent::Unreachable(why)) => self.unreachable(&why),
            ChooserEvent::Server(placed, client) => self.connected(&placed, client),
        }
        self.pump();
    }

    fn tick(&mut self) {
        let now = nanoseconds(self.begun.elapsed());
        let is_late = |call: &Call| call.routing.wakes_at().is_some_and(|until| until <= now);
        self.those(is_late).into_iter().for_each(|id| self.tell(id, Event::Tick));
        self.pump();
    }

    fn poll(&mut self) -> Option<PlacementDecision> {
        self.choices.pop_front()
    }

    fn patience(&self) -> Option<Duration> {
        self.rest.map(|rest| rest.saturating_duration_since(Instant::now()))
    }

    fn is_closing(&self) -> bool {
        self.meta.is_some() && !self.closing.is_empty()
    }
}

impl Drop for MetaserverChooser {
    fn drop(&mut self) {
        self.calls.clear();
        self.grid.end();
    }
}
