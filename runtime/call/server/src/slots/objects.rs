//! Objects of classes: processes that keep state between calls.
//!
//! - An object belongs to a connection, whose client names it by a stream, and ends with it.
//! - It runs its calls one after the other, in the order in which they became ready. A call that waits for
//!   its object takes no slot.
//! - Ending a running call ends the object, because its state is then unknown.

use std::cell::{RefCell, RefMut};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use kumi_call_wire::context::{Span, shown};
use kumi_rpc::{AttemptState, Code, Failure};
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::Instant;

use super::super::Shared;
use super::super::logs::CallLogHandle;
use super::super::owner::Owner;
use super::super::process::{Process, ProcessAssignment};
use super::super::registry::OfferedRoutine;
use super::super::tickets::TicketGuard;
use super::{
    ProcessResources, ReadyCall, SlotPool, WaitingCall, Worker, give_next, nanoseconds,
    not_started, tell, worker_task,
};

/// The object and method of a call.
#[derive(Debug, Clone, Copy)]
pub struct ObjectTarget {
    /// The number of the object.
    pub id: u64,
    /// Index of the method in the class.
    pub method: u32,
}

/// An event of an object.
#[derive(Debug)]
pub struct ObjectEvent {
    /// Its number.
    pub id: u64,
    /// The stream of its connection.
    pub stream: u32,
    /// It exists; or the failure if it could not be made or has ended.
    pub object_event: Result<(), Failure>,
}

/// A request to make an object.
#[derive(Debug)]
pub struct ObjectRequest<'a> {
    /// Its class.
    pub class: &'a str,
    /// The methods of the class, at least one.
    pub methods: &'a [Arc<OfferedRoutine>],
    /// Its owner.
    pub owner: &'a Rc<Owner>,
    /// The folder of its calls' files.
    pub scratch: Option<PathBuf>,
    /// What its process has, and each call on it.
    pub resources: ProcessResources,
    /// The stream of its connection.
    pub stream: u32,
    /// Where to report its events.
    pub news: UnboundedSender<ObjectEvent>,
    /// The ticket of the request, if a metaserver sent it.
    pub ticket: Option<TicketGuard>,
    /// Its span, if its making is in a trace.
    pub span: Option<Span>,
    /// Its log, for its user.
    pub log: CallLogHandle,
}

/// Object state of a worker.
pub(super) struct Object {
    id: u64,
    class: String,
    stream: u32,
    news: UnboundedSender<ObjectEvent>,
    /// The ticket, until the object exists.
    ticket: RefCell<Option<TicketGuard>>,
    since: Instant,
    /// Its span, if its making is in a trace.
    span: Option<Span>,
    log: CallLogHandle,
}

impl Object {
    /// Marks the object as made. False: the metaserver does not want it any more.
    pub fn note_made(&self) -> bool {
        let ticket = self.ticket.borrow_mut().take();
        let wanted = ticket.as_ref().is_none_or(TicketGuard::runs);
        if wanted {
            if let Some(ticket) = &ticket {
                // The metaserver's placement covers only the making. Later calls are between client and
                // server.
                ticket.ended(AttemptState::Completed(nanoseconds(self.since.elapsed())));
            }
            self.log.begin();
            self.log_made();
            self.tell(Ok(()));
        }
        wanted
    }

    /// Logs that the object is made, if that is in a trace.
    fn log_made(&self) {
        let ([trace, span, parent], Some(_)) = (shown(self.span()), self.span()) else { return };
        let (object, class, user) = (self.id, self.class.as_str(), self.log.user());
        tracing::info!(object, class, user, trace, span, parent, "is made");
    }

    /// Its span, if its making is in a trace.
    pub fn span(&self) -> Option<&Span> {
        self.span.as_ref()
    }

    /// Its log.
    pub fn log(&self) -> &CallLogHandle {
        &self.log
    }

    /// Ends its log. It may have been released.
    fn log_end(&self, ending: Option<Code>, failure: &Failure) {
        let released = || {
            let text = format!("the object of `{}` was released", self.class);
            Failure::new(Code::Cancelled, 0, text)
        };
        match ending {
            Some(Code::Cancelled) => self.log.end(Err(&released())),
            _ => self.log.end(Err(failure)),
        }
    }

    /// Reports an event to the object's connection.
    fn tell(&self, object_event: Result<(), Failure>) {
        // A connection that has ended needs no answer.
        let _gone = self.news.send(ObjectEvent { id: self.id, stream: self.stream, object_event });
    }
}

/// The failure of a call on an object that has ended.
fn gone(class: &str, why: &str) -> Failure {
    Failure::new(Code::ObjectLost, 0, format!("the object of `{class}` is no more: {why}"))
}

/// The failure of an object that is not made, which its log has, too.
fn refused(log: &CallLogHandle, failure: Failure) -> Failure {
    log.end(Err(&failure));
    failure
}

