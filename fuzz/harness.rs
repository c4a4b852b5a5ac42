//! The bodies of the fuzz targets, and the invariants that they check. `core/proto/tests/fuzzed.rs` runs the same with
//! inputs from a seed, so it needs no fuzzer.
//!
//! With a fuzzer (`cargo install cargo-fuzz`): `cargo +nightly fuzz run packets -- -max_total_time=60`.

#![allow(dead_code)] // Each fuzz target uses one of them.

use kumi_proto::context::ContextReport;
use kumi_proto::frame::{Frame, pad};
use kumi_proto::wire::{Codec, HEADER_BYTES, Header, PacketKind};
use kumi_proto::{
    ChannelEnd, ChannelKey, Config, ContextMemory, Counters, Delivery, Endpoint, HeapMemory, Rank,
    SealKey, Sink,
};

#[path = "input.rs"]
mod input;

use input::Bytes;

const KEY: ChannelKey = ChannelKey(0xF022);
const RANKS: u32 = 4;
const MAX_DATAGRAM: usize = 96;

/// Accepts or refuses frames; the input decides.
#[derive(Default)]
struct Inbox {
    full: bool,
    taken: u64,
}

impl Sink for Inbox {
    fn deliver(&mut self, from: Rank, frame: &[u8]) -> Delivery {
        assert!(from > 0 && from < RANKS && frame.len() <= MAX_DATAGRAM - HEADER_BYTES);
        if self.full {
            return Delivery::Full;
        }
        self.taken += 1;
        Delivery::Taken
    }
}

fn config() -> Config {
    Config {
        max_datagram: MAX_DATAGRAM,
        window: 16,
        reorder_packets: 20,
        rings: 1,
        first_sequence: u32::MAX - 40,
        ..Config::default()
    }
}

fn endpoint() -> Endpoint {
    Endpoint::new(config(), 0, RANKS, KEY).expect("these settings are right")
}

fn encrypted() -> Endpoint {
    let key = SealKey([0xF0; 16]);
    Endpoint::encrypted(config(), 0, RANKS, KEY, &key).expect("these settings are right")
}

/// Every datagram raises exactly one of these.
fn answered_for(counters: &Counters) -> u64 {
    counters.data_in
        + counters.acks_in
        + counters.nacks_in
        + counters.probes_in
        + counters.dropped_in_all()
}

/// Takes all packets that the endpoint sends now; this must come to an end.
fn drain(endpoint: &mut Endpoint, now: u64) -> usize {
    let mut count = 0;
    while let Some(transmit) = endpoint.poll_transmit(now) {
        assert!(transmit.to > 0 && transmit.to < RANKS);
        assert!(transmit.bytes.len() <= 65_507);
        for datagram in transmit.datagrams() {
            assert!((HEADER_BYTES..=MAX_DATAGRAM).contains(&datagram.len()));
            count += 1;
        }
    }
    count
}

/// Invariants that hold at any time.
fn check(endpoint: &Endpoint, datagrams: u64, inbox: &Inbox) {
    let counters = endpoint.counters();
    assert_eq!(answered_for(counters), datagrams, "every datagram is counted once");
    assert_eq!(counters.delivered, inbox.taken);
    assert!(endpoint.kept() <= endpoint.config().reorder_packets);
    let ring = 16 * (MAX_DATAGRAM + 32);
    assert!(endpoint.memory() <= 3 * ring + 20 * MAX_DATAGRAM);
    let flushed = (1..RANKS).all(|rank| endpoint.flushed(rank));
    assert_eq!(endpoint.all_flushed(), flushed);
    for rank in 1..RANKS {
        assert_eq!(endpoint.flushed(rank), endpoint.room(rank) == 16);
    }
}

/// Arbitrary bytes as a datagram to a fresh endpoint, with and without encryption.
pub fn datagram(input: &[u8]) {
    for mut endpoint in [endpoint(), encrypted()] {
        let mut inbox = Inbox::default();
        endpoint.handle_datagram(1, input, &mut inbox);
        check(&endpoint, 1, &inbox);
        drain(&mut endpoint, 1);
    }
}

