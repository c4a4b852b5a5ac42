//! Frame bodies of placement: what metaservers exchange with clients and servers.

use crate::MOST_NAME;
use crate::codec::{self, Cursor, Decode, DecodeError, Encode, bodies, records, shortened};
use crate::message::{self, CountedName};
use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;

/// Longest address, name of a server or site, in bytes.
pub(crate) const MOST_TEXT: usize = 512;
/// Flags of a placement request.
const IDEMPOTENT: u8 = 1;
const BOUND: u8 = 2;
/// Most input locations in a placement request.
const MOST_LYING: usize = 32;

/// The identity of one attempt of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket {
    /// The call.
    pub call: u64,
    /// The attempt; the first is 1.
    pub attempt: u32,
}

/// A request to place a call.
#[derive(Debug, Clone, PartialEq)]
pub struct PlacementRequest {
    /// Random number of the client, and the client's number of the call.
    pub key: (u64, u64),
    /// Hash of the client's description.
    pub hash: u64,
    /// Bytes of the arguments.
    pub bytes_out: u64,
    /// Bytes of the results.
    pub bytes_back: u64,
    /// Number of operations; NaN: not known.
    pub operations: f64,
    /// Time limit in milliseconds; 0: none.
    pub time_ms: u32,
    /// Attempts before a connection to a metaserver was lost.
    pub attempts: u32,
    /// Priority among the user's calls, 0 to 9.
    pub priority: u8,
    /// Two runs have the effect of one.
    pub idempotent: bool,
    /// The call runs at the first of the input locations or nowhere. Only for metaservers whose hello mentions it.
    pub bound: bool,
    /// The routine.
    pub routine: String,
    /// Servers that hold inputs already. Only the first 32 are sent.
    pub input_locations: Vec<InputLocation>,
}

/// A server that holds inputs of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputLocation {
    /// The server's name.
    pub server: String,
    /// Its address in a [`Placement`].
    pub address: String,
    /// The number of bytes of [`PlacementRequest::bytes_out`] that it holds.
    pub bytes: u64,
}

/// The server that a metaserver has chosen for an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// The attempt.
    pub ticket: Ticket,
    /// The server's address.
    pub address: String,
    /// Its name.
    pub server: String,
    /// The pass for the server: it names the user and the attempt; empty: none. Only server and metaserver know its contents.
    pub pass: String,
}

/// The state of an attempt at its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptState {
    /// The call has arrived; it waits or runs.
    Accepted,
    /// The server does not know the attempt (any more) and will refuse it. Its outcome is not known.
    Unknown,
    /// The routine has run, for this many nanoseconds.
    Completed(u64),
    /// The routine crashed or raised an exception.
    Crashed,
}

impl Encode for AttemptState {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            AttemptState::Accepted => out.push(1),
            AttemptState::Unknown => out.push(2),
            AttemptState::Completed(ns) => (3_u8, *ns).put(out),
            AttemptState::Crashed => out.push(4),
        }
    }
}

impl Decode for AttemptState {
    fn take(cursor: &mut Cursor<'_>) -> Result<AttemptState, DecodeError> {
        Ok(match cursor.get()? {
            1_u8 => AttemptState::Accepted,
            2 => AttemptState::Unknown,
            3 => AttemptState::Completed(cursor.get()?),
            4 => AttemptState::Crashed,
            _ => return Err(DecodeError::Tag),
        })
    }
}

/// The outcome of an attempt, as its client saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum AttemptOutcome {
    /// The call has run.
    Done = 0,
    /// The routine has certainly not begun.
    NotBegun = 1,
    /// The routine may have run in part.
    Broken = 2,
    /// The call failed, and would also fail elsewhere.
    Failed = 3,
}

impl Encode for AttemptOutcome {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(*self as u8);
    }
}

impl Decode for AttemptOutcome {
    fn take(cursor: &mut Cursor<'_>) -> Result<AttemptOutcome, DecodeError> {
        Ok(match cursor.get()? {
            0_u8 => AttemptOutcome::Done,
            1 => AttemptOutcome::NotBegun,
            2 => AttemptOutcome::Broken,
            3 => AttemptOutcome::Failed,
            _ => return Err(DecodeError::Tag),
        })
    }
}

