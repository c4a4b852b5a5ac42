//! Windows: memory of a rank that others read and write without its program's help.

pub(crate) mod atomic;
pub(crate) mod completion;
mod creation;
mod flush;
pub(crate) mod key;
mod list;
pub(crate) mod mapped_piece;
pub(crate) mod overlap;
pub(crate) mod pieces;
pub(crate) mod registered;
pub(crate) mod strided;
pub(crate) mod table;
mod transfer;
pub(crate) mod typed;
pub(crate) mod zero_copy;

use kumi_net::{Description, WaitKind};
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use kumi_net::counters::Counter;
use kumi_net::layout::NOTIFIES;
use kumi_net::{CopySource, SharedBytes, SharedBytesMut, Wait};
use kumi_proto::frame::{Frame, PUT_BYTES, WindowKey};

use crate::context::Context;
use crate::engine::PlainFrame;
use crate::error::{Error, Refusal};
use crate::fifo::signal::SignalPort;
use crate::request::table::{PendingRequest, Target};
use crate::window::completion::OnPlacement;
use crate::window::key::{is_open, is_private};
use crate::window::mapped_piece::MappedPiece;
use crate::window::strided::Strided;
use crate::window::table::{Access, Rights, WindowMemory, check, counter_index};

/// Most bytes of one get request; longer gets are several.
pub(crate) const GET_PIECE: usize = 1 << 30;
/// A put of at most so many bytes is one frame, whatever the path: refused whole by its target.
const ONE_FRAME: usize = 400;
/// Calls of [`Window::notified`] between two looks at the network.
const NOTIFIED_CALLS: u32 = 32;

/// A window: at every rank of the job a piece of memory that the others can use. Memory that is made
/// for it ([`Context::window`]) reads as zeros at first; it can also be memory of the program's own ([`Context::with_window_on`]).
///
/// There are two kinds of pieces:
///
/// - *Mapped*: the own piece, and pieces made for the window on this node that others have a right in. The caller does
///   all operations there itself. A piece that others may only read is mapped for reading.
/// - *Reached by frames*: pieces on other nodes, other ranks' pieces in the program's own memory or without any right, and
///   FIFOs in pieces that others may only read. The owner's handler thread, or its main thread when it waits, applies the
///   operations and checks bounds and rights.
///
/// A refused put by frames is therefore reported later as [`Error::Refused`]: by the next operation to
/// that rank or by [`Context::flush`].
///
/// Eight aligned bytes are always written at once; larger pieces are not.
#[derive(Debug)]
pub struct Window<'c> {
    pub(crate) context: &'c Context,
    /// Each rank's key of its piece.
    pub(crate) keys: Arc<[WindowKey]>,
    pub(crate) memory: WindowMemory,
    pub(crate) sizes: Vec<u64>,
    /// Where the pieces of this node's ranks are, by local index, found out at first use.
    pub(crate) mapped: Vec<OnceLock<MappedPiece>>,
    pub(crate) idle_calls: AtomicU32,
    /// The signal ports in the own piece.
    pub(crate) ports: Mutex<Vec<SignalPort>>,
}

