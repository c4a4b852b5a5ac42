//! Waiting for news of several calls, wherever they come from.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::any::GLANCE;
use super::link::Link;
use super::{CallError, RemoteCall};

/// What wakes a thread that waits for several calls. It may be rung from any thread, before the wait too.
#[derive(Debug)]
pub struct Bell {
    rung: UnixStream,
    ringing: UnixStream,
}

impl Bell {
    /// A silent one.
    ///
    /// # Errors
    /// The process has too many files open.
    pub fn new() -> io::Result<Arc<Bell>> {
        let (rung, ringing) = UnixStream::pair()?;
        rung.set_nonblocking(true)?;
        ringing.set_nonblocking(true)?;
        Ok(Arc::new(Bell { rung, ringing }))
    }

    /// Wakes who waits.
    pub fn ring(&self) {
        // If there is no room for it, it rings already; the other end is here.
        let _rings = (&self.ringing).write(&[1]);
    }

    /// Waits until it rings or something may have come for one of the calls: it is over, or its routine calls a function, which a
    /// wait for the call then calls. At most for so long; who waits looks at the calls and comes again.
    ///
    /// # Errors
    /// What the system says.
    pub fn wait(self: &Arc<Bell>, calls: &[&RemoteCall], time: Duration) -> Result<(), CallError> {
        let grid = || calls.iter().filter_map(|call| call.meeting());
        grid().for_each(|meeting| meeting.listen(self));
        let waited = match calls.iter().any(|call| call.has_news()) {
            true => Ok(()),
            false => self.sleep(calls, time),
        };
        grid().for_each(|meeting| meeting.leave_off(self));
        waited
    }

    fn sleep(&self, calls: &[&RemoteCall], time: Duration) -> Result<(), CallError> {
        let mut links: Vec<&Arc<Link>> = Vec::new();
        for link in calls.iter().filter_map(|call| call.link()) {
            if !links.iter().any(|other| Arc::ptr_eq(other, link)) {
                links.push(link);
            }
        }
        let sockets: Vec<BorrowedFd<'_>> =
            links.iter().filter_map(|link| link.undriven()).collect();
        // From the others another thread reads, which does not ring; if one begins to after this, what it takes in is seen when
        // the time is over.
        let most = Duration::from_millis(GLANCE.into());
        let time = if sockets.len() == links.len() { time } else { time.min(most) };
        let all = sockets.into_iter().chain([self.rung.as_fd()]);
        let mut polled: Vec<PollFd<'_>> =
            all.map(|file| PollFd::new(file, PollFlags::POLLIN)).collect();
        // Not less than was asked for, or it would be asked again and again.
        let time =
            PollTimeout::try_from(time.as_micros().div_ceil(1000)).unwrap_or(PollTimeout::MAX);
        match poll(&mut polled, time) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(CallError::Lost(error.to_string())),
        }
        let mut heard = [0; 64];
        while (&self.rung).read(&mut heard).is_ok_and(|count| count == heard.len()) {}
        Ok(())
    }
}
