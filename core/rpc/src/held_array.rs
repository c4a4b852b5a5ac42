//! Held arrays: results that stay at servers, as inputs and outputs of calls.

use crate::MOST_NAME;
use crate::codec::{self, Cursor, Decode, DecodeError, Encode, bodies, records, shortened};
use crate::message::Value;
use crate::shared_memory::{SHARED, SharedDirections};
use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;

/// The name of an array that a server holds. It cannot be guessed, and gives access to the array.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HeldArrayName {
    /// Random bytes.
    pub secret: [u8; 16],
    /// Index among the arrays with these bytes.
    pub index: u32,
}

impl core::fmt::Debug for HeldArrayName {
    /// Leaves out the secret, which must not get into logs.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "HeldArrayName(…{})", self.index)
    }
}

/// A part of an input array that a server holds already.
#[derive(Clone, PartialEq, Eq)]
pub struct HeldArrayPart {
    /// First byte in the part of the argument that is sent.
    pub offset: u64,
    /// Bytes, at least one.
    pub length: u64,
    /// The held array.
    pub name: HeldArrayName,
    /// First byte in the held array.
    pub from: u64,
    /// Address of the server that holds it; empty: the called server.
    pub server: String,
    /// The voucher of that server, if it requires one for access by other servers; or empty. Only servers whose hello mentions
    /// vouchers read it.
    pub voucher: String,
}

impl HeldArrayPart {
    /// A held array of so many bytes that is all of an argument. `server`: its address; empty: the called server.
    #[must_use]
    pub fn whole(name: HeldArrayName, length: u64, server: &str) -> HeldArrayPart {
        let server = String::from(server);
        HeldArrayPart { offset: 0, length, name, from: 0, server, voucher: String::new() }
    }
}

impl core::fmt::Debug for HeldArrayPart {
    /// Leaves out the voucher, which must not get into logs.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("HeldArrayPart")
            .field("offset", &self.offset)
            .field("length", &self.length)
            .field("name", &self.name)
            .field("from", &self.from)
            .field("server", &self.server)
            .field("vouched", &!self.voucher.is_empty())
            .finish()
    }
}

/// A result that stays at the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldResult {
    /// The name of the array after the call.
    pub name: HeldArrayName,
    /// Milliseconds for which the server holds it after the call. The server may have a lower limit.
    pub lifetime_ms: u32,
    /// The client receives it too.
    pub sent: bool,
    /// If the client vanishes, the call goes on and the array stays.
    pub survives: bool,
}

/// The held arrays that a call uses or creates, in ascending order of parameters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeldArrays {
    /// Held parts of inputs; the client sends their other bytes.
    pub from: Vec<(u16, Vec<HeldArrayPart>)>,
    /// Results that stay at the server.
    pub keep: Vec<(u16, HeldResult)>,
}

/// A request for bytes of a held array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FetchRequest {
    /// The array.
    pub name: HeldArrayName,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
}

/// A request to hold an array, whose bytes follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HoldRequest {
    /// Its name.
    pub name: HeldArrayName,
    /// How long it stays, in milliseconds; the server may have a shorter limit.
    pub lifetime_ms: u32,
    /// Its length in bytes.
    pub bytes: u64,
}

/// Tag of an array of which parts are held.
pub(crate) const FROM: u8 = 7;
/// Tag of a result that stays at the server.
pub(crate) const KEEP: u8 = 8;
/// Tag of an array of which parts are held, with vouchers.
pub(crate) const VOUCHED: u8 = 10;

const SENT: u8 = 1;
const SURVIVES: u8 = 2;

impl HeldArrayName {
    /// Encoded length in bytes.
    pub const LENGTH: usize = 20;

    /// Appends the encoded bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.put(out);
    }

    /// Decodes a name.
    #[must_use]
    pub fn of(bytes: &[u8; HeldArrayName::LENGTH]) -> Option<HeldArrayName> {
        codec::whole(bytes).ok()
    }
}

records! {
    HeldArrayName { secret, index }
    FetchRequest { name, offset, length }
    HoldRequest { name, lifetime_ms, bytes }
}
bodies! { FetchRequest HoldRequest }

fn take_text(cursor: &mut Cursor<'_>) -> Result<String, DecodeError> {
    let bytes = cursor.counted()?;
    if bytes.len() > MOST_NAME {
        return Err(DecodeError::Name);
    }
    codec::text(bytes).map(ToOwned::to_owned)
}

impl HeldArrayPart {
    fn encode(&self, vouched: bool, out: &mut Vec<u8>) {
        (self.offset, self.length, self.name, self.from).put(out);
        let voucher = vouched.then_some(&self.voucher);
        for text in [Some(&self.server), voucher].into_iter().flatten() {
            codec::put_text(shortened(text, MOST_NAME + 1), out);
        }
    }

    fn decode(cursor: &mut Cursor<'_>, vouched: bool) -> Result<HeldArrayPart, DecodeError> {
        let (offset, length, name, from): (u64, u64, _, u64) = cursor.get()?;
        let server = take_text(cursor)?;
        let voucher = if vouched { take_text(cursor)? } else { String::new() };
        let ends = offset.checked_add(length).is_some() && from.checked_add(length).is_some();
        if length == 0 || !ends {
            return Err(DecodeError::Order);
        }
        Ok(HeldArrayPart { offset, length, name, from, server, voucher })
    }
}

