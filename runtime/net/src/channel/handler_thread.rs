//! The handler thread: serves the channel while the program's main thread computes.
//!
//! It sleeps in `epoll_wait`.
//!
//! - While main is away, the socket is in its set ("armed", one shot), and a timer runs for the
//!   protocol's next deadline.
//! - If main takes the lock and finds the socket armed, it disarms it and starts a tick instead.
//!   Packets that main waits for then do not wake this thread too.
//! - At a tick the thread arms the socket again, unless main has taken the lock since the last tick.
//! - If main has held the lock over a whole tick (a long wait), the thread sleeps deep, without a timer. Main restarts
//!   the tick when its wait ends.
//!
//! When it does which of these is decided in `handover`; here are the system's calls for them.
//!
//! Rings from ranks of this node concern it only while `Channel::serve_rings` says so. It then listens
//! to the rank's doorbell too, which peers ring as they do for a sleeping main thread.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::Acquire;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use crate::channel::core::{ChannelCore, Handler};
use crate::channel::handover::{Service, TICK, TickState, Timer};
use crate::channel::priority::{HandlerSetting, Thread};
use crate::channel::{ChannelError, Shared};
use crate::segment::attachment::{AttachError, Attachment, io_error};
use crate::segment::counters::Counter;
use crate::wire::driver::SleepDescriptors;
use crate::{sys, tracepoints};

const WIRE: u64 = 1;
const TIMER: u64 = 2;
const STOP: u64 = 3;
const BELL: u64 = 4;

/// Descriptors that wake the handler thread.
#[derive(Debug)]
pub(crate) struct HandlerWaitSet {
    epoll: OwnedFd,
    timer: OwnedFd,
    stop: OwnedFd,
    /// Those of the wire to other nodes.
    wire: SleepDescriptors,
    /// The rank's doorbell.
    bell: RawFd,
}

/// Owns a descriptor, or tells the error that the kernel left.
///
/// # Safety
/// The number comes from a system call of just now that makes descriptors, or is the -1 of its failure.
unsafe fn own(raw: RawFd, what: &'static str) -> Result<OwnedFd, AttachError> {
    if raw < 0 {
        return Err(io_error(what)(io::Error::last_os_error()));
    }
    // SAFETY: just made by the caller's promise, so nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

impl HandlerWaitSet {
    pub(crate) fn new(wire: SleepDescriptors, bell: RawFd) -> Result<HandlerWaitSet, AttachError> {
        // SAFETY: no pointers in either call, and each result is owned once.
        let (epoll, timer) = unsafe {
            let flags = libc::TFD_CLOEXEC | libc::TFD_NONBLOCK;
            (
                own(libc::epoll_create1(libc::EPOLL_CLOEXEC), "epoll_create1")?,
                own(libc::timerfd_create(libc::CLOCK_MONOTONIC, flags), "timerfd_create")?,
            )
        };
        let stop = sys::doorbell().map_err(io_error("eventfd"))?;
        let wait_set = HandlerWaitSet { epoll, timer, stop, wire, bell };
        let events = libc::EPOLLIN as u32;
        let add = libc::EPOLL_CTL_ADD;
        wait_set
            .control(add, wait_set.timer.as_raw_fd(), events, TIMER)
            .map_err(io_error("epoll"))?;
        wait_set
            .control(add, wait_set.stop.as_raw_fd(), events, STOP)
            .map_err(io_error("epoll"))?;
        Ok(wait_set)
    }

    fn control(&self, operation: i32, descriptor: RawFd, events: u32, mark: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events, u64: mark };
        // SAFETY: the event is ours.
        let done = unsafe {
            libc::epoll_ctl(self.epoll.as_raw_fd(), operation, descriptor, &raw mut event)
        };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Main is active: packets, and with `rings` the doorbell, do not wake the handler for now.
    #[cold]
    pub(crate) fn disarm(&self, rings: bool) {
        // Taken out of the set rather than masked: the kernel then has no callback to make for
        // every packet. Should it fail, the handler wakes once too often.
        for (descriptor, mark) in self.armed_for(rings) {
            let _ = self.control(libc::EPOLL_CTL_DEL, descriptor, 0, mark);
        }
        self.after(Some(TICK));
    }

    fn arm(&self, rings: bool) -> io::Result<()> {
        let events = (libc::EPOLLIN | libc::EPOLLONESHOT) as u32;
        for (descriptor, mark) in self.armed_for(rings) {
            match self.control(libc::EPOLL_CTL_ADD, descriptor, events, mark) {
                // Fired and not taken out since.
                Err(error) if error.raw_os_error() == Some(libc::EEXIST) => {
                    self.control(libc::EPOLL_CTL_MOD, descriptor, events, mark)?;
                }
                done => done?,
            }
        }
        Ok(())
    }

    fn armed_for(&self, rings: bool) -> impl Iterator<Item = (RawFd, u64)> + use<> {
        let bell = rings.then_some((self.bell, BELL));
        let wire = self.wire.into_iter().filter(|descriptor| *descriptor >= 0);
        wire.map(|descriptor| (descriptor, WIRE)).chain(bell)
    }

    /// Wakes the handler to end.
    pub(crate) fn stop(&self) {
        let one = 1u64;
        // SAFETY: eight bytes are read from `one`.
        unsafe { libc::write(self.stop.as_raw_fd(), (&raw const one).cast(), 8) };
    }

    /// Sleeps until something calls.
    fn wait(&self) -> io::Result<()> {
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: room for one event.
        while unsafe { libc::epoll_wait(self.epoll.as_raw_fd(), &raw mut event, 1, -1) } < 0 {
            let error = io::Error::last_os_error();
            // The freezer interrupts it at every switch: nothing has called, main is to run.
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
        if event.u64 == TIMER {
            let mut expired = 0u64;
            // SAFETY: a timer gives eight bytes; non-blocking.
            unsafe { libc::read(self.timer.as_raw_fd(), (&raw mut expired).cast(), 8) };
        }
        Ok(())
    }
}

/// Starts the handler thread. Returns when it is scheduled as the setting says.
pub(crate) fn start<H: Handler>(
    shared: Arc<Shared<H>>,
    setting: Option<HandlerSetting>,
) -> Result<JoinHandle<()>, AttachError> {
    let (tell, told) = mpsc::sync_channel(1);
    let body = move || {
        let scheduled = setting.map_or(Ok(()), |setting| setting.apply(Thread::Handler));
        let go_on = scheduled.is_ok();
        // The starter of the thread waits for this answer.
        let _ = tell.send(scheduled);
        if go_on {
            run(&shared);
        }
    };
    let thread =
        spawn_without_signals("kumi-handler", body).map_err(io_error("starting a thread"))?;
    match told.recv() {
        Ok(scheduled) => scheduled.map(|()| thread),
        Err(mpsc::RecvError) => Err(io_error("starting a thread")(io::ErrorKind::Other.into())),
    }
}

/// Starts a thread with all signals blocked: they are for the program's own threads.
///
/// # Errors
/// The kernel's error, for example that there are too many threads.
pub fn spawn_without_signals(
    name: &str,
    body: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    // SAFETY: all-zero sets are valid and are filled in before use.
    let before = unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        before
    };
    let thread = std::thread::Builder::new().name(name.into()).spawn(body);
    // SAFETY: restores what was there.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
    thread
}

/// Runs until it is stopped. An error is kept for the next call of the main thread.
fn run<H: Handler>(shared: &Shared<H>) {
    let Some(wait_set) = shared.wait_set.get() else { return };
    let mut state = TickState::new();
    wait_set.after(Some(TICK));
    while !shared.stop.load(Acquire) {
        let failure = match catch_unwind(AssertUnwindSafe(|| round(shared, wait_set, &mut state))) {
            Ok(Ok(())) => continue,
            Ok(Err(error)) => error.to_string(),
            Err(panic) => {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
                format!("it panicked: {}", text.unwrap_or("no message"))
            }
        };
        let _ = shared.failed.set(failure); // Only this thread sets it, once.
        return;
    }
}

impl Timer for HandlerWaitSet {
    fn after(&self, microseconds: Option<u64>) {
        // A time of 0 stops the timer.
        let spec = libc::itimerspec {
            it_interval: sys::timespec(0),
            it_value: sys::timespec(microseconds.unwrap_or(0)),
        };
        // SAFETY: the structure is ours; the descriptor is a timer, so it cannot fail.
        unsafe {
            libc::timerfd_settime(self.timer.as_raw_fd(), 0, &raw const spec, std::ptr::null_mut())
        };
    }
}

/// The channel as the handler thread serves it, which holds its lock.
struct LockedChannel<'s, H> {
    core: &'s mut ChannelCore<H>,
    shared: &'s Shared<H>,
    wait_set: &'s HandlerWaitSet,
}

