//! Both ack modes between real processes, and the packets as the daemon sees them.
#![cfg(not(miri))] // Ranks have one environment there.

mod common;

use common::{Job, start};
use kumi_mem::{Context, Source, Tag};

const ROUNDS: u64 = 300;

/// Rank 0 serves pages of 4,096 bytes to all others, which ask with 64 bytes each time; afterwards every
/// rank looks at its own counters.
fn pages(context: &Context) {
    let clients = context.ranks() - 1;
    if context.rank() == 0 {
        for _ in 0..ROUNDS * u64::from(clients) {
            let mut ask = [0; 64];
            let got = context.recv(Source::Any, Tag::Is(1), &mut ask).expect("request");
            let mut page = [ask[0]; 4096];
            page[..8].copy_from_slice(&ask[8..16]);
            context.send(got.from, 2, &page).expect("page");
        }
    } else {
        for round in 0..ROUNDS {
            let mut ask = [context.rank() as u8; 64];
            ask[8..16].copy_from_slice(&round.to_le_bytes());
            context.send(0, 1, &ask).expect("ask");
            let mut page = [0; 4096];
            context.recv(Source::Rank(0), Tag::Is(2), &mut page).expect("page");
            assert_eq!((page[..8].as_ref(), page[8]), (ask[8..16].as_ref(), ask[0]));
        }
    }
    let counters = context.counters();
    let of = |name| counters.iter().find(|(key, _)| *key == name).expect("counter").1;
    assert!(of("data_out") >= ROUNDS && of("bytes_in") > 64 * ROUNDS);
    assert_eq!(of("packets_in"), of("data_in") + of("acks_in") + of("nacks_in") + of("probes_in"));
    assert!(of("waits_spun") + of("waits_blocked") > 0);
}

/// All packets of a job of a server and two clients, which is over, by name; checks that the counts by
/// peer add up.
fn packets(name: &str, ack: &str) -> Box<dyn Fn(&str) -> u64> {
    let env = &[("KUMI_ACK", ack)];
    let job = Job { layout: &[1, 2], max_datagram: 8_972, env, ..Job::default() };
    let mut running = start(name, &job, pages);
    running.wait();
    for (rank, peers) in [(0, vec![1, 2]), (1, vec![0]), (2, vec![0])] {
        let seen = running.peers(rank);
        let mut ranks: Vec<u32> = seen.iter().filter_map(|peer| peer.rank).collect();
        ranks.sort_unstable();
        assert_eq!(ranks, peers, "peers of rank {rank}");
        let sample = running.sample(rank);
        let sum = |of: fn(&kumi_net::PeerCounters) -> u64| seen.iter().map(of).sum::<u64>();
        let of = |name| common::counter(&sample, name);
        assert_eq!(sum(|p| p.data_out), of("data_out"));
        assert_eq!(sum(|p| p.acks_in), of("acks_in"));
        assert_eq!(sum(|p| p.bytes_in), of("bytes_in"));
        assert_eq!(sum(|p| p.unacked_packets), of("unacked_packets"));
        assert!(seen.iter().all(|peer| peer.round_trip_us > 0));
    }
    Box::new(move |name| running.total(name))
}

#[test]
fn a_reply_is_the_ack() {
    let total = packets("a_reply_is_the_ack", "reduced");
    assert_eq!(total("data_in"), total("delivered") + total("duplicates"));
    let (acks, data) = (total("acks_out"), total("data_in"));
    assert!(acks < data / 4, "most acks ride: {acks} for {data} packets");
}

#[test]
fn every_packet_is_acked_by_itself() {
    let total = packets("every_packet_is_acked_by_itself", "per-message");
    let answers = total("acks_out") + total("nacks_out");
    assert!(answers >= total("data_in") && total("data_in") >= 4 * ROUNDS, "{answers}");
}

/// In any layout of the job, also where the setting has no effect.
#[test]
fn senseless_settings_are_refused() {
    if common::is_rank() {
        let error = Context::init().expect_err("a setting that there is not").to_string();
        let expected = std::env::var("EXPECTED").expect("what the error says");
        assert!(error.contains(&expected), "{error}");
        std::process::exit(0);
    }
    let name = "senseless_settings_are_refused";
    let arguments = [name, "--exact", "--nocapture", "--test-threads=1"];
    for (setting, expected) in [
        ("KUMI_ACK", "reduced or per-message"),
        ("KUMI_FAULTS", "loss=N"),
        ("KUMI_HANDLER", "other, rr or fifo"),
        ("KUMI_SPIN", "adaptive"),
        ("KUMI_UNEXPECTED_BYTES", "a number of bytes"),
    ] {
        let env = &[(setting, "sometimes"), ("EXPECTED", expected)];
        for layout in [&[2][..], &[1, 1]] {
            common::launch(&arguments, &Job { layout, env, ..Job::default() }).wait();
        }
    }
}
