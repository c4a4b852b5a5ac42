//! Send ring of one peer: its packets until they are acked.

use crate::Micros;
use crate::context::Block;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// State of a packet in the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(transparent)]
pub(crate) struct PacketState(u8);

impl PacketState {
    /// Not sent yet.
    pub(crate) const QUEUED: Self = Self(0);
    /// Sent, not known to have arrived.
    pub(crate) const FLIGHT: Self = Self(1);
    /// Has arrived early: selectively acked.
    pub(crate) const ARRIVED: Self = Self(2);
    /// To be sent again.
    pub(crate) const LOST: Self = Self(3);

    /// It is one that a packet can have that was sent, or was not.
    pub(crate) fn is_valid(self, sent: bool) -> bool {
        if sent {
            matches!(self, Self::FLIGHT | Self::ARRIVED | Self::LOST)
        } else {
            self == Self::QUEUED
        }
    }
}

/// The part of a packet that does not lie in the ring: its caller's, until it is acked or taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LentPart {
    /// Where it is, as the caller says.
    pub(crate) place: u64,
    /// 0: all of the packet is in the ring.
    pub(crate) bytes: usize,
}

impl LentPart {
    /// Everything is in the ring.
    pub(crate) const NONE: Self = Self { place: 0, bytes: 0 };
}

/// Record of a packet beside its bytes.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct Slot {
    pub(crate) sent_at: Micros,
    /// Where the part that is lent lies.
    pub(crate) place: u64,
    /// Which of this peer's transmissions the last one was.
    pub(crate) transmission: u32,
    /// Bytes of the packet, header included.
    pub(crate) length: u16,
    /// How many of them lie in the ring; the rest is lent.
    pub(crate) head: u16,
    pub(crate) state: PacketState,
    /// How often it was sent again. Then it gives no round trip (Karn).
    pub(crate) resends: u8,
    pub(super) reserved: [u8; 6],
}

impl Slot {
    /// A part of it is lent.
    pub(crate) fn is_lent(&self) -> bool {
        self.head < self.length
    }

    /// Sent more than once.
    pub(super) fn resent(&self) -> bool {
        self.resends > 0
    }
}

/// A ring of a context: slots, and as many packets, each `max_datagram` long: header, then frame. The block has `window` of
/// them; the ring has the first of these, so many as it has grown to.
pub(crate) struct SendRing<'m> {
    pub(crate) slots: &'m mut [Slot],
    pub(crate) bytes: &'m mut [u8],
    /// Slots of the ring, less one.
    mask: usize,
}

impl<'m> SendRing<'m> {
    /// The ring of `length` slots, a power of two, in a block of at least so many.
    #[inline(always)]
    pub(crate) fn new(Block { slots, bytes }: Block<'m>, length: usize) -> Self {
        Self { slots, bytes, mask: length.wrapping_sub(1) }
    }

    /// Slots of the ring.
    pub(crate) fn length(&self) -> usize {
        self.mask.wrapping_add(1)
    }

    /// Gives the ring twice as many slots. Those from `oldest` to `tail` are in use.
    pub(crate) fn double(&mut self, oldest: u32, tail: u32, stride: usize) {
        let added = self.length();
        let mut sequence = oldest;
        while sequence != tail {
            let at = sequence as usize & self.mask;
            if sequence as usize & added != 0 {
                // Its slot is one of the new ones from now on.
                self.slots[at + added] = self.slots[at];
                let packet = at * stride..at * stride + usize::from(self.slots[at].head);
                self.bytes.copy_within(packet, (at + added) * stride);
            }
            sequence = sequence.wrapping_add(1);
        }
        self.mask += added;
    }
}

impl SendRing<'_> {
    /// The peer has none: nothing to it is unacked, and another may have its ring.
    pub(crate) fn is_none(&self) -> bool {
        self.slots.is_empty()
    }

    #[inline]
    pub(crate) fn index(&self, sequence: u32) -> usize {
        sequence as usize & self.mask
    }

    /// # Panics
    /// If it is none: nothing is unacked then, so nobody asks.
    #[inline]
    pub(crate) fn slot(&mut self, sequence: u32) -> &mut Slot {
        let index = self.index(sequence);
        &mut self.slots[index]
    }
}
