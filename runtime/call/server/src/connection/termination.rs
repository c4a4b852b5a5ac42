//! End of calls: by cancellation, deadline, the end of the client, or the end of the server.

use std::time::Duration;

use kumi_rpc::{Code, Failure};
use tokio::time::Instant;

use super::{CallStage, Connection};
use crate::slots::cancel;

impl Connection {
    /// The limit of a call's time: the shorter one of what the client asks for and the server's.
    pub(super) fn time_limit(&self, asked_ms: u32) -> Option<Duration> {
        let asked = (asked_ms > 0).then(|| Duration::from_millis(asked_ms.into()));
        let limit = self.shared.config.call_time;
        asked.into_iter().chain(limit).min()
    }

    /// The client cancels a call.
    pub(super) fn cancel(&mut self, stream: u32) {
        match self.calls.get(&stream) {
            Some(CallStage::Receiving(..)) => {
                self.drop_coming(stream, Code::Cancelled, "was cancelled");
            }
            Some(CallStage::Holding(_)) => {
                self.drop_holding(stream, Code::Cancelled, "it was cancelled");
            }
            Some(CallStage::Running(id)) => {
                cancel(&self.shared, *id, Code::Cancelled);
            }
            Some(CallStage::Sending(..) | CallStage::SendingHeld(..)) => {}
            None => self.end_object(stream),
        }
    }

    /// Ends a call whose arguments are arriving.
    pub(super) fn drop_coming(&mut self, stream: u32, code: Code, what: &str) {
        if let Some(CallStage::Receiving(job, _)) = self.calls.get(&stream) {
            let text = format!("the call of `{}` {what}", job.offered.interface.name);
            self.give_up(stream, &Failure::new(code, 0, text));
        }
    }

    /// Fails a call whose arguments are arriving.
    pub(super) fn give_up(&mut self, stream: u32, failure: &Failure) {
        self.rpc.fail(stream, failure);
        if let Some(CallStage::Receiving(job, _)) = self.calls.remove(&stream) {
            job.log.end(Err(failure));
            self.forget(*job);
        }
    }

    /// Gives up an array that was arriving to be held.
    fn drop_holding(&mut self, stream: u32, code: Code, why: &str) {
        let is_arriving = matches!(self.calls.get(&stream), Some(CallStage::Holding(_)));
        if is_arriving && let Some(CallStage::Holding(array)) = self.calls.remove(&stream) {
            array.release(&self.shared);
            let text = format!("the array is not held: {why}");
            self.rpc.fail(stream, &Failure::new(code, 0, text));
        }
    }

    /// Ends calls whose arguments have not arrived in time.
    pub(super) fn end_late(&mut self) {
        let deadline = |call: &CallStage| match call {
            CallStage::Receiving(job, _) => job.deadline,
            CallStage::Holding(array) => array.deadline,
            CallStage::Running(_) | CallStage::Sending(..) | CallStage::SendingHeld(..) => None,
        };
        let now = Instant::now();
        let is_late = |call| deadline(call).is_some_and(|deadline| deadline <= now);
        let late: Vec<u32> = self
            .calls
            .iter()
            .filter(|(_, call)| is_late(call))
            .map(|(stream, _)| *stream)
            .collect();
        for stream in late {
            self.drop_coming(stream, Code::TimedOut, "was stopped: its arguments came too late");
            self.drop_holding(stream, Code::TimedOut, "its bytes came too late");
        }
        self.coming = self.calls.values().filter_map(deadline).min();
    }

    /// Releases the memory of results that are written.
    pub(super) fn written(&mut self) {
        while let Some(stream) = self.rpc.send_queue().written() {
            self.rpc.ended(stream);
            // The arguments of a callback are written.
            if !matches!(
                self.calls.get(&stream),
                Some(CallStage::Sending(..) | CallStage::SendingHeld(..))
            ) {
                self.forget_callback(stream);
                continue;
            }
            self.outgoing.remove(&stream);
            match self.calls.remove(&stream) {
                Some(CallStage::Sending(_, block, bytes)) => {
                    self.shared.count(|traffic| &traffic.to_clients, bytes);
                    self.shared.give(block);
                }
                Some(CallStage::SendingHeld(block, _, bytes)) => {
                    self.shared.count(|traffic| &traffic.fetched, bytes);
                    self.shared.give(block);
                }
                _ => {}
            }
            self.forget_callback(stream);
        }
    }

    /// Tells the client that the server ends.
    pub(super) fn end(&mut self) {
        let failure = Failure::new(Code::Ending, 0, "the server ends");
        if self.handshake_permit.is_none() {
            self.rpc.end(&failure);
        } else {
            self.rpc.refuse(failure);
        }
        self.closing = true;
    }

    /// Ends the calls of a client that has left, except those whose results may survive it. Returns the
    /// number of these.
    pub(super) fn leave(&mut self) -> usize {
        if self.counted {
            self.shared.known.set(self.shared.known.get() - 1);
        }
        let mut survivors = 0;
        self.sharing.end();
        let calls: Vec<(u32, CallStage)> = self.calls.drain().collect();
        for (stream, call) in calls {
            match call {
                CallStage::Receiving(job, _) => self.forget(*job),
                CallStage::Holding(array) => array.release(&self.shared),
                CallStage::Running(_) if self.surviving.contains(&stream) => survivors += 1,
                CallStage::Running(id) => cancel(&self.shared, id, Code::Cancelled),
                CallStage::Sending(_, block, _) | CallStage::SendingHeld(block, ..) => {
                    self.shared.give(block);
                }
            }
        }
        self.leave_objects();
        self.shared.pool.borrow_mut().forget(self.number);
        self.shared.owner_lost(self.number);
        survivors
    }
}
