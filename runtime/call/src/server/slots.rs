//! Which call runs in which process, and which calls wait.

mod objects;
mod worker_task;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use kumi_rpc::{AttemptState, Code, Failure};
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until};

use super::arenas::{Arenas, Block};
use super::callback_requests::{CallbackRequest, CallbackTracker};
use super::held_results::RetainedResults;
use super::owner::Owner;
use super::process::{Process, ProcessAssignment};
use super::registry::OfferedRoutine;
use super::scratch::CallFiles;
use super::slot_channel::PollingBudget;
use super::tickets::TicketGuard;
use super::{Config, Shared};
use crate::layout::Layout;
use objects::Object;
pub use objects::{ObjectEvent, ObjectRequest, ObjectTarget, create};

/// A call whose arguments are in place.
#[derive(Debug)]
pub struct ReadyCall {
    /// Its number.
    pub id: u64,
    /// The stream of its connection.
    pub stream: u32,
    /// The routine.
    pub offered: Arc<OfferedRoutine>,
    /// Whose it is.
    pub owner: Rc<Owner>,
    /// Where its arguments lie.
    pub layout: Layout,
    /// The memory.
    pub block: Rc<Block>,
    /// Its files, if it has some.
    pub files: Option<CallFiles>,
    /// Whether another's data lie in the memory.
    pub foreign: bool,
    /// When it is to be over.
    pub deadline: Option<Instant>,
    /// When it was ready to run.
    pub ready: Instant,
    /// What stays of its results.
    pub retained: Option<Box<RetainedResults>>,
    /// Where its end is told.
    pub told: UnboundedSender<FinishedCall>,
    /// Where functions of the client are asked for.
    pub callback_requests: UnboundedSender<CallbackRequest>,
    /// The ticket with which a metaserver has sent it.
    pub ticket: Option<TicketGuard>,
    /// The object on which it is to run; `None`: any process does.
    pub object: Option<ObjectTarget>,
    /// Whether a process has given it back, as one that another is to be set up for.
    pub given_back: bool,
    /// How many processes have ended that seemed not to have taken it.
    pub untaken: u8,
}

impl ReadyCall {
    /// Whether the bytes of a parameter go to a file.
    pub fn takes_file(&self, parameter: u16) -> bool {
        self.files.as_ref().is_some_and(|files| files.takes(parameter))
    }

    /// Where its files are, and those of other calls that its process may have.
    pub fn scratch(&self) -> Option<&Path> {
        self.files.as_ref().map(CallFiles::place)
    }
}

/// The end of a call.
#[derive(Debug)]
pub struct FinishedCall {
    /// The call.
    pub job: Box<ReadyCall>,
    /// Nanoseconds that it waited and ran, or why it failed.
    pub outcome: Result<(u64, u64), Failure>,
}

/// A call that waits for a slot; not longer than it may.
struct WaitingCall {
    job: Box<ReadyCall>,
    _timer: Option<TaskGuard>,
}

/// A task that ends with this.
struct TaskGuard(AbortHandle);

impl Drop for TaskGuard {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A process and what it does.
struct Worker {
    offered: Arc<OfferedRoutine>,
    /// The one user whom it serves.
    owner: Rc<Owner>,
    /// Where it reaches files of calls.
    scratch: Option<PathBuf>,
    process: RefCell<Process>,
    /// Its call, and when that began.
    job: RefCell<Option<(Box<ReadyCall>, Instant)>>,
    /// Whether it can run calls, or is still being set up.
    set_up: Cell<bool>,
    /// Why it is being killed.
    ending: Cell<Option<Code>>,
    /// It has given its call back.
    outdated: Cell<bool>,
    /// What its call is told then, if not what the code says.
    failing: RefCell<Option<Failure>>,
    /// The functions that its routine calls.
    callback_requests: RefCell<CallbackTracker>,
    /// What it is, if that is an object.
    object: Option<Object>,
    /// It has got a call with a deadline, or one whose end is looked for.
    changed: Notify,
}

impl Worker {
    /// Has it let go of memory that was given up. False: it is of no use, and is killed.
    fn lets_go(&self) -> bool {
        let mut process = self.process.borrow_mut();
        let forgot = process.forget();
        if forgot.is_err() {
            process.kill();
        }
        forgot.is_ok()
    }

