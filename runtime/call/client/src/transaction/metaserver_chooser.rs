//! Chooser that lets a metaserver place the calls of a transaction. Each is a [`RoutedCall`], which its attempts have while they run.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use kumi_broker::{CallId, Failure, HeldInput, ServerId};
use kumi_routing::Event;
use kumi_rpc::InputLocation;

use super::chooser::{
    ChooserEvent, DriverMessage, PlacementDecision, ServerChooser, SubmittedCall,
};
use super::drive::Server;
use crate::grid::{Inner, QueuedCall};
use crate::routed_call::{Control, Place, RoutedCall, RoutedStep, measured};
use crate::{CallError, Client, Grid, Outcome};

/// Most calls that wait at the metaserver; the others wait here.
const WINDOW: usize = 256;
/// Pause after the metaserver refused a call because too many wait.
const REST: Duration = Duration::from_millis(100);

/// A call that waits at the metaserver, or connects to the server of its place.
struct WaitingCall {
    /// Its number in the queue of the grid.
    number: u64,
    control: Arc<Control>,
}

/// Chooser with the calls that have no attempt.
pub struct MetaserverChooser {
    grid: Grid,
    tell: Sender<DriverMessage>,
    /// Calls that have still to ask.
    backlog: VecDeque<(CallId, Box<RoutedCall<'static>>)>,
    waiting: HashMap<CallId, WaitingCall>,
    /// Calls with a place, but for those that an attempt has.
    placed: HashMap<CallId, Box<RoutedCall<'static>>>,
    /// Most calls that wait, as the metaserver has it.
    window: usize,
    /// No requests before this time.
    rest: Option<Instant>,
    /// All servers so far, by number. `None`: the connection is lost.
    servers: Vec<Option<(Place, Client)>>,
    choices: VecDeque<PlacementDecision>,
}

impl MetaserverChooser {
    /// A chooser over connections that nobody else uses.
    pub fn new(grid: Grid, tell: Sender<DriverMessage>) -> MetaserverChooser {
        MetaserverChooser {
            grid,
            tell,
            backlog: VecDeque::new(),
            waiting: HashMap::new(),
            placed: HashMap::new(),
            window: WINDOW,
            rest: None,
            servers: Vec::new(),
            choices: VecDeque::new(),
        }
    }

    /// The locations of inputs that servers hold.
    fn locations(&self, held: &[HeldInput]) -> Vec<InputLocation> {
        let known = |held: &HeldInput| {
            let (place, _) = self.servers.get(held.server.0 as usize)?.as_ref()?;
            let (server, address) = (place.server.clone(), place.address.clone());
            Some(InputLocation { server, address, bytes: held.bytes })
        };
        let mut locations: Vec<InputLocation> = held.iter().filter_map(known).collect();
        // If there are too many, only the most important are reported.
        locations.sort_by_key(|locations| std::cmp::Reverse(locations.bytes));
        locations
    }

    /// Has calls wait at the metaserver, as far as the limit allows.
    fn pump(&mut self) {
        if self.rest.is_some_and(|rest| Instant::now() < rest) {
            return;
        }
        self.rest = None;
        while self.waiting.len() < self.window
            && let Some((id, routed_call)) = self.backlog.pop_front()
        {
            let inner = Arc::clone(&self.grid.inner);
            self.wait(id, &routed_call);
            let tell = self.tell.clone();
            let queued = QueuedCall::new(routed_call, move |routed_call, ready| {
                let event = match ready {
                    Ok(()) => ChooserEvent::Answered(id, routed_call),
                    Err(error) => ChooserEvent::NotStarted(id, error),
                };
                // If nobody receives this, the transaction is over.
                let _over = tell.send(DriverMessage::Event(event));
            });
            if let Err(error) = inner.enqueue(queued, Inner::at_hand(&inner).as_ref()) {
                self.not_started(id, &error);
            }
        }
    }

