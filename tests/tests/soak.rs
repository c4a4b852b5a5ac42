//! All operations mixed while packets are lost: memory is as it should be at the end, and does not grow.
#![forbid(unsafe_code)]

use kumi_tests::binaries;
use kumi_tests::cluster::{TestCluster, Wire};
use kumi_tests::faults::{lose, lose_on_the_way, lost, lost_on_the_way, possible};

/// How often everything is done, each time with other steps: `make soak` asks for more than once, and then
/// each run is longer too.
fn runs() -> u64 {
    let told = std::env::var("KUMI_SOAK_RUNS").ok();
    told.map_or(1, |text| text.parse().expect("KUMI_SOAK_RUNS is a number"))
}

/// Runs the soak on two nodes with two ranks each. What it said.
#[track_caller]
fn soak(cluster: &TestCluster, options: &[&str], seed: u64) -> String {
    let program = binaries::path("kumi-bench-soak").display().to_string();
    let (seed, rounds) = (seed.to_string(), if runs() > 1 { "300" } else { "60" });
    let mut args = vec!["run", "-n", "4", "--nodes", "2"];
    args.extend(options);
    args.extend([&*program, "--rounds", rounds, "--seed", &seed]);
    let out = cluster.kumi(&args).ok().out;
    assert!(out.lines().any(|line| line == "Verification SUCCESSFUL"), "{out}");
    out
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
    for run in 0..runs() {
        soak(&cluster, &[], 10 * run + 1);
        soak(&cluster, &["--encrypt"], 10 * run + 2);
        soak(&cluster, &["--ack", "per-message"], 10 * run + 3);
    }
    assert!(lost(&cluster, 0) > 50 && lost(&cluster, 1) > 50, "hardly a packet was lost");
}

/// Frames of AF_XDP pass no filter of their nodes, so the switch loses them.
#[test]
fn five_per_cent_lost_under_all_operations_with_af_xdp() {
    const TEST: &str = "five_per_cent_lost_under_all_operations_with_af_xdp";
    if !possible(TEST) {
        return;
    }
    let cluster = TestCluster::up_with(2, &Wire::Xdp.options());
    if !lose_on_the_way(&cluster, "0.05") {
        return kumi_skip::skip(TEST, "bridges have no filter (br_netfilter)");
    }
    for run in 0..runs() {
        for (options, seed) in [(&[][..], 5), (&["--encrypt"], 6), (&["--ack", "per-message"], 7)] {
            let out = soak(&cluster, options, 10 * run + seed);
            assert!(!out.lines().any(|line| line == "frames_by_af_xdp 0"), "{out}");
        }
    }
    assert!(lost_on_the_way(&cluster) > 100, "hardly a packet was lost");
}

#[test]
fn all_operations_on_a_good_wire() {
    soak(&TestCluster::up(2), &[], 4);
}
