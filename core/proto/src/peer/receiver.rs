//! Receiver of one peer: order, duplicates, early packets, acks.

use super::early::EarlyPackets;
use super::{NEVER, SharedState};
use crate::context::Flag;
use crate::endpoint::{Delivery, Sink};
use crate::seal::STALE;
use crate::wire::{ACK_NOW, ECHO, FRESH, FULL, PacketKind, RESENT, TWICE, echo_of};
use crate::{AckMode, Config, Micros, Rank};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A nack goes out for the first early packet of a gap and for every third after it.
const EARLY_PER_NACK: u16 = 3;

/// State of the pair's receiving side.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct Receiver {
    /// When the delayed ack is due.
    ack_at: Micros,
    /// Highest counter of an encrypted packet taken; 0 if there was none.
    newest: u64,
    /// The next packet to deliver.
    expected: u32,
    /// Packets taken since the last ack.
    unacked: u32,
    /// The probe to answer, if there is one.
    echo: u32,
    /// Number of the block of its early packets plus one; 0: it has none.
    pub(crate) block: u32,
    /// Early packets since the last progress.
    early: u16,
    /// How many of `early` give no reason for a nack: as many as have overtaken a packet that was not lost.
    pub(super) patience: u16,
    /// Packets that have not been answered by an ack of their own; stays 0 when acks are reduced.
    pub(super) owed: u16,
    /// Early packets kept.
    kept: u16,
    /// The delayed ack was postponed.
    postponed: Flag,
    /// An ack is due now.
    ack_now: Flag,
    /// A nack is due now.
    nack: Flag,
    /// The nack due is because the sink is full.
    full: Flag,
    /// Data came twice since the last packet with an ack.
    twice: Flag,
    /// Data came since the last packet with an ack.
    fresh: Flag,
    /// A probe is to be answered.
    asked: Flag,
    /// It is to be answered at once.
    echo_now: Flag,
}

