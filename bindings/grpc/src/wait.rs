//! Waiting for sessions, looking at them and cancelling them.

use std::ffi::c_int;
use std::sync::Arc;

use kumi_call_client::WakeEvent;

use crate::code::{Code, Failure, guard, next_failed, report, set_failed};
use crate::runtime::{Runtime, current};
use crate::session::{Session, Sleeper};

/// `GRPC_SESSIONID_VOID`.
const VOID: c_int = -1;

/// The sessions of an array.
///
/// # Safety
/// `numbers` is null or points to `count` numbers.
unsafe fn sessions(
    runtime: &Runtime,
    numbers: *const c_int,
    count: usize,
) -> Result<Vec<Arc<Session>>, Failure> {
    if count > 0 && numbers.is_null() {
        return Err(Failure::null("the array of sessions"));
    }
    let mut found = Vec::new();
    for index in 0..count {
        // SAFETY: within the caller's array.
        let number = unsafe { numbers.wrapping_add(index).read_unaligned() };
        found.push(runtime.sessions.any(number)?);
    }
    Ok(found)
}

/// The sessions of an array whose end was not reported yet.
///
/// # Safety
/// As [`sessions`] says.
unsafe fn untold(
    runtime: &Runtime,
    numbers: *const c_int,
    count: usize,
) -> Result<Vec<Arc<Session>>, Failure> {
    // SAFETY: the same promises.
    let mut found = unsafe { sessions(runtime, numbers, count) }?;
    found.retain(|session| runtime.sessions.is_live(session.number));
    Ok(found)
}

/// Writes a session's number.
///
/// # Safety
/// `place` can be written.
unsafe fn write(place: *mut c_int, number: c_int) {
    // SAFETY: as the caller promises.
    unsafe { place.write_unaligned(number) };
}

/// Reports a session's end: the result of a wait for it.
fn tell(runtime: &Runtime, session: &Session) -> Code {
    runtime.sessions.tell(session.number);
    let ended = session.ended().and_then(|ended| ended.result.as_ref().err());
    let Some(failure) = ended else { return Code::NoError };
    set_failed([session.number]);
    report(failure);
    failure.code.of_wait()
}

/// The sessions for which a thread waits; it wakes when another thread ends or cancels one.
struct WaitedSessions<'a> {
    sessions: &'a [Arc<Session>],
    wake_event: Arc<WakeEvent>,
}

impl<'a> WaitedSessions<'a> {
    fn new(sessions: &'a [Arc<Session>], sleeper: &mut Sleeper) -> Result<Self, Failure> {
        let wake_event = Arc::clone(sleeper.wake_event()?);
        sessions.iter().for_each(|session| session.listen(&wake_event));
        Ok(WaitedSessions { sessions, wake_event })
    }
}

impl Drop for WaitedSessions<'_> {
    fn drop(&mut self) {
        // Other waiting threads take over the frames that this thread read.
        self.sessions.iter().for_each(|session| session.stop_listening(&self.wake_event));
    }
}

/// Waits until a session is over. Functions of all sessions run meanwhile: the session may wait for a slot that another one
/// has, whose routine waits for its function.
fn wait_for(runtime: &Runtime, session: &Arc<Session>) -> Result<(), Failure> {
    let sessions = std::slice::from_ref(session);
    let mut sleeper = Sleeper::default();
    let mut heard = None;
    loop {
        let others = runtime.sessions.serve(runtime);
        if others.iter().all(|other| Arc::ptr_eq(other, session)) {
            if session.wait_slice(runtime) {
                return Ok(());
            }
        } else if session.attend(runtime) {
            return Ok(());
        } else if heard.is_none() {
            heard = Some(WaitedSessions::new(sessions, &mut sleeper)?);
        } else {
            sleeper.sleep_for(sessions, &others)?;
        }
    }
}

/// Waits until one of them is over; returns the first in their order. Functions of all sessions run meanwhile.
fn wait_first<'a>(
    runtime: &Runtime,
    sessions: &'a [Arc<Session>],
) -> Result<Option<&'a Session>, Failure> {
    if let [session] = sessions {
        wait_for(runtime, session)?;
        return Ok(Some(session));
    }
    let over = || sessions.iter().find(|session| session.is_over(runtime));
    if let Some(session) = over() {
        return Ok(Some(session));
    }
    if sessions.is_empty() {
        return Ok(None);
    }
    let mut sleeper = Sleeper::default();
    let _heard = WaitedSessions::new(sessions, &mut sleeper)?;
    loop {
        let others = runtime.sessions.serve(runtime);
        if let Some(session) = over() {
            return Ok(Some(session));
        }
        sleeper.sleep_for(sessions, &others)?;
    }
}

/// Waits for one of them whose end was not reported yet.
///
/// # Safety
/// `place` is null or can be written.
unsafe fn wait_one(
    runtime: &Runtime,
    sessions: &[Arc<Session>],
    place: *mut c_int,
) -> Result<Code, Failure> {
    if place.is_null() {
        return Err(Failure::null("the place for the session"));
    }
    // SAFETY: not null.
    unsafe { write(place, VOID) };
    let Some(session) = wait_first(runtime, sessions)? else { return Ok(Code::NoError) };
    // SAFETY: as above.
    unsafe { write(place, session.number) };
    Ok(tell(runtime, session))
}

