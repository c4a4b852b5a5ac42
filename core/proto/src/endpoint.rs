//! Endpoint: one rank's end of a channel. Commands and datagrams go in; packets and deliveries come
//! out.

mod path_mtu;
mod settling;
mod transmit;
mod zero_copy;

pub use transmit::{Piece, Transmit};

use crate::peer::{
    DataPacket, LentPart, NEVER, Peer, Piggyback, SendRing, SharedState, TransmitPlan, run_bytes,
};
use crate::peer_counts::{ExceptionCounts, PEERS_LISTED, PeerCountTable};
use crate::seal::{OpenedPacket, PacketCodec, SealKey, TRAILER_BYTES};
use crate::wire::{ACK_NOW, ChannelKey, DropReason, HEADER_BYTES, HOLD, Header, PacketKind};
use crate::{Config, ConfigError, Counters, Micros, PeerCounters, Rank};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

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
#[derive(Debug)]
pub struct Endpoint {
    shared: SharedState,
    /// By rank; made at first contact.
    peers: Vec<Option<Box<Peer>>>,
    /// Peers with something to transmit, in turn.
    ready: VecDeque<Rank>,
    /// Peers that may have a deadline.
    listed: Vec<Rank>,
    /// Not later than the earliest deadline.
    deadline: Micros,
    /// Peers to which something is unacked.
    unflushed: usize,
    /// Peers that have a send ring.
    rings: Vec<Rank>,
    /// Where in `rings` to look first for one to use again.
    next_ring: usize,
    /// Counts by peer.
    peer_counts: PeerCountTable,
    /// Where acks, nacks and probes are written.
    control: [u8; CONTROL_BYTES],
    /// Where encrypted bodies are decrypted; empty on a channel without encryption.
    opened: Box<[u8]>,
}

impl Endpoint {
    /// An endpoint of rank `me` of a job of `ranks` ranks. Cheap: a peer costs eight bytes until the first
    /// packet to or from it.
    ///
    /// # Errors
    /// A setting that is out of its range, or a rank that does not exist.
    pub fn new(config: Config, me: Rank, ranks: u32, key: ChannelKey) -> Result<Self, ConfigError> {
        config.check()?;
        let packets = PacketCodec::clear(key, &config, run_bytes(&config));
        Self::with_packets(config, me, ranks, packets)
    }

