//! Locks: a queue spread over the ranks that wait (JIAJIA's managers, with the grant sent by its last holder).
//!
//! A lock's manager knows only who asked for it last. It forwards a request there, and that rank hands the lock over when it
//! gives it back. So a lock goes from holder to holder by one message, and a rank that takes it again asks nobody.

use alloc::collections::{BTreeMap, VecDeque};

use crate::error::Misuse;
use crate::notices::Knowledge;
use crate::{Rank, Ticket};

/// What a rank knows of a lock that it has used.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
struct Lock {
    /// The lock is here: held, or free to be taken again.
    here: bool,
    /// It was asked for.
    requested: bool,
    holder: Option<Ticket>,
    waiting: VecDeque<Ticket>,
    /// Who gets it after this rank.
    next: Option<(Rank, Knowledge)>,
}

/// What to do after a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing.
    None,
    /// Ask the manager.
    Request,
    /// The lock is this wait's.
    Held(Ticket),
    /// Hand the lock over; ask for it again if `again`.
    HandOver { to: Rank, known: Knowledge, again: bool },
}

/// The locks that this rank has used, and those that it manages.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Locks {
    used: BTreeMap<u32, Lock>,
    /// Who asked last for each lock that this rank manages.
    tails: BTreeMap<u32, Rank>,
}

impl Locks {
    /// A thread wants a lock.
    pub(crate) fn acquire(&mut self, number: u32, ticket: Ticket) -> Result<Step, Misuse> {
        let lock = self.used.entry(number).or_default();
        if lock.holder == Some(ticket) {
            return Err(Misuse::HeldAlready { lock: number });
        }
        if lock.here && lock.holder.is_none() && lock.waiting.is_empty() {
            lock.holder = Some(ticket);
            return Ok(Step::Held(ticket));
        }
        lock.waiting.push_back(ticket);
        Ok(lock.request())
    }

    /// A thread does not wait for the lock any more; whether it did. A request that has left comes back with the lock, which
    /// stays here until somebody wants it.
    pub(crate) fn withdraw(&mut self, number: u32, ticket: Ticket) -> bool {
        let Some(lock) = self.used.get_mut(&number) else { return false };
        let before = lock.waiting.len();
        lock.waiting.retain(|waiting| *waiting != ticket);
        lock.waiting.len() < before
    }

    /// Whether this thread holds the lock.
    pub(crate) fn check_held(&self, number: u32, ticket: Ticket) -> Result<(), Misuse> {
        match self.used.get(&number) {
            Some(lock) if lock.holder == Some(ticket) => Ok(()),
            _ => Err(Misuse::NotHeld { lock: number }),
        }
    }

    /// The holder gives the lock back. Another rank that waits gets it before threads of this one.
    pub(crate) fn release(&mut self, number: u32) -> Step {
        let Some(lock) = self.used.get_mut(&number) else { return Step::None };
        lock.holder = None;
        if let Some((to, known)) = lock.next.take() {
            return lock.hand_over(to, known);
        }
        lock.next_here()
    }

    /// A rank asks the manager: who has to hand the lock over? `None` if nobody ever had it.
    pub(crate) fn requested(&mut self, number: u32, requester: Rank) -> Option<Rank> {
        self.tails.insert(number, requester)
    }

    /// This rank asked last before `to`.
    pub(crate) fn forwarded(
        &mut self,
        number: u32,
        to: Rank,
        known: Knowledge,
    ) -> Result<Step, &'static str> {
        let lock = self.used.get_mut(&number).ok_or("a lock that is not here is asked for")?;
        if lock.next.is_some() || !(lock.here || lock.requested) {
            return Err("a lock that is not here is asked for");
        }
        if lock.here && lock.holder.is_none() {
            return Ok(lock.hand_over(to, known));
        }
        lock.next = Some((to, known));
        Ok(Step::None)
    }

    /// The lock comes.
    pub(crate) fn granted(&mut self, number: u32) -> Result<Step, &'static str> {
        let lock = self.used.get_mut(&number).filter(|lock| lock.requested);
        let lock = lock.ok_or("a lock comes that was not asked for")?;
        (lock.requested, lock.here) = (false, true);
        // Nobody waits here any more, but somebody elsewhere.
        if lock.waiting.is_empty()
            && let Some((to, known)) = lock.next.take()
        {
            return Ok(lock.hand_over(to, known));
        }
        Ok(lock.next_here())
    }
}

impl Lock {
    fn request(&mut self) -> Step {
        if self.here || self.requested {
            return Step::None;
        }
        self.requested = true;
        Step::Request
    }

    fn next_here(&mut self) -> Step {
        self.holder = self.waiting.pop_front();
        self.holder.map_or(Step::None, Step::Held)
    }

    fn hand_over(&mut self, to: Rank, known: Knowledge) -> Step {
        self.here = false;
        let again = !self.waiting.is_empty() && self.request() == Step::Request;
        Step::HandOver { to, known, again }
    }
}
