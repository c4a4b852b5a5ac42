//! Endpoint: one rank's end of a channel. Commands and datagrams go in; packets and deliveries come
//! out.

mod create;
mod landed;
mod path_mtu;
mod queries;
mod runs;
mod settling;
mod state;
mod transmit;
mod zero_copy;

pub use create::ChannelEnd;
pub use landed::LandedSink;
use transmit::Transmission;
pub use transmit::{Piece, Transmit};

use crate::context::{ContextMemory, Flag, HeapMemory, mark, record};
use crate::peer::{DataPacket, EarlyPackets, LentPart, NEVER, PeerRecord, TransmitPlan};
use crate::peer_counts::ExceptionCounts;
use crate::seal::{OpenedPacket, TRAILER_BYTES};
use crate::wire::{ACK_NOW, DropReason, HEADER_BYTES, Header, PacketKind};
use crate::{Micros, Rank};
use alloc::boxed::Box;
use alloc::vec::Vec;
use state::{Local, Schedule, View};

/// Longest ack: header, a bit for each of 1,024 packets, and an encrypted packet's trailer.
const CONTROL_BYTES: usize = HEADER_BYTES + 128 + TRAILER_BYTES;

/// So many peers' deadlines are quickly looked through.
const FEW_LISTED: usize = 4;

/// Outcome of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// It is the sink's now.
    Taken,
    /// There is no room for it: it will be offered again.
    Full,
}

/// Takes frames in order, each exactly once.
pub trait Sink {
    /// A frame from `from`. After [`Delivery::Full`] the same frame is offered again later, before
    /// any other from that rank.
    fn deliver(&mut self, from: Rank, frame: &[u8]) -> Delivery;
}

/// Why a frame was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The ring to that peer is full: drive the channel and try again.
    #[error("the send ring to this rank is full; receive until acks free it, then send again")]
    Full,
    /// There is no such rank.
    #[error("rank {to} does not exist in a job of {ranks} ranks")]
    NoSuchRank {
        /// The rank asked for.
        to: Rank,
        /// Ranks of the job.
        ranks: u32,
    },
    /// The rank addressed is the own one.
    #[error("a rank does not send packets to itself; copy the data instead")]
    ToSelf,
    /// The frame is longer than [`Endpoint::max_frame`].
    #[error(
        "a frame of {length} bytes does not fit a packet; split it into frames of at most {most}"
    )]
    TooLong {
        /// Bytes of the frame.
        length: usize,
        /// Most bytes of a frame.
        most: usize,
    },
    /// The channel is closed by [`Endpoint::quiesce`].
    #[error("the channel is being settled; send again when it has been opened")]
    Closed,
}

/// One rank's end of a channel.
///
/// After every command and handler, call [`Self::poll_transmit`] until it gives `None`, and ask
/// [`Self::next_timeout`] anew. Time must not run backwards.
///
/// All of its state that matters lies in a [`ContextMemory`]. The rest is derived from that.
#[derive(Debug)]
pub struct Endpoint<M = HeapMemory> {
    memory: M,
    local: Local,
    /// By rank: number of its record plus one; 0 before first contact.
    numbers: Box<[u32]>,
    schedule: Schedule,
    /// Peers to which something is unacked.
    unflushed: usize,
    /// By ring: the peer that has it.
    rings: Vec<u32>,
    /// Where in `rings` to look first for one to use again.
    next_ring: usize,
    /// Where acks, nacks and probes are written.
    control: [u8; CONTROL_BYTES],
    /// Where encrypted bodies are decrypted; empty on a channel without encryption.
    opened: Box<[u8]>,
}

impl<M: ContextMemory> Endpoint<M> {
    /// Changes the context: a copy that is taken meanwhile says so.
    #[inline]
    fn change<R>(&mut self, change: impl FnOnce(&mut Self) -> R) -> R {
        self.local.changes = self.local.changes.wrapping_add(1);
        mark(self.memory.bytes_mut(), self.local.changes);
        let result = change(self);
        self.local.changes = self.local.changes.wrapping_add(1);
        mark(self.memory.bytes_mut(), self.local.changes);
        result
    }

    /// Everything about one peer.
    #[inline(always)]
    fn view(&mut self, peer: u32) -> (View<'_>, &mut Schedule) {
        let Self { memory, local, schedule, .. } = self;
        (local.view(memory.bytes_mut(), peer), schedule)
    }

    fn records(&self) -> &[PeerRecord] {
        self.local.layout.records(self.memory.bytes())
    }

    #[inline(always)]
    fn record(&self, number: u32) -> &PeerRecord {
        self.local.layout.record(self.memory.bytes(), number)
    }