    /// One that is yet to be set up, and has no call.
    fn new(
        process: Process,
        offered: Arc<OfferedRoutine>,
        owner: Rc<Owner>,
        scratch: Option<PathBuf>,
    ) -> Worker {
        let callback_requests = RefCell::new(CallbackTracker::new(&offered.interface));
        Worker {
            offered,
            owner,
            scratch,
            process: RefCell::new(process),
            job: RefCell::new(None),
            set_up: Cell::new(false),
            ending: Cell::new(None),
            outdated: Cell::new(false),
            failing: RefCell::new(None),
            callback_requests,
            object: None,
            changed: Notify::new(),
        }
    }

    /// Ends it and its call with this failure, if it does not end anyway.
    fn fail(&self, failure: Failure) {
        if self.ending.get().is_none() {
            self.ending.set(Some(failure.code));
            *self.failing.borrow_mut() = Some(failure);
            self.process.borrow_mut().kill();
        }
    }
}

/// The processes of a server.
pub struct SlotPool {
    slots: usize,
    processes: usize,
    waiting: usize,
    next: u64,
    running: usize,
    queue: VecDeque<WaitingCall>,
    /// The least recently used first.
    idle: VecDeque<Rc<Worker>>,
    busy: Vec<Rc<Worker>>,
    /// Those that are objects, by number, whether they run a call or not.
    objects: BTreeMap<u64, Rc<Worker>>,
    most_objects: usize,
    /// The memory of calls.
    pub arenas: Arenas,
    /// Processors for who looks for what comes next.
    room: PollingBudget,
    /// How many arenas had been given up when idle processes were last told.
    freed: u64,
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn tell(job: Box<ReadyCall>, outcome: Result<(u64, u64), Failure>) {
    if let Some(ticket) = &job.ticket {
        ticket.ended(match &outcome {
            Ok((_, ran_ns)) => AttemptState::Completed(*ran_ns),
            Err(failure) if matches!(failure.code, Code::Crashed | Code::Raised) => {
                AttemptState::Crashed
            }
            Err(_) => AttemptState::Unknown,
        });
    }
    let told = job.told.clone();
    // A connection that has ended needs to know nothing.
    let _gone = told.send(FinishedCall { job, outcome });
}

fn failure(code: Code, detail: i64, job: &ReadyCall) -> Failure {
    let name = &job.offered.interface.name;
    let text = match code {
        Code::TimedOut => format!("`{name}` took longer than it may and was stopped"),
        Code::Cancelled => format!("the call of `{name}` was cancelled"),
        Code::NoTicket => {
            format!(
                "the metaserver has taken back the place of the call of `{name}`, which had not begun"
            )
        }
        Code::Crashed if detail < 0 => {
            format!("`{name}` ended its process with exit code {}", -1 - detail)
        }
        _ => format!("`{name}` crashed: its process was killed by signal {detail}"),
    };
    Failure::new(code, detail, text)
}

impl SlotPool {
    /// No processes yet.
    pub fn new(config: &Config) -> SlotPool {
        let slots = config.slots.max(1);
        SlotPool {
            slots,
            processes: slots + config.warm,
            waiting: config.waiting,
            next: 0,
            running: 0,
            queue: VecDeque::new(),
            idle: VecDeque::new(),
            busy: Vec::new(),
            objects: BTreeMap::new(),
            most_objects: config.objects,
            arenas: Arenas::new(config.bytes),
            // Where that is not known there is none for who looks.
            room: PollingBudget::new(std::thread::available_parallelism().map_or(1, NonZero::get)),
            freed: 0,
        }
    }

    /// A number for a call.
    pub fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Calls that run, and that wait.
    pub fn load(&self) -> (usize, usize) {
        (self.running, self.queue.len())
    }

    /// Ends all calls and processes.
    pub fn end(&mut self) {
        self.queue.clear();
        self.idle.clear();
        self.busy.clear();
        self.objects.clear();
    }

