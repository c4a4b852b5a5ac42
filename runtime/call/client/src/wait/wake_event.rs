//! Wait for events of several calls on any connections, with a wake-up from other threads.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::super::completion::Completion;
use super::super::link::{Link, Reader};
use super::super::{CallError, locked};

/// Wakes a thread that waits for several calls. Any thread may set it, also before the wait begins.
#[derive(Debug)]
pub struct WakeEvent {
    receiver: UnixStream,
    sender: UnixStream,
}

/// Wake events that are set together.
#[derive(Debug, Default)]
pub struct WakeEvents {
    all: Mutex<Vec<Arc<WakeEvent>>>,
}

/// Tells whether the thread that waits for a call has something to do. It may outlive the call.
#[derive(Debug, Clone)]
pub struct CallWatch(Source);

#[derive(Debug, Clone)]
enum Source {
    /// A stream of a connection that the waiting thread reads itself.
    Stream(Arc<Link>, u32),
    /// A thread of its own runs the call.
    Thread(Arc<Completion>),
}

impl WakeEvents {
    /// Sets all of them.
    pub fn wake(&self) {
        locked(&self.all).iter().for_each(|wake_event| wake_event.wake());
    }

    /// Adds one.
    pub fn add(&self, wake_event: &Arc<WakeEvent>) {
        locked(&self.all).push(Arc::clone(wake_event));
    }

    /// Removes one.
    pub fn remove(&self, wake_event: &Arc<WakeEvent>) {
        locked(&self.all).retain(|other| !Arc::ptr_eq(other, wake_event));
    }
}

impl CallWatch {
    pub(crate) fn of_stream(link: &Arc<Link>, stream: u32) -> CallWatch {
        CallWatch(Source::Stream(Arc::clone(link), stream))
    }

    pub(crate) fn of_completion(completion: &Arc<Completion>) -> CallWatch {
        CallWatch(Source::Thread(Arc::clone(completion)))
    }

    /// Whether the call is over. Does not wait.
    #[must_use]
    pub fn is_over(&self) -> bool {
        match &self.0 {
            Source::Stream(link, stream) => link.answered(*stream),
            Source::Thread(completion) => completion.is_over(),
        }
    }

    /// Whether the call is over or its routine calls a function. Does not wait.
    #[must_use]
    pub fn has_news(&self) -> bool {
        match &self.0 {
            Source::Stream(link, stream) => link.answered(*stream) || link.has_news(*stream),
            Source::Thread(completion) => completion.has_news(),
        }
    }
}

/// Registers a wake event with several calls; dropping this removes it.
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
                Source::Thread(completion) => {
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
    /// An event that is not set.
    ///
    /// # Errors
    /// The process has too many files open.
    pub fn new() -> io::Result<Arc<WakeEvent>> {
        let (receiver, sender) = UnixStream::pair()?;
        receiver.set_nonblocking(true)?;
        sender.set_nonblocking(true)?;
        Ok(Arc::new(WakeEvent { receiver, sender }))
    }

    /// Wakes the waiting thread.
    pub fn wake(&self) {
        // A full socket means that the event is set already.
        let _full = (&self.sender).write(&[1]);
    }

    /// Waits until a call may have news, the event is set, a signal arrives, or `time` is over. A call has
    /// news when it is over or when its routine calls a function, which a wait for that call then runs. The
    /// caller looks at its calls and waits again.
    ///
    /// # Errors
    /// An error of the system.
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

    /// Sleeps until one of the connections has input. True: the event was set, or a signal came.
    fn sleep(&self, links: &[&Arc<Link>], time: Duration) -> Result<bool, CallError> {
        let mut sockets: Vec<BorrowedFd<'_>> = Vec::new();
        for link in links {
            match link.reader() {
                Reader::NoThread(socket) => sockets.push(socket),
                // The reading thread sets the event when it has read something, and when it stops reading.
                Reader::OtherThread => {}
                Reader::Buffered => return Ok(false),
            }
        }
        let all = [self.receiver.as_fd()].into_iter().chain(sockets);
        let mut polled: Vec<PollFd<'_>> =
            all.map(|file| PollFd::new(file, PollFlags::POLLIN)).collect();
        // Rounded up, or the thread would wake too early again and again.
        let time =
            PollTimeout::try_from(time.as_micros().div_ceil(1000)).unwrap_or(PollTimeout::MAX);
        match poll(&mut polled, time) {
            Ok(_) => {}
            Err(Errno::EINTR) => return Ok(true),
            Err(error) => return Err(CallError::Lost(error.to_string())),
        }
        Ok(self.drain())
    }

    /// Whether the event is set; clears it.
    fn drain(&self) -> bool {
        let (mut rang, mut heard) = (false, [0; 64]);
        while let Ok(count) = (&self.receiver).read(&mut heard) {
            rang |= count > 0;
            if count < heard.len() {
                break;
            }
        }
        rang
    }
}
