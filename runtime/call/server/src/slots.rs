//! Pool of slot processes, and the queue of calls that wait for one.

pub(super) mod callback_requests;
mod cancellation;
mod group;
mod log_lines;
mod objects;
pub(super) mod output;
pub(super) mod process;
mod resources;
pub(super) mod slot_channel;
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
use super::logs::CallLogHandle;
use super::owner::Owner;
use super::process::{Process, ProcessAssignment};
use super::registry::OfferedRoutine;
use super::scratch::CallFiles;
use super::slot_channel::PollingBudget;
use super::tickets::TicketGuard;
use super::{Config, Shared};
use crate::layout::Layout;
use crate::slot_protocol::CallContext;
pub use cancellation::{cancel, take_back};
use kumi_call_wire::context::{Span, monotonic_ns};
use log_lines::signal;
use objects::Object;
pub use objects::{ObjectEvent, ObjectRequest, ObjectTarget, create};
use output::{CapturedOutput, Printer};
pub use resources::ProcessResources;

/// A call whose arguments are in place.
#[derive(Debug)]
pub struct ReadyCall {
    /// Its number.
    pub id: u64,
    /// The stream of its connection.
    pub stream: u32,
    /// The routine.
    pub offered: Arc<OfferedRoutine>,
    /// Its owner.
    pub owner: Rc<Owner>,
    /// The layout of its arguments.
    pub layout: Layout,
    /// Their memory.
    pub block: Rc<Block>,
    /// Its files, if it has any.
    pub files: Option<CallFiles>,
    /// Whether the memory holds another connection's data.
    pub foreign: bool,
    /// Its deadline.
    pub deadline: Option<Instant>,
    /// The limit of its time, waiting included, by which its deadline is.
    pub time_limit: Option<Duration>,
    /// When it became ready to run.
    pub ready: Instant,
    /// The results that the server is to hold.
    pub retained: Option<Box<RetainedResults>>,
    /// Where to report its end.
    pub finished: UnboundedSender<FinishedCall>,
    /// Where to send callback requests.
    pub callback_requests: UnboundedSender<CallbackRequest>,
    /// The ticket of its attempt, if a metaserver sent it.
    pub ticket: Option<TicketGuard>,
    /// The object on which it runs. `None`: any process will do.
    pub object: Option<ObjectTarget>,
    /// What it prints, if its client wants that.
    pub printed: Option<RefCell<CapturedOutput>>,
    /// Its span, if it is in a trace.
    pub span: Option<Span>,
    /// Its log, for its user.
    pub log: CallLogHandle,
    /// What its process must have.
    pub resources: ProcessResources,
    /// Whether a process gave it back for another process that is set up anew.
    pub given_back: bool,
    /// How many processes have ended without taking it, as far as known.
    pub untaken: u8,
}

impl ReadyCall {
    /// Whether the bytes of a parameter go to a file.
    pub fn takes_file(&self, parameter: u16) -> bool {
        self.files.as_ref().is_some_and(|files| files.takes(parameter))
    }

    /// What its routine may know of it.
    fn context(&self) -> CallContext {
        let deadline_ns = self.deadline.and_then(|deadline| {
            let left = nanoseconds(deadline.saturating_duration_since(Instant::now()));
            // Every Linux has the clock; tokio's instants are of it, too.
            monotonic_ns().ok().map(|now| now.saturating_add(left))
        });
        CallContext { deadline_ns, trace: self.span.map(|span| span.context) }
    }

    /// The folder of its files, and of the other calls of its process.
    pub fn scratch(&self) -> Option<&Path> {
        self.files.as_ref().map(CallFiles::place)
    }
}

/// The end of a call.
#[derive(Debug)]
pub struct FinishedCall {
    /// The call.
    pub job: Box<ReadyCall>,
    /// Nanoseconds of waiting and running, or the failure.
    pub outcome: Result<(u64, u64), Failure>,
}

/// A call that waits for a slot, and the timer of its deadline.
struct WaitingCall {
    job: Box<ReadyCall>,
    _timer: Option<TaskGuard>,
}

/// A task that is aborted when this is dropped.
struct TaskGuard(AbortHandle);

