//! Sessions: calls that are under way or over.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use kumi_call::{CallError, CallWatch, RemoteCall, WakeEvent, WakeEvents};

use crate::argument::ReturnedValue;
use crate::code::{Code, Failure};
use crate::handle::Handle;
use crate::runtime::{Connection, Runtime, lock};

/// How often a wait looks whether another thread has cancelled the session.
const SLICE: Duration = Duration::from_millis(20);
/// How often a cancellation looks whether the session can be taken.
const LOOKS: usize = 64;
/// Sessions that are over and waited for, of which is known how they ended.
const REMEMBERED: usize = 4096;

/// A call.
pub struct Session {
    /// Its number.
    pub number: c_int,
    /// The handle with which it was made.
    pub handle: Arc<Handle>,
    /// Bytes of arrays and scalars that go and that come back.
    pub bytes: (u64, u64),
    begun: Instant,
    cancelled: AtomicBool,
    /// Who waits for it holds the lock.
    running: Mutex<Option<RunningCall>>,
    ended: OnceLock<SessionOutcome>,
    /// Of threads that wait for several sessions.
    wake_events: WakeEvents,
}

/// How a session ended.
#[derive(Clone, Debug)]
pub struct SessionOutcome {
    /// Whether it failed, and how.
    pub result: Result<(), Failure>,
    /// What it took.
    pub times: Times,
}

/// What a session's call took, as the server says, and in all.
#[derive(Clone, Copy, Debug, Default)]
pub struct Times {
    /// How long it waited for a slot.
    pub waited: Duration,
    /// How long the routine ran.
    pub ran: Duration,
    /// From its begin to when its end was seen.
    pub total: Duration,
}

/// A call that is under way.
pub struct RunningCall {
    /// The call.
    pub call: RemoteCall,
    /// Where scalars and texts go that come back.
    pub back: Vec<ReturnedValue>,
    /// Whether the routine may call functions of the program.
    pub functions: bool,
    /// Through which connection.
    pub connection: Connection,
}

impl RunningCall {
    /// Waits for the end, or for so long; `None`: it is not over.
    fn wait(&mut self, slice: Option<Duration>) -> Option<Result<Times, Failure>> {
        let waited = match slice {
            None => self.call.wait(&|| false).map(Some),
            Some(slice) => self.call.wait_for(slice, &|| false),
        };
        match waited {
            Ok(None) => None,
            Ok(Some(outcome)) => {
                let times =
                    Times { waited: outcome.waited, ran: outcome.ran, total: Duration::ZERO };
                let put = self.back.iter().try_for_each(|back| back.put(&outcome));
                Some(put.map(|()| times))
            }
            Err(error) => Some(Err(self.failed(error))),
        }
    }

    fn failed(&self, error: CallError) -> Failure {
        if let CallError::Status { outcome, .. } = &error {
            for back in &self.back {
                // The status tells more than that a text does not fit its place.
                let _fits = back.put(outcome);
            }
        }
        error.into()
    }
}

/// Runs a call to its end, without a session.
///
/// # Errors
/// How it failed.
pub fn run(runtime: &Runtime, handle: &Handle, mut running: RunningCall) -> Result<(), Failure> {
    let ended = running.wait(None).unwrap_or_else(|| Err(Code::OtherErrorCode.into()));
    settled(runtime, handle, &running.connection, ended).map(|_| ())
}

fn settled(
    runtime: &Runtime,
    handle: &Handle,
    connection: &Connection,
    ended: Result<Times, Failure>,
) -> Result<Times, Failure> {
    if ended.as_ref().is_err_and(|failure| failure.code == Code::CommunicationFailed) {
        runtime.lost(&handle.address, connection);
    }
    ended
}

/// Waits until there is something to be done for one of the sessions, for a slice at most. Those for which other threads wait are
/// left to these, which ring.
///
/// # Errors
/// What the system says.
pub fn wait_for_news(
    sessions: &[Arc<Session>],
    wake_event: &Arc<WakeEvent>,
) -> Result<(), Failure> {
    // Functions of the program are not called with these locks: they may wait for other sessions.
    let held: Vec<_> =
        sessions.iter().filter_map(|session| session.running.try_lock().ok()).collect();
    let calls: Vec<CallWatch> =
        held.iter().filter_map(|running| Some(running.as_ref()?.call.watch())).collect();
    Ok(wake_event.wait(&calls, SLICE)?)
}

impl Session {
    /// Whether it is over, without waiting; then its results are in place.
    pub fn is_over(&self, runtime: &Runtime) -> bool {
        // Otherwise a thread waits for it.
        if let Ok(mut running) = self.running.try_lock()
            && let Some(now) = running.as_ref()
        {
            if now.call.is_over() {
                self.step(runtime, &mut running, None);
            } else if self.cancelled.load(Ordering::Acquire) {
                self.end(runtime, &mut running, Err(Code::Canceled.into()));
            } else if now.functions {
                // Functions that the routine waits for are called by who looks, too.
                self.step(runtime, &mut running, Some(Duration::ZERO));
            }
        }
        self.ended.get().is_some()
    }

