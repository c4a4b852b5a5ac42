//! Receiver of one peer: order, duplicates, early packets, acks.

use super::{NEVER, SharedState};
use crate::endpoint::{Delivery, Sink};
use crate::seal::STALE;
use crate::wire::{ACK_NOW, ECHO, FRESH, FULL, PacketKind, RESENT, TWICE, echo_of};
use crate::{AckMode, Config, Micros, Rank};
use alloc::boxed::Box;
use alloc::vec;

/// A nack goes out for the first early packet of a gap and for every third after it.
const EARLY_PER_NACK: u32 = 3;

/// Packets that came before their turn, by sequence modulo window.
#[derive(Debug)]
struct ReorderBuffer {
    frames: Box<[Option<Box<[u8]>>]>,
    count: usize,
}

/// State of the pair's receiving side.
#[derive(Debug)]
pub(crate) struct Receiver {
    /// The next packet to deliver.
    expected: u32,
    /// Packets taken since the last ack.
    unacked: u32,
    /// Packets that have not been answered by an ack of their own; stays 0 when acks are reduced.
    owed: u32,
    /// Early packets since the last progress, and how many of them give no reason for a nack: as many
    /// as have overtaken a packet that was not lost.
    early: u32,
    patience: u32,
    /// When the delayed ack is due.
    ack_at: Micros,
    /// That was postponed.
    postponed: bool,
    /// An ack is due now.
    ack_now: bool,
    /// A nack is due now.
    nack: bool,
    /// The nack due is because the sink is full.
    full: bool,
    /// Data came twice since the last packet with an ack.
    twice: bool,
    /// Data came since the last packet with an ack.
    fresh: bool,
    /// The probe to answer.
    echo: Option<u32>,
    /// It is to be answered at once.
    echo_now: bool,
    kept: Option<Box<ReorderBuffer>>,
    /// Highest counter of an encrypted packet taken; 0 if there was none.
    newest: u64,
}

