//! Requests: operations that go on after their call has returned.
//!
//! All ends are told by one queue, whose entries are kept until somebody asks for them. While a request is under way it
//! holds the buffer that it uses, so the memory stays and Python refuses to resize it.
//!
//! Of several threads that wait one has the turn: it waits for an entry of the queue, keeps it, and lets all look again.
//! What is over goes after the turn: an object that gets its buffer back may run code that waits.

use std::cell::Cell;
use std::collections::HashMap;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use kumi_mem::{
    Atomic, CompletionEntry, CompletionQueue, Context, Error, Outcome, PutEnd, PutOptions, Report,
    RequestHandle, SharedBytes, SharedBytesMut,
};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;

use crate::buffer::{Input, Output};
use crate::collective::CollectiveMemory;
use crate::control::rank_of;
use crate::error::{Failure, has_signal, wrong_type};
use crate::message::{tag_of, wanted};
use crate::number::{maybe_name, name, whole};
use crate::state::{State, StateTable, current, number, released};
use crate::turn::LeaderLock;
use crate::window::{NativeWindow, notify_of};

/// Memory that a request uses, and what keeps its object from moving it.
pub enum Memory {
    Read(Input),
    Write(Output),
    Collective(CollectiveMemory),
    None,
}

impl Memory {
    fn read(&self) -> SharedBytes<'_> {
        match self {
            Memory::Read(input) => input.shared(),
            Memory::Write(output) => output.shared().shared(),
            Memory::Collective(memory) => memory.read(),
            Memory::None => SharedBytes::default(),
        }
    }

    fn write(&self) -> SharedBytesMut<'_> {
        match self {
            Memory::Write(output) => output.shared(),
            Memory::Collective(memory) => memory.write(),
            Memory::Read(_) | Memory::None => SharedBytesMut::default(),
        }
    }
}

/// Memory that belongs to a request.
pub struct LentMemory {
    memory: Memory,
    /// Keeps the object from moving the memory although its buffer is held.
    _guard: Option<Py<PyAny>>,
}

impl LentMemory {
    /// Memory, and what keeps its object from moving it.
    pub fn new(memory: Memory, guard: Option<Py<PyAny>>) -> LentMemory {
        LentMemory { memory, _guard: guard }
    }
}

enum Progress {
    UnderWay(Arc<LentMemory>),
    Ended(Result<Outcome, Failure>),
}

struct RequestEntry {
    /// None until its start has returned.
    handle: Option<RequestHandle>,
    progress: Progress,
    /// Nobody will ask for the result.
    abandoned: Arc<AtomicBool>,
}

/// The requests of a rank whose results nobody has taken yet.
#[derive(Default)]
pub struct Requests {
    queue: OnceLock<Arc<CompletionQueue<'static>>>,
    all: StateTable<HashMap<u64, RequestEntry>>,
    /// Who has it takes entries of the queue.
    turn: LeaderLock,
}

