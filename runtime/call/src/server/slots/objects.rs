//! Objects of classes: processes that keep a state from call to call.
//!
//! An object is made for a connection, by whose stream its client names it, and goes with it. It runs its calls one after the
//! other, in the order in which they were ready; a call that waits for its object has no slot. A call that is ended while it
//! runs ends its object: of the state that it leaves nobody knows anything.

use std::cell::{RefCell, RefMut};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use kumi_rpc::{AttemptState, Code, Failure};
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::Instant;

use super::super::Shared;
use super::super::owner::Owner;
use super::super::process::{Process, ProcessAssignment};
use super::super::registry::OfferedRoutine;
use super::super::tickets::TicketGuard;
use super::{
    ReadyCall, SlotPool, WaitingCall, Worker, give, nanoseconds, not_started, tell, worker_task,
};

/// On what a call runs.
#[derive(Debug, Clone, Copy)]
pub struct ObjectTarget {
    /// The object's number.
    pub id: u64,
    /// The index of the method among those of the class.
    pub method: u32,
}

/// What became of an object.
#[derive(Debug)]
pub struct ObjectEvent {
    /// Its number.
    pub id: u64,
    /// The stream of its connection.
    pub stream: u32,
    /// It is there; or why it is not, or is no more.
    pub object_event: Result<(), Failure>,
}

/// An object that is to be made.
#[derive(Debug)]
pub struct ObjectRequest<'a> {
    /// Its class.
    pub class: &'a str,
    /// The methods of that, at least one.
    pub methods: &'a [Arc<OfferedRoutine>],
    /// Whose it is.
    pub owner: &'a Rc<Owner>,
    /// Where it reaches files of calls.
    pub scratch: Option<PathBuf>,
    /// The stream of its connection.
    pub stream: u32,
    /// Where it is told what becomes of it.
    pub news: UnboundedSender<ObjectEvent>,
    /// The ticket with which a metaserver has sent its client.
    pub ticket: Option<TicketGuard>,
}

/// What a process knows of the object that it is.
pub(super) struct Object {
    id: u64,
    class: String,
    stream: u32,
    news: UnboundedSender<ObjectEvent>,
    /// Until it is there.
    ticket: RefCell<Option<TicketGuard>>,
    since: Instant,
}

impl Object {
    /// It is there. False: the metaserver that has sent its client does not want it any more.
    pub fn is_made(&self) -> bool {
        let ticket = self.ticket.borrow_mut().take();
        let wanted = ticket.as_ref().is_none_or(TicketGuard::runs);
        if wanted {
            if let Some(ticket) = &ticket {
                // Its place is for having it made: what it runs then is between its client and this server.
                ticket.ended(AttemptState::Completed(nanoseconds(self.since.elapsed())));
            }
            self.tell(Ok(()));
        }
        wanted
    }

    /// Tells its connection what became of it.
    fn tell(&self, object_event: Result<(), Failure>) {
        // A connection that has ended needs to know nothing.
        let _gone = self.news.send(ObjectEvent { id: self.id, stream: self.stream, object_event });
    }
}

/// What calls on an object are told that is no more.
fn gone(class: &str, why: &str) -> Failure {
    Failure::new(Code::ObjectLost, 0, format!("the object of `{class}` is no more: {why}"))
}

/// Makes an object of this number; what becomes of it is told where it was said.
///
/// # Errors
/// There are too many, or its process cannot be started.
pub fn create(shared: &Rc<Shared>, id: u64, wanted: ObjectRequest<'_>) -> Result<(), Failure> {
    let ObjectRequest { class, methods, owner, scratch, stream, news, ticket } = wanted;
    let first = methods.first().ok_or_else(|| gone(class, "it has no methods"))?;
    let mut pool = shared.pool.borrow_mut();
    if pool.objects.len() >= pool.most_objects {
        let most = pool.most_objects;
        let text = format!("the server has {most} objects already; try again later");
        return Err(Failure::new(Code::Busy, i64::try_from(most).unwrap_or(i64::MAX), text));
    }
    let duty = ProcessAssignment { offered: methods, owner, scratch: scratch.as_deref() };
    let process = Process::start(&shared.config, shared.files, duty, &mut pool.arenas)
        .map_err(|error| not_started(shared, first, &error))?;
    let mut worker = Worker::new(process, Arc::clone(first), Rc::clone(owner), scratch);
    let (class, since) = (class.to_owned(), Instant::now());
    let ticket = RefCell::new(ticket);
    worker.object = Some(Object { id, class, stream, news, ticket, since });
    let worker = Rc::new(worker);
    pool.objects.insert(id, Rc::clone(&worker));
    tokio::task::spawn_local(worker_task::attend(Rc::clone(shared), worker));
    Ok(())
}

/// Has an object run a call, for which there is a slot. False: the object is no more, and the call's end is told.
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
    if let Err(back) = give(&worker, job, room) {
        // It has died idle, or does not listen; its task buries it.
        worker.process.borrow_mut().kill();
        *worker.job.borrow_mut() = Some((back, Instant::now()));
    }
    true
}

/// A process is gone: if it was an object, who waits for that is told.
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
        (None, Some(_)) => "it or a call of it was ended".to_owned(),
        (None, None) if detail < 0 => format!("its process ended with exit code {}", -1 - detail),
        (None, None) => format!("its process was killed by signal {detail}"),
    };
    for WaitingCall { job, .. } in waiting {
        tell(job, Err(gone(&object.class, &said)));
    }
    object.tell(Err(match why {
        Some(failure) if !worker.set_up.get() => failure.clone(),
        _ => gone(&object.class, &said),
    }));
}

impl SlotPool {
    /// Whether a call can begin if there is a slot: its object, if it has one, is there and does nothing, or is no more.
    pub(super) fn can_begin(&self, job: &ReadyCall) -> bool {
        let object = job.object.and_then(|on| self.objects.get(&on.id));
        object.is_none_or(|worker| {
            worker.set_up.get() && worker.job.borrow().is_none() && worker.ending.get().is_none()
        })
    }

    /// Takes the calls that wait for an object out of the queue.
    fn waiting_for(&mut self, id: u64) -> VecDeque<WaitingCall> {
        let is_of = |waiting: &WaitingCall| waiting.job.object.is_some_and(|on| on.id == id);
        let (theirs, others) = std::mem::take(&mut self.queue).into_iter().partition(is_of);
        self.queue = others;
        theirs
    }

    /// Ends an object, and what it runs.
    pub fn end_object(&mut self, id: u64) {
        if let Some(worker) = self.objects.get(&id) {
            if worker.ending.get().is_none() {
                worker.ending.set(Some(Code::Cancelled));
            }
            worker.process.borrow_mut().kill();
        }
    }
}
