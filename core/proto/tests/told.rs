//! What an endpoint tells of itself: sizes, packets under way, memory, round trips.

use kumi_proto::wire::HEADER_BYTES;
use kumi_proto::{ChannelKey, Config, Delivery, Endpoint, Rank, SealKey, SendError, Sink};

struct Take;

impl Sink for Take {
    fn deliver(&mut self, _: Rank, _: &[u8]) -> Delivery {
        Delivery::Taken
    }
}

fn endpoint(config: &Config, me: Rank, ranks: u32) -> Endpoint {
    Endpoint::new(config.clone(), me, ranks, ChannelKey(9)).unwrap()
}

fn polled(endpoint: &mut Endpoint, now: u64) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    while let Some(transmit) = endpoint.poll_transmit(now) {
        assert_eq!(transmit.length(), transmit.bytes.len(), "nothing is lent");
        out.extend(transmit.datagrams().map(<[u8]>::to_vec));
    }
    out
}

/// Everything that `from` has to say reaches `to` at `now`.
fn pass(from: &mut Endpoint, to: &mut Endpoint, sent: u64, now: u64) {
    for datagram in polled(from, sent) {
        to.handle_datagram(now, &datagram, &mut Take);
    }
}

#[test]
#[cfg_attr(miri, ignore = "the cipher is assembly")]
fn the_longest_frame_is_a_datagram_less_what_is_around_it() {
    let config = Config::default();
    let clear = endpoint(&config, 3, 5);
    assert_eq!((clear.me(), clear.ranks(), clear.config()), (3, 5, &config));
    assert_eq!((clear.max_frame(), clear.max_unfragmented_frame(1)), (1_440, 1_440));
    let sealed = Endpoint::encrypted(config, 3, 5, ChannelKey(9), &SealKey([2; 16])).unwrap();
    assert_eq!((sealed.max_frame(), sealed.max_unfragmented_frame(1)), (1_420, 1_420));
    let mut sealed = sealed;
    assert_eq!(sealed.send(0, 1, &[&[0; 1_420]]), Ok(()));
    let long = SendError::TooLong { length: 1_421, most: 1_420 };
    assert_eq!(sealed.send(0, 1, &[&[0; 1_000], &[0; 421]]), Err(long));
}

#[test]
fn the_narrowest_path_bounds_frames_to_all() {
    let mut endpoint = endpoint(&Config::default(), 0, 4);
    assert_eq!(endpoint.min_unfragmented_frame(), 1_440);
    // To oneself and to strangers there is no path.
    endpoint.set_path_mtu(0, 600);
    endpoint.set_path_mtu(4, 600);
    endpoint.set_path_mtu(1, 1_472);
    endpoint.send(0, 1, &[b"x"]).unwrap();
    assert_eq!(endpoint.min_unfragmented_frame(), 1_440);
    endpoint.set_path_mtu(2, 1_000);
    assert_eq!(endpoint.min_unfragmented_frame(), 1_440, "nothing is sent there");
    endpoint.send(0, 2, &[b"x"]).unwrap();
    assert_eq!(endpoint.min_unfragmented_frame(), 1_000 - HEADER_BYTES);
    assert_eq!(endpoint.max_unfragmented_frame(1), 1_440);
    endpoint.set_path_mtu(2, 10);
    assert_eq!(endpoint.max_unfragmented_frame(2), 64 - HEADER_BYTES);
    endpoint.set_path_mtu(2, 1_000_000);
    assert_eq!(endpoint.min_unfragmented_frame(), 1_440);
}

#[test]
fn packets_under_way_and_queued_are_told_apart() {
    let config = Config { initial_window: 4, ..Config::default() };
    let (mut a, mut b) = (endpoint(&config, 0, 2), endpoint(&config, 1, 2));
    assert_eq!((a.under_way(1), a.room(1)), ((0, 0), 128));
    for _ in 0..7 {
        a.send(0, 1, &[&[1; 10]]).unwrap();
    }
    assert_eq!((a.under_way(1), a.room(1), a.room(0), a.room(2)), ((0, 7), 121, 0, 0));
    let out = polled(&mut a, 0);
    assert_eq!((out.len(), a.under_way(1)), (4, (4, 3)));
    assert_eq!((a.unacked(), a.flushed(1)), ((7, 7 * 42), false));
    // Two come; the window has grown by as many, so four more may leave, of which there are three.
    for datagram in &out[..2] {
        b.handle_datagram(10, datagram, &mut Take);
    }
    b.send_delayed_acks();
    pass(&mut b, &mut a, 10, 20);
    assert_eq!((a.under_way(1), a.unacked(), a.room(1)), ((2, 3), (5, 5 * 42), 123));
    assert_eq!((a.round_trip_us(), polled(&mut a, 20).len(), a.under_way(1)), (20, 3, (5, 0)));
}

