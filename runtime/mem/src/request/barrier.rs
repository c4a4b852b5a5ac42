//! A barrier as a request.

use kumi_net::{SharedBytes, SharedBytesMut};

use crate::collective::BARRIER;
use crate::context::Context;
use crate::error::Error;
use crate::request::schedule::{Round, Schedule, Steps};
use crate::request::{Report, RequestHandle};

/// Dissemination (Hensgen, Finkel, Manber 1988): in round k a rank tells the one 2^k ahead.
struct Barrier {
    ranks: u32,
    distance: u32,
}

impl Schedule for Barrier {
    fn round(&mut self, steps: &mut Steps<'_>) -> Result<Round, Error> {
        if let Some(given) = steps.received().iter().copied().find(|length| *length > 0) {
            let what = "a rank that calls another collective: the message of a barrier";
            return Err(Error::BadLength { what, given, needed: 0 });
        }
        let (me, ranks, distance) = (steps.me(), self.ranks, self.distance);
        if distance >= ranks {
            return Ok(Round::Over);
        }
        self.distance = distance.saturating_mul(2);
        // SAFETY: no memory.
        unsafe {
            let from = (me + ranks - distance) % ranks;
            steps.receive(from, BARRIER, SharedBytesMut::default());
            steps.send((me + distance) % ranks, BARRIER, SharedBytes::default());
        }
        Ok(Round::Started)
    }
}

impl Context {
    /// Begins a barrier and returns at once. The request is over when all ranks have begun theirs. Ranks call this and the
    /// other collective operations in the same order.
    ///
    /// # Errors
    /// [`Error::TooManyRequests`], [`Error::Fault`].
    pub fn start_barrier(&self, report: Report<'_>) -> Result<RequestHandle, Error> {
        let barrier = Barrier { ranks: self.ranks(), distance: 1 };
        // SAFETY: it names no memory.
        unsafe { self.start_schedule(Box::new(barrier), report) }
    }
}