/// A transfer of arguments or results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Transfer {
    /// Number of bytes.
    pub bytes: u64,
    /// Duration in nanoseconds; 0: not known.
    pub ns: u64,
}

/// A client's report on an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttemptReport {
    /// The attempt.
    pub ticket: Ticket,
    /// The outcome.
    pub ended: AttemptOutcome,
    /// The transfer of arguments.
    pub out: Transfer,
    /// The transfer of results.
    pub back: Transfer,
    /// Nanoseconds that the routine ran.
    pub ran_ns: u64,
    /// Nanoseconds that the call waited at the server.
    pub waited_ns: u64,
}

/// The registration of a server.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerRegistration {
    /// Its name.
    pub name: String,
    /// Its address for clients.
    pub address: String,
    /// Its site; empty: the network of its address.
    pub site: String,
    /// Its software version.
    pub version: String,
    /// Most calls that run at a time.
    pub slots: u32,
    /// Number of processors.
    pub processors: u32,
    /// Operations per second of one processor; 0: not known.
    pub speed: f64,
    /// Number of OFFER frames that follow.
    pub offers: u16,
    /// The key with which the metaserver signs passes for this server.
    pub key: Option<SigningKey>,
}

/// A key for passes. Its debug output hides it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SigningKey(pub [u8; 32]);

impl core::fmt::Debug for SigningKey {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.write_str("…")
    }
}

/// A server's load.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LoadReport {
    /// Processors that are busy with work other than the metaserver's calls.
    pub load: f64,
    /// Running calls.
    pub running: u32,
    /// Waiting calls.
    pub waiting: u32,
    /// Running and waiting calls without a ticket.
    pub elsewhere: u32,
}

/// An address, or the name of a server or site. These texts appear in output and logs.
impl Encode for String {
    fn put(&self, out: &mut Vec<u8>) {
        codec::put_text(shortened(self, MOST_TEXT), out);
    }
}

impl Decode for String {
    fn take(cursor: &mut Cursor<'_>) -> Result<String, DecodeError> {
        let bytes = cursor.counted()?;
        if bytes.len() > MOST_TEXT {
            return Err(DecodeError::Name);
        }
        let text = codec::text(bytes)?;
        if text.chars().any(char::is_control) {
            Err(DecodeError::Name)
        } else {
            Ok(text.to_owned())
        }
    }
}

records! {
    Ticket { call, attempt }
    InputLocation { bytes, server, address }
    Transfer { bytes, ns }
    AttemptReport { ticket, ended, out, back, ran_ns, waited_ns }
    LoadReport { load, running, waiting, elsewhere }
}
bodies! { Ticket PlacementRequest Placement AttemptReport ServerRegistration LoadReport }

impl Ticket {
    /// Encoded length in bytes.
    pub const LENGTH: usize = 12;
}

impl Encode for PlacementRequest {
    fn put(&self, out: &mut Vec<u8>) {
        (self.key, self.hash, self.bytes_out, self.bytes_back).put(out);
        (self.operations, self.time_ms, self.attempts, self.priority).put(out);
        out.push((u8::from(self.idempotent) * IDEMPOTENT) | (u8::from(self.bound) * BOUND));
        codec::put_text(shortened(&self.routine, MOST_NAME), out);
        let told = &self.input_locations[..self.input_locations.len().min(MOST_LYING)];
        if !told.is_empty() {
            (u8::try_from(told.len()).unwrap_or(u8::MAX), told).put(out);
        }
    }
}

impl Decode for PlacementRequest {
    fn take(cursor: &mut Cursor<'_>) -> Result<PlacementRequest, DecodeError> {
        let (key, hash, bytes_out, bytes_back) = cursor.get()?;
        let (operations, time_ms, attempts, priority) = cursor.get()?;
        let flags: u8 = cursor.get()?;
        if flags & !(IDEMPOTENT | BOUND) != 0 {
            return Err(DecodeError::Tag);
        }
        let (idempotent, bound) = (flags & IDEMPOTENT != 0, flags & BOUND != 0);
        let CountedName(routine) = cursor.get()?;
        let input_locations = InputLocation::take_all(cursor)?;
        if bound && input_locations.is_empty() {
            return Err(DecodeError::Tag);
        }
        Ok(PlacementRequest {
            key,
            hash,
            bytes_out,
            bytes_back,
            operations,
            time_ms,
            attempts,
            priority,
            idempotent,
            bound,
            routine,
            input_locations,
        })
    }
}

