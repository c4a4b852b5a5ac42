//! Frame bodies of placement: what metaservers exchange with clients and servers.

use crate::MOST_NAME;
use crate::codec::{Cursor, DecodeError, shortened};
use crate::message;
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

impl AttemptState {
    /// Appends the encoded bytes.
    pub(crate) fn encode(self, out: &mut Vec<u8>) {
        match self {
            AttemptState::Accepted => out.push(1),
            AttemptState::Unknown => out.push(2),
            AttemptState::Completed(ns) => {
                out.push(3);
                out.extend_from_slice(&ns.to_le_bytes());
            }
            AttemptState::Crashed => out.push(4),
        }
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

fn put_text(out: &mut Vec<u8>, text: &str) {
    let text = shortened(text, MOST_TEXT);
    out.extend_from_slice(&u16::try_from(text.len()).unwrap_or(u16::MAX).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

fn take_text(cursor: &mut Cursor<'_>) -> Result<String, DecodeError> {
    let length = usize::from(cursor.u16()?);
    if length > MOST_TEXT {
        return Err(DecodeError::Name);
    }
    // These texts appear in output and logs.
    let text = cursor.text(length)?;
    if text.chars().any(char::is_control) { Err(DecodeError::Name) } else { Ok(text.to_owned()) }
}

impl Ticket {
    /// Encoded length in bytes.
    pub const LENGTH: usize = 12;

    /// Appends the encoded bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.call.to_le_bytes());
        out.extend_from_slice(&self.attempt.to_le_bytes());
    }

    fn take(cursor: &mut Cursor<'_>) -> Result<Ticket, DecodeError> {
        Ok(Ticket { call: cursor.u64()?, attempt: cursor.u32()? })
    }

    /// Decodes `bytes`, all of them.
    ///
    /// # Errors
    /// The bytes are malformed.
    pub fn decode(bytes: &[u8]) -> Result<Ticket, DecodeError> {
        let mut cursor = Cursor::new(bytes);
        let ticket = Ticket::take(&mut cursor)?;
        cursor.end()?;
        Ok(ticket)
    }

    /// Decodes all tickets in `bytes`.
    pub(crate) fn decode_all(bytes: &[u8]) -> Result<Vec<Ticket>, DecodeError> {
        let mut cursor = Cursor::new(bytes);
        let mut all = Vec::with_capacity(bytes.len() / Ticket::LENGTH);
        while !cursor.is_empty() {
            all.push(Ticket::take(&mut cursor)?);
        }
        Ok(all)
    }
}

impl PlacementRequest {
    /// Appends the encoded bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        for word in [self.key.0, self.key.1, self.hash, self.bytes_out, self.bytes_back] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        out.extend_from_slice(&self.operations.to_le_bytes());
        out.extend_from_slice(&self.time_ms.to_le_bytes());
        out.extend_from_slice(&self.attempts.to_le_bytes());
        let flags = (u8::from(self.idempotent) * IDEMPOTENT) | (u8::from(self.bound) * BOUND);
        out.extend_from_slice(&[self.priority, flags]);
        let name = shortened(&self.routine, MOST_NAME);
        out.extend_from_slice(&u16::try_from(name.len()).unwrap_or(u16::MAX).to_le_bytes());
        out.extend_from_slice(name.as_bytes());
        let told = &self.input_locations[..self.input_locations.len().min(MOST_LYING)];
        if !told.is_empty() {
            out.push(u8::try_from(told.len()).unwrap_or(u8::MAX));
        }
        for lying in told {
            out.extend_from_slice(&lying.bytes.to_le_bytes());
            put_text(out, &lying.server);
            put_text(out, &lying.address);
        }
    }

    /// Decodes `bytes`, all of them.
    ///
    /// # Errors
    /// The bytes are malformed.
    pub fn decode(bytes: &[u8]) -> Result<PlacementRequest, DecodeError> {
        let mut cursor = Cursor::new(bytes);
        let key = (cursor.u64()?, cursor.u64()?);
        let (hash, bytes_out, bytes_back) = (cursor.u64()?, cursor.u64()?, cursor.u64()?);
        let (operations, time_ms, attempts) = (cursor.f64()?, cursor.u32()?, cursor.u32()?);
        let (priority, flags) = (cursor.u8()?, cursor.u8()?);
        if flags & !(IDEMPOTENT | BOUND) != 0 {
            return Err(DecodeError::Tag);
        }
        let bound = flags & BOUND != 0;
        let length = cursor.u16()?;
        let routine = message::name(cursor.take(usize::from(length))?)?.to_owned();
        let input_locations = InputLocation::take_all(&mut cursor)?;
        cursor.end()?;
        if bound && input_locations.is_empty() {
            return Err(DecodeError::Tag);
        }
        let idempotent = flags & IDEMPOTENT != 0;
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
        let count = usize::from(cursor.u8()?);
        if count == 0 || count > MOST_LYING {
            return Err(DecodeError::Long);
        }
        let mut all = Vec::new();
        for _ in 0..count {
            let bytes = cursor.u64()?;
            let (server, address) = (take_text(cursor)?, take_text(cursor)?);
            all.push(InputLocation { server, address, bytes });
        }
        Ok(all)
    }
}

impl Placement {
    /// Appends the encoded bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.ticket.encode(out);
        put_text(out, &self.address);
        put_text(out, &self.server);
        if !self.pass.is_empty() {
            put_text(out, &self.pass);
        }
    }

    /// Decodes `bytes`, all of them.
    ///
    /// # Errors
    /// The bytes are malformed.
    pub fn decode(bytes: &[u8]) -> Result<Placement, DecodeError> {
        let mut cursor = Cursor::new(bytes);
        let ticket = Ticket::take(&mut cursor)?;
        let (address, server) = (take_text(&mut cursor)?, take_text(&mut cursor)?);
        let pass = if cursor.is_empty() { String::new() } else { take_text(&mut cursor)? };
        cursor.end()?;
        Ok(Placement { ticket, address, server, pass })
    }
}

impl AttemptReport {
    /// Appends the encoded bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.ticket.encode(out);
        out.push(self.ended as u8);
        let (to, from) = (self.out, self.back);
        for word in [to.bytes, to.ns, from.bytes, from.ns, self.ran_ns, self.waited_ns] {
            out.extend_from_slice(&word.to_le_bytes());
        }
    }