impl Receiver {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            expected: config.first_sequence,
            unacked: 0,
            owed: 0,
            early: 0,
            patience: 0,
            ack_at: NEVER,
            postponed: false,
            ack_now: false,
            nack: false,
            full: false,
            twice: false,
            fresh: false,
            echo: None,
            echo_now: false,
            kept: None,
            newest: 0,
        }
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
        shared: &mut SharedState,
        sink: &mut S,
    ) {
        let each = shared.config.ack == AckMode::PerMessage;
        if each {
            // No more than a window can be in flight; further duplicates share an ack.
            let most = u32::try_from(shared.config.window).unwrap_or(u32::MAX);
            self.owed = (self.owed + 1).min(most);
        } else if packet.flags & ACK_NOW != 0 {
            self.ack_now = true;
        }
        let ahead = packet.sequence.wrapping_sub(self.expected).cast_signed();
        if ahead < 0 || self.has(packet.sequence) {
            shared.counters.duplicates += 1;
            self.twice = true;
            self.ack_now = true;
        } else if ahead == 0 {
            let overtaken = self.early;
            if !self.deliver_expected(packet.from, packet.frame, shared, sink) {
                return;
            }
            self.on_gap_filled(overtaken, packet.flags & RESENT != 0, &shared.config);
            self.fresh = true;
            self.unacked += 1;
            if self.ack_at == NEVER && !each {
                self.ack_at = now.saturating_add(shared.config.ack_delay);
            }
        } else {
            self.keep(now, packet.sequence, packet.frame, shared);
        }
        if self.kept.is_some() {
            self.deliver_kept(packet.from, shared, sink);
        }
    }

    /// Takes a probe. Answers with the current state, or, unless `at_once` is set, with the ack that is
    /// held back for the packets just before.
    pub(crate) fn on_probe<S: Sink>(
        &mut self,
        from: Rank,
        number: u32,
        at_once: bool,
        shared: &mut SharedState,
        sink: &mut S,
    ) {
        self.echo = Some(number);
        // The sender knows of no gap and is not being refused, so waiting loses nothing.
        let held = self.ack_at != NEVER && self.kept.is_none() && !self.nack;
        self.echo_now |= at_once || !held;
        if self.kept.is_some() {
            self.deliver_kept(from, shared, sink);
        }
    }

    /// Offers the expected packet to the sink.
    fn deliver_expected<S: Sink>(
        &mut self,
        from: Rank,
        frame: &[u8],
        shared: &mut SharedState,
        sink: &mut S,
    ) -> bool {
        match sink.deliver(from, frame) {
            Delivery::Taken => {
                self.expected = self.expected.wrapping_add(1);
                self.early = 0;
                self.full = false;
                shared.counters.delivered += 1;
                shared.counters.delivered_bytes += frame.len() as u64;
                true
            }
            Delivery::Full => {
                shared.counters.refused += 1;
                self.nack = true;
                self.full = true;
                false
            }
        }
    }

    fn slot(&self, sequence: u32, window: usize) -> usize {
        sequence as usize & (window - 1)
    }

    /// Whether an early packet with this number is kept. Numbers outside the window are not.
    fn has(&self, sequence: u32) -> bool {
        self.kept.as_ref().is_some_and(|kept| {
            let window = kept.frames.len();
            (sequence.wrapping_sub(self.expected) as usize) < window
                && kept.frames[self.slot(sequence, window)].is_some()
        })
    }

    /// The packet for which others were waiting has come.
    fn on_gap_filled(&mut self, overtaken: u32, resent: bool, config: &Config) {
        if overtaken == 0 {
        } else if resent {
            self.patience -= self.patience.div_ceil(8);
        } else {
            let most = u32::try_from(config.window).unwrap_or(u32::MAX);
            self.patience = self.patience.max(overtaken).min(most);
        }
    }

    fn keep(&mut self, now: Micros, sequence: u32, frame: &[u8], shared: &mut SharedState) {
        let beyond = self.early.checked_sub(self.patience);
        if beyond.is_some_and(|beyond| beyond.is_multiple_of(EARLY_PER_NACK)) {
            self.nack = true;
        } else if self.ack_at == NEVER {
            self.ack_at = now.saturating_add(shared.config.ack_delay);
        }
        self.early = self.early.wrapping_add(1);
        if shared.kept >= shared.config.reorder_packets {
            shared.counters.out_of_order_dropped += 1;
            return;
        }
        let window = shared.config.window;
        let slot = self.slot(sequence, window);
        let kept = self.kept.get_or_insert_with(|| {
            Box::new(ReorderBuffer { frames: vec![None; window].into(), count: 0 })
        });
        kept.frames[slot] = Some(frame.into());
        kept.count += 1;
        shared.kept += 1;
        self.fresh = true;
        shared.counters.out_of_order_kept += 1;
    }

    /// Delivers kept packets as far as they are in order and the sink takes them.
    fn deliver_kept<S: Sink>(&mut self, from: Rank, shared: &mut SharedState, sink: &mut S) {
        let window = shared.config.window;
        while let Some(kept) = &mut self.kept {
            let slot = self.expected as usize & (window - 1);
            let Some(frame) = kept.frames[slot].take() else { break };
            if !self.deliver_expected(from, &frame, shared, sink) {
                if let Some(kept) = &mut self.kept {
                    kept.frames[slot] = Some(frame);
                }
                break;
            }
            shared.kept -= 1;
            self.ack_now = true;
            if let Some(kept) = &mut self.kept {
                kept.count -= 1;
                if kept.count == 0 {
                    self.kept = None;
                }
            }
        }
    }

    pub(crate) fn handle_timeout(&mut self, now: Micros, config: &Config) {
        if self.ack_at > now {
            return;
        }
        if now - self.ack_at > config.late_grace && !self.postponed {
            // This rank was not scheduled: its program may be about to reply.
            self.postponed = true;
            self.ack_at = now.saturating_add(config.ack_delay);
            return;
        }
        self.ack_at = NEVER;
        self.ack_now = true;
        // Early packets have waited long enough for the missing one.
        self.nack |= self.kept.is_some();
    }

    /// The delayed ack, if one is held back, is due now.
    pub(crate) fn send_delayed_ack(&mut self) {
        self.ack_now |= self.ack_at != NEVER;
    }

    /// Whether an ack or nack has to leave now.
    pub(crate) fn must_respond(&self, config: &Config) -> bool {
        self.ack_now
            || self.nack
            || self.echo_now
            || self.owed > 0
            || (self.unacked >= config.ack_every && config.ack == AckMode::Reduced)
    }

    /// Whether the ack field of a data packet or probe says all there is to say.
    pub(crate) fn can_piggyback(&self) -> bool {
        !self.nack && self.kept.is_none() && self.owed == 0
    }

    pub(crate) fn response_kind(&self) -> PacketKind {
        if self.nack { PacketKind::Nack } else { PacketKind::Ack }
    }

    /// A data packet with the ack field, but without selective acks, is leaving; the flags it carries
    /// besides.
    pub(crate) fn piggyback(&mut self) -> u16 {
        // The sender takes the answer to a probe as a report of all that has come: it needs the map.
        let echo = if self.kept.is_none() { self.echo.take() } else { None };
        self.piggyback_on_probe() | echo.map_or(0, echo_of)
    }

    /// The same for a probe, which answers none.
    pub(crate) fn piggyback_on_probe(&mut self) -> u16 {
        // Of what came early it does not speak: an ack or nack of its own is still to come.
        if self.kept.is_some() { 0 } else { self.mark_reported() }
    }

    /// All that has come was spoken of; the flags that say what is new about it.
    fn mark_reported(&mut self) -> u16 {
        self.unacked = 0;
        self.ack_at = NEVER;
        self.postponed = false;
        self.ack_now = false;
        // The ack that it was to leave with has left.
        self.echo_now = self.echo.is_some();
        let fresh = if core::mem::take(&mut self.fresh) { FRESH } else { 0 };
        fresh | if core::mem::take(&mut self.twice) { TWICE } else { 0 }
    }

    /// An ack or nack is leaving: its flags, its number, and its body's length written to `body`.
    pub(crate) fn respond(&mut self, body: &mut [u8]) -> (u16, u32, usize) {
        let mut flags = if self.echo.is_some() { ECHO } else { 0 };
        if self.nack && self.full {
            flags |= FULL;
        }
        if self.echo.is_none() {
            self.owed = self.owed.saturating_sub(1);
        }
        let number = self.echo.take().unwrap_or(0);
        self.nack = false;
        self.full = false;
        flags |= self.mark_reported();
        (flags, number, self.write_map(body))
    }

    /// The selective acks; bytes written.
    fn write_map(&self, body: &mut [u8]) -> usize {
        let Some(kept) = &self.kept else { return 0 };
        let window = kept.frames.len();
        let body = &mut body[..window.div_ceil(64) * 8];
        body.fill(0);
        let mut length = 0;
        for ahead in 0..window {
            let slot = (self.expected as usize).wrapping_add(ahead) & (window - 1);
            if kept.frames[slot].is_some() {
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