impl Drop for TaskGuard {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A process and its present call.
struct Worker {
    offered: Arc<OfferedRoutine>,
    /// The only user of the process.
    owner: Rc<Owner>,
    /// The folder of its calls' files.
    scratch: Option<PathBuf>,
    resources: ProcessResources,
    process: RefCell<Process>,
    /// Its call, and when that began.
    job: RefCell<Option<(Box<ReadyCall>, Instant)>>,
    /// Whether it is set up and can run calls.
    set_up: Cell<bool>,
    /// Whether it shows routines what they may know of their calls. Executables of earlier versions do not.
    takes_context: Cell<bool>,
    /// Why it is being killed.
    ending: Cell<Option<Code>>,
    /// It has given its call back.
    outdated: Cell<bool>,
    /// The failure for its call then, if not the default text of the code.
    failing: RefCell<Option<Failure>>,
    /// Callback state of its routine.
    callback_requests: RefCell<CallbackTracker>,
    /// Its object, if it is one.
    object: Option<Object>,
    /// Notified for a call with a deadline, or whose reply is polled for.
    changed: Notify,
}

impl Worker {
    /// Tells the process to unmap memory that was given up. False: it is broken and is killed.
    fn unmap_freed(&self) -> bool {
        let mut process = self.process.borrow_mut();
        let forgot = process.forget();
        if forgot.is_err() {
            process.kill();
        }
        forgot.is_ok()
    }

    /// A worker that is not set up yet and has no call.
    fn new(
        process: Process,
        offered: Arc<OfferedRoutine>,
        owner: Rc<Owner>,
        scratch: Option<PathBuf>,
        resources: ProcessResources,
    ) -> Worker {
        let callback_requests = RefCell::new(CallbackTracker::new(&offered.interface));
        Worker {
            offered,
            owner,
            scratch,
            resources,
            process: RefCell::new(process),
            job: RefCell::new(None),
            set_up: Cell::new(false),
            takes_context: Cell::new(false),
            ending: Cell::new(None),
            outdated: Cell::new(false),
            failing: RefCell::new(None),
            callback_requests,
            object: None,
            changed: Notify::new(),
        }
    }

    /// Who prints now.
    fn printer<'a>(&'a self, job: Option<&'a ReadyCall>) -> Printer<'a> {
        let offered = job.map_or(&self.offered, |job| &job.offered);
        let (routine, user) = (offered.interface.name.as_str(), self.owner.user.as_str());
        let passed_on = job.and_then(|job| job.printed.as_ref());
        let object = self.object.as_ref();
        let span = job.map_or_else(|| object?.span(), |job| job.span.as_ref());
        let log = job.map(|job| &job.log).or_else(|| object.map(Object::log));
        Printer { routine, call: job.map(|job| job.id), user, passed_on, span, log }
    }

    /// Ends the process and its call with this failure, unless it is ending already.
    fn fail(&self, failure: Failure) {
        if self.ending.get().is_none() {
            self.ending.set(Some(failure.code));
            *self.failing.borrow_mut() = Some(failure);
            self.process.borrow_mut().kill();
        }
    }
}

/// All slot processes of a server, and the waiting calls.
pub struct SlotPool {
    slots: usize,
    processes: usize,
    waiting: usize,
    next: u64,
    /// Slots that running calls have.
    taken: usize,
    queue: VecDeque<WaitingCall>,
    /// Idle workers, least recently used first.
    idle: VecDeque<Rc<Worker>>,
    busy: Vec<Rc<Worker>>,
    /// Workers that are objects, by number, with or without a call.
    objects: BTreeMap<u64, Rc<Worker>>,
    most_objects: usize,
    /// The memory of calls.
    pub arenas: Arenas,
    /// Decides whether a processor is free for polling.
    room: PollingBudget,
    /// How many arenas had been given up when idle processes were last told.
    freed: u64,
}

/// The memory, if the system has given it.
fn given<T>(taken: io::Result<Option<T>>, bytes: usize, what: &str) -> Option<T> {
    taken.unwrap_or_else(|error| {
        tracing::warn!(%error, bytes, "no memory for {what}");
        None
    })
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
    let finished = job.finished.clone();
    log_lines::log_end(&job, &outcome);
    job.log.end(outcome.as_ref().map(|(_, ran_ns)| *ran_ns));
    // A connection that has ended needs no answer.
    let _gone = finished.send(FinishedCall { job, outcome });
}

fn failure(code: Code, detail: i64, job: &ReadyCall) -> Failure {
    let name = &job.offered.interface.name;
    let text = match code {
        Code::TimedOut => {
            let limit = job.time_limit.unwrap_or_default().as_millis();
            format!("`{name}` took longer than it may and was stopped: its limit is {limit} ms")
        }
        Code::Cancelled => format!("the call of `{name}` was cancelled"),
        Code::NoTicket => {
            format!(
                "the metaserver has withdrawn the place of the call of `{name}`, which had not begun"
            )
        }
        Code::Crashed if detail < 0 => {
            format!("`{name}` ended its process with exit code {}", -1 - detail)
        }
        _ => format!("`{name}` crashed: its process was killed by signal {}", signal(detail)),
    };
    Failure::new(code, detail, text)
}

impl SlotPool {
    /// An empty pool.
    pub fn new(config: &Config) -> SlotPool {
        let slots = config.slots.max(1);
        SlotPool {
            slots,
            processes: slots + config.warm,
            waiting: config.waiting,
            next: 0,
            taken: 0,
            queue: VecDeque::new(),
            idle: VecDeque::new(),
            busy: Vec::new(),
            objects: BTreeMap::new(),
            most_objects: config.objects,
            arenas: Arenas::new(config.bytes),
            // If the number of processors is unknown, none is free for polling.
            room: PollingBudget::new(std::thread::available_parallelism().map_or(1, NonZero::get)),
            freed: 0,
        }
    }

