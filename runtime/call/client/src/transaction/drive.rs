//! Driver of a transaction: starts calls, and handles their ends.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use kumi_broker::{Access, CallId, Failure, Graph, Node, ServerId, State};
use kumi_rpc::HeldArrayName;

use super::attempt::{AttemptEnd, FoundSource, SourceStatus};
use super::chooser::{
    self, DriverMessage, PlacementDecision, PreparedRun, ServerChooser, SubmittedCall, Target,
};
use super::prepare::{CLIENT, Output, Plans, PreparedCall};
use super::report::{MovedBytes, Report, StepReport};
use super::sources::InputStatus;
use super::{RunOptions, Transaction, TransactionError};
use crate::held::HeldNames;
use crate::{CallError, Client, Outcome};

/// How often the program is asked whether to cancel the transaction.
const LOOK: Duration = Duration::from_millis(50);
/// How long servers may take to end the calls of a cancelled transaction.
const GRACE: Duration = Duration::from_secs(10);
/// A server of a transaction.
pub struct Server {
    pub address: String,
    /// `None`: it is not connected, or not any more.
    pub client: Option<Client>,
}

/// A running call.
pub struct RunningCall {
    pub node: Node,
    pub server: ServerId,
    /// Set: its server is to end it.
    pub cancel: Arc<AtomicBool>,
    /// A metaserver chose the server.
    pub is_placed: bool,
    /// All its arguments come directly from the client.
    pub alone: bool,
    /// Results that stay at the server: index and name.
    pub kept: Vec<(usize, HeldArrayName)>,
    /// Results that return to the client.
    pub returned: Vec<usize>,
    /// Bytes of the client's memory that receive results directly.
    pub direct: Vec<Access>,
    /// Why the client relays an array that a server holds.
    pub helped: Option<String>,
    pub moved: MovedBytes,
}

/// A running transaction.
pub struct Driver<'t> {
    pub tx: &'t Transaction<'t>,
    pub options: &'t RunOptions,
    pub graph: Graph,
    pub calls: Vec<PreparedCall>,
    pub outputs: Vec<Output>,
    pub servers: Vec<Server>,
    pub report: Vec<StepReport>,
    /// Bytes of the client's memory that were overwritten.
    pub overwritten: Vec<(u64, u64)>,
    /// Calls whose arguments the client relays, and why.
    pub relayed: BTreeMap<Node, String>,
    /// Pairs of servers that cannot exchange arrays (reader and holder), and why.
    pub unreachable: BTreeMap<(ServerId, ServerId), String>,
    pub names: HeldNames,
    pub chooser: Box<dyn ServerChooser>,
    /// Nodes of the calls.
    nodes: HashMap<CallId, Node>,
    submitted: BTreeSet<Node>,
    pub running: HashMap<(CallId, u32), RunningCall>,
    /// The error of each call's last attempt.
    failures: HashMap<Node, String>,
    next: u64,
    moved: MovedBytes,
    begun: Instant,
    queue: (Sender<DriverMessage>, Receiver<DriverMessage>),
}

fn steps(calls: &[PreparedCall]) -> Vec<StepReport> {
    let step = |call: &PreparedCall| StepReport {
        routine: call.known.name.clone(),
        ..StepReport::default()
    };
    calls.iter().map(step).collect()
}

/// [`Transaction::plan`].
pub fn plan(
    tx: &Transaction<'_>,
    target: Target<'_>,
    options: &RunOptions,
) -> Result<Report, TransactionError> {
    let Plans { graph, calls, .. } = chooser::plan(tx, target, options)?;
    let moved = MovedBytes::default();
    Ok(Report { graph, steps: steps(&calls), moved, took: Duration::ZERO })
}

/// [`Transaction::run_with`].
pub fn run(
    tx: &Transaction<'_>,
    target: Target<'_>,
    options: &RunOptions,
    interrupted: &dyn Fn() -> bool,
) -> Result<Report, TransactionError> {
    let queue = channel();
    let PreparedRun { chooser, servers, plans } = chooser::begin(tx, target, options, &queue.0)?;
    let Plans { graph, calls, outputs } = plans;
    let mut driver = Driver {
        tx,
        options,
        graph,
        report: steps(&calls),
        calls,
        outputs,
        servers,
        overwritten: Vec::new(),
        relayed: BTreeMap::new(),
        unreachable: BTreeMap::new(),
        names: HeldNames::new()?,
        chooser,
        nodes: HashMap::new(),
        submitted: BTreeSet::new(),
        running: HashMap::new(),
        failures: HashMap::new(),
        next: 0,
        moved: MovedBytes::default(),
        begun: Instant::now(),
        queue,
    };
    let cancelled = driver.drive(interrupted);
    let took = driver.begun.elapsed();
    let Driver { graph, report, moved, .. } = driver;
    let report = Report { graph, steps: report, moved, took };
    if cancelled {
        return Err(TransactionError::Cancelled(Box::new(report)));
    }
    if report.is_complete() { Ok(report) } else { Err(TransactionError::Failed(Box::new(report))) }
}

