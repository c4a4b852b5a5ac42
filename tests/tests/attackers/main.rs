//! Attackers on the wire and within a node, while a job runs that compares its memory with a reference.
#![forbid(unsafe_code)]

mod segment;
mod wire;

use kumi_tests::binaries;
use kumi_tests::cluster::{TestCluster, Wire};
use kumi_tests::command::wait_for;
use kumi_tests::faults::possible;
use wire::{Attacker, DATAGRAM};

/// Bytes of a long packet that its checksum covers with `--checksum headers`.
const COVERED: usize = 128;

/// The highest sum over the ranks of a counter so far, from `kumi stats`.
fn counter(cluster: &TestCluster, name: &str) -> u64 {
    let stats = cluster.json(&["stats", "--json"]);
    let nodes = stats["nodes"].as_array().into_iter().flatten();
    let ranks = nodes.flat_map(|node| node["ranks"].as_array().into_iter().flatten());
    ranks.filter_map(|rank| rank["counters"][name].as_u64()).sum()
}

fn soak(rounds: &str) -> [String; 3] {
    let program = binaries::path("kumi-bench-soak").display().to_string();
    [program, "--rounds".to_owned(), rounds.to_owned()]
}

/// A verified job of four ranks on nodes 0 and 1 while the third node sends them what it sees on the wire.
fn survives_the_wire(test: &str, driver: Wire, options: &[&str], reach: usize) {
    if !possible(test) {
        return;
    }
    let cluster = TestCluster::up_with(3, &driver.options());
    let enough = cluster.state().join("enough").display().to_string();
    let words = soak("1");
    let mut args = vec!["run", "-n", "4", "--nodes", "2", "--name", "victim"];
    args.extend(options);
    args.extend(words.iter().map(String::as_str));
    args.extend(["--until", &enough]);
    let switch = format!("kumi-{}-sw", cluster.name());
    let node = cluster.namespace(2).expect("three namespaces");
    let attacker = Attacker::start(&switch, &node, reach);
    let job = cluster.start(&args);
    cluster.wait_state("victim", "running");
    let mut most = [0; 3];
    wait_for("packets that were dropped", || {
        let now = ["invalid", "duplicates", "xdp_dropped"].map(|name| counter(&cluster, name));
        most = std::array::from_fn(|at| most[at].max(now[at]));
        let dropped = driver == Wire::Udp || most[2] > 100;
        (most[0] > 100 && most[1] > 10 && dropped).then_some(())
    });
    std::fs::write(&enough, "").expect("the sign that it is enough");
    let out = job.finish().ok().out;
    let sent = attacker.finish();
    assert!(is_verified(&out), "{out}");
    assert_eq!(by_af_xdp(&out) > 0, driver == Wire::Xdp, "{out}");
    assert!(sent > most[0] + most[2], "{sent} packets were sent, {most:?} dropped");
}

/// Whether a [`soak`] has found all memory as it should be.
fn is_verified(out: &str) -> bool {
    out.lines().any(|line| line == "Verification SUCCESSFUL")
}

/// Frames of a [`soak`] that came by AF_XDP.
fn by_af_xdp(out: &str) -> u64 {
    let frames = out.lines().find_map(|line| line.strip_prefix("frames_by_af_xdp "));
    frames.and_then(|count| count.parse().ok()).expect("a count of frames")
}

#[test]
fn what_is_sent_again_or_changed_on_the_wire() {
    let test = "what_is_sent_again_or_changed_on_the_wire";
    survives_the_wire(test, Wire::Udp, &["--checksum", "all"], DATAGRAM);
}

#[test]
fn what_is_sent_again_or_changed_on_a_wire_with_af_xdp() {
    let test = "what_is_sent_again_or_changed_on_a_wire_with_af_xdp";
    survives_the_wire(test, Wire::Xdp, &["--checksum", "all"], DATAGRAM);
}

/// Against somebody who reads the wire and changes the later bytes of long packets before they arrive, the usual
/// checksum promises nothing; of all before them it does.
#[test]
fn what_is_sent_again_or_changed_in_what_the_usual_checksum_covers() {
    let test = "what_is_sent_again_or_changed_in_what_the_usual_checksum_covers";
    survives_the_wire(test, Wire::Udp, &["--checksum", "headers"], COVERED);
}

#[test]
fn what_is_sent_again_or_changed_in_what_the_usual_checksum_covers_with_af_xdp() {
    let test = "what_is_sent_again_or_changed_in_what_the_usual_checksum_covers_with_af_xdp";
    survives_the_wire(test, Wire::Xdp, &["--checksum", "headers"], COVERED);
}

#[test]
fn what_is_sent_again_or_changed_of_an_encrypted_job() {
    let test = "what_is_sent_again_or_changed_of_an_encrypted_job";
    survives_the_wire(test, Wire::Udp, &["--encrypt"], DATAGRAM);
}

#[test]
fn what_is_sent_again_or_changed_of_an_encrypted_job_with_af_xdp() {
    let test = "what_is_sent_again_or_changed_of_an_encrypted_job_with_af_xdp";
    survives_the_wire(test, Wire::Xdp, &["--encrypt"], DATAGRAM);
}