/// Only while packets queue in the network are runs spread over the round trip.
#[test]
fn on_a_long_empty_path_a_window_leaves_as_one_run() {
    let config = Config { initial_window: 32, ..Config::default() };
    let (mut a, mut b) = (endpoint(&config, 0, 2), endpoint(&config, 1, 2));
    let mut now = 0;
    for _ in 0..5 {
        a.send(now, 1, &[b"ask"]).unwrap();
        pass(&mut a, &mut b, now, now + 2_000);
        b.send_delayed_acks();
        pass(&mut b, &mut a, now + 2_000, now + 4_000);
        now += 4_000;
    }
    assert_eq!(a.round_trip_us(), 4_000);
    for _ in 0..30 {
        a.send(now, 1, &[&[1; 10]]).unwrap();
    }
    let run = a.poll_transmit(now).unwrap();
    assert_eq!(run.datagrams().count(), 30);
}

#[test]
fn the_round_trip_is_the_mean_over_the_peers() {
    let config = Config::default();
    let mut a = endpoint(&config, 0, 3);
    for (rank, trip) in [(1, 100), (2, 300)] {
        let mut b = endpoint(&config, rank, 3);
        let start = 1_000 * u64::from(rank);
        a.send(start, rank, &[b"ask"]).unwrap();
        pass(&mut a, &mut b, start, start);
        b.send_delayed_acks();
        pass(&mut b, &mut a, start, start + trip);
    }
    assert_eq!(a.round_trip_us(), 200);
}

#[test]
fn early_packets_are_counted_as_memory() {
    let config = Config { reorder_packets: 2, ..Config::default() };
    let (mut a, mut b) = (endpoint(&config, 0, 2), endpoint(&config, 1, 2));
    for _ in 0..4 {
        a.send(0, 1, &[&[1; 10]]).unwrap();
    }
    let out = polled(&mut a, 0);
    assert_eq!((b.memory(), b.kept()), (0, 0));
    for (at, kept) in [(1, 1), (2, 2), (3, 2)] {
        b.handle_datagram(5, &out[at], &mut Take);
        assert_eq!((b.kept(), b.memory()), (kept, kept * b.max_frame()));
    }
    assert_eq!((b.counters().out_of_order_kept, b.counters().out_of_order_dropped), (2, 1));
    // What comes again after it was dropped is no duplicate, what was kept is.
    b.handle_datagram(6, &out[2], &mut Take);
    assert_eq!(b.counters().duplicates, 1);
    b.handle_datagram(7, &out[0], &mut Take);
    assert_eq!((b.kept(), b.memory(), b.counters().delivered), (0, 0, 3));
    b.handle_datagram(8, &out[3], &mut Take);
    let counters = b.counters();
    assert_eq!((counters.delivered, counters.delivered_bytes, counters.duplicates), (4, 40, 1));
}

/// A ring is given up only when another peer needs it and there are as many as the settings want.
#[test]
fn as_many_rings_as_the_settings_say_are_kept() {
    let config = Config { rings: 2, window: 4, ..Config::default() };
    let mut a = endpoint(&config, 0, 5);
    let flush = |a: &mut Endpoint, rank: Rank| {
        let mut b = endpoint(&config, rank, 5);
        pass(a, &mut b, 0, 0);
        b.send_delayed_acks();
        pass(&mut b, a, 0, 0);
        assert!(a.flushed(rank));
    };
    a.send(0, 1, &[b"x"]).unwrap();
    flush(&mut a, 1);
    a.send(0, 2, &[b"x"]).unwrap();
    flush(&mut a, 2);
    let two = a.memory();
    assert!(a.all_flushed() && two >= 2 * 4 * 1_472);
    a.send(0, 3, &[b"x"]).unwrap();
    assert_eq!(a.memory(), two, "it has the ring of another");
    a.send(0, 4, &[b"x"]).unwrap();
    assert_eq!(a.memory(), two, "and so has the next");
    a.send(0, 1, &[b"x"]).unwrap();
    assert_eq!(a.memory(), two / 2 * 3, "both are in use");
    assert_eq!(a.unacked().0, 3);
}
