//! Packets: sizes, test vectors, every reason to drop one.

use kumi_proto::wire::{
    ACK_NOW, COVERED_BYTES, Codec, DropReason, ECHO, FRESH, FULL, HEADER_BYTES, HOLD, Header,
    MAGIC, PART, PacketKind, RESENT, SHORT_BYTES, TWICE, VERSION, echo_of, first_length,
};
use kumi_proto::{ChannelKey, Checksum, Config, Counters, Delivery, Endpoint, Rank, Sink};

const KEY: ChannelKey = ChannelKey(0x0123_4567_89AB_CDEF);

fn data(sequence: u32) -> Header {
    Header { kind: PacketKind::Data, flags: 0, from: 0, to: 1, sequence, ack: 0 }
}

fn packet_of(codec: &Codec, header: &Header, body: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; HEADER_BYTES];
    packet.extend_from_slice(body);
    codec.seal(header, &mut packet);
    packet
}

fn packet(header: &Header, body: &[u8]) -> Vec<u8> {
    packet_of(&Codec::new(KEY, 1_472), header, body)
}

/// The example at the end of docs/reference/channel-protocol.md.
#[test]
fn vector_of_a_data_packet() {
    let expected = [
        0x78, 0x20, 0x13, 0x2d, 0x4b, 0x55, 0x06, 0x01, 0x9c, 0x82, 0xc3, 0xfb, 0, 0, 0, 0, //
        0x01, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x06, 0, 0, 0, //
        0x02, 0, 0, 0, 0x68, 0x69,
    ];
    assert_eq!(packet(&data(0), &[2, 0, 0, 0, b'h', b'i']), expected);
    let (header, body) = Codec::new(KEY, 1_472).open(1, 2, &expected).unwrap();
    assert_eq!((header, body), (data(0), &expected[32..]));
}

#[test]
fn every_field_has_its_place() {
    let header = Header {
        kind: PacketKind::Nack,
        flags: ECHO | FULL,
        from: 0x0403_0201,
        to: 0x1413_1211,
        sequence: 0x2423_2221,
        ack: 0x3433_3231,
    };
    let bytes = packet(&header, &[0x55; 16]);
    assert_eq!(HEADER_BYTES, 32);
    assert_eq!(bytes.len(), 48);
    assert_eq!(bytes[4..8], [b'K', b'U', VERSION, 3]);
    assert_eq!(MAGIC.to_le_bytes(), *b"KU");
    assert_eq!(bytes[12..16], [1, 2, 3, 4]);
    assert_eq!(bytes[16..20], [0x11, 0x12, 0x13, 0x14]);
    assert_eq!(bytes[20..24], [0x21, 0x22, 0x23, 0x24]);
    assert_eq!(bytes[24..28], [0x31, 0x32, 0x33, 0x34]);
    assert_eq!(bytes[28..32], [16, 0, 6, 0]);
    assert_eq!((ACK_NOW, ECHO, FULL, FRESH, RESENT), (1, 2, 4, 8, 16));
    assert_eq!((TWICE, HOLD, PART), (32, 64, 128));
    assert_eq!(echo_of(0x1234_56AB), 0xAB02);
    let opened = Codec::new(KEY, 1_472).open(0x1413_1211, u32::MAX, &bytes).unwrap();
    assert_eq!(opened, (header, &[0x55; 16][..]));
}

/// One in so many bits is tried.
const BITS: usize = if cfg!(miri) { 211 } else { 1 };

#[test]
fn any_single_bit_that_flips_is_noticed() {
    let codec = Codec::new(KEY, 1_472);
    for length in [0, 8, 300] {
        let good = packet(&data(3), &vec![0xA5; length]);
        codec.open(1, 2, &good).unwrap();
        for bit in (0..good.len() * 8).step_by(BITS) {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            codec.open(1, 2, &bad).unwrap_err();
        }
    }
}

/// Of long packets the first bytes only, header included; the flag that says so is covered too.
#[test]
fn a_checksum_may_cover_the_headers_only() {
    let all = Codec::new(KEY, 1_472);
    let headers = Codec::new(KEY, 1_472).covering(Checksum::Headers);
    assert_eq!((COVERED_BYTES, SHORT_BYTES), (128, 256));
    for length in [0, 8, 224, 225, 1_440] {
        let good = packet_of(&headers, &data(3), &vec![0xA5; length]);
        let part = length > 224;
        assert_eq!(good[30] & PART as u8 != 0, part);
        assert_eq!(good == packet_of(&all, &data(3), &vec![0xA5; length]), !part);
        for codec in [&all, &headers] {
            assert_eq!(codec.open(1, 2, &good), Ok((data(3), &good[32..])), "{length}");
        }
        for bit in (0..good.len() * 8).step_by(BITS) {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let taken = headers.open(1, 2, &bad).is_ok();
            assert_eq!(taken, part && bit / 8 >= COVERED_BYTES, "{length}: bit {bit}");
        }
    }
    // Without the key nothing is accepted, whatever a packet says of itself.
    let other = Codec::new(ChannelKey(KEY.0 ^ 1), 1_472).covering(Checksum::Headers);
    let mut stranger = packet_of(&other, &data(0), &[0; 900]);
    stranger[8..12].copy_from_slice(&packet(&data(0), b"")[8..12]);
    dropped(&stranger, "drop_checksum");
    let mut stripped = packet_of(&headers, &data(0), &[0; 900]);
    stripped[30] ^= PART as u8;
    dropped(&stripped, "drop_checksum");
    // An ack is covered whole.
    let ack = Header { kind: PacketKind::Ack, ..data(0) };
    assert_eq!(packet_of(&headers, &ack, &[0; 256]), packet_of(&all, &ack, &[0; 256]));
}

