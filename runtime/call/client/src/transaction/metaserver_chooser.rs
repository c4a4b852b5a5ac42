//! Chooser that lets a metaserver place the calls of a transaction.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use kumi_broker::{CallId, Failure, HeldInput, ServerId};
use kumi_rpc::{
    AttemptOutcome, AttemptReport, InputLocation, Placement, PlacementRequest, Transfer,
};

use super::chooser::{
    ChooserEvent, CompletedCall, DriverMessage, PlacementDecision, ServerChooser, SubmittedCall,
};
use super::drive::Server;
use crate::{CallError, Client, Grid, PlacementAnswer, PlacementEvent, PlacementHandle, over};

/// Most calls that wait at the metaserver; the others wait here.
const WINDOW: usize = 256;
/// Pause after the metaserver refused a call because too many wait.
const REST: Duration = Duration::from_millis(100);

/// Stage of a call.
#[derive(Debug)]
enum State {
    /// It has no place.
    WithoutPlace,
    /// The client connects to its server.
    Connecting,
    /// An attempt runs.
    Running,
    /// The metaserver has given up the running attempt. The value is its next answer.
    Superseded(Result<Arc<Placement>, String>),
}

#[derive(Debug)]
struct Call {
    placing: PlacementRequest,
    state: State,
    /// The request at the metaserver, if there is one.
    asked: Option<PlacementHandle>,
    /// The metaserver of the request knows the present place, because it named it or was told.
    known: bool,
    /// The latest place.
    placed: Option<Arc<Placement>>,
    /// The report on the failed attempt there.
    over: Option<AttemptReport>,
    /// The number of the latest attempt.
    number: u32,
    /// Why its last server was not reached.
    why: Option<String>,
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
    /// Calls to request.
    backlog: VecDeque<CallId>,
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
            waiting: 0,
            window: WINDOW,
            rest: None,
            names: Vec::new(),
            servers: HashMap::new(),
            connecting: HashMap::new(),
            choices: VecDeque::new(),
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

    /// Requests waiting calls, as far as the limit allows.
    fn pump(&mut self) {
        if self.rest.is_some_and(|rest| Instant::now() < rest) {
            return;
        }
        self.rest = None;
        while self.waiting < self.window
            && self.meta.is_some()
            && let Some(id) = self.backlog.pop_front()
        {
            let waits =
                |call: &Call| matches!(call.state, State::WithoutPlace) && call.asked.is_none();
            if self.calls.get(&id).is_some_and(waits) && self.ask(id) {
                self.waiting += 1;
            }
        }
    }

    /// Requests a call. Returns whether that was possible.
    fn ask(&mut self, id: CallId) -> bool {
        let (Some(meta), Some(call)) = (&self.meta, self.calls.get_mut(&id)) else { return false };
        match meta.ask(&call.placing) {
            Ok(asked) => {
                self.streams.insert(asked.stream(), id);
                (call.asked, call.known) = (Some(asked), false);
                return true;
            }
            // The listener notices the lost connection too.
            Err(CallError::Lost(_)) => {
                self.meta = None;
                self.backlog.push_front(id);
            }
            Err(error) => self.end(id, &error.to_string()),
        }
        false
    }

    /// Releases the request of a call. The metaserver's knowledge of the call must be reported with it, or
    /// given up.
    fn forget(&mut self, id: CallId) -> Option<PlacementHandle> {
        let call = self.calls.get_mut(&id)?;
        let asked = call.asked.take()?;
        self.streams.remove(&asked.stream());
        if matches!(call.state, State::WithoutPlace) {
            self.waiting -= 1;
        }
        Some(asked)
    }

    /// A call does not start any more.
    fn end(&mut self, id: CallId, why: &str) {
        self.forget(id);
        let Some(call) = self.calls.remove(&id) else { return };
        let why = call.why.map_or_else(|| why.to_owned(), |before| format!("{before}; {why}"));
        self.choices.push_back(PlacementDecision::NotStarted(id, why));
    }

