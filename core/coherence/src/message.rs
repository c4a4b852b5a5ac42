//! Messages between ranks, and their bytes.

use alloc::vec::Vec;
use core::ops::Range;

use crate::barrier::BarrierKind;
use crate::error::BadMessage;
use crate::notices::{Interval, Knowledge};
use crate::wire::{self, Reader};
use crate::{PageSet, Rank};

/// Pages that a rank wrote in an epoch.
pub type Written = Vec<(Rank, PageSet)>;

/// A message of the protocol. Its first byte is its kind, its numbers are in groups of seven bits, the lowest first.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Message {
    /// To the manager of a lock: give it to me.
    LockRequest {
        /// The lock.
        lock: u32,
        /// What the sender knows already.
        known: Knowledge,
    },
    /// From the manager to the rank that asked last before: give it to `requester` after you.
    LockForward {
        /// The lock.
        lock: u32,
        /// Who wants it.
        requester: Rank,
        /// What that one knows already.
        known: Knowledge,
    },
    /// The lock.
    LockGrant {
        /// The lock.
        lock: u32,
        /// Barriers with effect on memory that the sender has left.
        departed: u32,
        /// The number of its last release.
        last: u64,
        /// What the receiver did not know.
        intervals: Vec<Interval>,
    },
    /// To the parent in the tree: my subtree has arrived at a barrier.
    Arrive {
        /// Barriers passed before.
        number: u64,
        /// Which barrier.
        kind: BarrierKind,
        /// Hash of all allocations so far.
        allocations: u64,
        /// What the subtree wrote.
        written: Written,
    },
    /// To the children: all have arrived.
    Depart {
        /// Barriers passed before.
        number: u64,
        /// What all ranks wrote.
        written: Written,
    },
    /// To the manager of a condition: it holds from now on.
    ConditionSet {
        /// The condition.
        condition: u32,
        /// As in [`Message::LockGrant`].
        departed: u32,
        /// What it makes visible.
        intervals: Vec<Interval>,
    },
    /// To the manager: it does not hold any more.
    ConditionReset {
        /// The condition.
        condition: u32,
    },
    /// To the manager: tell me when it holds.
    ConditionWait {
        /// The condition.
        condition: u32,
    },
    /// It holds.
    ConditionGrant {
        /// The condition.
        condition: u32,
        /// As in [`Message::LockGrant`].
        departed: u32,
        /// What it makes visible.
        intervals: Vec<Interval>,
    },
    /// To the home of pages: what changed in them.
    Diffs {
        /// Number that the answer gives back.
        batch: u64,
        /// For each page: its number and the length of its diff, 4 bytes each, and the diff. See [`diffs`].
        diffs: Vec<u8>,
    },
    /// The diffs are in place.
    DiffsDone {
        /// As in the request.
        batch: u64,
    },
    /// To the directory of a page without a home: where is it? The asker becomes its home unless it has one.
    Locate {
        /// The page.
        page: u32,
    },
    /// The home of a page.
    Located {
        /// The page.
        page: u32,
        /// Its home.
        home: Rank,
    },
    /// To the home of pages that are updated: this node will have copies of them.
    Subscribe {
        /// Number that the answer gives back.
        ticket: u64,
        /// The pages.
        pages: Range<u32>,
    },
    /// The pages, which are updated from now on.
    Subscribed {
        /// As in the request.
        ticket: u64,
        /// The first page.
        first: u32,
        /// What was released of them so far.
        bytes: Vec<u8>,
    },
    /// From the home to one rank of each node that has copies: what changed in them.
    Update {
        /// Number that the answer gives back.
        batch: u64,
        /// As in [`Message::Diffs`].
        diffs: Vec<u8>,
    },
    /// They are in place.
    UpdateDone {
        /// As in the request.
        batch: u64,
    },
    /// As [`Message::Diffs`], of pages whose copies are updated: they are in place when all copies have them.
    UpdateDiffs {
        /// As there.
        batch: u64,
        /// As there.
        diffs: Vec<u8>,
    },
}

/// Appends the diff of a page to the body of [`Message::Diffs`].
pub fn push_diff(diffs: &mut Vec<u8>, page: u32, diff: &[u8]) {
    diffs.extend_from_slice(&page.to_le_bytes());
    diffs.extend_from_slice(&(diff.len() as u32).to_le_bytes());
    diffs.extend_from_slice(diff);
}