/// Makes an object with this number. Its events go to the sender in the request.
///
/// # Errors
/// There are too many objects, or the process cannot be started.
pub fn create(shared: &Rc<Shared>, id: u64, wanted: ObjectRequest<'_>) -> Result<(), Failure> {
    let ObjectRequest { class, methods, owner, resources, stream, span, log, .. } = wanted;
    let first = methods.first().ok_or_else(|| gone(class, "it has no methods"))?;
    let mut pool = shared.pool.borrow_mut();
    if pool.objects.len() >= pool.most_objects {
        let most = pool.most_objects;
        let text = format!("the server has {most} objects already; try again later");
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        return Err(refused(&log, Failure::new(Code::Busy, most, text)));
    }
    let duty = ProcessAssignment {
        offered: methods,
        owner,
        scratch: wanted.scratch.as_deref(),
        resources,
        span: span.as_ref(),
    };
    let process = Process::start(&shared.config, shared.files, duty, &mut pool.arenas)
        .map_err(|error| refused(&log, not_started(shared, first, &error)))?;
    let (first, owner, scratch) = (Arc::clone(first), Rc::clone(owner), wanted.scratch);
    let mut worker = Worker::new(process, first, owner, scratch, resources);
    let (class, since) = (class.to_owned(), Instant::now());
    let (ticket, news) = (RefCell::new(wanted.ticket), wanted.news);
    worker.object = Some(Object { id, class, stream, news, ticket, since, span, log });
    let worker = Rc::new(worker);
    pool.objects.insert(id, Rc::clone(&worker));
    tokio::task::spawn_local(worker_task::attend(Rc::clone(shared), worker));
    Ok(())
}

/// Lets an object run a call, for which a slot is free. False: the object has ended, and the call's end was
/// reported.
pub(super) fn begin(
    pool: RefMut<'_, SlotPool>,
    on: ObjectTarget,
    job: Box<ReadyCall>,
    room: bool,
) -> bool {
    let mut pool = pool;
    let Some(worker) = pool.objects.get(&on.id).cloned() else {
        drop(pool);
        let failure = gone(&job.offered.interface.class, "it ended before the call began");
        tell(job, Err(failure));
        return false;
    };
    pool.busy.push(Rc::clone(&worker));
    worker.callback_requests.borrow_mut().are_of(&job.offered.interface);
    if let Err(back) = give_next(&worker, job, room) {
        // It died while idle, or does not read; its task cleans up.
        worker.process.borrow_mut().kill();
        *worker.job.borrow_mut() = Some((back, Instant::now()));
    }
    true
}

/// A process has ended. If it was an object, its connection is told.
pub(super) fn lost(shared: &Rc<Shared>, worker: &Worker, why: Option<&Failure>, detail: i64) {
    let Some(object) = &worker.object else { return };
    let waiting = {
        let mut pool = shared.pool.borrow_mut();
        pool.objects.remove(&object.id);
        pool.waiting_for(object.id)
    };
    let said = match (why, worker.ending.get()) {
        (Some(failure), _) => failure.text.clone(),
        (None, Some(Code::TimedOut)) => "a call of it took longer than it may".to_owned(),
        (None, Some(_)) => "it or one of its calls was ended".to_owned(),
        (None, None) if detail < 0 => format!("its process ended with exit code {}", -1 - detail),
        (None, None) => format!("its process was killed by signal {detail}"),
    };
    for WaitingCall { job, .. } in waiting {
        tell(job, Err(gone(&object.class, &said)));
    }
    let failure = match why {
        Some(failure) if !worker.set_up.get() => failure.clone(),
        _ => gone(&object.class, &said),
    };
    object.log_end(worker.ending.get(), &failure);
    object.tell(Err(failure));
}

impl SlotPool {
    /// Whether a call could begin in a free slot. Its object, if any, must be idle or gone.
    pub(super) fn can_begin(&self, job: &ReadyCall) -> bool {
        let object = job.object.and_then(|on| self.objects.get(&on.id));
        object.is_none_or(|worker| {
            worker.set_up.get() && worker.job.borrow().is_none() && worker.ending.get().is_none()
        })
    }

    /// Removes the calls that wait for an object from the queue.
    fn waiting_for(&mut self, id: u64) -> VecDeque<WaitingCall> {
        let is_of = |waiting: &WaitingCall| waiting.job.object.is_some_and(|on| on.id == id);
        let (theirs, others) = std::mem::take(&mut self.queue).into_iter().partition(is_of);
        self.queue = others;
        theirs
    }

    /// Ends an object and the call that it runs.
    pub fn end_object(&mut self, id: u64) {
        if let Some(worker) = self.objects.get(&id) {
            if worker.ending.get().is_none() {
                worker.ending.set(Some(Code::Cancelled));
            }
            worker.process.borrow_mut().kill();
        }
    }
}
