//! Task of a worker: handles the replies and the end of a slot process.

use std::os::fd::OwnedFd;
use std::rc::Rc;

use kumi_rpc::{Code, Failure};
use tokio::time::{Instant, sleep_until};

use super::super::Shared;
use super::super::callback_requests::{CallbackRequest, UncheckedCallback, failed};
use super::super::process::{ended, gone};
use super::group::ReachedLimits;
use super::log_lines::{log_idle_end, log_left, note_reached_limits};
use super::objects::{self, Object};
use super::{ReadyCall, Worker, advance, failure, free, give, nanoseconds, submit, tell};
use crate::slot_protocol::{Reply, TAKES_CONTEXT};

/// The failure for an object that its metaserver does not want any more.
fn failure_of_place() -> Failure {
    Failure::new(Code::NoTicket, 0, "the metaserver has withdrawn the place of an object")
}

/// A process is set up: gives it the call that waits for it. `takes`: what else than an order it takes.
fn set_up(shared: &Rc<Shared>, worker: &Rc<Worker>, takes: u64) {
    worker.takes_context.set(takes >= TAKES_CONTEXT);
    worker.set_up.set(true);
    if let Some(object) = &worker.object {
        if !object.note_made() {
            worker.fail(failure_of_place());
        }
        // The client may have called it already.
        return advance(shared);
    }
    let waiting = worker.job.borrow_mut().take();
    if let Some((job, _)) = waiting
        && let Err(back) = give(worker, job, false)
    {
        worker.process.borrow_mut().kill();
        *worker.job.borrow_mut() = Some((back, Instant::now()));
    }
}

/// Logs what a process prints while its call goes on. False: no more will come.
fn log_output(worker: &Worker) -> bool {
    let job = worker.job.borrow();
    let printer = worker.printer(job.as_ref().map(|(job, _)| &**job));
    worker.process.borrow().output().log_some(printer)
}

/// Handles the replies of a process as long as it lives.
pub(super) async fn attend(shared: Rc<Shared>, worker: Rc<Worker>) {
    let (slot_channel, pid) =
        (worker.process.borrow().slot_channel(), worker.process.borrow().pid());
    let gone = gone(pid);
    tokio::pin!(gone);
    let (output, mut prints) = (worker.process.borrow().output(), true);
    let mut ended = false;
    loop {
        let deadline = worker.job.borrow().as_ref().and_then(|(job, _)| job.deadline);
        let said = tokio::select! {
            biased;
            said = slot_channel.reply(), if !ended => said,
            () = &mut gone, if !ended => {
                ended = true;
                continue;
            }
            // Replies from before its end count. Its forks are not heard.
            said = async { slot_channel.last_reply() }, if ended => said,
            () = sleep_until(deadline.unwrap_or_else(Instant::now)),
                if deadline.is_some() && worker.ending.get().is_none() =>
            {
                worker.ending.set(Some(Code::TimedOut));
                worker.process.borrow_mut().kill();
                continue;
            }
            () = worker.changed.notified() => continue,
            readable = output.readable(), if prints && !ended => {
                prints = readable.is_ok() && log_output(&worker);
                continue;
            }
        };
        let (said, descriptor) = said.unzip();
        match said {
            Some(Reply::Callback { parameter, head, bytes }) => {
                ask(
                    &shared,
                    &worker,
                    UncheckedCallback { parameter, head, bytes },
                    descriptor.flatten(),
                );
            }
            Some(Reply::Refused(why)) => worker.fail(failed(0, why)),
            // A reply is not trusted: a callback is still in progress.
            Some(Reply::Done(_) | Reply::Raised(_)) if worker.callback_requests.borrow().open => {
                worker.fail(failed(0, "the routine's process ended a call out of turn"));
            }
            Some(Reply::Done(takes)) if !worker.set_up.get() => set_up(&shared, &worker, takes),
            Some(Reply::Done(ran)) => done(&shared, &worker, Ok(ran)),
            Some(Reply::Raised(why)) if worker.set_up.get() => {
                done(&shared, &worker, Err(Failure::new(Code::Raised, 0, why)));
            }
            last => {
                let why = last.and_then(|reply| final_failure(&worker, reply));
                clean_up(&shared, &worker, why).await;
                return;
            }
        }
    }
}

/// The failure for a call whose process reports its end.
fn final_failure(worker: &Worker, reply: Reply) -> Option<Failure> {
    match reply {
        Reply::Crashed(detail, why) => Some(Failure::new(Code::Crashed, detail, why)),
        Reply::Failed(why) | Reply::Raised(why) => Some(Failure::new(Code::NotRunnable, 0, why)),
        Reply::Outdated => give_back(worker),
        // These were answered before.
        Reply::Done(_) | Reply::Refused(_) | Reply::Callback { .. } => None,
    }
}

/// Sends a callback request to the client's connection.
fn ask(shared: &Shared, worker: &Worker, request: UncheckedCallback, descriptor: Option<OwnedFd>) {
    let job = worker.job.borrow();
    let (Some((job, _)), None) = (job.as_ref(), worker.ending.get()) else { return };
    let mut pool = shared.pool.borrow_mut();
    let most = shared.config.call_bytes;
    let taken =
        worker.callback_requests.borrow_mut().take(request, descriptor, &mut pool.arenas, most);
    pool.let_go();
    match taken {
        Ok((function, head, places, exchange)) => {
            let (id, stream) = (job.id, job.stream);
            // A connection that has ended has cancelled its calls.
            let _gone = job.callback_requests.send(CallbackRequest {
                id,
                stream,
                function,
                head,
                places,
                exchange,
            });
        }
        Err(failure) => worker.fail(failure),
    }
}

