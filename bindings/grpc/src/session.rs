//! Sessions: calls in progress or over.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use kumi_call_client::{CallError, CallWatch, RemoteCall, WakeEvent, WakeEvents};

use crate::code::{Code, Failure};
use crate::handle::Handle;
use crate::held::ClaimedResult;
use crate::returned::ReturnedValue;
use crate::runtime::{Connection, Runtime, lock};

/// Interval at which a wait checks whether another thread has cancelled the session.
const SLICE: Duration = Duration::from_millis(20);
/// Interval at which a cancellation tries to take the session.
const LOOKS: usize = 64;
/// Number of finished sessions whose outcome is kept after a wait.
const REMEMBERED: usize = 4096;

/// A call.
pub struct Session {
    /// Its number.
    pub number: c_int,
    /// The handle with which it was made.
    pub handle: Arc<Handle>,
    /// Bytes of arrays and scalars sent and returned.
    pub bytes: (u64, u64),
    begun: Instant,
    cancelled: AtomicBool,
    /// The waiting thread holds the lock.
    running: Mutex<Option<RunningCall>>,
    ended: OnceLock<SessionOutcome>,
    /// Wake-ups of threads that wait for several sessions.
    wake_events: WakeEvents,
}

/// Outcome of a session.
#[derive(Clone, Debug)]
pub struct SessionOutcome {
    /// Its failure, if any.
    pub result: Result<(), Failure>,
    /// Its times.
    pub times: Times,
}

/// Times of a session's call, measured by the server and here.
#[derive(Clone, Copy, Debug, Default)]
pub struct Times {
    /// Time that it waited for a slot.
    pub waited: Duration,
    /// Time that the routine ran.
    pub ran: Duration,
    /// Time from its begin until its end was seen.
    pub total: Duration,
}

/// A call in progress.
pub struct RunningCall {
    /// The call.
    pub call: RemoteCall,
    /// Destinations of scalars and texts.
    pub back: Vec<ReturnedValue>,
    /// Results that stay at the server.
    pub made: Vec<ClaimedResult>,
    /// Whether the routine may call callbacks.
    pub functions: bool,
    /// Its connection.
    pub connection: Connection,
    /// Copies of arguments. Dropped after the call, which refers to them.
    pub _copies: Vec<Box<[u8]>>,
}

impl RunningCall {
    /// Waits for the end, at most this time; `None`: it is not over.
    fn wait(&mut self, slice: Duration) -> Option<Result<Times, Failure>> {
        match self.call.wait_for(slice, &|| false) {
            Ok(None) => None,
            Ok(Some(outcome)) => {
                let times =
                    Times { waited: outcome.waited, ran: outcome.ran, total: Duration::ZERO };
                self.made.drain(..).for_each(ClaimedResult::settle);
                let put = self.back.iter().try_for_each(|back| back.put(&outcome));
                Some(put.map(|()| times))
            }
            Err(error) => Some(Err(self.failed(error))),
        }
    }

    fn failed(&mut self, error: CallError) -> Failure {
        if let CallError::Status { outcome, .. } = &error {
            self.made.drain(..).for_each(ClaimedResult::settle);
            for back in &self.back {
                // A failure status tells more than a text that does not fit.
                let _fits = back.put(outcome);
            }
        }
        error.into()
    }
}