    fn answered(&mut self, stream: u32) {
        let Some(id) = self.streams.get(&stream).copied() else {
            if let Some((asked, _)) = self.closing.get_mut(&stream)
                && matches!(
                    asked.take(""),
                    Some(
                        PlacementAnswer::Closed
                            | PlacementAnswer::Failed(_)
                            | PlacementAnswer::Busy
                    )
                )
            {
                self.closing.remove(&stream);
            }
            return;
        };
        let Some(call) = self.calls.get_mut(&id) else { return };
        let said = call.asked.as_mut().and_then(|asked| asked.take(&call.placing.routine));
        match said {
            None => {}
            Some(PlacementAnswer::Placed(placed)) => self.placed(id, Arc::new(placed)),
            Some(PlacementAnswer::Busy) => self.refused(id, |placer| {
                placer.window = placer.waiting.max(1);
                placer.rest = Some(Instant::now() + REST);
                placer.backlog.push_front(id);
            }),
            Some(PlacementAnswer::OtherMetaserver) => self.refused(id, |placer| {
                placer.backlog.push_front(id);
                // The listener notices the lost connection and looks for another.
                if let Some(meta) = placer.meta.take() {
                    meta.disconnect();
                }
            }),
            Some(PlacementAnswer::Closed) => self.failed_there(id, "the metaserver ended the call"),
            Some(PlacementAnswer::Failed(error)) => self.failed_there(id, &error.to_string()),
        }
    }

    /// The metaserver refused a call. Does this if the call waits for a place.
    fn refused(&mut self, id: CallId, then: impl FnOnce(&mut MetaserverChooser)) {
        self.forget(id);
        if self.calls.get(&id).is_some_and(|call| matches!(call.state, State::WithoutPlace)) {
            then(self);
        }
    }

    /// The metaserver has ended a call.
    fn failed_there(&mut self, id: CallId, why: &str) {
        self.forget(id);
        let Some(call) = self.calls.get_mut(&id) else { return };
        match call.state {
            State::WithoutPlace => self.end(id, why),
            // It does not know the running attempt.
            State::Connecting | State::Running if !call.known => {}
            State::Connecting => self.end(id, why),
            State::Running => self.leave(id, Err(why.to_owned())),
            State::Superseded(_) => call.state = State::Superseded(Err(why.to_owned())),
        }
    }

    /// The metaserver has placed a call.
    fn placed(&mut self, id: CallId, placed: Arc<Placement>) {
        let Some(call) = self.calls.get_mut(&id) else { return };
        let same = call.placed.as_ref().is_some_and(|before| before.ticket == placed.ticket);
        match &call.state {
            State::WithoutPlace if same => {
                // This metaserver has not received the report of that attempt.
                if let (Some(asked), Some(over)) = (&call.asked, &call.over) {
                    asked.tell(over);
                }
            }
            State::WithoutPlace => {
                self.waiting -= 1;
                self.window = (self.window + 1).min(WINDOW);
                call.known = true;
                self.connect(id, placed);
            }
            _ if same => call.known = true,
            // It has forgotten the running attempt, so the place goes back.
            State::Connecting | State::Running if !call.known => drop(self.forget(id)),
            State::Connecting => self.connect(id, placed),
            State::Running => self.leave(id, Ok(placed)),
            State::Superseded(_) => call.state = State::Superseded(Ok(placed)),
        }
    }

    fn leave(&mut self, id: CallId, next: Result<Arc<Placement>, String>) {
        let Some(call) = self.calls.get_mut(&id) else { return };
        call.state = State::Superseded(next);
        self.choices.push_back(PlacementDecision::Abandon(id, call.number));
    }