impl Bytes<'_> {
    fn u32(&mut self) -> u32 {
        u32::from_le_bytes([self.next(), self.next(), self.next(), self.next()])
    }

    /// Mostly a number close to `base`, sometimes any.
    fn near(&mut self, base: u32) -> u32 {
        match self.next() {
            255 => self.u32(),
            small => base.wrapping_add(u32::from(small)).wrapping_sub(8),
        }
    }
}

/// Packets with right checksums and arbitrary contents, damaged packets, commands and jumps of time; the input decides the
/// mixture.
pub fn packets(input: &[u8]) {
    let mut input = Bytes(input);
    let codec = Codec::new(KEY, MAX_DATAGRAM);
    let mut endpoint = endpoint();
    let mut inbox = Inbox::default();
    let (mut now, mut datagrams) = (0, 0);
    let first = endpoint.config().first_sequence;
    while !input.0.is_empty() {
        match input.next() {
            action @ 0..=199 => {
                let packet = forge(&mut input, &codec, first, action);
                endpoint.handle_datagram(now, &packet, &mut inbox);
                datagrams += 1;
            }
            action @ 200..=229 => {
                let to = 1 + Rank::from(action) % 3;
                let room = endpoint.room(to);
                let length = usize::from(input.next()) % (MAX_DATAGRAM - HEADER_BYTES + 1);
                let sent = endpoint.send(now, to, &[&[7; MAX_DATAGRAM][..length]]);
                assert_eq!(sent.is_ok(), room > 0);
            }
            230..=234 => inbox.full = !inbox.full,
            235..=239 => endpoint.request_ack(1 + Rank::from(input.next()) % 3),
            240..=249 => {
                now = endpoint.next_timeout().unwrap_or(now).max(now);
                endpoint.handle_timeout(now);
            }
            _ => {
                now += u64::from(input.u32());
                endpoint.handle_timeout(now);
            }
        }
        // One datagram can release at most the windows of all peers, and an answer for each.
        assert!(drain(&mut endpoint, now) <= 3 * 16 + 6);
        assert!(endpoint.next_timeout().is_none_or(|time| time > now));
        check(&endpoint, datagrams, &inbox);
    }
}

/// A packet that passes most checks; with some actions a few bits are flipped after sealing.
fn forge(input: &mut Bytes<'_>, codec: &Codec, first: u32, action: u8) -> Vec<u8> {
    let kind = [PacketKind::Data, PacketKind::Ack, PacketKind::Nack, PacketKind::Probe]
        [usize::from(action) % 4];
    let flags = u16::from(input.next() % 8);
    let from = 1 + Rank::from(input.next()) % 3;
    let base = if kind == PacketKind::Data { first } else { 8 };
    let header =
        Header { kind, flags, from, to: 0, sequence: input.near(base), ack: input.near(first) };
    let length = match kind {
        PacketKind::Data => usize::from(input.next()) % (MAX_DATAGRAM - HEADER_BYTES + 2),
        PacketKind::Ack | PacketKind::Nack => usize::from(input.next() % 3) * 8,
        PacketKind::Probe => 0,
    };
    let mut packet = vec![0; HEADER_BYTES];
    packet.extend((0..length).map(|_| input.next()));
    codec.seal(&header, &mut packet);
    if action >= 190 {
        for _ in 0..2 {
            let at = usize::from(input.next()) % packet.len();
            packet[at] ^= input.next();
        }
    }
    packet
}

/// Arbitrary bytes as a frame: a valid frame has exactly one encoding.
pub fn frame(input: &[u8]) {
    if let Ok(frame) = Frame::decode(input) {
        let header = frame.header();
        let mut again = [&header, frame.list(), frame.data()].concat();
        let length = again.len();
        again.resize(input.len(), 0);
        // Padding may have any contents.
        assert!(length == input.len() || pad(&mut again, length));
        assert_eq!(again[..length], input[..length]);
    }
}

