//! Evaluation of a peer's acks and nacks: packets that arrived, packets that are lost, round trips.

use super::super::send_ring::{PacketState, Slot};
use super::super::{NEVER, SharedState};
use super::{Backpressure, Sender};
use crate::wire::{ECHO, FRESH, FULL, HOLD, Header, PacketKind, TWICE};
use crate::{Config, Micros};

/// Outcome of an ack.
#[derive(Default)]
struct AckOutcome {
    acked: u32,
    /// When the last sent of the acked packets was sent, of those that give a round trip.
    sent_at: Option<Micros>,
    /// Its transmission.
    transmission: u32,
}

impl AckOutcome {
    /// A packet that was sent once is acked.
    fn note(&mut self, slot: &Slot) {
        if self.sent_at.is_none_or(|sent_at| sent_at <= slot.sent_at) {
            (self.sent_at, self.transmission) = (Some(slot.sent_at), slot.transmission);
        }
    }
}

impl Sender {
    /// Whether an ack and its selective acks name only packets that were sent, or are old.
    pub(crate) fn accepts(&self, ack: u32, map: &[u8], config: &Config) -> bool {
        let sent = self.next.wrapping_sub(self.oldest);
        let ahead = ack.wrapping_sub(self.oldest);
        if ahead.cast_signed() < 0 {
            // Older than the last ack. Its map is not used.
            return map.len() <= config.window.div_ceil(64) * 8;
        }
        if ahead > sent {
            return false;
        }
        let last = map.iter().rposition(|&byte| byte != 0);
        let bits = last.map_or(0, |at| at * 8 + 8 - map[at].leading_zeros() as usize);
        bits <= (sent - ahead) as usize
    }

    /// Takes the ack of a packet that [`Self::accepts`] accepted.
    pub(crate) fn on_ack(
        &mut self,
        now: Micros,
        header: &Header,
        map: &[u8],
        shared: &mut SharedState,
    ) {
        let ahead = header.ack.wrapping_sub(self.oldest).cast_signed();
        let current = ahead >= 0;
        self.hold = header.flags & HOLD != 0;
        let mut outcome = AckOutcome::default();
        if ahead > 0 {
            self.release(header.ack, &mut outcome, shared);
            self.full = Backpressure::No;
            self.refusals = 0;
            // The answer that the probe was to ask for has come.
            self.probe.later = NEVER;
        }
        if header.flags & TWICE != 0 {
            self.on_duplicate(&shared.config);
        }
        if current && !map.is_empty() {
            self.mark_arrived(now, map, &mut outcome, shared);
        }
        let echo = header.flags & ECHO != 0
            && self.on_echo(now, self.probe.number(header), current, shared);
        if self.oldest == self.next {
            // All has arrived: there is nothing left to ask.
            self.probe.answered = self.probe.sent;
        }
        let progress = ahead > 0 || outcome.acked > 0;
        if progress {
            self.congestion.acked(outcome.acked);
            self.retransmission.progress();
            if let Some(sent_at) = outcome.sent_at
                && sent_at >= shared.stopped
                && header.flags & FRESH != 0
            {
                let round_trip = now.saturating_sub(sent_at);
                self.retransmission.sample(round_trip, &shared.config);
                let target = self.queue_target(&shared.config);
                let held = self.hold || shared.holds(now);
                let (acked, next) = (outcome.transmission, self.transmission);
                self.congestion.measured(round_trip, acked, next, target, held);
            }
        }
        if progress || echo {
            self.postponed = false;
            self.rearm(now, shared);
        }
        if current && header.kind == PacketKind::Nack {
            self.on_nack(now, header.flags, shared);
        }
    }

    /// The peer got a packet twice: perhaps one was sent again in vain.
    fn on_duplicate(&mut self, config: &Config) {
        let round_trip = self.retransmission.smoothed().unwrap_or(config.min_rto);
        let longest = self.retransmission.base(config);
        if self.reorder.on_duplicate(round_trip, longest, config.window) {
            self.congestion.undo();
        }
    }

    /// Frees everything before `ack`.
    fn release(&mut self, ack: u32, outcome: &mut AckOutcome, shared: &SharedState) {
        let Some(ring) = &mut self.ring else { return };
        while self.oldest != ack {
            let slot = *ring.slot(self.oldest);
            match slot.state {
                PacketState::Flight => {
                    self.in_flight -= 1;
                    outcome.acked += 1;
                    if !slot.resent() {
                        outcome.note(&slot);
                    }
                }
                PacketState::Lost => {
                    self.lost -= 1;
                    outcome.acked += 1;
                }
                // Counted when it arrived.
                PacketState::Arrived | PacketState::Queued => {}
            }
            if slot.state != PacketState::Arrived
                && self.path.is_long(shared.wire_bytes(slot.length), &shared.config)
            {
                self.path.passed();
            }
            if !slot.resent() && slot.transmission.wrapping_sub(self.newest).cast_signed() > 0 {
                self.newest = slot.transmission;
            }
            self.held -= u32::from(slot.length);
            self.lent_slots -= u32::from(slot.is_lent());
            self.oldest = self.oldest.wrapping_add(1);
        }
    }

