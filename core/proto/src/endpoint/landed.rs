//! Packets of which the wire has laid most where it belongs: only their beginning is private.

use super::{Delivery, Endpoint, Sink, View};
use crate::context::ContextMemory;
use crate::seal::OpenedPacket;
use crate::{Micros, Rank};

/// Takes frames of which the last bytes lie where they belong already.
pub trait LandedSink: Sink {
    /// Whether the bytes of this frame behind `head`, so many, lie where they belong. Nothing changes.
    fn is_in_place(&mut self, from: Rank, head: &[u8], rest: usize) -> bool;

    /// As [`Sink::deliver`], of a frame for which [`Self::is_in_place`] was just true.
    fn deliver_landed(&mut self, from: Rank, head: &[u8], rest: usize) -> Delivery;
}

/// The frame that comes has `rest` bytes more than it is delivered with.
struct Behind<'s, S> {
    sink: &'s mut S,
    rest: usize,
}

impl<S: LandedSink> Sink for Behind<'_, S> {
    fn deliver(&mut self, from: Rank, frame: &[u8]) -> Delivery {
        self.sink.deliver_landed(from, frame, self.rest)
    }
}

impl<M: ContextMemory> Endpoint<M> {
    /// Takes a datagram that begins with `head` and has `rest` more bytes, which the wire has laid elsewhere. False if it has
    /// to be looked at as a whole, by [`Self::handle_datagram`]; then nothing has changed.
    ///
    /// It is taken if its checksum covers no more than `head`, it is the next data packet of its sender, no early ones wait
    /// for it, and the sink says that the rest is where it belongs. So it is the only frame that is delivered.
    pub fn handle_landed<S: LandedSink>(
        &mut self,
        now: Micros,
        (head, rest): (&[u8], usize),
        sink: &mut S,
    ) -> bool {
        let (me, ranks) = (self.local.me, self.ranks());
        let opened = self.local.packets.open_head(me, ranks, head, rest);
        let Some((header, body)) = opened else { return false };
        let Some(number) = self.number(header.from) else { return false };
        let (View { peer, shared, .. }, _) = self.view(number);
        // As long as its header says, so no sum of these overflows.
        let next = header.sequence == peer.receiver.expected();
        if !next || !peer.receiver.takes_runs(shared.config) {
            return false;
        }
        if !sink.is_in_place(header.from, body, rest) {
            return false;
        }
        let packet = OpenedPacket { header, counter: 0, body };
        self.change(|endpoint| {
            let before = endpoint.counters().delivered;
            let mut behind = Behind { sink, rest };
            let taken = endpoint.take_opened(now, head.len() + rest, packet, &mut behind);
            let parts = endpoint.local.layout.parts(endpoint.memory.bytes_mut());
            let counters = &mut parts.totals.counters;
            match taken {
                Ok(_) if counters.delivered != before => counters.delivered_bytes += rest as u64,
                Ok(_) => {}
                Err(reason) => counters.dropped(reason),
            }
        });
        true
    }
}
