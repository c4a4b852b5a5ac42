//! Encrypted packets: the test vector, refusals, replays, runs.

use kumi_proto::seal::{OpenedPacket, STALE, SealedCodec, TRAILER_BYTES};
use kumi_proto::wire::{Codec, DropReason, HEADER_BYTES, Header, PART, PacketKind, first_length};
use kumi_proto::{ChannelKey, Config, Counters, Delivery, Endpoint, Rank, SealKey, Sink};

const CHANNEL: ChannelKey = ChannelKey(0x0123_4567_89AB_CDEF);
const KEY: SealKey = SealKey([
    0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0a, 0x0b, 0x0c, 0x0d, 0x0e, 0x0f,
]);
const MOST: usize = 1_472;

fn codec(first: u64) -> SealedCodec {
    SealedCodec::new(CHANNEL, &KEY, MOST, first)
}

fn data(sequence: u32) -> Header {
    Header { kind: PacketKind::Data, flags: 0, from: 0, to: 1, sequence, ack: 0 }
}

fn packet(codec: &mut SealedCodec, header: &Header, body: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; HEADER_BYTES];
    packet.extend_from_slice(body);
    packet.extend_from_slice(&[0; TRAILER_BYTES]);
    codec.seal(header, &mut packet);
    packet
}

fn open(datagram: &[u8]) -> Result<(Header, u64, Vec<u8>), DropReason> {
    let mut room = [0; MOST];
    let opened = codec(0).open(1, 2, datagram, &mut room);
    opened.map(|OpenedPacket { header, counter, body }| (header, counter, body.to_vec()))
}

/// The example at the end of docs/reference/channel-protocol.md, encrypted as packet 2³² + 5 of its sender.
#[test]
#[cfg_attr(miri, ignore = "the cipher is assembly")]
fn vector_of_an_encrypted_packet() {
    let made = packet(&mut codec((1 << 32) + 5), &data(0), &[2, 0, 0, 0, b'h', b'i']);
    assert_eq!(made, VECTOR);
    assert_eq!(open(&made), Ok((data(0), (1 << 32) + 5, vec![2, 0, 0, 0, b'h', b'i'])));
}

const VECTOR: [u8; 58] = [
    0x05, 0, 0, 0, 0x4b, 0x55, 0x07, 0x01, 0x9c, 0x82, 0xc3, 0xfb, 0, 0, 0, 0, //
    0x01, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x1a, 0, 0, 0, //
    0xa5, 0xeb, 0x8e, 0x5e, 0x45, 0xed, 0xd1, 0x6b, 0x0b, 0x5f, 0x5d, 0x7e, 0x7a, 0xb4, 0x2a,
    0xbe, //
    0x81, 0xa7, 0xf3, 0xc0, 0xa7, 0x0e, 0x01, 0, 0, 0,
];

#[test]
#[cfg_attr(miri, ignore = "the cipher is assembly")]
fn any_single_bit_that_flips_is_noticed() {
    for length in [0, 8, 300] {
        let good = packet(&mut codec(7), &data(3), &vec![0xA5; length]);
        assert_eq!(open(&good).unwrap().2, vec![0xA5; length]);
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let reason = open(&bad).unwrap_err();
            // Magic, version, length and key tag are looked at first; all else is the seal's.
            let expected = match bit / 8 {
                4..6 => DropReason::Magic,
                6 => DropReason::Version,
                8..12 => DropReason::Key,
                28..30 => DropReason::Length,
                _ => DropReason::Seal,
            };
            assert_eq!(reason, expected, "bit {bit}");
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "the cipher is assembly")]
fn truncated_or_longer_packets_are_refused() {
    let good = packet(&mut codec(0), &data(0), b"some frame");
    for length in 0..good.len() {
        let cut = &good[..length];
        let reason = if length < HEADER_BYTES { DropReason::Short } else { DropReason::Length };
        assert_eq!(open(cut), Err(reason));
        // The same with a length field that fits.
        if length >= HEADER_BYTES {
            let mut cut = cut.to_vec();
            cut[28] = (length - HEADER_BYTES) as u8;
            let too_short = length < HEADER_BYTES + TRAILER_BYTES;
            let reason = if too_short { DropReason::Length } else { DropReason::Seal };
            assert_eq!(open(&cut), Err(reason));
        }
    }
    assert_eq!(open(&[&good[..], b"!"].concat()), Err(DropReason::Length));
    let longest = packet(&mut codec(0), &data(0), &[1; MOST - HEADER_BYTES - TRAILER_BYTES]);
    assert_eq!((longest.len(), open(&longest).is_ok()), (MOST, true));
    let longer = packet(&mut codec(0), &data(0), &[1; MOST - HEADER_BYTES - TRAILER_BYTES + 1]);
    assert_eq!(open(&longer), Err(DropReason::Length));
}