impl Window<'_> {
    /// Bytes of the own piece.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "an empty window is nothing special")]
    pub fn len(&self) -> usize {
        self.memory.length
    }

    /// Bytes of a rank's piece.
    ///
    /// # Errors
    /// [`Error::BadRank`].
    pub fn size_at(&self, rank: u32) -> Result<u64, Error> {
        self.context.check_rank(rank)?;
        Ok(self.sizes[rank as usize])
    }

    /// The own memory. Others write it at any time: read it through [`Window::read`] or
    /// [`Window::load_u64`], or after a synchronisation that says they are done.
    #[must_use]
    pub fn base(&self) -> *mut u8 {
        self.memory.base.as_ptr()
    }

    /// Copies from the own memory.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`].
    pub fn read(&self, offset: usize, into: &mut [u8]) -> Result<(), Error> {
        self.own(offset, into.len())?.shared().copy_to(into);
        Ok(())
    }

    /// Copies into the own memory.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`].
    pub fn write(&self, offset: usize, from: &[u8]) -> Result<(), Error> {
        self.own(offset, from.len())?.copy_from(from);
        Ok(())
    }

    #[inline]
    pub(crate) fn own(&self, offset: usize, length: usize) -> Result<SharedBytesMut<'_>, Error> {
        let part = self.memory.bytes().get(offset, length);
        part.ok_or_else(|| self.out_of_bounds(self.context.rank(), offset, length))
    }

    pub(crate) fn out_of_bounds(&self, rank: u32, offset: usize, length: usize) -> Error {
        let size = self.sizes.get(rank as usize).copied().unwrap_or(0);
        Error::OutOfBounds { rank, offset: offset as u64, length: length as u64, size }
    }

    /// The error for a refusal of an operation of this range.
    #[cold]
    pub(crate) fn refused(
        &self,
        rank: u32,
        offset: usize,
        length: usize,
        reason: Refusal,
    ) -> Error {
        let size = self.sizes.get(rank as usize).copied().unwrap_or(0);
        let (offset, length) = (offset as u64, length as u64);
        place_refused(Target { rank, offset, length, size }, reason)
    }

    /// The piece at a rank, if this process has it mapped.
    #[inline]
    pub(crate) fn mapped(&self, rank: u32) -> Option<(usize, Result<&MappedPiece, Error>)> {
        let local = self.context.attachment().local_of(rank)?;
        let Some(mapped) = self.mapped[local].get() else { return self.find_mapped(rank, local) };
        // SAFETY: the entry lies in the segment, which the context keeps mapped.
        if unsafe { mapped.entry.as_ref() }.key.load(Acquire) != mapped.key {
            return Some((local, Err(Error::BadWindow { rank })));
        }
        Some((local, Ok(mapped)))
    }

    /// As [`Window::mapped`], unless its FIFOs are reached by frames: in memory that ranks of the node cannot write.
    #[inline]
    pub(crate) fn mapped_queues(&self, rank: u32) -> Option<(usize, Result<&MappedPiece, Error>)> {
        let open = self.keys.get(rank as usize).is_some_and(|key| is_open(*key));
        if open || rank == self.context.rank() { self.mapped(rank) } else { None }
    }

    #[cold]
    fn find_mapped(&self, rank: u32, local: usize) -> Option<(usize, Result<&MappedPiece, Error>)> {
        let (attachment, key) = (self.context.attachment(), self.keys[rank as usize]);
        let mapped = match MappedPiece::find(attachment, local, key) {
            Some(mapped) => Ok(self.mapped[local].get_or_init(|| mapped)),
            None if is_private(key) && MappedPiece::is_there(attachment, local, key) => {
                return None;
            }
            None => Err(Error::BadWindow { rank }),
        };
        Some((local, mapped))
    }

    // ---- operations on others' memory -------------------------------------------------------

    /// Writes into the piece of a rank (the own one too). Returns when the data may change.
    ///
    /// # Errors
    /// - [`Error::BadRank`].
    /// - For a mapped piece [`Error::OutOfBounds`], [`Error::NoRight`], [`Error::BadWindow`].
    /// - For one reached by frames [`Error::Refused`] for earlier puts; [`Error::OutOfBounds`] only for
    ///   more than 400 bytes. These may take several packets, so the caller checks them as a whole.
    #[inline]
    pub fn put(&self, to: u32, offset: usize, data: &[u8]) -> Result<(), Error> {
        self.put_bytes(to, offset, data)
    }

    /// As [`Window::put_with`], of bytes that others may write meanwhile, such as those of a window. The target gets each
    /// byte as it was at some time during the call.
    ///
    /// # Errors
    /// As [`Window::put_with`].
    pub fn put_shared(
        &self,
        to: u32,
        offset: usize,
        data: SharedBytes<'_>,
        after: OnPlacement<'_>,
    ) -> Result<(), Error> {
        match after {
            OnPlacement { notify: None, completion: None } => self.put_bytes(to, offset, data),
            OnPlacement { notify: Some(notify), completion: None } => {
                self.put_bytes_notify(to, offset, data, notify)
            }
            after => {
                let (stride, block) = (data.len(), data.len());
                self.put_strided_shared(
                    to,
                    Strided { offset, stride, block, count: 1 },
                    data,
                    after,
                )
            }
        }
    }

    #[inline]
    pub(crate) fn put_bytes(
        &self,
        to: u32,
        offset: usize,
        data: impl CopySource,
    ) -> Result<(), Error> {
        match self.mapped(to) {
            Some((_, mapped)) => {
                self.put_mapped(mapped?, to, offset, data)?;
                self.context.attachment().count(Counter::DirectPuts, 1);
                Ok(())
            }
            None => self.put_by_frames(to, offset, data, None),
        }
    }

    /// As [`Window::put`]; when all is written, raises a notification counter (0 to 63) of the
    /// window there by one.
    ///
    /// # Errors
    /// As [`Window::put`], and [`Error::BadNotify`].
    #[inline]
    pub fn put_notify(
        &self,
        to: u32,
        offset: usize,
        data: &[u8],
        notify: u32,
    ) -> Result<(), Error> {
        self.put_bytes_notify(to, offset, data, notify)
    }

    #[inline]
    pub(crate) fn put_bytes_notify(
        &self,
        to: u32,
        offset: usize,
        data: impl CopySource,
        notify: u32,
    ) -> Result<(), Error> {
        check_notify(notify)?;
        let Some((local, mapped)) = self.mapped(to) else {
            return self.put_by_frames(to, offset, data, Some(notify));
        };
        let mapped = mapped?;
        // SAFETY: `notifies` points to the window's NOTIFIES counters, and `notify` is one of them.
        let counter = unsafe { mapped.notifies.add(notify as usize).as_ref() };
        prefetch_to_write(counter);
        self.put_mapped(mapped, to, offset, data)?;
        self.finish_mapped(
            mapped,
            (to, local),
            OnPlacement { notify: Some(notify), completion: None },
        )
    }

    /// Finishes a put that is written into mapped memory. Raises the notification counter (checked to
    /// be one) after all earlier puts to that rank, also those by frames.
    #[inline]
    pub(crate) fn finish_mapped(
        &self,
        mapped: &MappedPiece,
        (to, local): (u32, usize),
        after: OnPlacement<'_>,
    ) -> Result<(), Error> {
        let attachment = self.context.attachment();
        if let Some(notify) = after.notify {
            self.context.fence_before_notify(to)?;
            mapped.raise(attachment, local, notify);
        }
        attachment.count(Counter::DirectPuts, 1);
        after.completion.map_or(Ok(()), |completion| completion.at_once(self.context))
    }

    /// A put that may take several frames must be right as a whole before the first is sent.
    pub(crate) fn check_long(
        &self,
        to: u32,
        offset: usize,
        span: u64,
        bytes: usize,
    ) -> Result<(), Error> {
        if bytes <= ONE_FRAME {
            return Ok(());
        }
        check(Rights::ALL, self.sizes[to as usize], offset as u64, span, Access::Write)
            .map_err(|_| self.out_of_bounds(to, offset, span as usize))
    }

    #[inline]
    fn put_mapped(
        &self,
        mapped: &MappedPiece,
        to: u32,
        offset: usize,
        data: impl CopySource,
    ) -> Result<(), Error> {
        let length = data.len() as u64;
        if let Err(reason) = check(mapped.rights, mapped.size, offset as u64, length, Access::Write)
        {
            return Err(self.refused(to, offset, data.len(), reason));
        }
        mapped.writable().slice(offset, data.len()).copy_from(data);
        Ok(())
    }

    fn put_by_frames(
        &self,
        to: u32,
        at: usize,
        data: impl CopySource,
        notify: Option<u32>,
    ) -> Result<(), Error> {
        self.context.check_rank(to)?;
        self.check_long(to, at, data.len() as u64, data.len())?;
        self.context.puts_to(to);
        self.context.send_frames(to, data, true, None, |most, done| {
            let rest = data.len() - done;
            let piece = rest.min(most - PUT_BYTES);
            let notify = notify.filter(|_| piece == rest);
            let (window, offset) = (self.keys[to as usize], (at as u64).wrapping_add(done as u64));
            Frame::Put { window, offset, notify, data: data.slice(done, piece) }
        })?;
        self.context.puts_to(to);
        Ok(())
    }

    /// Reads from the piece of a rank.
    ///
    /// # Errors
    /// [`Error::BadRank`], [`Error::OutOfBounds`], [`Error::NoRight`], [`Error::BadWindow`].
    pub fn get(&self, from: u32, offset: usize, into: &mut [u8]) -> Result<(), Error> {
        self.get_shared(from, offset, into.into())
    }

    /// As [`Window::get`], into bytes that others may use meanwhile, such as those of a window.
    ///
    /// # Errors
    /// As [`Window::get`].
    pub fn get_shared(
        &self,
        from: u32,
        offset: usize,
        into: SharedBytesMut<'_>,
    ) -> Result<(), Error> {
        let length = into.len();
        if let Some((_, mapped)) = self.mapped(from) {
            let mapped = mapped?;
            check(mapped.rights, mapped.size, offset as u64, length as u64, Access::Read)
                .map_err(|reason| self.refused(from, offset, length, reason))?;
            into.copy_from(mapped.bytes().slice(offset, length));
            self.context.attachment().count(Counter::DirectGets, 1);
            return Ok(());
        }
        self.context.check_rank(from)?;
        let mut at = offset as u64;
        // At least once, so that an empty get is checked too.
        let (mut rest, mut first) = (into, true);
        while first || !rest.is_empty() {
            first = false;
            let (piece, tail) = rest.split_at(rest.len().min(GET_PIECE));
            let (window, start, len) = (self.keys[from as usize], at, piece.len() as u32);
            let frame = |token| PlainFrame::GetRequest { token, window, offset: start, len };
            // SAFETY: borrowed until this returns; `request` has the engine forget it before.
            let pending = PendingRequest::Bytes { into: unsafe { piece.lend() }, received: 0 };
            self.context
                .request(from, pending, frame)?
                .map_err(|reason| self.refused(from, offset, length, reason))?;
            at = at.wrapping_add(u64::from(len));
            rest = tail;
        }
        Ok(())
    }

    // ---- notifications ----------------------------------------------------------------------

    /// How often a notification counter of the own piece was raised since the window was made.
    ///
    /// # Errors
    /// [`Error::BadNotify`], [`Error::Fault`].
    pub fn notified(&self, notify: u32) -> Result<u64, Error> {
        check_notify(notify)?;
        let calls = self.idle_calls.load(Relaxed) + 1;
        self.idle_calls.store(calls % NOTIFIED_CALLS, Relaxed);
        if calls >= NOTIFIED_CALLS {
            self.context.progress()?;
        }
        Ok(self.counter(notify).load(Acquire))
    }

    /// Waits until a notification counter has reached at least this count since the window was
    /// made; returns the count.
    ///
    /// # Errors
    /// [`Error::BadNotify`], [`Error::Fault`], [`Error::Io`].
    #[inline]
    pub fn wait_notify(&self, notify: u32, at_least: u64) -> Result<u64, Error> {
        check_notify(notify)?;
        self.context.check_handlers()?;
        let counter = self.counter(notify);
        let count = counter.load(Acquire);
        if count >= at_least {
            return Ok(count);
        }
        let index = counter_index(self.memory.key, notify);
        let slot = crate::window::key::slot(self.memory.key) as u64;
        let wait = Description::of(WaitKind::Notification, None).what(slot);
        let _described = wait.further(notify.into()).enter();
        self.context.await_only(Wait::Counter { index, at_least }, |_| {
            let count = counter.load(Acquire);
            Ok((count >= at_least).then_some(count))
        })
    }

    #[inline]
    fn counter(&self, notify: u32) -> &AtomicU64 {
        let index = counter_index(self.memory.key, notify);
        &self.context.attachment().own_lines().notifies.0[index].count
    }
}

