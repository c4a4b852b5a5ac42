//! Send ring of one peer: its packets until they are acked.

use crate::{Config, Micros};
use alloc::boxed::Box;
use alloc::vec;

/// State of a packet in the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PacketState {
    /// Not sent yet.
    Queued,
    /// Sent, not known to have arrived.
    Flight,
    /// Has arrived early: selectively acked.
    Arrived,
    /// To be sent again.
    Lost,
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
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) sent_at: Micros,
    /// Which of this peer's transmissions the last one was.
    pub(super) transmission: u32,
    /// Bytes of the packet, header included.
    pub(super) length: u16,
    /// How many of them lie in the ring; the rest is lent.
    pub(super) head: u16,
    /// Where the rest lies.
    pub(super) place: u64,
    pub(super) state: PacketState,
    /// How often it was sent again. Then it gives no round trip (Karn).
    pub(super) resends: u8,
}

impl Slot {
    /// A part of it is lent.
    pub(super) fn is_lent(&self) -> bool {
        self.head < self.length
    }

    /// Sent more than once.
    pub(super) fn resent(&self) -> bool {
        self.resends > 0
    }
}

/// One contiguous region of `window` slots, each `max_datagram` long: header, then frame.
#[derive(Debug)]
pub(crate) struct SendRing {
    pub(super) bytes: Box<[u8]>,
    pub(super) slots: Box<[Slot]>,
}

impl SendRing {
    pub(crate) fn new(config: &Config) -> Box<Self> {
        let slot = Slot {
            sent_at: 0,
            transmission: 0,
            length: 0,
            head: 0,
            place: 0,
            state: PacketState::Queued,
            resends: 0,
        };
        Box::new(Self {
            bytes: vec![0; config.window * config.max_datagram].into(),
            slots: vec![slot; config.window].into(),
        })
    }

    pub(super) fn index(&self, sequence: u32) -> usize {
        sequence as usize & (self.slots.len() - 1)
    }

    pub(super) fn slot(&mut self, sequence: u32) -> &mut Slot {
        let index = self.index(sequence);
        &mut self.slots[index]
    }

    /// Bytes of memory that it takes.
    pub(super) fn memory(&self) -> usize {
        self.bytes.len() + core::mem::size_of_val(&*self.slots)
    }
}
