//! Results that the server holds: memory reserved before the call, names published after it.

use std::rc::Rc;
use std::time::Instant;

use kumi_rpc::{ArraySize, Code, Failure, HeldArrayName, HeldResult};
use tokio::sync::mpsc::UnboundedReceiver;

use super::super::Shared;
use super::super::arenas::Block;
use super::super::owner::Owner;
use super::super::slots::FinishedCall;
use crate::budget::Reservation;
use crate::held::{Holder, LookupError, ReserveError, Traffic};
use crate::layout::Layout;
use crate::values;

/// An array that the server holds.
#[derive(Debug, Clone)]
pub struct StoredArray {
    /// The memory.
    pub block: Rc<Block>,
    /// Its first byte in the arena.
    pub offset: usize,
    /// Its length in bytes.
    pub length: usize,
}

impl StoredArray {
    /// The place of a range in the arena. `None`: the range is not inside the array.
    pub fn range(&self, from: u64, length: u64) -> Option<(usize, usize)> {
        let end = from.checked_add(length)?;
        if end > self.length as u64 {
            return None;
        }
        // Both are at most the array's length.
        Some((self.offset + from as usize, length as usize))
    }
}

/// The results of one call that the server is to hold.
#[derive(Debug)]
pub struct RetainedResults {
    keeps: Vec<(u16, HeldResult)>,
    /// The parameters of results that nobody wants: they neither stay nor come back.
    declined: Vec<u16>,
    charge: Rc<Reservation>,
    /// Memory of their own, if the call's memory is much larger than they are.
    own: Option<Rc<Block>>,
}

/// A result smaller than this fraction of the call's memory is copied to memory of its own.
const PART: usize = 4;

/// The failure of an array for which there is no room.
pub fn full(full: ReserveError, bytes: u64) -> Failure {
    let text = match full {
        ReserveError::NoMemory(most) => format!(
            "the server has no room to hold {bytes} more bytes (of {most}); release other arrays, or try again later"
        ),
        ReserveError::TooManyNames => {
            "the server holds as many arrays as it may; release others".to_owned()
        }
        ReserveError::NameInUse => {
            "an array of this name is held already; take another name".to_owned()
        }
    };
    match full {
        ReserveError::NameInUse => values::bad(-1, text),
        _ => Failure::new(Code::HeldFull, i64::try_from(bytes).unwrap_or(i64::MAX), text),
    }
}

/// The failure of a request for an array that is not held.
pub fn missing(missing: LookupError, parameter: i64) -> Failure {
    match missing {
        LookupError::Unknown => Failure::new(
            Code::NotHeld,
            parameter,
            "no array of this name is held: it has expired, or was released",
        ),
        LookupError::NotYet => Failure::new(
            Code::NotYet,
            parameter,
            "the call that makes the array is still running; ask again when it has ended",
        ),
    }
}

/// Memory for arrays that stay. Only bytes that they overwrote are ever sent from it.
pub fn memory(
    shared: &Shared,
    owner: &Rc<Owner>,
    holder: Holder<'_>,
    bytes: u64,
) -> Result<Rc<Block>, Failure> {
    let mut pool = shared.pool.borrow_mut();
    let taken = pool.memory(owner, holder.connection, bytes as usize, "arrays that stay");
    let (block, _) =
        taken.ok_or_else(|| full(ReserveError::NoMemory(shared.config.bytes), bytes))?;
    Ok(block)
}

impl RetainedResults {
    /// Reserves memory for the results that stay. `None`: none do.
    pub fn new(
        shared: &Shared,
        layout: &Layout,
        block: &Rc<Block>,
        keeps: &[(u16, HeldResult)],
        holder: Holder<'_>,
        owner: &Rc<Owner>,
    ) -> Result<Option<Box<RetainedResults>>, Failure> {
        if keeps.is_empty() {
            return Ok(None);
        }
        let (declined, keeps): (Vec<_>, Vec<_>) =
            keeps.iter().copied().partition(|(_, keep)| keep.is_declined());
        let declined: Vec<u16> = declined.iter().map(|(parameter, _)| *parameter).collect();
        let mut bytes = 0_u64;
        let staying = keeps.iter().map(|(parameter, _)| *parameter);
        for parameter in staying.clone().chain(declined.iter().copied()) {
            let array = layout.array(parameter).filter(|argument| argument.mode.is_returned());
            let array = array.ok_or_else(|| {
                let text = format!("argument {parameter} is not an array that comes back");
                values::bad(i64::from(parameter), text)
            })?;
            if staying.clone().any(|stays| stays == parameter) {
                bytes = bytes.saturating_add(array.returned);
            }
        }
        let whole = if keeps.is_empty() { 0 } else { block.arena.length() };
        // Inside the call's memory, so the sum fits.
        let own = (bytes as usize).saturating_mul(PART) < whole;
        let own = own.then(|| memory(shared, owner, holder, bytes)).transpose()?;
        // Charges the whole memory that stays occupied, however little of it the arrays need.
        let charged = own.as_ref().map_or(whole, |own| own.arena.length()) as u64;
        let mut held = shared.held.borrow_mut();
        let charge = held.reserve(keeps.iter().map(|(_, keep)| keep), charged, holder);
        drop(held);
        match charge {
            Ok(charge) => Ok(Some(Box::new(RetainedResults { keeps, declined, charge, own }))),
            Err(why) => {
                own.into_iter().for_each(|own| shared.give(own));
                Err(full(why, charged))
            }
        }
    }

