//! The context: a rank's connection to its job.

use kumi_net::{Description, WaitKind};
use std::mem::ManuallyDrop;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use kumi_net::counters::Counter;
use kumi_net::disclosure::DisclosedPages;
use kumi_net::launch::{LaunchBlock, LaunchError, PageDescriptors};
use kumi_net::layout::arena_bytes;
use kumi_net::trace::{TraceDescriptor, Tracer};
use kumi_net::xdp::XdpDescriptors;
use kumi_net::{AttachError, Attachment, Channel, CopySource, Guard, Wait, Wire};
use kumi_proto::frame::Frame;

use crate::engine::Engine;
use crate::engine::interrupt::InterruptHook;
use crate::error::{Error, Refusal};
use crate::fifo::signal::HandlerFailures;
use crate::group::GroupState;
use crate::group::numbers::GroupNumbers;
use crate::request::outgoing::SendTurn;
use crate::request::table::{PendingRequest, Request, RequestEnd};
use crate::window::key::RandomSource;

/// Bytes of messages that are kept unread, unless `KUMI_UNEXPECTED_BYTES` says otherwise.
const UNREAD_BYTES: usize = 16 << 20;
/// How long the end waits for acks after the last sign of life of a peer.
pub(crate) const LINGER: Duration = Duration::from_secs(2);

/// Calls that sent frames to a rank.
#[derive(Debug, Default)]
pub(crate) struct FrameCounts {
    /// Raised before and after the frames of a call are queued.
    pub(crate) begun: AtomicU64,
    /// What `begun` was when a question left whose answer has come: all before it arrived.
    pub(crate) confirmed: AtomicU64,
}

/// A rank's side of its job: one per process, for all of its threads.
///
/// Each operation is as if it were alone, and those of a thread keep their order. Operations that all ranks take part in
/// (windows being made, collectives, multicasts) come one after another, as at the other ranks.
///
/// Messages between a pair of ranks arrive in order, each exactly once. When the program ends
/// without an error, drop the context (or call [`Context::finalize`]): it stays until what was sent
/// has arrived.
///
/// A child that the process makes with `fork` is no rank: it must not use the context, its windows and what
/// they gave. Dropping them there does nothing, so that the rank itself keeps what it has.
#[derive(Debug)]
pub struct Context {
    /// Dropped with the context, unless that is a copy in another process.
    pub(crate) channel: ManuallyDrop<Channel<Engine>>,
    /// The process that is the rank.
    process: u32,
    /// By rank: frames that put to it, or that went to it on another node.
    pub(crate) frames: Vec<FrameCounts>,
    finished: AtomicBool,
    /// Bytes of the longest frame that all ways take, to this node and to others.
    pub(crate) longest: usize,
    /// Frames to other nodes are so long that their data is sent from where it lies.
    pub(crate) lends: bool,
    /// Errors of signal handlers.
    pub(crate) failures: Arc<HandlerFailures>,
    /// Whom calls that wait ask whether to go on.
    pub(crate) interrupts: OnceLock<InterruptHook>,
    /// Held during a multicast: one at a time.
    pub(crate) multicasting: Mutex<()>,
    /// The group of all ranks, and the numbers of all groups.
    pub(crate) job_group: GroupState,
    pub(crate) groups: Arc<GroupNumbers>,
    /// There if the job is traced.
    tracer: Option<Arc<Tracer>>,
}

impl Context {
    /// Joins the job that `kumi run` started this process for. With `KUMI_SINGLETON=1` a program
    /// that was started by hand runs as a job of one rank.
    ///
    /// # Errors
    /// [`Error::NotLaunched`], [`Error::Attach`].
    pub fn init() -> Result<Context, Error> {
        match LaunchBlock::from_env() {
            Ok(launch) => Context::join(&launch),
            Err(LaunchError::NotLaunched)
                if std::env::var_os("KUMI_SINGLETON").is_some_and(|value| value == "1") =>
            {
                Context::init_singleton()
            }
            Err(error) => Err(AttachError::from(error).into()),
        }
    }

