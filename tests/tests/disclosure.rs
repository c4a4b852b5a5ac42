//! What daemons disclose to ranks, and waits that ask it.
#![forbid(unsafe_code)]

use kumi_tests::binaries;
use kumi_tests::cluster::TestCluster;
use kumi_tests::command;

fn program(name: &str) -> String {
    binaries::path(name).display().to_string()
}

#[test]
fn every_rank_learns_of_every_node_and_rank() {
    let cluster = TestCluster::up(4);
    let run = ["run", "-n", "6", "--nodes", "3", &program("machine"), "--patience", "60"];
    // It fails unless all ranks have heard of all.
    let out = cluster.kumi(&run).ok().out;
    for line in 0..4 {
        assert!(out.contains(&format!("node {line}: ")), "{out}");
    }
    assert!(out.contains("here: 2 ranks") && out.contains("scheduled"), "{out}");
    for rank in 0..6 {
        assert!(out.contains(&format!("rank {rank} on node {}: ", rank / 2)), "{out}");
    }
}

/// A counter of all ranks together.
fn total(cluster: &TestCluster, name: &str) -> u64 {
    let stats = cluster.json(&["stats", "--json"]);
    let nodes = stats["nodes"].as_array().expect("nodes");
    let ranks = nodes.iter().flat_map(|node| node["ranks"].as_array().expect("ranks"));
    ranks.filter_map(|rank| rank["counters"][name].as_u64()).sum()
}

#[test]
fn waits_give_way_to_other_jobs_only_where_these_can_run() {
    // Otherwise others may have what a job leaves in its turns.
    let cluster = TestCluster::up_with(2, &["--fill", "off"]);
    let lockstep = program("lockstep");
    let run = ["run", "-n", "2", "--nodes", "2", &lockstep, "--seconds", "1000000"];
    let jobs = [cluster.start(&run), cluster.start(&run)];
    command::wait_for("waits of both jobs", || {
        (total(&cluster, "waits_blocked") > 5).then_some(())
    });
    // A slice is one job's alone.
    assert_eq!(total(&cluster, "blocked_others"), 0);
    cluster.kumi(&["cluster", "set", "--policy", "os"]).ok();
    command::wait_for("waits that give way", || {
        (total(&cluster, "blocked_others") > 5).then_some(())
    });
    // A job that was stopped wants no processor.
    cluster.kumi(&["kill", "2", "--signal", "STOP"]).ok();
    command::wait_for("waits beside a stopped job", || {
        let [others, spun] = ["blocked_others", "waits_spun"].map(|name| total(&cluster, name));
        command::wait_for("more waits", || {
            (total(&cluster, "waits_spun") > spun + 1_000).then_some(())
        });
        (total(&cluster, "blocked_others") == others).then_some(())
    });
    drop(jobs);
}