/// The packets of an endpoint are as its settings say.
#[test]
fn each_rank_decides_what_its_checksums_cover() {
    for (checksum, part) in [(Checksum::Headers, PART), (Checksum::All, 0)] {
        let config = Config { checksum, ..Config::default() };
        let mut endpoint = Endpoint::new(config, 0, 2, KEY).unwrap();
        let mut receiver = Endpoint::new(Config::default(), 1, 2, KEY).unwrap();
        endpoint.send(0, 1, &[&[7; 1_000]]).unwrap();
        let packet = endpoint.poll_transmit(0).unwrap().bytes.to_vec();
        assert_eq!(u16::from(packet[30]) & PART, part);
        receiver.handle_datagram(0, &packet, &mut Nothing);
        assert_eq!(receiver.counters().delivered, 1);
    }
}

struct Nothing;

impl Sink for Nothing {
    fn deliver(&mut self, _: Rank, _: &[u8]) -> Delivery {
        Delivery::Taken
    }
}

/// Rank 1 of 3 takes a datagram; it must be dropped for this reason and leave nothing behind.
fn dropped(datagram: &[u8], counter: &str) {
    let mut endpoint = Endpoint::new(Config::default(), 1, 3, KEY).unwrap();
    endpoint.handle_datagram(5, datagram, &mut Nothing);
    let raised: Vec<_> = endpoint.counters().entries().into_iter().filter(|e| e.1 > 0).collect();
    assert_eq!(raised, [(counter, 1)]);
    assert_eq!(endpoint.counters().dropped_in_all(), 1);
    assert!(endpoint.poll_transmit(5).is_none());
    assert_eq!(endpoint.next_timeout(), None);
}

/// `packet` with one byte changed and a right checksum, as a faulty sender would make it.
fn forged(at: usize, byte: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = packet(&data(0), body);
    bytes[at] = byte;
    let seeded = twox_hash::XxHash3_64::oneshot_with_seed(KEY.0, &bytes[4..]);
    bytes[..4].copy_from_slice(&seeded.to_le_bytes()[..4]);
    bytes
}

#[test]
fn every_reason_to_drop() {
    let good = packet(&data(0), b"frame");
    dropped(&[], "drop_short");
    dropped(&good[..31], "drop_short");
    dropped(&forged(4, b'k', b""), "drop_magic");
    dropped(&forged(6, 3, b""), "drop_version");
    dropped(&forged(6, 4, b""), "drop_version");
    dropped(&forged(6, 0, b""), "drop_version");
    dropped(&good[..36], "drop_length");
    dropped(&[&good[..], b"!"].concat(), "drop_length");
    dropped(&forged(28, 1, b""), "drop_length");
    let other = Codec::new(ChannelKey(KEY.0 ^ 1), 1_472);
    dropped(&packet_of(&other, &data(0), b"frame"), "drop_key");
    let mut damaged = good.clone();
    damaged[34] ^= 1;
    dropped(&damaged, "drop_checksum");
    dropped(&packet(&Header { to: 2, ..data(0) }, b""), "drop_destination");
    dropped(&packet(&Header { to: u32::MAX, ..data(0) }, b""), "drop_destination");
    dropped(&packet(&Header { from: 3, ..data(0) }, b""), "drop_source");
    dropped(&packet(&Header { from: 1, ..data(0) }, b""), "drop_source");
    dropped(&packet(&Header { from: u32::MAX, ..data(0) }, b""), "drop_source");
}

