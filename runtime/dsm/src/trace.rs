//! What this rank's shared memory records while its job is traced. Without a trace each call is a question for a null pointer.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use kumi_coherence::BarrierKind;
use kumi_net::trace::{EventKind, NO_PEER, Span, Tracer};

use crate::context::SharedContext;

/// A tracer that may be missing, and the number of barriers passed.
#[derive(Debug, Clone)]
pub(crate) struct Trace {
    tracer: Option<Arc<Tracer>>,
    /// Of each kind: with effect on memory, without.
    barriers: Arc<[AtomicU32; 2]>,
}

impl Trace {
    pub(crate) fn new(context: &SharedContext) -> Trace {
        Trace { tracer: context.tracer().cloned(), barriers: Arc::default() }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.tracer.is_some()
    }

    pub(crate) fn begin(&self) -> Option<Span> {
        self.tracer.as_ref().map(|tracer| tracer.begin())
    }

    /// What has begun is over: with this rank, this page, lock or the like, and so many pages or bytes.
    pub(crate) fn end(&self, begun: Option<Span>, kind: EventKind, what: (u32, u32, u64)) {
        if let (Some(tracer), Some(begun)) = (&self.tracer, begun) {
            tracer.end(begun, kind, what);
        }
    }

    pub(crate) fn mark(&self, kind: EventKind, what: (u32, u32, u64)) {
        if let Some(tracer) = &self.tracer {
            tracer.mark(kind, what);
        }
    }

    pub(crate) fn note(&self, kind: EventKind, object: u32, amount: u64) {
        self.mark(kind, (NO_PEER, object, amount));
    }

    /// A barrier is passed. Ranks pass the same ones in the same order, so a number names one of them at all ranks.
    pub(crate) fn barrier(&self, begun: Option<Span>, kind: BarrierKind) {
        if self.is_on() {
            let (kind, counter) = match kind {
                BarrierKind::Memory => (EventKind::Barrier, &self.barriers[0]),
                BarrierKind::Plain => (EventKind::Wait, &self.barriers[1]),
            };
            let number = counter.fetch_add(1, Ordering::Relaxed);
            self.end(begun, kind, (NO_PEER, number, 0));
        }
    }

    pub(crate) fn page_bytes(&self, bytes: u32) {
        if let Some(tracer) = &self.tracer {
            tracer.set_page_bytes(bytes);
        }
    }

    pub(crate) fn allocation(&self, pages: &Range<u32>, name: impl FnOnce() -> String) {
        if let Some(tracer) = &self.tracer {
            tracer.allocation(pages.start, pages.end.saturating_sub(pages.start), &name());
        }
    }
}

/// Messages of the protocol. Those between two ranks arrive in order, so a number names one at both.
#[derive(Debug)]
pub(crate) struct MessageTrace {
    tracer: Option<Arc<Tracer>>,
    /// By rank: sent, received. Empty without a tracer.
    numbers: Vec<[u32; 2]>,
}

impl MessageTrace {
    pub(crate) fn new(context: &SharedContext) -> MessageTrace {
        let tracer = context.tracer().cloned();
        let ranks = tracer.as_ref().map_or(0, |_| context.ranks() as usize);
        MessageTrace { tracer, numbers: vec![[0; 2]; ranks] }
    }

    pub(crate) fn sent(&mut self, to: u32, bytes: usize) {
        self.count(EventKind::Send, 0, to, bytes);
    }

    pub(crate) fn received(&mut self, from: u32, bytes: usize) {
        self.count(EventKind::Receive, 1, from, bytes);
    }

    fn count(&mut self, kind: EventKind, way: usize, peer: u32, bytes: usize) {
        let (Some(tracer), Some(numbers)) = (&self.tracer, self.numbers.get_mut(peer as usize))
        else {
            return;
        };
        tracer.mark(kind, (peer, numbers[way], bytes as u64));
        numbers[way] = numbers[way].wrapping_add(1);
    }
}