impl InputLocation {
    /// Decodes the optional list of input locations.
    fn take_all(cursor: &mut Cursor<'_>) -> Result<Vec<InputLocation>, DecodeError> {
        if cursor.is_empty() {
            return Ok(Vec::new());
        }
        let count: u8 = cursor.get()?;
        if count == 0 || usize::from(count) > MOST_LYING {
            return Err(DecodeError::Long);
        }
        (0..count).map(|_| cursor.get()).collect()
    }
}

impl Encode for Placement {
    fn put(&self, out: &mut Vec<u8>) {
        (self.ticket, &self.address, &self.server).put(out);
        if !self.pass.is_empty() {
            self.pass.put(out);
        }
    }
}

impl Decode for Placement {
    fn take(cursor: &mut Cursor<'_>) -> Result<Placement, DecodeError> {
        let (ticket, address, server) = cursor.get()?;
        let pass = if cursor.is_empty() { String::new() } else { cursor.get()? };
        Ok(Placement { ticket, address, server, pass })
    }
}

impl Encode for ServerRegistration {
    fn put(&self, out: &mut Vec<u8>) {
        (&self.name, &self.address, &self.site, &self.version).put(out);
        (self.slots, self.processors, self.speed, self.offers).put(out);
        out.extend_from_slice(self.key.as_ref().map_or(&[], |key| &key.0));
    }
}

impl Decode for ServerRegistration {
    fn take(cursor: &mut Cursor<'_>) -> Result<ServerRegistration, DecodeError> {
        let (name, address, site, version): (String, String, _, _) = cursor.get()?;
        let (slots, processors, speed, offers) = cursor.get()?;
        let key = if cursor.is_empty() { None } else { Some(SigningKey(cursor.get()?)) };
        if name.is_empty() || address.is_empty() {
            return Err(DecodeError::Name);
        }
        Ok(ServerRegistration {
            name,
            address,
            site,
            version,
            slots,
            processors,
            speed,
            offers,
            key,
        })
    }
}

/// Decodes an address and whether a server is registered there.
pub(crate) fn address_state(bytes: &[u8]) -> Result<(&str, bool), DecodeError> {
    let mut cursor = Cursor::new(bytes);
    let is_known = cursor.get()?;
    Ok((message::name(cursor.rest())?, is_known))
}

/// A ticket, and why its attempt failed. The text is cut to what a metaserver takes, and loses its control characters.
pub(crate) struct TicketReason<'a>(pub Ticket, pub &'a str);

impl Encode for TicketReason<'_> {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
        let clean = |letter: char| if letter.is_control() { ' ' } else { letter };
        let text: String = self.1.chars().map(clean).collect();
        shortened(&text, MOST_TEXT).as_bytes().put(out);
    }
}

/// Decodes a ticket and why its attempt failed.
pub(crate) fn reason(bytes: &[u8]) -> Result<(Ticket, &str), DecodeError> {
    let mut cursor = Cursor::new(bytes);
    // As an address, it is a text that is shown.
    Ok((cursor.get()?, message::name(cursor.rest())?))
}

/// Decodes a ticket and its pass.
pub(crate) fn shown(bytes: &[u8]) -> Result<(Ticket, String), DecodeError> {
    let mut cursor = Cursor::new(bytes);
    let (ticket, pass) = (cursor.get()?, codec::text(cursor.rest())?);
    if pass.len() > MOST_TEXT { Err(DecodeError::Long) } else { Ok((ticket, pass.to_owned())) }
}

/// Decodes the hash and the text of a description.
pub(crate) fn description(bytes: &[u8]) -> Result<(u64, String), DecodeError> {
    let mut cursor = Cursor::new(bytes);
    Ok((cursor.get()?, codec::text(cursor.rest())?.to_owned()))
}