    /// Ends a call that waits or runs; its end is told.
    pub fn cancel(&mut self, id: u64, code: Code) {
        if let Some(index) = self.queue.iter().position(|waiting| waiting.job.id == id) {
            if let Some(WaitingCall { job, .. }) = self.queue.remove(index) {
                let failure = failure(code, 0, &job);
                tell(job, Err(failure));
            }
            return;
        }
        if let Some(worker) = self.runs(id) {
            worker.ending.set(Some(code));
            worker.process.borrow_mut().kill();
        }
    }

    /// Ends a call that its metaserver does not want any more; the client of one that has not begun is told so.
    pub fn take_back(&mut self, id: u64) {
        let waits = self.queue.iter().any(|waiting| waiting.job.id == id);
        self.cancel(id, if waits { Code::NoTicket } else { Code::Cancelled });
    }

    /// The process that runs a call.
    fn runs(&self, id: u64) -> Option<&Rc<Worker>> {
        self.busy
            .iter()
            .find(|worker| worker.job.borrow().as_ref().is_some_and(|(job, _)| job.id == id))
    }

    /// Ends a call that runs with this failure, if it does not end anyway.
    pub fn fail(&mut self, id: u64, failure: Failure) {
        if let Some(worker) = self.runs(id) {
            worker.fail(failure);
        }
    }

    /// A function that the routine of a call has called has returned.
    pub fn resume(&mut self, id: u64, bytes: u64) {
        if let Some(worker) = self.runs(id) {
            worker.callback_requests.borrow_mut().open = false;
            // One that is gone is found out about by its task.
            let _gone = worker.process.borrow_mut().resume(bytes);
        }
    }

    /// Memory for a call of a connection, and whether what lies in it is another connection's. `None`: there is too
    /// little left.
    ///
    /// # Errors
    /// What the system says.
    pub fn memory(
        &mut self,
        owner: &Rc<Owner>,
        client: u64,
        bytes: usize,
    ) -> io::Result<Option<(Rc<Block>, bool)>> {
        let taken = self.arenas.take(owner, client, bytes);
        self.let_go();
        taken
    }

    /// [`SlotPool::memory`], for the client of the connection to map.
    ///
    /// # Errors
    /// What the system says.
    pub fn shared_memory(
        &mut self,
        owner: &Rc<Owner>,
        client: u64,
        bytes: usize,
    ) -> io::Result<Option<Rc<Block>>> {
        let taken = self.arenas.take_shared(owner, client, bytes);
        self.let_go();
        taken
    }

    /// A connection has ended: its client maps nothing more.
    pub fn forget(&mut self, client: u64) {
        self.arenas.forget(client);
        self.let_go();
    }

    /// What is given up is free when no process maps it any more; those that run see to it when they are done.
    fn let_go(&mut self) {
        let freed = self.arenas.freed();
        if std::mem::replace(&mut self.freed, freed) < freed {
            self.idle.retain(|worker| worker.lets_go());
            // One that is of no use any more is found out about by its task.
            self.objects.values().filter(|it| it.job.borrow().is_none()).for_each(|object| {
                object.lets_go();
            });
        }
    }

    /// An idle process for a call's routine, which has served nobody but its user.
    fn idle_for(&mut self, job: &ReadyCall) -> Option<Rc<Worker>> {
        let fits = |worker: &Rc<Worker>| {
            Arc::ptr_eq(&worker.offered, &job.offered)
                && worker.owner == job.owner
                && worker.scratch.as_deref() == job.scratch()
        };
        let index = self.idle.iter().rposition(fits)?;
        self.idle.remove(index)
    }

    /// The first call that waits and can begin, if there is a slot.
    fn next_call(&mut self) -> Option<WaitingCall> {
        let free = self.running < self.slots;
        let index = self.queue.iter().position(|waiting| free && self.can_begin(&waiting.job))?;
        self.queue.remove(index)
    }

