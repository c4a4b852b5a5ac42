//! Probes to one peer: the numbers sent, and the numbers answered.

use super::NEVER;
use crate::Micros;
use crate::wire::{ACK_NOW, Header, PacketKind};

/// Probes: numbers sent and answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProbeState {
    pub(super) due: bool,
    /// One is due then, unless something happens before.
    pub(super) later: Micros,
    /// The one due asks for an answer at once.
    pub(super) at_once: bool,
    pub(super) sent: u32,
    pub(super) answered: u32,
    /// When the first probe not answered yet was sent, and the last one.
    pub(super) first_at: Micros,
    pub(super) sent_at: Micros,
    /// Transmissions before this one were made before the first probe not answered yet.
    pub(super) first_mark: u32,
    /// Transmissions before this one were made before the last probe.
    pub(super) last_mark: u32,
}

impl ProbeState {
    pub(super) const fn new() -> Self {
        Self {
            due: false,
            later: NEVER,
            at_once: false,
            sent: 0,
            answered: 0,
            first_at: 0,
            sent_at: 0,
            first_mark: 0,
            last_mark: 0,
        }
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
            self.due = true;
        } else {
            self.later = self.later.min(now.saturating_add(margin));
        }
    }

    /// One leaves as the next transmission but `mark`; its number and flags.
    pub(super) fn leave(&mut self, now: Micros, mark: u32) -> (u32, u16) {
        if !self.outstanding() {
            (self.first_mark, self.first_at) = (mark, now);
        }
        (self.last_mark, self.sent_at) = (mark, now);
        (self.due, self.later) = (false, NEVER);
        self.sent = self.sent.wrapping_add(1);
        (self.sent, if core::mem::take(&mut self.at_once) { ACK_NOW } else { 0 })
    }
}