impl Requests {
    fn queue(&self, context: &'static Context) -> Result<Arc<CompletionQueue<'static>>, Failure> {
        if let Some(queue) = self.queue.get() {
            return Ok(Arc::clone(queue));
        }
        let made = Arc::new(context.completion_queue()?);
        Ok(Arc::clone(self.queue.get_or_init(|| made)))
    }

    /// Keeps what an entry of the queue says. The result has the buffer: it goes after the turn, and while no table is locked.
    #[must_use]
    fn settle(&self, entry: CompletionEntry) -> Option<Progress> {
        let CompletionEntry { word, result, .. } = entry;
        let mut all = self.all.lock();
        let request = all.get_mut(&word)?;
        if let (Ok(_), Progress::UnderWay(lent)) = (&result, &request.progress)
            && let Memory::Collective(memory) = &lent.memory
        {
            memory.write_back();
        }
        let ended = Progress::Ended(result.map_err(Failure::from));
        let over = std::mem::replace(&mut request.progress, ended);
        if request.abandoned.load(Ordering::Acquire) {
            all.remove(&word);
        }
        Some(over)
    }

    fn ended(&self, word: u64) -> Result<bool, Failure> {
        let all = self.all.lock();
        let request = all.get(&word).ok_or_else(stale)?;
        Ok(matches!(request.progress, Progress::Ended(_)))
    }

    /// Whether a request that is under way has a private copy of some of this memory.
    pub fn copies(&self, start: usize, bytes: usize) -> bool {
        self.all.lock().values().any(|request| match &request.progress {
            Progress::UnderWay(lent) => match &lent.memory {
                Memory::Collective(memory) => memory.copies(start, bytes),
                _ => false,
            },
            Progress::Ended(_) => false,
        })
    }

    /// Gives all buffers back.
    pub fn end(&self, context: &Context) {
        let all = std::mem::take(&mut *self.all.lock());
        for request in all.values() {
            if let (Progress::UnderWay(_), Some(handle)) = (&request.progress, request.handle) {
                // Fails only if the channel is broken, and then nothing is written any more.
                let _ = context.release(handle);
            }
        }
        drop(all);
    }
}

fn stale() -> Failure {
    Failure::new("StaleRequestError", "the result of this request was taken already")
}

/// Takes what the queue has; whether there was something. If another thread waits for the queue, that takes it.
pub fn collect(py: Python<'_>, state: &State) -> Result<bool, Failure> {
    let queue = state.requests.queue(state.context)?;
    let mut over = Vec::new();
    let Some(turn) = state.requests.turn.try_take() else {
        released(py, || state.context.progress())?;
        return Ok(false);
    };
    let mut found = false;
    let result = loop {
        match released(py, || queue.poll()) {
            Ok(Some(entry)) => over.extend(state.requests.settle(entry)),
            Ok(None) => break Ok(found),
            Err(error) => break Err(error.into()),
        }
        found = true;
    };
    drop(turn);
    drop(over);
    result
}

/// Requests that a thread has released while another one may have waited for them.
static RELEASES: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// How many there were when this thread began to wait for the queue.
    static RELEASES_SEEN: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Whether this thread waits for the queue, and what it waits for may have been released meanwhile.
pub fn must_look_again() -> bool {
    RELEASES_SEEN.get().is_some_and(|seen| seen != RELEASES.load(Ordering::Acquire))
}

/// Waits for an entry of the queue. [`Error::Interrupted`] if a request was released meanwhile, which makes no entry.
fn await_queue(py: Python<'_>, queue: &CompletionQueue<'_>) -> Result<CompletionEntry, Error> {
    // This thread has had the interpreter's lock since it last looked, so no release is missed.
    RELEASES_SEEN.set(Some(RELEASES.load(Ordering::Acquire)));
    let result = released(py, || queue.wait());
    RELEASES_SEEN.set(None);
    result
}

/// Waits until something may have ended, and keeps it; whether it was `enough`.
fn await_entry(
    py: Python<'_>,
    state: &State,
    mut enough: impl FnMut() -> Result<bool, Failure>,
) -> Result<bool, Failure> {
    let queue = state.requests.queue(state.context)?;
    let Some(turn) = state.requests.turn.take(py, &mut enough)? else { return Ok(true) };
    let (over, result) = match await_queue(py, &queue) {
        Ok(entry) => (state.requests.settle(entry), enough()),
        // Another thread may have released what this one waits for. The exception of a signal handler does not wait.
        Err(Error::Interrupted) if !has_signal() => (None, enough()),
        Err(Error::NoRequests) => match enough() {
            Ok(false) => (None, Err(Error::NoRequests.into())),
            found => (None, found),
        },
        Err(error) => (None, Err(error.into())),
    };
    drop(turn);
    drop(over);
    result
}

/// An operation that was started.
#[pyclass(frozen, module = "kumi._native")]
pub struct NativeRequest {
    word: u64,
    abandoned: Arc<AtomicBool>,
}

impl NativeRequest {
    /// Starts an operation on memory, which the request holds. A start may wait, as for earlier puts before a notification:
    /// it runs without the interpreter's lock.
    pub fn start<E: Into<Failure>>(
        py: Python<'_>,
        state: &State,
        lent: LentMemory,
        body: impl FnOnce(Report<'_>, &Memory) -> Result<RequestHandle, E>,
    ) -> PyResult<NativeRequest> {
        let queue = state.requests.queue(state.context)?;
        let word = number();
        // Another thread may learn of its end before the start returns.
        let lent = Arc::new(lent);
        let abandoned = Arc::<AtomicBool>::default();
        let entry = RequestEntry {
            handle: None,
            progress: Progress::UnderWay(Arc::clone(&lent)),
            abandoned: Arc::clone(&abandoned),
        };
        state.requests.all.lock().insert(word, entry);
        let started =
            released(py, || body(Report::Queue(&queue, word), &lent.memory).map_err(Into::into));
        let gone = {
            let mut all = state.requests.all.lock();
            match (&started, all.get_mut(&word)) {
                (Ok(handle), Some(entry)) => {
                    entry.handle = Some(*handle);
                    None
                }
                _ => all.remove(&word),
            }
        };
        drop(gone);
        started?;
        Ok(NativeRequest { word, abandoned })
    }

    fn handle(&self, state: &State) -> Result<RequestHandle, Failure> {
        let all = state.requests.all.lock();
        all.get(&self.word).and_then(|request| request.handle).ok_or_else(stale)
    }

    /// Gives the buffer back and forgets the request.
    fn give_up(&self, state: &State) -> Result<(), Failure> {
        let request = state.requests.all.lock().remove(&self.word).ok_or_else(stale)?;
        match (&request.progress, request.handle) {
            (Progress::UnderWay(_), Some(handle)) => match state.context.release(handle) {
                // It has ended, and the queue was not asked yet.
                Err(Error::StaleRequest { .. }) => Ok(()),
                released => Ok(released?),
            },
            _ => Ok(()),
        }
    }
}

#[pymethods]
impl NativeRequest {
    /// Whether it has ended; does not wait.
    fn poll(&self, py: Python<'_>) -> PyResult<bool> {
        let state = current()?;
        if !state.requests.ended(self.word)? {
            collect(py, &state)?;
        }
        Ok(state.requests.ended(self.word)?)
    }

