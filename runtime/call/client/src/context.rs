//! The call in which this thread makes calls: the one that this process runs a routine for, and the one that this thread
//! runs a function for.

use std::cell::Cell;
use std::ffi::OsString;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use kumi_call_wire::context::{DEADLINE, TRACE_PARENT, monotonic_ns};
use kumi_rpc::TraceContext;

use super::CallError;

thread_local! {
    /// The deadline of the call for which this thread runs a function.
    static FUNCTION_DEADLINE: Cell<Option<Instant>> = const { Cell::new(None) };
    /// The place in a trace of the calls that this thread begins.
    static TRACE: Cell<Option<TraceContext>> = const { Cell::new(None) };
}

/// What the environment of this process says of calls.
enum Environment {
    /// A routine runs here, or a program that one has started: its variables change from call to call.
    OfRoutine,
    /// Another program, and the place in a trace with which it was started.
    OfProgram(Option<TraceContext>),
}

/// The environment as the first call found it. Later ones do not look, but in a routine: while other threads set variables, C
/// and Python do not let one read them.
fn environment() -> &'static Environment {
    static FOUND: OnceLock<Environment> = OnceLock::new();
    FOUND.get_or_init(|| match std::env::var_os(name(DEADLINE)) {
        Some(_) => Environment::OfRoutine,
        None => Environment::OfProgram(trace_of_environment()),
    })
}

fn trace_of_environment() -> Option<TraceContext> {
    let text = std::env::var_os(name(TRACE_PARENT))?;
    TraceContext::parse(text.as_encoded_bytes()).ok()
}

/// The time that is left of the call for which this thread runs a routine or a function. Zero: it is over. `None`: there is
/// no such call, or no limit.
///
/// Calls that this thread makes end within that time.
///
/// # Errors
/// [`CallError::Environment`]: a variable has an impossible value.
pub fn remaining() -> Result<Option<Duration>, CallError> {
    let of_function = FUNCTION_DEADLINE.get();
    let of_function =
        of_function.map(|deadline| deadline.saturating_duration_since(Instant::now()));
    let of_routine = match environment() {
        Environment::OfRoutine => remaining_of(std::env::var_os(name(DEADLINE)))?,
        Environment::OfProgram(_) => None,
    };
    Ok(of_function.into_iter().chain(of_routine).min())
}

/// A name of a variable.
fn name(name: &'static std::ffi::CStr) -> &'static str {
    // The names are ASCII.
    name.to_str().unwrap_or_default()
}

/// The time that is left until the deadline in this variable.
fn remaining_of(variable: Option<OsString>) -> Result<Option<Duration>, CallError> {
    let Some(text) = variable.filter(|text| !text.is_empty()) else { return Ok(None) };
    let wrong = |text: String| CallError::Environment { name: name(DEADLINE), text };
    let deadline: u64 = text.to_str().and_then(|text| text.parse().ok()).ok_or_else(|| {
        wrong(format!(
            "is a number of nanoseconds of the monotonic clock, not `{}`",
            text.display()
        ))
    })?;
    let now = monotonic_ns().map_err(|error| wrong(format!("cannot be compared: {error}")))?;
    Ok(Some(Duration::from_nanos(deadline.saturating_sub(now))))
}

/// The place in a trace of the calls that this thread begins: what [`trace_calls`] has set, or else the `TRACEPARENT` with which
/// this program was started; a routine has that of its call there. A variable that is no `traceparent` counts as none, as W3C Trace Context
/// wants it: who set it may not know of calls.
#[must_use]
pub fn trace_context() -> Option<TraceContext> {
    TRACE.get().or_else(|| match environment() {
        Environment::OfRoutine => trace_of_environment(),
        Environment::OfProgram(trace) => *trace,
    })
}

/// The place of a call that is in no trace yet, in a trace of its own: with it the call is found among those of a server.
///
/// # Errors
/// [`CallError::Server`]: the system has no random bytes.
pub fn new_trace() -> Result<TraceContext, CallError> {
    loop {
        // Zero is no number of a trace or a span.
        let (trace, span) = (crate::random_bytes()?, crate::random_bytes()?);
        if let Ok(context) = TraceContext::begin(trace, span) {
            return Ok(context);
        }
    }
}

/// Sets the place in a trace of the calls that this thread begins from now on. `None`: that of the environment. Returns what was
/// set before.
pub fn trace_calls(context: Option<TraceContext>) -> Option<TraceContext> {
    TRACE.replace(context)
}

/// The time limit of a call that this thread makes: the given one, or what is left of the call around it if that is less.
///
/// # Errors
/// [`CallError::TimedOut`]: nothing is left. [`CallError::Environment`] as of [`remaining`].
pub(crate) fn limit(time: Option<Duration>, name: &str) -> Result<Option<Duration>, CallError> {
    let left = remaining()?;
    if left.is_some_and(|left| left.is_zero()) {
        let text = format!("`{name}` was not begun: the time of the call that makes it is over");
        return Err(CallError::TimedOut(text));
    }
    Ok(time.into_iter().chain(left).min())
}

/// What the calls of a thread inherit, for another thread that makes calls for it.
#[cfg(feature = "transactions")]
#[derive(Debug, Clone, Copy)]
pub(crate) struct InheritedContext {
    deadline: Option<Instant>,
    trace: Option<TraceContext>,
}

#[cfg(feature = "transactions")]
impl InheritedContext {
    /// That of this thread.
    pub fn of_this_thread() -> InheritedContext {
        InheritedContext { deadline: FUNCTION_DEADLINE.get(), trace: TRACE.get() }
    }

    /// Makes it that of this thread.
    pub fn enter(self) {
        FUNCTION_DEADLINE.set(self.deadline);
        TRACE.set(self.trace);
    }
}

/// Whether the time of a call is over. Then nobody waits for the end of its function, and the server ends the call.
pub(crate) fn is_over(deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|deadline| deadline <= Instant::now())
}