#[test]
fn every_bad_kind_and_number() {
    for kind in [0, 5, 255] {
        dropped(&forged(7, kind, b""), "drop_kind");
    }
    dropped(&forged(31, 0x80, b""), "drop_kind");
    dropped(&packet(&Header { flags: FULL, ..data(0) }, b""), "drop_kind");
    dropped(&packet(&Header { flags: PART, ..data(0) }, &[0; 224]), "drop_kind");
    dropped(&packet(&Header { kind: PacketKind::Probe, flags: PART, ..data(0) }, b""), "drop_kind");
    dropped(
        &packet(&Header { kind: PacketKind::Ack, flags: echo_of(1), ..data(0) }, b""),
        "drop_kind",
    );
    dropped(&packet(&Header { kind: PacketKind::Ack, flags: FULL, ..data(0) }, b""), "drop_kind");
    dropped(&packet(&Header { kind: PacketKind::Ack, ..data(0) }, &[0; 7]), "drop_kind");
    dropped(&packet(&Header { kind: PacketKind::Probe, ..data(0) }, &[0; 8]), "drop_kind");
    dropped(&packet(&Header { kind: PacketKind::Probe, flags: ECHO, ..data(0) }, b""), "drop_kind");
    // The window is 128.
    dropped(&packet(&data(128), b""), "drop_window");
    dropped(&packet(&data(i32::MAX as u32), b""), "drop_window");
    dropped(&packet(&Header { ack: 1, ..data(0) }, b""), "drop_window");
    dropped(&packet(&Header { kind: PacketKind::Ack, ack: 1, ..data(0) }, b""), "drop_window");
    let one = [1, 0, 0, 0, 0, 0, 0, 0];
    dropped(&packet(&Header { kind: PacketKind::Ack, ..data(0) }, &one), "drop_window");
    dropped(
        &packet(&Header { kind: PacketKind::Ack, ack: u32::MAX, ..data(0) }, &[0; 24]),
        "drop_window",
    );
}

#[test]
fn a_datagram_longer_than_configured_is_dropped() {
    let config = Config { max_datagram: 100, ..Config::default() };
    let mut endpoint = Endpoint::new(config, 1, 2, KEY).unwrap();
    endpoint.handle_datagram(0, &packet(&data(0), &[0; 68]), &mut Nothing);
    endpoint.handle_datagram(0, &packet(&data(1), &[0; 69]), &mut Nothing);
    let counters = endpoint.counters();
    assert_eq!((counters.delivered, counters.drop_length), (1, 1));
}

#[test]
fn the_parser_names_its_reasons() {
    let codec = Codec::new(KEY, 1_472);
    assert_eq!(codec.open(1, 2, &[0; 31]), Err(DropReason::Short));
    assert_eq!(codec.open(1, 2, &[0; 32]), Err(DropReason::Magic));
}

#[test]
fn a_run_is_cut_by_its_first_header_whatever_that_says() {
    let (first, second) = (packet(&data(0), &[7; 100]), packet(&data(1), &[8; 50]));
    assert_eq!(first_length(&[&first[..], &second].concat()), HEADER_BYTES + 100);
    assert_eq!(first_length(&first), first.len());
    // It says more than there is, or there is no header.
    assert_eq!(first_length(&first[..50]), 50);
    assert_eq!((first_length(&first[..31]), first_length(&[5]), first_length(&[])), (31, 1, 1));
}

/// Acks have a bit map in words of eight bytes, probes no body, and a number only with the flag that says so.
#[test]
fn a_body_fits_its_kind() {
    let codec = Codec::new(KEY, 1_472);
    for (kind, flags, length, fits) in [
        (PacketKind::Ack, FRESH | TWICE | HOLD | ECHO, 16, true),
        (PacketKind::Nack, ECHO | FULL | FRESH | TWICE | HOLD, 8, true),
        (PacketKind::Nack, 0, 12, false),
        (PacketKind::Probe, ACK_NOW | FRESH | TWICE | HOLD, 0, true),
        (PacketKind::Probe, FULL, 0, false),
        (PacketKind::Data, ACK_NOW | FRESH | RESENT | TWICE | HOLD | echo_of(0xFF), 5, true),
        (PacketKind::Data, 0x0100, 5, false),
        (PacketKind::Data, ECHO, 5, true),
    ] {
        let header = Header { kind, flags, ..data(0) };
        let sealed = packet(&header, &vec![0; length]);
        let expected = if fits { Ok((header, &sealed[32..])) } else { Err(DropReason::Kind) };
        assert_eq!(codec.open(1, 2, &sealed), expected, "{kind:?} {flags:#x} {length}");
    }
}

#[test]
fn counters_have_names() {
    let entries = Counters { sent: 3, drop_window: 4, ..Counters::default() }.entries();
    assert_eq!(entries.len(), Counters::COUNT);
    assert_eq!(entries[0], ("sent", 3));
    assert_eq!(entries[Counters::COUNT - 1], ("drop_window", 4));
}

#[test]
#[cfg_attr(miri, ignore = "it is the system that makes unused memory cheap")]
fn a_large_job_costs_little_until_ranks_talk() {
    let mut endpoint = Endpoint::new(Config::default(), 0, 16_384, KEY).unwrap();
    assert_eq!(endpoint.memory(), 0);
    endpoint.send(0, 16_383, &[b"x"]).unwrap();
    let ring = 128 * (1_472 + 32);
    assert!((128 * 1_472..=ring).contains(&endpoint.memory()));
    // A thousand endpoints of a job of 1,024 ranks: were they not cheap, this would not end.
    let all: Vec<_> =
        (0..1_024).map(|me| Endpoint::new(Config::default(), me, 1_024, KEY).unwrap()).collect();
    assert!(all.iter().all(|endpoint| endpoint.memory() == 0 && endpoint.all_flushed()));
}