/// Waits for all of them.
fn wait_each(runtime: &Runtime, sessions: &[Arc<Session>]) -> Result<Code, Failure> {
    let mut failed = Vec::new();
    for session in sessions {
        wait_for(runtime, session)?;
        if tell(runtime, session) != Code::NoError && !failed.contains(&session.number) {
            failed.push(session.number);
        }
    }
    let code = if failed.is_empty() { Code::NoError } else { Code::SessionFailed };
    set_failed(failed);
    Ok(code)
}

/// See `grpc.h`.
#[unsafe(no_mangle)]
pub extern "C" fn grpc_probe(session: c_int) -> c_int {
    guard(|| {
        let runtime = current()?;
        let over = runtime.sessions.any(session)?.is_over(&runtime);
        Ok(if over { Code::NoError } else { Code::NotCompleted })
    })
}

/// See `grpc.h`.
///
/// # Safety
/// As `grpc.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_probe_or(
    numbers: *const c_int,
    count: usize,
    place: *mut c_int,
) -> c_int {
    guard(|| {
        let runtime = current()?;
        // SAFETY: as `grpc.h` asks of the caller.
        let sessions = unsafe { untold(&runtime, numbers, count) }?;
        if place.is_null() {
            return Err(Failure::null("the place for the session"));
        }
        let over = sessions.iter().find(|session| session.is_over(&runtime));
        // SAFETY: not null.
        unsafe { write(place, over.map_or(VOID, |session| session.number)) };
        Ok(if over.is_some() { Code::NoError } else { Code::NoneCompleted })
    })
}

/// See `grpc.h`.
#[unsafe(no_mangle)]
pub extern "C" fn grpc_cancel(session: c_int) -> c_int {
    guard(|| {
        let runtime = current()?;
        runtime.sessions.any(session)?.cancel(&runtime);
        Ok(Code::NoError)
    })
}

/// See `grpc.h`.
#[unsafe(no_mangle)]
pub extern "C" fn grpc_cancel_all() -> c_int {
    guard(|| {
        let runtime = current()?;
        runtime.sessions.cancel_all(&runtime);
        Ok(Code::NoError)
    })
}

/// See `grpc.h`.
#[unsafe(no_mangle)]
pub extern "C" fn grpc_wait(session: c_int) -> c_int {
    guard(|| {
        let runtime = current()?;
        let session = runtime.sessions.any(session)?;
        wait_for(&runtime, &session)?;
        Ok(tell(&runtime, &session))
    })
}

/// See `grpc.h`.
///
/// # Safety
/// As `grpc.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_wait_and(numbers: *const c_int, count: usize) -> c_int {
    guard(|| {
        let runtime = current()?;
        // SAFETY: as `grpc.h` asks of the caller.
        let sessions = unsafe { sessions(&runtime, numbers, count) }?;
        wait_each(&runtime, &sessions)
    })
}

/// See `grpc.h`.
///
/// # Safety
/// As `grpc.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_wait_or(
    numbers: *const c_int,
    count: usize,
    place: *mut c_int,
) -> c_int {
    guard(|| {
        let runtime = current()?;
        // SAFETY: as `grpc.h` asks of the caller.
        let sessions = unsafe { untold(&runtime, numbers, count) }?;
        // SAFETY: as `grpc.h` asks of the caller.
        unsafe { wait_one(&runtime, &sessions, place) }
    })
}

/// See `kumi_grpc_arguments.h`.
///
/// # Safety
/// As `kumi_grpc_arguments.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_grpc_wait_over(
    numbers: *const c_int,
    count: usize,
    place: *mut c_int,
) -> c_int {
    guard(|| {
        let runtime = current()?;
        if place.is_null() {
            return Err(Failure::null("the place for the session"));
        }
        // SAFETY: as the header asks of the caller.
        let sessions = unsafe { sessions(&runtime, numbers, count) }?;
        let first = wait_first(&runtime, &sessions)?.map_or(VOID, |session| session.number);
        // SAFETY: not null.
        unsafe { write(place, first) };
        Ok(Code::NoError)
    })
}

/// See `grpc.h`.
#[unsafe(no_mangle)]
pub extern "C" fn grpc_wait_all() -> c_int {
    guard(|| {
        let runtime = current()?;
        wait_each(&runtime, &runtime.sessions.live())
    })
}

/// See `grpc.h`.
///
/// # Safety
/// As `grpc.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_wait_any(place: *mut c_int) -> c_int {
    guard(|| {
        let runtime = current()?;
        // SAFETY: as `grpc.h` asks of the caller.
        unsafe { wait_one(&runtime, &runtime.sessions.live(), place) }
    })
}

/// See `grpc.h`.
///
/// # Safety
/// As `grpc.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_get_failed_sessionid(place: *mut c_int) -> c_int {
    guard(|| {
        current()?;
        if place.is_null() {
            return Err(Failure::null("the place for the session"));
        }
        // SAFETY: not null, and writable as `grpc.h` asks.
        unsafe { write(place, next_failed().unwrap_or(VOID)) };
        Ok(Code::NoError)
    })
}
