//! Nodes that are drained, take jobs again, are added and removed.
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

/// A cluster of hosts that are all addresses of this machine, up.
fn hosts(addresses: &[&str], lease_ms: u32) -> TestCluster {
    let mut cluster = TestCluster::prepare();
    let line = |(index, address): (usize, &&str)| {
        format!("host{index} {address}:{} cpus=0 users=any,0\n", machine::free_port(address))
    };
    let lines: String = addresses.iter().enumerate().map(line).collect();
    let file = cluster.state().join("hosts");
    std::fs::write(&file, lines).expect("our file");
    cluster.kumi(&["cluster", "init", "--hosts", &file.display().to_string()]).ok();
    let path = cluster.path().join("cluster.toml");
    let text = std::fs::read_to_string(&path).expect("cluster.toml");
    let mut table: toml::Table = text.parse().expect("TOML");
    let head = format!("{}:{}", addresses[0], machine::free_port(addresses[0]));
    table.insert("head".to_owned(), head.into());
    table.insert("root_jobs".to_owned(), true.into());
    table.insert("lease_ms".to_owned(), lease_ms.into());
    let text = format!("# a comment\n{}", toml::to_string(&table).expect("TOML"));
    std::fs::write(&path, text).expect("our file");
    cluster.try_up_as_it_is().ok();
    cluster
}

#[track_caller]
fn wait_up(cluster: &TestCluster, nodes: usize) {
    let what = format!("{nodes} nodes");
    command::wait_for(&what, || (cluster.nodes_up() == nodes).then_some(()));
}

/// A job runs all the time: a third node comes, gets work, is drained and removed, and the head dies in between.
#[test]
fn a_node_comes_and_goes_while_a_job_runs() {
    let cluster = hosts(&["127.0.0.1", "127.0.0.2"], 300_000);
    let first = cluster.start(&["run", "-n", "2", "--nodes", "2", "--name", "first", "cat"]);
    cluster.wait_state("first", "running");
    let on_three = ["run", "-n", "3", "--nodes", "3", "--name", "wide", "cat"];
    cluster.kumi(&on_three).fails(78, &["the cluster has 2 nodes"]);

    let address = format!("127.0.0.3:{}", machine::free_port("127.0.0.3"));
    let add = ["node", "add", "late", "--address", &address, "--cpus", "0", "--users", "any,0"];
    let said = cluster.kumi(&add).ok().out;
    assert!(said.starts_with("late is node 2"), "{said}");
    cluster.kumi(&add).fails(64, &["used twice"]);
    assert_eq!(node(&cluster, 2)["state"], "down");
    cluster.kumi(&["cluster", "up"]).ok();
    wait_up(&cluster, 3);
    let wide = cluster.start(&on_three);
    assert_eq!(places(&cluster.wait_state("wide", "running")), [0, 1, 2]);

    // The next head has it, and the jobs.
    machine::signal(cluster.pid("head"), Signal::SIGKILL);
    cluster.kumi(&["cluster", "up"]).ok();
    wait_up(&cluster, 3);
    cluster.kumi(&["node", "remove", "late"]).fails(75, &["--force", "kumi node drain"]);
    let drain = cluster.start(&["node", "drain", "late", "--reason", "it goes", "--wait"]);
    wide.finish().ok();
    drain.finish().ok();
    cluster.kumi(&["node", "remove", "late"]).ok();
    let list = cluster.json(&["node", "list", "--json"]);
    assert_eq!(list.as_array().map(Vec::len), Some(2), "{list}");
    let text = std::fs::read_to_string(cluster.path().join("cluster.toml")).expect("cluster.toml");
    assert!(text.contains("# a comment") && text.contains("removed = true"), "{text}");
    // Its daemon is refused from now on, also by the next head.
    cluster.kumi(&on_three).fails(78, &["the cluster has 2 nodes"]);
    machine::signal(cluster.pid("head"), Signal::SIGKILL);
    cluster.kumi(&["cluster", "up"]).ok();
    wait_up(&cluster, 2);
    machine::signal(cluster.pid("node-2"), Signal::SIGKILL);
    // The name is free, the number is not.
    let again = cluster.kumi(&add).ok().out;
    assert!(again.starts_with("late is node 3"), "{again}");
    assert_eq!(cluster.job("first").expect("known")["state"], "running");
    first.finish().ok();
}

#[test]
fn a_node_with_a_job_is_removed_by_force() {
    // The job is over when nothing of it can run on the removed node any more.
    let cluster = hosts(&["127.0.0.1", "127.0.0.2"], 15_000);
    let job = cluster.start(&["run", "-n", "2", "--nodes", "2", "--name", "job", "sleep", "600"]);
    cluster.wait_state("job", "running");
    cluster.kumi(&["node", "remove", "host1", "--force"]).ok();
    job.finish().fails(75, &["host1 was lost"]);
    assert_eq!(cluster.nodes_up(), 1);
    cluster.kumi(&["node", "remove", "host0", "--force"]).fails(64, &["last node"]);
    cluster.kumi(&["run", "true"]).ok();
    machine::signal(cluster.pid("node-1"), Signal::SIGKILL);
}

#[test]
fn a_local_cluster_of_namespaces_takes_no_other_nodes() {
    if !machine::is_root() {
        let test = "a_local_cluster_of_namespaces_takes_no_other_nodes";
        return kumi_skip::skip(test, "nodes are namespaces for root only");
    }
    let cluster = TestCluster::up(1);
    if cluster.namespace(0).is_some() {
        cluster.kumi(&["node", "add", "x", "--address", "10.9.9.9"]).fails(64, &["--local"]);
    }
}
