//! A rank's side of its job.

use std::cell::{Cell, OnceCell};
use std::sync::Arc;
use std::time::Duration;

use kumi_net::launch::{Launch, LaunchError};
use kumi_net::layout::DEFAULT_ARENA_BYTES;
use kumi_net::{AttachError, Channel, Guard, Place, Settings, Wait};
use kumi_proto::frame::{APPEND_BYTES, Frame};

use crate::engine::{Engine, FENCE, Pending};
use crate::error::{Error, Refusal};
use crate::interrupt::Interrupts;
use crate::parts::worthwhile;
use crate::signal::Failures;

/// Bytes of messages that are kept unread, unless `KUMI_UNEXPECTED_BYTES` says otherwise.
const UNREAD_BYTES: usize = 16 << 20;
/// How long the end waits for acks after the last sign of life of a peer.
pub(crate) const LINGER: Duration = Duration::from_secs(2);

/// A rank's side of its job: one per process, used from one thread.
///
/// Messages between a pair of ranks arrive in order, each exactly once. When the program ends
/// without an error, drop the context (or call [`Context::finalize`]): it stays until what was sent
/// has arrived.
#[derive(Debug)]
pub struct Context {
    pub(crate) channel: Channel<Engine>,
    /// Identifier of the next window; the same at all ranks, which create them in the same order.
    pub(crate) next_window: Cell<u32>,
    /// Ranks of other nodes that were put or sent to since the last proof that all arrived.
    pub(crate) dirty: Vec<Cell<bool>>,
    finished: Cell<bool>,
    /// Bytes of the longest record of a FIFO.
    pub(crate) max_record: usize,
    /// What went wrong in signal handlers.
    pub(crate) failures: Arc<Failures>,
    /// Whom calls that wait ask whether to go on.
    pub(crate) interrupts: OnceCell<Interrupts>,
}

impl Context {
    /// Joins the job that `kumi run` started this process for. With `KUMI_SINGLETON=1` a program
    /// that was started by hand runs as a job of one rank.
    ///
    /// # Errors
    /// [`Error::NotLaunched`], [`Error::Attach`].
    pub fn init() -> Result<Context, Error> {
        match Launch::from_env() {
            Ok(launch) => {
                let (place, socket) = Place::attach(&launch)?;
                Context::start(place, Some(socket))
            }
            Err(LaunchError::NotLaunched)
                if std::env::var_os("KUMI_SINGLETON").is_some_and(|value| value == "1") =>
            {
                Context::init_singleton()
            }
            Err(error) => Err(AttachError::from(error).into()),
        }
    }

    /// A job of this process alone, without a daemon.
    ///
    /// # Errors
    /// [`Error::Attach`] if the kernel refuses the memory.
    pub fn init_singleton() -> Result<Context, Error> {
        Context::start(Place::singleton(DEFAULT_ARENA_BYTES)?, None)
    }

    fn start(place: Place, socket: Option<std::os::fd::OwnedFd>) -> Result<Context, Error> {
        let engine = Engine::new(unread_bytes()?, place.arena_bytes());
        let dirty = vec![Cell::new(false); place.ranks() as usize];
        let channel = Channel::start(place, socket, Settings::from_env()?, engine)?;
        let place = channel.place();
        let far = (0..place.ranks()).find(|rank| place.local_of(*rank).is_none());
        let max_record = channel.lock()?.max_frame(far.unwrap_or(place.rank())) - APPEND_BYTES;
        let (next_window, finished) = (Cell::new(0), Cell::new(false));
        let (failures, interrupts) = (Arc::default(), OnceCell::new());
        Ok(Context { channel, next_window, dirty, finished, max_record, failures, interrupts })
    }

