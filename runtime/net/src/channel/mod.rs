//! A rank's channel, and the waits of the program's main thread.

pub(crate) mod change;
pub(crate) mod core;
mod described_wait;
pub(crate) mod fork_check;
pub(crate) mod guard;
pub(crate) mod handler_thread;
pub(crate) mod handover;
pub(crate) mod landing;
mod late_reads;
pub(crate) mod lock;
mod polling;
pub mod priority;
mod protocol;
mod serving;
mod settling;
mod shutdown;
pub(crate) mod turns;
#[cfg_attr(miri, path = "../miri/wait_set.rs")]
pub(crate) mod wait_set;
pub(crate) mod waker;
pub(crate) mod zero_copy;

use std::cell::UnsafeCell;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Release;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;

use kumi_proto::SendError;

use crate::channel::core::{ChannelCore, Handler, Origin};
use crate::channel::described_wait::DescribedWait;
use crate::channel::fork_check::ForkCheck;
use crate::channel::guard::Guard;
use crate::channel::handover::Handover;
use crate::channel::priority::HandlerSetting;
use crate::channel::wait_set::HandlerWaitSet;
use crate::channel::waker::ChannelWaker;
use crate::disclosure::DisclosedPages;
use crate::segment::attachment::{AttachError, Attachment, io_error};
use crate::shm::ring::RingDamage;
use crate::wait::spin::{AdaptiveSpin, SpinLimit, SpinMode, processors};
use crate::wait::{Wait, WaitEvent, WaitFlags};
use crate::wire::Wire;

/// Errors of a running channel.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChannelError {
    /// No such rank.
    #[error("rank {to} does not exist in a job of {ranks} ranks")]
    NoRank {
        /// The rank asked for.
        to: u32,
        /// Ranks of the job.
        ranks: u32,
    },
    /// The protocol refuses a frame.
    #[error(transparent)]
    Protocol(SendError),
    /// A peer on this node scribbled over a ring.
    #[error(
        "rank {from} has damaged the memory it shares with this rank: {damage}; end the job and look for stray writes there"
    )]
    Ring {
        /// The peer.
        from: u32,
        /// The damage found.
        damage: RingDamage,
    },
    /// The kernel refused something.
    #[error("the channel's socket failed: {0}")]
    Io(#[from] io::Error),
    /// This machine has refused for some seconds to send packets to a peer. The channel keeps trying,
    /// so a later wait may succeed.
    #[error(
        "rank {to} cannot be reached: for seconds this machine has refused to send to it ({reason}); look at its firewall, routes and addresses"
    )]
    Unreachable {
        /// The peer.
        to: u32,
        /// The kernel's reason.
        reason: io::Error,
    },
    /// The handler thread met an error or panicked; the channel is dead.
    #[error("the channel's handler thread has failed: {0}; end the job")]
    HandlerThread(String),
    /// This process is a child of the rank, made with `fork`: packets of its own would ruin the rank's channel.
    #[error("this process is a fork of a rank; only the rank itself can communicate")]
    Forked,
}

/// Everything that main thread and handler thread share.
pub(crate) struct Shared<H> {
    core: UnsafeCell<ChannelCore<H>>,
    pub(crate) handover: Handover,
    pub(crate) stop: AtomicBool,
    pub(crate) failed: OnceLock<String>,
    /// Wakes the handler thread; none if there is no handler thread.
    pub(crate) wait_set: OnceLock<HandlerWaitSet>,
    /// In which process it was started.
    pub(crate) forks: ForkCheck,
    pub(crate) attachment: Attachment,
}

// SAFETY: the core is only touched by the holder of the lock in `handover`; everything else is shareable.
unsafe impl<H: Send> Sync for Shared<H> {}

impl<H> Shared<H> {
    /// The core. Only the holder of the lock may make a reference of it, and none may outlive the lock.
    #[inline]
    pub(crate) fn core(&self) -> *mut ChannelCore<H> {
        self.core.get()
    }
}

