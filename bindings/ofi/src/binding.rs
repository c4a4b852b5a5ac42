//! What a program binds to an endpoint before it enables it.

use std::sync::Arc;

use crate::abi::{self, fi_ops_collective, fid};
use crate::address_vector::AddressVector;
use crate::av::Av;
use crate::cntr::Cntr;
use crate::completion_queue::CompletionQueue;
use crate::counter::Counter;
use crate::cq::{Queue, Sources};
use crate::endpoint::Side;
use crate::eq::Events;
use crate::errors::{Answer, FI_EINVAL, ensure, only};
use crate::objects::{self, Hold, Refused};

const SIDES: u64 = abi::FI_TRANSMIT | abi::FI_RECV;
const COUNTED: [u64; 6] = [
    abi::FI_SEND,
    abi::FI_RECV,
    abi::FI_READ,
    abi::FI_WRITE,
    abi::FI_REMOTE_READ,
    abi::FI_REMOTE_WRITE,
];

/// A queue for a direction.
#[derive(Debug, Clone)]
struct Bound {
    queue: Arc<CompletionQueue>,
    sources: Arc<Sources>,
    selective: bool,
}

/// What is bound so far.
#[derive(Debug, Default)]
pub struct Setup {
    vector: Option<Arc<AddressVector>>,
    transmit: Option<Bound>,
    receive: Option<Bound>,
    counters: [Option<Arc<Counter>>; 6],
    event_queue: bool,
    /// What is bound cannot be closed.
    holds: Vec<Hold>,
}

impl Setup {
    /// Binds a vector, queue or counter.
    ///
    /// # Errors
    /// `FI_EINVAL` for anything else, and for what is bound already; `FI_EBADFLAGS`.
    ///
    /// # Safety
    /// `other` is NULL or an open object.
    pub unsafe fn bind(&mut self, other: *mut fid, flags: u64) -> Answer<()> {
        // SAFETY: as promised, for all four.
        unsafe {
            if let Ok(queue) = objects::state::<Queue, _>(other) {
                return self.bind_queue(queue, flags);
            }
            if let Ok(counter) = objects::state::<Cntr, _>(other) {
                return self.bind_counter(counter, flags);
            }
            if let Ok(vector) = objects::state::<Av, _>(other) {
                only(flags, 0)?;
                ensure(self.vector.is_none(), FI_EINVAL)?;
                let (vector, hold) = vector.share();
                self.vector = Some(vector);
                self.holds.push(hold);
                return Ok(());
            }
            let (_, hold) = objects::state::<Events, _>(other)?.share();
            only(flags, 0)?;
            ensure(!self.event_queue, FI_EINVAL)?;
            self.event_queue = true;
            self.holds.push(hold);
            Ok(())
        }
    }

    fn bind_queue(&mut self, queue: &Queue, flags: u64) -> Answer<()> {
        only(flags, SIDES | abi::FI_SELECTIVE_COMPLETION)?;
        ensure(flags & SIDES != 0, FI_EINVAL)?;
        let sends = flags & abi::FI_TRANSMIT != 0;
        let receives = flags & abi::FI_RECV != 0;
        ensure(
            !(sends && self.transmit.is_some() || receives && self.receive.is_some()),
            FI_EINVAL,
        )?;
        let (queue, sources, hold) = queue.share();
        let bound = Bound { queue, sources, selective: flags & abi::FI_SELECTIVE_COMPLETION != 0 };
        if sends {
            self.transmit = Some(bound.clone());
        }
        if receives {
            self.receive = Some(bound);
        }
        self.holds.push(hold);
        Ok(())
    }

    fn bind_counter(&mut self, counter: &Cntr, flags: u64) -> Answer<()> {
        only(flags, COUNTED.into_iter().fold(0, |all, one| all | one))?;
        ensure(flags != 0, FI_EINVAL)?;
        let asked = || (0..COUNTED.len()).filter(|at| flags & COUNTED[*at] != 0);
        ensure(asked().all(|at| self.counters[at].is_none()), FI_EINVAL)?;
        let (counter, hold) = counter.share();
        asked().for_each(|at| self.counters[at] = Some(Arc::clone(&counter)));
        self.holds.push(hold);
        Ok(())
    }

    /// The counter of one kind of operation.
    #[must_use]
    pub fn counter(&self, kind: u64) -> Option<Arc<Counter>> {
        let at = COUNTED.iter().position(|one| *one == kind)?;
        self.counters[at].clone()
    }

    /// The addresses.
    #[must_use]
    pub fn vector(&self) -> Option<Arc<AddressVector>> {
        self.vector.clone()
    }

    /// Where sends, reads and writes are told.
    #[must_use]
    pub fn transmit(&self) -> Side {
        Side {
            messages: self.counter(abi::FI_SEND),
            reads: self.counter(abi::FI_READ),
            writes: self.counter(abi::FI_WRITE),
            ..side(self.transmit.as_ref())
        }
    }

    /// Where receives are told.
    #[must_use]
    pub fn receive(&self) -> Side {
        Side { messages: self.counter(abi::FI_RECV), ..side(self.receive.as_ref()) }
    }

    /// The queue of receives looks senders up in the vector from now on.
    pub fn note_sources(&mut self, vector: &Arc<AddressVector>) {
        for bound in [&self.transmit, &self.receive].into_iter().flatten() {
            bound.sources.add(vector);
        }
    }
}

fn side(bound: Option<&Bound>) -> Side {
    Side {
        queue: bound.map(|bound| Arc::clone(&bound.queue)),
        selective: bound.is_some_and(|bound| bound.selective),
        ..Side::default()
    }
}

/// Collective operations are MPI's here.
pub static COLLECTIVES_REFUSED: fi_ops_collective = fi_ops_collective {
    size: size_of::<fi_ops_collective>(),
    barrier: Some(Refused::REFUSED),
    broadcast: Some(Refused::REFUSED),
    alltoall: Some(Refused::REFUSED),
    allreduce: Some(Refused::REFUSED),
    allgather: Some(Refused::REFUSED),
    reduce_scatter: Some(Refused::REFUSED),
    reduce: Some(Refused::REFUSED),
    scatter: Some(Refused::REFUSED),
    gather: Some(Refused::REFUSED),
    msg: Some(Refused::REFUSED),
    barrier2: Some(Refused::REFUSED),
};