    /// Joins the job of a launch block, which is this process's.
    fn join(launch: &LaunchBlock) -> Result<Context, Error> {
        static JOINED: AtomicBool = AtomicBool::new(false);
        let pages = PageDescriptors::from_env().map_err(AttachError::from)?;
        let xdp = XdpDescriptors::from_env().map_err(AttachError::from)?;
        let trace = TraceDescriptor::from_env().map_err(AttachError::from)?;
        if JOINED.swap(true, SeqCst) {
            return Err(AttachError::AlreadyAttached(launch.rank).into());
        }
        // SAFETY: the daemon opened these descriptors for this process to take over, and its environment names them. This
        // happens once, and nothing else of the process takes them.
        let owned = unsafe {
            launch.adopt().and_then(|own| {
                let pages = pages.map(|both| both.adopt()).transpose()?;
                let xdp = xdp.map(|parts| parts.adopt()).transpose()?;
                let ring = trace.map(|ring| Ok((ring.adopt()?, ring.events))).transpose()?;
                Ok((own, pages, xdp, ring))
            })
        };
        let (descriptors, pages, xdp, ring) = owned.map_err(AttachError::from)?;
        let tracer = ring.map(|(file, events)| Tracer::open(&file, events)).transpose()?;
        let (attachment, socket) = Attachment::attach(launch, descriptors)?;
        let pages = pages.map(|[node, job]| DisclosedPages::open(&node, &job)).transpose()?;
        let wire = match xdp {
            Some(parts) => Wire::Xdp(socket, parts),
            None => Wire::Udp(socket),
        };
        let mut context = Context::start(attachment, Some(wire), pages)?;
        context.tracer = tracer.map(Arc::new);
        Ok(context)
    }

    /// Joins as one of several ranks of this process, each with a thread of its own: Miri runs one process only.
    ///
    /// # Errors
    /// [`Error::Attach`].
    #[cfg(miri)]
    pub fn join_in_process(
        launch: &LaunchBlock,
        descriptors: kumi_net::launch::LaunchDescriptors,
    ) -> Result<Context, Error> {
        let (attachment, socket) = Attachment::attach(launch, descriptors)?;
        Context::start(attachment, Some(Wire::Udp(socket)), None)
    }

    /// A job of this process alone, without a daemon.
    ///
    /// # Errors
    /// [`Error::Attach`] if the kernel refuses the memory.
    pub fn init_singleton() -> Result<Context, Error> {
        // Under Miri a file is memory that is there at once.
        let arena_bytes =
            if cfg!(miri) { 4 << 20 } else { arena_bytes(1, kumi_net::sys::memory()) };
        Context::start(Attachment::singleton(arena_bytes)?, None, None)
    }

    fn start(
        attachment: Attachment,
        wire: Option<Wire>,
        pages: Option<DisclosedPages>,
    ) -> Result<Context, Error> {
        let engine = Engine::new(unread_bytes()?, attachment.arena_bytes(), RandomSource::System);
        let frames = (0..attachment.ranks()).map(|_| FrameCounts::default()).collect();
        let channel = crate::machine::channel(attachment, wire, pages, engine)?;
        let failures = Arc::<HandlerFailures>::default();
        let (longest, lends) = {
            let mut guard = channel.lock()?;
            let longest = guard.longest_frame();
            guard.handler().longest = longest;
            let (me, ranks) = (channel.attachment().rank(), channel.attachment().ranks());
            guard.handler().me = me;
            guard.handler().services.join(me, ranks, Arc::clone(&failures));
            (longest, guard.lends())
        };
        let finished = AtomicBool::new(false);
        let interrupts = OnceLock::new();
        let (channel, process) = (ManuallyDrop::new(channel), std::process::id());
        Ok(Context {
            job_group: GroupState::job(channel.attachment().rank()),
            groups: Arc::default(),
            multicasting: Mutex::new(()),
            channel,
            process,
            frames,
            finished,
            longest,
            lends,
            failures,
            interrupts,
            tracer: None,
        })
    }