    /// Whether a process more may be started; the one that was idle for longest makes room.
    fn make_room(&mut self) {
        while self.idle.len() + self.busy.len() >= self.processes && !self.idle.is_empty() {
            // Its task ends with it.
            if let Some(worker) = self.idle.pop_front() {
                worker.process.borrow_mut().kill();
            }
        }
    }
}

/// Runs a call now or has it wait.
pub fn submit(shared: &Rc<Shared>, job: Box<ReadyCall>) {
    let mut pool = shared.pool.borrow_mut();
    if pool.running < pool.slots && pool.can_begin(&job) {
        drop(pool);
        if !begin(shared, job) {
            free(shared);
        }
        return;
    }
    if pool.queue.len() >= pool.waiting {
        let text = format!("{} calls wait already; try again later", pool.waiting);
        tell(job, Err(Failure::new(Code::Busy, 0, text)));
        return;
    }
    let timer = job.deadline.map(|deadline| {
        let (shared, id) = (Rc::clone(shared), job.id);
        let task = tokio::task::spawn_local(async move {
            sleep_until(deadline).await;
            shared.pool.borrow_mut().cancel(id, Code::TimedOut);
        });
        TaskGuard(task.abort_handle())
    });
    pool.queue.push_back(WaitingCall { job, _timer: timer });
}

/// Gives a call to a process. False: there is none, and its end is told.
fn begin(shared: &Rc<Shared>, job: Box<ReadyCall>) -> bool {
    let mut pool = shared.pool.borrow_mut();
    pool.running += 1;
    let running = pool.running;
    let room = pool.room.is_left(running, Instant::now().into_std());
    if let Some(on) = job.object {
        return objects::begin(pool, on, job, room);
    }
    let mut job = job;
    while let Some(worker) = pool.idle_for(&job) {
        pool.busy.push(Rc::clone(&worker));
        match give(&worker, job, room) {
            Ok(()) => return true,
            // It has died idle, or does not listen; its task buries it.
            Err(back) => {
                worker.process.borrow_mut().kill();
                job = back;
            }
        }
    }
    pool.make_room();
    let duty = ProcessAssignment {
        offered: std::slice::from_ref(&job.offered),
        owner: &job.owner,
        scratch: job.scratch(),
    };
    let started = Process::start(&shared.config, shared.files, duty, &mut pool.arenas);
    let process = match started {
        Ok(process) => process,
        Err(error) => {
            drop(pool);
            let failure = not_started(shared, &job.offered, &error);
            tell(job, Err(failure));
            return false;
        }
    };
    let (offered, owner) = (Arc::clone(&job.offered), Rc::clone(&job.owner));
    let scratch = job.scratch().map(Path::to_owned);
    let mut worker = Worker::new(process, offered, owner, scratch);
    worker.job = RefCell::new(Some((job, Instant::now())));
    let worker = Rc::new(worker);
    pool.busy.push(Rc::clone(&worker));
    tokio::task::spawn_local(worker_task::attend(Rc::clone(shared), worker));
    true
}

/// Why there is no process for a routine.
fn not_started(shared: &Shared, offered: &OfferedRoutine, error: &io::Error) -> Failure {
    let program = offered.program.as_ref().map_or(&shared.config.slot, |program| &program.path);
    let text = format!("the process of a slot ({}) cannot be started: {error}", program.display());
    Failure::new(Code::NotRunnable, 0, text)
}

/// Has a process run a call; the call is given back if the process is gone.
fn give(worker: &Worker, job: Box<ReadyCall>, room: bool) -> Result<(), Box<ReadyCall>> {
    let routine = job.object.map_or(0, |on| on.method);
    let run = worker.process.borrow_mut().run(routine, &job.block, &job.layout.slots, room);
    let Ok(looked_for) = run else { return Err(job) };
    if looked_for || job.deadline.is_some() {
        worker.changed.notify_one();
    }
    *worker.job.borrow_mut() = Some((job, Instant::now()));
    Ok(())
}

/// A slot is free: the next call may run.
fn free(shared: &Rc<Shared>) {
    shared.pool.borrow_mut().running -= 1;
    advance(shared);
}

/// Begins calls that wait, as long as there are slots for them.
fn advance(shared: &Rc<Shared>) {
    loop {
        let next = shared.pool.borrow_mut().next_call();
        let Some(waiting) = next else { return };
        if !begin(shared, waiting.job) {
            shared.pool.borrow_mut().running -= 1;
        }
    }
}
