//! Settling a channel: it is closed, driven until no packet is on the wire, and opened again.

use crate::sim::{Faults, Net, config, fewer};
use kumi_proto::{ChannelKey, Config, Delivery, Endpoint, Rank, SendError, Sink};
use proptest::prelude::*;

const RANKS: usize = 4;

/// Closes all ranks and runs until they are settled, for at most `limit` microseconds; the time taken.
fn quiesce(net: &mut Net, limit: u64) -> u64 {
    let start = net.now;
    (0..RANKS).for_each(|rank| net.quiesce(rank));
    while !net.nodes.iter().all(|node| node.endpoint.settled()) {
        net.run(10);
        assert!(net.now - start <= limit, "not settled after {limit} us");
    }
    net.now - start
}

fn under_way(net: &Net) -> usize {
    (0..RANKS).map(|rank| net.data_under_way(rank)).sum()
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn without_loss_it_takes_a_round_trip() {
    let mut net = Net::new(1, RANKS as u32, &config(), Faults::NONE);
    net.all_to_all(500);
    net.run(300);
    assert!(under_way(&net) > 0);
    let sent = net.total(|c| c.sent);
    // There and back, 20 us each, and what the drivers take.
    let time = quiesce(&mut net, 100);
    assert!(time >= 40, "{time} us");
    assert_eq!(under_way(&net), 0);
    assert_eq!(net.total(|c| c.sent), sent, "nothing was accepted meanwhile");
    net.check_cut();
    // Nothing more happens until it is opened.
    let before = net.packets_to.iter().sum::<u64>();
    net.run(1_000_000);
    assert!(net.packets_to.iter().sum::<u64>() - before <= (RANKS * RANKS) as u64, "late answers");
    (0..RANKS).for_each(|rank| net.reopen(rank));
    net.settle(100_000);
    assert_eq!(net.total(|c| c.resends + c.duplicates), 0);
    assert_eq!(net.total(|c| c.sent), (RANKS * (RANKS - 1) * 500) as u64);
}

#[test]
#[cfg_attr(miri, ignore = "half a minute of packets in code without unsafe blocks")]
fn what_is_lost_is_found_and_sent_after_the_opening() {
    for seed in 0..fewer(20, 1) {
        let faults = Faults { loss: 200, ..Faults::NONE };
        let mut net = Net::new(seed, RANKS as u32, &config(), faults);
        for round in 0..fewer(5, 2) {
            net.all_to_all(fewer(40, 3));
            net.run(30 + 170 * round);
            let resends = net.total(|c| c.resends);
            // Probe and answer get through in two of three tries; some of twelve pairs need several.
            quiesce(&mut net, 1_000_000);
            assert_eq!(under_way(&net), 0, "seed {seed}, round {round}");
            assert_eq!(net.total(|c| c.resends), resends, "nothing is sent while it is closed");
            net.check_cut();
            (0..RANKS).for_each(|rank| net.reopen(rank));
        }
        net.settle(10_000_000);
        assert_eq!(net.total(|c| c.duplicates), 0, "known lost, then sent again: seed {seed}");
    }
}

#[test]
fn a_full_receiver_does_not_hold_it_up() {
    let mut net = Net::new(3, RANKS as u32, &config(), Faults::NONE);
    net.set_full(1, true);
    net.all_to_all(fewer(100, 4));
    net.run(5_000);
    quiesce(&mut net, 100);
    assert_eq!(under_way(&net), 0);
    net.run(100_000);
    assert_eq!((net.delivered(0, 1), under_way(&net)), (0, 0));
    (0..RANKS).for_each(|rank| net.reopen(rank));
    net.settle(1_000_000);
}

#[test]
fn a_stopped_receiver_is_waited_for() {
    let mut net = Net::new(4, RANKS as u32, &config(), Faults::NONE);
    net.stop(2);
    net.send(0, 2, 10);
    net.run(100);
    net.quiesce(0);
    net.run(3_000_000);
    assert!(!net.nodes[0].endpoint.settled(), "ten packets lie in a socket");
    net.resume(2);
    net.run(300);
    assert!(net.nodes[0].endpoint.settled());
    net.reopen(0);
    net.settle(100_000);
}

struct Taken;

impl Sink for Taken {
    fn deliver(&mut self, _: Rank, _: &[u8]) -> Delivery {
        Delivery::Taken
    }
}

#[test]
fn a_closed_endpoint_refuses_and_has_no_timer() {
    let make = |me| Endpoint::new(Config::default(), me, 2, ChannelKey(1)).unwrap();
    let (mut a, mut b) = (make(0), make(1));
    assert!(a.settled() && !a.closed());
    a.send(0, 1, &[b"x"]).unwrap();
    a.quiesce();
    assert_eq!(a.send(0, 1, &[b"y"]), Err(SendError::Closed));
    assert!(a.poll_transmit(0).is_none(), "queued frames stay");
    assert!(a.settled() && a.closed() && !a.all_flushed());
    assert_eq!(a.next_timeout(), None);
    a.reopen(5);
    let data = a.poll_transmit(5).unwrap().bytes.to_vec();
    a.quiesce();
    assert!(!a.settled());
    let probe = a.poll_transmit(6).unwrap().bytes.to_vec();
    assert_eq!((probe[7], probe[30] & 1), (4, 1), "a probe with ACK_NOW");
    b.handle_datagram(10, &data, &mut Taken);
    b.handle_datagram(10, &probe, &mut Taken);
    let answer = b.poll_transmit(10).unwrap().bytes.to_vec();
    a.handle_datagram(20, &answer, &mut Taken);
    assert!(a.settled() && a.all_flushed());
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 48,
        max_shrink_iters: 100,
        failure_persistence: None,
        rng_seed: proptest::test_runner::RngSeed::Fixed(4),
        ..ProptestConfig::default()
    })]

    /// Ranks that close and open at any time, by themselves, under all faults: all arrives once, in order.
    #[test]
    #[cfg_attr(miri, ignore = "half a minute of packets in code without unsafe blocks")]
    fn whatever_happens(
        seed in any::<u64>(),
        (loss, double, jitter) in (0..=250u32, 0..=100u32, 0..=400u64),
        script in prop::collection::vec((0..RANKS, 0..RANKS, 0..3u8, 1..fewer(60, 4), 1..20_000u64), 1..30),
    ) {
        let faults = Faults { loss, double, jitter, ..Faults::NONE };
        let mut net = Net::new(seed, RANKS as u32, &config(), faults);
        for (from, to, what, frames, time) in script {
            match what {
                0 => net.quiesce(from),
                1 => net.reopen(from),
                _ if from != to => net.send(from, to, frames),
                _ => net.stop(from),
            }
            net.run(time);
            net.check_cut();
            net.resume(to);
        }
        (0..RANKS).for_each(|rank| net.resume(rank));
        quiesce(&mut net, 30_000_000);
        (0..RANKS).for_each(|rank| net.reopen(rank));
        net.settle(120_000_000);
    }
}
