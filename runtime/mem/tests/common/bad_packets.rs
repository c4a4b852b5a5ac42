//! Packets for rank 0 of a job of three, each of which fails one check of the channel protocol and passes all before it.

use kumi_proto::wire::{Codec, FULL, HEADER_BYTES, Header, PacketKind, VERSION};
use kumi_proto::{ChannelKey, Config, Counters, Delivery, Endpoint, Rank, Sink};

use super::common::CHANNEL_KEY;

const KEY: ChannelKey = ChannelKey(CHANNEL_KEY);
const RANKS: u32 = 3;
/// Offsets in the header.
const MAGIC_AT: usize = 4;
const VERSION_AT: usize = 6;

/// A probe of rank 1, which has sent nothing else: right in every field.
const PROBE: Header =
    Header { kind: PacketKind::Probe, flags: 0, from: 1, to: 0, sequence: 9, ack: 0 };

fn made(key: ChannelKey, header: Header, body: usize) -> Vec<u8> {
    let mut packet = vec![0; HEADER_BYTES + body];
    Codec::new(key, Config::default().max_datagram).seal(&header, &mut packet);
    packet
}

/// A probe with one byte of its header changed. The checksum is wrong then, but these bytes are looked at before it.
fn changed(at: usize, byte: u8) -> Vec<u8> {
    let mut packet = made(KEY, PROBE, 0);
    packet[at] = byte;
    packet
}

/// Each bad packet, with the counter of the check that it fails.
pub fn each() -> Vec<(&'static str, Vec<u8>)> {
    let right = made(KEY, PROBE, 0);
    let data = Header { kind: PacketKind::Data, ..PROBE };
    let mut damaged = right.clone();
    damaged[20] ^= 1;
    vec![
        ("drop_short", right[..HEADER_BYTES - 1].to_vec()),
        ("drop_magic", changed(MAGIC_AT, 0)),
        ("drop_version", changed(VERSION_AT, VERSION - 1)),
        ("drop_version", changed(VERSION_AT, VERSION + 1)),
        ("drop_length", made(KEY, data, 40)[..HEADER_BYTES + 39].to_vec()),
        ("drop_key", made(ChannelKey(KEY.0 ^ 1), PROBE, 0)),
        ("drop_checksum", damaged),
        ("drop_destination", made(KEY, Header { to: 1, ..PROBE }, 0)),
        ("drop_source", made(KEY, Header { from: 0, ..PROBE }, 0)),
        ("drop_source", made(KEY, Header { from: RANKS, ..PROBE }, 0)),
        ("drop_kind", made(KEY, Header { flags: FULL, ..PROBE }, 0)),
        ("drop_kind", made(KEY, Header { kind: PacketKind::Ack, ..PROBE }, 7)),
        ("drop_kind", made(KEY, PROBE, 8)),
        ("drop_window", made(KEY, Header { sequence: 1 << 30, ..data }, 40)),
        ("drop_window", made(KEY, Header { ack: 1 << 30, ..PROBE }, 0)),
    ]
}

struct Nothing;

impl Sink for Nothing {
    fn deliver(&mut self, _: Rank, _: &[u8]) -> Delivery {
        Delivery::Taken
    }
}

fn counters(packet: &[u8]) -> Counters {
    let mut endpoint = Endpoint::new(Config::default(), 0, RANKS, KEY).expect("settings");
    endpoint.handle_datagram(5, packet, &mut Nothing);
    *endpoint.counters()
}

/// The counters that an endpoint of rank 0 raises for a packet.
pub fn dropped_by(packet: &[u8]) -> Vec<(&'static str, u64)> {
    counters(packet).entries().into_iter().filter(|entry| entry.1 > 0).collect()
}

/// What the bad packets are made of is taken as long as nothing of it is changed.
pub fn accepted_when_right() {
    let counters = counters(&made(KEY, PROBE, 0));
    assert_eq!((counters.probes_in, counters.dropped_in_all()), (1, 0));
    assert_eq!(changed(VERSION_AT, VERSION), made(KEY, PROBE, 0));
}