impl Window<'_> {
    /// The signal ports, for their end.
    pub(crate) fn take_ports(&self) -> Vec<SignalPort> {
        std::mem::take(&mut *self.ports())
    }

    /// The signal ports. Nothing panics while it has them.
    pub(crate) fn ports(&self) -> std::sync::MutexGuard<'_, Vec<SignalPort>> {
        self.ports.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Window<'_> {
    fn drop(&mut self) {
        if self.context.is_copy() {
            // Waits for their threads otherwise.
            std::mem::forget(self.take_ports());
            return;
        }
        // Their threads end before the memory goes.
        self.remove_signals();
        // This fails only if the kernel refuses to take pages back, or the channel is broken already.
        // Either way the memory stays with this process until it ends.
        if let Err(error) = self.context.remove_window(&self.memory) {
            eprintln!("kumi: rank {}: freeing a window: {error}", self.context.rank());
        }
    }
}

/// The error for a refusal of an operation on these bytes.
pub(crate) fn place_refused(target: Target, reason: Refusal) -> Error {
    let Target { rank, offset, length, size } = target;
    match reason {
        Refusal::Bounds => Error::OutOfBounds { rank, offset, length, size },
        Refusal::Right => Error::NoRight { rank },
        Refusal::Alignment => Error::BadAlignment { offset, width: length },
        Refusal::Window => Error::BadWindow { rank },
        reason => Error::Refused { rank, count: 1, reason },
    }
}

#[inline]
pub(crate) fn check_notify(notify: u32) -> Result<(), Error> {
    if (notify as usize) < NOTIFIES { Ok(()) } else { Err(Error::BadNotify { notify }) }
}

/// Asks for a line that is about to be written, so that its transfer overlaps that of the data. Miri knows no assembly.
#[inline]
fn prefetch_to_write<T>(attachment: &T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a hint; it changes nothing and cannot fault.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) std::ptr::from_ref(attachment),
            options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = attachment;
}
