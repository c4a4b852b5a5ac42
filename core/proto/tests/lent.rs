//! Zero-copy sends: every byte arrives, and the endpoint asks for no byte that is no longer lent. The
//! simulated program loses its memory when it takes it back, and notices such a request.

use crate::sim::{Faults, Net, config, fewer};
use kumi_proto::wire::{COVERED_BYTES, HEADER_BYTES};
use kumi_proto::{ChannelKey, Checksum, Config, Endpoint, SealKey, SendError};
use proptest::prelude::*;

const KEY: ChannelKey = ChannelKey(7);
/// No corruption: UDP's checksum drops such packets.
const WORST: Faults = Faults { corrupt: 0, ..Faults::HEAVY };

fn long() -> Config {
    Config { max_datagram: 1_000, lend_least: 256, ..config() }
}

fn pieces(net: &Net) -> (u64, u64) {
    let lenders = net.nodes.iter().filter_map(|node| node.lender.as_ref());
    lenders.fold((0, 0), |(pieces, copied), one| (pieces + one.pieces, copied + one.copied))
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn what_is_lent_arrives_over_a_terrible_wire() {
    for seed in 0..10 {
        let mut net = Net::new(seed, 3, &long(), WORST);
        net.lend();
        net.all_to_all(150);
        for _ in 0..100 {
            net.run(1_000);
            net.check_cut();
        }
        net.settle(60_000_000);
        let (pieces, copied) = pieces(&net);
        assert!(pieces > 300 && copied > 20, "{pieces} left in pieces, {copied} were taken back");
        assert!(net.total(|c| c.resends) > 0);
        assert!(net.nodes.iter().all(|node| node.endpoint.lent() == 0), "acked or taken back");
    }
}

#[test]
fn nothing_is_lent_where_packets_are_looked_at_whole() {
    let all = Config { checksum: Checksum::All, ..long() };
    let cases = [(all, false), (long(), true)];
    // There the second would not be encrypted.
    for (config, encrypted) in cases.into_iter().take(fewer(2, 1) as usize) {
        let mut net = Net::with(5, 2, &config, WORST, encrypted);
        net.lend();
        net.all_to_all(fewer(100, 4));
        net.settle(60_000_000);
        assert_eq!(pieces(&net), (0, 0));
    }
}

fn endpoint() -> Endpoint {
    Endpoint::new(Config { lend_least: 256, ..Config::default() }, 0, 2, KEY).unwrap()
}

/// The copied part, the lent part, and the end of lending.
#[test]
fn a_frame_is_lent_until_it_is_acked_or_taken_back() {
    let mut endpoint = endpoint();
    let data: Vec<u8> = (0..=255).cycle().take(1_000).collect();
    endpoint.send_lent(0, 1, &[9; 24], &data[..], 5_000).unwrap();
    let head = COVERED_BYTES;
    let copied = head - HEADER_BYTES - 24;
    let transmit = endpoint.poll_transmit(1).unwrap();
    assert_eq!((transmit.pieces.len(), transmit.segment), (1, HEADER_BYTES + 1_024));
    let piece = transmit.pieces[0];
    assert_eq!((piece.head, piece.rest), (head, 1_000 - copied));
    assert_eq!(piece.place, 5_000 + copied as u64);
    let bytes = &transmit.bytes[piece.at..piece.at + piece.head];
    assert_eq!(bytes[HEADER_BYTES..HEADER_BYTES + 24], [9; 24]);
    assert_eq!(bytes[HEADER_BYTES + 24..], data[..copied]);
    // It has left, but nobody has acked it.
    assert_eq!(endpoint.lent(), 1);
    // Elsewhere, of another rank, behind it: nothing.
    endpoint.take_back(0, &(0..u64::MAX), |_, _| panic!("to another rank"));
    endpoint.take_back(9, &(0..u64::MAX), |_, _| panic!("no such rank"));
    endpoint.take_back(1, &(6_000..u64::MAX), |_, _| panic!("elsewhere"));
    assert_eq!(endpoint.lent(), 1);
    let mut taken = Vec::new();
    endpoint.take_back(1, &(5_000..6_000), |place, room| taken.push((place, room.len())));
    assert_eq!(taken, [(5_000 + copied as u64, 1_000 - copied)]);
    assert_eq!(endpoint.lent(), 0);
    assert!(!endpoint.flushed(1));
}

#[test]
#[cfg_attr(miri, ignore = "the cipher is assembly")]
fn short_frames_are_copied_and_long_ones_refused() {
    let mut endpoint = endpoint();
    for length in [0, 1, 200, 300] {
        endpoint.send_lent(0, 1, &[1; 24], &vec![2; length][..], 1).unwrap();
    }
    assert_eq!(endpoint.lent(), 0);
    let most = endpoint.max_frame();
    let refused = endpoint.send_lent(0, 1, &[1; 24], &vec![2; most - 23][..], 1);
    assert_eq!(refused, Err(SendError::TooLong { length: most + 1, most }));
    endpoint.send_lent(0, 1, &[1; 24], &vec![2; most - 24][..], 1).unwrap();
    assert_eq!((endpoint.lent(), endpoint.unacked().0), (1, 5));
    for _ in 5..128 {
        endpoint.send_lent(0, 1, &[1; 24], &vec![2; most - 24][..], 1).unwrap();
    }
    assert_eq!(endpoint.send_lent(0, 1, &[], &[2; 1_000][..], 1), Err(SendError::Full));
    assert_eq!(endpoint.lent(), 124);
    let config = Config { lend_least: 256, ..Config::default() };
    let mut sealed = Endpoint::encrypted(config, 0, 2, KEY, &SealKey([1; 16])).unwrap();
    sealed.send_lent(0, 1, &[1; 24], &[2; 1_000][..], 1).unwrap();
    assert_eq!(sealed.lent(), 0);
}

#[test]
#[cfg_attr(miri, ignore = "the cipher is assembly")]
fn lending_is_for_long_packets() {
    for (max_datagram, lends) in [(1_472, false), (8_972, true)] {
        let config = Config { max_datagram, window: 32, ..Config::default() };
        let mut endpoint = Endpoint::new(config.clone(), 0, 2, KEY).unwrap();
        assert_eq!(endpoint.lends(), lends);
        let data = vec![1; endpoint.max_frame() - 24];
        endpoint.send_lent(0, 1, &[1; 24], &data[..], 1).unwrap();
        assert_eq!(endpoint.lent() > 0, lends);
        let all = Config { checksum: Checksum::All, ..config.clone() };
        assert!(!Endpoint::new(all, 0, 2, KEY).unwrap().lends());
        assert!(!Endpoint::encrypted(config, 0, 2, KEY, &SealKey([1; 16])).unwrap().lends());
    }
    assert!(Endpoint::new(Config { lend_least: 0, ..Config::default() }, 0, 2, KEY).is_err());
}

/// A run takes packets that are lent and, behind them, such as are not; never the other way round.
#[test]
fn runs_of_lent_packets_leave_together() {
    let mut endpoint = endpoint();
    let full = endpoint.max_frame();
    endpoint.send(0, 1, &[&vec![3; full]]).unwrap();
    for _ in 0..3 {
        endpoint.send_lent(0, 1, &[1; 24], &vec![2; full - 24][..], 1).unwrap();
    }
    endpoint.send(0, 1, &[&[3; 10]]).unwrap();
    let mut runs = Vec::new();
    while let Some(transmit) = endpoint.poll_transmit(0) {
        runs.push((transmit.pieces.len(), transmit.pieces.last().map(|piece| piece.rest)));
    }
    assert_eq!(runs, [(0, None), (4, Some(0))]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]

    #[test]
    fn any_wire_any_stop(
        seed in any::<u64>(),
        loss in 0u32..400,
        double in 0u32..200,
        jitter in 0u64..500,
        stops in prop::collection::vec((0usize..2, 0u32..40), 0..6),
    ) {
        let faults = Faults { loss, double, corrupt: 0, delay: 20, jitter };
        let mut net = Net::new(seed, 2, &long(), faults);
        net.lend();
        net.all_to_all(fewer(120, 6));
        for (rank, steps) in stops {
            net.stop_after(rank, steps);
            net.run(2_000);
            net.check_cut();
            net.resume(rank);
            net.run(500);
        }
        net.settle(60_000_000);
    }
}