/// Settings of a rank's channel that its environment has.
#[derive(Debug, Clone, Copy)]
pub struct ChannelSettings {
    /// How long waits spin.
    pub spin: SpinMode,
    /// How handler and main thread are scheduled; as the process is, if nothing is said, or as long as there is no handler.
    pub handler: Option<HandlerSetting>,
}

impl ChannelSettings {
    /// Reads `KUMI_SPIN` and `KUMI_HANDLER`.
    ///
    /// # Errors
    /// [`AttachError::BadSetting`].
    pub fn from_env() -> Result<ChannelSettings, AttachError> {
        Ok(ChannelSettings { spin: SpinMode::from_env()?, handler: HandlerSetting::from_env()? })
    }
}

/// A rank's channel, for all threads of the program. Its handler thread lives until it is dropped.
pub struct Channel<H: Handler> {
    pub(crate) shared: Arc<Shared<H>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    handler: Option<HandlerSetting>,
    disclosed: Option<DisclosedPages>,
    /// Place of this rank's processor among the node's.
    processor: usize,
}

impl<H: Handler> std::fmt::Debug for Channel<H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Channel")
            .field("attachment", &self.shared.attachment)
            .finish_non_exhaustive()
    }
}

impl<H: Handler> Channel<H> {
    /// Starts the channel of an attached rank. Without a socket, or with all ranks on this node,
    /// there is no handler thread: nothing can arrive that needs one (but see
    /// [`Channel::serve_rings`]).
    ///
    /// # Errors
    /// The kernel's error.
    pub fn start(
        attachment: Attachment,
        socket: Option<OwnedFd>,
        settings: ChannelSettings,
        handler: H,
    ) -> Result<Channel<H>, AttachError> {
        Channel::start_on(attachment, socket.map(Wire::Udp), settings, handler)
    }

    /// As [`Channel::start`], on any wire.
    ///
    /// # Errors
    /// The kernel's error, or the wire's.
    pub fn start_on(
        attachment: Attachment,
        wire: Option<Wire>,
        settings: ChannelSettings,
        handler: H,
    ) -> Result<Channel<H>, AttachError> {
        if attachment.is_copy() {
            return Err(AttachError::IsCopy(attachment.rank()));
        }
        let core = ChannelCore::new(&attachment, wire, handler, Origin::New)?;
        Channel::with(core, attachment, settings)
    }

    /// Goes on with the channel of a rank that was stopped, in another process and perhaps on another machine. The attached
    /// files are copies of its files ([`Segment::go_on`](crate::segment::Segment::go_on)); wire and addresses are new.
    ///
    /// `find` finds data that the old process had lent: it gets the rank addressed, the place as the old process called it,
    /// and room for a copy. It says false if it cannot.
    ///
    /// The old process must not go on. The new handler has to go on too where the old one was stopped: what the channel
    /// has delivered does not come again.
    ///
    /// # Errors
    /// [`AttachError::NoCopy`]; [`AttachError::Context`] if the copy is not whole, is damaged, or belongs to another
    /// rank; the kernel's error.
    pub fn resume(
        attachment: Attachment,
        wire: Option<Wire>,
        settings: ChannelSettings,
        handler: H,
        mut find: impl FnMut(u32, u64, &mut [u8]) -> bool,
    ) -> Result<Channel<H>, AttachError> {
        if !attachment.is_copy() {
            return Err(AttachError::NoCopy(attachment.rank()));
        }
        let core = ChannelCore::new(&attachment, wire, handler, Origin::Copy(&mut find))?;
        Channel::with(core, attachment, settings)
    }

    fn with(
        mut core: ChannelCore<H>,
        attachment: Attachment,
        settings: ChannelSettings,
    ) -> Result<Channel<H>, AttachError> {
        let remote = core.remote.is_some();
        let processors = processors();
        core.waits.spin = AdaptiveSpin::new(settings.spin, attachment.local_count(), processors);
        let processor = attachment.local() % processors;
        let shared = Arc::new(Shared {
            core: UnsafeCell::new(core),
            handover: Handover::default(),
            stop: AtomicBool::new(false),
            failed: OnceLock::new(),
            wait_set: OnceLock::new(),
            forks: ForkCheck::watch().map_err(io_error("pthread_atfork"))?,
            attachment,
        });
        let (thread, handler) = (Mutex::new(None), settings.handler);
        let channel = Channel { shared, thread, handler, disclosed: None, processor };
        if remote {
            channel.start_thread(&mut channel.thread())?;
        }
        Ok(channel)
    }