    /// Decodes `bytes`, all of them.
    ///
    /// # Errors
    /// The bytes are malformed.
    pub fn decode(bytes: &[u8]) -> Result<AttemptReport, DecodeError> {
        let mut cursor = Cursor::new(bytes);
        let ticket = Ticket::take(&mut cursor)?;
        let ended = match cursor.u8()? {
            0 => AttemptOutcome::Done,
            1 => AttemptOutcome::NotBegun,
            2 => AttemptOutcome::Broken,
            3 => AttemptOutcome::Failed,
            _ => return Err(DecodeError::Tag),
        };
        let out = Transfer { bytes: cursor.u64()?, ns: cursor.u64()? };
        let back = Transfer { bytes: cursor.u64()?, ns: cursor.u64()? };
        let (ran_ns, waited_ns) = (cursor.u64()?, cursor.u64()?);
        cursor.end()?;
        Ok(AttemptReport { ticket, ended, out, back, ran_ns, waited_ns })
    }
}

impl ServerRegistration {
    /// Appends the encoded bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        for text in [&self.name, &self.address, &self.site, &self.version] {
            put_text(out, text);
        }
        out.extend_from_slice(&self.slots.to_le_bytes());
        out.extend_from_slice(&self.processors.to_le_bytes());
        out.extend_from_slice(&self.speed.to_le_bytes());
        out.extend_from_slice(&self.offers.to_le_bytes());
        out.extend_from_slice(self.key.as_ref().map_or(&[], |key| &key.0));
    }

    /// Decodes `bytes`, all of them.
    ///
    /// # Errors
    /// The bytes are malformed.
    pub fn decode(bytes: &[u8]) -> Result<ServerRegistration, DecodeError> {
        let mut cursor = Cursor::new(bytes);
        let (name, address) = (take_text(&mut cursor)?, take_text(&mut cursor)?);
        let (site, version) = (take_text(&mut cursor)?, take_text(&mut cursor)?);
        let (slots, processors, speed) = (cursor.u32()?, cursor.u32()?, cursor.f64()?);
        let offers = cursor.u16()?;
        let key = if cursor.is_empty() { None } else { Some(SigningKey(cursor.array()?)) };
        cursor.end()?;
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

impl LoadReport {
    /// Appends the encoded bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.load.to_le_bytes());
        for count in [self.running, self.waiting, self.elsewhere] {
            out.extend_from_slice(&count.to_le_bytes());
        }
    }

    /// Decodes `bytes`, all of them.
    ///
    /// # Errors
    /// The bytes are malformed.
    pub fn decode(bytes: &[u8]) -> Result<LoadReport, DecodeError> {
        let mut cursor = Cursor::new(bytes);
        let load = cursor.f64()?;
        let (running, waiting, elsewhere) = (cursor.u32()?, cursor.u32()?, cursor.u32()?);
        cursor.end()?;
        Ok(LoadReport { load, running, waiting, elsewhere })
    }
}