    #[inline]
    fn peer(&self, rank: Rank) -> Option<&PeerRecord> {
        let number = self.numbers.get(rank as usize)?.checked_sub(1)?;
        Some(self.record(number))
    }

    /// The number of the record of a rank that has been in contact.
    fn number(&self, rank: Rank) -> Option<u32> {
        self.numbers.get(rank as usize)?.checked_sub(1)
    }

    /// The same of any other rank of the job; made at first contact.
    #[inline]
    fn number_or_new(&mut self, rank: Rank) -> u32 {
        match self.numbers[rank as usize].checked_sub(1) {
            Some(number) => number,
            None => self.new_peer(rank),
        }
    }

    #[cold]
    fn new_peer(&mut self, rank: Rank) -> u32 {
        let parts = self.local.layout.parts(self.memory.bytes_mut());
        let number = parts.totals.peers;
        *record(parts.peers, number) = PeerRecord::new(rank, &self.local.config);
        parts.totals.peers += 1;
        self.numbers[rank as usize] = number + 1;
        number
    }

    // ---- commands ---------------------------------------------------------------------------

    /// Queues the frame made of `parts`, one after the other. When it returns `Ok` the data is in the
    /// send ring and `parts` may change.
    ///
    /// # Errors
    /// [`SendError`]; the frame is then not queued.
    pub fn send(&mut self, now: Micros, to: Rank, parts: &[&[u8]]) -> Result<(), SendError> {
        let length = parts.iter().map(|part| part.len()).sum();
        if length > self.max_frame() {
            return Err(SendError::TooLong { length, most: self.max_frame() });
        }
        self.send_with(now, to, |room| {
            let mut at = 0;
            for part in parts {
                room[at..at + part.len()].copy_from_slice(part);
                at += part.len();
            }
            at
        })
    }

    /// Queues the frame that `write` makes. `write` gets [`Self::max_frame`] bytes of the send ring,
    /// writes the frame at their start and returns its length, which is cut to that room. Called at
    /// most once.
    ///
    /// # Errors
    /// [`SendError`], but for `TooLong`; `write` is then not called.
    #[inline]
    pub fn send_with(
        &mut self,
        now: Micros,
        to: Rank,
        write: impl FnOnce(&mut [u8]) -> usize,
    ) -> Result<(), SendError> {
        self.queue(now, to, |room| (write(room), LentPart::NONE))
    }

    /// The same of a frame of which a part may lie elsewhere.
    #[inline]
    fn queue(
        &mut self,
        now: Micros,
        to: Rank,
        write: impl FnOnce(&mut [u8]) -> (usize, LentPart),
    ) -> Result<(), SendError> {
        self.room_for_frame(now, to)?;
        self.change(|endpoint| endpoint.queue_in_ring(to, write));
        Ok(())
    }

    /// How many frames for this rank the ring takes now: at least one.
    #[inline]
    fn room_for_frame(&mut self, now: Micros, to: Rank) -> Result<usize, SendError> {
        if to >= self.ranks() {
            return Err(SendError::NoSuchRank { to, ranks: self.ranks() });
        }
        if to == self.local.me {
            return Err(SendError::ToSelf);
        }
        if self.local.closed {
            return Err(SendError::Closed);
        }
        self.local.notice_stop(now, self.schedule.deadline);
        let first = self.local.config.first_slots();
        match self.peer(to).map_or(first, |peer| peer.sender.room()) {
            0 => Err(SendError::Full),
            room => Ok(room),
        }
    }

    /// The number of the record of a rank, which gets a ring if it has none.
    #[inline]
    fn ringed(&mut self, to: Rank) -> u32 {
        let number = self.number_or_new(to);
        if !self.record(number).sender.has_ring() {
            self.make_ring(number);
        }
        number
    }

    #[inline]
    fn queue_in_ring(&mut self, to: Rank, write: impl FnOnce(&mut [u8]) -> (usize, LentPart)) {
        let (most, number) = (self.max_frame(), self.ringed(to));
        let (View { peer, blocks, layout, shared, .. }, schedule) = self.view(number);
        let mut ring = peer.sender.ring_in(layout.block(blocks, peer.sender.ring));
        let was_flushed = peer.sender.flushed();
        let length = peer.sender.queue(&mut ring, shared.config, most, write);
        shared.counters.sent += 1;
        shared.counters.sent_bytes += length as u64;
        schedule.enqueue(peer, number);
        self.unflushed += usize::from(was_flushed);
    }

