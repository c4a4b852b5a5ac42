//! Ranks on two sides of a router whose links carry shorter packets than theirs.
#![forbid(unsafe_code)]

use kumi_tests::binaries;
use kumi_tests::cluster::TestCluster;
use kumi_tests::faults::{Router, possible};

/// A verified run of a kernel on both nodes.
#[track_caller]
fn verifies(cluster: &TestCluster, ranks: &str, kernel: &str) {
    let path = binaries::path(kernel).display().to_string();
    let args = ["run", "-n", ranks, "--nodes", "2", &*path, "--class", "S"];
    let out = cluster.kumi(&args).ok().out;
    assert!(out.contains("verified=yes"), "{out}");
}

#[test]
fn a_router_says_that_packets_are_too_long() {
    if !possible("a_router_says_that_packets_are_too_long") {
        return;
    }
    let cluster = TestCluster::up(2);
    let router = Router::make(&cluster, 1_280);
    verifies(&cluster, "2", "ft");
    let lost = router.counter("FragFails");
    assert!(lost > 0, "no packet was too long");
    assert_eq!(router.counter("FragOKs"), 0, "packets are sent to arrive whole");
    // The kernel remembers what the router said, and ranks ask it.
    verifies(&cluster, "4", "is");
    verifies(&cluster, "2", "ft");
    assert_eq!((router.counter("FragFails"), router.counter("FragOKs")), (lost, 0));
}

/// Routers of IPv6 never fragment: what is too long is dropped, and its sender told.
#[test]
fn a_router_of_ipv6_says_that_packets_are_too_long() {
    if !possible("a_router_of_ipv6_says_that_packets_are_too_long") {
        return;
    }
    let cluster = TestCluster::up_with(2, &["--ipv6"]);
    let router = Router::make(&cluster, 1_280);
    verifies(&cluster, "2", "ft");
    let lost = router.counter("FragFails");
    assert!(lost > 0, "no packet was too long");
    verifies(&cluster, "4", "ft");
    verifies(&cluster, "2", "ft");
    assert_eq!(router.counter("FragFails"), lost, "ranks ask the kernel, which remembers");
}

#[test]
fn a_router_drops_long_packets_and_says_nothing() {
    if !possible("a_router_drops_long_packets_and_says_nothing") {
        return;
    }
    let cluster = TestCluster::up(2);
    let router = Router::make(&cluster, 1_280);
    if !router.silence() {
        return kumi_skip::skip(
            "a_router_drops_long_packets_and_says_nothing",
            "iptables has no match u32 here",
        );
    }
    verifies(&cluster, "2", "ft");
    assert!(router.silenced() > 0, "no packet was too long");
    // What had been cut before that was found: at most a ring of each rank, of a stream far longer than it.
    let fragmented = router.counter("FragOKs");
    assert!((1..=2_048).contains(&fragmented), "{fragmented} packets went in fragments");
    // With more than one rank to talk to.
    verifies(&cluster, "4", "is");
}

/// The daemons' connections too: a job's output, and its program, come through.
#[test]
fn a_router_says_nothing_to_daemons_either() {
    if !possible("a_router_says_nothing_to_daemons_either") {
        return;
    }
    let cluster = TestCluster::up(2);
    let router = Router::make(&cluster, 1_280);
    router.silence_all();
    // Twice a megabyte, half of it from the other node; whoever writes it does not end before it is taken.
    let script = "head -c 1000000 /dev/zero | tr '\\0' x";
    let out = cluster.kumi(&["run", "-n", "2", "--nodes", "2", "sh", "-c", script]).ok().out;
    assert_eq!(out.matches('x').count(), 2_000_000);
    assert_eq!(router.counter("FragFails"), 0, "daemons send what fits");
    verifies(&cluster, "2", "ft");
}
