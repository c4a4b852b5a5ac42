//! Nodes that are drained, and take jobs again.
#![forbid(unsafe_code)]

use kumi_tests::cluster::TestCluster;
use kumi_tests::{command, machine};
use nix::sys::signal::Signal;
use serde_json::Value;

/// The node in `kumi node list --json`.
#[track_caller]
fn node(cluster: &TestCluster, number: usize) -> Value {
    cluster.json(&["node", "list", "--json"])[number].clone()
}

/// Numbers of the job's nodes.
fn places(job: &Value) -> Vec<u64> {
    let parts = job["layout"].as_array().expect("parts");
    parts.iter().map(|part| part["node"].as_u64().expect("a number")).collect()
}

/// A job on the drained node goes on, and new ones pass it by. A job that needs it says so, and starts when it takes jobs again.
#[test]
fn a_node_is_drained_and_takes_jobs_again() {
    let cluster = TestCluster::up(2);
    let first = cluster.start(&["run", "-n", "2", "--nodes", "2", "--name", "first", "cat"]);
    cluster.wait_state("first", "running");
    let said = cluster.kumi(&["node", "drain", "node1", "--reason", "disk fails"]).ok().out;
    assert_eq!(said, "node1: gets no new jobs, and 1 job goes on\n");
    assert_eq!(node(&cluster, 1)["state"], "draining");
    let second = cluster.start(&["run", "--name", "second", "cat"]);
    assert_eq!(places(&cluster.wait_state("second", "running")), [0]);
    let wide = cluster.start(&["run", "-n", "2", "--nodes", "2", "--name", "wide", "true"]);
    let waits = command::wait_for("a reason", || {
        let job = cluster.job("wide")?;
        (job["waits_for"]["kind"] == "nodes_drained").then(|| job["waits_for"].clone())
    });
    assert_eq!((&waits["drained"], &waits["nodes"]), (&1.into(), &2.into()), "{waits}");
    let list = cluster.kumi(&["ps"]).ok().out;
    assert!(list.contains("1 node drained"), "{list}");

    // The job on both nodes ends as usual; then nothing is left on the drained one.
    let waiting = cluster.start(&["node", "drain", "1", "--reason", "new disk", "--wait"]);
    first.finish().ok();
    waiting.finish().ok();
    let drained = node(&cluster, 1);
    assert_eq!(
        (&drained["state"], &drained["drain"]["reason"]),
        (&"drained".into(), &"new disk".into())
    );

    // The next head knows it.
    machine::signal(cluster.pid("head"), Signal::SIGKILL);
    cluster.kumi(&["cluster", "up"]).ok();
    command::wait_for("both nodes", || (cluster.nodes_up() == 2).then_some(()));
    assert_eq!(node(&cluster, 1)["state"], "drained");
    let list = cluster.kumi(&["node", "list", "--reason"]).ok().out;
    let row = list.lines().find(|line| line.contains("node1")).expect("a row");
    assert!(row.contains("drained") && row.ends_with("new disk"), "{list}");
    let status = cluster.kumi(&["cluster", "status"]).ok().out;
    assert!(status.contains("drained"), "{status}");
    assert_eq!(cluster.job("wide").expect("known")["state"], "queued");

    cluster.kumi(&["node", "resume", "node1"]).ok();
    assert_eq!(node(&cluster, 1)["state"], "up");
    wide.finish().ok();
    drop(second);
}

#[test]
fn who_may_not_or_means_no_node_is_told() {
    let cluster = TestCluster::up(1);
    let reason = ["--reason", "x"];
    cluster
        .kumi(&[&["node", "drain", "node7"], &reason[..]].concat())
        .fails(64, &["no node node7"]);
    cluster.kumi(&["node", "drain", "node0"]).fails(64, &["--reason"]);
    cluster.kumi(&["node", "drain", "node0", "--reason", "a\nb"]).fails(64, &["one line"]);
    cluster.kumi(&["node", "resume", "7"]).fails(64, &["kumi node list"]);
    if machine::is_root() && machine::has_command("setpriv") {
        cluster.open_to_others();
        let drain = [&["node", "drain", "0"], &reason[..]].concat();
        cluster.run_as_other(&drain).fails(77, &["owner"]);
        cluster.run_as_other(&["node", "list", "--reason"]).ok();
    }
    assert_eq!(node(&cluster, 0)["state"], "up");
}
