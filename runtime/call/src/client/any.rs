//! Waiting for any of several calls.

use std::time::Duration;

use super::{Call, CallError, CallWatch, WakeEvent};

/// After how long the program is asked whether it was interrupted.
const STEP: Duration = Duration::from_millis(100);

/// Waits until one of the calls is over; its index. `None`: there are none.
///
/// # Errors
/// [`CallError::Interrupted`], when `interrupted` says so, which is asked from time to time; or the process has too many files open.
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
            // One that cannot be answered is over, and its wait says why.
            served |= call.serve_now().unwrap_or(true);
        }
        // What has come meanwhile is looked at before anything is waited for.
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