    /// A call waits from now on.
    fn wait(&mut self, id: CallId, routed_call: &RoutedCall<'_>) {
        let waiting = WaitingCall { number: routed_call.number(), control: Arc::default() };
        self.waiting.insert(id, waiting);
    }

    /// A metaserver has answered. With a connection to the server, the call starts without a thread of its own.
    fn answered(&mut self, id: CallId, mut routed_call: Box<RoutedCall<'static>>) {
        if !routed_call.wants_metaserver() {
            // The answer is there.
            routed_call.await_place(&Control::default(), &|| false);
        }
        let step = match routed_call.turn() {
            Some(RoutedStep::Start(place)) if self.grid.inner.is_connected(&place.address) => {
                match routed_call.connect(&place) {
                    Some(client) => return self.start(id, routed_call, client),
                    None => None,
                }
            }
            step => step,
        };
        self.find_server(id, routed_call, step);
    }

    /// Has a call wait in a thread for a place and a connection. `step` comes first.
    fn find_server(
        &mut self,
        id: CallId,
        routed_call: Box<RoutedCall<'static>>,
        step: Option<RoutedStep>,
    ) {
        let Some(waiting) = self.waiting.get(&id) else { return };
        let (control, tell) = (Arc::clone(&waiting.control), self.tell.clone());
        std::thread::spawn(move || {
            let event = find_server(id, routed_call, step, &control);
            // If nobody receives this, the transaction is over.
            let _over = tell.send(DriverMessage::Event(event));
        });
    }

    /// A call wants a metaserver: the one that was asked is lost, or has turned it away.
    fn ask_again(&mut self, id: CallId, mut routed_call: Box<RoutedCall<'static>>) {
        if self.waiting.remove(&id).is_none() {
            return;
        }
        if routed_call.turned_away.replace(false) == Some(true) {
            self.window = self.waiting.len().max(1);
            self.rest = Some(Instant::now() + REST);
        }
        self.backlog.push_front((id, routed_call));
    }

    /// A call has a place, and a connection to its server.
    fn start(&mut self, id: CallId, routed_call: Box<RoutedCall<'static>>, client: Client) {
        // A place of a cancelled call goes back.
        let (Some(_), Some(place)) = (self.waiting.remove(&id), routed_call.place()) else {
            return;
        };
        self.window = (self.window + 1).min(WINDOW);
        let is_it = |(_, known): &(Place, Client)| Arc::ptr_eq(&known.link, &client.link);
        let known = self.servers.iter().position(|known| known.as_ref().is_some_and(is_it));
        let number = known.unwrap_or(self.servers.len());
        if known.is_none() {
            let server = Server { address: place.address.clone(), client: Some(client.clone()) };
            self.choices.push_back(PlacementDecision::NewServer(server));
            self.servers.push(Some((place.clone(), client)));
        }
        let server = ServerId(u32::try_from(number).unwrap_or(u32::MAX));
        self.choices.push_back(PlacementDecision::Start(id, server, place.ticket.attempt));
        self.placed.insert(id, routed_call);
    }

