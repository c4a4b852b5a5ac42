//! A rank's channel, and the waits of the program's main thread.

pub(crate) mod core;
pub(crate) mod fork_check;
pub(crate) mod handler_thread;
pub(crate) mod handover;
mod late_reads;
pub(crate) mod lock;
pub mod priority;
mod settling;
mod shutdown;
pub(crate) mod waker;
pub(crate) mod zero_copy;

use std::cell::{Cell, RefCell, UnsafeCell};
use std::io;
use std::marker::PhantomData;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Release;
use std::thread::JoinHandle;

use kumi_proto::SendError;

use crate::channel::core::{ChannelCore, Handler};
use crate::channel::fork_check::ForkCheck;
use crate::channel::handler_thread::{HandlerWaitSet, start};
use crate::channel::handover::Handover;
use crate::channel::lock::DriveLock;
use crate::channel::priority::{HandlerSetting, Thread};
use crate::channel::waker::ChannelWaker;
use crate::disclosure::DisclosedPages;
use crate::segment::attachment::{AttachError, Attachment, io_error};
use crate::shared_bytes::CopySource;
use crate::shm::ring::RingDamage;
use crate::wait::spin::{AdaptiveSpin, SpinLimit, SpinMode, processors};
use crate::wait::{Wait, WaitEvent, WaitFlags};

/// Most packets of full length of one run, and most bytes.
const MOST_SEGMENTS: usize = 44;
const MOST_BYTES: usize = 65_507;

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
    pub(crate) lock: DriveLock,
    pub(crate) handover: Handover,
    pub(crate) stop: AtomicBool,
    pub(crate) failed: OnceLock<String>,
    /// Wakes the handler thread; none if there is no handler thread.
    pub(crate) wait_set: OnceLock<HandlerWaitSet>,
    /// In which process it was started.
    pub(crate) forks: ForkCheck,
    pub(crate) attachment: Attachment,
}

// SAFETY: the core is only touched by the holder of `lock`; everything else is shareable.
unsafe impl<H: Send> Sync for Shared<H> {}

impl<H> Shared<H> {
    /// # Safety
    /// The caller holds the lock, and the reference does not outlive that.
    #[expect(clippy::mut_from_ref, reason = "the lock makes it exclusive")]
    pub(crate) unsafe fn core(&self) -> &mut ChannelCore<H> {
        // SAFETY: exclusive by the caller's promise.
        unsafe { &mut *self.core.get() }
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

/// A rank's channel. Used from one thread (not `Sync`); its handler thread lives until it is
/// dropped.
pub struct Channel<H: Handler> {
    pub(crate) shared: Arc<Shared<H>>,
    thread: RefCell<Option<JoinHandle<()>>>,
    handler: Option<HandlerSetting>,
    spin: RefCell<AdaptiveSpin>,
    disclosed: Option<DisclosedPages>,
    /// Place of this rank's processor among the node's.
    processor: usize,
    _not_sync: PhantomData<Cell<()>>,
}

impl<H: Handler> std::fmt::Debug for Channel<H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Channel")
            .field("attachment", &self.shared.attachment)
            .finish_non_exhaustive()
    }
}

/// The right to drive the channel, until it is dropped.
pub struct Guard<'c, H: Handler> {
    pub(crate) shared: &'c Shared<H>,
    pub(crate) core: &'c mut ChannelCore<H>,
}