#[test]
#[cfg_attr(miri, ignore = "the cipher is assembly")]
fn other_keys_senders_and_versions_are_refused() {
    let mut other = SealedCodec::new(CHANNEL, &SealKey([1; 16]), MOST, 0);
    assert_eq!(open(&packet(&mut other, &data(0), b"x")), Err(DropReason::Seal));
    let mut other = SealedCodec::new(ChannelKey(CHANNEL.0 ^ 1), &KEY, MOST, 0);
    assert_eq!(open(&packet(&mut other, &data(0), b"x")), Err(DropReason::Key));
    let mut clear = vec![0; HEADER_BYTES + 40];
    Codec::new(CHANNEL, MOST).seal(&data(0), &mut clear);
    assert_eq!(open(&clear), Err(DropReason::Version));
    let sealed = packet(&mut codec(0), &data(0), b"x");
    assert_eq!(Codec::new(CHANNEL, MOST).open(1, 2, &sealed), Err(DropReason::Version));
    let misdirected = packet(&mut codec(0), &Header { to: 0, ..data(0) }, b"x");
    assert_eq!(open(&misdirected), Err(DropReason::Destination));
    let own = packet(&mut codec(0), &Header { from: 1, ..data(0) }, b"x");
    assert_eq!(open(&own), Err(DropReason::Source));
    let part = packet(&mut codec(0), &Header { flags: PART, ..data(0) }, &[0; 300]);
    assert_eq!(open(&part), Err(DropReason::Kind));
    let odd = packet(&mut codec(0), &Header { kind: PacketKind::Ack, ..data(0) }, b"x");
    assert_eq!(open(&odd), Err(DropReason::Kind));
}

#[test]
#[cfg_attr(miri, ignore = "the cipher is assembly")]
fn the_key_is_not_shown() {
    let shown = format!("{:?} {:?}", KEY, codec(0));
    assert!(!shown.contains("0, 1, 2") && shown.contains("SealKey(..)"), "{shown}");
}

/// Collects frames; refuses when told to.
#[derive(Default)]
struct Inbox {
    frames: Vec<Vec<u8>>,
    full: bool,
}

impl Sink for Inbox {
    fn deliver(&mut self, _: Rank, frame: &[u8]) -> Delivery {
        if self.full {
            return Delivery::Full;
        }
        self.frames.push(frame.to_vec());
        Delivery::Taken
    }
}

fn endpoint(config: &Config, me: Rank) -> Endpoint {
    Endpoint::encrypted(config.clone(), me, 2, CHANNEL, &KEY).unwrap()
}

fn drain(from: &mut Endpoint, now: u64) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    while let Some(transmit) = from.poll_transmit(now) {
        out.extend(transmit.datagrams().map(<[u8]>::to_vec));
    }
    out
}

fn raised(counters: &Counters, before: &Counters) -> Vec<(&'static str, u64)> {
    let pairs = counters.entries().into_iter().zip(before.entries());
    pairs.filter(|(now, then)| now.1 > then.1).map(|(now, then)| (now.0, now.1 - then.1)).collect()
}

#[test]
#[cfg_attr(miri, ignore = "the cipher is assembly")]
fn the_version_of_the_channel_is_the_only_one() {
    let config = Config::default();
    let mut sealed = endpoint(&config, 0);
    let mut clear = Endpoint::new(config.clone(), 0, 2, CHANNEL).unwrap();
    let mut receivers =
        [endpoint(&config, 1), Endpoint::new(config.clone(), 1, 2, CHANNEL).unwrap()];
    for sender in [&mut sealed, &mut clear] {
        sender.send(0, 1, &[b"frame"]).unwrap();
        let datagram = drain(sender, 0).remove(0);
        for receiver in &mut receivers {
            receiver.handle_datagram(1, &datagram, &mut Inbox::default());
        }
    }
    for receiver in &receivers {
        let counters = receiver.counters();
        assert_eq!((counters.delivered, counters.drop_version), (1, 1));
    }
}

