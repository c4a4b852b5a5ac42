//! The protocol over a simulated network: chosen cases and random scripts.

use crate::sim::{Faults, Net, Random, config, fewer};
use kumi_proto::{Checksum, Config};
use proptest::prelude::*;

#[test]
#[cfg_attr(miri, ignore = "half a minute of packets in code without unsafe blocks")]
fn a_good_wire_needs_no_resend() {
    let frames = fewer(500, 3);
    for encrypted in [false, true] {
        let mut net = Net::with(1, 4, &config(), Faults::NONE, encrypted);
        net.all_to_all(frames);
        net.settle(1_000_000);
        assert_eq!(net.total(|c| c.resends + c.duplicates + c.nacks_out + c.timeouts), 0);
        assert_eq!(net.total(|c| c.dropped_in_all()), 0);
        assert_eq!(net.total(|c| c.sent), 4 * 3 * frames);
        assert_eq!(net.total(|c| c.data_out), 4 * 3 * frames);
    }
}

#[test]
fn a_terrible_wire_delivers_everything_in_order() {
    for seed in 0..fewer(10, 1) {
        let encrypted = seed % 2 == 1;
        let mut net = Net::with(seed, 3, &config(), Faults::HEAVY, encrypted);
        net.all_to_all(fewer(100, 5));
        for _ in 0..fewer(200, 20) {
            net.run(1_000);
            net.check_cut();
        }
        net.settle(60_000_000);
        assert!(net.total(|c| c.resends) > 0);
        let (checksum, seal) = (net.total(|c| c.drop_checksum), net.total(|c| c.drop_seal));
        assert_eq!((checksum > 0, seal > 0), (!encrypted, encrypted));
        assert_eq!(net.total(|c| c.drop_stale), 0);
    }
}

/// UDP's own checksum drops such packets.
#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn long_packets_under_either_checksum() {
    for (seed, checksum) in [(1, Checksum::Headers), (2, Checksum::All)] {
        let corrupt = if checksum == Checksum::All { 50 } else { 0 };
        let config = Config { max_datagram: 700, checksum, ..config() };
        let mut net = Net::new(seed, 2, &config, Faults { corrupt, ..Faults::HEAVY });
        net.all_to_all(200);
        net.settle(60_000_000);
        assert_eq!(net.total(|c| c.drop_checksum) > 0, corrupt > 0);
    }
}

#[test]
#[cfg_attr(miri, ignore = "half a minute of packets in code without unsafe blocks")]
fn each_fault_alone() {
    let cases = [
        Faults { loss: 300, ..Faults::NONE },
        Faults { double: 500, ..Faults::NONE },
        Faults { corrupt: 300, ..Faults::NONE },
        Faults { jitter: 2_000, ..Faults::NONE },
        Faults { delay: 50_000, ..Faults::NONE },
    ];
    for (seed, faults) in cases.into_iter().enumerate() {
        for encrypted in [false, true] {
            let mut net = Net::with(seed as u64, 2, &config(), faults, encrypted);
            net.all_to_all(fewer(200, 4));
            net.settle(60_000_000);
        }
    }
}

#[test]
fn numbers_wrap() {
    let config = Config { first_sequence: u32::MAX - fewer(100, 3) as u32, ..config() };
    for seed in 0..fewer(5, 1) {
        let mut net = Net::new(seed, 2, &config, Faults::HEAVY);
        net.all_to_all(fewer(300, 8));
        net.settle(60_000_000);
    }
}

#[test]
fn windows_of_every_size() {
    for window in [2, 4, 16, 64, 256] {
        let config = Config { window, ..config() };
        let mut net = Net::new(window as u64, 2, &config, Faults { loss: 100, ..Faults::HEAVY });
        net.all_to_all(fewer(300, 4));
        net.settle(60_000_000);
    }
}

