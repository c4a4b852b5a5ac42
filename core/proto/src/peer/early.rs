//! Early packets of one peer: frames that came before their turn, by sequence modulo window.

use super::send_ring::{PacketState, Slot};
use crate::Config;
use crate::context::Block;

/// A block of a context that holds the early packets of a peer; without slots if the peer has none.
pub(crate) struct EarlyPackets<'m> {
    pub(super) slots: &'m mut [Slot],
    bytes: &'m mut [u8],
    /// Early packets of all peers.
    pub(super) kept: &'m mut u32,
}

impl<'m> EarlyPackets<'m> {
    #[inline(always)]
    pub(crate) fn new(Block { slots, bytes }: Block<'m>, kept: &'m mut u32) -> Self {
        Self { slots, bytes, kept }
    }

    fn index(&self, sequence: u32) -> usize {
        sequence as usize & self.slots.len().wrapping_sub(1)
    }

    /// A packet with this number, or one with the same number modulo window, is kept.
    pub(super) fn has(&self, sequence: u32) -> bool {
        self.slots.get(self.index(sequence)).is_some_and(Slot::is_kept)
    }

    /// Keeps a frame whose number [`Self::has`] does not have, if the peer has a block.
    pub(super) fn keep(&mut self, sequence: u32, frame: &[u8], config: &Config) -> bool {
        let index = self.index(sequence);
        let Some(slot) = self.slots.get_mut(index) else { return false };
        // No longer than `max_datagram`.
        slot.length = u16::try_from(frame.len()).unwrap_or(u16::MAX);
        slot.state = PacketState::ARRIVED;
        let room = &mut self.bytes[index * config.max_datagram..];
        room[..frame.len()].copy_from_slice(frame);
        *self.kept += 1;
        true
    }

    /// The frame with this number, if it is kept.
    pub(super) fn frame(&self, sequence: u32, config: &Config) -> Option<&[u8]> {
        let index = self.index(sequence);
        let slot = self.slots.get(index).filter(|slot| slot.is_kept())?;
        self.bytes[index * config.max_datagram..].get(..usize::from(slot.length))
    }

    /// Drops the packet with this number.
    pub(super) fn release(&mut self, sequence: u32) {
        let index = self.index(sequence);
        if let Some(slot) = self.slots.get_mut(index) {
            slot.state = PacketState::QUEUED;
            *self.kept -= 1;
        }
    }

    /// Empties a block that was used for something else.
    pub(crate) fn clear(slots: &mut [Slot]) {
        for slot in slots {
            slot.state = PacketState::QUEUED;
        }
    }
}

impl Slot {
    /// In a block of early packets: there is one.
    fn is_kept(&self) -> bool {
        self.state == PacketState::ARRIVED
    }

    /// In a block of early packets: it is empty, or has a frame of at most `most` bytes.
    pub(super) fn is_valid_early(&self, most: usize) -> bool {
        match self.state {
            PacketState::QUEUED => true,
            PacketState::ARRIVED => usize::from(self.length) <= most,
            _ => false,
        }
    }
}