    /// Where this rank is.
    #[must_use]
    pub fn attachment(&self) -> &Attachment {
        &self.shared.attachment
    }

    /// Gives it the pages of its node, which waits ask from now on.
    pub fn disclose(&mut self, pages: DisclosedPages) {
        self.disclosed = Some(pages);
    }

    /// The pages of its node, if it has them.
    #[must_use]
    pub fn disclosed(&self) -> Option<&DisclosedPages> {
        self.disclosed.as_ref()
    }

    /// How long a wait may spin now.
    fn limit(&self, spin: &mut AdaptiveSpin) -> SpinLimit<'_> {
        let rotation = self.disclosed.as_ref();
        let page = rotation.filter(|_| spin.asks()).map(|page| (page, self.processor));
        let (bound, yields) = spin.begin();
        SpinLimit { bound, at_once: spin.why_at_once(), page, rotation, yields }
    }

    /// A way to have this channel served from another thread.
    #[must_use]
    pub fn waker(&self) -> ChannelWaker {
        ChannelWaker::new(Arc::clone(&self.shared))
    }

    /// Brings all counters in the context up to date. Without it those that are not needed at once
    /// are some milliseconds old. If the handler thread has failed they stay as they are.
    pub fn publish(&self) {
        if let Ok(mut guard) = self.lock() {
            guard.core().publish_all(&self.shared.attachment);
        }
    }

    /// Takes the lock, also if the channel has failed: then for nothing but tidying up.
    pub(crate) fn lock_anyway(&self) -> Guard<'_, H> {
        Guard::take(&self.shared)
    }

    /// Takes the right to drive the channel.
    ///
    /// # Errors
    /// [`ChannelError::HandlerThread`] if the handler thread has failed, [`ChannelError::Forked`] in a child of the process.
    pub fn lock(&self) -> Result<Guard<'_, H>, ChannelError> {
        if self.shared.forks.is_child() {
            return Err(ChannelError::Forked);
        }
        let mut guard = self.lock_anyway();
        let shared = guard.shared;
        if let Some(message) = shared.failed.get() {
            return Err(ChannelError::HandlerThread(message.clone()));
        }
        guard.disarm();
        Ok(guard)
    }

    /// Drives the channel until `attempt` gives something: called once at first, then after
    /// everything that may have changed its answer. It gets the right to drive for the time of the call only.
    ///
    /// # Errors
    /// Those of the channel and of `attempt`.
    pub fn wait<R, E: From<ChannelError>>(
        &self,
        wait: Wait,
        attempt: impl FnMut(&mut Guard<'_, H>) -> Result<Option<R>, E>,
    ) -> Result<R, E> {
        self.wait_with(wait, None, attempt)
    }

    /// As [`Channel::wait`]; `attempt` is also called when the clock of [`crate::sys::now`] has reached `latest`, and may then
    /// give something that ends the wait.
    ///
    /// # Errors
    /// As [`Channel::wait`].
    pub fn wait_with<R, E: From<ChannelError>>(
        &self,
        wait: Wait,
        latest: Option<u64>,
        mut attempt: impl FnMut(&mut Guard<'_, H>) -> Result<Option<R>, E>,
    ) -> Result<R, E> {
        let mut guard = self.lock()?;
        let first = attempt(&mut guard.lend())?;
        if let Some(result) = first {
            guard.let_go(wait).map_err(E::from)?;
            return Ok(result);
        }
        // Frames refused before may fit the new wait.
        guard.drain_and_serve()?;
        guard.tell_parked();
        let mut described = DescribedWait::new(&self.shared, wait, latest);
        let mut looks = 0;
        while guard.core().waits.driven {
            if let Some(result) = attempt(&mut guard.lend())? {
                return Ok(result);
            }
            described.describe(guard.core().handler.awaits());
            described.locate();
            guard.park(wait, looks, described.sleep_until(latest))?;
            looks += 1;
        }
        let _driving = guard.begin_driving();
        self.drive(&mut guard, (wait, latest), &mut described, attempt)
    }

    /// Drives the channel until `attempt` gives something, which it has not done before.
    fn drive<R, E: From<ChannelError>>(
        &self,
        guard: &mut Guard<'_, H>,
        (wait, latest): (Wait, Option<u64>),
        described: &mut DescribedWait<'_, H>,
        mut attempt: impl FnMut(&mut Guard<'_, H>) -> Result<Option<R>, E>,
    ) -> Result<R, E> {
        let limit = self.limit(&mut guard.core().waits.spin);
        let mut waiting = WaitFlags::new(&self.shared.attachment, wait, limit.yields);
        waiting.latest = latest;
        loop {
            let result = attempt(&mut guard.lend())?;
            if let Some(result) = result {
                waiting.over(&mut guard.core().waits.spin);
                return Ok(result);
            }
            guard.retry_refused(&mut waiting.awaited);
            waiting.idle(guard.core().waits.are_settled());
            let seen = guard.watch(&mut waiting, limit).map_err(E::from)?;
            if !matches!(seen, WaitEvent::Turn | WaitEvent::Bound) {
                waiting.idle(false);
            }
            match seen {
                WaitEvent::Counter => continue,
                WaitEvent::Ring => guard.drain_rings().map_err(E::from)?,
                WaitEvent::Wanted => {
                    guard.let_others()?;
                    continue;
                }
                WaitEvent::Socket => {
                    if let Some(result) = guard.take_datagrams(&mut attempt)? {
                        waiting.over(&mut guard.core().waits.spin);
                        return Ok(result);
                    }
                }
                // Datagrams in the socket are read first.
                WaitEvent::Deadline => {}
                // Room is made without any sign while this rank is awake.
                WaitEvent::Turn => continue,
                WaitEvent::Bound => {
                    described.describe(guard.core().handler.awaits());
                    described.locate();
                    let until = described.sleep_until(latest);
                    let result = Self::block(guard, &mut waiting, until, &mut attempt)?;
                    let Some(result) = result else {
                        continue;
                    };
                    waiting.over(&mut guard.core().waits.spin);
                    return Ok(result);
                }
            }
            waiting.since = 0;
            guard.service().map_err(E::from)?;
            guard.tell_parked();
            // Here too: while frames come without end, no look finds that others want it.
            guard.let_others()?;
            guard.core().check_unreachable()?;
        }
    }

    /// Sleeps until something happens, or this time. What waits for room is attempted once more before.
    fn block<R, E: From<ChannelError>>(
        guard: &mut Guard<'_, H>,
        waiting: &mut WaitFlags<'_>,
        until: Option<u64>,
        attempt: &mut impl FnMut(&mut Guard<'_, H>) -> Result<Option<R>, E>,
    ) -> Result<Option<R>, E> {
        guard.core().check_unreachable()?;
        let room = waiting.is_for_room() || guard.core().blocked;
        guard.before_sleep(waiting).map_err(E::from)?;
        let result = if room { attempt(&mut guard.lend())? } else { None };
        if result.is_none() {
            guard.sleep(waiting, until);
            guard.tell_parked();
        }
        Ok(result)
    }

    fn take_thread(&mut self) -> Option<JoinHandle<()>> {
        self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(crate) fn stop_thread(&mut self) {
        if self.shared.forks.is_child() {
            // Its thread is not here, and what would call it is the rank's too.
            std::mem::forget(self.take_thread());
            return;
        }
        self.shared.stop.store(true, Release);
        if let Some(wait_set) = self.shared.wait_set.get() {
            wait_set.stop();
        }
        if let Some(thread) = self.take_thread() {
            // A panic there was caught and is in `failed`.
            let _ = thread.join();
        }
    }
}

impl<H: Handler> Drop for Channel<H> {
    fn drop(&mut self) {
        self.stop_thread();
    }
}