    /// A call has a place. It starts when its server is connected.
    fn connect(&mut self, id: CallId, placed: Arc<Placement>) {
        let Some(call) = self.calls.get_mut(&id) else { return };
        call.state = State::Connecting;
        call.placing.attempts = placed.ticket.attempt;
        call.over = None;
        call.placed = Some(Arc::clone(&placed));
        if let Some(server) = self.servers.get(&placed.address).copied() {
            return self.start(id, server);
        }
        let waits = self.connecting.entry(placed.address.clone()).or_default();
        let asked = !waits.is_empty();
        // It may have moved to another server and back meanwhile.
        if !waits.contains(&id) {
            waits.push(id);
        }
        if asked {
            return;
        }
        let (grid, tell) = (self.grid.clone(), self.tell.clone());
        std::thread::spawn(move || {
            let client = grid.connect_server(&placed);
            // If nobody receives this, the transaction is over.
            let _over = tell.send(DriverMessage::Event(ChooserEvent::Server(placed, client)));
        });
    }

    fn start(&mut self, id: CallId, server: ServerId) {
        let Some(call) = self.calls.get_mut(&id) else { return };
        call.state = State::Running;
        call.number += 1;
        let start = PlacementDecision::Start(id, server, call.number, call.placed.clone());
        self.choices.push_back(start);
    }