/// The context of an endpoint with packets in every state.
fn sample() -> Vec<u8> {
    let codec = Codec::new(KEY, MAX_DATAGRAM);
    let (mut endpoint, mut inbox) = (endpoint(), Inbox::default());
    let first = endpoint.config().first_sequence;
    let mut packet = |kind, from, sequence: u32, ack: u32, body: &[u8]| {
        let (sequence, ack) = (first.wrapping_add(sequence), first.wrapping_add(ack));
        let header = Header { kind, flags: 0, from, to: 0, sequence, ack };
        let mut packet = [&[0; HEADER_BYTES], body].concat();
        codec.seal(&header, &mut packet);
        endpoint.handle_datagram(30, &packet, &mut inbox);
    };
    // Early ones of two peers, and one in order.
    packet(PacketKind::Data, 1, 2, 0, b"early");
    packet(PacketKind::Data, 1, 5, 0, b"earlier");
    packet(PacketKind::Data, 2, 0, 0, b"in order");
    packet(PacketKind::Data, 2, 9, 0, b"");
    for to in [3, 1, 3, 3, 3, 3, 3] {
        endpoint.send(40, to, &[b"frame"]).expect("room");
    }
    drain(&mut endpoint, 40);
    // The second, fourth and fifth have arrived.
    let mut ack = vec![0; HEADER_BYTES + 8];
    ack[HEADER_BYTES] = 0b01_1010;
    let header =
        Header { kind: PacketKind::Nack, flags: 0, from: 3, to: 0, sequence: 0, ack: first };
    codec.seal(&header, &mut ack);
    endpoint.handle_datagram(90, &ack, &mut inbox);
    endpoint.send(95, 3, &[b"queued"]).expect("room");
    endpoint.memory_of_context().bytes().to_vec()
}

/// A context in which the input has changed bytes: reports are made or refused, and an endpoint that goes on with it
/// keeps its invariants. Whether there is one.
pub fn context(input: &[u8]) -> bool {
    let (edits, packets) = input.split_at(input.len().min(64));
    let mut bytes = sample();
    for edit in edits.chunks_exact(4) {
        // Mostly where the numbers of the endpoint and of its peers are.
        let at = usize::from(edit[0]) << 8 | usize::from(edit[1]);
        let at = match edit[2] % 4 {
            0 => at % 448,
            1 => 8_192 + at % 768,
            2 => 12_288 + at % (bytes.len() - 12_288),
            _ => at % bytes.len(),
        };
        bytes[at] = if edit[2] & 0x80 == 0 { bytes[at] ^ edit[3] } else { edit[3] };
    }
    if let Ok(report) = ContextReport::read(&bytes) {
        assert!(report.peers.len() < 1 << 20);
    }
    let end = ChannelEnd { me: 0, ranks: RANKS, key: KEY, seal: None };
    let fill = |_, _, room: &mut [u8]| {
        room.fill(0);
        true
    };
    let Ok(endpoint) = Endpoint::resume(HeapMemory::copy_of(&bytes), config(), &end, 5, fill)
    else {
        return false;
    };
    drive_resumed(endpoint, packets);
    true
}

fn drive_resumed(mut endpoint: Endpoint, packets: &[u8]) {
    let codec = Codec::new(KEY, MAX_DATAGRAM);
    let (mut input, mut inbox, mut now) = (Bytes(packets), Inbox::default(), 5);
    let (base, delivered) = (answered_for(endpoint.counters()), endpoint.counters().delivered);
    let mut datagrams = 0;
    loop {
        assert!(drain(&mut endpoint, now) <= 3 * 16 + 9);
        assert_eq!(answered_for(endpoint.counters()) - base, datagrams);
        assert_eq!(endpoint.counters().delivered - delivered, inbox.taken);
        assert!(endpoint.kept() <= endpoint.config().reorder_packets);
        let flushed = (1..RANKS).all(|rank| endpoint.flushed(rank));
        assert_eq!(endpoint.all_flushed(), flushed);
        if input.0.is_empty() {
            break;
        }
        match input.next() {
            action @ 0..=199 => {
                let from = 1 + Rank::from(input.next()) % 3;
                let (sent, expected) = endpoint.next_numbers(from);
                let first = if action % 4 == 0 { expected } else { sent };
                let packet = forge(&mut input, &codec, first, action % 190);
                endpoint.handle_datagram(now, &packet, &mut inbox);
                datagrams += 1;
            }
            action @ 200..=239 => {
                let to = 1 + Rank::from(action) % 3;
                let room = endpoint.room(to);
                assert_eq!(endpoint.send(now, to, &[b"more"]).is_ok(), room > 0);
            }
            _ => {
                now = endpoint.next_timeout().unwrap_or(now).max(now);
                endpoint.handle_timeout(now);
            }
        }
    }
}