    fn not_started(&mut self, id: CallId, error: &CallError) {
        if self.waiting.remove(&id).is_some() {
            self.choices.push_back(PlacementDecision::NotStarted(id, error.to_string()));
        }
    }
}

/// Waits for a place and connects to its server.
fn find_server(
    id: CallId,
    mut routed_call: Box<RoutedCall<'static>>,
    mut step: Option<RoutedStep>,
    control: &Control,
) -> ChooserEvent {
    loop {
        match step.take().or_else(|| routed_call.turn()) {
            Some(RoutedStep::Start(place)) => {
                if let Some(client) = routed_call.connect(&place) {
                    return ChooserEvent::Placed(id, routed_call, client);
                }
            }
            // There is no attempt to be left.
            Some(RoutedStep::Leave) => routed_call.tell(Event::Stays),
            Some(RoutedStep::Over(end)) => {
                return ChooserEvent::NotStarted(id, routed_call.error(end));
            }
            None if routed_call.wants_metaserver() => {
                return ChooserEvent::Unasked(id, routed_call);
            }
            None => routed_call.await_place(control, &|| false),
        }
    }
}

/// The call is over: its last attempt is reported.
fn conclude(mut routed_call: Box<RoutedCall<'static>>, event: Event<Place, CallError>) {
    routed_call.tell(event);
    while routed_call.turn().is_some() {}
}

impl ServerChooser for MetaserverChooser {
    fn submit(&mut self, ready: &SubmittedCall<'_>) {
        let plan = &ready.prepared.plan;
        let (bytes, operations) = ((plan.sent, ready.back), plan.operations);
        let mut routed_call = self.grid.route(&ready.prepared.known, bytes, operations);
        routed_call.placing.input_locations = self.locations(&ready.held);
        routed_call.turned_away = Some(false);
        self.backlog.push_back((ready.call, Box::new(routed_call)));
        self.pump();
    }

    fn lend(&mut self, id: CallId) -> Option<Box<RoutedCall<'static>>> {
        let mut routed_call = self.placed.remove(&id)?;
        routed_call.tell(Event::Sent);
        Some(routed_call)
    }

    fn give_back(&mut self, id: CallId, routed_call: Box<RoutedCall<'static>>) {
        self.placed.insert(id, routed_call);
    }

    fn ended(&mut self, id: CallId, _: u32, outcome: &Outcome, bytes: Option<(u64, u64)>) {
        let Some(mut routed_call) = self.placed.remove(&id) else { return };
        let place = routed_call.place();
        routed_call.done = place.map(|place| measured(place, outcome, bytes));
        conclude(routed_call, Event::Done);
    }

    fn failed(&mut self, id: CallId, _: u32, failure: Failure, why: &str) {
        let Some(mut routed_call) = self.placed.remove(&id) else { return };
        let error = CallError::Server(why.to_owned());
        routed_call.tell(match failure {
            Failure::Routine => return conclude(routed_call, Event::Failed(error)),
            Failure::NotBegun | Failure::Unclaimed => Event::NotBegun(error),
            Failure::Broken => Event::Broken(error),
        });
        self.wait(id, &routed_call);
        self.find_server(id, routed_call, None);
    }

    fn withdrawn(&mut self, id: CallId, _: u32) {
        let Some(routed_call) = self.placed.remove(&id) else { return };
        // An input did not arrive, which is no failure of its server: the request is given up. A metaserver that is away, or has
        // forgotten the call, gets a report.
        if routed_call.place_request.is_none() {
            let error = CallError::Server("an input did not arrive".to_owned());
            conclude(routed_call, Event::Failed(error));
        }
    }

    fn cancel(&mut self, id: CallId) {
        self.backlog.retain(|(other, _)| *other != id);
        if let Some(waiting) = self.waiting.remove(&id) {
            waiting.control.cancel();
            drop(self.grid.inner.withdraw(waiting.number));
        }
    }

    fn left(&mut self, server: ServerId) {
        let known = self.servers.get_mut(server.0 as usize).and_then(Option::take);
        if let Some((place, client)) = known {
            self.grid.inner.remove_server(&place.address, &client);
        }
    }

    fn heard(&mut self, news: ChooserEvent) {
        match news {
            ChooserEvent::Answered(id, routed_call) => self.answered(id, routed_call),
            ChooserEvent::Placed(id, routed_call, client) => self.start(id, routed_call, client),
            ChooserEvent::Unasked(id, routed_call) => self.ask_again(id, routed_call),
            ChooserEvent::NotStarted(id, error) => self.not_started(id, &error),
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
}

impl Drop for MetaserverChooser {
    fn drop(&mut self) {
        let waiting: Vec<CallId> = self.waiting.keys().copied().collect();
        waiting.into_iter().for_each(|id| self.cancel(id));
        self.placed.clear();
        self.grid.end();
    }
}