    /// Takes selective acks; `map` starts at `oldest`.
    fn mark_arrived(
        &mut self,
        now: Micros,
        map: &[u8],
        outcome: &mut AckOutcome,
        shared: &mut SharedState,
    ) {
        let Some(ring) = &mut self.ring else { return };
        let mut sequence = self.oldest;
        for bit in map.iter().flat_map(|byte| (0..8).map(move |bit| byte >> bit & 1)) {
            let slot = ring.slot(sequence);
            sequence = sequence.wrapping_add(1);
            if bit == 0 || !matches!(slot.state, PacketState::Flight | PacketState::Lost) {
                continue;
            }
            if slot.state == PacketState::Flight {
                self.in_flight -= 1;
                if !slot.resent() {
                    outcome.note(slot);
                }
            } else {
                self.lost -= 1;
            }
            slot.state = PacketState::Arrived;
            outcome.acked += 1;
            if self.path.is_long(shared.wire_bytes(slot.length), &shared.config) {
                self.path.passed();
            }
            if !slot.resent() && slot.transmission.wrapping_sub(self.newest).cast_signed() > 0 {
                self.newest = slot.transmission;
            }
        }
        // Rule (a): sent well before one that has arrived.
        let (newest, threshold) = (self.newest, self.reorder.threshold());
        self.mark_lost(now, shared, |slot| {
            newest.wrapping_sub(slot.transmission).cast_signed() >= threshold
        });
    }

    /// Marks as lost what is in flight and of which `is_lost` says so.
    fn mark_lost(
        &mut self,
        now: Micros,
        shared: &mut SharedState,
        is_lost: impl Fn(&Slot) -> bool,
    ) {
        let Some(ring) = &mut self.ring else { return };
        let before = self.lost;
        // Of long ones: how often that was sent again which was sent most.
        let mut resends = None;
        let mut sequence = self.oldest;
        while sequence != self.next {
            let slot = ring.slot(sequence);
            if slot.state == PacketState::Flight && is_lost(slot) {
                slot.state = PacketState::Lost;
                self.in_flight -= 1;
                self.lost += 1;
                self.congestion.lost(slot.transmission, self.transmission);
                if self.path.is_long(shared.wire_bytes(slot.length), &shared.config) {
                    resends = resends.max(Some(slot.resends));
                }
            }
            sequence = sequence.wrapping_add(1);
        }
        if self.lost > before {
            self.reorder.on_loss();
        }
        if let Some(resends) = resends {
            shared.narrowed |= self.path.lost(now, resends, &shared.config);
        }
    }

    /// Takes the answer to probe `number`; whether it was one that was waited for.
    fn on_echo(
        &mut self,
        now: Micros,
        number: u32,
        current: bool,
        shared: &mut SharedState,
    ) -> bool {
        let since = number.wrapping_sub(self.probe.answered);
        if since == 0 || since > self.probe.sent.wrapping_sub(self.probe.answered) {
            return false;
        }
        self.probe.answered = number;
        self.retransmission.progress();
        let (mark, asked_at) = if self.probe.outstanding() {
            (self.probe.first_mark, self.probe.first_at)
        } else {
            (self.probe.last_mark, self.probe.sent_at)
        };
        if !self.probe.outstanding() && self.probe.sent_at >= shared.stopped {
            self.retransmission.sample(now.saturating_sub(self.probe.sent_at), &shared.config);
        }
        if current {
            // Rule (b): sent before the probe, and not here when it came.
            let margin = self.reorder.margin();
            self.mark_lost(now, shared, |slot| {
                slot.transmission.wrapping_sub(mark).cast_signed() < 0
                    && slot.sent_at.saturating_add(margin) <= asked_at
            });
        }
        true
    }

    fn on_nack(&mut self, now: Micros, flags: u16, shared: &SharedState) {
        let config = &shared.config;
        if self.oldest == self.next {
            return;
        }
        if flags & FULL == 0 {
            if self.lost == 0 && !self.probe.outstanding() && self.full == Backpressure::No {
                self.probe.soon(now, self.reorder.margin());
            }
        } else if !matches!(self.full, Backpressure::Waiting { .. }) {
            let pause = (config.full_retry << self.refusals.min(20)).min(config.full_retry_max);
            self.refusals = self.refusals.saturating_add(1);
            self.full = Backpressure::Waiting { until: now.saturating_add(pause) };
            self.probe.due = false;
            self.probe.later = NEVER;
            self.rearm(now, shared);
        }
    }

    /// How long packets may queue. Delay by reordering does not count as a queue.
    fn queue_target(&self, config: &Config) -> Micros {
        match config.queue_target {
            0 => 0,
            target => target + self.reorder.margin(),
        }
    }
}