/// The pages of a [`Message::Diffs`] with their diffs. After an error nothing follows.
pub fn diffs(mut bytes: &[u8]) -> impl Iterator<Item = Result<(u32, &[u8]), BadMessage>> {
    let number = |four: &[u8]| u32::from_le_bytes([four[0], four[1], four[2], four[3]]);
    core::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let mut next = || {
            let (page, rest) = bytes.split_at_checked(4)?;
            let (length, rest) = rest.split_at_checked(4)?;
            let (diff, rest) = rest.split_at_checked(number(length) as usize)?;
            bytes = rest;
            Some((number(page), diff))
        };
        let found = next().ok_or(BadMessage::Short);
        if found.is_err() {
            bytes = &[];
        }
        Some(found)
    })
}

fn put_intervals(out: &mut Vec<u8>, intervals: &[Interval]) {
    wire::put(out, intervals.len() as u64);
    for Interval { epoch, number, writer, pages } in intervals {
        wire::put(out, (*epoch).into());
        wire::put(out, *number);
        wire::put(out, (*writer).into());
        wire::put_pages(out, pages);
    }
}

fn intervals(reader: &mut Reader<'_>) -> Result<Vec<Interval>, BadMessage> {
    let mut intervals = Vec::new();
    for _ in 0..reader.count()? {
        let (epoch, number, writer) = (reader.small()?, reader.number()?, reader.small()?);
        intervals.push(Interval { epoch, number, writer, pages: reader.pages()? });
    }
    Ok(intervals)
}

fn put_knowledge(out: &mut Vec<u8>, known: &Knowledge) {
    wire::put(out, known.epoch.into());
    wire::put(out, known.numbers.len() as u64);
    known.numbers.iter().for_each(|number| wire::put(out, *number));
}

fn knowledge(reader: &mut Reader<'_>) -> Result<Knowledge, BadMessage> {
    let epoch = reader.small()?;
    let numbers = (0..reader.count()?).map(|_| reader.number()).collect::<Result<_, _>>()?;
    Ok(Knowledge { epoch, numbers })
}

fn put_written(out: &mut Vec<u8>, written: &Written) {
    wire::put(out, written.len() as u64);
    for (rank, pages) in written {
        wire::put(out, (*rank).into());
        wire::put_pages(out, pages);
    }
}

fn written(reader: &mut Reader<'_>) -> Result<Written, BadMessage> {
    (0..reader.count()?).map(|_| Ok((reader.small()?, reader.pages()?))).collect()
}

fn put_all(out: &mut Vec<u8>, numbers: &[u64]) {
    numbers.iter().for_each(|number| wire::put(out, *number));
}

impl Message {
    /// Its kind's number and name.
    #[must_use]
    pub fn kind(&self) -> (u8, &'static str) {
        match self {
            Message::LockRequest { .. } => (1, "lock request"),
            Message::LockForward { .. } => (2, "lock forward"),
            Message::LockGrant { .. } => (3, "lock grant"),
            Message::Arrive { .. } => (4, "barrier arrival"),
            Message::Depart { .. } => (5, "barrier departure"),
            Message::ConditionSet { .. } => (6, "condition set"),
            Message::ConditionReset { .. } => (7, "condition reset"),
            Message::ConditionWait { .. } => (8, "condition wait"),
            Message::ConditionGrant { .. } => (9, "condition grant"),
            Message::Diffs { .. } => (10, "diffs"),
            Message::DiffsDone { .. } => (11, "diffs done"),
            Message::Locate { .. } => (12, "locate"),
            Message::Located { .. } => (13, "located"),
            Message::Subscribe { .. } => (14, "subscribe"),
            Message::Subscribed { .. } => (15, "subscribed"),
            Message::Update { .. } => (16, "update"),
            Message::UpdateDone { .. } => (17, "update done"),
            Message::UpdateDiffs { .. } => (18, "update diffs"),
        }
    }