    /// A number for a call.
    pub fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Number of slots that running calls have, and of calls that wait.
    pub fn load(&self) -> (usize, usize) {
        (self.taken, self.queue.len())
    }

    /// Ends all calls and processes.
    pub fn end(&mut self) {
        self.queue.clear();
        self.idle.clear();
        self.busy.clear();
        self.objects.clear();
    }

    /// A callback of a call has returned.
    pub fn resume(&mut self, id: u64, bytes: u64) {
        if let Some(worker) = self.runs(id) {
            worker.callback_requests.borrow_mut().open = false;
            // The worker's task notices a process that is gone.
            let _gone = worker.process.borrow_mut().resume(bytes);
        }
    }

    /// Memory for a call of a connection, and whether it holds another connection's data. `None`: too little
    /// memory is left. `what` it is for is logged then if the system is why.
    pub fn memory(
        &mut self,
        owner: &Rc<Owner>,
        client: u64,
        bytes: usize,
        what: &str,
    ) -> Option<(Rc<Block>, bool)> {
        let taken = self.arenas.take(owner, client, bytes);
        self.let_go();
        given(taken, bytes, what)
    }

    /// [`SlotPool::memory`] that the connection's client may map.
    pub fn shared_memory(
        &mut self,
        owner: &Rc<Owner>,
        client: u64,
        bytes: usize,
    ) -> Option<Rc<Block>> {
        let taken = self.arenas.take_shared(owner, client, bytes);
        self.let_go();
        given(taken, bytes, "a client to map")
    }

    /// A connection has ended: its client maps nothing more.
    pub fn forget(&mut self, client: u64) {
        self.arenas.forget(client);
        self.let_go();
    }

    /// Tells idle processes to unmap memory that was given up. Busy processes do so when they are done.
    fn let_go(&mut self) {
        let freed = self.arenas.freed();
        if std::mem::replace(&mut self.freed, freed) < freed {
            self.idle.retain(|worker| worker.unmap_freed());
            // The worker's task notices a process that is broken.
            self.objects.values().filter(|it| it.job.borrow().is_none()).for_each(|object| {
                object.unmap_freed();
            });
        }
    }

    /// An idle process for a call's routine, which has served only the call's user.
    fn idle_for(&mut self, job: &ReadyCall) -> Option<Rc<Worker>> {
        let fits = |worker: &Rc<Worker>| {
            Arc::ptr_eq(&worker.offered, &job.offered)
                && worker.owner == job.owner
                && worker.scratch.as_deref() == job.scratch()
                && worker.resources == job.resources
        };
        let index = self.idle.iter().rposition(fits)?;
        self.idle.remove(index)
    }

    /// The first waiting call that can begin, if its slots are free.
    fn next_call(&mut self) -> Option<WaitingCall> {
        let free = self.slots.saturating_sub(self.taken);
        if free == 0 {
            return None;
        }
        let calls = self.queue.iter().map(|waiting| &waiting.job);
        let calls = calls.map(|job| (self.can_begin(job), job.resources.slots));
        let index = resources::next(free, calls)?;
        self.queue.remove(index)
    }