    /// This rank.
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.attachment().rank()
    }

    /// Ranks of the job.
    #[must_use]
    pub fn ranks(&self) -> u32 {
        self.attachment().ranks()
    }

    /// The job's number.
    #[must_use]
    pub fn job(&self) -> u64 {
        self.attachment().job()
    }

    /// The node this rank runs on.
    #[must_use]
    pub fn node(&self) -> u32 {
        self.attachment().node()
    }

    /// Whether a rank runs on the same node, so that both share memory.
    #[must_use]
    pub fn same_node(&self, rank: u32) -> bool {
        self.attachment().local_of(rank).is_some()
    }

    /// Seconds on a monotonic clock, the same for all ranks of a machine.
    #[must_use]
    pub fn time(&self) -> f64 {
        kumi_net::sys::seconds()
    }

    /// The counters of this rank's channel by name; see `kumi_net::counters`.
    #[must_use]
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        self.channel.publish();
        let load = |counter: &std::sync::atomic::AtomicU64| {
            counter.load(std::sync::atomic::Ordering::Relaxed)
        };
        let values = self.attachment().own().counters.iter().map(load);
        kumi_net::counters::NAMES.into_iter().zip(values).collect()
    }

    /// Publishes a counter of a library above, for `kumi stats` and the daemon. The channel's own counters are its own.
    pub fn publish_counter(&self, counter: Counter, value: u64) {
        self.attachment().set(counter, value);
    }

    /// Records what this rank does, if its job is traced (`kumi run --trace`).
    #[must_use]
    #[inline]
    pub fn tracer(&self) -> Option<&Arc<Tracer>> {
        self.tracer.as_ref()
    }

    /// Says that this rank holds a lock of shared memory, or not any more: for the report on a job that is stopped.
    pub fn tell_lock(&self, lock: u32, held: bool) {
        self.attachment().tell_lock(lock, held);
    }

    /// Whether this process is a fork of the rank: its data are copies, and the rank's threads are not
    /// here.
    pub(crate) fn is_copy(&self) -> bool {
        self.process != std::process::id()
    }

    pub(crate) fn attachment(&self) -> &Attachment {
        self.channel.attachment()
    }

    /// # Errors
    /// [`Error::BadRank`].
    pub(crate) fn check_rank(&self, rank: u32) -> Result<(), Error> {
        let ranks = self.ranks();
        if rank < ranks { Ok(()) } else { Err(Error::BadRank { rank, ranks }) }
    }

    pub(crate) fn check_refused(
        &self,
        guard: &mut Guard<'_, Engine>,
        to: u32,
    ) -> Result<(), Error> {
        let refused = &mut guard.handler().refused_puts;
        // Hashing costs more than the question.
        match (!refused.is_empty()).then(|| refused.remove(&to)).flatten() {
            Some((count, reason)) => Err(Error::Refused { rank: to, count, reason }),
            None => Ok(()),
        }
    }

    /// Takes what has arrived and sends what is due, without waiting.
    ///
    /// # Errors
    /// [`Error::HandlerPanicked`], [`Error::Fault`], [`Error::Io`].
    pub fn progress(&self) -> Result<(), Error> {
        self.check_handlers()?;
        self.serve()
    }

    /// As [`Context::progress`], whatever signal handlers did.
    pub(crate) fn serve(&self) -> Result<(), Error> {
        let mut guard = self.channel.lock()?;
        guard.progress()?;
        match &guard.handler().fault {
            Some(fault) => Err(Error::Fault(fault.clone())),
            None => Ok(()),
        }
    }

    // ---- requests ---------------------------------------------------------------------------

    /// How to wait for answers to requests to these ranks: to one of this node, the request may have
    /// to wait for room.
    pub(crate) fn wait_for(&self, ranks: &[u32]) -> Wait {
        let mapped = ranks.iter().any(|rank| self.same_node(*rank));
        if mapped { Wait::Room } else { Wait::Frames }
    }

    /// Sends a request to a rank that is reached by frames and waits for its answer: its number, or 0 for bytes, or its
    /// refusal.
    pub(crate) fn request<'d, S: CopySource>(
        &self,
        to: u32,
        pending: PendingRequest,
        frame: impl Fn(u64) -> Frame<'d, S>,
    ) -> Result<Result<u64, Refusal>, Error> {
        let mut turn = ContextTurn::new(self, to);
        let mut pending = Some(pending);
        let mut asked = AskedRequest { context: self, place: None };
        let mut sent = false;
        let _described = Description::of(WaitKind::Request, Some(to)).enter();
        self.drive(self.wait_for(&[to]), |guard| {
            let engine = guard.handler();
            engine.mailbox.awaited = Some(to);
            let place = match (asked.place, pending.take()) {
                (None, Some(pending)) => {
                    let place = engine.requests.add(Request::to(to, pending))?;
                    *asked.place.insert(place)
                }
                (place, _) => place.unwrap_or_default(),
            };
            if !sent && turn.has_come(guard) {
                let frame = frame(guard.handler().requests.token(place));
                sent = guard.send_parts(to, &[&frame.header()], &[frame.data()])?;
                guard.transmit()?;
                if sent {
                    turn.over(guard);
                }
            }
            let engine = guard.handler();
            let Some(over) = engine.take_over(place) else { return Ok(None) };
            asked.place = None;
            engine.mailbox.awaited = None;
            Ok(Some(match over.end {
                Some(RequestEnd::Refused(reason)) => Err(reason),
                Some(RequestEnd::Value(value)) => Ok(value),
                _ => Ok(0),
            }))
        })
    }

    /// Ends this rank's part in the job. Waits until all it sent has been acked, at most 2 s after the
    /// last sign of life of a peer. Dropping the context does the same but cannot report errors.
    ///
    /// # Errors
    /// - [`Error::Fault`] if something was not acked in time, or the channel broke before.
    /// - [`Error::HandlerPanicked`] if no call has reported it yet; the part in the job has ended all
    ///   the same.
    /// - [`Error::Forked`] in a fork of the rank, where it does nothing.
    pub fn finalize(mut self) -> Result<(), Error> {
        self.finish()?;
        self.check_handlers()
    }

    /// As [`Context::finalize`], for a program that goes on to use the memory of its windows (by
    /// [`crate::Window::base`]): that stays mapped until the process ends.
    ///
    /// # Errors
    /// As [`Context::finalize`].
    pub fn finalize_keeping_memory(mut self) -> Result<(), Error> {
        let finished = self.finish().and_then(|()| self.check_handlers());
        // Dropping the channel would unmap the segment; its handler thread has ended.
        std::mem::forget(self);
        finished
    }

    /// Stays until all that was begun has left, or a peer has not taken anything for [`LINGER`].
    fn finish_queues(&self) -> Result<(), Error> {
        let (mut sent, mut end) = (None, 0.0);
        loop {
            let mut guard = self.channel.lock()?;
            guard.progress()?;
            if guard.handler().outgoing.is_empty() && !guard.handler().services.owes() {
                return Ok(());
            }
            drop(guard);
            let (now, so_far) = (
                self.time(),
                self.attachment().own().counters[Counter::Sent as usize].load(Relaxed),
            );
            if sent != Some(so_far) {
                (sent, end) = (Some(so_far), now + LINGER.as_secs_f64());
            }
            if now > end {
                let text = "requests or messages of services had found no way to their targets before the end: wait for requests before";
                return Err(Error::Fault(text.into()));
            }
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    fn finish(&mut self) -> Result<(), Error> {
        if self.is_copy() {
            return Err(Error::Forked);
        }
        if self.finished.swap(true, Relaxed) {
            return Ok(());
        }
        // From here on the end is sure to come.
        self.interrupts.take();
        let relayed = self.finish_queues().and_then(|()| self.finish_relays());
        let flushed = self.channel.finish(LINGER)?;
        relayed?;
        if flushed {
            return Ok(());
        }
        let text = "messages or puts were not acknowledged before the end: a peer ended first";
        Err(Error::Fault(text.into()))
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if self.is_copy() {
            // Waits for its thread otherwise.
            std::mem::forget(self.interrupts.take());
            return;
        }
        // After a panic the job is lost: its other ranks need not wait for this one.
        if !std::thread::panicking()
            && let Err(error) = self.finish()
        {
            eprintln!("kumi: rank {}: {error}", self.rank());
        }
        // SAFETY: here only, and nothing uses it afterwards.
        unsafe { ManuallyDrop::drop(&mut self.channel) };
    }
}

/// The turn of a call that sends by itself to a rank, given back when this is dropped.
pub(crate) struct ContextTurn<'c> {
    context: &'c Context,
    turn: SendTurn,
}

