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
//! When it does which of these is decided in `handover`. What is here is the work while the lock is held, and the thread
//! itself; `wait_set` has the system's calls.
//!
//! Rings from ranks of this node concern it only while `Channel::serve_rings` says so. It then listens
//! to the rank's doorbell too, which peers ring as they do for a sleeping main thread.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::Acquire;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use crate::channel::core::{ChannelCore, Handler};
use crate::channel::handover::{Service, TICK, TickState, Timer};
use crate::channel::priority::{HandlerSetting, Thread};
use crate::channel::wait_set::HandlerWaitSet;
use crate::channel::{ChannelError, Shared};
use crate::segment::attachment::{AttachError, Attachment, io_error};
use crate::segment::counters::Counter;
use crate::{sys, tracepoints};

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
    let start = || std::thread::Builder::new().name(name.into()).spawn(body);
    // Miri knows no signals.
    if cfg!(miri) {
        return start();
    }
    // SAFETY: all-zero sets are valid and are filled in before use.
    let before = unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        before
    };
    let thread = start();
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
            self.wait_set.silence_bell();
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
