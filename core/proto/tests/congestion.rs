//! Channels through one slow link: queues stay short, the link stays busy, channels share it. Waits
//! that the network does not cause change nothing.
#![cfg(not(miri))] // A link is filled by ten thousands of packets.

use crate::sim::{Faults, Link, Net, config};
use kumi_proto::Config;

/// Nanoseconds that a byte takes on the link: 12.5 MB/s.
const BYTE: u64 = 80;

fn settings(queue_target: u64) -> Config {
    Config { window: 128, max_datagram: 512, queue_target, late: 5_000, ..config() }
}

fn net(seed: u64, ranks: u32, delay: u64, queue_target: u64) -> Net {
    let mut net = Net::new(seed, ranks, &settings(queue_target), Faults { delay, ..Faults::NONE });
    net.link = Some(Link { to: 0, byte: BYTE, queue: 200_000 });
    net
}

struct Seen {
    /// Permille of the link's time in which it was busy.
    busy: u64,
    /// Longest wait before the link, in microseconds.
    longest: u64,
    /// Frames delivered, by sender.
    shares: Vec<u64>,
}

/// All others send to rank 0, each beginning some milliseconds after the one before, and what passes
/// in the last `time` microseconds.
fn watch(net: &mut Net, time: u64) -> Seen {
    let senders = 1..net.nodes.len();
    for from in senders.clone() {
        net.send(from, 0, 1_000_000);
        net.run(17_000);
    }
    net.run(250_000);
    (net.passed.longest, net.passed.bytes) = (0, 0);
    let before: Vec<u64> = senders.clone().map(|from| net.delivered(from, 0)).collect();
    net.run(time);
    let shares = senders.map(|from| net.delivered(from, 0) - before[from - 1]).collect();
    assert_eq!((net.passed.lost, net.total(|c| c.resends)), (0, 0));
    Seen { busy: net.passed.bytes * BYTE / time, longest: net.passed.longest, shares }
}

#[test]
fn a_lone_channel_fills_the_link_with_a_short_queue() {
    for delay in [20, 200] {
        let uncontrolled = watch(&mut net(1, 2, delay, 0), 140_000);
        let seen = watch(&mut net(1, 2, delay, 500), 140_000);
        assert!(uncontrolled.longest > 1_700, "{} us", uncontrolled.longest);
        assert!(seen.busy >= 950, "{} of 1,000, delay {delay}", seen.busy);
        assert!(seen.longest < 1_500, "{} us in the queue, delay {delay}", seen.longest);
    }
}

#[test]
fn two_channels_share_the_link() {
    for seed in 1..3 {
        let seen = watch(&mut net(seed, 3, 20, 500), 260_000);
        assert!(seen.busy >= 950, "{} of 1,000", seen.busy);
        assert!(seen.longest < 2_000, "{} us in the queue", seen.longest);
        let (least, most) =
            (seen.shares[0].min(seen.shares[1]), seen.shares[0].max(seen.shares[1]));
        assert!(most * 2 <= least * 3, "no more than 3 to 2: {:?}", seen.shares);
    }
}

#[test]
fn eight_channels_share_the_link() {
    let uncontrolled = watch_loosely(&mut net(5, 9, 20, 0), 260_000);
    let seen = watch(&mut net(5, 9, 20, 500), 260_000);
    assert!(seen.busy >= 950, "{} of 1,000", seen.busy);
    assert!(seen.longest * 3 < uncontrolled, "{} us of {uncontrolled}", seen.longest);
    let (least, most) = (seen.shares.iter().min().unwrap(), seen.shares.iter().max().unwrap());
    assert!(*most <= *least * 2, "no more than 2 to 1: {:?}", seen.shares);
}

/// The longest wait before the link, whatever is lost.
fn watch_loosely(net: &mut Net, time: u64) -> u64 {
    (1..net.nodes.len()).for_each(|from| net.send(from, 0, 1_000_000));
    net.run(time);
    net.passed.longest
}

/// Frames that arrive in 100 ms without a slow link, while sender and receiver are stopped now and then.
fn with_stops(queue_target: u64, stop: u64) -> u64 {
    let mut net = Net::new(7, 2, &settings(queue_target), Faults { delay: 100, ..Faults::NONE });
    net.send(1, 0, 1_000_000);
    for round in 0..10 {
        net.run(8_000);
        net.stop(round % 2);
        net.run(stop);
        net.resume(round % 2);
        net.run(2_000);
    }
    net.delivered(1, 0)
}

#[test]
fn a_rank_that_is_not_scheduled_is_no_congestion() {
    for stop in [500, 3_000, 10_000, 50_000] {
        let (without, with) = (with_stops(0, stop), with_stops(500, stop));
        assert!(with * 100 >= without * 95, "{with} frames of {without}, stops of {stop} us");
    }
}