    /// Waits for its end, or for so long.
    fn step(&self, runtime: &Runtime, running: &mut Option<RunningCall>, slice: Option<Duration>) {
        if let Some(ended) = running.as_mut().and_then(|running| running.wait(slice)) {
            self.end(runtime, running, ended);
        }
    }

    fn end(
        &self,
        runtime: &Runtime,
        running: &mut Option<RunningCall>,
        ended: Result<Times, Failure>,
    ) {
        // With this the call goes: nothing is written to its arrays any more, and the server is told if it runs.
        let Some(gone) = running.take() else { return };
        let ended = settled(runtime, &self.handle, &gone.connection, ended);
        drop(gone);
        let mut times = ended.as_ref().copied().unwrap_or_default();
        times.total = self.begun.elapsed();
        let ended = SessionOutcome { result: ended.map(|_| ()), times };
        // Only who takes the call away comes here.
        let _first = self.ended.set(ended);
        self.wake();
    }

    /// Waits for its end.
    pub fn wait(&self, runtime: &Runtime) {
        let mut running = lock(&self.running);
        while running.is_some() {
            self.step(runtime, &mut running, Some(SLICE));
            if self.cancelled.load(Ordering::Acquire) {
                self.end(runtime, &mut running, Err(Code::Canceled.into()));
            }
        }
    }

    /// Ends it: nothing is written to its arrays any more. If a thread waits for it, that thread does so.
    pub fn cancel(&self, runtime: &Runtime) {
        self.cancelled.store(true, Ordering::Release);
        self.wake();
        for _ in 0..LOOKS {
            // Who only looks has the lock for a moment; who waits for it has it, and sees the wish within a slice.
            if self.is_over(runtime) {
                return;
            }
            std::thread::yield_now();
        }
    }

    fn wake(&self) {
        self.wake_events.wake();
    }

    /// Has a bell ring when another thread ends or cancels it, or stops waiting for it.
    pub fn listen(&self, wake_event: &Arc<WakeEvent>) {
        self.wake_events.add(wake_event);
    }

    /// Who has this bell waits no longer.
    pub fn stop_listening(&self, wake_event: &Arc<WakeEvent>) {
        self.wake_events.remove(wake_event);
        self.wake_events.wake();
    }

    /// How it ended; `None`: it has not, or nobody has looked.
    pub fn ended(&self) -> Option<&SessionOutcome> {
        self.ended.get()
    }
}

/// Sessions by number.
#[derive(Default)]
pub struct Sessions {
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    last: c_int,
    /// Nobody has waited for their end.
    live: BTreeMap<c_int, Arc<Session>>,
    /// Waited for; the newest of them.
    told: BTreeMap<c_int, Arc<Session>>,
}

impl Sessions {
    /// Adds a call that has begun.
    pub fn add(&self, handle: Arc<Handle>, bytes: (u64, u64), running: RunningCall) -> c_int {
        let mut table = lock(&self.table);
        loop {
            table.last = table.last.checked_add(1).unwrap_or(1);
            let number = table.last;
            if table.live.contains_key(&number) {
                continue;
            }
            table.told.remove(&number);
            let session = Session {
                number,
                handle,
                bytes,
                begun: Instant::now(),
                cancelled: AtomicBool::new(false),
                running: Mutex::new(Some(running)),
                ended: OnceLock::new(),
                wake_events: WakeEvents::default(),
            };
            table.live.insert(number, Arc::new(session));
            return number;
        }
    }

    /// A session, waited for or not.
    ///
    /// # Errors
    /// [`Code::InvalidSessionId`].
    pub fn any(&self, number: c_int) -> Result<Arc<Session>, Failure> {
        let table = lock(&self.table);
        let session = table.live.get(&number).or_else(|| table.told.get(&number)).cloned();
        session.ok_or_else(|| {
            let text =
                format!("{number} is no session, or one that was forgotten long after its end");
            Failure::new(Code::InvalidSessionId, text)
        })
    }

    /// Whether nobody has waited for its end.
    pub fn is_live(&self, number: c_int) -> bool {
        lock(&self.table).live.contains_key(&number)
    }

    /// All that nobody has waited for, the oldest first.
    pub fn live(&self) -> Vec<Arc<Session>> {
        lock(&self.table).live.values().cloned().collect()
    }

    /// Its end was told to the program.
    pub fn tell(&self, number: c_int) {
        let mut table = lock(&self.table);
        if let Some(session) = table.live.remove(&number) {
            table.told.insert(number, session);
            if table.told.len() > REMEMBERED {
                table.told.pop_first();
            }
        }
    }

    /// Ends all that are under way.
    pub fn cancel_all(&self, runtime: &Runtime) {
        for session in self.live() {
            session.cancel(runtime);
        }
    }
}
