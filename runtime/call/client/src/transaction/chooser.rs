//! Choice of servers for the calls of a transaction.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use kumi_broker::{CallId, Failure, HeldInput, ServerId};

use super::attempt::AttemptEnd;
use super::drive::Server;
use super::local_chooser::LocalChooser;
use super::metaserver_chooser::MetaserverChooser;
use super::prepare::{Plans, PreparedCall, prepare};
use super::{RunOptions, Transaction, TransactionError};
use crate::routed_call::RoutedCall;
use crate::{CallError, Client, Grid, KnownRoutine, Outcome};

/// The servers that a transaction may use.
#[derive(Clone, Copy)]
pub enum Target<'a> {
    /// These servers.
    Servers(&'a [&'a str]),
    /// Servers that a metaserver chooses.
    Grid(&'a Grid),
}

/// A message to the driver of a transaction.
pub enum DriverMessage {
    /// An attempt has ended.
    Ended(AttemptEnd),
    /// An event for the chooser.
    Event(ChooserEvent),
}

/// An event for the chooser.
pub enum ChooserEvent {
    /// A metaserver has answered a call that waits.
    Answered(CallId, Box<RoutedCall<'static>>),
    /// A call has a place, and there is a connection to the server.
    Placed(CallId, Box<RoutedCall<'static>>, Client),
    /// A call that waits has to be asked for again.
    Unasked(CallId, Box<RoutedCall<'static>>),
    /// A call gets no place.
    NotStarted(CallId, CallError),
}

/// A call that is ready to run.
pub struct SubmittedCall<'a> {
    pub call: CallId,
    pub prepared: &'a PreparedCall,
    /// Bytes that return to the client.
    pub back: u64,
    /// Inputs that servers hold.
    pub held: Vec<HeldInput>,
}

/// A decision of the chooser.
pub enum PlacementDecision {
    /// A new server. Its number follows the last.
    NewServer(Server),
    /// Start a call at this server as the attempt with this number.
    Start(CallId, ServerId, u32),
    /// A call does not start, or not again, for this reason.
    NotStarted(CallId, String),
}

/// Chooser of servers. Each submitted call ends in one of these ways: it is reported as ended, as failed with
/// [`Failure::Routine`] or as cancelled, or it gets a [`PlacementDecision::NotStarted`].
pub trait ServerChooser {
    /// A call is ready.
    fn submit(&mut self, ready: &SubmittedCall<'_>);
    /// The call at the metaserver, for an attempt that begins now. `None`: no metaserver has placed it.
    fn lend(&mut self, call: CallId) -> Option<Box<RoutedCall<'static>>>;
    /// The attempt has ended, and how is said next.
    fn give_back(&mut self, call: CallId, routed_call: Box<RoutedCall<'static>>);
    /// An attempt has succeeded. `bytes` are those of arguments and results, if all of them went between client and server.
    fn ended(&mut self, call: CallId, number: u32, outcome: &Outcome, bytes: Option<(u64, u64)>);
    /// An attempt has failed for this reason. The call starts again unless the failure is [`Failure::Routine`].
    fn failed(&mut self, call: CallId, number: u32, failure: Failure, why: &str);
    /// An attempt has failed through no fault of its server. The call is over, or is submitted again as
    /// another.
    fn withdrawn(&mut self, call: CallId, number: u32);
    /// A call that does not run is cancelled.
    fn cancel(&mut self, call: CallId);
    /// The connection to a server is lost.
    fn left(&mut self, server: ServerId);
    /// An awaited event has arrived.
    fn heard(&mut self, news: ChooserEvent);
    /// Time has passed.
    fn tick(&mut self);
    /// The next decision.
    fn poll(&mut self) -> Option<PlacementDecision>;
    /// Time until the next [`ServerChooser::tick`] is due.
    fn patience(&self) -> Option<Duration>;
}

/// A transaction that is ready to run: chooser, known servers, and plans.
pub struct PreparedRun {
    pub chooser: Box<dyn ServerChooser>,
    pub servers: Vec<Server>,
    pub plans: Plans,
}

/// Connects, asks for descriptions, and finds the dependencies. Later events go to `tell`.
pub fn begin(
    tx: &Transaction<'_>,
    target: Target<'_>,
    options: &RunOptions,
    tell: &Sender<DriverMessage>,
) -> Result<PreparedRun, TransactionError> {
    match target {
        Target::Servers(addresses) => {
            let mut own = LocalChooser::new(options)?;
            let mut servers = super::local_chooser::connect(addresses, options)?;
            let plans = plans(tx, |routine| super::local_chooser::describe(&servers, routine))?;
            own.join(&mut servers);
            Ok(PreparedRun { chooser: Box::new(own), servers, plans })
        }
        Target::Grid(grid) => {
            let grid = grid.separate().map_err(no_metaserver)?;
            let plans = plans(tx, |routine| grid.interface(routine))?;
            let chooser = Box::new(MetaserverChooser::new(grid, tell.clone()));
            Ok(PreparedRun { chooser, servers: Vec::new(), plans })
        }
    }
}

/// The plan of a transaction.
pub fn plan(
    tx: &Transaction<'_>,
    target: Target<'_>,
    options: &RunOptions,
) -> Result<Plans, TransactionError> {
    match target {
        Target::Servers(addresses) => {
            let servers = super::local_chooser::connect(addresses, options)?;
            plans(tx, |routine| super::local_chooser::describe(&servers, routine))
        }
        Target::Grid(grid) => plans(tx, |routine| grid.interface(routine)),
    }
}

fn no_metaserver(error: CallError) -> TransactionError {
    match error {
        error @ (CallError::NotPermitted(_) | CallError::Expired(_) | CallError::Tls { .. }) => {
            TransactionError::Refused(error)
        }
        error => TransactionError::NoServer(error.to_string()),
    }
}

/// Checks all calls. Asks once for each routine.
fn plans(
    tx: &Transaction<'_>,
    describe: impl Fn(&str) -> Result<Arc<KnownRoutine>, CallError>,
) -> Result<Plans, TransactionError> {
    let mut known: HashMap<String, Arc<KnownRoutine>> = HashMap::new();
    prepare(tx, |routine| {
        if let Some(known) = known.get(routine) {
            return Ok(Arc::clone(known));
        }
        let found = describe(routine)?;
        known.insert(routine.to_owned(), Arc::clone(&found));
        Ok(found)
    })
}
