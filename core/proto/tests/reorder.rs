//! Paths on which packets overtake each other: needless resends become rare, losses are still found.
#![cfg(not(miri))] // What is rare shows in thousands of packets.

use crate::sim::{Faults, Net, config};
use kumi_proto::Config;
use proptest::prelude::*;

/// Frames of one burst, and microseconds until the next.
const BURST: u64 = 200;
const PAUSE: u64 = 20_000;

fn net(seed: u64, faults: Faults) -> Net {
    let config = Config { window: 128, reorder_packets: 256, ..config() };
    Net::new(seed, 2, &config, faults)
}

/// Sends so many bursts; data packets and those of them that came twice.
fn bursts(net: &mut Net, count: u64) -> (u64, u64) {
    let before = (net.total(|c| c.data_out), net.total(|c| c.duplicates));
    for _ in 0..count {
        net.send(0, 1, BURST);
        net.run(PAUSE);
    }
    while !net.settled() {
        net.run(PAUSE);
    }
    (net.total(|c| c.data_out) - before.0, net.total(|c| c.duplicates) - before.1)
}

#[test]
fn without_loss_hardly_anything_is_sent_again() {
    for (seed, jitter) in [20, 100, 500, 2_000].into_iter().enumerate() {
        let mut net = net(seed as u64, Faults { jitter, ..Faults::NONE });
        let (_, learning) = bursts(&mut net, 10);
        let (data, twice) = bursts(&mut net, 50);
        assert!(learning < 200, "{learning} needless resends at first, jitter {jitter}");
        assert!(twice * 1_000 <= data * 3, "{twice} of {data} came twice, jitter {jitter}");
    }
}

#[test]
fn on_a_path_that_keeps_order_nothing_changes() {
    let mut net = net(5, Faults { loss: 20, ..Faults::NONE });
    let (data, twice) = bursts(&mut net, 20);
    assert_eq!((twice, data - 20 * BURST), (0, net.total(|c| c.resends)));
    let nacks = net.total(|c| c.nacks_out);
    let resends = net.total(|c| c.resends);
    assert!(nacks * 3 >= resends, "a gap is told at once: {nacks} nacks, {resends} resends");
}

#[test]
fn a_path_that_keeps_order_again_is_trusted_again() {
    let mut net = net(6, Faults { jitter: 500, ..Faults::NONE });
    bursts(&mut net, 20);
    net.faults = Faults { loss: 50, ..Faults::NONE };
    bursts(&mut net, 40);
    // A single burst with a loss now takes a few round trips, no timeout.
    let timeouts = net.total(|c| c.timeouts);
    let (data, twice) = bursts(&mut net, 20);
    assert_eq!(twice, 0);
    let rounds = net.total(|c| c.timeouts) - timeouts;
    let losses = data - 20 * BURST;
    assert!(rounds * 3 <= losses, "{rounds} timeouts, {losses} losses");
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 24,
        max_shrink_iters: 10,
        failure_persistence: None,
        rng_seed: proptest::test_runner::RngSeed::Fixed(3),
        ..ProptestConfig::default()
    })]

    /// On any path, at most 2 of 100 packets are sent in vain in the long run, and all arrives in good
    /// time.
    #[test]
    fn in_the_long_run(seed in any::<u64>(), loss in 0..=50u32, jitter in 0..=1_500u64) {
        let mut net = net(seed, Faults { loss, jitter, ..Faults::NONE });
        bursts(&mut net, 5);
        let start = net.now;
        let (data, twice) = bursts(&mut net, 20);
        prop_assert!(twice * 50 <= data, "{} of {} came twice", twice, data);
        let most = 20 * (PAUSE + 20 * (jitter + 40) + 4_000 * u64::from(loss > 0));
        prop_assert!(net.now - start <= most, "{} us of {}", net.now - start, most);
    }
}