impl<H: Handler> Drop for Guard<'_, H> {
    fn drop(&mut self) {
        self.shared.lock.unlock_main();
        self.shared.handover.main_unlocked(self.shared.wait_set.get());
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
        let core = ChannelCore::new(&attachment, socket, handler)?;
        let remote = core.remote.is_some();
        let processors = processors();
        let crowded = attachment.local_count() > processors;
        let processor = attachment.local() % processors;
        let shared = Arc::new(Shared {
            core: UnsafeCell::new(core),
            lock: DriveLock::default(),
            handover: Handover::default(),
            stop: AtomicBool::new(false),
            failed: OnceLock::new(),
            wait_set: OnceLock::new(),
            forks: ForkCheck::watch().map_err(io_error("pthread_atfork"))?,
            attachment,
        });
        let spin = RefCell::new(AdaptiveSpin::new(settings.spin, crowded));
        let (thread, handler) = (RefCell::new(None), settings.handler);
        let disclosed = None;
        let _not_sync = PhantomData;
        let channel = Channel { shared, thread, handler, spin, disclosed, processor, _not_sync };
        if remote {
            channel.start_thread()?;
        }
        Ok(channel)
    }

    fn start_thread(&self) -> Result<(), AttachError> {
        let shared = &self.shared;
        let socket = {
            let guard = self.lock().map_err(|error| io_error("lock")(io::Error::other(error)))?;
            guard.core.remote.as_ref().map(|remote| remote.wire.readable())
        };
        let wait_set = HandlerWaitSet::new(socket, shared.attachment.own_bell())?;
        shared.wait_set.get_or_init(|| wait_set);
        *self.thread.borrow_mut() = Some(start(Arc::clone(shared), self.handler)?);
        self.handler.map_or(Ok(()), |handler| handler.apply(Thread::Main))
    }

    /// From now on, or no longer, what ranks of this node send is served while the program computes,
    /// as what comes from other nodes always is. Needed when they are to reach memory that they have not
    /// mapped.
    ///
    /// # Errors
    /// [`AttachError`] if there can be no handler thread.
    pub fn serve_rings(&self, serve: bool) -> Result<(), AttachError> {
        if serve && self.thread.borrow().is_none() {
            self.start_thread()?;
        }
        self.shared.handover.set_serves_rings(serve, self.shared.wait_set.get());
        Ok(())
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
    fn limit(&self, spin: &AdaptiveSpin) -> SpinLimit<'_> {
        let rotation = self.disclosed.as_ref();
        let page = rotation.filter(|_| spin.asks()).map(|page| (page, self.processor));
        SpinLimit { bound: spin.bound(), at_once: spin.why_at_once(), page, rotation }
    }

    /// A way to have this channel served from another thread.
    #[must_use]
    pub fn waker(&self) -> ChannelWaker {
        ChannelWaker::new(Arc::clone(&self.shared))
    }

    /// Brings all counters in the context up to date. Without it those that are not needed at once
    /// are some milliseconds old. If the handler thread has failed they stay as they are.
    pub fn publish(&self) {
        if let Ok(guard) = self.lock() {
            guard.core.publish_all(&self.shared.attachment);
        }
    }

    /// Takes the lock, also if the channel has failed: then for nothing but tidying up.
    pub(crate) fn lock_anyway(&self) -> Guard<'_, H> {
        let shared = &*self.shared;
        shared.lock.lock_main();
        shared.handover.main_locked();
        // SAFETY: the lock is held until the guard is dropped.
        let core = unsafe { shared.core() };
        Guard { shared, core }
    }

    /// Takes the right to drive the channel.
    ///
    /// # Errors
    /// [`ChannelError::HandlerThread`] if the handler thread has failed, [`ChannelError::Forked`] in a child of the process.
    pub fn lock(&self) -> Result<Guard<'_, H>, ChannelError> {
        if self.shared.forks.is_child() {
            return Err(ChannelError::Forked);
        }
        let guard = self.lock_anyway();
        let shared = guard.shared;
        if let Some(message) = shared.failed.get() {
            return Err(ChannelError::HandlerThread(message.clone()));
        }
        guard.core.update_clock();
        if guard.core.armed {
            guard.core.armed = false;
            if let Some(wait_set) = shared.wait_set.get() {
                wait_set.disarm(shared.handover.serves_rings());
            }
        }
        Ok(guard)
    }

    /// Drives the channel until `attempt` gives something: called once at first, then after
    /// everything that may have changed its answer.
    ///
    /// # Errors
    /// Those of the channel and of `attempt`.
    pub fn wait<R, E: From<ChannelError>>(
        &self,
        wait: Wait,
        mut attempt: impl FnMut(&mut Guard<'_, H>) -> Result<Option<R>, E>,
    ) -> Result<R, E> {
        let mut guard = self.lock()?;
        if let Some(result) = attempt(&mut guard)? {
            guard.let_go(wait).map_err(E::from)?;
            return Ok(result);
        }
        // Frames refused before may fit the new wait.
        guard.core.drain_rings(&self.shared.attachment)?;
        guard.core.service(&self.shared.attachment)?;
        let mut spin = self.spin.borrow_mut();
        let limit = self.limit(&spin);
        let mut waiting = WaitFlags::new(&self.shared.attachment, wait);
        loop {
            if let Some(result) = attempt(&mut guard)? {
                waiting.over(&mut spin);
                return Ok(result);
            }
            waiting.idle(true);
            match guard.watch(&mut waiting, limit).map_err(E::from)? {
                WaitEvent::Counter => {
                    waiting.idle(false);
                    continue;
                }
                WaitEvent::Ring => {
                    waiting.idle(false);
                    guard.core.drain_rings(&self.shared.attachment).map_err(E::from)?;
                }
                WaitEvent::Socket => {
                    waiting.idle(false);
                    if let Some(result) = guard.take_datagrams(&mut attempt)? {
                        waiting.over(&mut spin);
                        return Ok(result);
                    }
                }
                // Datagrams in the socket are read first.
                WaitEvent::Deadline => waiting.idle(false),
                // Room is made without any sign while this rank is awake.
                WaitEvent::Turn => continue,
                WaitEvent::Bound => {
                    guard.core.check_unreachable()?;
                    guard.before_sleep(&mut waiting).map_err(E::from)?;
                    if wait == Wait::Room
                        && let Some(result) = attempt(&mut guard)?
                    {
                        waiting.over(&mut spin);
                        return Ok(result);
                    }
                    guard.sleep(&mut waiting, None);
                    continue;
                }
            }
            waiting.since = 0;
            guard.core.service(&self.shared.attachment).map_err(E::from)?;
            guard.core.check_unreachable()?;
        }
    }

    pub(crate) fn stop_thread(&mut self) {
        if self.shared.forks.is_child() {
            // Its thread is not here, and what would call it is the rank's too.
            std::mem::forget(self.thread.get_mut().take());
            return;
        }
        self.shared.stop.store(true, Release);
        if let Some(wait_set) = self.shared.wait_set.get() {
            wait_set.stop();
        }
        if let Some(thread) = self.thread.get_mut().take() {
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

impl<H: Handler> Guard<'_, H> {
    /// The layer above.
    pub fn handler(&mut self) -> &mut H {
        &mut self.core.handler
    }

    /// Queues one frame made of the parts; false if there is no room now. To another node it leaves
    /// with [`Guard::transmit`], so that a run of frames is sent by one call.
    ///
    /// # Errors
    /// [`ChannelError::NoRank`], [`ChannelError::Protocol`].
    pub fn send(&mut self, to: u32, parts: &[&[u8]]) -> Result<bool, ChannelError> {
        self.core.send(&self.shared.attachment, to, parts, &[] as &[&[u8]])
    }

    /// As [`Guard::send`], with further parts, which may be shared memory.
    ///
    /// # Errors
    /// As [`Guard::send`].
    pub fn send_parts<S: CopySource>(
        &mut self,
        to: u32,
        head: &[&[u8]],
        data: &[S],
    ) -> Result<bool, ChannelError> {
        self.core.send(&self.shared.attachment, to, head, data)
    }

    /// As [`Guard::send`] to a rank of another node, without a copy of the frame's own: `write` makes it
    /// where it is to be. It gets room for the longest frame and says how long its own is.
    ///
    /// # Errors
    /// As [`Guard::send`].
    #[inline]
    pub fn send_remote_with(
        &mut self,
        to: u32,
        write: impl FnOnce(&mut [u8]) -> usize,
    ) -> Result<bool, ChannelError> {
        self.core.send_remote_with(&self.shared.attachment, to, write)
    }

    /// Two numbers for a rank of another node: how many frames [`Guard::send`] takes now, and how many
    /// are worth waiting for when more will follow. The second is a run of packets, which leaves by one
    /// system call. (Filling every slot as soon as an ack frees it makes ever shorter runs, and as many
    /// acks.)
    ///
    /// `None` for a rank of this node.
    #[must_use]
    pub fn room(&self, to: u32) -> Option<(usize, usize)> {
        let remote = self.core.remote.as_ref()?;
        if self.shared.attachment.local_of(to).is_some() {
            return None;
        }
        let endpoint = &remote.endpoint;
        let config = endpoint.config();
        let run = (MOST_BYTES / config.max_datagram).min(MOST_SEGMENTS);
        Some((endpoint.room(to), run.min(config.window / 2).max(1)))
    }

    /// Tries again to answer ranks of this node whose rings were full.
    pub(crate) fn unblock(&mut self) -> Result<(), ChannelError> {
        if self.core.blocked { self.core.service(&self.shared.attachment) } else { Ok(()) }
    }

    /// Puts queued frames on the wire.
    ///
    /// # Errors
    /// [`ChannelError::Io`].
    pub fn transmit(&mut self) -> Result<(), ChannelError> {
        self.core.publish(&self.shared.attachment);
        self.core.transmit(&self.shared.attachment)
    }

    /// As [`Guard::transmit`], for a program that sends on without waiting. While packets to `to` are
    /// in flight, further ones are held back until one of these happens:
    ///
    /// - they fill a run, which leaves by one system call;
    /// - this rank waits or asks for progress;
    /// - the handler thread looks, at most a millisecond later.
    ///
    /// # Errors
    /// [`ChannelError::Io`].
    #[inline]
    pub fn transmit_soon(&mut self, to: u32) -> Result<(), ChannelError> {
        self.core.transmit_soon(&self.shared.attachment, to)
    }

    /// Takes what the socket gave. The attempt comes first: an ack can then be piggybacked on the
    /// program's next packet, instead of waiting for the handler thread's tick.
    fn take_datagrams<R, E: From<ChannelError>>(
        &mut self,
        attempt: &mut impl FnMut(&mut Self) -> Result<Option<R>, E>,
    ) -> Result<Option<R>, E> {
        self.core.take_datagrams(&self.shared.attachment);
        let result = attempt(self)?;
        if result.is_some() {
            if self.core.is_pressed() {
                self.core.service(&self.shared.attachment)?;
            }
            self.core.publish(&self.shared.attachment);
        }
        Ok(result)
    }

    /// Sends what is held back when a wait is over at once: the program may compute next. One for room
    /// belongs to a send, which decides itself.
    fn let_go(&mut self, wait: Wait) -> Result<(), ChannelError> {
        if wait == Wait::Room || !self.core.holds_back() {
            return Ok(());
        }
        self.core.transmit(&self.shared.attachment)
    }

    /// Everything sent to this rank has been taken there.
    #[must_use]
    pub fn flushed(&self, to: u32) -> bool {
        match (self.shared.attachment.local_of(to), &self.core.remote) {
            (Some(local), _) => self.core.drained(local),
            (None, Some(remote)) => remote.endpoint.flushed(to),
            (None, None) => true,
        }
    }

    /// Takes all that has arrived, and sends what is due. Does not wait.
    ///
    /// # Errors
    /// Those of the channel.
    pub fn progress(&mut self) -> Result<(), ChannelError> {
        let most = 2 * self.shared.attachment.ring_bytes() / crate::channel::core::ENOUGH + 1;
        for _ in 0..most {
            self.core.drain_rings(&self.shared.attachment)?;
            if !self.core.ring_hint(&self.shared.attachment) {
                break;
            }
        }
        // Bounded: a flood must not keep the caller here.
        for _ in 0..64 {
            if !self.core.receive()? {
                break;
            }
            self.core.take_datagrams(&self.shared.attachment);
            self.core.service(&self.shared.attachment)?;
        }
        self.core.service(&self.shared.attachment)?;
        self.core.publish(&self.shared.attachment);
        Ok(())
    }
}
