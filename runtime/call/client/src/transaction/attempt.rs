//! Attempt to run a call of a transaction, in a thread of its own.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kumi_broker::{CallId, ServerId};
use kumi_idl::Argument;
use kumi_rpc::{HeldArrayName, HeldArrayPart};

use super::place::buffer;
use crate::context::InheritedContext;
use crate::lent::{Lend, LendMut, LentBytes, LentBytesMut};
use crate::routed_call::{RoutedCall, RoutedStep};
use crate::{Arg, CallError, Client, KnownRoutine, Outcome};

/// How often an attempt checks whether it was cancelled.
const LOOK: Duration = Duration::from_millis(50);
/// Time limit for the question whether a server holds an array.
const ASK: Duration = Duration::from_secs(5);

/// A fetch: server, array, first byte there, first byte here, bytes.
pub type Fetch = (Client, HeldArrayName, u64, u64, u64);

/// An argument that the client relays because one server does not reach the other.
pub struct Relay {
    argument: Argument,
    fetches: Vec<Fetch>,
    /// The client's own part: its memory, and pieces of it.
    pub gaps: Option<(LentBytes, Vec<(u64, u64)>)>,
    _memory: Box<[u8]>,
    lent: LentBytesMut,
}

impl Relay {
    pub fn new(argument: Argument, fetches: Vec<Fetch>) -> Relay {
        // The size is checked against the server's limits when the call is sent.
        let (memory, lent) = buffer(argument.bytes as usize);
        Relay { argument, fetches, gaps: None, _memory: memory, lent }
    }

    /// The buffer from which the argument is sent.
    pub fn memory(&self) -> LentBytes {
        self.lent.as_lent()
    }

    fn fetch(&mut self) -> Result<(), CallError> {
        let (packed, mut lent) = buffer(self.argument.sent as usize);
        if let Some((from, pieces)) = &self.gaps {
            for (offset, length) in pieces {
                let piece = from.part(*offset as usize, *length as usize);
                lent.write(*offset as usize, piece.bytes());
            }
        }
        for (client, name, from, offset, length) in &self.fetches {
            let to = lent.part(*offset as usize, *length as usize);
            client.fetch_bytes(*name, *from, to, None, &|| false).map_err(|error| match error {
                // The server that is called is still there.
                error @ CallError::Lost(_) => of_holder(client.server(), error),
                error => error,
            })?;
        }
        let order = self.argument.order();
        let scattered = self.argument.scatter(lent.bytes(), self.lent.bytes(), order);
        drop(packed);
        scattered.map_err(|error| CallError::Server(error.to_string()))
    }
}

/// A result that is copied to its place after all of it has arrived.
pub struct Delivery {
    _memory: Box<[u8]>,
    from: LentBytesMut,
    to: LentBytesMut,
    /// The part of the buffer that is the result.
    range: Range<usize>,
}

impl Delivery {
    /// A delivery to a part of an array.
    pub fn new(to: LentBytesMut, range: Range<usize>) -> Delivery {
        let (memory, from) = buffer(to.length());
        Delivery { _memory: memory, from, to, range }
    }

    /// The buffer that receives the result.
    pub fn memory(&self) -> LentBytesMut {
        self.from.part(0, self.from.length())
    }

    fn put(&mut self) {
        let from = self.from.part(self.range.start, self.range.len()).as_lent();
        self.to.write(self.range.start, from.bytes());
    }
}

/// Turns an error of a server that holds an input into one that does not blame the server of the call.
fn of_holder(address: &str, error: CallError) -> CallError {
    match error {
        error @ CallError::NotHeld { .. } => error,
        error => CallError::NoSource(format!(
            "an array could not be fetched from the server at {address}: {error}"
        )),
    }
}

/// An attempt to run a call.
pub struct Attempt {
    pub call: CallId,
    pub number: u32,
    pub client: Client,
    pub known: Arc<KnownRoutine>,
    /// The call at the metaserver, if one has placed it.
    pub routed_call: Option<Box<RoutedCall<'static>>>,
    pub args: Vec<Arg<'static>>,
    pub relays: Vec<Relay>,
    pub deliveries: Vec<Delivery>,
    /// Servers that hold its inputs.
    pub holders: Vec<(Client, ServerId, HeldArrayName)>,
    /// Servers that give vouchers for its inputs, and the address where each is shown.
    pub vouchers: Vec<(Client, String, HeldArrayName)>,
    /// How long its results stay at servers.
    pub held: Duration,
    /// The driver has its server end it, and waits for that.
    pub cancel: Arc<AtomicBool>,
    pub time: Option<Duration>,
    /// What the thread of the transaction gives to its calls.
    pub context: InheritedContext,
}

