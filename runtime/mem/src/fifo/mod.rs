//! Memory-based FIFOs: queues of records in window memory, placed there by the receiver.

pub(crate) mod queue;
pub(crate) mod signal;
pub(crate) mod table;

use kumi_net::{Description, WaitKind};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicU64};

use kumi_net::counters::Counter;
use kumi_net::layout::{NOTIFIES, ROOM};
use kumi_net::{CopySource, SharedBytes, SharedBytesMut, Wait};
use kumi_proto::frame::{APPEND_BYTES, Frame};

use crate::context::Context;
use crate::error::{Error, Refusal};
use crate::fifo::queue::{
    ALIGNMENT, CAPACITIES, MARK_FIFO, MARK_SIGNAL, OVERHEAD, PushOutcome, Queue, QueueHead,
};
use crate::fifo::table::{announce, made_room};
use crate::request::table::PendingRequest;
use crate::window::key::is_private;
use crate::window::mapped_piece::MappedPiece;
use crate::window::table::counter_index;
use crate::window::{Window, check_notify};

/// Bytes that a FIFO or signal port takes in its window beside its capacity.
pub const FIFO_OVERHEAD: usize = OVERHEAD;
/// The offset of a FIFO or signal port in its window is a multiple of this.
pub const FIFO_ALIGNMENT: usize = ALIGNMENT;
/// Calls of [`Fifo::try_pop`] that find nothing between two looks at the network.
const EMPTY_CALLS: u32 = 32;

/// The receiver's end of a FIFO in a window of its own; see [`Window::fifo`].
#[derive(Debug)]
pub struct Fifo<'w> {
    window: &'w Window<'w>,
    offset: u64,
    queue: Queue,
    /// Position of the next record; the one in the memory is for the senders.
    head: Cell<u64>,
    /// Index of the notification counter.
    counter: usize,
    /// Ranks that wait for room and append by frames.
    by_frames: Arc<AtomicU32>,
    empty_calls: Cell<u32>,
}

/// A record that was taken out of a FIFO.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FifoRecord {
    /// The rank that appended it.
    pub from: u32,
    /// Its length in bytes.
    pub len: usize,
}

impl Context {
    /// Bytes of the longest record of FIFOs and signals in this job: the contents of one frame. It is
    /// the same at all ranks and to all ranks.
    #[must_use]
    pub fn max_record(&self) -> usize {
        self.longest - APPEND_BYTES
    }
}