impl Driver<'_> {
    /// Runs all calls. Returns whether the transaction was cancelled.
    fn drive(&mut self, interrupted: &dyn Fn() -> bool) -> bool {
        let mut cancelled: Option<Instant> = None;
        std::thread::scope(|scope| {
            loop {
                self.submit();
                while let Some(choice) = self.chooser.poll() {
                    self.carry_out(choice, scope);
                    self.submit();
                }
                self.let_go();
                if self.graph.is_over() && self.running.is_empty() {
                    break;
                }
                match cancelled {
                    None if interrupted() => {
                        cancelled = Some(Instant::now());
                        self.cancel();
                    }
                    Some(since) if since.elapsed() > GRACE => self.break_off(),
                    _ => {}
                }
                let next = self.chooser.patience().map_or(LOOK, |next| next.min(LOOK));
                match self.queue.1.recv_timeout(next) {
                    Ok(DriverMessage::Ended(ended)) => self.ended(ended),
                    Ok(DriverMessage::Event(news)) => self.chooser.heard(news),
                    Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                        self.look_for_lost();
                        self.chooser.tick();
                    }
                }
            }
        });
        cancelled.is_some()
    }

    /// Submits the ready calls, and repeats calls whose lost results they need.
    fn submit(&mut self) {
        loop {
            let ready: Vec<Node> =
                self.graph.ready().filter(|node| !self.submitted.contains(node)).collect();
            if ready.is_empty() {
                return;
            }
            for node in ready {
                if self.graph.state(node) == Some(&State::Ready) && self.has_inputs(node) {
                    self.request(node);
                }
            }
        }
    }

    /// Whether all inputs of a call exist. If not, the call waits until they are made again, or fails.
    fn has_inputs(&mut self, node: Node) -> bool {
        match self.needs(node) {
            InputStatus::Complete => return true,
            InputStatus::Repeat(makers) => {
                for maker in makers {
                    let again = self.graph.restart(maker);
                    debug_assert!(again.is_ok(), "it has ended");
                }
            }
            InputStatus::LostResult(maker, why) => {
                let lost = self.graph.mark_lost(maker, why);
                debug_assert!(lost.is_ok(), "it has ended");
            }
            InputStatus::Overwritten => {
                let why = "what it reads was overwritten before it could be tried again";
                self.fail(node, why.to_owned());
            }
        }
        false
    }

    fn request(&mut self, node: Node) {
        let call = &self.calls[node.0 as usize];
        self.next += 1;
        let id = CallId(self.next);
        let own = self.outputs.iter().filter(|output| output.node == node && output.wanted);
        let back = own.map(|output| output.access.end - output.access.start).sum();
        let held = self.graph.held(node);
        self.submitted.insert(node);
        self.nodes.insert(id, node);
        self.chooser.submit(&SubmittedCall { call: id, prepared: call, back, held });
    }

    /// The chooser has the call no more.
    fn forget(&mut self, call: CallId) -> Option<Node> {
        let node = self.nodes.remove(&call)?;
        self.submitted.remove(&node);
        Some(node)
    }

    fn carry_out<'s, 'e>(
        &mut self,
        choice: PlacementDecision,
        scope: &'s std::thread::Scope<'s, 'e>,
    ) {
        match choice {
            PlacementDecision::NewServer(server) => self.servers.push(server),
            PlacementDecision::Start(call, server, number) => {
                self.start(call, server, number, scope);
            }
            PlacementDecision::NotStarted(call, why) => {
                let Some(node) = self.forget(call) else { return };
                let why = self.failures.get(&node).cloned().unwrap_or(why);
                // A call that waits for repeated results comes back.
                if self.graph.state(node) == Some(&State::Ready) {
                    self.fail(node, why);
                }
            }
        }
    }

    /// Starts a call if all its inputs still exist.
    fn start<'s, 'e>(
        &mut self,
        call: CallId,
        server: ServerId,
        number: u32,
        scope: &'s std::thread::Scope<'s, 'e>,
    ) {
        self.look_for_lost();
        let Some(client) = self.servers.get(server.0 as usize).and_then(|it| it.client.clone())
        else {
            let why = "the connection to it is lost";
            return self.chooser.failed(call, number, Failure::NotBegun, why);
        };
        let node = self.nodes.get(&call).copied();
        let node = node.filter(|node| self.graph.state(*node) == Some(&State::Ready));
        let Some(node) = node.filter(|node| self.has_inputs(*node)) else {
            self.forget(call);
            return self.chooser.withdrawn(call, number);
        };
        let started = self.graph.start(node);
        debug_assert!(started.is_ok(), "it was ready");
        let (attempt, running) = self.place(node, call, number, (server, client));
        let now = self.begun.elapsed();
        let step = &mut self.report[node.0 as usize];
        step.attempts += 1;
        (step.begun, step.ended) = (Some(now), None);
        step.server = Some(self.servers[server.0 as usize].address.clone());
        step.helped.clone_from(&running.helped);
        self.moved.add(&running.moved);
        self.running.insert((call, number), running);
        let told = self.queue.0.clone();
        scope.spawn(move || {
            // The driver waits for all attempts.
            let _waits = told.send(DriverMessage::Ended(attempt.run()));
        });
    }

    /// Starts nothing more, and ends the running calls.
    fn cancel(&mut self) {
        self.graph.cancel();
        let runs = |call: &CallId| self.running.keys().any(|(other, _)| other == call);
        let waiting: Vec<CallId> = self.nodes.keys().filter(|call| !runs(call)).copied().collect();
        for running in self.running.values() {
            running.cancel.store(true, Ordering::Relaxed);
        }
        for call in waiting {
            self.nodes.remove(&call);
            self.chooser.cancel(call);
        }
    }

    /// Gives up servers that do not end their calls.
    fn break_off(&mut self) {
        let slow: BTreeSet<ServerId> =
            self.running.values().map(|running| running.server).collect();
        slow.into_iter().for_each(|server| self.lost(server));
    }

    /// A ready or running call has failed.
    fn fail(&mut self, node: Node, why: String) {
        if self.graph.state(node) == Some(&State::Ready) {
            let started = self.graph.start(node);
            debug_assert!(started.is_ok(), "it is ready");
        }
        let failed = self.graph.fail(node, why);
        debug_assert!(failed.is_ok(), "it runs");
    }

    /// A call has failed for good, of which the chooser knows.
    fn give_up(&mut self, call: CallId, node: Node, why: String) {
        self.forget(call);
        self.fail(node, why);
    }

    fn ended(&mut self, ended: AttemptEnd) {
        let AttemptEnd { call, number, routed_call, result, is_left, found } = ended;
        if let Some(routed_call) = routed_call {
            self.chooser.give_back(call, routed_call);
        }
        let Some(running) = self.running.remove(&(call, number)) else { return };
        let now = self.begun.elapsed();
        self.report[running.node.0 as usize].ended = Some(now);
        match result {
            Ok(outcome) => self.done(call, number, &running, outcome),
            Err(error) => {
                if matches!(error, CallError::Status { .. }) {
                    self.delivered(&running);
                } else if !error.has_not_run() {
                    // Parts of results may have arrived.
                    for access in &running.direct {
                        self.overwrite(running.node, access);
                    }
                }
                self.failed((call, number), &running, &error, is_left, &found);
                self.report[running.node.0 as usize].failure = Some(Arc::new(error));
            }
        }
    }

    /// The results of a call are in place.
    fn delivered(&mut self, running: &RunningCall) {
        for &(output, name) in &running.kept {
            self.outputs[output].held = Some((running.server, name));
        }
        for &output in &running.returned {
            self.outputs[output].here = Some(Vec::new());
            let access = self.outputs[output].access;
            if access.buffer == CLIENT {
                self.overwrite(running.node, &access);
            }
        }
    }

    fn done(&mut self, call: CallId, number: u32, running: &RunningCall, outcome: Outcome) {
        self.delivered(running);
        let bytes = running.alone.then_some((running.moved.sent, running.moved.received));
        self.chooser.ended(call, number, &outcome, bytes);
        let step = &mut self.report[running.node.0 as usize];
        (step.outcome, step.failure) = (Some(outcome), None);
        self.forget(call);
        let finished = self.graph.finish(running.node, running.server);
        debug_assert!(finished.is_ok(), "it ran");
    }

    fn failed(
        &mut self,
        (call, number): (CallId, u32),
        running: &RunningCall,
        error: &CallError,
        is_left: bool,
        found: &[FoundSource],
    ) {
        let node = running.node;
        let step = &self.report[node.0 as usize];
        let server = step.server.clone().unwrap_or_default();
        let why = format!("{error} (at {server})");
        let cancelled = running.cancel.load(Ordering::Relaxed);
        let more = step.attempts < self.options.attempts && !cancelled;
        let idempotent = self.calls[node.0 as usize].known.idempotent;
        let again = match error {
            _ if is_left => idempotent.then_some(Failure::Broken),
            CallError::Lost(_) => {
                self.lost(running.server);
                idempotent.then_some(Failure::Broken)
            }
            // A restarted metaserver that does not know the call has stopped it.
            CallError::Cancelled(_) if running.is_placed && !cancelled => {
                idempotent.then_some(Failure::Broken)
            }
            CallError::Busy(_) | CallError::HeldFull(_) | CallError::NoResources(_) => {
                Some(Failure::NotBegun)
            }
            CallError::NotHeld { .. } | CallError::NoSource(_) => {
                self.sources_failed(node, found, &why);
                if matches!(error, CallError::NoSource(_)) {
                    self.keep_apart(running.server, found, &why);
                }
                if more {
                    return self.withdraw(call, number, node);
                }
                None
            }
            // Another server may accept it.
            other if running.is_placed && other.has_not_run() => match other {
                CallError::Argument { .. } => None,
                _ => Some(Failure::NotBegun),
            },
            _ => None,
        };
        let again = again.filter(|_| more);
        let failure = again.unwrap_or(Failure::Routine);
        self.chooser.failed(call, number, failure, &error.to_string());
        if again.is_none() {
            return self.give_up(call, node, why);
        }
        self.failures.insert(node, why);
        let again = self.graph.restart(node);
        debug_assert!(again.is_ok(), "it ran");
    }

    /// An attempt failed; submits the call again.
    fn withdraw(&mut self, call: CallId, number: u32, node: Node) {
        self.forget(call);
        let again = self.graph.restart(node);
        debug_assert!(again.is_ok(), "it ran");
        self.chooser.withdrawn(call, number);
    }

    /// An input of a call did not arrive.
    fn sources_failed(&mut self, node: Node, found: &[FoundSource], why: &str) {
        for (server, name, what) in found {
            match what {
                // The client reaches the holder, so it relays the holder's arrays.
                SourceStatus::Held => {
                    self.relayed.insert(node, why.to_owned());
                }
                SourceStatus::Missing => {
                    for output in &mut self.outputs {
                        if output.held == Some((*server, *name)) {
                            output.held = None;
                        }
                    }
                }
                SourceStatus::Unreachable => self.lost(*server),
            }
        }
    }

    /// If exactly one pair of servers cannot exchange arrays, no other call tries that.
    fn keep_apart(&mut self, reader: ServerId, found: &[FoundSource], why: &str) {
        let mut from: Vec<ServerId> =
            found.iter().map(|(holder, ..)| *holder).filter(|holder| *holder != reader).collect();
        from.dedup();
        let all_there = found.iter().all(|(.., what)| *what == SourceStatus::Held);
        if let ([holder], true) = (from.as_slice(), all_there) {
            self.unreachable.insert((reader, *holder), why.to_owned());
        }
    }

    /// Notices servers that were lost while nothing waited for them.
    fn look_for_lost(&mut self) {
        let gone = |server: &Server| server.client.as_ref().is_some_and(Client::is_lost);
        let ids = (0..).map(ServerId).zip(&self.servers);
        let lost: Vec<ServerId> =
            ids.filter(|(_, server)| gone(server)).map(|(id, _)| id).collect();
        lost.into_iter().for_each(|server| self.lost(server));
    }

    /// A server is lost, with all arrays that it held.
    fn lost(&mut self, server: ServerId) {
        let Some(client) = self.servers[server.0 as usize].client.take() else { return };
        client.disconnect();
        for output in &mut self.outputs {
            if output.held.is_some_and(|(holder, _)| holder == server) {
                output.held = None;
            }
        }
        self.chooser.left(server);
    }
}

impl MovedBytes {
    fn add(&mut self, other: &MovedBytes) {
        self.sent += other.sent;
        self.received += other.received;
        self.between += other.between;
        self.stayed += other.stayed;
    }
}