    /// Whether it has ended, as far as is known.
    fn over(&self) -> PyResult<bool> {
        Ok(current()?.requests.ended(self.word)?)
    }

    /// Waits until it has ended. False: another one has, so that somebody else may have to be told before it goes on, or was
    /// released.
    fn wait(&self, py: Python<'_>) -> PyResult<bool> {
        let state = current()?;
        Ok(await_entry(py, &state, || state.requests.ended(self.word))?)
    }

    /// Takes the result of a request that has ended: nothing, a value, or source, tag and length.
    fn take(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let state = current()?;
        if !state.requests.ended(self.word)? {
            return Err(Failure::new("KumiError", "the request is under way").into());
        }
        let request = state.requests.all.lock().remove(&self.word).ok_or_else(stale)?;
        let Progress::Ended(result) = request.progress else { return Err(stale().into()) };
        match result? {
            Outcome::Value(value) => value.into_py_any(py),
            Outcome::Received(status) => (status.from, status.tag, status.len).into_py_any(py),
            Outcome::Cancelled => {
                let text = "the request was cancelled before anything had happened";
                Err(Failure::new("RequestCancelledError", text).into())
            }
            _ => Ok(py.None()),
        }
    }

    /// Stops it if nothing has happened yet.
    fn cancel(&self) -> PyResult<bool> {
        let state = current()?;
        if state.requests.ended(self.word)? {
            return Ok(false);
        }
        match state.context.cancel(self.handle(&state)?) {
            // As for `give_up`.
            Err(Error::StaleRequest { .. }) => Ok(false),
            cancelled => Ok(cancelled.map_err(Failure::from)?),
        }
    }

