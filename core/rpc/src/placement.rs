//! Bodies of the frames that clients, servers and metaservers send each other.

use crate::MOST_NAME;
use crate::codec::{Cursor, DecodeError, shortened};
use crate::message;
use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;

/// Longest address, name of a server or site, in bytes.
const MOST_TEXT: usize = 512;
/// Most servers at which inputs of a call may be said to lie.
const MOST_LYING: usize = 32;

/// An attempt of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket {
    /// The call.
    pub call: u64,
    /// The attempt; the first is 1.
    pub attempt: u32,
}

/// A call that is to be placed.
#[derive(Debug, Clone, PartialEq)]
pub struct PlacementRequest {
    /// Random bytes of the client, and the number of the call there.
    pub key: (u64, u64),
    /// Hash of the description that the client has.
    pub hash: u64,
    /// Bytes of the arguments.
    pub bytes_out: u64,
    /// Bytes of the results.
    pub bytes_back: u64,
    /// Operations; NaN: not said.
    pub operations: f64,
    /// Milliseconds that it may take; 0: no limit.
    pub time_ms: u32,
    /// Attempts that came to nothing before a connection was lost.
    pub attempts: u32,
    /// 0 to 9, among the calls of the user.
    pub priority: u8,
    /// Two runs have the effect of one.
    pub idempotent: bool,
    /// The routine.
    pub routine: String,
    /// Arguments that lie at servers already, so that they need not come from the client. Those behind the first 32 are
    /// not told.
    pub input_locations: Vec<InputLocation>,
}

/// A part of a call's arguments that a server has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputLocation {
    /// The server's name.
    pub server: String,
    /// Its address, as it was told by a [`Placement`].
    pub address: String,
    /// How many bytes of [`PlacementRequest::bytes_out`].
    pub bytes: u64,
}

/// Where a call is to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// The attempt.
    pub ticket: Ticket,
    /// The server's address.
    pub address: String,
    /// Its name.
    pub server: String,
    /// What the client shows the server: who it is and that this attempt is to run there; empty: nothing. The server and
    /// the metaserver alone know what is in it.
    pub pass: String,
}

/// What is with an attempt, by its server's word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptState {
    /// Its arguments have come; it waits for a slot, or runs.
    Accepted,
    /// It is not here, or not any more, and will not be taken; what became of it is not known.
    Unknown,
    /// It has run, for so many nanoseconds.
    Completed(u64),
    /// Its routine crashed, or ended with an exception.
    Crashed,
}

impl AttemptState {
    /// Appends its bytes.
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

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum AttemptOutcome {
    /// It has run.
    Done = 0,
    /// It has certainly not begun.
    NotBegun = 1,
    /// It may have run in part.
    Broken = 2,
    /// It failed, and would elsewhere.
    Failed = 3,
}

/// Bytes on their way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Transfer {
    /// How many.
    pub bytes: u64,
    /// Nanoseconds that they took; 0: not known.
    pub ns: u64,
}

/// How an attempt went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttemptReport {
    /// The attempt.
    pub ticket: Ticket,
    /// How it ended.
    pub ended: AttemptOutcome,
    /// Its arguments.
    pub out: Transfer,
    /// Its results.
    pub back: Transfer,
    /// Nanoseconds that the routine ran.
    pub ran_ns: u64,
    /// Nanoseconds that it waited at the server.
    pub waited_ns: u64,
}

/// Who a server is.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerRegistration {
    /// Its name.
    pub name: String,
    /// Where clients reach it.
    pub address: String,
    /// Its site; empty: the network of its address.
    pub site: String,
    /// Its version.
    pub version: String,
    /// Calls that it runs at the same time.
    pub slots: u32,
    /// Its processors.
    pub processors: u32,
    /// Operations per second of one of them; 0: not known.
    pub speed: f64,
    /// How many routines follow.
    pub offers: u16,
    /// With what the metaserver signs what clients show the server.
    pub key: Option<SigningKey>,
}

/// A key, which is printed nowhere.
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
    /// Processors that others than the metaserver's calls keep busy.
    pub load: f64,
    /// Calls that run.
    pub running: u32,
    /// Calls that wait.
    pub waiting: u32,
    /// Of both, those that came without a ticket.
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
    // They are shown to people, and stand in logs.
    let text = cursor.text(length)?;
    if text.chars().any(char::is_control) { Err(DecodeError::Name) } else { Ok(text.to_owned()) }
}

impl Ticket {
    /// Bytes of one.
    pub const LENGTH: usize = 12;