impl<'c> ContextTurn<'c> {
    pub(crate) fn new(context: &'c Context, to: u32) -> ContextTurn<'c> {
        ContextTurn { context, turn: SendTurn::new(to) }
    }

    /// Whether all that was begun before has left.
    #[inline]
    pub(crate) fn has_come(&mut self, guard: &mut Guard<'_, Engine>) -> bool {
        self.turn.has_come(&mut guard.handler().outgoing)
    }

    /// There is no room for the rest now: nothing goes before it.
    pub(crate) fn hold<R>(&mut self, guard: &mut Guard<'_, Engine>) -> Result<Option<R>, Error> {
        self.turn.hold(&mut guard.handler().outgoing);
        Ok(None)
    }

    /// All has left.
    #[inline]
    pub(crate) fn over(&mut self, guard: &mut Guard<'_, Engine>) {
        self.turn.over(&mut guard.handler().outgoing);
    }
}

impl Drop for ContextTurn<'_> {
    fn drop(&mut self) {
        // Without the lock the channel is broken, and nobody sends any more.
        if self.turn.is_held()
            && let Ok(mut guard) = self.context.channel.lock()
        {
            self.turn.over(&mut guard.handler().outgoing);
        }
    }
}

/// A request whose memory the caller takes back, however its wait ends.
struct AskedRequest<'c> {
    context: &'c Context,
    place: Option<u32>,
}

impl Drop for AskedRequest<'_> {
    fn drop(&mut self) {
        // Without the lock the handler thread is dead and writes nowhere.
        if let Some(place) = self.place
            && let Ok(mut guard) = self.context.channel.lock()
        {
            guard.handler().release(place);
            guard.handler().mailbox.awaited = None;
        }
    }
}

/// The program waits no longer for an answer.
pub(crate) struct AwaitedCleanup<'c>(pub(crate) &'c Context);

impl Drop for AwaitedCleanup<'_> {
    fn drop(&mut self) {
        // Without the lock the channel is broken, and nothing comes any more.
        if let Ok(mut guard) = self.0.channel.lock() {
            guard.handler().await_no_longer();
        }
    }
}

fn unread_bytes() -> Result<usize, Error> {
    let Ok(text) = std::env::var("KUMI_UNEXPECTED_BYTES") else { return Ok(UNREAD_BYTES) };
    text.parse().map_err(|_| {
        Error::Attach(AttachError::BadSetting {
            name: "KUMI_UNEXPECTED_BYTES",
            found: text,
            expected: "a number of bytes",
        })
    })
}
