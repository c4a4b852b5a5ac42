//! Zero-copy sends: the data of a frame stays with the caller until it is acked or taken back.

use super::{Endpoint, SendError, View};
use crate::context::ContextMemory;
use crate::frame::Payload;
use crate::peer::LentPart;
use crate::wire::HEADER_BYTES;
use crate::{Micros, Rank};
use core::ops::Range;

impl<M: ContextMemory> Endpoint<M> {
    /// Queues the frame made of `header` and `data`. Only the beginning of `data` need be copied.
    ///
    /// - The caller promises that its bytes can be found at `place`, a number that only the caller
    ///   understands. Following bytes have the following numbers.
    /// - [`Transmit::pieces`](crate::Transmit::pieces) names the lent bytes whenever the packet leaves,
    ///   until it is acked ([`Self::flushed`]) or [`Self::take_back`] has copied them.
    /// - The data may change meanwhile. The receiver then gets the old bytes, the new ones, or some of
    ///   each.
    ///
    /// Channels that encrypt, or whose checksums cover everything, copy all, and all copy what is shorter than
    /// [`Config::lend_least`](crate::Config::lend_least).
    ///
    /// # Errors
    /// [`SendError`]; the frame is then not queued and nothing is lent.
    pub fn send_lent<D: Payload>(
        &mut self,
        now: Micros,
        to: Rank,
        header: &[u8],
        data: D,
        place: u64,
    ) -> Result<(), SendError> {
        let length = header.len() + data.len();
        if length > self.max_frame() {
            return Err(SendError::TooLong { length, most: self.max_frame() });
        }
        let covered = self.local.packets.covered(HEADER_BYTES + length);
        // At least the frame's header.
        let copied = covered.saturating_sub(HEADER_BYTES + header.len()).min(data.len());
        let lends = data.len() - copied >= self.local.config.lend_least;
        let copied = if lends { copied } else { data.len() };
        self.queue(now, to, |room| {
            let (start, behind) = room.split_at_mut(header.len());
            start.copy_from_slice(header);
            data.split_at(copied).0.copy_to(&mut behind[..copied]);
            let rest = LentPart { place: place + copied as u64, bytes: data.len() - copied };
            (header.len() + copied, rest)
        })
    }

    /// Frames of full length given to [`Self::send_lent`] are lent.
    pub fn lends(&self) -> bool {
        let longest = HEADER_BYTES + self.max_frame();
        longest - self.local.packets.covered(longest) >= self.local.config.lend_least
    }

    /// Takes back the lent data of unacked packets to `to` that begins in `places`: `copy` gets the
    /// number of its first byte and the room to copy it to.
    pub fn take_back(&mut self, to: Rank, places: &Range<u64>, copy: impl FnMut(u64, &mut [u8])) {
        if let Some(number) = self.number(to) {
            self.change(|endpoint| endpoint.take_back_of(number, places, copy));
        }
    }

    /// [`Self::take_back`] of everything that was lent, to packets to any rank, as far as it begins in `places`.
    pub fn take_all_back(&mut self, places: &Range<u64>, mut copy: impl FnMut(u64, &mut [u8])) {
        self.change(|endpoint| {
            for at in 0..endpoint.rings.len() {
                endpoint.take_back_of(endpoint.rings[at], places, &mut copy);
            }
        });
    }

    fn take_back_of(&mut self, number: u32, places: &Range<u64>, copy: impl FnMut(u64, &mut [u8])) {
        let (View { peer, blocks, layout, shared, .. }, _) = self.view(number);
        let mut ring = peer.sender.ring_in(layout.block(blocks, peer.sender.ring));
        peer.sender.take_back(&mut ring, shared.config.max_datagram, places, copy);
    }

    /// Packets in the send rings of which a part is lent.
    pub fn lent(&self) -> usize {
        let records = self.records();
        self.rings.iter().map(|&peer| records[peer as usize].sender.lent() as usize).sum()
    }
}