    /// Appends its bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.call.to_le_bytes());
        out.extend_from_slice(&self.attempt.to_le_bytes());
    }

    fn take(cursor: &mut Cursor<'_>) -> Result<Ticket, DecodeError> {
        Ok(Ticket { call: cursor.u64()?, attempt: cursor.u32()? })
    }

    /// Reads one, which is all of `bytes`.
    ///
    /// # Errors
    /// They are malformed.
    pub fn decode(bytes: &[u8]) -> Result<Ticket, DecodeError> {
        let mut cursor = Cursor::new(bytes);
        let ticket = Ticket::take(&mut cursor)?;
        cursor.end()?;
        Ok(ticket)
    }

    /// Reads as many as there are.
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
    /// Appends its bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        for word in [self.key.0, self.key.1, self.hash, self.bytes_out, self.bytes_back] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        out.extend_from_slice(&self.operations.to_le_bytes());
        out.extend_from_slice(&self.time_ms.to_le_bytes());
        out.extend_from_slice(&self.attempts.to_le_bytes());
        out.extend_from_slice(&[self.priority, u8::from(self.idempotent)]);
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

    /// Reads one, which is all of `bytes`.
    ///
    /// # Errors
    /// They are malformed.
    pub fn decode(bytes: &[u8]) -> Result<PlacementRequest, DecodeError> {
        let mut cursor = Cursor::new(bytes);
        let key = (cursor.u64()?, cursor.u64()?);
        let (hash, bytes_out, bytes_back) = (cursor.u64()?, cursor.u64()?, cursor.u64()?);
        let (operations, time_ms, attempts) = (cursor.f64()?, cursor.u32()?, cursor.u32()?);
        let (priority, flag) = (cursor.u8()?, cursor.u8()?);
        if flag > 1 {
            return Err(DecodeError::Tag);
        }
        let length = cursor.u16()?;
        let routine = message::name(cursor.take(usize::from(length))?)?.to_owned();
        let input_locations = InputLocation::take_all(&mut cursor)?;
        cursor.end()?;
        let idempotent = flag == 1;
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
            routine,
            input_locations,
        })
    }
}

impl InputLocation {
    /// Reads as many as are said to be there; none, if nothing is said.
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
    /// Appends its bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.ticket.encode(out);
        put_text(out, &self.address);
        put_text(out, &self.server);
        if !self.pass.is_empty() {
            put_text(out, &self.pass);
        }
    }

    /// Reads one, which is all of `bytes`.
    ///
    /// # Errors
    /// They are malformed.
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
    /// Appends its bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.ticket.encode(out);
        out.push(self.ended as u8);
        let (to, from) = (self.out, self.back);
        for word in [to.bytes, to.ns, from.bytes, from.ns, self.ran_ns, self.waited_ns] {
            out.extend_from_slice(&word.to_le_bytes());
        }
    }

    /// Reads one, which is all of `bytes`.
    ///
    /// # Errors
    /// They are malformed.
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
    /// Appends its bytes.
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

    /// Reads one, which is all of `bytes`.
    ///
    /// # Errors
    /// They are malformed.
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
    /// Appends its bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.load.to_le_bytes());
        for count in [self.running, self.waiting, self.elsewhere] {
            out.extend_from_slice(&count.to_le_bytes());
        }
    }

    /// Reads one, which is all of `bytes`.
    ///
    /// # Errors
    /// They are malformed.
    pub fn decode(bytes: &[u8]) -> Result<LoadReport, DecodeError> {
        let mut cursor = Cursor::new(bytes);
        let load = cursor.f64()?;
        let (running, waiting, elsewhere) = (cursor.u32()?, cursor.u32()?, cursor.u32()?);
        cursor.end()?;
        Ok(LoadReport { load, running, waiting, elsewhere })
    }
}

/// A ticket, and what is with it.
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

/// A ticket, and what its client shows with it.
pub(crate) fn shown(bytes: &[u8]) -> Result<(Ticket, String), DecodeError> {
    let mut cursor = Cursor::new(bytes);
    let ticket = Ticket::take(&mut cursor)?;
    let pass = core::str::from_utf8(cursor.rest()).map_err(|_| DecodeError::Text)?;
    if pass.len() > MOST_TEXT { Err(DecodeError::Long) } else { Ok((ticket, pass.to_owned())) }
}

/// A hash and a description.
pub(crate) fn offer(bytes: &[u8]) -> Result<(u64, String), DecodeError> {
    let mut cursor = Cursor::new(bytes);
    let hash = cursor.u64()?;
    let json = core::str::from_utf8(cursor.rest()).map_err(|_| DecodeError::Text)?;
    Ok((hash, json.to_owned()))
}
