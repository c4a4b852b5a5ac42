//! Paths that do not carry every packet whole. A stream of bytes is cut as the endpoint says, and
//! arrives once and in order, over wires that drop longer packets.

use kumi_proto::{ChannelKey, Config, ConfigError, Delivery, Endpoint, Rank, SealKey, Sink};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::sim::Random;

/// Microseconds on the wire.
const DELAY: u64 = 40;

/// Treatment of a packet that is too long and must not be fragmented.
#[derive(Clone, Copy, PartialEq)]
enum Wire {
    /// Drops it and says nothing.
    Silent,
    /// Drops it, and the sender's driver learns how long packets may be.
    Telling,
}

#[derive(Default)]
struct Inbox(Vec<u8>);

impl Sink for Inbox {
    fn deliver(&mut self, _: Rank, frame: &[u8]) -> Delivery {
        self.0.extend_from_slice(frame);
        Delivery::Taken
    }
}

/// When, in which order, to whom, what.
type Arrival = (u64, u64, usize, Vec<u8>);

/// Rank 0 sends, rank 1 receives.
struct World {
    ends: [Endpoint; 2],
    inbox: Inbox,
    now: u64,
    flying: BinaryHeap<Reverse<Arrival>>,
    serial: u64,
    wire: Wire,
    /// Bytes of the longest datagram that passes whole.
    mtu: usize,
    /// Of 1,000 packets so many are lost anyhow.
    loss: u32,
    random: Random,
    /// Too long packets that were dropped, and those that the network fragmented.
    dropped: u64,
    fragmented: u64,
    /// Bytes of the stream cut so far, and of the longest frame since this was last set to 0.
    cut: usize,
    longest: usize,
}

fn byte(at: usize) -> u8 {
    (at * 31 + at / 251) as u8
}

impl World {
    fn new(seed: u64, wire: Wire, mtu: usize, encrypted: bool) -> Self {
        let config = Config { path_retry: 1_000_000, ..Config::default() };
        let end = |me| match encrypted {
            true => Endpoint::encrypted(config.clone(), me, 2, ChannelKey(seed), &SealKey([3; 16])),
            false => Endpoint::new(config.clone(), me, 2, ChannelKey(seed)),
        };
        Self {
            ends: [end(0).unwrap(), end(1).unwrap()],
            inbox: Inbox::default(),
            now: 5_000,
            flying: BinaryHeap::new(),
            serial: 0,
            wire,
            mtu,
            loss: 0,
            random: Random(seed),
            dropped: 0,
            fragmented: 0,
            cut: 0,
            longest: 0,
        }
    }

    fn transmit(&mut self, me: usize) {
        let (mut out, mut told) = (Vec::new(), false);
        while let Some(transmit) = self.ends[me].poll_transmit(self.now) {
            for datagram in transmit.datagrams() {
                let too_long = datagram.len() > self.mtu;
                self.fragmented += u64::from(too_long && transmit.fragment);
                if too_long && !transmit.fragment {
                    self.dropped += 1;
                    told = self.wire == Wire::Telling;
                } else if !self.random.chance(self.loss) {
                    out.push(datagram.to_vec());
                }
            }
        }
        if told {
            self.ends[me].set_path_mtu(1 - me as Rank, self.mtu);
        }
        for bytes in out {
            self.serial += 1;
            self.flying.push(Reverse((self.now + DELAY, self.serial, 1 - me, bytes)));
        }
    }

    /// Sends so many more bytes and runs until all are there and acked.
    fn send(&mut self, bytes: usize) {
        let (end, limit) = (self.cut + bytes, self.now + 60_000_000);
        while self.cut < end || !self.ends[0].all_flushed() {
            assert!(self.now < limit, "{} of {end} bytes are there", self.inbox.0.len());
            while self.cut < end && self.ends[0].room(1) > 0 {
                let length = self.ends[0].max_unfragmented_frame(1).min(end - self.cut);
                let frame: Vec<u8> = (self.cut..self.cut + length).map(byte).collect();
                self.ends[0].send(self.now, 1, &[&frame]).unwrap();
                self.longest = self.longest.max(length);
                self.cut += length;
            }
            self.step();
        }
        assert_eq!(self.inbox.0.len(), end);
        assert!(self.inbox.0.iter().enumerate().all(|(at, &found)| found == byte(at)));
    }

    /// Goes to the next instant at which something happens.
    fn step(&mut self) {
        self.transmit(0);
        self.transmit(1);
        let arrival = self.flying.peek().map(|Reverse(first)| first.0);
        let timeouts = self.ends.iter_mut().filter_map(Endpoint::next_timeout);
        let next = timeouts.chain(arrival).min().expect("something is under way");
        self.now = next.max(self.now + 1);
        while self.flying.peek().is_some_and(|Reverse(first)| first.0 <= self.now) {
            let Reverse((_, _, to, bytes)) = self.flying.pop().expect("just seen");
            self.ends[to].handle_datagram(self.now, &bytes, &mut self.inbox);
        }
        self.ends.iter_mut().for_each(|end| end.handle_timeout(self.now));
    }

    /// Limit, and packets left to the network to fragment, as the first rank tells of the second.
    fn told(&mut self) -> (u64, u64) {
        let mut told = None;
        self.ends[0].changed_peers(|_, peer| told = Some((peer.limit, peer.fragmented)));
        told.expect("something has changed")
    }

    fn resends(&self) -> u64 {
        self.ends[0].counters().resends
    }
}