    /// A ring for a peer that has none: the first time, or when its ring was used for another. It is a new one, or,
    /// once there are enough, that of a peer to which nothing is unacked.
    #[cold]
    fn make_ring(&mut self, to: u32) {
        let count = self.rings.len();
        let layout = self.local.layout;
        if count >= self.local.config.rings {
            let peers = layout.parts(self.memory.bytes_mut()).peers;
            for at in (self.next_ring..count).chain(0..self.next_ring) {
                if let Some(ring) = record(peers, self.rings[at]).sender.take_ring() {
                    record(peers, to).sender.ring = ring;
                    self.rings[at] = to;
                    self.next_ring = (at + 1) % count;
                    return;
                }
            }
        }
        self.rings.push(to);
        let block = self.make_block();
        record(layout.parts(self.memory.bytes_mut()).peers, to).sender.ring = block;
    }

    /// A block for the early packets of a peer that has none.
    #[cold]
    fn make_early(&mut self, peer: u32) {
        let block = self.make_block();
        let parts = self.local.layout.parts(self.memory.bytes_mut());
        EarlyPackets::clear(self.local.layout.block(parts.blocks, block).slots);
        record(parts.peers, peer).receiver.block = block;
    }

    /// A block that no peer has; its number plus one.
    fn make_block(&mut self) -> u32 {
        if let Some(block) = self.local.free.pop() {
            return block;
        }
        let layout = self.local.layout;
        let totals = layout.parts(self.memory.bytes_mut()).totals;
        totals.blocks += 1;
        let blocks = totals.blocks;
        self.memory.grow(layout.with_blocks(blocks as usize));
        blocks
    }

    /// Makes every delayed ack leave at the next [`Self::poll_transmit`]. For a rank that is about to
    /// end, or to compute for long without driving the channel.
    pub fn send_delayed_acks(&mut self) {
        self.change(|endpoint| {
            for at in 0..endpoint.schedule.listed.len() {
                let number = endpoint.schedule.listed[at];
                let (View { peer, .. }, schedule) = endpoint.view(number);
                peer.receiver.send_delayed_ack();
                schedule.enqueue(peer, number);
            }
        });
    }

    /// Asks `to` for an ack now instead of its delayed ack. It costs one small packet, and at most one
    /// per round trip, however often this is called. For callers that wait for [`Self::flushed`].
    pub fn request_ack(&mut self, to: Rank) {
        let Some(number) = self.number(to) else { return };
        self.change(|endpoint| {
            let (View { peer, .. }, schedule) = endpoint.view(number);
            peer.sender.request_ack();
            schedule.enqueue(peer, number);
        });
    }

    // ---- handlers ---------------------------------------------------------------------------

    /// Takes a datagram from the wire. An invalid one is counted by its reason and changes nothing
    /// else.
    pub fn handle_datagram<S: Sink>(&mut self, now: Micros, datagram: &[u8], sink: &mut S) {
        self.change(|endpoint| endpoint.take_or_count(now, datagram, sink));
    }

    /// Takes a datagram, or counts why not. The number of the record of its sender, if it is a data packet.
    fn take_or_count<S: Sink>(
        &mut self,
        now: Micros,
        datagram: &[u8],
        sink: &mut S,
    ) -> Option<u32> {
        match self.take(now, datagram, sink) {
            Ok(data) => data,
            Err(reason) => {
                let parts = self.local.layout.parts(self.memory.bytes_mut());
                parts.totals.counters.dropped(reason);
                None
            }
        }
    }

    fn take<S: Sink>(
        &mut self,
        now: Micros,
        datagram: &[u8],
        sink: &mut S,
    ) -> Result<Option<u32>, DropReason> {
        let (me, ranks) = (self.local.me, self.ranks());
        let mut opened = core::mem::take(&mut self.opened);
        let result = match self.local.packets.open(me, ranks, datagram, &mut opened) {
            Ok(packet) => self.take_opened(now, datagram.len(), packet, sink),
            Err(reason) => Err(reason),
        };
        self.opened = opened;
        result
    }