/// Runs a function for a call with this deadline.
pub(crate) fn within<T>(deadline: Option<Instant>, function: impl FnOnce() -> T) -> T {
    /// Restores the deadline before, also if the function panics.
    struct Restore(Option<Instant>);
    impl Drop for Restore {
        fn drop(&mut self) {
            FUNCTION_DEADLINE.set(self.0);
        }
    }
    let before = FUNCTION_DEADLINE.get();
    let _restore = Restore(before);
    FUNCTION_DEADLINE.set(before.into_iter().chain(deadline).min());
    function()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_of_the_nearest_deadline() {
        assert_eq!(remaining_of(None).expect("no limit"), None);
        assert_eq!(remaining_of(Some("".into())).expect("no limit"), None);
        assert_eq!(remaining_of(Some("1".into())).expect("a limit"), Some(Duration::ZERO));
        let hour = Duration::from_secs(3600);
        let later = monotonic_ns().expect("a clock") + hour.as_nanos() as u64;
        let left = remaining_of(Some(later.to_string().into())).expect("a limit");
        assert!(left.is_some_and(|left| left <= hour && left > hour / 2), "{left:?}");
        let error = remaining_of(Some("soon".into())).expect_err("no number");
        assert!(error.to_string().contains("KUMI_CALL_DEADLINE is a number"), "{error}");
    }

    #[test]
    fn calls_of_a_function_end_with_its_call() {
        assert_eq!(limit(Some(Duration::MAX), "f").expect("any"), Some(Duration::MAX));
        let now = Instant::now();
        let (hour, minute) = (Duration::from_secs(3600), Duration::from_secs(60));
        within(Some(now + hour), || {
            let left = limit(None, "f").expect("time");
            assert!(left.is_some_and(|left| left <= hour), "{left:?}");
            assert_eq!(limit(Some(minute), "f").expect("time"), Some(minute));
            // A function within a function has no more time.
            within(Some(now + 2 * hour), || assert!(remaining().expect("it") <= Some(hour)));
            within(None, || assert!(remaining().expect("it").is_some()));
            within(Some(now), || {
                let error = limit(Some(minute), "f").expect_err("it is over");
                assert!(matches!(&error, CallError::TimedOut(text) if text.contains("`f`")));
            });
        });
        assert_eq!(remaining().expect("no limit"), None);
    }
}