    /// This rank.
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.place().rank()
    }

    /// Ranks of the job.
    #[must_use]
    pub fn ranks(&self) -> u32 {
        self.place().ranks()
    }

    /// The job's number.
    #[must_use]
    pub fn job(&self) -> u64 {
        self.place().job()
    }

    /// The node this rank runs on.
    #[must_use]
    pub fn node(&self) -> u32 {
        self.place().node()
    }

    /// Whether a rank runs on the same node, so that both share memory.
    #[must_use]
    pub fn same_node(&self, rank: u32) -> bool {
        self.place().local_of(rank).is_some()
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
        let values = self.place().own().counters.iter().map(load);
        kumi_net::counters::NAMES.into_iter().zip(values).collect()
    }

    pub(crate) fn place(&self) -> &Place {
        self.channel.place()
    }

    /// # Errors
    /// [`Error::BadRank`].
    pub(crate) fn check_rank(&self, rank: u32) -> Result<(), Error> {
        let ranks = self.ranks();
        if rank < ranks { Ok(()) } else { Err(Error::BadRank { rank, ranks }) }
    }

    /// Queues the frames that carry `data` to another rank: `frame(most, done)` makes the one that
    /// begins after `done` bytes and is at most `most` bytes long. At least one is sent.
    pub(crate) fn send_frames<'d>(
        &self,
        to: u32,
        data: &'d [u8],
        frame: impl Fn(usize, usize) -> Frame<'d>,
    ) -> Result<(), Error> {
        let remote = !self.same_node(to);
        if remote {
            self.dirty[to as usize].set(true);
        }
        let (mut done, mut begun) = (0, false);
        self.drive(Wait::Room, |guard| {
            if remote {
                self.check_refused(guard, to)?;
            }
            let most = guard.max_frame(to);
            // Frames until the next transmit.
            let mut batch = 0;
            while !begun || done < data.len() {
                if batch == 0 {
                    match worthwhile(guard, to, data.len() - done, most) {
                        Some(frames) => batch = frames,
                        None => return Ok(None),
                    }
                }
                let frame = frame(most, done);
                let taken = match remote {
                    true => guard.send_far(to, |room| frame.write(room))?,
                    false => guard.send(to, &[&frame.header(), frame.data()])?,
                };
                if !taken {
                    guard.transmit()?;
                    return Ok(None);
                }
                begun = true;
                done += frame.data().len();
                batch -= 1;
                if batch == 0 {
                    guard.transmit_soon(to)?;
                }
            }
            if batch > 0 {
                guard.transmit_soon(to)?;
            }
            Ok(Some(()))
        })
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

    // ---- completion -------------------------------------------------------------------------

    /// Waits until all own puts to this rank have been applied and all messages to it have been
    /// taken by its library (though not necessarily by its program).
    ///
    /// # Errors
    /// [`Error::Refused`] if a put since the last report was refused there.
    pub fn flush(&self, to: u32) -> Result<(), Error> {
        self.check_handlers()?;
        self.check_rank(to)?;
        if self.same_node(to) {
            return self.drive(Wait::Room, |guard| Ok(guard.flushed(to).then_some(())));
        }
        self.fence(&[to])?;
        let mut guard = self.channel.lock()?;
        self.check_refused(&mut guard, to)
    }

    /// [`Context::flush`] for all ranks, at the same time.
    ///
    /// # Errors
    /// As [`Context::flush`]; the first of several.
    pub fn flush_all(&self) -> Result<(), Error> {
        self.check_handlers()?;
        let (near, far): (Vec<u32>, Vec<u32>) =
            (0..self.ranks()).partition(|rank| self.same_node(*rank));
        self.fence(&far)?;
        self.drive(Wait::Room, |guard| {
            Ok(near.iter().all(|rank| guard.flushed(*rank)).then_some(()))
        })?;
        let mut first = Ok(());
        let mut guard = self.channel.lock()?;
        for rank in far {
            let done = self.check_refused(&mut guard, rank);
            if first.is_ok() {
                first = done;
            }
        }
        first
    }

    /// Asks those of these ranks that something was sent to since the last time for an answer, and
    /// waits for all: frames of a pair are in order, so all that was sent before has been taken and
    /// the refusals of puts have come.
    pub(crate) fn fence(&self, ranks: &[u32]) -> Result<(), Error> {
        let dirty = |rank: &&u32| self.dirty[**rank as usize].replace(false);
        let mut unsent: Vec<u32> = ranks.iter().filter(dirty).copied().collect();
        self.drive(Wait::Frames, |guard| {
            while let Some(to) = unsent.last().copied() {
                let token = guard.handler().token();
                let frame = Frame::GetRequest { token, window: FENCE, offset: 0, len: 0 };
                if !guard.send(to, &[&frame.header()])? {
                    break;
                }
                guard.handler().fences.push((to, token));
                unsent.pop();
            }
            guard.transmit()?;
            let engine = guard.handler();
            // One after the other, as everything else that may hold an answer back.
            engine.mailbox.awaited =
                engine.fences.first().map(|fence| fence.0).or(unsent.last().copied());
            Ok((unsent.is_empty() && engine.fences.is_empty()).then_some(()))
        })
    }

    /// Sends a request to a rank of another node and waits for its answer, or its refusal.
    pub(crate) fn request<'d>(
        &self,
        to: u32,
        pending: Pending,
        frame: impl Fn(u64) -> Frame<'d>,
    ) -> Result<Result<Pending, Refusal>, Error> {
        let over = Withdraw(self);
        let mut pending = Some(pending);
        let (mut token, mut sent) = (0, false);
        let result = self.drive(Wait::Frames, |guard| {
            if let Some(pending) = pending.take() {
                token = guard.handler().begin(pending);
            }
            if !sent {
                let frame = frame(token);
                sent = guard.send(to, &[&frame.header(), frame.data()])?;
                guard.transmit()?;
            }
            let engine = guard.handler();
            engine.mailbox.awaited = Some(to);
            let Some(request) = &engine.request else { return Ok(None) };
            if let Some(reason) = request.refused {
                return Ok(Some(Err(reason)));
            }
            if !request.answered() {
                return Ok(None);
            }
            Ok(engine.request.take().map(|request| Ok(request.pending)))
        });
        drop(over);
        result
    }

    /// Ends this rank's part in the job: waits until what it sent has been acked, at most 2 s after
    /// the last sign of life of a peer. Dropping the context does the same but cannot report.
    ///
    /// # Errors
    /// [`Error::Fault`] if something was not acked in time, or the channel broke before;
    /// [`Error::HandlerPanicked`] if no call has said so yet (all the same it is over).
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
        let finished = self.finish();
        // Dropping the channel would unmap the segment; its handler thread has ended.
        std::mem::forget(self);
        finished
    }

    fn finish(&mut self) -> Result<(), Error> {
        if self.finished.replace(true) {
            return Ok(());
        }
        // From here on the end is sure to come.
        self.interrupts.take();
        let relayed = self.finish_relays();
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
        if std::thread::panicking() {
            return; // The job is lost: its other ranks need not wait for this one.
        }
        if let Err(error) = self.finish() {
            eprintln!("kumi: rank {}: {error}", self.rank());
        }
    }
}

/// Forgets the own request, whose memory the caller takes back.
pub(crate) struct Withdraw<'c>(pub(crate) &'c Context);

impl Drop for Withdraw<'_> {
    fn drop(&mut self) {
        // Without the lock the handler thread is dead and writes nowhere.
        if let Ok(mut guard) = self.0.channel.lock() {
            guard.handler().request = None;
            guard.handler().mailbox.awaited = None;
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