    /// The same on a channel whose packets are encrypted with `seal`. It takes 65,507 bytes more, and
    /// about as much again as one datagram.
    ///
    /// For each key there may be one endpoint of a rank, ever.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn encrypted(
        config: Config,
        me: Rank,
        ranks: u32,
        key: ChannelKey,
        seal: &SealKey,
    ) -> Result<Self, ConfigError> {
        config.check()?;
        let packets = PacketCodec::sealed(key, seal, config.max_datagram, run_bytes(&config));
        Self::with_packets(config, me, ranks, packets)
    }

    fn with_packets(
        config: Config,
        me: Rank,
        ranks: u32,
        packets: PacketCodec,
    ) -> Result<Self, ConfigError> {
        config.check()?;
        if me >= ranks {
            return Err(ConfigError::Rank { me, ranks });
        }
        // A selective ack of the whole window has to fit into one packet, trailer included.
        let longest_ack = HEADER_BYTES + config.window.div_ceil(64) * 8 + packets.trailer();
        if longest_ack > config.max_datagram {
            return Err(ConfigError::Window(config.window));
        }
        let opened = if packets.trailer() == 0 { 0 } else { config.max_datagram };
        let mut peers = Vec::new();
        peers.resize_with(ranks as usize, || None);
        Ok(Self {
            shared: SharedState {
                config,
                packets,
                me,
                counters: Counters::default(),
                kept: 0,
                stopped: 0,
                closed: false,
                narrowed: false,
                pieces: Vec::new(),
            },
            peers,
            ready: VecDeque::new(),
            listed: Vec::new(),
            deadline: NEVER,
            unflushed: 0,
            rings: Vec::new(),
            next_ring: 0,
            peer_counts: PeerCountTable::default(),
            control: [0; CONTROL_BYTES],
            opened: vec![0; opened].into(),
        })
    }

    /// The own rank.
    pub fn me(&self) -> Rank {
        self.shared.me
    }

    /// Ranks of the job.
    pub fn ranks(&self) -> u32 {
        // Made from a `u32`.
        u32::try_from(self.peers.len()).unwrap_or(u32::MAX)
    }

    /// The settings.
    pub fn config(&self) -> &Config {
        &self.shared.config
    }

    /// Most bytes of a frame.
    pub fn max_frame(&self) -> usize {
        self.shared.config.max_datagram - HEADER_BYTES - self.shared.packets.trailer()
    }

    /// Counters since the endpoint was made.
    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// Packets that lie in send rings, not acked, and their bytes, headers included.
    pub fn unacked(&self) -> (u64, u64) {
        let of = self.rings.iter().filter_map(|&rank| self.peer(rank));
        of.map(|peer| peer.sender.unacked())
            .fold((0, 0), |sum, (packets, bytes)| (sum.0 + packets, sum.1 + bytes))
    }

    /// Smoothed round trip in microseconds, the mean over the peers of which it is known; 0 before the
    /// first sample. Of at most [`crate::PEERS_LISTED`] peers, those with the first traffic.
    pub fn round_trip_us(&self) -> u64 {
        let listed = self.peer_counts.places.iter().filter_map(|tally| tally.counters.rank);
        let known = listed.filter_map(|rank| self.peer(rank)?.sender.round_trip());
        let (sum, count) = known.fold((0, 0), |(sum, count), one| (sum + one, count + 1));
        sum / u64::max(count, 1)
    }

    /// Hands out what was counted by peer and has changed since the last call, each with its place in a
    /// table of [`crate::PEERS_LISTED`] + 1 places. A peer keeps its place.
    pub fn changed_peers(&mut self, mut visit: impl FnMut(usize, &PeerCounters)) {
        if !core::mem::take(&mut self.peer_counts.changed) {
            return;
        }
        for place in 0..self.peer_counts.places.len() {
            if !core::mem::take(&mut self.peer_counts.places[place].changed) {
                continue;
            }
            let mut counters = self.peer_counts.places[place].counters;
            let unacked = match counters.rank.map(|rank| self.peer(rank)) {
                Some(Some(peer)) => {
                    counters.round_trip_us = peer.sender.round_trip().unwrap_or(0);
                    counters.limit = peer.sender.max_datagram_to_peer(&self.shared.config) as u64;
                    peer.sender.unacked()
                }
                Some(None) => (0, 0),
                None => self.unacked_beyond_list(),
            };
            (counters.unacked_packets, counters.unacked_bytes) = unacked;
            visit(place, &counters);
        }
    }

    /// As [`Self::unacked`], of the peers that share the last place.
    fn unacked_beyond_list(&self) -> (u64, u64) {
        let of = self.rings.iter().filter_map(|&rank| self.peer(rank));
        of.filter(|peer| usize::from(peer.tally) == PEERS_LISTED)
            .map(|peer| peer.sender.unacked())
            .fold((0, 0), |sum, (packets, bytes)| (sum.0 + packets, sum.1 + bytes))
    }

    /// Everything sent to `to` has been acked, that is, taken by its sink.
    pub fn flushed(&self, to: Rank) -> bool {
        self.peer(to).is_none_or(|peer| peer.sender.flushed())
    }

    /// Everything sent to anybody has been acked.
    pub fn all_flushed(&self) -> bool {
        self.unflushed == 0
    }

    /// How many frames [`Self::send`] accepts for `to` now; 0 for a rank that does not exist, and while the channel
    /// is closed.
    pub fn room(&self, to: Rank) -> usize {
        if to >= self.ranks() || to == self.shared.me || self.shared.closed {
            return 0;
        }
        let window = self.shared.config.window;
        self.peer(to).map_or(window, |peer| peer.sender.room(&self.shared.config))
    }

    /// Packets to `to` that are on the wire as far as is known, and packets queued that were never sent.
    pub fn under_way(&self, to: Rank) -> (u32, u32) {
        self.peer(to).map_or((0, 0), |peer| peer.sender.under_way())
    }

    /// Bytes that rings and early packets take now.
    pub fn memory(&self) -> usize {
        let rings: usize = self.peers.iter().flatten().map(|peer| peer.sender.memory()).sum();
        rings + self.shared.kept * self.max_frame()
    }

    /// Early packets kept now; at most [`Config::reorder_packets`].
    pub fn kept(&self) -> usize {
        self.shared.kept
    }

    fn peer(&self, rank: Rank) -> Option<&Peer> {
        self.peers.get(rank as usize)?.as_deref()
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
        if to >= self.ranks() {
            return Err(SendError::NoSuchRank { to, ranks: self.ranks() });
        }
        if to == self.shared.me {
            return Err(SendError::ToSelf);
        }
        if self.shared.closed {
            return Err(SendError::Closed);
        }
        self.shared.notice_stop(now, self.deadline);
        let most = self.max_frame();
        let config = &self.shared.config;
        let peer = peer_or_new(&mut self.peers[to as usize], config);
        if peer.sender.room(config) == 0 {
            return Err(SendError::Full);
        }
        if !peer.sender.has_ring() {
            self.make_ring(to);
        }
        let config = &self.shared.config;
        let peer = peer_or_new(&mut self.peers[to as usize], config);
        self.unflushed += usize::from(peer.sender.flushed());
        let length = peer.sender.queue(config, most, write);
        self.shared.counters.sent += 1;
        self.shared.counters.sent_bytes += length as u64;
        enqueue(peer, to, &mut self.ready);
        Ok(())
    }

    /// A ring for a peer that has none: the first time, or when its ring was used for another.
    #[cold]
    fn make_ring(&mut self, to: Rank) {
        let ring = self.spare_ring(to);
        peer_or_new(&mut self.peers[to as usize], &self.shared.config).sender.give_ring(ring);
    }

    /// A ring for `to`: a new one, or that of a peer to which nothing is unacked once there are enough.
    fn spare_ring(&mut self, to: Rank) -> Box<SendRing> {
        let count = self.rings.len();
        if count >= self.shared.config.rings {
            for at in (self.next_ring..count).chain(0..self.next_ring) {
                let owner = self.peers[self.rings[at] as usize].as_deref_mut();
                if let Some(ring) = owner.and_then(|peer| peer.sender.take_ring()) {
                    self.rings[at] = to;
                    self.next_ring = (at + 1) % count;
                    return ring;
                }
            }
        }
        self.rings.push(to);
        SendRing::new(&self.shared.config)
    }

    /// Makes every delayed ack leave at the next [`Self::poll_transmit`]. For a rank that is about to
    /// end, or to compute for long without driving the channel.
    pub fn send_delayed_acks(&mut self) {
        for &rank in &self.listed {
            if let Some(peer) = self.peers[rank as usize].as_deref_mut() {
                peer.receiver.send_delayed_ack();
                enqueue(peer, rank, &mut self.ready);
            }
        }
    }

    /// Asks `to` for an ack now instead of its delayed ack. It costs one small packet, and at most one
    /// per round trip, however often this is called. For callers that wait for [`Self::flushed`].
    pub fn request_ack(&mut self, to: Rank) {
        if let Some(peer) = self.peers.get_mut(to as usize).and_then(Option::as_deref_mut) {
            peer.sender.request_ack();
            enqueue(peer, to, &mut self.ready);
        }
    }

    // ---- handlers ---------------------------------------------------------------------------

    /// Takes a datagram from the wire. An invalid one is counted by its reason and changes nothing
    /// else.
    pub fn handle_datagram<S: Sink>(&mut self, now: Micros, datagram: &[u8], sink: &mut S) {
        if let Err(reason) = self.take(now, datagram, sink) {
            self.shared.counters.dropped(reason);
        }
    }

    fn take<S: Sink>(
        &mut self,
        now: Micros,
        datagram: &[u8],
        sink: &mut S,
    ) -> Result<(), DropReason> {
        let (me, ranks) = (self.shared.me, self.ranks());
        let packets = &self.shared.packets;
        let OpenedPacket { header, counter, body } =
            packets.open(me, ranks, datagram, &mut self.opened)?;
        self.shared.notice_stop(now, self.deadline);
        let shared = &mut self.shared;
        let from = header.from;
        let peer = peer_or_new(&mut self.peers[from as usize], &shared.config);
        if !peer.receiver.is_fresh(counter) {
            return Err(DropReason::Stale);
        }
        let map =
            if matches!(header.kind, PacketKind::Ack | PacketKind::Nack) { body } else { &[] };
        if !peer.sender.accepts(header.ack, map, &shared.config)
            || (header.kind == PacketKind::Data
                && !peer.receiver.accepts(header.sequence, &shared.config))
        {
            return Err(DropReason::Window);
        }
        peer.receiver.took(counter);
        shared.counters.packet_in(header.kind, datagram.len());
        let before = ExceptionCounts::of(&shared.counters);
        let was_flushed = peer.sender.flushed();
        peer.sender.on_ack(now, &header, map, shared);
        self.unflushed -= usize::from(!was_flushed && peer.sender.flushed());
        match header.kind {
            PacketKind::Data => {
                let Header { sequence, flags, .. } = header;
                let data = DataPacket { from, sequence, flags, frame: body };
                peer.receiver.on_data(now, data, shared, sink);
            }
            PacketKind::Probe => {
                let at_once = header.flags & ACK_NOW != 0;
                peer.receiver.on_probe(from, header.sequence, at_once, shared, sink);
            }
            PacketKind::Ack | PacketKind::Nack => {}
        }
        let tally = self.peer_counts.of(&mut peer.tally, from);
        tally.packet_in(header.kind, datagram.len());
        tally.since(before, &shared.counters);
        enqueue(peer, from, &mut self.ready);
        note_deadline(peer, from, &mut self.listed, &mut self.deadline);
        Ok(())
    }

    /// Acts on the deadlines that have passed. To be called when [`Self::next_timeout`] is reached, after
    /// the datagrams that wait have been handled; any other time does no harm.
    pub fn handle_timeout(&mut self, now: Micros) {
        if now < self.deadline {
            return;
        }
        self.shared.notice_stop(now, self.deadline);
        self.deadline = NEVER;
        let mut at = 0;
        while let Some(&rank) = self.listed.get(at) {
            let Some(peer) = self.peers[rank as usize].as_deref_mut() else { break };
            if peer.deadline() <= now {
                peer.handle_timeout(now, &mut self.shared);
                enqueue(peer, rank, &mut self.ready);
            }
            let deadline = peer.deadline();
            if deadline == NEVER {
                peer.listed = false;
                self.listed.swap_remove(at);
            } else {
                self.deadline = self.deadline.min(deadline);
                at += 1;
            }
        }
    }

    // ---- polls ------------------------------------------------------------------------------

    /// When [`Self::handle_timeout`] is to be called; `None`: not before something else happens. May be
    /// earlier than necessary if there is traffic with more than a few peers.
    pub fn next_timeout(&mut self) -> Option<Micros> {
        // An ack that rode on data, for example, is no longer due.
        if self.listed.len() <= FEW_LISTED {
            let peers = self.listed.iter().filter_map(|&rank| self.peer(rank));
            self.deadline = peers.map(Peer::deadline).min().unwrap_or(NEVER);
        }
        (self.deadline != NEVER).then_some(self.deadline)
    }

    /// The next datagrams to put on the wire, or `None` when there is nothing to send now. If the wire
    /// drops them, the protocol treats them as lost.
    pub fn poll_transmit(&mut self, now: Micros) -> Option<Transmit<'_>> {
        let (to, plan) = self.next_plan(now)?;
        let shared = &mut self.shared;
        let peer = self.peers[to as usize].as_deref_mut()?;
        let ack = peer.receiver.expected();
        let hold = if shared.holds(now) { HOLD } else { 0 };
        let run = match plan {
            TransmitPlan::Data(run) => run,
            TransmitPlan::Control(kind) => {
                let (flags, sequence, length) = if kind == PacketKind::Probe {
                    let (number, flags) = peer.sender.probe(now, shared);
                    (flags | peer.receiver.piggyback_on_probe(), number, 0)
                } else {
                    peer.receiver.respond(&mut self.control[HEADER_BYTES..])
                };
                note_deadline(peer, to, &mut self.listed, &mut self.deadline);
                let length = HEADER_BYTES + length + shared.packets.trailer();
                let bytes = &mut self.control[..length];
                let flags = flags | hold;
                let header = Header { kind, flags, from: shared.me, to, sequence, ack };
                shared.packets.seal(&header, bytes);
                shared.counters.packet_out(kind, bytes.len());
                self.peer_counts.of(&mut peer.tally, to).packet_out(kind, 1, bytes.len());
                let segment = bytes.len();
                let (pieces, resent, fragment) = (&[][..], false, false);
                return Some(Transmit { to, bytes, pieces, segment, resent, fragment });
            }
            TransmitPlan::Nothing => return None,
        };
        let flags = peer.receiver.piggyback() | hold;
        peer.sender.arm(now, &shared.config);
        note_deadline(peer, to, &mut self.listed, &mut self.deadline);
        let tally = self.peer_counts.of(&mut peer.tally, to);
        let piggyback = Piggyback { ack, flags };
        let (resent, fragment) = (run.resent, run.fragment);
        let (bytes, pieces, segment) = peer.sender.transmit(now, run, to, piggyback, shared, tally);
        Some(Transmit { to, bytes, pieces, segment, resent, fragment })
    }

    /// The next peer in turn with something to transmit, and what.
    fn next_plan(&mut self, now: Micros) -> Option<(Rank, TransmitPlan)> {
        loop {
            let to = self.ready.pop_front()?;
            let Some(peer) = self.peers[to as usize].as_deref_mut() else { continue };
            match peer.plan(now, &self.shared) {
                TransmitPlan::Nothing => {
                    peer.queued = false;
                    // A probe may have been put off.
                    note_deadline(peer, to, &mut self.listed, &mut self.deadline);
                }
                plan => {
                    self.ready.push_back(to);
                    return Some((to, plan));
                }
            }
        }
    }
}

/// The peer's state, made at first contact.
fn peer_or_new<'p>(peer: &'p mut Option<Box<Peer>>, config: &Config) -> &'p mut Peer {
    peer.get_or_insert_with(|| Box::new(Peer::new(config)))
}

/// Puts a peer into the queue of those that may have something to transmit.
fn enqueue(peer: &mut Peer, rank: Rank, ready: &mut VecDeque<Rank>) {
    if !peer.queued {
        peer.queued = true;
        ready.push_back(rank);
    }
}

/// Notes a peer's deadline.
fn note_deadline(peer: &mut Peer, rank: Rank, listed: &mut Vec<Rank>, deadline: &mut Micros) {
    let own = peer.deadline();
    if own == NEVER {
        return;
    }
    if !peer.listed {
        peer.listed = true;
        listed.push(rank);
    }
    *deadline = (*deadline).min(own);
}
