//! One attempt to run a call, on a thread of its own.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kumi_broker::{CallId, ServerId};
use kumi_idl::{Argument, ArgumentForm, Order};
use kumi_rpc::{HeldArrayName, HeldArrayPart, Placement};

use super::place::buffer;
use crate::client::{Arg, CallError, Client, KnownRoutine, Outcome};
use crate::lent::{LentBytes, LentBytesMut};

/// How often it is looked whether a call is to be cancelled.
const LOOK: Duration = Duration::from_millis(50);
/// How long a server is asked whether it holds an array.
const ASK: Duration = Duration::from_secs(5);

/// What is fetched from a server: whose, which, first byte there, first byte here, bytes.
pub type Fetch = (Client, HeldArrayName, u64, u64, u64);

/// An argument that goes through the client, because servers do not reach each other.
pub struct Relay {
    argument: Argument,
    fetches: Vec<Fetch>,
    /// What of it is the client's: the memory, and pieces of it.
    pub gaps: Option<(LentBytes, Vec<(u64, u64)>)>,
    _memory: Box<[u8]>,
    lent: LentBytesMut,
}

impl Relay {
    pub fn new(argument: Argument, fetches: Vec<Fetch>) -> Relay {
        // Checked against the server's limits when the call is sent.
        let (memory, lent) = buffer(argument.bytes as usize);
        Relay { argument, fetches, gaps: None, _memory: memory, lent }
    }

    /// The array from which it is sent, once it is there.
    pub fn memory(&self) -> LentBytes {
        self.lent.as_lent()
    }

    fn fetch(&mut self) -> Result<(), CallError> {
        let (mut packed, mut lent) = buffer(self.argument.sent as usize);
        if let Some((from, pieces)) = &self.gaps {
            for (offset, length) in pieces {
                let piece = from.part(*offset as usize, *length as usize);
                lent.write(*offset as usize, piece.bytes());
            }
        }
        for (client, name, from, offset, length) in &self.fetches {
            let to = lent.part(*offset as usize, *length as usize);
            client.fetch_bytes(*name, *from, to, None).map_err(|error| match error {
                // The server that is called is still there.
                error @ CallError::Lost(_) => not_from(client.server(), error),
                error => error,
            })?;
        }
        let order = match self.argument.form {
            ArgumentForm::Array(_, order) => order,
            _ => Order::Row,
        };
        let scattered = self.argument.scatter(lent.bytes(), self.lent.bytes(), order);
        packed.fill(0);
        scattered.map_err(|error| CallError::Server(error.to_string()))
    }
}

/// A result that is put to its place when all of it has come.
pub struct Delivery {
    _memory: Box<[u8]>,
    from: LentBytesMut,
    to: LentBytesMut,
    /// What of it is the result.
    range: Range<usize>,
}

impl Delivery {
    /// For a part of an array.
    pub fn new(to: LentBytesMut, range: Range<usize>) -> Delivery {
        let (memory, from) = buffer(to.length());
        Delivery { _memory: memory, from, to, range }
    }

    /// Where the result comes to.
    pub fn memory(&self) -> LentBytesMut {
        self.from.part(0, self.from.length())
    }

    fn put(&mut self) {
        let from = self.from.part(self.range.start, self.range.len()).as_lent();
        self.to.write(self.range.start, from.bytes());
    }
}

/// What an error means that is not of the server that runs the call, but of one that holds what it reads.
fn not_from(address: &str, error: CallError) -> CallError {
    match error {
        error @ CallError::NotHeld { .. } => error,
        error => CallError::NoSource(format!(
            "an array could not be had from the server at {address}: {error}"
        )),
    }
}

/// Whether an attempt is to end before its time.
#[derive(Debug, Default)]
pub struct StopFlags {
    /// Its server is asked to end it, and waited for.
    pub cancel: AtomicBool,
    /// It is left, whatever its server says.
    pub leave: AtomicBool,
}

/// An attempt to run a call.
pub struct Attempt {
    pub call: CallId,
    pub number: u32,
    pub client: Client,
    pub known: Arc<KnownRoutine>,
    /// What the server is shown, if a metaserver has named it.
    pub place: Option<Arc<Placement>>,
    pub args: Vec<Arg<'static>>,
    pub relays: Vec<Relay>,
    pub deliveries: Vec<Delivery>,
    /// Who holds what it reads.
    pub holders: Vec<(Client, ServerId, HeldArrayName)>,
    /// Who gives vouchers for what it reads, and where that is.
    pub vouchers: Vec<(Client, String, HeldArrayName)>,
    /// How long results stay at servers.
    pub held: Duration,
    pub stop: Arc<StopFlags>,
    pub time: Option<Duration>,
}

/// Whether a server has what a call wanted to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceStatus {
    /// It has.
    There,
    /// It has not.
    Missing,
    /// It does not answer.
    Dead,
}

/// The end of an attempt.
pub struct AttemptEnd {
    pub call: CallId,
    pub number: u32,
    pub result: Result<Outcome, CallError>,
    /// If the call could not be run because of what it reads: what became of that.
    pub found: Vec<(ServerId, HeldArrayName, SourceStatus)>,
}

impl Attempt {
    pub fn run(mut self) -> AttemptEnd {
        let result = self.call();
        let mut found = Vec::new();
        if matches!(result, Err(CallError::NotHeld { .. } | CallError::NoSource(_))) {
            for (client, server, name) in &self.holders {
                let (_memory, nothing) = buffer(0);
                let found_it = match client.fetch_bytes(*name, 0, nothing, Some(ASK)) {
                    Ok(()) => SourceStatus::There,
                    Err(CallError::Lost(_) | CallError::TimedOut(_)) => SourceStatus::Dead,
                    Err(_) => SourceStatus::Missing,
                };
                found.push((*server, *name, found_it));
            }
        }
        if let Err(CallError::Busy(_)) = result {
            std::thread::sleep(LOOK * self.number.min(20));
        }
        AttemptEnd { call: self.call, number: self.number, result, found }
    }

    /// Gets vouchers for what the server is to fetch, so that it needs no token.
    fn vouch(&mut self) -> Result<(), CallError> {
        let lifetime = self.time.map_or(self.held, |time| self.held.min(time.saturating_add(ASK)));
        for (holder, address, name) in &self.vouchers {
            let voucher = holder.vouch(*name, lifetime, Some(ASK));
            let voucher = voucher.map_err(|error| not_from(address, error))?;
            let arrays = self.args.iter_mut().filter_map(|arg| match arg {
                Arg::AtServers(array) => Some(array),
                _ => None,
            });
            let is_it = |part: &&mut HeldArrayPart| part.name == *name && part.server == *address;
            for part in arrays.flat_map(|array| &mut array.parts).filter(is_it) {
                part.voucher.clone_from(&voucher);
            }
        }
        Ok(())
    }

    fn call(&mut self) -> Result<Outcome, CallError> {
        for relay in &mut self.relays {
            relay.fetch()?;
        }
        self.vouch()?;
        let args = std::mem::take(&mut self.args);
        let mut call = match &self.place {
            Some(place) => self.client.begin_placed(&self.known, args, self.time, place)?,
            None => self.client.call_async(&self.known.name, args, self.time)?,
        };
        let mut cancelled = false;
        let outcome = loop {
            match call.wait_for(LOOK, &|| false) {
                Ok(Some(outcome)) => break Ok(outcome),
                Ok(None) => {}
                Err(error) => break Err(error),
            }
            if self.stop.leave.load(Ordering::Relaxed) {
                call.give_up();
            } else if !cancelled && self.stop.cancel.load(Ordering::Relaxed) {
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
}