/// Runs a call to its end, without a session. Functions of sessions run meanwhile.
///
/// # Errors
/// The failure of the call.
pub fn run(runtime: &Runtime, handle: &Handle, mut running: RunningCall) -> Result<(), Failure> {
    let mut sleeper = Sleeper::default();
    let ended = loop {
        let others = runtime.sessions.serve(runtime);
        let slice = if others.is_empty() { SLICE } else { Duration::ZERO };
        if let Some(ended) = running.wait(slice) {
            break ended;
        }
        if !others.is_empty() {
            sleeper.sleep(vec![running.call.watch()], &others)?;
        }
    };
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

/// Lets a thread sleep until a call needs attention.
#[derive(Default)]
pub struct Sleeper {
    /// Made when it is needed: it takes file descriptors.
    wake_event: Option<Arc<WakeEvent>>,
}

impl Sleeper {
    /// What wakes the thread from other threads.
    ///
    /// # Errors
    /// The process has too many files open.
    pub fn wake_event(&mut self) -> Result<&Arc<WakeEvent>, Failure> {
        if self.wake_event.is_none() {
            let made = WakeEvent::new().map_err(|error| {
                let text = format!("several sessions cannot be waited for: {error}");
                Failure::new(Code::OtherErrorCode, text)
            })?;
            self.wake_event = Some(made);
        }
        self.wake_event.as_ref().ok_or_else(|| Code::OtherErrorCode.into())
    }

    /// Waits until one of the calls needs attention, or a routine calls a function of the `others`, for at most a slice. The
    /// others are not locked meanwhile: another thread may begin to wait for them.
    ///
    /// # Errors
    /// An error of the operating system.
    pub fn sleep(
        &mut self,
        mut calls: Vec<CallWatch>,
        others: &[Arc<Session>],
    ) -> Result<(), Failure> {
        calls.extend(others.iter().filter_map(|session| session.watch()));
        Ok(self.wake_event()?.wait(&calls, SLICE)?)
    }

    /// [`Sleeper::sleep`] for sessions. Those for which other threads wait are left to those threads, which send a wake-up.
    ///
    /// # Errors
    /// An error of the operating system.
    pub fn sleep_for(
        &mut self,
        sessions: &[Arc<Session>],
        others: &[Arc<Session>],
    ) -> Result<(), Failure> {
        // Callbacks run without these locks, because they may wait for other sessions.
        let held: Vec<_> =
            sessions.iter().filter_map(|session| session.running.try_lock().ok()).collect();
        let calls = held.iter().filter_map(|running| Some(running.as_ref()?.call.watch()));
        self.sleep(calls.collect(), others)
    }
}

impl Session {
    /// Whether it is over, without waiting; its results are then in place.
    pub fn is_over(&self, runtime: &Runtime) -> bool {
        // Otherwise another thread waits for it.
        if let Ok(mut running) = self.running.try_lock()
            && let Some(now) = running.as_ref()
        {
            if now.call.is_over() {
                self.step(runtime, &mut running, Duration::ZERO);
            } else if self.cancelled.load(Ordering::Acquire) {
                self.end(runtime, &mut running, Err(Code::Canceled.into()));
            } else if now.functions {
                // A probing thread also runs callbacks for which the routine waits.
                self.step(runtime, &mut running, Duration::ZERO);
            }
        }
        self.ended.get().is_some()
    }

    /// Waits for its end, at most this time.
    fn step(&self, runtime: &Runtime, running: &mut Option<RunningCall>, slice: Duration) {
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
        // This drops the call: nothing is written to its arrays any more, and the server is notified if it runs.
        let Some(gone) = running.take() else { return };
        let ended = settled(runtime, &self.handle, &gone.connection, ended);
        drop(gone);
        let mut times = ended.as_ref().copied().unwrap_or_default();
        times.total = self.begun.elapsed();
        let ended = SessionOutcome { result: ended.map(|_| ()), times };
        // Only the thread that takes the call comes here.
        let _first = self.ended.set(ended);
        self.wake();
    }

    /// Waits for its end, at most for a slice; whether it is over.
    pub fn wait_slice(&self, runtime: &Runtime) -> bool {
        self.look(runtime, &mut lock(&self.running), SLICE);
        self.ended.get().is_some()
    }

    /// Runs its functions for which the routine waits, and sees whether it is over or its time is. Does nothing while another
    /// thread waits for it.
    pub fn attend(&self, runtime: &Runtime) -> bool {
        if let Ok(mut running) = self.running.try_lock() {
            self.look(runtime, &mut running, Duration::ZERO);
        }
        self.ended.get().is_some()
    }

    fn look(&self, runtime: &Runtime, running: &mut Option<RunningCall>, slice: Duration) {
        self.step(runtime, running, slice);
        if self.cancelled.load(Ordering::Acquire) {
            self.end(runtime, running, Err(Code::Canceled.into()));
        }
    }

    /// For waits; `None`: it is over, or another thread attends to it.
    fn watch(&self) -> Option<CallWatch> {
        let running = self.running.try_lock().ok()?;
        Some(running.as_ref()?.call.watch())
    }

    /// Cancels it: nothing is written to its arrays any more. If a thread waits for it, that thread cancels it.
    pub fn cancel(&self, runtime: &Runtime) {
        self.cancelled.store(true, Ordering::Release);
        self.wake();
        for _ in 0..LOOKS {
            // A probing thread has the lock for a moment. A waiting thread keeps it, and sees the request within a slice.
            if self.is_over(runtime) {
                return;
            }
            std::thread::yield_now();
        }
    }

    fn wake(&self) {
        self.wake_events.wake();
    }

    /// Sends a wake-up when another thread ends or cancels it, or stops waiting for it.
    pub fn listen(&self, wake_event: &Arc<WakeEvent>) {
        self.wake_events.add(wake_event);
    }

    /// Removes a wake-up; its thread no longer waits.
    pub fn stop_listening(&self, wake_event: &Arc<WakeEvent>) {
        self.wake_events.remove(wake_event);
        self.wake_events.wake();
    }

    /// Its outcome; `None`: it has not ended, or its end was not seen yet.
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
    /// Sessions whose end was not waited for.
    live: BTreeMap<c_int, Arc<Session>>,
    /// The latest sessions that were waited for.
    told: BTreeMap<c_int, Arc<Session>>,
    /// Sessions with functions that are not known to be over.
    with_functions: Vec<Arc<Session>>,
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
            let functions = running.functions;
            let session = Arc::new(Session {
                number,
                handle,
                bytes,
                begun: Instant::now(),
                cancelled: AtomicBool::new(false),
                running: Mutex::new(Some(running)),
                ended: OnceLock::new(),
                wake_events: WakeEvents::default(),
            });
            if functions {
                table.with_functions.push(Arc::clone(&session));
            }
            table.live.insert(number, session);
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

    /// Whether its end was not waited for yet.
    pub fn is_live(&self, number: c_int) -> bool {
        lock(&self.table).live.contains_key(&number)
    }

    /// All sessions that were not waited for yet, the oldest first.
    pub fn live(&self) -> Vec<Arc<Session>> {
        lock(&self.table).live.values().cloned().collect()
    }

    /// Runs the functions for which routines wait, of all sessions. Returns the sessions that have functions and are not
    /// over.
    pub fn serve(&self, runtime: &Runtime) -> Vec<Arc<Session>> {
        let mut found = {
            let mut table = lock(&self.table);
            table.with_functions.retain(|session| session.ended().is_none());
            table.with_functions.clone()
        };
        // Without the lock of the table: functions may begin sessions.
        found.retain(|session| !session.attend(runtime));
        found
    }

    /// [`Sessions::serve`] of what has come until now, without waiting: for threads that wait elsewhere. Nobody else may read
    /// from the connections of these sessions meanwhile.
    pub fn read_and_serve(&self, runtime: &Runtime) {
        let others = self.serve(runtime);
        let calls: Vec<_> = others.iter().filter_map(|session| session.watch()).collect();
        // All are looked at: each look reads from a connection.
        if calls.iter().filter(|call| call.has_news()).count() > 0 {
            self.serve(runtime);
        }
    }

    /// The program has been told about its end.
    pub fn tell(&self, number: c_int) {
        let mut table = lock(&self.table);
        if let Some(session) = table.live.remove(&number) {
            table.told.insert(number, session);
            if table.told.len() > REMEMBERED {
                table.told.pop_first();
            }
        }
    }

    /// Cancels all sessions in progress.
    pub fn cancel_all(&self, runtime: &Runtime) {
        for session in self.live() {
            session.cancel(runtime);
        }
    }
}