/// A panic of the layer above is known before the lock goes back.
impl<H> Drop for LockedChannel<'_, H> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = self.shared.failed.set("it panicked".to_string());
        }
    }
}

impl<H: Handler> Service for LockedChannel<'_, H> {
    type Error = ChannelError;

    fn serve(&mut self, rings: bool) -> Result<(), ChannelError> {
        if rings {
            // Only with the lock: the main thread does not sleep for the doorbell now.
            sys::silence(self.wait_set.bell);
        }
        serve(self.core, &self.shared.attachment, rings)
    }

    fn listen(&mut self, rings: bool) -> Result<Option<u64>, ChannelError> {
        self.core.armed = true;
        self.wait_set.arm(rings)?;
        if rings && !self.core.listen(&self.shared.attachment)? {
            return Ok(Some(0));
        }
        Ok(self.core.deadline().map(|deadline| deadline.saturating_sub(sys::now())))
    }
}

fn round<H: Handler>(
    shared: &Shared<H>,
    wait_set: &HandlerWaitSet,
    state: &mut TickState,
) -> Result<(), ChannelError> {
    wait_set.wait()?;
    if shared.stop.load(Acquire) {
        return Ok(());
    }
    shared.handover.turn(state, wait_set, || {
        // SAFETY: `turn` calls this with the lock held, and drops what it gets before the lock goes back.
        let core = unsafe { &mut *shared.core() };
        LockedChannel { core, shared, wait_set }
    })
}

/// Most receives while the lock is held: main may want it.
const MOST_RECEIVES: usize = 16;

fn serve<H: Handler>(
    core: &mut ChannelCore<H>,
    attachment: &Attachment,
    rings: bool,
) -> Result<(), ChannelError> {
    attachment.count(Counter::HandlerRuns, 1);
    tracepoints::serve();
    core.update_clock();
    for _ in 0..MOST_RECEIVES {
        if !core.receive()? {
            break;
        }
        core.take_datagrams(attachment);
        core.service(attachment)?;
    }
    for _ in 0..MOST_RECEIVES {
        if !rings {
            break;
        }
        core.drain_rings(attachment)?;
        core.service(attachment)?;
        if !core.ring_hint(attachment) {
            break;
        }
    }
    core.service(attachment)?;
    core.publish_all(attachment);
    Ok(())
}