    /// Whether a call can begin before all that wait.
    fn can_begin_now(&self, job: &ReadyCall) -> bool {
        // Others that wait while slots are free wait for their objects.
        let held_up = || {
            let many = |waiting: &&WaitingCall| waiting.job.resources.slots > 1;
            self.queue.iter().filter(many).any(|waiting| self.can_begin(&waiting.job))
        };
        self.taken.saturating_add(job.resources.slots) <= self.slots
            && self.can_begin(job)
            && !held_up()
    }

    /// Makes room for one more process by ending the one that was idle for longest.
    fn make_room(&mut self) {
        while self.idle.len() + self.busy.len() >= self.processes && !self.idle.is_empty() {
            // Its task ends with it.
            if let Some(worker) = self.idle.pop_front() {
                worker.process.borrow_mut().kill();
            }
        }
    }
}

/// Runs a call now, or lets it wait.
pub fn submit(shared: &Rc<Shared>, job: Box<ReadyCall>) {
    let mut pool = shared.pool.borrow_mut();
    if pool.can_begin_now(&job) {
        drop(pool);
        let slots = job.resources.slots;
        if !begin(shared, job) {
            free(shared, slots);
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
            cancel(&shared, id, Code::TimedOut);
        });
        TaskGuard(task.abort_handle())
    });
    pool.queue.push_back(WaitingCall { job, _timer: timer });
}

/// Gives a call to a process. False: no process could start, and the call's end was reported.
fn begin(shared: &Rc<Shared>, job: Box<ReadyCall>) -> bool {
    let mut pool = shared.pool.borrow_mut();
    pool.taken += job.resources.slots;
    let taken = pool.taken;
    let room = pool.room.is_left(taken, Instant::now().into_std());
    if let Some(on) = job.object {
        return objects::begin(pool, on, job, room);
    }
    let mut job = job;
    while let Some(worker) = pool.idle_for(&job) {
        pool.busy.push(Rc::clone(&worker));
        match give_next(&worker, job, room) {
            Ok(()) => return true,
            // It died while idle, or does not read; its task cleans up.
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
        resources: job.resources,
        // The order to run has the span of a call.
        span: None,
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
    let (scratch, resources) = (job.scratch().map(Path::to_owned), job.resources);
    let mut worker = Worker::new(process, offered, owner, scratch, resources);
    worker.job = RefCell::new(Some((job, Instant::now())));
    let worker = Rc::new(worker);
    pool.busy.push(Rc::clone(&worker));
    tokio::task::spawn_local(worker_task::attend(Rc::clone(shared), worker));
    true
}

/// The failure for a process that cannot be started.
fn not_started(shared: &Shared, offered: &OfferedRoutine, error: &io::Error) -> Failure {
    let program = offered.program.as_ref().map_or(&shared.config.slot, |program| &program.path);
    let text = format!("the process of a slot ({}) cannot be started: {error}", program.display());
    Failure::new(Code::NotRunnable, 0, text)
}

/// Orders a process that has had calls before to run a call. Returns the call if the process is gone.
fn give_next(worker: &Worker, job: Box<ReadyCall>, room: bool) -> Result<(), Box<ReadyCall>> {
    // A limit that an earlier call has reached must not explain a crash of this one.
    let _earlier = log_lines::note_reached_limits(worker, None);
    give(worker, job, room)
}

/// Orders a process to run a call. Returns the call if the process is gone.
fn give(worker: &Worker, job: Box<ReadyCall>, room: bool) -> Result<(), Box<ReadyCall>> {
    let routine = job.object.map_or(0, |on| on.method);
    let context = if worker.takes_context.get() { job.context() } else { CallContext::default() };
    let slots = &job.layout.slots;
    let run = worker.process.borrow_mut().run(routine, &job.block, slots, context, room);
    let Ok(looked_for) = run else { return Err(job) };
    if looked_for || job.deadline.is_some() {
        worker.changed.notify_one();
    }
    job.log.begin();
    *worker.job.borrow_mut() = Some((job, Instant::now()));
    Ok(())
}

/// So many slots are free: begins the next calls.
fn free(shared: &Rc<Shared>, slots: usize) {
    shared.pool.borrow_mut().taken -= slots;
    advance(shared);
}

/// Begins waiting calls while slots are free.
fn advance(shared: &Rc<Shared>) {
    loop {
        let next = shared.pool.borrow_mut().next_call();
        let Some(waiting) = next else { return };
        let slots = waiting.job.resources.slots;
        if !begin(shared, waiting.job) {
            shared.pool.borrow_mut().taken -= slots;
        }
    }
}
