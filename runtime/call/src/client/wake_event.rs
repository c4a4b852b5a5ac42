//! Waiting for news of several calls, wherever they come from.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::CallError;
use super::completion::Completion;
use super::link::{Link, Reader};

/// What wakes a thread that waits for several calls. It may be rung from any thread, before the wait too.
#[derive(Debug)]
pub struct WakeEvent {
    rung: UnixStream,
    ringing: UnixStream,
}

/// Bells that ring together.
#[derive(Debug, Default)]
pub struct WakeEvents {
    all: Mutex<Vec<Arc<WakeEvent>>>,
}

/// Tells whether there is something to be done by who waits for a call. It may outlive the call.
#[derive(Debug, Clone)]
pub struct CallWatch(Source);

#[derive(Debug, Clone)]
enum Source {
    /// A stream of a connection that is read by who waits.
    Stream(Arc<Link>, u32),
    /// A thread that runs the call.
    Meeting(Arc<Completion>),
}

impl WakeEvents {
    fn lock(&self) -> MutexGuard<'_, Vec<Arc<WakeEvent>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Rings them.
    pub fn ring(&self) {
        self.lock().iter().for_each(|wake_event| wake_event.ring());
    }

    /// This one rings with them from now on.
    pub fn add(&self, wake_event: &Arc<WakeEvent>) {
        self.lock().push(Arc::clone(wake_event));
    }

    /// It rings with them no more.
    pub fn remove(&self, wake_event: &Arc<WakeEvent>) {
        self.lock().retain(|other| !Arc::ptr_eq(other, wake_event));
    }
}

impl CallWatch {
    pub(super) fn of_stream(link: &Arc<Link>, stream: u32) -> CallWatch {
        CallWatch(Source::Stream(Arc::clone(link), stream))
    }

    pub(super) fn of_completion(completion: &Arc<Completion>) -> CallWatch {
        CallWatch(Source::Meeting(Arc::clone(completion)))
    }

    /// Whether the call is over; does not wait.
    #[must_use]
    pub fn is_over(&self) -> bool {
        match &self.0 {
            Source::Stream(link, stream) => link.answered(*stream),
            Source::Meeting(completion) => completion.is_over(),
        }
    }

    /// Whether the call is over, or its routine calls a function; does not wait.
    #[must_use]
    pub fn has_news(&self) -> bool {
        match &self.0 {
            Source::Stream(link, stream) => link.answered(*stream) || link.has_news(*stream),
            Source::Meeting(completion) => completion.has_news(),
        }
    }
}

/// A bell that rings when there is news of calls, until this goes.
struct Subscription<'b> {
    wake_event: &'b Arc<WakeEvent>,
    links: Vec<&'b Arc<Link>>,
    meetings: Vec<&'b Completion>,
}

impl<'b> Subscription<'b> {
    fn new(wake_event: &'b Arc<WakeEvent>, calls: &'b [CallWatch]) -> Subscription<'b> {
        let mut listening = Subscription { wake_event, links: Vec::new(), meetings: Vec::new() };
        for call in calls {
            match &call.0 {
                Source::Stream(link, _) => {
                    if !listening.links.iter().any(|other| Arc::ptr_eq(other, link)) {
                        link.listen(wake_event);
                        listening.links.push(link);
                    }
                }
                Source::Meeting(completion) => {
                    completion.listen(wake_event);
                    listening.meetings.push(completion);
                }
            }
        }
        listening
    }
}

impl Drop for Subscription<'_> {
    fn drop(&mut self) {
        self.links.iter().for_each(|link| link.stop_listening(self.wake_event));
        self.meetings.iter().for_each(|completion| completion.stop_listening(self.wake_event));
    }
}

impl WakeEvent {
    /// A silent one.
    ///
    /// # Errors
    /// The process has too many files open.
    pub fn new() -> io::Result<Arc<WakeEvent>> {
        let (rung, ringing) = UnixStream::pair()?;
        rung.set_nonblocking(true)?;
        ringing.set_nonblocking(true)?;
        Ok(Arc::new(WakeEvent { rung, ringing }))
    }

    /// Wakes who waits.
    pub fn ring(&self) {
        // If there is no room for it, it rings already; the other end is here.
        let _rings = (&self.ringing).write(&[1]);
    }

    /// Waits until there is news of one of the calls (it is over, or its routine calls a function, which a wait for the call then
    /// calls) or it may be so, until it rings, or a signal comes. At most for so long; who waits looks at the calls and comes again.
    ///
    /// # Errors
    /// What the system says.
    pub fn wait(
        self: &Arc<WakeEvent>,
        calls: &[CallWatch],
        time: Duration,
    ) -> Result<(), CallError> {
        let until = Instant::now().checked_add(time);
        let listening = Subscription::new(self, calls);
        while !calls.iter().any(CallWatch::has_news) {
            let left =
                until.map_or(Duration::MAX, |it| it.saturating_duration_since(Instant::now()));
            if self.sleep(&listening.links, left)? || left.is_zero() {
                break;
            }
        }
        Ok(())
    }

    /// Sleeps until something comes over one of the connections; true: it has rung, or a signal came.
    fn sleep(&self, links: &[&Arc<Link>], time: Duration) -> Result<bool, CallError> {
        let mut sockets: Vec<BorrowedFd<'_>> = Vec::new();
        for link in links {
            match link.reader() {
                Reader::Nobody(socket) => sockets.push(socket),
                // It rings when it has read something, and when it reads no more.
                Reader::Another => {}
                Reader::NotNeeded => return Ok(false),
            }
        }
        let all = [self.rung.as_fd()].into_iter().chain(sockets);
        let mut polled: Vec<PollFd<'_>> =
            all.map(|file| PollFd::new(file, PollFlags::POLLIN)).collect();
        // Not less than was asked for, or it would be asked again and again.
        let time =
            PollTimeout::try_from(time.as_micros().div_ceil(1000)).unwrap_or(PollTimeout::MAX);
        match poll(&mut polled, time) {
            Ok(_) => {}
            Err(Errno::EINTR) => return Ok(true),
            Err(error) => return Err(CallError::Lost(error.to_string())),
        }
        Ok(self.drain())
    }

    /// Whether it has rung; from then on it is silent.
    fn drain(&self) -> bool {
        let (mut rang, mut heard) = (false, [0; 64]);
        while let Ok(count) = (&self.rung).read(&mut heard) {
            rang |= count > 0;
            if count < heard.len() {
                break;
            }
        }
        rang
    }
}