    /// Gives the buffer back now and forgets the request.
    fn release(&self) -> PyResult<()> {
        let state = current()?;
        let given_up = self.give_up(&state);
        // Threads that wait for it find that it is gone.
        RELEASES.fetch_add(1, Ordering::AcqRel);
        Ok(given_up?)
    }
}

impl Drop for NativeRequest {
    fn drop(&mut self) {
        // If a thread drops it that may not call, or while a call waits, the buffer is held until the request has ended.
        self.abandoned.store(true, Ordering::Release);
        if let Ok(state) = current() {
            // It may be over, and its result taken.
            let _ = self.give_up(&state);
        }
    }
}

/// Waits until at least one of these has ended. False: another one has, as of [`NativeRequest::wait`].
#[pyfunction]
#[allow(clippy::needless_pass_by_value)] // As Python gives it.
pub fn wait_any(py: Python<'_>, requests: Vec<PyRef<'_, NativeRequest>>) -> PyResult<bool> {
    let state = current()?;
    let any = || -> Result<bool, Failure> {
        let mut any = false;
        for request in &requests {
            any |= state.requests.ended(request.word)?;
        }
        Ok(any)
    };
    Ok(await_entry(py, &state, any)?)
}

/// A descriptor that becomes readable when a request has ended; [`collect_ends`] makes it unreadable again.
#[pyfunction]
pub fn ends_descriptor() -> PyResult<i32> {
    let state = current()?;
    let queue = state.requests.queue(state.context)?;
    Ok(queue.descriptor().map_err(Failure::from)?.as_raw_fd())
}

/// Looks for ends without waiting; whether there were some.
#[pyfunction]
pub fn collect_ends(py: Python<'_>) -> PyResult<bool> {
    Ok(collect(py, &*current()?)?)
}

/// Starts a put. `sent`: it has ended when its data may change.
#[pyfunction]
#[pyo3(signature = (window, rank, data, offset, notify, sent, guard))]
pub fn start_put(
    py: Python<'_>,
    window: &NativeWindow,
    #[pyo3(from_py_with = name)] rank: i64,
    data: &Bound<'_, PyAny>,
    #[pyo3(from_py_with = whole)] offset: usize,
    #[pyo3(from_py_with = maybe_name)] notify: Option<i64>,
    sent: bool,
    guard: Option<Py<PyAny>>,
) -> PyResult<NativeRequest> {
    let memory = Memory::Read(Input::of(data, "array")?);
    let (state, window) = window.find()?;
    let to = rank_of(&state, rank)?;
    let notify = notify.map(notify_of).transpose()?;
    let end = if sent { PutEnd::Sent } else { PutEnd::Placed };
    NativeRequest::start(py, &state, LentMemory::new(memory, guard), |report, memory| {
        // SAFETY: the entry of the request holds the buffer until the queue has told the end or it was released.
        unsafe { window.start_put(to, offset, memory.read(), PutOptions { notify, end, report }) }
    })
}

/// Starts a get.
#[pyfunction]
#[pyo3(signature = (window, rank, into, offset, guard))]
pub fn start_get(
    py: Python<'_>,
    window: &NativeWindow,
    #[pyo3(from_py_with = name)] rank: i64,
    into: &Bound<'_, PyAny>,
    #[pyo3(from_py_with = whole)] offset: usize,
    guard: Option<Py<PyAny>>,
) -> PyResult<NativeRequest> {
    let memory = Memory::Write(Output::of(into, "out")?);
    let (state, window) = window.find()?;
    let from = rank_of(&state, rank)?;
    NativeRequest::start(py, &state, LentMemory::new(memory, guard), |report, memory| {
        // SAFETY: as in `start_put`.
        unsafe { window.start_get(from, offset, memory.write(), report) }
    })
}

/// An operation by its name and width.
fn operation_of(operation: &str, numbers: [u64; 2], width: u8) -> Option<Atomic> {
    let [first, second] = numbers;
    let [short, other] = numbers.map(|number| number as u32);
    Some(match (operation, width) {
        ("add", 8) => Atomic::Add64(first),
        ("and", 8) => Atomic::And64(first),
        ("or", 8) => Atomic::Or64(first),
        ("xor", 8) => Atomic::Xor64(first),
        ("swap", 8) => Atomic::Swap64(first),
        ("compare_swap", 8) => Atomic::CompareSwap64 { expected: first, value: second },
        ("add", 4) => Atomic::Add32(short),
        ("and", 4) => Atomic::And32(short),
        ("or", 4) => Atomic::Or32(short),
        ("xor", 4) => Atomic::Xor32(short),
        ("swap", 4) => Atomic::Swap32(short),
        ("compare_swap", 4) => Atomic::CompareSwap32 { expected: short, value: other },
        _ => return None,
    })
}

/// Starts an atomic operation on 4 or 8 bytes. Operands are unsigned; for 4 bytes their lower half counts.
#[pyfunction]
pub fn start_atomic(
    py: Python<'_>,
    window: &NativeWindow,
    operation: &str,
    #[pyo3(from_py_with = name)] rank: i64,
    #[pyo3(from_py_with = whole)] offset: usize,
    numbers: [u64; 2],
    #[pyo3(from_py_with = whole)] width: u8,
) -> PyResult<NativeRequest> {
    let (state, window) = window.find()?;
    let to = rank_of(&state, rank)?;
    let unknown = || wrong_type(format!("there is no atomic {operation} on {width} bytes"));
    let operation = operation_of(operation, numbers, width).ok_or_else(unknown)?;
    let nothing = LentMemory::new(Memory::None, None);
    NativeRequest::start(py, &state, nothing, |report, _| {
        window.start_atomic(to, offset, operation, report)
    })
}

/// Starts a send.
#[pyfunction]
#[pyo3(signature = (to, data, tag, guard))]
pub fn start_send(
    py: Python<'_>,
    #[pyo3(from_py_with = name)] to: i64,
    data: &Bound<'_, PyAny>,
    #[pyo3(from_py_with = name)] tag: i64,
    guard: Option<Py<PyAny>>,
) -> PyResult<NativeRequest> {
    let memory = Memory::Read(Input::of(data, "data")?);
    let state = current()?;
    let (to, tag) = (rank_of(&state, to)?, tag_of(tag)?);
    NativeRequest::start(py, &state, LentMemory::new(memory, guard), |report, memory| {
        // SAFETY: as in `start_put`.
        unsafe { state.context.start_send(to, tag, memory.read(), report) }
    })
}

/// Starts a receive into memory.
#[pyfunction]
#[pyo3(signature = (buffer, source, tag, guard))]
pub fn start_receive(
    py: Python<'_>,
    buffer: &Bound<'_, PyAny>,
    #[pyo3(from_py_with = maybe_name)] source: Option<i64>,
    #[pyo3(from_py_with = maybe_name)] tag: Option<i64>,
    guard: Option<Py<PyAny>>,
) -> PyResult<NativeRequest> {
    let memory = Memory::Write(Output::of(buffer, "buffer")?);
    let state = current()?;
    let (source, tag) = wanted(&state, source, tag)?;
    NativeRequest::start(py, &state, LentMemory::new(memory, guard), |report, memory| {
        // SAFETY: as in `start_put`.
        unsafe { state.context.start_receive(source, tag, memory.write(), report) }
    })
}