impl Window<'_> {
    /// Makes a FIFO in the own piece.
    ///
    /// - `offset` is a multiple of [`FIFO_ALIGNMENT`].
    /// - `capacity` is a multiple of 8 from 16 to 2^31. The FIFO takes [`FIFO_OVERHEAD`] bytes more.
    ///   All of it is overwritten now, and only appends may write it until the FIFO is dropped.
    /// - A record takes 8 bytes and its length, padded to a multiple of 8.
    /// - Every record raises the notification counter `notify` (0 to 63) of this window by one. Several
    ///   FIFOs may share a counter; [`Window::wait_notify`] then waits for any of them.
    ///
    /// Others need to know the rank, the window and the offset, and that the FIFO has been made (a barrier, a message).
    /// Making it permits them to append, whatever the window's rights: in a window
    /// without the right to write, nothing else can change it.
    ///
    /// ```
    /// # fn main() -> Result<(), kumi_mem::Error> {
    /// let context = kumi_mem::Context::init_singleton()?;
    /// let window = context.window(4096)?;
    /// let fifo = window.fifo(0, 1024, 0)?;
    /// context.barrier()?;
    /// let next = (context.rank() + 1) % context.ranks();
    /// window.append(next, 0, b"a record")?;
    /// let (from, record) = fifo.pop_vec()?;
    /// # assert_eq!((from, &record[..]), (0, &b"a record"[..]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// - [`Error::OutOfBounds`].
    /// - [`Error::BadFifo`] for a wrong offset or capacity, and for memory of another FIFO. Also for a
    ///   window in the program's own memory that does not begin at a multiple of [`FIFO_ALIGNMENT`].
    /// - [`Error::BadNotify`].
    pub fn fifo(&self, offset: usize, capacity: usize, notify: u32) -> Result<Fifo<'_>, Error> {
        check_notify(notify)?;
        let (queue, by_frames) = self.open(offset, capacity, notify, MARK_FIFO)?;
        let counter = counter_index(self.memory.key, notify);
        let (head, empty_calls) = (Cell::new(0), Cell::new(0));
        Ok(Fifo {
            window: self,
            offset: offset as u64,
            queue,
            head,
            counter,
            by_frames,
            empty_calls,
        })
    }

    /// Makes the queue of a FIFO or port and lets others append; the count of ranks that wait for room and append by frames.
    pub(crate) fn open(
        &self,
        offset: usize,
        capacity: usize,
        notify: u32,
        mark: u64,
    ) -> Result<(Queue, Arc<AtomicU32>), Error> {
        if !offset.is_multiple_of(ALIGNMENT) {
            return Err(Error::BadFifo { what: "its offset is not a multiple of 64" });
        }
        if !capacity.is_multiple_of(8) || !CAPACITIES.contains(&(capacity as u64)) {
            let what = "its capacity is not a multiple of 8 from 16 to 2^31";
            return Err(Error::BadFifo { what });
        }
        let base = self.own(offset, OVERHEAD + capacity)?.start();
        if !base.cast::<QueueHead>().is_aligned() {
            let what = "the window's memory does not begin at a multiple of 64";
            return Err(Error::BadFifo { what });
        }
        let mut guard = self.context.channel.lock()?;
        // SAFETY: inside of the own piece and aligned, by the checks; capacity checked above.
        let queue = unsafe { Queue::at(base, capacity as u64) };
        let key = (self.memory.key, offset as u64);
        let signal = mark == MARK_SIGNAL;
        let fifos = &mut guard.handler().fifos;
        let by_frames = fifos.add(key, queue, capacity as u64, signal, notify);
        let by_frames =
            by_frames.ok_or(Error::BadFifo { what: "its memory is in use by another one" })?;
        // Before the guard goes: nobody appends earlier.
        queue.open(mark, notify);
        Ok((queue, by_frames))
    }

    /// Removes a queue; ranks that wait for room in it get an error.
    pub(crate) fn close(&self, offset: u64, queue: &Queue) -> Result<(), Error> {
        queue.positions().mark.store(0, SeqCst);
        let mut guard = self.context.channel.lock()?;
        guard.handler().fifos.remove((self.memory.key, offset));
        made_room(self.context.attachment(), queue, &AtomicU32::new(0));
        Ok(guard.progress()?)
    }

    /// Appends a record (0 to [`Context::max_record`] bytes) to the FIFO at `offset` of a rank's piece, and waits while it is full.
    /// Returns when the record is in the FIFO; records of one rank stay in order. It is there after all
    /// that was put to that rank before.
    ///
    /// # Errors
    /// [`Error::BadRank`], [`Error::BadWindow`], [`Error::NoFifo`], [`Error::RecordTooLong`], [`Error::FifoTooSmall`], [`Error::FifoDamaged`],
    /// [`Error::FifoFull`] if it is the own one, which nobody would empty meanwhile,
    /// [`Error::HandlerPanicked`]. Nothing was appended then.
    pub fn append(&self, to: u32, offset: usize, record: &[u8]) -> Result<(), Error> {
        match self.add(to, offset, record, MARK_FIFO, true)? {
            true => Ok(()),
            false => Err(Error::FifoFull { rank: to, offset: offset as u64 }),
        }
    }

    /// As [`Window::append`], without waiting for room: false if the FIFO is full and nothing was appended.
    /// (For memory that is reached by frames, see [`Window`], it waits for the answer.)
    ///
    /// # Errors
    /// As [`Window::append`] but [`Error::FifoFull`].
    pub fn try_append(&self, to: u32, offset: usize, record: &[u8]) -> Result<bool, Error> {
        self.add(to, offset, record, MARK_FIFO, false)
    }

    /// Sends a signal: appends a record to the signal port at `offset` of a rank's piece, whose handler then runs
    /// there ([`Window::on_signal`]). Waits while the port is full; does not wait for the handler.
    ///
    /// # Errors
    /// As [`Window::append`].
    pub fn signal(&self, to: u32, offset: usize, record: &[u8]) -> Result<(), Error> {
        match self.add(to, offset, record, MARK_SIGNAL, true)? {
            true => Ok(()),
            false => Err(Error::FifoFull { rank: to, offset: offset as u64 }),
        }
    }

    /// As [`Window::signal`], without waiting for room: false if the port is full and nothing was sent.
    ///
    /// # Errors
    /// As [`Window::append`] but [`Error::FifoFull`].
    pub fn try_signal(&self, to: u32, offset: usize, record: &[u8]) -> Result<bool, Error> {
        self.add(to, offset, record, MARK_SIGNAL, false)
    }

    /// As [`Window::append`], of bytes that others may write meanwhile, such as those of a window. `wait`: while the FIFO is
    /// full; otherwise false if it is, as [`Window::try_append`].
    ///
    /// # Errors
    /// As [`Window::append`].
    pub fn append_shared(
        &self,
        to: u32,
        offset: usize,
        record: SharedBytes<'_>,
        wait: bool,
    ) -> Result<bool, Error> {
        let added = self.add(to, offset, record, MARK_FIFO, wait)?;
        let full = || Error::FifoFull { rank: to, offset: offset as u64 };
        if added || !wait { Ok(added) } else { Err(full()) }
    }

    /// As [`Window::append_shared`], to a signal port.
    ///
    /// # Errors
    /// As [`Window::signal`].
    pub fn signal_shared(
        &self,
        to: u32,
        offset: usize,
        record: SharedBytes<'_>,
        wait: bool,
    ) -> Result<bool, Error> {
        let added = self.add(to, offset, record, MARK_SIGNAL, wait)?;
        let full = || Error::FifoFull { rank: to, offset: offset as u64 };
        if added || !wait { Ok(added) } else { Err(full()) }
    }

    /// False if it is full and is not waited for, or never would be emptied.
    fn add(
        &self,
        to: u32,
        offset: usize,
        record: impl CopySource,
        mark: u64,
        wait: bool,
    ) -> Result<bool, Error> {
        self.context.check_handlers()?;
        self.context.check_rank(to)?;
        let most = self.context.max_record();
        if record.len() > most {
            return Err(Error::RecordTooLong { length: record.len(), most });
        }
        match self.mapped_queues(to) {
            Some((local, mapped)) => {
                self.context.fence_before_notify(to)?;
                self.append_mapped(mapped?, local, (to, offset), record, mark, wait)
            }
            None => self.append_by_frames(to, offset as u64, record, mark, wait),
        }
    }

    fn append_mapped(
        &self,
        mapped: &MappedPiece,
        local: usize,
        (to, offset): (u32, usize),
        record: impl CopySource,
        mark: u64,
        wait: bool,
    ) -> Result<bool, Error> {
        let attachment = self.context.attachment();
        let room = &attachment.own_lines().notifies.0[ROOM].count;
        loop {
            let seen = room.load(SeqCst);
            let full = self.push_mapped(mapped, local, (to, offset), record, mark)?;
            let Some(queue) = full else { return Ok(true) };
            if !wait || (mark == MARK_FIFO && local == attachment.local()) {
                return Ok(false);
            }
            if !self.ask_for_room(&queue, (to, offset), record.len())? {
                let _described = Description::of(WaitKind::SendSpace, Some(to)).enter();
                self.context.await_counter(room, ROOM, seen)?;
            }
        }
    }

    /// Appends if there is room; otherwise the queue, which is full. It is found anew each time: it
    /// may have gone while it was full.
    pub(crate) fn push_mapped(
        &self,
        mapped: &MappedPiece,
        local: usize,
        (to, offset): (u32, usize),
        record: impl CopySource,
        mark: u64,
    ) -> Result<Option<Queue>, Error> {
        let (at, attachment) = (offset as u64, self.context.attachment());
        let (queue, notify) = queue_in(mapped, at, mark)
            .map_err(|reason| append_refused(to, at, record.len(), reason))?;
        match queue.push(attachment.rank(), record) {
            Ok(PushOutcome::Taken) => {
                let counter = counter_index(mapped.key, notify);
                announce(attachment, local, &queue, (mark == MARK_FIFO).then_some(counter));
                attachment.count(Counter::DirectPuts, 1);
                Ok(None)
            }
            Ok(PushOutcome::Full) => Ok(Some(queue)),
            Ok(PushOutcome::TooLong) => Err(append_refused(to, at, record.len(), Refusal::Record)),
            Err(_) => Err(append_refused(to, at, record.len(), Refusal::Damage)),
        }
    }

    /// Asks the taker to raise this rank's counter when there is room; true if there is already.
    pub(crate) fn ask_for_room(
        &self,
        queue: &Queue,
        (to, offset): (u32, usize),
        length: usize,
    ) -> Result<bool, Error> {
        queue.await_room(self.context.attachment().local());
        queue
            .has_room(length)
            .map_err(|_| append_refused(to, offset as u64, length, Refusal::Damage))
    }

    fn append_by_frames(
        &self,
        to: u32,
        offset: u64,
        data: impl CopySource,
        mark: u64,
        wait: bool,
    ) -> Result<bool, Error> {
        let (window, signal) = (self.keys[to as usize], mark == MARK_SIGNAL);
        loop {
            let frame = |token| Frame::Append { token, window, offset, wait, signal, data };
            let refused = match self.context.request(to, PendingRequest::Value, frame)? {
                Ok(0) => return Ok(true),
                Ok(_) => continue,
                Err(reason) => reason,
            };
            return match refused {
                Refusal::Full => Ok(false),
                reason => Err(append_refused(to, offset, data.len(), reason)),
            };
        }
    }
}

