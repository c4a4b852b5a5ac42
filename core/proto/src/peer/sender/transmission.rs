//! Transmission of packets from the ring: completed in place, laid end to end, or in pieces. Lent data
//! is copied back into the ring here too.

use super::super::SharedState;
use super::super::send_ring::{PacketState, SendRing};
use super::{FREE, PacketRun, Piggyback, Sender};
use crate::context::Flag;
use crate::peer_counts::TallyRecord;
use crate::wire::{ACK_NOW, Header, PacketKind, RESENT};
use crate::{Micros, Piece, Rank};
use core::ops::Range;

/// Where the packets of a completed run lie.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RunPlace {
    /// In the ring, from this byte of its packets on.
    Ring(usize),
    /// In the codec's buffer.
    Staged,
    /// In the ring and with their lenders, as the pieces say.
    Pieces,
}

/// A completed run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CompletedRun {
    pub(crate) place: RunPlace,
    /// Bytes of all packets.
    pub(crate) length: usize,
    /// Bytes of each packet but the last.
    pub(crate) segment: usize,
}

impl Sender {
    /// Completes the packets of a run that [`Self::next_run`] gave; of one with lent parts, the pieces are in
    /// `shared`.
    pub(crate) fn transmit(
        &mut self,
        now: Micros,
        run: PacketRun,
        (to, piggyback): (Rank, Piggyback),
        ring: &mut SendRing<'_>,
        shared: &mut SharedState<'_>,
        tally: &mut TallyRecord,
    ) -> CompletedRun {
        if let Some(round_trip) =
            self.retransmission.smoothed().filter(|_| self.congestion.saturated())
        {
            self.pace.left(now, run.count, self.congestion.window(), round_trip);
        }
        let (window, carries) = (self.window(now, shared), self.path.whole_datagram(shared.config));
        let stride = shared.config.max_datagram;
        let (mut end, mut segment, mut fragmented) = (0, 0, 0);
        shared.pieces.clear();
        for at in 0..run.count {
            // At most `MOST_SEGMENTS`.
            #[allow(clippy::cast_possible_truncation)]
            let sequence = run.first.wrapping_add(at as u32);
            let flags = self.leaves(now, sequence, window, ring, shared, tally)
                | if at == 0 { piggyback.flags } else { 0 };
            let (kind, from, ack) = (PacketKind::Data, shared.me, piggyback.ack);
            let header = Header { kind, flags, from, to, sequence, ack };
            let index = ring.index(sequence);
            let slot = &ring.slots[index];
            let (start, length) = (index * stride, usize::from(slot.length));
            let head = &mut ring.bytes[start..][..usize::from(slot.head)];
            let length = if run.lent {
                shared.packets.seal_head(&header, head, length);
                let (place, head) = (slot.place, head.len());
                shared.pieces.push(Piece { at: start, head, place, rest: length - head });
                length
            } else {
                shared.packets.seal_kept(&header, head, end, run.in_place)
            };
            segment = length.max(segment);
            end += length;
            fragmented += u64::from(length > carries);
        }
        shared.counters.packets_out(PacketKind::Data, run.count as u64, end);
        tally.packets_out(PacketKind::Data, run.count as u64, end);
        tally.fragmented += fragmented;
        let place = if run.lent {
            RunPlace::Pieces
        } else if shared.packets.stages(run.in_place) {
            RunPlace::Staged
        } else {
            RunPlace::Ring(ring.index(run.first) * stride)
        };
        CompletedRun { place, length: end, segment }
    }

    /// Notes that a packet leaves; the flags that it carries for that.
    fn leaves(
        &mut self,
        now: Micros,
        sequence: u32,
        window: u32,
        ring: &mut SendRing<'_>,
        shared: &mut SharedState<'_>,
        tally: &mut TallyRecord,
    ) -> u16 {
        let slot = ring.slot(sequence);
        if slot.state == PacketState::LOST {
            self.lost -= 1;
            self.recovering = Flag::SET;
            slot.resends = slot.resends.saturating_add(1);
            shared.counters.resends += 1;
            tally.resends += 1;
        } else {
            self.next = self.next.wrapping_add(1);
        }
        slot.state = PacketState::FLIGHT;
        slot.sent_at = now;
        slot.transmission = self.transmission;
        self.transmission = self.transmission.wrapping_add(1);
        self.in_flight += 1;
        let full = self.in_flight >= window;
        if full {
            self.congestion.limited();
        }
        // Without it the window would stay closed until the delayed ack.
        let fills = full || self.full != FREE;
        (if fills { ACK_NOW } else { 0 }) | if slot.resent() { RESENT } else { 0 }
    }

    /// Packets of which a part is lent.
    pub(crate) fn lent(&self) -> u32 {
        self.lent_slots.into()
    }

    /// Has what is lent from `places` copied into the ring, whose slots are `stride` bytes long.
    pub(crate) fn take_back(
        &mut self,
        ring: &mut SendRing<'_>,
        stride: usize,
        places: &Range<u64>,
        mut copy: impl FnMut(u64, &mut [u8]),
    ) {
        let mut sequence = self.oldest;
        while sequence != self.tail && self.lent_slots > 0 {
            let index = ring.index(sequence);
            sequence = sequence.wrapping_add(1);
            let slot = &mut ring.slots[index];
            if !slot.is_lent() || !places.contains(&slot.place) {
                continue;
            }
            let packet = &mut ring.bytes[index * stride..][..usize::from(slot.length)];
            copy(slot.place, &mut packet[usize::from(slot.head)..]);
            slot.head = slot.length;
            self.lent_slots -= 1;
        }
    }
}