impl Receiver {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            ack_at: NEVER,
            newest: 0,
            expected: config.first_sequence,
            unacked: 0,
            echo: 0,
            block: 0,
            early: 0,
            patience: 0,
            owed: 0,
            kept: 0,
            postponed: Flag::CLEAR,
            ack_now: Flag::CLEAR,
            nack: Flag::CLEAR,
            full: Flag::CLEAR,
            twice: Flag::CLEAR,
            fresh: Flag::CLEAR,
            asked: Flag::CLEAR,
            echo_now: Flag::CLEAR,
        }
    }

    pub(super) fn flags(&self) -> [Flag; 8] {
        let Self { postponed, ack_now, nack, full, twice, fresh, asked, echo_now, .. } = *self;
        [postponed, ack_now, nack, full, twice, fresh, asked, echo_now]
    }

    /// Whether a packet with this number has to be kept until others have come.
    pub(crate) fn is_early(&self, sequence: u32) -> bool {
        sequence.wrapping_sub(self.expected).cast_signed() > 0
    }

    /// Gives up the block for early packets, if there are none; its number plus one.
    #[inline]
    pub(crate) fn take_block(&mut self) -> Option<u32> {
        let number = if self.kept == 0 { core::mem::take(&mut self.block) } else { 0 };
        (number > 0).then_some(number)
    }

    /// Early packets kept.
    pub(crate) fn kept(&self) -> u16 {
        self.kept
    }

    /// The ack that was held back, and the answer to a probe, are due now: their times were of another clock.
    pub(super) fn restart(&mut self, config: &Config) {
        self.ack_now.or(self.ack_at != NEVER);
        self.ack_at = NEVER;
        self.postponed = Flag::CLEAR;
        self.echo_now = self.asked;
        let most = u32::try_from(config.window).unwrap_or(u32::MAX);
        self.unacked = self.unacked.min(most);
    }

    pub(crate) fn expected(&self) -> u32 {
        self.expected
    }

    pub(crate) fn deadline(&self) -> Micros {
        self.ack_at
    }

    /// Whether a data packet's number is one that can come now: not at or behind the window's end.
    pub(crate) fn accepts(&self, sequence: u32, config: &Config) -> bool {
        let ahead = sequence.wrapping_sub(self.expected).cast_signed();
        usize::try_from(ahead).is_ok_and(|ahead| ahead < config.window) || ahead < 0
    }

    /// Whether a packet with this counter is not so old that its numbers might have come round since.
    pub(crate) fn is_fresh(&self, counter: u64) -> bool {
        self.newest.saturating_sub(counter) <= STALE
    }

    /// A packet with this counter was taken.
    pub(crate) fn took(&mut self, counter: u64) {
        self.newest = self.newest.max(counter);
    }

    /// Takes a data packet whose number [`Self::accepts`].
    pub(crate) fn on_data<S: Sink>(
        &mut self,
        now: Micros,
        packet: DataPacket<'_>,
        early: &mut EarlyPackets<'_>,
        shared: &mut SharedState<'_>,
        sink: &mut S,
    ) {
        let each = shared.config.ack == AckMode::PerMessage;
        if each {
            // No more than a window can be in flight; further duplicates share an ack.
            let most = u16::try_from(shared.config.window).unwrap_or(u16::MAX);
            self.owed = (self.owed + 1).min(most);
        } else if packet.flags & ACK_NOW != 0 {
            self.ack_now = Flag::SET;
        }
        let ahead = packet.sequence.wrapping_sub(self.expected).cast_signed();
        if ahead < 0 || self.has(packet.sequence, early, shared.config) {
            shared.counters.duplicates += 1;
            self.twice = Flag::SET;
            self.ack_now = Flag::SET;
        } else if ahead == 0 {
            let overtaken = self.early;
            if !self.deliver_expected(packet.from, packet.frame, shared, sink) {
                return;
            }
            self.on_gap_filled(overtaken, packet.flags & RESENT != 0, shared.config);
            self.fresh = Flag::SET;
            self.unacked += 1;
            if self.ack_at == NEVER && !each {
                self.ack_at = now.saturating_add(shared.config.ack_delay);
            }
        } else {
            self.keep(now, packet, early, shared);
        }
        if self.kept > 0 {
            self.deliver_kept(packet.from, early, shared, sink);
        }
    }

    /// Packets that come in order need nothing but [`Self::on_next`].
    #[inline]
    pub(crate) fn takes_runs(&self, config: &Config) -> bool {
        self.kept == 0 && self.early == 0 && config.ack == AckMode::Reduced
    }

    /// Takes a data packet that has the expected number and brings no news of acks, while [`Self::takes_runs`]; false if
    /// the sink had no room.
    #[inline]
    pub(crate) fn on_next<S: Sink>(
        &mut self,
        now: Micros,
        packet: DataPacket<'_>,
        shared: &mut SharedState<'_>,
        sink: &mut S,
    ) -> bool {
        self.ack_now.or(packet.flags & ACK_NOW != 0);
        if !self.deliver_expected(packet.from, packet.frame, shared, sink) {
            return false;
        }
        self.fresh = Flag::SET;
        self.unacked += 1;
        if self.ack_at == NEVER {
            self.ack_at = now.saturating_add(shared.config.ack_delay);
        }
        true
    }

    /// Takes a probe. Answers with the current state, or, unless `at_once` is set, with the ack that is
    /// held back for the packets just before.
    pub(crate) fn on_probe<S: Sink>(
        &mut self,
        from: Rank,
        (number, at_once): (u32, bool),
        early: &mut EarlyPackets<'_>,
        shared: &mut SharedState<'_>,
        sink: &mut S,
    ) {
        (self.echo, self.asked) = (number, Flag::SET);
        // The sender knows of no gap and is not being refused, so waiting loses nothing.
        let held = self.ack_at != NEVER && self.kept == 0 && !self.nack.get();
        self.echo_now.or(at_once || !held);
        if self.kept > 0 {
            self.deliver_kept(from, early, shared, sink);
        }
    }

    /// Offers the expected packet to the sink.
    fn deliver_expected<S: Sink>(
        &mut self,
        from: Rank,
        frame: &[u8],
        shared: &mut SharedState<'_>,
        sink: &mut S,
    ) -> bool {
        match sink.deliver(from, frame) {
            Delivery::Taken => {
                self.expected = self.expected.wrapping_add(1);
                self.early = 0;
                self.full = Flag::CLEAR;
                shared.counters.delivered += 1;
                shared.counters.delivered_bytes += frame.len() as u64;
                true
            }
            Delivery::Full => {
                shared.counters.refused += 1;
                self.nack = Flag::SET;
                self.full = Flag::SET;
                false
            }
        }
    }

    /// Whether an early packet with this number is kept. Numbers outside the window are not.
    fn has(&self, sequence: u32, early: &EarlyPackets<'_>, config: &Config) -> bool {
        self.kept > 0
            && (sequence.wrapping_sub(self.expected) as usize) < config.window
            && early.has(sequence)
    }

    /// The packet for which others were waiting has come.
    fn on_gap_filled(&mut self, overtaken: u16, resent: bool, config: &Config) {
        if overtaken == 0 {
        } else if resent {
            self.patience -= self.patience.div_ceil(8);
        } else {
            let most = u16::try_from(config.window).unwrap_or(u16::MAX);
            self.patience = self.patience.max(overtaken).min(most);
        }
    }

    fn keep(
        &mut self,
        now: Micros,
        packet: DataPacket<'_>,
        early: &mut EarlyPackets<'_>,
        shared: &mut SharedState<'_>,
    ) {
        let beyond = self.early.checked_sub(self.patience);
        if beyond.is_some_and(|beyond| beyond.is_multiple_of(EARLY_PER_NACK)) {
            self.nack = Flag::SET;
        } else if self.ack_at == NEVER {
            self.ack_at = now.saturating_add(shared.config.ack_delay);
        }
        self.early = self.early.wrapping_add(1);
        if *early.kept as usize >= shared.config.reorder_packets
            || !early.keep(packet.sequence, packet.frame, shared.config)
        {
            shared.counters.out_of_order_dropped += 1;
            return;
        }
        self.kept += 1;
        self.fresh = Flag::SET;
        shared.counters.out_of_order_kept += 1;
    }

    /// Delivers kept packets as far as they are in order and the sink takes them.
    fn deliver_kept<S: Sink>(
        &mut self,
        from: Rank,
        early: &mut EarlyPackets<'_>,
        shared: &mut SharedState<'_>,
        sink: &mut S,
    ) {
        while self.kept > 0 {
            let sequence = self.expected;
            let Some(frame) = early.frame(sequence, shared.config) else { break };
            if !self.deliver_expected(from, frame, shared, sink) {
                break;
            }
            self.kept -= 1;
            self.ack_now = Flag::SET;
            early.release(sequence);
        }
    }

    pub(crate) fn handle_timeout(&mut self, now: Micros, config: &Config) {
        if self.ack_at > now {
            return;
        }
        if now - self.ack_at > config.late_grace && !self.postponed.get() {
            // This rank was not scheduled: its program may be about to reply.
            self.postponed = Flag::SET;
            self.ack_at = now.saturating_add(config.ack_delay);
            return;
        }
        self.ack_at = NEVER;
        self.ack_now = Flag::SET;
        // Early packets have waited long enough for the missing one.
        self.nack.or(self.kept > 0);
    }

    /// The delayed ack, if one is held back, is due now.
    pub(crate) fn send_delayed_ack(&mut self) {
        self.ack_now.or(self.ack_at != NEVER);
    }

    /// Whether an ack or nack has to leave now.
    pub(crate) fn must_respond(&self, config: &Config) -> bool {
        self.ack_now.get()
            || self.nack.get()
            || self.echo_now.get()
            || self.owed > 0
            || (self.unacked >= config.ack_every && config.ack == AckMode::Reduced)
    }

    /// Whether the ack field of a data packet or probe says all there is to say.
    pub(crate) fn can_piggyback(&self) -> bool {
        !self.nack.get() && self.kept == 0 && self.owed == 0
    }

    pub(crate) fn response_kind(&self) -> PacketKind {
        if self.nack.get() { PacketKind::Nack } else { PacketKind::Ack }
    }

    /// A data packet with the ack field, but without selective acks, is leaving; the flags it carries
    /// besides.
    pub(crate) fn piggyback(&mut self) -> u16 {
        // The sender takes the answer to a probe as a report of all that has come: it needs the map.
        let echo = if self.kept == 0 && self.asked.take() { echo_of(self.echo) } else { 0 };
        self.piggyback_on_probe() | echo
    }

    /// The same for a probe, which answers none.
    pub(crate) fn piggyback_on_probe(&mut self) -> u16 {
        // Of what came early it does not speak: an ack or nack of its own is still to come.
        if self.kept > 0 { 0 } else { self.mark_reported() }
    }

    /// All that has come was spoken of; the flags that say what is new about it.
    fn mark_reported(&mut self) -> u16 {
        self.unacked = 0;
        self.ack_at = NEVER;
        self.postponed = Flag::CLEAR;
        self.ack_now = Flag::CLEAR;
        // The ack that it was to leave with has left.
        self.echo_now = self.asked;
        let fresh = if self.fresh.take() { FRESH } else { 0 };
        fresh | if self.twice.take() { TWICE } else { 0 }
    }

    /// An ack or nack is leaving: its flags, its number, and its body's length written to `body`.
    pub(crate) fn respond(
        &mut self,
        early: &EarlyPackets<'_>,
        body: &mut [u8],
    ) -> (u16, u32, usize) {
        let mut flags = if self.nack.get() && self.full.get() { FULL } else { 0 };
        let mut number = 0;
        if self.asked.take() {
            flags |= ECHO;
            number = self.echo;
        } else {
            self.owed = self.owed.saturating_sub(1);
        }
        self.nack = Flag::CLEAR;
        self.full = Flag::CLEAR;
        flags |= self.mark_reported();
        (flags, number, self.write_map(early, body))
    }

    /// The selective acks; bytes written.
    fn write_map(&self, early: &EarlyPackets<'_>, body: &mut [u8]) -> usize {
        if self.kept == 0 {
            return 0;
        }
        let window = early.slots.len();
        let body = &mut body[..window.div_ceil(64) * 8];
        body.fill(0);
        let mut length = 0;
        for ahead in 0..window {
            #[allow(clippy::cast_possible_truncation)] // A window at most.
            if early.has(self.expected.wrapping_add(ahead as u32)) {
                body[ahead / 8] |= 1 << (ahead % 8);
                length = (ahead / 64 + 1) * 8;
            }
        }
        length
    }
}

/// A data packet that passed the checks.
#[derive(Clone, Copy)]
pub(crate) struct DataPacket<'a> {
    pub(crate) from: Rank,
    pub(crate) sequence: u32,
    pub(crate) flags: u16,
    pub(crate) frame: &'a [u8],
}
