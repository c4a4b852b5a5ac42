//! Wait for any one of several calls.

use std::time::Duration;

use super::super::{Call, CallError, CallWatch, WakeEvent};

/// Time between two questions to the program whether it was interrupted.
const STEP: Duration = Duration::from_millis(100);

/// Waits until one of the calls is over and returns its index. `None`: the list is empty.
///
/// # Errors
/// [`CallError::Interrupted`] when `interrupted` returns true; the wait asks it from time to time. Also when
/// the process has too many open files.
pub fn wait_any(
    calls: &[&Call<'_>],
    interrupted: &dyn Fn() -> bool,
) -> Result<Option<usize>, CallError> {
    let watches: Vec<CallWatch> = calls.iter().map(|call| call.watch()).collect();
    let mut wake_event = None;
    while !calls.is_empty() {
        if let Some(index) = calls.iter().position(|call| call.is_over()) {
            return Ok(Some(index));
        }
        if interrupted() {
            return Err(CallError::Interrupted);
        }
        let mut served = false;
        for call in calls {
            // A call that cannot be answered counts as over; its `wait` returns the reason.
            served |= call.serve_now().unwrap_or(true);
        }
        // Look at what has arrived before waiting for more.
        if served {
            continue;
        }
        let wake_event = match &mut wake_event {
            Some(wake_event) => wake_event,
            none => none.insert(WakeEvent::new().map_err(|error| {
                CallError::Server(format!("several calls cannot be waited for: {error}"))
            })?),
        };
        wake_event.wait(&watches, STEP)?;
    }
    Ok(None)
}