/// Whether a server still holds an input of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceStatus {
    /// It does.
    Held,
    /// It does not.
    Missing,
    /// It does not answer.
    Unreachable,
}

/// An array that a server has held, and what became of it.
pub type FoundSource = (ServerId, HeldArrayName, SourceStatus);

/// The end of an attempt.
pub struct AttemptEnd {
    pub call: CallId,
    pub number: u32,
    pub routed_call: Option<Box<RoutedCall<'static>>>,
    pub result: Result<Outcome, CallError>,
    /// The metaserver has moved or ended the call, so the attempt was left.
    pub is_left: bool,
    /// If the call failed because of its inputs: the state of each input.
    pub found: Vec<FoundSource>,
}

impl Attempt {
    pub fn run(mut self) -> AttemptEnd {
        self.context.enter();
        let mut is_left = false;
        let result = self.call(&mut is_left);
        let mut found = Vec::new();
        if matches!(result, Err(CallError::NotHeld { .. } | CallError::NoSource(_))) {
            for (client, server, name) in &self.holders {
                let (_memory, nothing) = buffer(0);
                let found_it = match client.fetch_bytes(*name, 0, nothing, Some(ASK), &|| false) {
                    Ok(()) => SourceStatus::Held,
                    Err(CallError::Lost(_) | CallError::TimedOut(_)) => SourceStatus::Unreachable,
                    Err(_) => SourceStatus::Missing,
                };
                found.push((*server, *name, found_it));
            }
        }
        if let Err(CallError::Busy(_)) = result {
            std::thread::sleep(LOOK * self.number.min(20));
        }
        let Attempt { call, number, routed_call, .. } = self;
        AttemptEnd { call, number, routed_call, result, is_left, found }
    }

    /// Gets vouchers for the arrays that the server must fetch, so that it needs no token.
    fn vouch(&mut self) -> Result<(), CallError> {
        let lifetime = self.time.map_or(self.held, |time| self.held.min(time.saturating_add(ASK)));
        for (holder, address, name) in &self.vouchers {
            let voucher = holder.vouch(*name, lifetime, Some(ASK));
            let voucher = voucher.map_err(|error| of_holder(address, error))?;
            let arrays = self.args.iter_mut().filter_map(|arg| match arg {
                Arg::Remote(array) => Some(array),
                _ => None,
            });
            let is_it = |part: &&mut HeldArrayPart| part.name == *name && part.server == *address;
            for part in arrays.flat_map(|array| &mut array.parts).filter(is_it) {
                part.voucher.clone_from(&voucher);
            }
        }
        Ok(())
    }

    fn call(&mut self, is_left: &mut bool) -> Result<Outcome, CallError> {
        for relay in &mut self.relays {
            relay.fetch()?;
        }
        self.vouch()?;
        let args = std::mem::take(&mut self.args);
        let place = self.routed_call.as_ref().and_then(|it| it.place());
        let known = match place {
            Some(_) => Arc::clone(&self.known),
            None => self.client.interface(&self.known.name)?,
        };
        let place = place.map(|place| &**place);
        let mut call = self.client.start(&known, args, self.time, place, &|| false)?;
        let mut cancelled = false;
        let outcome = loop {
            match call.wait_for(LOOK, &|| false) {
                Ok(Some(outcome)) => break Ok(outcome),
                Ok(None) => {}
                Err(error) => break Err(error),
            }
            if self.is_to_leave() {
                *is_left = true;
                // It ends at once, and nothing more is written to its arrays.
                call.ticket.link.give_up(call.ticket.stream);
            } else if !cancelled && self.cancel.load(Ordering::Relaxed) {
                cancelled = true;
                call.cancel()?;
            }
        };
        drop(call);
        if matches!(outcome, Ok(_) | Err(CallError::Status { .. })) {
            self.deliveries.iter_mut().for_each(Delivery::put);
        }
        outcome
    }

    /// Whether the metaserver has given up the attempt.
    fn is_to_leave(&mut self) -> bool {
        let Some(routed_call) = &mut self.routed_call else { return false };
        routed_call.look_at_metaserver();
        matches!(routed_call.turn(), Some(RoutedStep::Leave))
    }
}