    fn take_opened<S: Sink>(
        &mut self,
        now: Micros,
        length: usize,
        packet: OpenedPacket<'_>,
        sink: &mut S,
    ) -> Result<Option<u32>, DropReason> {
        let OpenedPacket { header, counter, body } = packet;
        self.local.notice_stop(now, self.schedule.deadline);
        let (from, number) = (header.from, self.number_or_new(header.from));
        if header.kind == PacketKind::Data {
            let receiver = &self.record(number).receiver;
            if receiver.block == 0 && receiver.is_early(header.sequence) {
                self.make_early(number);
            }
        }
        let (view, schedule) = self.view(number);
        let View { peer, blocks, layout, kept, mut shared, mut table, free, .. } = view;
        if !peer.receiver.is_fresh(counter) {
            return Err(DropReason::Stale);
        }
        let map =
            if matches!(header.kind, PacketKind::Ack | PacketKind::Nack) { body } else { &[] };
        if !peer.sender.accepts(header.ack, map, shared.config)
            || (header.kind == PacketKind::Data
                && !peer.receiver.accepts(header.sequence, shared.config))
        {
            return Err(DropReason::Window);
        }
        peer.receiver.took(counter);
        let (ring, early) = layout.two_blocks(blocks, peer.sender.ring, peer.receiver.block);
        let (mut ring, mut early) = (peer.sender.ring_in(ring), EarlyPackets::new(early, kept));
        shared.counters.packets_in(header.kind, 1, length);
        let before = ExceptionCounts::of(shared.counters);
        let was_flushed = peer.sender.flushed();
        peer.sender.on_ack(now, &header, map, &mut ring, &mut shared);
        let flushed = !was_flushed && peer.sender.flushed();
        match header.kind {
            PacketKind::Data => {
                let Header { sequence, flags, .. } = header;
                let data = DataPacket { from, sequence, flags, frame: body };
                peer.receiver.on_data(now, data, &mut early, &mut shared, sink);
            }
            PacketKind::Probe => {
                let probe = (header.sequence, header.flags & ACK_NOW != 0);
                peer.receiver.on_probe(from, probe, &mut early, &mut shared, sink);
            }
            PacketKind::Ack | PacketKind::Nack => {}
        }
        free.extend(peer.receiver.take_block());
        let tally = table.of(&mut peer.tally, from);
        tally.packets_in(header.kind, 1, length);
        tally.since(before, shared.counters);
        schedule.enqueue(peer, number);
        schedule.note_deadline(peer, number);
        self.unflushed -= usize::from(flushed);
        Ok((header.kind == PacketKind::Data).then_some(number))
    }

    /// Acts on the deadlines that have passed. To be called when [`Self::next_timeout`] is reached, after
    /// the datagrams that wait have been handled; any other time does no harm.
    pub fn handle_timeout(&mut self, now: Micros) {
        if now < self.schedule.deadline {
            return;
        }
        self.local.notice_stop(now, self.schedule.deadline);
        self.change(|endpoint| endpoint.handle_deadlines(now));
    }

    fn handle_deadlines(&mut self, now: Micros) {
        self.schedule.deadline = NEVER;
        let mut at = 0;
        while let Some(&number) = self.schedule.listed.get(at) {
            let (View { peer, blocks, layout, mut shared, .. }, schedule) = self.view(number);
            if peer.deadline() <= now {
                let mut ring = peer.sender.ring_in(layout.block(blocks, peer.sender.ring));
                peer.handle_timeout(now, &mut ring, &mut shared);
                schedule.enqueue(peer, number);
            }
            let deadline = peer.deadline();
            if deadline == NEVER {
                peer.listed = Flag::CLEAR;
                schedule.listed.swap_remove(at);
            } else {
                schedule.deadline = schedule.deadline.min(deadline);
                at += 1;
            }
        }
    }

    // ---- polls ------------------------------------------------------------------------------

    /// When [`Self::handle_timeout`] is to be called; `None`: not before something else happens. May be
    /// earlier than necessary if there is traffic with more than a few peers.
    pub fn next_timeout(&mut self) -> Option<Micros> {
        // An ack that rode on data, for example, is no longer due.
        if self.schedule.listed.len() <= FEW_LISTED {
            let deadlines = self.schedule.listed.iter();
            let deadlines = deadlines.map(|&number| self.record(number).deadline());
            self.schedule.deadline = deadlines.min().unwrap_or(NEVER);
        }
        (self.schedule.deadline != NEVER).then_some(self.schedule.deadline)
    }

    /// The next datagrams to put on the wire, or `None` when there is nothing to send now. If the wire
    /// drops them, the protocol treats them as lost.
    pub fn poll_transmit(&mut self, now: Micros) -> Option<Transmit<'_>> {
        if self.schedule.ready.is_empty() {
            return None;
        }
        let transmission = self.change(|endpoint| endpoint.next_transmission(now))?;
        Some(self.datagrams_of(transmission))
    }

    /// The next peer in turn with something to transmit, and what.
    fn next_transmission(&mut self, now: Micros) -> Option<Transmission> {
        loop {
            let number = self.schedule.ready.pop_front()?;
            let (mut view, schedule) = self.view(number);
            match view.peer.plan(now, view.blocks, view.layout, &view.shared) {
                TransmitPlan::Nothing => {
                    view.peer.queued = Flag::CLEAR;
                    // A probe may have been put off.
                    schedule.note_deadline(view.peer, number);
                }
                TransmitPlan::Control(kind) => {
                    schedule.ready.push_back(number);
                    return Some(self.transmit_control(now, number, kind));
                }
                TransmitPlan::Data(run) => {
                    schedule.ready.push_back(number);
                    return Some(view.transmit(now, run, number, schedule));
                }
            }
        }
    }
}