    /// A server is connected, or cannot be.
    fn connected(&mut self, placed: &Placement, client: Result<Client, CallError>) {
        let address = placed.address.as_str();
        let here = |call: &Call| {
            let there = call.placed.as_ref().is_some_and(|placed| placed.address == address);
            matches!(call.state, State::Connecting) && there
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
                for id in calls {
                    if let Some(call) = self.calls.get_mut(&id) {
                        call.why = Some(error.to_string());
                    }
                    self.again(id, AttemptOutcome::NotBegun);
                }
            }
        }
    }

    /// The present attempt has failed, and the call needs another place.
    fn again(&mut self, id: CallId, ended: AttemptOutcome) {
        let Some(call) = self.calls.get_mut(&id) else { return };
        let Some(placed) = &call.placed else { return };
        let over = over(placed, ended);
        call.state = State::WithoutPlace;
        call.over = Some(over);
        match &call.asked {
            Some(asked) => {
                self.waiting += 1;
                // A metaserver that does not know the place sends it first and gets the report then. If the
                // report cannot be sent, the connection is lost and the call is requested again.
                if call.known {
                    asked.tell(&over);
                }
            }
            None => {
                self.grid.report(self.meta.as_ref(), &over);
                self.backlog.push_back(id);
            }
        }
    }

    /// A call is over.
    fn close(&mut self, id: CallId, over: AttemptReport) {
        let known = self.calls.get(&id).is_some_and(|call| call.known);
        let asked = self.forget(id);
        self.calls.remove(&id);
        match asked {
            Some(asked) if known => {
                asked.tell(&over);
                self.closing.insert(asked.stream(), (asked, over));
            }
            _ => self.grid.report(self.meta.as_ref(), &over),
        }
    }

    /// The connection to the metaserver is lost.
    fn away(&mut self) {
        self.meta = None;
        self.streams.clear();
        self.waiting = 0;
        for (&id, call) in &mut self.calls {
            if call.asked.take().is_some() && matches!(call.state, State::WithoutPlace) {
                self.backlog.push_back(id);
            }
            call.known = false;
        }
        // It may not have received these reports.
        for (_, (_, over)) in std::mem::take(&mut self.closing) {
            self.grid.report(None, &over);
        }
    }

    /// A metaserver is connected again. Running calls are requested too, so that they do not count as lost.
    fn back(&mut self, meta: Client) {
        self.meta = Some(meta);
        let runs = |call: &Call| matches!(call.state, State::Connecting | State::Running);
        let calls = self.calls.iter().filter(|(_, call)| runs(call));
        let calls: Vec<CallId> = calls.map(|(id, _)| *id).collect();
        for id in calls {
            self.ask(id);
        }
    }

    /// No metaserver can be found: waiting calls get no place.
    fn unreachable(&mut self, why: &str) {
        let waits = |call: &Call| matches!(call.state, State::WithoutPlace);
        let calls = self.calls.iter().filter(|(_, call)| waits(call));
        let calls: Vec<CallId> = calls.map(|(id, _)| *id).collect();
        calls.into_iter().for_each(|id| self.end(id, why));
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The report on a call that has run.
fn measured(placed: &Placement, completed: &CompletedCall<'_>) -> AttemptReport {
    let CompletedCall { outcome, bytes } = completed;
    let moved = |bytes: Option<u64>, time: Duration| {
        bytes.map_or_else(Transfer::default, |bytes| Transfer {
            bytes,
            ns: nanoseconds(time).max(1),
        })
    };
    AttemptReport {
        out: moved(bytes.map(|bytes| bytes.0), outcome.sending),
        back: moved(bytes.map(|bytes| bytes.1), outcome.receiving),
        ran_ns: nanoseconds(outcome.ran),
        waited_ns: nanoseconds(outcome.waited),
        ..over(placed, AttemptOutcome::Done)
    }
}

impl ServerChooser for MetaserverChooser {
    fn submit(&mut self, ready: &SubmittedCall<'_>) {
        let plan = &ready.prepared.plan;
        let bytes = (plan.sent, ready.back);
        let operations = plan.operations.unwrap_or(f64::NAN);
        let locations = self.locations(&ready.held);
        let placing = self.grid.placing(&ready.prepared.known, bytes, operations);
        let call = Call {
            placing: PlacementRequest { input_locations: locations, ..placing },
            state: State::WithoutPlace,
            asked: None,
            known: false,
            placed: None,
            over: None,
            number: 0,
            why: None,
        };
        self.calls.insert(ready.call, call);
        self.backlog.push_back(ready.call);
        self.pump();
    }

    fn ended(&mut self, id: CallId, _: u32, completed: &CompletedCall<'_>) {
        let placed = self.calls.get(&id).and_then(|call| call.placed.clone());
        let Some(placed) = placed else { return };
        self.close(id, measured(&placed, completed));
        self.pump();
    }

    fn failed(&mut self, id: CallId, number: u32, failure: Failure) {
        let Some(call) = self.calls.get_mut(&id).filter(|call| call.number == number) else {
            return;
        };
        let Some(placed) = call.placed.clone() else { return };
        let ended = match failure {
            // The metaserver has given up that attempt, so the later place goes back.
            Failure::Routine if matches!(call.state, State::Superseded(_)) => {
                return self.cancel(id);
            }
            Failure::Routine => return self.close(id, over(&placed, AttemptOutcome::Failed)),
            Failure::NotBegun | Failure::Unclaimed => AttemptOutcome::NotBegun,
            Failure::Broken => AttemptOutcome::Broken,
        };
        call.why = None;
        match std::mem::replace(&mut call.state, State::Running) {
            State::Superseded(Ok(next)) => {
                self.connect(id, next);
                // The metaserver may have changed meanwhile.
                if self.calls.get(&id).is_some_and(|call| call.asked.is_none()) {
                    self.ask(id);
                }
            }
            State::Superseded(Err(why)) => self.end(id, &why),
            _ => self.again(id, ended),
        }
        self.pump();
    }

    fn withdrawn(&mut self, id: CallId, number: u32) {
        match self.calls.get(&id) {
            // An input did not arrive, which is no failure of its server.
            Some(call) if call.number == number && call.asked.is_some() => self.cancel(id),
            // The metaserver is away or has forgotten the call. A report ends it there.
            _ => return self.failed(id, number, Failure::Routine),
        }
        self.pump();
    }

    fn cancel(&mut self, id: CallId) {
        self.forget(id);
        self.calls.remove(&id);
    }

    fn left(&mut self, server: ServerId) {
        self.servers.retain(|_, id| *id != server);
    }

    fn heard(&mut self, news: ChooserEvent) {
        match news {
            ChooserEvent::Meta(PlacementEvent::Answered(stream)) => self.answered(stream),
            ChooserEvent::Meta(PlacementEvent::Disconnected) => self.away(),
            ChooserEvent::Meta(PlacementEvent::Reconnected(meta)) => self.back(meta),
            ChooserEvent::Meta(PlacementEvent::Unreachable(why)) => self.unreachable(&why),
            ChooserEvent::Server(placed, client) => self.connected(&placed, client),
        }
        self.pump();
    }

    fn tick(&mut self) {
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