    /// Barriers that its sender has left, if what it wrote before counts for the receiver.
    pub(crate) fn departed(&self) -> u32 {
        match self {
            Message::LockGrant { departed, .. }
            | Message::ConditionSet { departed, .. }
            | Message::ConditionGrant { departed, .. } => *departed,
            _ => 0,
        }
    }

    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let out = &mut alloc::vec![self.kind().0];
        match self {
            Message::LockRequest { lock, known } => {
                wire::put(out, (*lock).into());
                put_knowledge(out, known);
            }
            Message::LockForward { lock, requester, known } => {
                wire::put(out, (*lock).into());
                wire::put(out, (*requester).into());
                put_knowledge(out, known);
            }
            Message::LockGrant { lock, departed, last, intervals } => {
                put_all(out, &[u64::from(*lock), u64::from(*departed), *last]);
                put_intervals(out, intervals);
            }
            Message::Arrive { number, kind, allocations, written } => {
                wire::put(out, *number);
                out.push(kind.number());
                wire::put(out, *allocations);
                put_written(out, written);
            }
            Message::Depart { number, written } => {
                wire::put(out, *number);
                put_written(out, written);
            }
            Message::ConditionSet { condition, departed, intervals }
            | Message::ConditionGrant { condition, departed, intervals } => {
                put_all(out, &[u64::from(*condition), u64::from(*departed)]);
                put_intervals(out, intervals);
            }
            Message::ConditionReset { condition } | Message::ConditionWait { condition } => {
                wire::put(out, (*condition).into());
            }
            Message::Diffs { batch, diffs }
            | Message::Update { batch, diffs }
            | Message::UpdateDiffs { batch, diffs } => {
                wire::put(out, *batch);
                out.extend_from_slice(diffs);
            }
            Message::DiffsDone { batch } | Message::UpdateDone { batch } => wire::put(out, *batch),
            Message::Subscribe { ticket, pages } => {
                wire::put(out, *ticket);
                wire::put(out, pages.start.into());
                wire::put(out, pages.end.into());
            }
            Message::Subscribed { ticket, first, bytes } => {
                wire::put(out, *ticket);
                wire::put(out, (*first).into());
                out.extend_from_slice(bytes);
            }
            Message::Locate { page } => wire::put(out, (*page).into()),
            Message::Located { page, home } => {
                wire::put(out, (*page).into());
                wire::put(out, (*home).into());
            }
        }
        core::mem::take(out)
    }

    /// Reads a message; the inverse of [`Message::encode`].
    ///
    /// # Errors
    /// [`BadMessage`] if it is none.
    pub fn decode(bytes: &[u8]) -> Result<Message, BadMessage> {
        let mut reader = Reader::new(bytes);
        let message = read(&mut reader)?;
        reader.end()?;
        Ok(message)
    }
}

fn read(reader: &mut Reader<'_>) -> Result<Message, BadMessage> {
    let kind = reader.byte()?;
    let first = reader.number()?;
    let named = || u32::try_from(first).map_err(|_| BadMessage::Range);
    Ok(match kind {
        1 => Message::LockRequest { lock: named()?, known: knowledge(reader)? },
        2 => {
            let (lock, requester) = (named()?, reader.small()?);
            Message::LockForward { lock, requester, known: knowledge(reader)? }
        }
        3 => {
            let (lock, departed, last) = (named()?, reader.small()?, reader.number()?);
            Message::LockGrant { lock, departed, last, intervals: intervals(reader)? }
        }
        4 => {
            let kind = BarrierKind::from_number(reader.byte()?).ok_or(BadMessage::Range)?;
            let allocations = reader.number()?;
            Message::Arrive { number: first, kind, allocations, written: written(reader)? }
        }
        5 => Message::Depart { number: first, written: written(reader)? },
        6 => {
            let (condition, departed) = (named()?, reader.small()?);
            Message::ConditionSet { condition, departed, intervals: intervals(reader)? }
        }
        7 => Message::ConditionReset { condition: named()? },
        8 => Message::ConditionWait { condition: named()? },
        9 => {
            let (condition, departed) = (named()?, reader.small()?);
            Message::ConditionGrant { condition, departed, intervals: intervals(reader)? }
        }
        10 => Message::Diffs { batch: first, diffs: reader.rest().to_vec() },
        11 => Message::DiffsDone { batch: first },
        12 => Message::Locate { page: named()? },
        13 => Message::Located { page: named()?, home: reader.small()? },
        14 => Message::Subscribe { ticket: first, pages: reader.small()?..reader.small()? },
        15 => {
            let (ticket, first) = (first, reader.small()?);
            Message::Subscribed { ticket, first, bytes: reader.rest().to_vec() }
        }
        16 => Message::Update { batch: first, diffs: reader.rest().to_vec() },
        17 => Message::UpdateDone { batch: first },
        18 => Message::UpdateDiffs { batch: first, diffs: reader.rest().to_vec() },
        other => return Err(BadMessage::Kind(other)),
    })
}