/// Full packets leave as runs of equal length, and a run that the kernel joined comes apart by its first header.
#[test]
#[cfg_attr(miri, ignore = "the cipher is assembly")]
fn runs_lie_end_to_end() {
    let config = Config { initial_window: 128, ..Config::default() };
    let (mut a, mut b) = (endpoint(&config, 0), endpoint(&config, 1));
    assert_eq!(a.max_frame(), 1_472 - 52);
    let frame: Vec<u8> = (0..a.max_frame()).map(|at| at as u8).collect();
    for _ in 0..100 {
        a.send(0, 1, &[&frame]).unwrap();
    }
    a.send(0, 1, &[b"short"]).unwrap();
    let (mut runs, mut inbox) = (Vec::new(), Inbox::default());
    while let Some(transmit) = a.poll_transmit(0) {
        assert_eq!((transmit.segment, first_length(transmit.bytes)), (1_472, 1_472));
        assert!(transmit.bytes.len() <= 65_507);
        runs.push(transmit.datagrams().count());
        for datagram in transmit.bytes.chunks(first_length(transmit.bytes)) {
            assert!(!datagram.windows(16).any(|part| part == &frame[100..116]));
            b.handle_datagram(5, datagram, &mut inbox);
        }
    }
    assert_eq!(runs, [44, 44, 13]);
    assert!(inbox.frames[..100].iter().all(|taken| *taken == frame));
    assert_eq!(inbox.frames[100], b"short");
    assert_eq!(b.counters().dropped_in_all(), 0);
    // Datagrams so large that few fit a run: the trailer must not make it too long.
    for max_datagram in [9_378, 32_753, 32_754, 65_507] {
        let config = Config { max_datagram, window: 16, initial_window: 16, ..Config::default() };
        let mut a = endpoint(&config, 0);
        let frame = vec![1; a.max_frame()];
        (0..16).for_each(|_| a.send(0, 1, &[&frame]).unwrap());
        while let Some(transmit) = a.poll_transmit(0) {
            assert!(transmit.bytes.len() <= 65_507);
            assert!(transmit.datagrams().all(|datagram| datagram.len() == max_datagram));
        }
    }
}

/// A lost packet is sent again with another ack field, and so under another number, with the same frame
/// in it. Otherwise the two packets could be laid upon each other.
#[test]
#[cfg_attr(miri, ignore = "the cipher is assembly")]
fn a_resend_is_another_packet() {
    let config = Config::default();
    let (mut a, mut b) = (endpoint(&config, 0), endpoint(&config, 1));
    let mut inbox = Inbox::default();
    for frame in [b"first frame", b"other frame"] {
        a.send(0, 1, &[frame]).unwrap();
    }
    let first = drain(&mut a, 0);
    b.handle_datagram(10, &first[1], &mut inbox);
    let mut again = Vec::new();
    let mut now = 10;
    while inbox.frames.len() < 2 && now < 1_000_000 {
        for datagram in drain(&mut b, now) {
            a.handle_datagram(now, &datagram, &mut Inbox::default());
        }
        for datagram in drain(&mut a, now) {
            b.handle_datagram(now, &datagram, &mut inbox);
            again.push(datagram);
        }
        now += 100;
        a.handle_timeout(now);
        b.handle_timeout(now);
    }
    assert_eq!(inbox.frames, [b"first frame", b"other frame"]);
    let resent =
        again.iter().find(|datagram| datagram[7] == PacketKind::Data as u8).expect("a resend");
    let bodies = [&first[0], resent].map(|datagram| &datagram[32..43]);
    assert_ne!(first[0][..4], resent[..4]);
    assert!(bodies[0].iter().zip(bodies[1]).filter(|(a, b)| a == b).count() < 8);
    assert_eq!(first[0][20..24], resent[20..24], "the same sequence");
}

