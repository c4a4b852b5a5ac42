//! All operations mixed while packets are lost: memory is as it should be at the end, and does not grow.
#![forbid(unsafe_code)]

use kumi_tests::binaries;
use kumi_tests::cluster::TestCluster;
use kumi_tests::faults::{lose, lost, possible};

/// Rounds; `make soak` asks for more.
fn rounds() -> String {
    std::env::var("KUMI_SOAK_ROUNDS").unwrap_or_else(|_| "60".to_owned())
}

/// Runs the soak on two nodes with two ranks each.
#[track_caller]
fn soak(cluster: &TestCluster, options: &[&str], seed: &str) {
    let (program, rounds) = (binaries::path("kumi-bench-soak").display().to_string(), rounds());
    let mut args = vec!["run", "-n", "4", "--nodes", "2"];
    args.extend(options);
    args.extend([&*program, "--rounds", &rounds, "--seed", seed]);
    let out = cluster.kumi(&args).ok().out;
    assert!(out.lines().any(|line| line == "Verification SUCCESSFUL"), "{out}");
}

#[test]
fn five_per_cent_lost_under_all_operations() {
    if !possible("five_per_cent_lost_under_all_operations") {
        return;
    }
    let cluster = TestCluster::up(2);
    for node in 0..2 {
        lose(&cluster, node, "0.05");
    }
    soak(&cluster, &[], "1");
    soak(&cluster, &["--encrypt"], "2");
    soak(&cluster, &["--ack", "per-message"], "3");
    assert!(lost(&cluster, 0) > 50 && lost(&cluster, 1) > 50, "hardly a packet was lost");
}

#[test]
fn all_operations_on_a_good_wire() {
    soak(&TestCluster::up(2), &[], "4");
}
