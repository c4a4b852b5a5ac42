//! Waiting for any of several calls.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};

use super::link::Link;
use super::{Call, CallError};

/// Milliseconds after which the program is asked whether it was interrupted.
const STEP: u16 = 100;
/// Milliseconds after which is looked again at a connection from which another thread reads.
pub(super) const GLANCE: u16 = 2;

/// Waits until one of the calls is over; its index. `None`: there are none.
///
/// # Errors
/// [`CallError::Interrupted`], when `interrupted` says so, which is asked from time to time.
pub fn wait_any(
    calls: &[&Call<'_>],
    interrupted: &dyn Fn() -> bool,
) -> Result<Option<usize>, CallError> {
    let mut links: Vec<&Arc<Link>> = Vec::new();
    for call in calls {
        if !links.iter().any(|link| Arc::ptr_eq(link, &call.ticket.link)) {
            links.push(&call.ticket.link);
        }
    }
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
        if !served {
            something_comes(&links)?;
        }
    }
    Ok(None)
}

/// Waits a little until something comes on one of the connections.
fn something_comes(links: &[&Arc<Link>]) -> Result<(), CallError> {
    let sockets: Vec<BorrowedFd<'_>> = links.iter().filter_map(|link| link.undriven()).collect();
    let step = if sockets.len() == links.len() { STEP } else { GLANCE };
    let mut polled: Vec<PollFd<'_>> =
        sockets.iter().map(|socket| PollFd::new(*socket, PollFlags::POLLIN)).collect();
    match poll(&mut polled, step) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(error) => Err(CallError::Lost(error.to_string())),
    }
}