    /// Whether a result is to stay even if the client vanishes.
    pub fn survives(&self) -> bool {
        self.keeps.iter().any(|(_, keep)| keep.survives)
    }

    /// Releases the reservation of a call that has failed.
    pub fn release(self, shared: &Shared) {
        for (_, keep) in &self.keeps {
            shared.held.borrow_mut().abandon(keep.name, &self.charge);
        }
        self.own.into_iter().for_each(|block| shared.give(block));
    }

    /// Publishes the results of a call that has succeeded. Returns the sizes of the arrays that go back.
    pub fn settle(self, shared: &Shared, layout: &Layout, block: &Rc<Block>) -> Vec<ArraySize> {
        let mut at = 0;
        for (parameter, keep) in &self.keeps {
            let returned = layout.array(*parameter).map_or(0, |argument| argument.returned);
            let length = usize::try_from(returned).unwrap_or(usize::MAX);
            let (offset, length) = layout.range(*parameter, 0, length);
            let kept = match &self.own {
                None => StoredArray { block: Rc::clone(block), offset, length },
                Some(own) => {
                    own.arena.copy_from(&block.arena, offset, at, length);
                    at += length;
                    StoredArray { block: Rc::clone(own), offset: at - length, length }
                }
            };
            let mut held = shared.held.borrow_mut();
            let back = held.settle(keep.name, &self.charge, kept, Instant::now());
            drop(held);
            // The client dropped it while the call ran.
            back.into_iter().for_each(|kept| shared.give(kept.block));
        }
        shared.held_changed.notify_one();
        let stays = |size: &ArraySize| {
            let keep = self.keeps.iter().find(|(parameter, _)| *parameter == size.argument);
            keep.is_some_and(|(_, keep)| !keep.sent) || self.declined.contains(&size.argument)
        };
        layout.returned().into_iter().filter(|size| !stays(size)).collect()
    }
}

impl Shared {
    /// Takes memory back if nothing else uses it.
    pub fn give(&self, block: Rc<Block>) {
        self.pool.borrow_mut().arenas.give(block);
    }

    /// The array of a name, for a connection of its user.
    pub fn find(
        &self,
        name: HeldArrayName,
        holder: Holder<'_>,
        parameter: i64,
    ) -> Result<StoredArray, Failure> {
        let mut held = self.held.borrow_mut();
        let found = held.find(name, holder, Instant::now()).cloned();
        drop(held);
        self.held_changed.notify_one();
        found.map_err(|why| missing(why, parameter))
    }

    /// Drops those of these arrays that belong to the user.
    pub fn let_go(&self, names: &[HeldArrayName], owner: &Owner) {
        for name in names {
            let kept = self.held.borrow_mut().let_go(*name, &owner.user);
            kept.into_iter().for_each(|kept| self.give(kept.block));
        }
    }

    /// A connection has ended.
    pub fn owner_lost(&self, owner: u64) {
        let gone = self.held.borrow_mut().owner_lost(owner, Instant::now());
        gone.into_iter().for_each(|kept| self.give(kept.block));
        self.held_changed.notify_one();
    }

    /// Adds to a traffic counter.
    pub fn count(&self, counter: impl Fn(&Traffic) -> &std::sync::atomic::AtomicU64, bytes: u64) {
        Traffic::add(counter(&self.config.traffic), bytes);
    }
}

/// Drops expired arrays. Never ends.
pub async fn sweep(shared: &Shared) {
    loop {
        let gone = shared.held.borrow_mut().expire(Instant::now());
        gone.into_iter().for_each(|kept| shared.give(kept.block));
        let next = shared.held.borrow().next_end();
        tokio::select! {
            () = shared.held_changed.notified() => {}
            () = tokio::time::sleep_until(next.unwrap_or_else(Instant::now).into()), if next.is_some() => {}
        }
    }
}

/// Keeps the results of calls whose client has vanished, until all these calls are over.
pub async fn outlive(
    shared: Rc<Shared>,
    mut ends: UnboundedReceiver<FinishedCall>,
    mut calls: usize,
) {
    while calls > 0 {
        let Some(FinishedCall { job, outcome }) = ends.recv().await else { return };
        let job = *job;
        if let Some(retained) = job.retained {
            calls -= usize::from(retained.survives());
            if outcome.is_ok() {
                job.layout.pack(&job.offered.interface, &job.block.arena);
                retained.settle(&shared, &job.layout, &job.block);
            } else {
                retained.release(&shared);
            }
        }
        shared.give(job.block);
    }
}
