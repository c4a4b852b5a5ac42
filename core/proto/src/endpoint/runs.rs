//! Runs: packets that the wire brings together, and frames that are queued together. What is the same for
//! all of them is looked at once.

use super::{Endpoint, SendError, Sink, View};
use crate::context::ContextMemory;
use crate::peer::{DataPacket, LentPart};
use crate::wire::{HEADER_BYTES, PacketKind};
use crate::{Micros, Rank};

impl<M: ContextMemory> Endpoint<M> {
    /// Takes datagrams that lie end to end, each `segment` bytes long but perhaps the last, as
    /// [`Self::handle_datagram`] would one after the other.
    pub fn handle_run<S: Sink>(&mut self, now: Micros, run: &[u8], segment: usize, sink: &mut S) {
        let segment = segment.max(1);
        self.change(|endpoint| {
            let mut rest = run;
            while !rest.is_empty() {
                let (datagram, behind) = rest.split_at(segment.min(rest.len()));
                let from = endpoint.take_or_count(now, datagram, sink);
                let taken = match (from, datagram.first_chunk()) {
                    (Some(from), Some(first)) if !behind.is_empty() => {
                        endpoint.take_next(now, (from, first), (behind, segment), sink)
                    }
                    _ => 0,
                };
                rest = &behind[taken..];
            }
        });
    }

    /// Takes the datagrams at the beginning of a run that continue a data packet, just taken, of the peer with this
    /// number and with this header; how many bytes they have. They have the next numbers and say nothing else.
    fn take_next<S: Sink>(
        &mut self,
        now: Micros,
        (number, first): (u32, &[u8; HEADER_BYTES]),
        (run, segment): (&[u8], usize),
        sink: &mut S,
    ) -> usize {
        let (View { peer, mut shared, mut table, .. }, schedule) = self.view(number);
        if !peer.receiver.takes_runs(shared.config) {
            return 0;
        }
        let (from, mut packets, mut bytes) = (peer.rank, 0, 0);
        for datagram in run.chunks(segment) {
            let next = shared.packets.open_next(first, datagram);
            let Some((sequence, flags, frame)) = next else { break };
            if sequence != peer.receiver.expected() {
                break;
            }
            (packets, bytes) = (packets + 1, bytes + datagram.len());
            let packet = DataPacket { from, sequence, flags, frame };
            if !peer.receiver.on_next(now, packet, &mut shared, sink) {
                break;
            }
        }
        if packets == 0 {
            return 0;
        }
        shared.counters.packets_in(PacketKind::Data, packets, bytes);
        table.of(&mut peer.tally, from).packets_in(PacketKind::Data, packets, bytes);
        schedule.enqueue(peer, number);
        schedule.note_deadline(peer, number);
        bytes
    }

    /// As [`Self::send_with`], of several frames: `write` is called at most `count` times, until it gives `None` or the
    /// ring is full. How many were queued.
    ///
    /// # Errors
    /// As [`Self::send_with`]; then none was queued.
    pub fn send_run(
        &mut self,
        now: Micros,
        to: Rank,
        count: usize,
        mut write: impl FnMut(&mut [u8]) -> Option<usize>,
    ) -> Result<usize, SendError> {
        let count = count.min(self.room_for_frame(now, to)?);
        Ok(self.change(|endpoint| endpoint.queue_run_in_ring(to, count, &mut write)))
    }

    /// Has `pad` lengthen the last frame queued for `to` to `full` bytes, if it has not left yet: then frames of this
    /// length that follow leave in the same run. `pad` gets the room for that and the length of the frame now. It says
    /// false if such a frame cannot be lengthened.
    pub fn pad_last(&mut self, to: Rank, full: usize, pad: impl FnOnce(&mut [u8], usize) -> bool) {
        let Some(number) = self.number(to) else { return };
        let full = full.min(self.max_frame());
        if self.record(number).sender.under_way().1 == 0 {
            return;
        }
        self.change(|endpoint| {
            let (View { peer, blocks, layout, shared, .. }, _) = endpoint.view(number);
            let mut ring = peer.sender.ring_in(layout.block(blocks, peer.sender.ring));
            let more = peer.sender.pad_last(&mut ring, shared.config, full, pad);
            shared.counters.sent_bytes += more as u64;
        });
    }

    fn queue_run_in_ring(
        &mut self,
        to: Rank,
        count: usize,
        write: &mut impl FnMut(&mut [u8]) -> Option<usize>,
    ) -> usize {
        let (most, number) = (self.max_frame(), self.ringed(to));
        let (View { peer, blocks, layout, shared, .. }, schedule) = self.view(number);
        let mut ring = peer.sender.ring_in(layout.block(blocks, peer.sender.ring));
        let was_flushed = peer.sender.flushed();
        let (mut queued, mut bytes) = (0, 0);
        while queued < count {
            let mut one = |room: &mut [u8]| Some((write(room)?, LentPart::NONE));
            let frame = peer.sender.queue_if(&mut ring, shared.config, most, &mut one);
            let Some(length) = frame else { break };
            (queued, bytes) = (queued + 1, bytes + length);
        }
        shared.counters.sent += queued as u64;
        shared.counters.sent_bytes += bytes as u64;
        if queued > 0 {
            schedule.enqueue(peer, number);
            self.unflushed += usize::from(was_flushed);
        }
        queued
    }
}