/// Decodes an address.
pub(crate) fn address(bytes: &[u8]) -> Result<&str, DecodeError> {
    if bytes.is_empty() || bytes.len() > MOST_TEXT {
        return Err(DecodeError::Name);
    }
    let text = core::str::from_utf8(bytes).map_err(|_| DecodeError::Text)?;
    if text.chars().any(char::is_control) { Err(DecodeError::Name) } else { Ok(text) }
}

/// Appends an address and whether a server is registered there.
pub(crate) fn put_address_state(out: &mut Vec<u8>, address: &str, is_known: bool) {
    out.push(u8::from(is_known));
    out.extend_from_slice(address.as_bytes());
}

/// Decodes what [`put_address_state`] has written.
pub(crate) fn address_state(bytes: &[u8]) -> Result<(&str, bool), DecodeError> {
    let (state, text) = bytes.split_first().ok_or(DecodeError::Short)?;
    let is_known = match state {
        0 => false,
        1 => true,
        _ => return Err(DecodeError::Tag),
    };
    Ok((address(text)?, is_known))
}

/// Decodes a ticket and its state.
pub(crate) fn told(bytes: &[u8]) -> Result<(Ticket, AttemptState), DecodeError> {
    let mut cursor = Cursor::new(bytes);
    let ticket = Ticket::take(&mut cursor)?;
    let fate = match cursor.u8()? {
        1 => AttemptState::Accepted,
        2 => AttemptState::Unknown,
        3 => AttemptState::Completed(cursor.u64()?),
        4 => AttemptState::Crashed,
        _ => return Err(DecodeError::Tag),
    };
    cursor.end()?;
    Ok((ticket, fate))
}

/// Appends a ticket and why its attempt failed. The text is cut to what a metaserver takes, and has no control characters.
pub(crate) fn put_reason(ticket: Ticket, text: &str, out: &mut Vec<u8>) {
    ticket.encode(out);
    let mut left = MOST_TEXT;
    for letter in text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }) {
        let Some(rest) = left.checked_sub(letter.len_utf8()) else { break };
        left = rest;
        out.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
    }
}

/// Decodes a ticket and why its attempt failed.
pub(crate) fn reason(bytes: &[u8]) -> Result<(Ticket, &str), DecodeError> {
    let mut cursor = Cursor::new(bytes);
    let ticket = Ticket::take(&mut cursor)?;
    // As an address, it is a text that is shown.
    Ok((ticket, address(cursor.rest())?))
}

/// Decodes a ticket and its pass.
pub(crate) fn shown(bytes: &[u8]) -> Result<(Ticket, String), DecodeError> {
    let mut cursor = Cursor::new(bytes);
    let ticket = Ticket::take(&mut cursor)?;
    let pass = core::str::from_utf8(cursor.rest()).map_err(|_| DecodeError::Text)?;
    if pass.len() > MOST_TEXT { Err(DecodeError::Long) } else { Ok((ticket, pass.to_owned())) }
}

/// Decodes the hash and the description of an offered routine.
pub(crate) fn offer(bytes: &[u8]) -> Result<(u64, String), DecodeError> {
    let mut cursor = Cursor::new(bytes);
    let hash = cursor.u64()?;
    let json = core::str::from_utf8(cursor.rest()).map_err(|_| DecodeError::Text)?;
    Ok((hash, json.to_owned()))
}