#[test]
#[cfg_attr(miri, ignore = "the cipher is assembly")]
fn a_black_hole_is_found_and_then_avoided() {
    for (seed, encrypted) in [(1, false), (2, true), (3, false)] {
        let mut world = World::new(seed, Wire::Silent, 1_252, encrypted);
        world.send(200_000);
        // Frames cut before go in fragments; at most a ring of them.
        assert!((1..=128).contains(&world.fragmented), "{} in fragments", world.fragmented);
        assert!(world.resends() <= 128 + 3 * 32, "{} resends", world.resends());
        let (resends, fragmented) = (world.resends(), world.fragmented);
        world.longest = 0;
        world.send(200_000);
        let overhead = if encrypted { 52 } else { 32 };
        assert_eq!((world.longest, world.resends()), (1_200 - overhead, resends));
        assert_eq!(world.fragmented, fragmented);
        assert_eq!(world.ends[0].min_unfragmented_frame(), world.longest);
        let (limit, left) = world.told();
        assert!(limit == 1_200 && left >= fragmented, "{left} of {fragmented}");
        assert_eq!(world.ends[0].max_frame(), 1_472 - overhead);
        // The other direction is a path of its own.
        assert_eq!(world.ends[1].max_unfragmented_frame(0), 1_472 - overhead);
    }
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn a_black_hole_is_found_under_random_loss() {
    for seed in 0..20 {
        let mut world = World::new(seed, Wire::Silent, 1_300, seed % 2 == 1);
        world.loss = 100;
        world.send(300_000);
        assert!(world.ends[0].max_unfragmented_frame(1) < 1_200, "seed {seed}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn random_loss_is_no_black_hole() {
    for seed in 0..20 {
        let mut world = World::new(seed, Wire::Silent, 1_472, false);
        world.loss = 200;
        world.send(300_000);
        assert_eq!(world.ends[0].max_unfragmented_frame(1), 1_440, "seed {seed}");
        assert!(world.resends() > 20);
        assert_eq!(world.fragmented, 0);
    }
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn longer_packets_are_tried_again_later_and_then_less_often() {
    let mut world = World::new(7, Wire::Silent, 1_252, false);
    let mut found = Vec::new();
    for _ in 0..3 {
        // More than a ring: frames queued before the end of the pause are still short.
        world.send(400_000);
        assert_eq!(world.ends[0].max_unfragmented_frame(1), 1_168);
        found.push(world.dropped);
        world.now += 1_100_000;
    }
    // The first pause of a second is over, the second one, of two, was not.
    assert!(found[1] > found[0] && found[2] == found[1], "{found:?}");
    world.now += 8_000_000;
    world.mtu = 1_472;
    world.send(400_000);
    assert_eq!(world.ends[0].max_unfragmented_frame(1), 1_440, "the path has got better");
}

#[test]
#[cfg_attr(miri, ignore = "the cipher is assembly")]
fn what_the_wire_tells_is_kept_to() {
    for (seed, encrypted) in [(1, false), (2, true)] {
        let mut world = World::new(seed, Wire::Telling, 1_252, encrypted);
        world.send(200_000);
        // Lost once: the packets that left before the wire reported its limit.
        assert!(world.resends() <= 32 && world.dropped <= 32, "{} resends", world.resends());
        world.longest = 0;
        world.send(100_000);
        let overhead = if encrypted { 52 } else { 32 };
        assert_eq!(world.longest, 1_252 - overhead);
        // A shorter path, and then a longer one.
        world.mtu = 700;
        world.send(100_000);
        assert_eq!(world.ends[0].max_unfragmented_frame(1), 700 - overhead);
        world.mtu = 9_000;
        world.ends[0].set_path_mtu(1, 9_000);
        world.longest = 0;
        world.send(100_000);
        assert_eq!(world.longest, 1_472 - overhead);
    }
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn frames_are_not_cut_below_the_least_and_that_is_told() {
    let config = Config { least_datagram: 548, ..Config::default() };
    let mut world = World::new(4, Wire::Telling, 300, false);
    world.ends[0] = Endpoint::new(config, 0, 2, ChannelKey(4)).unwrap();
    world.ends[0].set_path_mtu(1, 300);
    world.send(51_600);
    assert_eq!((world.longest, world.dropped, world.fragmented), (516, 0, 100));
    assert_eq!(world.told(), (548, 100));
    world.ends[0].set_path_mtu(1, 700);
    world.send(1);
    assert_eq!(world.told(), (700, 100));
    let wrong = Config { least_datagram: 1_201, ..Config::default() };
    assert_eq!(
        Endpoint::new(wrong, 0, 2, ChannelKey(4)).err(),
        Some(ConfigError::LeastDatagram(1_201))
    );
}

#[test]
#[cfg_attr(miri, ignore = "the cipher is assembly")]
fn nonsense_about_paths_is_bounded() {
    let mut world = World::new(1, Wire::Telling, 1_472, true);
    for told in [0, 63, usize::MAX] {
        world.ends[0].set_path_mtu(0, told);
        world.ends[0].set_path_mtu(2, told);
        world.ends[0].set_path_mtu(Rank::MAX, told);
        world.ends[0].set_path_mtu(1, told);
    }
    assert_eq!(world.ends[0].max_unfragmented_frame(1), 1_420);
    world.ends[0].set_path_mtu(1, 0);
    assert_eq!(world.ends[0].max_unfragmented_frame(1), 12);
    world.send(1_000);
}
