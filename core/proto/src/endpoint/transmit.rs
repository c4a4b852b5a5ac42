//! Datagrams that an endpoint hands out for the wire.

use super::{Endpoint, Schedule, View};
use crate::context::ContextMemory;
use crate::peer::{CompletedRun, EarlyPackets, PacketRun, Piggyback, RunPlace};
use crate::wire::{HEADER_BYTES, HOLD, Header, PacketKind};
use crate::{Micros, Rank};

/// One or more datagrams for one peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit<'a> {
    /// The rank addressed.
    pub to: Rank,
    /// Datagrams laid end to end: at most 64, and at most 65,507 bytes. If [`Self::pieces`] is not
    /// empty, these are the bytes that the pieces point into.
    pub bytes: &'a [u8],
    /// The datagrams, if parts of them lie elsewhere ([`Endpoint::send_lent`](crate::Endpoint::send_lent)); otherwise none. As many and as long at most.
    pub pieces: &'a [Piece],
    /// Length of each datagram in bytes; the last may be shorter.
    pub segment: usize,
    /// They are data that was sent before.
    pub resent: bool,
    /// They are too long for the path to this rank: let the network fragment them (no "don't fragment").
    pub fragment: bool,
}

impl<'a> Transmit<'a> {
    /// Bytes of all datagrams together.
    pub fn length(&self) -> usize {
        match self.pieces {
            [] => self.bytes.len(),
            [others @ .., last] => others.len() * self.segment + last.head + last.rest,
        }
    }

    /// The datagrams one by one, if they lie end to end: those without [`Self::pieces`].
    pub fn datagrams(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.bytes.chunks(self.segment)
    }
}

/// A packet of a [`Transmit`] of which a part lies with the caller: `head` bytes, then `rest` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where the packet begins in [`Transmit::bytes`].
    pub at: usize,
    /// Bytes of it that lie there.
    pub head: usize,
    /// Where the others lie: a place that the caller of [`Endpoint::send_lent`](crate::Endpoint::send_lent) named, or one behind it.
    pub place: u64,
    /// How many those are; may be 0.
    pub rest: usize,
}

/// A transmission that is complete, and where its bytes lie.
pub(super) struct Transmission {
    to: Rank,
    place: Place,
    /// Bytes of all datagrams; of those in pieces, the bytes that the pieces point into.
    length: usize,
    segment: usize,
    resent: bool,
    fragment: bool,
}

enum Place {
    /// In the endpoint's buffer for acks, nacks and probes.
    Control,
    /// In the codec's buffer.
    Staged,
    /// In the context, from this byte on.
    Context(usize),
    /// The same in pieces.
    Pieces(usize),
}

impl View<'_> {
    /// Completes a run of data packets.
    pub(super) fn transmit(
        &mut self,
        now: Micros,
        run: PacketRun,
        number: u32,
        schedule: &mut Schedule,
    ) -> Transmission {
        let Self { peer, blocks, shared, table, nonce, layout, .. } = self;
        let mut ring = peer.sender.ring_in(layout.block(blocks, peer.sender.ring));
        let to = peer.rank;
        let ack = peer.receiver.expected();
        let hold = if shared.holds(now) { HOLD } else { 0 };
        let piggyback = Piggyback { ack, flags: peer.receiver.piggyback() | hold };
        peer.sender.arm(now, shared.config);
        schedule.note_deadline(peer, number);
        let tally = table.of(&mut peer.tally, to);
        let (resent, fragment) = (run.resent, run.fragment);
        let done = peer.sender.transmit(now, run, (to, piggyback), &mut ring, shared, tally);
        **nonce = shared.packets.counter();
        let CompletedRun { place, mut length, segment } = done;
        let ring_at = layout.packets_at(peer.sender.ring);
        let place = match place {
            RunPlace::Staged => Place::Staged,
            RunPlace::Ring(at) => Place::Context(ring_at + at),
            RunPlace::Pieces => {
                length = ring.bytes.len();
                Place::Pieces(ring_at)
            }
        };
        Transmission { to, place, length, segment, resent, fragment }
    }
}

impl<M: ContextMemory> Endpoint<M> {
    /// Completes an ack, nack or probe.
    pub(super) fn transmit_control(
        &mut self,
        now: Micros,
        number: u32,
        kind: PacketKind,
    ) -> Transmission {
        let Self { memory, local, schedule, control, .. } = self;
        let view = local.view(memory.bytes_mut(), number);
        let View { peer, blocks, kept, layout, shared, mut table, nonce, .. } = view;
        let to = peer.rank;
        let ack = peer.receiver.expected();
        let hold = if shared.holds(now) { HOLD } else { 0 };
        let (flags, sequence, length) = if kind == PacketKind::Probe {
            let (number, flags) = peer.sender.probe(now, &shared);
            (flags | peer.receiver.piggyback_on_probe(), number, 0)
        } else {
            let block = layout.block(blocks, peer.receiver.block);
            let early = EarlyPackets::new(block, kept);
            peer.receiver.respond(&early, &mut control[HEADER_BYTES..])
        };
        schedule.note_deadline(peer, number);
        let length = HEADER_BYTES + length + shared.packets.trailer();
        let header = Header { kind, flags: flags | hold, from: shared.me, to, sequence, ack };
        shared.packets.seal(&header, &mut control[..length]);
        *nonce = shared.packets.counter();
        shared.counters.packets_out(kind, 1, length);
        table.of(&mut peer.tally, to).packets_out(kind, 1, length);
        let (place, segment) = (Place::Control, length);
        Transmission { to, place, length, segment, resent: false, fragment: false }
    }

    /// The datagrams of a transmission.
    pub(super) fn datagrams_of(&self, transmission: Transmission) -> Transmit<'_> {
        let Transmission { to, place, length, segment, resent, fragment } = transmission;
        let (bytes, pieces) = match place {
            Place::Control => (&self.control[..length], &[][..]),
            Place::Staged => (&self.local.packets.staged()[..length], &[][..]),
            Place::Context(at) => (&self.memory.bytes()[at..at + length], &[][..]),
            Place::Pieces(at) => (&self.memory.bytes()[at..at + length], &self.local.pieces[..]),
        };
        Transmit { to, bytes, pieces, segment, resent, fragment }
    }
}
