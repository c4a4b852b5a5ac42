//! The call in which this thread makes calls: the one that this process runs a routine for, and the one that this thread
//! runs a function for.

use std::cell::Cell;
use std::ffi::OsString;
use std::time::{Duration, Instant};

use kumi_call_wire::context::{DEADLINE, monotonic_ns};

use super::CallError;

thread_local! {
    /// The deadline of the call for which this thread runs a function.
    static FUNCTION_DEADLINE: Cell<Option<Instant>> = const { Cell::new(None) };
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
    let of_routine = remaining_of(std::env::var_os(name(DEADLINE)))?;
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
