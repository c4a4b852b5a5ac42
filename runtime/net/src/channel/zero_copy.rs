//! Zero-copy sends: data stays in the program's memory until it is acked, and is not copied into a send
//! ring.
//!
//! The lender promises that the memory stays. The endpoint remembers its address, as a number, only in
//! the slots of packets that are neither acked nor taken back. Only the holder of the channel's lock
//! asks for them.

use std::ops::Range;
use std::ptr::NonNull;

use kumi_proto::Rank;

use crate::channel::core::{ChannelCore, Handler, take_full};
use crate::channel::guard::Guard;
use crate::channel::{Channel, ChannelError};
use crate::shared_bytes::{CopySource, SharedBytes};
use crate::tracepoints;

/// The number by which an address is lent.
fn place_of(address: *const u8) -> u64 {
    address.expose_provenance() as u64
}

/// The address that was lent as this number.
pub(crate) fn address(place: u64) -> *const u8 {
    std::ptr::with_exposed_provenance(place as usize)
}

/// Copies what is lent.
///
/// # Safety
/// `room.len()` bytes at `place` are lent now.
pub(crate) unsafe fn copy(place: u64, room: &mut [u8]) {
    let Some(start) = NonNull::new(address(place).cast_mut()) else { return };
    // SAFETY: readable, by the caller's promise, and only read here.
    unsafe { SharedBytes::new(start, room.len()) }.copy_to(room);
}

impl<H: Handler> ChannelCore<H> {
    /// Takes back what lies in `memory`, of packets to one rank or to all.
    fn take_back(&mut self, to: Option<Rank>, memory: &Range<*const u8>) {
        let Some(remote) = &mut self.remote else { return };
        let places = place_of(memory.start)..place_of(memory.end);
        // SAFETY: the endpoint names what is lent and not taken back yet.
        let copy = |place, room: &mut [u8]| unsafe { copy(place, room) };
        match to {
            Some(to) => remote.endpoint.take_back(to, &places, copy),
            None => remote.endpoint.take_all_back(&places, copy),
        }
        remote.wire.finish(memory);
    }
}

impl<H: Handler> Guard<'_, H> {
    /// Whether [`Guard::send_lent`] leaves anything where it is.
    #[must_use]
    pub fn lends(&self) -> bool {
        self.core_ref().remote.as_ref().is_some_and(|remote| remote.endpoint.lends())
    }

    /// As [`Guard::send`] to a rank of another node, for a frame made of `header` and `data`. Most of
    /// `data` may stay where it is until the frame is acked. False if there is no room now: then
    /// nothing is lent.
    ///
    /// # Safety
    /// The memory of `data` stays readable until this rank's channel has ended or [`Channel::take_back`] has been called for it. (It
    /// may change: then the receiver gets the one or the other.)
    ///
    /// # Errors
    /// As [`Guard::send`].
    pub unsafe fn send_lent<S: CopySource>(
        &mut self,
        to: u32,
        header: &[u8],
        data: S,
    ) -> Result<bool, ChannelError> {
        let ranks = self.shared.attachment.ranks();
        let core = self.core();
        let Some(remote) = &mut core.remote else {
            return Err(ChannelError::NoRank { to, ranks });
        };
        core.interval = 1;
        let place = place_of(data.address());
        let sent =
            take_full(remote.endpoint.send_lent(remote.now, to, header, data, place), ranks)?;
        if sent {
            tracepoints::send(to, header.len() + data.len());
        }
        Ok(sent)
    }
}

impl<H: Handler> Channel<H> {
    /// Takes back memory lent to packets to one rank, or to any: its unacked bytes are copied.
    /// Afterwards nothing refers to the memory, whatever errors the channel had before. Call it without
    /// a [`Guard`].
    pub fn take_back(&self, to: Option<u32>, memory: Range<*const u8>) {
        if !self.shared.forks.is_child() {
            self.lock_anyway().core().take_back(to, &memory);
        }
    }
}
