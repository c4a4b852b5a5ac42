//! Probes to one peer: the numbers sent, and the numbers answered.

use super::NEVER;
use crate::Micros;
use crate::context::Flag;
use crate::wire::{ACK_NOW, Header, PacketKind};
use zerocopy::native_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Probes: numbers sent and answered.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct ProbeState {
    /// One is due then, unless something happens before.
    pub(super) later: U64,
    /// When the first probe not answered yet was sent, and the last one.
    pub(super) first_at: U64,
    pub(super) sent_at: U64,
    pub(super) sent: u32,
    pub(super) answered: u32,
    /// Transmissions before this one were made before the first probe not answered yet.
    pub(super) first_mark: u32,
    /// Transmissions before this one were made before the last probe.
    pub(super) last_mark: u32,
    pub(super) due: Flag,
    /// The one due asks for an answer at once.
    pub(super) at_once: Flag,
    reserved: [u8; 2],
}

impl ProbeState {
    pub(super) const fn new() -> Self {
        Self {
            later: U64::new(NEVER),
            first_at: U64::ZERO,
            sent_at: U64::ZERO,
            sent: 0,
            answered: 0,
            first_mark: 0,
            last_mark: 0,
            due: Flag::CLEAR,
            at_once: Flag::CLEAR,
            reserved: [0; 2],
        }
    }

    /// No answer is awaited any more. If the endpoint `asks`, a probe is due that wants an answer at once.
    pub(super) fn restart(&mut self, asks: bool) {
        let (sent, due) = (self.sent, Flag::from(asks));
        *self = Self { sent, answered: sent, due, at_once: due, ..Self::new() };
    }

    pub(super) fn outstanding(&self) -> bool {
        self.sent != self.answered
    }

    /// The number of the probe that a packet with ECHO answers.
    pub(super) fn number(&self, header: &Header) -> u32 {
        if header.kind != PacketKind::Data {
            return header.sequence;
        }
        // The last one sent with this lowest byte.
        let low = u32::from(header.flags >> 8);
        self.sent.wrapping_sub(self.sent.wrapping_sub(low) & 0xFF)
    }

    /// Makes a probe due in `margin` microseconds, by when overtaken packets have come. At once, if
    /// packets do not overtake each other.
    pub(super) fn soon(&mut self, now: Micros, margin: Micros) {
        if margin == 0 {
            self.due = Flag::SET;
        } else {
            self.later.set(self.later.get().min(now.saturating_add(margin)));
        }
    }

    /// One leaves as the next transmission but `mark`; its number and flags.
    pub(super) fn leave(&mut self, now: Micros, mark: u32) -> (u32, u16) {
        if !self.outstanding() {
            (self.first_mark, self.first_at) = (mark, now.into());
        }
        (self.last_mark, self.sent_at) = (mark, now.into());
        (self.due, self.later) = (Flag::CLEAR, NEVER.into());
        self.sent = self.sent.wrapping_add(1);
        (self.sent, if self.at_once.take() { ACK_NOW } else { 0 })
    }
}
