//! `kumi stats --peers` and `kumi run --ack`.
#![forbid(unsafe_code)]

use kumi_tests::binaries;
use kumi_tests::cluster::TestCluster;
use kumi_tests::command::wait_for;
use serde_json::Value;

/// What a rank's daemon says of packets: data that came from its one peer, and acks that went there.
fn data_and_acks(rank: &Value) -> Option<(u64, u64)> {
    let peer = &rank["peers"][0];
    Some((peer["packets_in"]["data"].as_u64()?, peer["packets_out"]["acks"].as_u64()?))
}

/// What came of the packets since `before`: nothing to say yet, or whether replies did for acks. They do not
/// while the machine is so busy that a reply takes longer than an ack is held back: another time they will.
fn reduced(before: &[(u64, u64)], now: &[(u64, u64)]) -> Option<bool> {
    let since: Vec<_> = before.iter().zip(now).map(|(b, n)| (n.0 - b.0, n.1 - b.1)).collect();
    let enough = since.len() == 2 && since.iter().all(|&(data, _)| data > 1_000);
    enough.then(|| since.iter().all(|&(data, acks)| acks <= data / 2))
}

/// Ping-pong between two nodes until killed; what `kumi stats` says once many packets have passed, and
/// the job's number.
fn pingpong(cluster: &TestCluster, options: &[&str], each: bool) -> (String, Vec<Value>) {
    let program = binaries::path("pingpong").display().to_string();
    let mut words = vec!["run", "-n", "2", "--nodes", "2", "--name", "traffic"];
    words.extend(options);
    words.extend([&*program, "--mode", "send", "--sizes", "64", "--iterations", "100000000"]);
    let job = cluster.start(&words);
    let number = wait_for("the job", || {
        let jobs = cluster.json(&["ps", "--json"]);
        let jobs = jobs.as_array().expect("jobs").clone();
        jobs.into_iter().find(|job| job["state"] == "running").map(|job| job["job"].to_string())
    });
    let mut before = Vec::new();
    let ranks = wait_for("traffic between two ranks", || {
        let stats = cluster.json(&["stats", "--json", "--peers", &number]);
        let nodes = stats["nodes"].as_array().expect("nodes").clone();
        let ranks: Vec<Value> = nodes
            .iter()
            .flat_map(|node| node["ranks"].as_array().expect("ranks").clone())
            .collect();
        let now: Vec<_> = ranks.iter().filter_map(data_and_acks).collect();
        let seen = reduced(&before, &now);
        if seen.is_some() || before.len() < 2 {
            before = now;
        }
        seen.filter(|&reduced| each || reduced).map(|_| ranks)
    });
    let page = cluster.kumi(&["stats", "--peers", &number]).ok().out;
    assert!(page.contains("ROUND TRIP") && page.contains("acks_in"), "{page}");
    cluster.kumi(&["kill", &number]).ok();
    drop(job.finish());
    (number, ranks)
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is not a number"))
}

#[test]
fn packets_by_kind_and_peer_in_both_modes() {
    let cluster = TestCluster::up(2);
    for (options, each) in [(&[][..], false), (&["--ack", "per-message"], true)] {
        let (job, ranks) = pingpong(&cluster, options, each);
        for (index, rank) in ranks.iter().enumerate() {
            let peers = rank["peers"].as_array().expect("peers");
            assert_eq!(peers.len(), 1, "{rank}");
            let peer = &peers[0];
            assert_eq!(
                (number(&peer["peer"]), number(&rank["rank"])),
                (1 - index as u64, index as u64)
            );
            let (data, acks) = data_and_acks(rank).expect("counters of a peer");
            // In the one mode an ack for each packet, whatever the time.
            assert!(!each || acks > data / 2, "{acks} acks of {data} packets");
            assert!(number(&peer["bytes_in"]) > 64 * data, "{rank}");
            assert!(number(&peer["round_trip_us"]) > 0, "{rank}");
            // What an Ethernet frame takes behind the headers of IPv4 and UDP.
            assert!(number(&peer["limit_bytes"]) >= 1_472, "{rank}");
            assert_eq!(number(&peer["fragmented"]), 0, "{rank}");
            assert_eq!(number(&rank["peers_left_out"]), 0);
            let counters = &rank["counters"];
            // Read a moment before the peers.
            assert!((1..=data).contains(&number(&counters["data_in"])), "{rank}");
            assert!(
                number(&counters["waits_spun"]) + number(&counters["waits_blocked"]) > 0,
                "{rank}"
            );
        }
        cluster.kumi(&["stats", "--peers", &job]).fails(66, &[&job]);
    }
    cluster.kumi(&["stats", "--peers"]).fails(64, &[]);
    cluster.kumi(&["run", "--ack", "now", "true"]).fails(64, &["per-message"]);
    cluster.kumi(&["run", "--checksum", "none", "true"]).fails(64, &["headers", "all"]);
}
