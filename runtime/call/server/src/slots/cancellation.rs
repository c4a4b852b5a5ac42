//! Ending calls that somebody does not want any more.

use std::rc::Rc;

use kumi_rpc::{Code, Failure};

use super::super::Shared;
use super::{ReadyCall, SlotPool, WaitingCall, Worker, advance, failure, tell};

/// The failure of a call that ends while it waits for a slot.
fn waiting_failure(code: Code, job: &ReadyCall) -> Failure {
    let mut failure = failure(code, 0, job);
    if code == Code::TimedOut {
        let limit = job.time_limit.unwrap_or_default().as_millis();
        let awaited = if job.object.is_some() { "its object" } else { "a slot" };
        failure.text = format!(
            "`{}` has not begun: it waited for {awaited} until its time limit of {limit} ms",
            job.offered.interface.name
        );
    }
    failure
}

/// Ends a call that waits or runs, and reports its end.
pub fn cancel(shared: &Rc<Shared>, id: u64, code: Code) {
    if shared.pool.borrow_mut().cancel(id, code) {
        // Others may have waited until this one had all of its slots.
        advance(shared);
    }
}

/// Ends a call that its metaserver does not want any more. If it has not begun, the client is told so.
pub fn take_back(shared: &Rc<Shared>, id: u64) {
    let waits = shared.pool.borrow().queue.iter().any(|waiting| waiting.job.id == id);
    cancel(shared, id, if waits { Code::NoTicket } else { Code::Cancelled });
}

impl SlotPool {
    /// Ends a call. Whether it was waiting.
    fn cancel(&mut self, id: u64, code: Code) -> bool {
        if let Some(index) = self.queue.iter().position(|waiting| waiting.job.id == id) {
            if let Some(WaitingCall { job, .. }) = self.queue.remove(index) {
                let failure = waiting_failure(code, &job);
                tell(job, Err(failure));
            }
            return true;
        }
        if let Some(worker) = self.runs(id) {
            worker.ending.set(Some(code));
            worker.process.borrow_mut().kill();
        }
        false
    }

    /// The worker that runs a call.
    pub(super) fn runs(&self, id: u64) -> Option<&Rc<Worker>> {
        self.busy
            .iter()
            .find(|worker| worker.job.borrow().as_ref().is_some_and(|(job, _)| job.id == id))
    }

    /// Ends a running call with this failure, unless it is ending already.
    pub fn fail(&mut self, id: u64, failure: Failure) {
        if let Some(worker) = self.runs(id) {
            worker.fail(failure);
        }
    }
}