#[test]
fn a_small_window_does_not_wait_for_delayed_acks() {
    let config = Config { window: 4, ..config() };
    let mut net = Net::new(2, 2, &config, Faults::NONE);
    let start = net.now;
    net.send(0, 1, fewer(400, 20));
    net.settle(1_000_000);
    // A hundred round trips of 40 us and a little for the drivers; a delayed ack takes 250 us.
    assert!(net.now - start < 10_000, "{} us", net.now - start);
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn rings_are_used_again() {
    let config = Config { rings: 3, ..config() };
    let mut net = Net::new(11, 12, &config, Faults { loss: 100, ..Faults::HEAVY });
    for round in 1..40 {
        for from in 0..12 {
            net.send(from, (from + round) % 12, if round % 12 == 0 { 0 } else { 20 });
        }
        net.run(20_000);
        net.check_cut();
    }
    net.settle(60_000_000);
    let ring = config.window * (config.max_datagram + 32);
    let rings = |net: &Net, rank: usize| net.nodes[rank].endpoint.memory() / ring;
    let all: usize = (0..12).map(|rank| rings(&net, rank)).sum();
    assert!((36..90).contains(&all), "{all} rings of 12 ranks that sent to 11 others each");
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn a_partition_heals() {
    let mut net = Net::new(3, 4, &config(), Faults { loss: 50, ..Faults::NONE });
    net.all_to_all(100);
    net.run(100);
    net.partition(0b0011);
    net.run(3_000_000);
    net.check_cut();
    assert!(!net.settled());
    // One probe per longest timeout and pair, not more: 8 pairs are cut.
    let before = net.total(|c| c.probes_out);
    net.run(2_000_000);
    assert!(net.total(|c| c.probes_out) - before <= 8 * 9);
    net.heal();
    // A quarter of a second until the next probe, then at the pace of the wire.
    net.settle(600_000);
}

#[test]
fn a_stopped_receiver_gets_a_few_probes_and_no_resends() {
    for stop in [1_000, 10_000, 300_000, 5_000_000].into_iter().take(fewer(4, 2) as usize) {
        let mut net = Net::new(stop, 2, &config(), Faults::NONE);
        net.send(0, 1, fewer(200, 20));
        net.run(100);
        net.stop(1);
        net.send(0, 1, fewer(1_000, 40));
        net.run(200);
        let before = net.packets_to[1];
        net.run(stop);
        let probes = net.packets_to[1] - before;
        // 5, 10, 20 ... 250 ms, then every 250 ms.
        assert!(probes <= 7 + stop / 250_000, "{probes} packets in {stop} us");
        net.check_cut();
        net.settle(100_000);
        assert_eq!(net.total(|c| c.resends), 0);
        assert_eq!(net.total(|c| c.duplicates), 0);
        // In all: the data, their acks, the probes and an answer.
        assert!(net.total(|c| c.acks_out) < 1_200);
    }
}

#[test]
fn a_stopped_sender_drains_before_it_probes() {
    let mut net = Net::new(9, 2, &config(), Faults::NONE);
    net.send(0, 1, 20);
    net.run(10);
    net.stop(0);
    net.run(1_000_000);
    assert_eq!(net.delivered(0, 1), 20);
    net.settle(10_000);
    assert_eq!(net.total(|c| c.timeouts + c.probes_out + c.resends), 0);
}

#[test]
#[cfg_attr(miri, ignore = "half a minute of packets in code without unsafe blocks")]
fn a_stop_of_both_ends_at_any_step_is_a_cut() {
    for steps in (0..120).step_by(fewer(1, 60) as usize) {
        let mut net = Net::new(u64::from(steps), 2, &config(), Faults::NONE);
        net.stop_after(0, steps);
        net.stop_after(1, steps / 2);
        net.send(0, 1, 60);
        net.send(1, 0, 60);
        net.run(500_000);
        net.check_cut();
        net.resume(1);
        net.run(30_000);
        net.check_cut();
        net.resume(0);
        net.settle(600_000);
        assert_eq!(net.total(|c| c.resends), 0, "nothing was lost");
    }
}

#[test]
fn what_has_arrived_is_never_sent_again() {
    // As long as packets do not overtake each other, whatever is lost and whoever is stopped.
    for seed in 0..fewer(30, 1) {
        let mut random = Random(seed);
        let faults = Faults { loss: 10 * random.below(31) as u32, ..Faults::NONE };
        let mut net = Net::new(seed, 3, &config(), faults);
        for _ in 0..fewer(30, 5) {
            net.all_to_all(random.below(10));
            let rank = random.below(3) as usize;
            match random.below(4) {
                0 => net.stop(rank),
                1 => net.stop_after(rank, random.below(40) as u32),
                _ => net.resume(rank),
            }
            net.run(random.below(30_000));
        }
        net.settle(60_000_000);
        assert_eq!(net.total(|c| c.duplicates), 0, "seed {seed}");
        let lost = net.total(|c| c.data_out) - net.total(|c| c.data_in);
        assert_eq!(net.total(|c| c.resends), lost, "seed {seed}");
    }
}

#[test]
fn a_stop_gives_no_round_trip() {
    let mut net = Net::new(4, 2, &config(), Faults::NONE);
    net.send(0, 1, 50);
    net.run(10_000);
    for _ in 0..5 {
        net.send(0, 1, 20);
        net.run(5);
        net.stop(0);
        net.stop(1);
        net.run(100_000);
        net.resume(0);
        net.resume(1);
        net.run(10_000);
    }
    // Lose a packet: the timeout is still the least one, not that of the stops.
    net.partition(1);
    net.send(0, 1, 1);
    net.run(100);
    net.heal();
    let start = net.now;
    while !net.settled() {
        net.run(100);
    }
    assert!(net.now - start < 8_000, "recovered after {} us", net.now - start);
}

#[test]
fn a_socket_that_overflows_while_stopped_recovers() {
    let mut net = Net::new(5, 3, &config(), Faults::NONE);
    net.socket_limit = 10;
    net.stop(2);
    net.send(0, 2, fewer(500, 25));
    net.send(1, 2, fewer(500, 25));
    net.run(400_000);
    net.check_cut();
    net.settle(2_000_000);
    // Only what the socket had no room for is sent again, and some of it more than once while the
    // two compete for ten places.
    assert!(net.total(|c| c.resends) < 1_000);
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn a_full_receiver_blocks_nobody_else() {
    let mut net = Net::new(6, 3, &config(), Faults { loss: 20, ..Faults::NONE });
    net.set_full(1, true);
    net.send(0, 1, 300);
    net.send(0, 2, 300);
    net.run(1_000_000);
    net.check_cut();
    assert_eq!((net.delivered(0, 1), net.delivered(0, 2)), (0, 300));
    let before = net.packets_to[1];
    net.run(1_000_000);
    let tries = net.packets_to[1] - before;
    assert!((10..=300).contains(&tries), "{tries} packets in a second to a full receiver");
    net.settle(1_000_000);
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn a_receiver_that_is_often_full() {
    for seed in 0..5 {
        let mut net = Net::new(seed, 3, &config(), Faults { loss: 100, ..Faults::HEAVY });
        for rank in 0..3 {
            net.set_refuse(rank, 300);
        }
        net.all_to_all(100);
        net.settle(60_000_000);
        assert!(net.total(|c| c.refused) > 50);
    }
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn little_room_for_early_packets() {
    let config = Config { reorder_packets: 2, ..config() };
    let mut net = Net::new(7, 4, &config, Faults { loss: 200, ..Faults::HEAVY });
    net.all_to_all(100);
    net.settle(60_000_000);
    assert!(net.total(|c| c.out_of_order_dropped) > 0);
}

#[test]
fn strangers_are_counted_and_change_nothing() {
    let mut random = Random(8);
    let mut net = Net::new(8, 2, &config(), Faults::NONE);
    net.all_to_all(fewer(200, 5));
    let strangers = fewer(500, 40);
    for _ in 0..strangers {
        let length = random.below(200);
        net.inject(random.below(2) as usize, (0..length).map(|_| random.next() as u8).collect());
        net.run(20);
    }
    net.settle(1_000_000);
    assert_eq!(net.total(|c| c.dropped_in_all()), strangers);
    assert_eq!(net.total(|c| c.resends), 0);
}

#[derive(Clone, Debug)]
enum Action {
    Send { from: usize, to: usize, frames: u64 },
    Run(u64),
    Stop(usize),
    StopAfter(usize, u32),
    Resume(usize),
    Partition(u64),
    Heal,
    Full(usize, bool),
}

const RANKS: usize = 4;

fn action() -> impl Strategy<Value = Action> {
    let rank = 0..RANKS;
    prop_oneof![
        4 => (rank.clone(), rank.clone(), 1..fewer(80, 5))
            .prop_map(|(from, to, frames)| Action::Send { from, to, frames }),
        4 => (1..20_000u64).prop_map(Action::Run),
        1 => (20_000..2_000_000u64).prop_map(Action::Run),
        1 => rank.clone().prop_map(Action::Stop),
        2 => (rank.clone(), 0..60u32).prop_map(|(rank, steps)| Action::StopAfter(rank, steps)),
        2 => rank.clone().prop_map(Action::Resume),
        1 => (1..15u64).prop_map(Action::Partition),
        1 => Just(Action::Heal),
        1 => (rank, any::<bool>()).prop_map(|(rank, full)| Action::Full(rank, full)),
    ]
}

fn faults() -> impl Strategy<Value = Faults> {
    (0..=300u32, 0..=200u32, 0..=100u32, 1..=500u64, 0..=500u64).prop_map(
        |(loss, double, corrupt, delay, jitter)| Faults { loss, double, corrupt, delay, jitter },
    )
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 96,
        max_shrink_iters: 200,
        failure_persistence: None,
        rng_seed: proptest::test_runner::RngSeed::Fixed(1),
        ..ProptestConfig::default()
    })]

    /// Exactly once and in order (the harness checks every frame), bounded memory and right counters at
    /// every cut, and everything arrives once all is well again.
    #[test]
    fn whatever_happens(
        seed in any::<u64>(),
        faults in faults(),
        socket_limit in prop_oneof![Just(usize::MAX), 5..60usize],
        script in prop::collection::vec(action(), 1..fewer(40, 20) as usize),
        encrypted in any::<bool>(),
    ) {
        let mut net = Net::with(seed, RANKS as u32, &config(), faults, encrypted);
        net.socket_limit = socket_limit;
        for action in script {
            match action {
                Action::Send { from, to, frames } if from != to => net.send(from, to, frames),
                Action::Send { .. } => {}
                Action::Run(time) => net.run(time),
                Action::Stop(rank) => net.stop(rank),
                Action::StopAfter(rank, steps) => net.stop_after(rank, steps),
                Action::Resume(rank) => net.resume(rank),
                Action::Partition(side) => net.partition(side),
                Action::Heal => net.heal(),
                Action::Full(rank, full) => net.set_full(rank, full),
            }
            net.check_cut();
        }
        net.settle(120_000_000);
    }
}
