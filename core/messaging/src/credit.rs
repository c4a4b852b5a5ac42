//! How much memory messages without a receive may take.
//!
//! Each rank gives every other one the same credit in bytes. Data that is sent before its receive is known uses it up, and gets it back
//! when a receive has taken the message. Without credit a message is announced and its data stays with the sender. So no rank is ever
//! made to wait by another one's messages, and no message by an earlier one that nobody receives.

use alloc::vec::Vec;

use crate::header::BadMessage;

/// Bytes that a kept message counts beside its data.
pub const MESSAGE_OVERHEAD: u64 = 64;
/// Bytes of unexpected data that a rank keeps of all others together.
const UNEXPECTED_BYTES: u64 = 16 << 20;
const LEAST_CREDIT: u64 = 8 << 10;
const MOST_CREDIT: u64 = 1 << 20;
/// Announcements that a rank keeps of all others together.
const ANNOUNCEMENTS: u32 = 1 << 20;
const LEAST_ANNOUNCEMENTS: u32 = 1 << 10;
/// Parts of reads, writes and atomic operations under way to a rank.
const MOST_ACCESSES: u32 = 1 << 10;

/// Bounds between any two ranks of a job. They follow from its size, so all ranks have the same ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of data that wait for a receive.
    pub credit: u64,
    /// Messages that are announced and not over.
    pub announcements: u32,
}

impl Limits {
    /// Those of a job of so many ranks.
    #[must_use]
    pub fn of_job(ranks: u32) -> Limits {
        let ranks = ranks.max(1);
        Limits {
            credit: (UNEXPECTED_BYTES / u64::from(ranks)).clamp(LEAST_CREDIT, MOST_CREDIT),
            announcements: (ANNOUNCEMENTS / ranks).max(LEAST_ANNOUNCEMENTS),
        }
    }
}

/// The state between this rank and another one.
#[derive(Debug, Clone, Copy, Default)]
struct Pair {
    /// Credit that this rank has used there.
    used: u64,
    /// Messages announced there that are not over.
    announced: u32,
    /// Reads, writes and atomic operations asked of it that are not over.
    accesses: u32,
    /// Messages that the other one has announced here and that are not over.
    promised: u32,
    /// Credit that the other one uses here.
    lent: u64,
    /// What of it is free again and not yet told.
    free: u64,
}

/// The state between this rank and all others.
#[derive(Debug)]
pub(crate) struct Credit {
    limits: Limits,
    pairs: Vec<Pair>,
}

impl Credit {
    pub(crate) fn new(ranks: u32, limits: Limits) -> Credit {
        Credit { limits, pairs: alloc::vec![Pair::default(); ranks as usize] }
    }

    pub(crate) fn ranks(&self) -> u32 {
        self.pairs.len() as u32
    }

    fn pair(&mut self, rank: u32) -> &mut Pair {
        &mut self.pairs[rank as usize]
    }

    /// Uses credit for a message of so many bytes; false if there is not enough.
    pub(crate) fn spend(&mut self, to: u32, bytes: u64) -> bool {
        let most = self.limits.credit;
        let pair = self.pair(to);
        let used = pair.used.saturating_add(bytes).saturating_add(MESSAGE_OVERHEAD);
        let enough = used <= most;
        if enough {
            pair.used = used;
        }
        enough
    }

    /// One more message is announced; false if there are too many.
    pub(crate) fn announce(&mut self, to: u32) -> bool {
        let most = self.limits.announcements;
        let pair = self.pair(to);
        let fits = pair.announced < most;
        pair.announced += u32::from(fits);
        fits
    }

    pub(crate) fn announced_is_over(&mut self, to: u32) {
        let pair = self.pair(to);
        pair.announced = pair.announced.saturating_sub(1);
    }

    /// So many parts of an access are asked for; false if there are too many.
    pub(crate) fn begin_access(&mut self, to: u32, parts: usize) -> bool {
        let pair = self.pair(to);
        let parts = u32::try_from(parts).unwrap_or(u32::MAX);
        let sum = pair.accesses.saturating_add(parts);
        // However many parts an access has, one may begin if there is no other.
        let fits = sum <= MOST_ACCESSES || pair.accesses == 0;
        if fits {
            pair.accesses = sum;
        }
        fits
    }

    pub(crate) fn access_is_over(&mut self, to: u32) {
        let pair = self.pair(to);
        pair.accesses = pair.accesses.saturating_sub(1);
    }

    /// The other rank has announced a message.
    pub(crate) fn promised(&mut self, from: u32) -> Result<(), BadMessage> {
        let most = self.limits.announcements;
        let pair = self.pair(from);
        if pair.promised == most {
            return Err(BadMessage::TooMany);
        }
        pair.promised += 1;
        Ok(())
    }

    /// Such a message is over.
    pub(crate) fn promise_is_over(&mut self, from: u32) {
        let pair = self.pair(from);
        pair.promised = pair.promised.saturating_sub(1);
    }

    /// The other rank tells that so much is free again.
    pub(crate) fn returned(&mut self, from: u32, bytes: u64) -> Result<(), BadMessage> {
        let pair = self.pair(from);
        pair.used = pair.used.checked_sub(bytes).ok_or(BadMessage::Returned(bytes))?;
        Ok(())
    }

    /// A message of the other rank has come with its data.
    pub(crate) fn arrived(&mut self, from: u32, bytes: u64) -> Result<(), BadMessage> {
        let most = self.limits.credit;
        let pair = self.pair(from);
        pair.lent = pair.lent.saturating_add(bytes).saturating_add(MESSAGE_OVERHEAD);
        let excess = pair.lent.saturating_sub(most);
        if excess > 0 { Err(BadMessage::Credit(excess)) } else { Ok(()) }
    }

    /// A receive has taken it. True if that is to be told by a message of its own, since much is free that the other does not know of.
    pub(crate) fn taken(&mut self, from: u32, bytes: u64) -> bool {
        let most = self.limits.credit;
        let pair = self.pair(from);
        pair.free += bytes + MESSAGE_OVERHEAD;
        pair.free > most / 2
    }

    /// What the next message to a rank gives back.
    #[inline]
    pub(crate) fn give_back(&mut self, to: u32) -> u32 {
        let pair = self.pair(to);
        // No more than [`MOST_CREDIT`] is lent.
        let free = core::mem::take(&mut pair.free);
        pair.lent = pair.lent.saturating_sub(free);
        free as u32
    }
}