fn put_parts(out: &mut Vec<u8>, parts: &[HeldArrayPart]) {
    let vouched = parts.iter().any(|part| !part.voucher.is_empty());
    (if vouched { VOUCHED } else { FROM }, codec::count(parts)).put(out);
    parts.iter().for_each(|part| part.encode(vouched, out));
}

/// Decodes parts, which must be in ascending order and must not overlap.
fn take_parts(cursor: &mut Cursor<'_>) -> Result<Vec<HeldArrayPart>, DecodeError> {
    let (tag, count): (u8, u16) = cursor.get()?;
    let mut parts: Vec<HeldArrayPart> = Vec::new();
    for _ in 0..count {
        let part = HeldArrayPart::decode(cursor, tag == VOUCHED)?;
        if parts.last().is_some_and(|last| last.offset + last.length > part.offset) {
            return Err(DecodeError::Order);
        }
        parts.push(part);
    }
    Ok(parts)
}

impl HeldResult {
    /// Whether nobody wants the result: it does not come back, and it does not stay.
    #[must_use]
    pub fn is_declined(&self) -> bool {
        self.lifetime_ms == 0 && !self.sent && !self.survives
    }
}

impl Encode for HeldResult {
    fn put(&self, out: &mut Vec<u8>) {
        let flags = (u8::from(self.sent) * SENT) | (u8::from(self.survives) * SURVIVES);
        (KEEP, self.name, self.lifetime_ms, flags).put(out);
    }
}

impl Decode for HeldResult {
    fn take(cursor: &mut Cursor<'_>) -> Result<HeldResult, DecodeError> {
        let (_, name, lifetime_ms, flags): (u8, _, _, u8) = cursor.get()?;
        if flags & !(SENT | SURVIVES) != 0 {
            return Err(DecodeError::Tag);
        }
        let (sent, survives) = (flags & SENT != 0, flags & SURVIVES != 0);
        Ok(HeldResult { name, lifetime_ms, sent, survives })
    }
}

/// The entries of a call's head, by kind.
type Entries = (Vec<(u16, Value)>, HeldArrays, Vec<(u16, SharedDirections)>);

impl HeldArrays {
    /// Whether the call uses and creates no held arrays.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.from.is_empty() && self.keep.is_empty()
    }

    /// Number of their entries in the head of a call.
    pub(crate) fn entries(&self) -> usize {
        self.from.len() + self.keep.len()
    }

    /// Whether a part has a voucher.
    #[must_use]
    pub fn is_vouched(&self) -> bool {
        self.from.iter().flat_map(|(_, parts)| parts).any(|part| !part.voucher.is_empty())
    }

    /// Appends all entries of a call's head in ascending order of parameters. Entries of one parameter have tags 7 or 10, 8, 9
    /// in this order.
    pub(crate) fn encode(
        &self,
        out: &mut Vec<u8>,
        values: &[(u16, Value)],
        shared: &[(u16, SharedDirections)],
    ) {
        enum Entry<'a> {
            Value(&'a Value),
            From(&'a [HeldArrayPart]),
            Keep(&'a HeldResult),
            Share(SharedDirections),
        }
        let values = values.iter().map(|(parameter, value)| (*parameter, 0, Entry::Value(value)));
        let from = self.from.iter().map(|(parameter, parts)| (*parameter, 1, Entry::From(parts)));
        let keep = self.keep.iter().map(|(parameter, keep)| (*parameter, 2, Entry::Keep(keep)));
        let share = shared.iter().map(|(parameter, share)| (*parameter, 3, Entry::Share(*share)));
        let mut entries: Vec<(u16, u8, Entry<'_>)> =
            values.chain(from).chain(keep).chain(share).collect();
        entries.sort_by_key(|(parameter, kind, _)| (*parameter, *kind));
        for (parameter, _, entry) in entries {
            parameter.put(out);
            match entry {
                Entry::Value(value) => value.put(out),
                Entry::From(parts) => put_parts(out, parts),
                Entry::Keep(keep) => keep.put(out),
                Entry::Share(share) => (SHARED, share).put(out),
            }
        }
    }

    /// Decodes the entries of a call's head.
    pub(crate) fn decode(cursor: &mut Cursor<'_>, count: u16) -> Result<Entries, DecodeError> {
        let mut values = Vec::new();
        let mut held = HeldArrays::default();
        let mut shared = Vec::new();
        let mut last = None;
        for _ in 0..count {
            let parameter = cursor.get()?;
            let tag = cursor.peek().ok_or(DecodeError::Short)?;
            // Entries of one parameter are in the order of their tags. A value allows no other entry.
            let place = if tag == VOUCHED { FROM } else { tag };
            let key = (parameter, [FROM, KEEP, SHARED].iter().position(|known| *known == place));
            let after_value = values.last().is_some_and(|(other, _)| *other == parameter);
            let after_parts = held.from.last().is_some_and(|(other, _)| *other == parameter);
            if last.is_some_and(|last| last >= key) || after_value || after_parts && tag == SHARED {
                return Err(DecodeError::Order);
            }
            last = Some(key);
            match tag {
                FROM | VOUCHED => held.from.push((parameter, take_parts(cursor)?)),
                KEEP => held.keep.push((parameter, cursor.get()?)),
                SHARED => {
                    let (_, share): (u8, _) = cursor.get()?;
                    shared.push((parameter, share));
                }
                _ => values.push((parameter, cursor.get()?)),
            }
        }
        Ok((values, held, shared))
    }
}