/// A call is over, so the process may have another.
fn done(shared: &Rc<Shared>, worker: &Rc<Worker>, ran: Result<u64, Failure>) {
    let Some((job, begun)) = worker.job.borrow_mut().take() else { return };
    worker.process.borrow().output().log_all(worker.printer(Some(&job)));
    if ran.is_err() {
        // A process that was refused may be why.
        note_reached_limits(worker, Some(&job.log));
    }
    {
        let mut pool = shared.pool.borrow_mut();
        pool.busy.retain(|other| !Rc::ptr_eq(other, worker));
        // A process that is being killed runs no other call.
        if worker.ending.get().is_none() {
            let mut process = worker.process.borrow_mut();
            worker.callback_requests.borrow_mut().rest();
            match process.forget() {
                Ok(()) if worker.object.is_some() => {}
                Ok(()) => pool.idle.push_back(Rc::clone(worker)),
                Err(_) => process.kill(),
            }
        }
    }
    let waited = nanoseconds(begun.duration_since(job.ready));
    let slots = job.resources.slots;
    tell(job, ran.map(|ran| (waited, ran)));
    free(shared, slots);
}

/// A process cannot run its call and has not begun it, so another may. If the other cannot either, returns
/// the failure.
fn give_back(worker: &Worker) -> Option<Failure> {
    let mut job = worker.job.borrow_mut();
    let again = job.as_mut().is_some_and(|(job, _)| std::mem::replace(&mut job.given_back, true));
    worker.outdated.set(!again);
    let text = "each process of the slot asks for another to run the call";
    again.then(|| Failure::new(Code::NotRunnable, 0, text))
}

/// Most processes in a row that may end without taking a call. More is no accident: a routine that overwrites
/// its mailbox could otherwise have its call run for ever.
const MOST_UNTAKEN: u8 = 3;

/// Whether a process that has ended had not taken its call.
fn is_untaken(worker: &Worker, job: &mut ReadyCall) -> bool {
    let untaken = worker.process.borrow().slot_channel().is_untaken();
    job.untaken += u8::from(untaken);
    untaken && job.untaken <= MOST_UNTAKEN
}

/// Notes the limits that a process has reached before its end, in the log of its call. Between its calls an object has only a
/// log of its own.
fn note_last_limits(worker: &Worker) -> Option<ReachedLimits> {
    let job = worker.job.borrow();
    let call = job.as_ref().map(|(job, _)| &job.log);
    note_reached_limits(worker, call.or_else(|| worker.object.as_ref().map(Object::log)))
}

/// A process has ended or is broken: fails its call and removes it.
async fn clean_up(shared: &Rc<Shared>, worker: &Rc<Worker>, why: Option<Failure>) {
    shared.pool.borrow_mut().idle.retain(|other| !Rc::ptr_eq(other, worker));
    let by_itself = !worker.process.borrow().was_killed() && worker.ending.get().is_none();
    // A routine that closes its descriptors would live on, and so would its forks.
    worker.process.borrow_mut().kill();
    let child = worker.process.borrow_mut().take_child();
    let detail = ended(child, || log_left(worker)).await;
    let reached = note_last_limits(worker);
    let group = worker.process.borrow_mut().take_group();
    if let Some(group) = group {
        group.remove().await;
    }
    // Until here its call may be cancelled.
    shared.pool.borrow_mut().busy.retain(|other| !Rc::ptr_eq(other, worker));
    let why = why.or_else(|| worker.failing.borrow_mut().take());
    objects::lost(shared, worker, why.as_ref(), detail);
    let job = worker.job.borrow_mut().take();
    let printer = worker.printer(job.as_ref().map(|(job, _)| &**job));
    worker.process.borrow().output().log_all(printer);
    if by_itself && job.is_none() && why.is_none() {
        log_idle_end(worker, detail);
    }
    let unanswered = why.is_none() && worker.ending.get().is_none();
    if let Some((mut job, begun)) = job {
        if unanswered && (worker.outdated.get() || is_untaken(worker, &mut job)) {
            // As if the process had ended before it got the call.
            shared.pool.borrow_mut().taken -= job.resources.slots;
            submit(shared, job);
            // It may wait for others now, which may begin.
            return advance(shared);
        }
        let failed = why.unwrap_or_else(|| match worker.ending.get() {
            Some(Code::TimedOut) => {
                let took = Instant::now().duration_since(begun).as_millis();
                let mut late =
                    failure(Code::TimedOut, i64::try_from(took).unwrap_or(i64::MAX), &job);
                if let Some(function) = worker.callback_requests.borrow().waits_for() {
                    let waits = format!("; it waited for `{function}`, a function of its caller");
                    late.text.push_str(&waits);
                }
                late
            }
            Some(code) => failure(code, 0, &job),
            None => {
                let mut crash = failure(Code::Crashed, detail, &job);
                if let Some(limits) = reached {
                    limits.explain(&job.offered.interface.name, &mut crash);
                }
                crash
            }
        });
        let slots = job.resources.slots;
        tell(job, Err(failed));
        free(shared, slots);
    }
}
