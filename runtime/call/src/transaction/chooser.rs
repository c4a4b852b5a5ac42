//! Who chooses the servers of a transaction's calls.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use kumi_broker::{CallId, Failure, HeldInput, ServerId};
use kumi_rpc::Placement;

use super::attempt::AttemptEnd;
use super::drive::Server;
use super::local_chooser::LocalChooser;
use super::metaserver_chooser::MetaserverChooser;
use super::prepare::{Plans, PreparedCall, prepare};
use super::{RunOptions, Transaction, TransactionError};
use crate::client::{CallError, Client, Grid, KnownRoutine, Outcome, PlacementEvent};

/// Where the calls of a transaction may go.
#[derive(Clone, Copy)]
pub enum Target<'a> {
    /// To these servers.
    Servers(&'a [&'a str]),
    /// Where a metaserver says.
    Grid(&'a Grid),
}

/// What comes to the driver of a transaction.
pub enum DriverMessage {
    /// The end of an attempt.
    Ended(AttemptEnd),
    /// Something for who chooses.
    Heard(ChooserEvent),
}

/// What who chooses may hear.
pub enum ChooserEvent {
    /// Of a metaserver.
    Meta(PlacementEvent),
    /// A connection to the server of a place.
    Server(Arc<Placement>, Result<Client, CallError>),
}

/// A call that is ready.
pub struct SubmittedCall<'a> {
    pub call: CallId,
    pub prepared: &'a PreparedCall,
    /// Bytes that come back to the client.
    pub back: u64,
    /// What it reads and lies at servers.
    pub held: Vec<HeldInput>,
}

/// What a call took that has run.
pub struct CompletedCall<'a> {
    pub outcome: &'a Outcome,
    /// Bytes of arguments and of results, if all of them went between client and server and nothing else did.
    pub bytes: Option<(u64, u64)>,
}

/// What is to be done.
pub enum PlacementDecision {
    /// A server that was not known: it has the number behind the last.
    Server(Server),
    /// A call starts at this server as the attempt with this number; what the server is shown.
    Start(CallId, ServerId, u32, Option<Arc<Placement>>),
    /// An attempt is to end: it is not believed in any more.
    Leave(CallId, u32),
    /// A call does not start (again), for this reason.
    Over(CallId, String),
}

/// Chooses servers. Each call that is submitted is either told as ended, as failed with [`Failure::Routine`] or as cancelled, or
/// has a [`PlacementDecision::Over`].
pub trait ServerChooser {
    /// A call is ready.
    fn submit(&mut self, ready: &SubmittedCall<'_>);
    /// An attempt has run.
    fn ended(&mut self, call: CallId, number: u32, went: &CompletedCall<'_>);
    /// An attempt came to nothing. The call starts again unless that is [`Failure::Routine`].
    fn failed(&mut self, call: CallId, number: u32, failure: Failure);
    /// An attempt came to nothing through no fault of its server, and the call is over, or submitted anew as another.
    fn withdrawn(&mut self, call: CallId, number: u32);
    /// A call that does not run is not wanted any more.
    fn cancel(&mut self, call: CallId);
    /// The connection to a server is gone.
    fn left(&mut self, server: ServerId);
    /// Something that it waited for.
    fn heard(&mut self, news: ChooserEvent);
    /// Time has passed.
    fn tick(&mut self);
    /// What is to be done next.
    fn poll(&mut self) -> Option<PlacementDecision>;
    /// How long it can wait for [`ServerChooser::tick`].
    fn patience(&self) -> Option<Duration>;
    /// Whether it still has something to hear before the connections may go.
    fn is_closing(&self) -> bool;
}

/// Who chooses, the servers that are known, and what is to run there.
pub struct PreparedRun {
    pub chooser: Box<dyn ServerChooser>,
    pub servers: Vec<Server>,
    pub plans: Plans,
}

/// Connects, asks for descriptions, and finds what depends on what. What comes later goes to `tell`.
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
            let (grid, meta) = grid.apart().map_err(no_metaserver)?;
            let plans = plans(tx, |routine| grid.interface(routine))?;
            let chooser = Box::new(MetaserverChooser::new(grid, meta, tell.clone()));
            Ok(PreparedRun { chooser, servers: Vec::new(), plans })
        }
    }
}

/// What would run.
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

/// Checks all calls; each routine is asked for once.
fn plans(
    tx: &Transaction<'_>,
    describe: impl Fn(&str) -> Result<Arc<KnownRoutine>, CallError>,
) -> Result<Plans, TransactionError> {
    let mut known: HashMap<String, Arc<KnownRoutine>> = HashMap::new();
    prepare(tx, &mut |routine| {
        if let Some(known) = known.get(routine) {
            return Ok(Arc::clone(known));
        }
        let found = describe(routine)?;
        known.insert(routine.to_owned(), Arc::clone(&found));
        Ok(found)
    })
}