/// Every packet of an exchange, sent again at every later step by somebody who recorded it.
#[test]
#[cfg_attr(miri, ignore = "the cipher is assembly")]
fn replays_deliver_nothing_and_ack_nothing() {
    let config = Config::default();
    let mut ends = [endpoint(&config, 0), endpoint(&config, 1)];
    let mut inboxes = [Inbox::default(), Inbox::default()];
    let mut recorded: Vec<(usize, Vec<u8>)> = Vec::new();
    let mut now = 0;
    for round in 0..60_u8 {
        let to = usize::from(round % 2);
        inboxes[to].full = round % 7 == 3;
        ends[1 - to].send(now, to as Rank, &[&[round], b"frame"]).unwrap();
        for (to, datagram) in &recorded {
            ends[*to].handle_datagram(now, datagram, &mut inboxes[*to]);
        }
        for from in [1 - to, to] {
            for datagram in drain(&mut ends[from], now) {
                ends[1 - from].handle_datagram(now, &datagram, &mut inboxes[1 - from]);
                if recorded.len() < 100 {
                    recorded.push((1 - from, datagram));
                }
            }
        }
        now += 150;
        ends.iter_mut().for_each(|end| end.handle_timeout(now));
    }
    inboxes.iter_mut().for_each(|inbox| inbox.full = false);
    while !(ends[0].all_flushed() && ends[1].all_flushed()) {
        assert!(now < 10_000_000, "the exchange must end");
        for from in [0, 1] {
            for datagram in drain(&mut ends[from], now) {
                ends[1 - from].handle_datagram(now, &datagram, &mut inboxes[1 - from]);
            }
        }
        now += 150;
        ends.iter_mut().for_each(|end| end.handle_timeout(now));
    }
    for (me, inbox) in inboxes.iter().enumerate() {
        let rounds = (0..60_u8).filter(|round| usize::from(round % 2) == me);
        let expected: Vec<_> = rounds.map(|round| [&[round][..], b"frame"].concat()).collect();
        assert_eq!(inbox.frames, expected);
        assert_eq!(ends[me].counters().dropped_in_all(), 0);
        assert!(ends[me].counters().duplicates > 0);
    }
}

/// When the sequences have come round, a packet from before is told by its counter.
#[test]
#[cfg_attr(miri, ignore = "the cipher is assembly")]
fn a_packet_of_long_ago_is_dropped_though_its_sequence_fits() {
    let mut b = endpoint(&Config::default(), 1);
    let mut inbox = Inbox::default();
    // Sequence 1 as it was 2^32 packets ago, and 0 as it is now.
    let old = packet(&mut codec(5), &data(1), b"old");
    let now = packet(&mut codec((1 << 32) + 5), &data(0), b"now");
    b.handle_datagram(0, &now, &mut inbox);
    let before = *b.counters();
    b.handle_datagram(1, &old, &mut inbox);
    assert_eq!(raised(b.counters(), &before), [("drop_stale", 1)]);
    assert_eq!(inbox.frames, [b"now"]);
    // The bound itself; a packet that is merely late is taken.
    let late = packet(&mut codec((1 << 32) + 5 - STALE), &data(1), b"late");
    let too_late = packet(&mut codec((1 << 32) + 4 - STALE), &data(1), b"late");
    b.handle_datagram(2, &too_late, &mut inbox);
    assert_eq!((b.counters().drop_stale, b.counters().dropped_in_all()), (2, 2));
    b.handle_datagram(2, &late, &mut inbox);
    assert_eq!(inbox.frames, [&b"now"[..], b"late"]);
}

/// A dropped packet must not move the bound, or one forged packet would shut the channel.
#[test]
#[cfg_attr(miri, ignore = "the cipher is assembly")]
fn a_forged_counter_changes_nothing() {
    let mut b = endpoint(&Config::default(), 1);
    let mut inbox = Inbox::default();
    let mut forged = packet(&mut codec(0), &data(0), b"frame");
    let last = forged.len() - 1;
    forged[last] = 0xff;
    b.handle_datagram(0, &forged, &mut inbox);
    // Right seal, but a number outside the window.
    b.handle_datagram(0, &packet(&mut codec(1 << 60), &data(500), b"frame"), &mut inbox);
    assert_eq!((b.counters().drop_seal, b.counters().drop_window), (1, 1));
    assert_eq!(b.counters().dropped_in_all(), 2);
    b.handle_datagram(0, &packet(&mut codec(0), &data(0), b"frame"), &mut inbox);
    assert_eq!(inbox.frames, [b"frame"]);
}

#[test]
#[cfg_attr(miri, ignore = "the cipher is assembly")]
fn a_window_whose_acks_do_not_fit_is_refused() {
    let config = Config { max_datagram: 64, window: 256, ..Config::default() };
    assert!(Endpoint::new(config.clone(), 0, 2, CHANNEL).is_ok());
    assert!(Endpoint::encrypted(config, 0, 2, CHANNEL, &KEY).is_err());
}
