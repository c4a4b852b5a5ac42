//! Evaluation of a peer's acks and nacks: packets that arrived, packets that are lost, round trips.

use super::super::send_ring::{PacketState, SendRing, Slot};
use super::super::{NEVER, SharedState};
use super::{Backpressure, FREE, Sender, WAITING};
use crate::context::Flag;
use crate::wire::{ECHO, FRESH, FULL, HOLD, Header, PacketKind, TWICE};
use crate::{Config, Micros};

/// So many rounds in which the ring was too short before it grows.
const CRAMPED_ROUNDS: u8 = 4;

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
        ring: &mut SendRing<'_>,
        shared: &mut SharedState<'_>,
    ) {
        let ahead = header.ack.wrapping_sub(self.oldest).cast_signed();
        let current = ahead >= 0;
        self.hold.set(header.flags & HOLD != 0);
        let mut outcome = AckOutcome::default();
        if ahead > 0 {
            self.release(header.ack, &mut outcome, ring, shared);
            self.set_full(Backpressure::No);
            self.refusals = 0;
            // The answer that the probe was to ask for has come.
            self.probe.later.set(NEVER);
        }
        if header.flags & TWICE != 0 {
            self.on_duplicate(shared.config);
        }
        if current && !map.is_empty() {
            self.mark_arrived(now, map, &mut outcome, ring, shared);
        }
        let echo = header.flags & ECHO != 0
            && self.on_echo(now, self.probe.number(header), current, ring, shared);
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
                self.retransmission.sample(round_trip, shared.config);
                let target = self.queue_target(shared.config);
                let held = self.hold.get() || shared.holds(now);
                let (acked, next) = (outcome.transmission, self.transmission);
                let cramped = self.congestion.measured(round_trip, acked, next, target, held);
                self.grow(cramped, ring, shared);
            }
        }
        if progress || echo {
            self.postponed = Flag::CLEAR;
            self.rearm(now, shared);
        }
        if current && header.kind == PacketKind::Nack {
            self.on_nack(now, header.flags, shared);
        }
    }

    /// Doubles the ring after some rounds in which it was full though no packet queued on the way: more is on the way
    /// than it holds. `cramped`: whether the round that ends now was one.
    fn grow(&mut self, cramped: Option<bool>, ring: &mut SendRing<'_>, shared: &SharedState<'_>) {
        let Some(cramped) = cramped else { return };
        self.cramped = if cramped { self.cramped.saturating_add(1) } else { 0 };
        if self.cramped < CRAMPED_ROUNDS || self.slots() >= shared.config.window || ring.is_none() {
            return;
        }
        self.cramped = 0;
        ring.double(self.oldest, self.tail, shared.config.max_datagram);
        self.congestion.raise_most();
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
    fn release(
        &mut self,
        ack: u32,
        outcome: &mut AckOutcome,
        ring: &mut SendRing<'_>,
        shared: &SharedState<'_>,
    ) {
        while self.oldest != ack {
            let slot = *ring.slot(self.oldest);
            match slot.state {
                PacketState::FLIGHT => {
                    self.in_flight -= 1;
                    outcome.acked += 1;
                    if !slot.resent() {
                        outcome.note(&slot);
                    }
                }
                PacketState::LOST => {
                    self.lost -= 1;
                    outcome.acked += 1;
                }
                // Counted when it arrived.
                _ => {}
            }
            if slot.state != PacketState::ARRIVED
                && self.path.is_long(shared.wire_bytes(slot.length), shared.config)
            {
                self.path.passed();
            }
            if !slot.resent() && slot.transmission.wrapping_sub(self.newest).cast_signed() > 0 {
                self.newest = slot.transmission;
            }
            self.held -= u32::from(slot.length);
            self.lent_slots -= u16::from(slot.is_lent());
            self.oldest = self.oldest.wrapping_add(1);
        }
    }

    /// Takes selective acks; `map` starts at `oldest`.
    fn mark_arrived(
        &mut self,
        now: Micros,
        map: &[u8],
        outcome: &mut AckOutcome,
        ring: &mut SendRing<'_>,
        shared: &mut SharedState<'_>,
    ) {
        if ring.is_none() {
            return;
        }
        let mut sequence = self.oldest;
        for bit in map.iter().flat_map(|byte| (0..8).map(move |bit| byte >> bit & 1)) {
            let slot = ring.slot(sequence);
            sequence = sequence.wrapping_add(1);
            if bit == 0 || !matches!(slot.state, PacketState::FLIGHT | PacketState::LOST) {
                continue;
            }
            if slot.state == PacketState::FLIGHT {
                self.in_flight -= 1;
                if !slot.resent() {
                    outcome.note(slot);
                }
            } else {
                self.lost -= 1;
            }
            slot.state = PacketState::ARRIVED;
            outcome.acked += 1;
            if self.path.is_long(shared.wire_bytes(slot.length), shared.config) {
                self.path.passed();
            }
            if !slot.resent() && slot.transmission.wrapping_sub(self.newest).cast_signed() > 0 {
                self.newest = slot.transmission;
            }
        }
        // Rule (a): sent well before one that has arrived.
        let (newest, threshold) = (self.newest, self.reorder.threshold());
        self.mark_lost(now, ring, shared, |slot| {
            newest.wrapping_sub(slot.transmission).cast_signed() >= threshold
        });
    }

    /// Marks as lost what is in flight and of which `is_lost` says so.
    fn mark_lost(
        &mut self,
        now: Micros,
        ring: &mut SendRing<'_>,
        shared: &mut SharedState<'_>,
        is_lost: impl Fn(&Slot) -> bool,
    ) {
        let before = self.lost;
        // Of long ones: how often that was sent again which was sent most.
        let mut resends = None;
        let mut sequence = self.oldest;
        while sequence != self.next {
            let slot = ring.slot(sequence);
            if slot.state == PacketState::FLIGHT && is_lost(slot) {
                slot.state = PacketState::LOST;
                self.in_flight -= 1;
                self.lost += 1;
                self.congestion.lost(slot.transmission, self.transmission);
                if self.path.is_long(shared.wire_bytes(slot.length), shared.config) {
                    resends = resends.max(Some(slot.resends));
                }
            }
            sequence = sequence.wrapping_add(1);
        }
        if self.lost > before {
            self.reorder.on_loss();
        }
        if let Some(resends) = resends {
            shared.narrowed.or(self.path.lost(now, resends, shared.config));
        }
    }

    /// Takes the answer to probe `number`; whether it was one that was waited for.
    fn on_echo(
        &mut self,
        now: Micros,
        number: u32,
        current: bool,
        ring: &mut SendRing<'_>,
        shared: &mut SharedState<'_>,
    ) -> bool {
        let since = number.wrapping_sub(self.probe.answered);
        if since == 0 || since > self.probe.sent.wrapping_sub(self.probe.answered) {
            return false;
        }
        self.probe.answered = number;
        self.retransmission.progress();
        let (mark, asked_at) = if self.probe.outstanding() {
            (self.probe.first_mark, self.probe.first_at.get())
        } else {
            (self.probe.last_mark, self.probe.sent_at.get())
        };
        if !self.probe.outstanding() && asked_at >= shared.stopped {
            self.retransmission.sample(now.saturating_sub(asked_at), shared.config);
        }
        if current {
            // Rule (b): sent before the probe, and not here when it came.
            let margin = self.reorder.margin();
            self.mark_lost(now, ring, shared, |slot| {
                slot.transmission.wrapping_sub(mark).cast_signed() < 0
                    && slot.sent_at.saturating_add(margin) <= asked_at
            });
        }
        true
    }

    fn on_nack(&mut self, now: Micros, flags: u16, shared: &SharedState<'_>) {
        let config = shared.config;
        if self.oldest == self.next {
            return;
        }
        if flags & FULL == 0 {
            if self.lost == 0 && !self.probe.outstanding() && self.full == FREE {
                self.probe.soon(now, self.reorder.margin());
            }
        } else if self.full != WAITING {
            let pause = (config.full_retry << self.refusals.min(20)).min(config.full_retry_max);
            self.refusals = self.refusals.saturating_add(1);
            self.set_full(Backpressure::Waiting { until: now.saturating_add(pause) });
            self.probe.due = Flag::CLEAR;
            self.probe.later.set(NEVER);
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
