//! Barriers: arrivals go up a tree and what was written goes down.

use alloc::vec::Vec;
use core::ops::Range;

use crate::error::Misuse;
use crate::message::Written;
use crate::{Rank, Ticket};

/// Children of a rank in the tree.
const CHILDREN: u32 = 8;

/// What a barrier does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BarrierKind {
    /// What was written before is visible after (`jia_barrier`).
    Memory,
    /// Nothing more than waiting (`jia_wait`).
    Plain,
}

impl BarrierKind {
    pub(crate) fn number(self) -> u8 {
        match self {
            BarrierKind::Memory => 0,
            BarrierKind::Plain => 1,
        }
    }

    pub(crate) fn from_number(number: u8) -> Option<BarrierKind> {
        [BarrierKind::Memory, BarrierKind::Plain].get(usize::from(number)).copied()
    }

    /// Its name in messages to the user.
    pub(crate) fn name(self) -> &'static str {
        match self {
            BarrierKind::Memory => "a barrier",
            BarrierKind::Plain => "a wait",
        }
    }
}

/// What all ranks have to agree in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Call {
    pub(crate) kind: BarrierKind,
    pub(crate) allocations: u64,
}

/// What to do after an arrival.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// Others are missing.
    None,
    /// The subtree is complete: tell the parent.
    Up { parent: Rank, number: u64, call: Call, written: Written },
    /// All have arrived: tell the children and go on.
    Down { number: u64, written: Written },
}

/// The barrier that comes next.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Barrier {
    me: Rank,
    children: Range<Rank>,
    number: u64,
    arrived: u32,
    own: Option<(Ticket, BarrierKind)>,
    /// The first call that was heard of, and whose.
    call: Option<(Rank, Call)>,
    written: Written,
}

impl Barrier {
    pub(crate) fn new(me: Rank, ranks: u32) -> Barrier {
        let first = me.saturating_mul(CHILDREN).saturating_add(1);
        let children = first.min(ranks)..first.saturating_add(CHILDREN).min(ranks);
        Barrier { me, children, number: 0, arrived: 0, own: None, call: None, written: Vec::new() }
    }

    pub(crate) fn children(&self) -> Range<Rank> {
        self.children.clone()
    }

    /// This rank's program arrives.
    pub(crate) fn arrive(
        &mut self,
        ticket: Ticket,
        call: Call,
        written: Written,
    ) -> Result<Step, Misuse> {
        self.agree(self.me, call)?;
        self.own = Some((ticket, call.kind));
        self.written.extend(written);
        Ok(self.complete())
    }

    /// Whether a thread of this rank waits in the barrier.
    pub(crate) fn is_entered(&self) -> bool {
        self.own.is_some()
    }

    /// Whether a thread of this rank waits in the barrier, and that has effect on memory.
    pub(crate) fn changes_memory(&self) -> bool {
        matches!(self.own, Some((_, BarrierKind::Memory)))
    }

    /// A child's subtree has arrived.
    pub(crate) fn child_arrived(
        &mut self,
        from: Rank,
        number: u64,
        call: Call,
        written: Written,
    ) -> Result<Step, Misuse> {
        if !self.children.contains(&from)
            || number != self.number
            || self.arrived >= self.waits_for()
        {
            return Err(Misuse::Peer { from, what: "an arrival at another barrier".into() });
        }
        self.agree(from, call)?;
        self.arrived += 1;
        self.written.extend(written);
        Ok(self.complete())
    }

    /// All ranks have arrived at the barrier: the wait that is over, and its kind.
    pub(crate) fn depart(
        &mut self,
        from: Rank,
        number: u64,
    ) -> Result<(Ticket, BarrierKind), Misuse> {
        let own = self.own.take().filter(|_| number == self.number);
        let own = own.ok_or(Misuse::Peer { from, what: "a departure too early".into() })?;
        self.number += 1;
        (self.arrived, self.call) = (0, None);
        Ok(own)
    }

    fn waits_for(&self) -> u32 {
        self.children.end - self.children.start
    }

    fn agree(&mut self, rank: Rank, call: Call) -> Result<(), Misuse> {
        let (other, first) = *self.call.get_or_insert((rank, call));
        let number = self.number;
        if call.kind != first.kind {
            let (theirs, ours) = (call.kind.name(), first.kind.name());
            return Err(Misuse::Mismatch { number, rank, theirs, other, ours });
        }
        if call.allocations != first.allocations {
            return Err(Misuse::Allocations { number, rank, other });
        }
        Ok(())
    }

    fn complete(&mut self) -> Step {
        let Some((_, call)) = self.call.filter(|_| self.own.is_some()) else { return Step::None };
        if self.arrived < self.waits_for() {
            return Step::None;
        }
        let (number, written) = (self.number, core::mem::take(&mut self.written));
        match self.me {
            0 => Step::Down { number, written },
            me => Step::Up { parent: (me - 1) / CHILDREN, number, call, written },
        }
    }
}