/// The error for a record that was not taken.
pub(crate) fn append_refused(rank: u32, offset: u64, length: usize, reason: Refusal) -> Error {
    match reason {
        Refusal::Window => Error::BadWindow { rank },
        Refusal::Fifo => Error::NoFifo { rank, offset },
        Refusal::Record => Error::FifoTooSmall { rank, offset, length },
        Refusal::Damage => Error::FifoDamaged { rank, offset },
        reason => Error::Refused { rank, count: 1, reason },
    }
}

/// Finds the queue in a piece of this node, and the index of its notification counter. The queue's own
/// numbers are trusted only as far as they stay inside of the piece.
pub(crate) fn queue_in(
    mapped: &MappedPiece,
    offset: u64,
    mark: u64,
) -> Result<(Queue, u32), Refusal> {
    let room = mapped.size.checked_sub(offset).and_then(|rest| rest.checked_sub(OVERHEAD as u64));
    let room = room.filter(|_| offset.is_multiple_of(ALIGNMENT as u64)).ok_or(Refusal::Fifo)?;
    let base = mapped.writable().slice(offset as usize, OVERHEAD).start();
    // Pieces in the segment start at pages, but where this one does was read from shared memory. The
    // own piece may be memory of the program's own, which starts anywhere.
    if !base.cast::<QueueHead>().is_aligned() {
        return Err(if is_private(mapped.key) { Refusal::Fifo } else { Refusal::Damage });
    }
    // SAFETY: `OVERHEAD` bytes are there, aligned; it consists of atomics.
    let head: &QueueHead = unsafe { base.cast().as_ref() };
    if head.mark.load(Acquire) != mark {
        return Err(Refusal::Fifo);
    }
    let (capacity, notify) = (head.capacity.load(Relaxed), head.notify.load(Relaxed));
    let good = capacity <= room
        && CAPACITIES.contains(&capacity)
        && capacity.is_multiple_of(8)
        && notify < NOTIFIES as u64;
    if !good {
        return Err(Refusal::Damage);
    }
    // SAFETY: capacity and place have just been checked; the piece stays mapped.
    Ok((unsafe { Queue::at(base, capacity) }, notify as u32))
}

impl Context {
    /// Waits until a counter of the own context is above what was seen.
    fn await_counter(&self, counter: &AtomicU64, index: usize, seen: u64) -> Result<(), Error> {
        let at_least = seen.saturating_add(1);
        let done = || counter.load(Acquire) >= at_least;
        self.await_only(Wait::Counter { index, at_least }, |_| Ok(done().then_some(())))
    }
}

impl Fifo<'_> {
    /// Where it is in the window, for those who append.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.offset as usize
    }

    /// Takes the next record, and waits for it.
    ///
    /// # Errors
    /// [`Error::ShortBuffer`] if it is longer than `into` (it stays), [`Error::FifoDamaged`],
    /// [`Error::HandlerPanicked`], [`Error::Fault`].
    pub fn pop(&self, into: &mut [u8]) -> Result<FifoRecord, Error> {
        self.pop_shared(into.into())
    }

    /// As [`Fifo::pop`], into bytes that others may use meanwhile, such as those of a window.
    ///
    /// # Errors
    /// As [`Fifo::pop`].
    pub fn pop_shared(&self, into: SharedBytesMut<'_>) -> Result<FifoRecord, Error> {
        self.wait(|fifo| fifo.take(into))
    }

    /// As [`Fifo::pop`], for records of any length.
    ///
    /// # Errors
    /// As [`Fifo::pop`] but [`Error::ShortBuffer`].
    pub fn pop_vec(&self) -> Result<(u32, Vec<u8>), Error> {
        self.wait(Self::take_vec)
    }

    /// Takes the next record if there is one.
    ///
    /// # Errors
    /// As [`Fifo::pop`].
    pub fn try_pop(&self, into: &mut [u8]) -> Result<Option<FifoRecord>, Error> {
        self.try_pop_shared(into.into())
    }

    /// As [`Fifo::try_pop`], into bytes that others may use meanwhile, such as those of a window.
    ///
    /// # Errors
    /// As [`Fifo::pop`].
    pub fn try_pop_shared(&self, into: SharedBytesMut<'_>) -> Result<Option<FifoRecord>, Error> {
        self.context().check_handlers()?;
        let taken = self.take(into)?;
        if taken.is_none() {
            self.look_sometimes()?;
        }
        Ok(taken)
    }

    /// As [`Fifo::try_pop`], for records of any length.
    ///
    /// # Errors
    /// As [`Fifo::pop`] but [`Error::ShortBuffer`].
    pub fn try_pop_vec(&self) -> Result<Option<(u32, Vec<u8>)>, Error> {
        self.context().check_handlers()?;
        let taken = self.take_vec()?;
        if taken.is_none() {
            self.look_sometimes()?;
        }
        Ok(taken)
    }

    fn context(&self) -> &Context {
        self.window.context
    }

    /// Nothing is there: now and then, look whether the network has something.
    fn look_sometimes(&self) -> Result<(), Error> {
        let calls = self.empty_calls.get() + 1;
        self.empty_calls.set(calls % EMPTY_CALLS);
        if calls == EMPTY_CALLS {
            return self.context().serve();
        }
        Ok(())
    }

    fn wait<R>(&self, mut take: impl FnMut(&Self) -> Result<Option<R>, Error>) -> Result<R, Error> {
        let context = self.context();
        context.check_handlers()?;
        let wait = Description::of(WaitKind::Queue, None).what(self.counter as u64);
        let _described = wait.enter();
        let counter = &context.attachment().own_lines().notifies.0[self.counter].count;
        loop {
            // Before the look: every record raises it after it has become visible.
            let seen = counter.load(SeqCst);
            if let Some(taken) = take(self)? {
                return Ok(taken);
            }
            context.await_counter(counter, self.counter, seen)?;
        }
    }

    fn take_vec(&self) -> Result<Option<(u32, Vec<u8>)>, Error> {
        let mut data = Vec::new();
        let taken = self.take_with(|length| {
            data.resize(length, 0);
            Ok((&mut data[..]).into())
        })?;
        Ok(taken.map(|popped| (popped.from, data)))
    }

    fn take(&self, into: SharedBytesMut<'_>) -> Result<Option<FifoRecord>, Error> {
        self.take_with(|needed| {
            into.get(0, needed).ok_or(Error::ShortBuffer { needed, given: into.len() })
        })
    }

    fn take_with<'b>(
        &self,
        buffer: impl FnOnce(usize) -> Result<SharedBytesMut<'b>, Error>,
    ) -> Result<Option<FifoRecord>, Error> {
        let context = self.context();
        let damaged = |_| Error::FifoDamaged { rank: context.rank(), offset: self.offset };
        let head = self.head.get();
        let next = self.queue.peek(head, context.ranks()).map_err(damaged)?;
        let Some(next) = next else { return Ok(None) };
        let into = buffer(next.length)?;
        self.head.set(self.queue.take(head, next, into));
        if made_room(context.attachment(), &self.queue, &self.by_frames) {
            context.serve()?;
        }
        Ok(Some(FifoRecord { from: next.from, len: next.length }))
    }
}

impl Drop for Fifo<'_> {
    fn drop(&mut self) {
        if self.context().is_copy() {
            return;
        }
        // Only a channel that is broken already fails here; its next use says so.
        if let Err(error) = self.window.close(self.offset, &self.queue) {
            eprintln!("kumi: rank {}: closing a FIFO: {error}", self.context().rank());
        }
    }
}
