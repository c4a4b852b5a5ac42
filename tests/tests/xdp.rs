//! Clusters whose ranks have AF_XDP: what goes that way, what does not, and what is left when somebody dies.
#![forbid(unsafe_code)]

use kumi_tests::cluster::TestCluster;
use kumi_tests::command::{self, FinishedCommand, RunningCommand, wait_for};
use kumi_tests::faults::{on_node, possible};
use kumi_tests::{binaries, machine};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::process::Command;

/// The name of the program on an interface, which `ip` shows.
const PROGRAM: &str = "kumi_steering";

fn has_program(cluster: &TestCluster, node: u32) -> bool {
    on_node(cluster, node, "ip -details link show eth0").contains(PROGRAM)
}

/// A counter of each rank of all running jobs, by rank.
fn counters(cluster: &TestCluster, name: &str) -> Vec<u64> {
    let stats = cluster.json(&["stats", "--json"]);
    let nodes = stats["nodes"].as_array().into_iter().flatten();
    let ranks = nodes.flat_map(|node| node["ranks"].as_array().into_iter().flatten());
    let of = |rank: &Value| Some((rank["rank"].as_u64()?, rank["counters"][name].as_u64()?));
    let mut found: Vec<_> = ranks.filter_map(of).collect();
    found.sort_unstable();
    found.into_iter().map(|(_, count)| count).collect()
}

/// A job of two ranks on two nodes that send short messages to and fro until it is killed.
fn pingpong(cluster: &TestCluster, name: &str) -> RunningCommand {
    let program = binaries::path("pingpong").display().to_string();
    let words = ["run", "-n", "2", "--nodes", "2", "--name", name, &program];
    let rest = ["--mode", "send", "--sizes", "64", "--iterations", "100000000"];
    let job = cluster.start(&[&words[..], &rest].concat());
    cluster.wait_state(name, "running");
    job
}

/// The process of a rank of [`pingpong`] on a node.
fn rank_of(cluster: &TestCluster, node: u32) -> u32 {
    let namespace = cluster.namespace(node).expect("a cluster of root has namespaces");
    let mut list = Command::new("ip");
    list.args(["netns", "pids", &namespace]);
    let inside = command::run(list).ok().out;
    let ranks = machine::processes("pingpong --mode send");
    let mut pids = ranks.iter().filter_map(|line| line.split(' ').next());
    let rank = pids.find(|pid| inside.lines().any(|line| line == *pid));
    rank.expect("a rank").parse().expect("a process number")
}

fn kill(cluster: &TestCluster, name: &str, job: RunningCommand) {
    let number = cluster.job(name).expect("the job")["job"].to_string();
    cluster.kumi(&["kill", &number]).ok();
    drop(job.finish());
}

/// A job that compares its memory with a reference, on a wire that loses, doubles and delays packets. `by_xdp`: frames came by
/// AF_XDP. That of a node with one queue has one job at a time.
fn soak(cluster: &TestCluster, ranks: &str, options: &[&str], by_xdp: bool) {
    checked(start_soak(cluster, ranks, options).finish(), by_xdp);
}

fn start_soak(cluster: &TestCluster, ranks: &str, options: &[&str]) -> RunningCommand {
    let program = binaries::path("kumi-bench-soak").display().to_string();
    let mut words = vec!["run", "-n", ranks, "--nodes", "2"];
    words.extend(options);
    words.extend([&*program, "--rounds", "3"]);
    let mut run = cluster.command(&words);
    run.env("KUMI_FAULTS", "loss=30,double=20,late=30,land=500,seed=7");
    RunningCommand::start(run)
}

/// The job was right, and says how its packets came.
fn checked(ended: FinishedCommand, by_xdp: bool) {
    let out = ended.ok().out;
    assert!(out.lines().any(|line| line == "Verification SUCCESSFUL"), "{out}");
    let frames = out.lines().find_map(|line| line.strip_prefix("frames_by_af_xdp "));
    let frames: u64 = frames.and_then(|count| count.parse().ok()).expect("a count of frames");
    assert_eq!(frames > 0, by_xdp, "{out}");
}

#[test]
fn short_packets_go_by_af_xdp_and_jobs_of_all_shapes_are_right() {
    const TEST: &str = "short_packets_go_by_af_xdp_and_jobs_of_all_shapes_are_right";
    if !possible(TEST) {
        return;
    }
    let mut cluster = TestCluster::up_with(2, &["--wire", "xdp"]);
    assert!(has_program(&cluster, 0) && has_program(&cluster, 1));
    let job = pingpong(&cluster, "short");
    wait_for("frames by AF_XDP in both directions", || {
        let [sent, received] = ["xdp_out", "xdp_in"].map(|name| counters(&cluster, name));
        let many =
            |counts: Vec<u64>| counts.len() == 2 && counts.iter().all(|&count| count > 1_000);
        (many(sent) && many(received)).then_some(())
    });
    assert_eq!(counters(&cluster, "xdp_dropped"), [0, 0]);
    assert_eq!(counters(&cluster, "invalid"), [0, 0]);
    kill(&cluster, "short", job);
    // Several ranks a node, encrypted or not, under loss.
    soak(&cluster, "4", &[], true);
    soak(&cluster, "6", &["--encrypt"], true);
    soak(&cluster, "2", &["--ack", "per-message"], true);
    // A job within one node needs none.
    let lockstep = binaries::path("lockstep").display().to_string();
    cluster.kumi(&["run", "-n", "1", &lockstep, "--seconds", "0.1"]).ok();
    assert!(has_program(&cluster, 0) && has_program(&cluster, 1));
    cluster.down().ok();
    assert_eq!(cluster.traces(), [""; 0]);
}

/// Ranks are frozen at any instant: two jobs take turns of a millisecond.
#[test]
fn jobs_that_take_turns_keep_their_messages() {
    const TEST: &str = "jobs_that_take_turns_keep_their_messages";
    if !possible(TEST) {
        return;
    }
    let cluster = TestCluster::up_with(2, &["--wire", "xdp", "--slice", "1ms", "--force-switch"]);
    // The first one to start has the interface's queue.
    let first = start_soak(&cluster, "2", &["--name", "first"]);
    cluster.wait_state("first", "running");
    let other = pingpong(&cluster, "other");
    checked(first.finish(), true);
    kill(&cluster, "other", other);
}

#[test]
fn a_node_with_af_xdp_and_one_without_understand_each_other() {
    const TEST: &str = "a_node_with_af_xdp_and_one_without_understand_each_other";
    if !possible(TEST) {
        return;
    }
    let mut cluster = TestCluster::prepare();
    cluster.kumi(&["cluster", "init", "--local", "2"]).ok();
    let file = cluster.path().join("cluster.toml");
    let text = std::fs::read_to_string(&file).expect("readable");
    let node = text.replacen("name = \"node0\"\n", "name = \"node0\"\nwire = \"xdp\"\n", 1);
    assert_ne!(node, text, "{text}");
    std::fs::write(&file, node).expect("ours");
    cluster.try_up_as_it_is().ok();
    assert!(has_program(&cluster, 0) && !has_program(&cluster, 1));
    let job = pingpong(&cluster, "mixed");
    wait_for("frames by AF_XDP in one direction", || {
        let sent = counters(&cluster, "xdp_out");
        (sent.iter().filter(|&&count| count > 1_000).count() == 1).then_some(())
    });
    assert_eq!(counters(&cluster, "xdp_in"), [0, 0]);
    kill(&cluster, "mixed", job);
    soak(&cluster, "4", &[], false);
}

#[test]
fn who_dies_leaves_nothing_on_the_interface() {
    const TEST: &str = "who_dies_leaves_nothing_on_the_interface";
    if !possible(TEST) {
        return;
    }
    let cluster = TestCluster::up_with(2, &["--wire", "xdp"]);
    // A rank: its place is free for the next job, on the same queue, too.
    for name in ["first", "second"] {
        let job = pingpong(&cluster, name);
        wait_for("frames by AF_XDP", || {
            let received = counters(&cluster, "xdp_in");
            (received.len() == 2 && received.iter().all(|&count| count > 100)).then_some(())
        });
        machine::signal(rank_of(&cluster, 0), Signal::SIGKILL);
        assert_ne!(job.finish().code(), 0);
    }
    assert!(has_program(&cluster, 1));
    // A daemon: its link goes with it.
    let job = pingpong(&cluster, "doomed");
    machine::signal(cluster.pid("node-1"), Signal::SIGKILL);
    wait_for("the program to go", || (!has_program(&cluster, 1)).then_some(()));
    assert!(has_program(&cluster, 0));
    drop(job.finish());
    let shown = on_node(&cluster, 1, "ip -details link show eth0");
    assert!(!shown.contains("xdp"), "{shown}");
}

/// What AF_XDP has of a node goes with the node's daemon. So jobs that use it end, although others outlive the daemon.
#[test]
fn a_restart_ends_jobs_with_af_xdp_and_no_others() {
    const TEST: &str = "a_restart_ends_jobs_with_af_xdp_and_no_others";
    if !possible(TEST) {
        return;
    }
    let mut cluster = TestCluster::prepare();
    let init = ["cluster", "init", "--local", "2", "--cpus", "per-node", "--wire", "xdp"];
    cluster.kumi(&init).ok();
    let path = cluster.path().join("cluster.toml");
    let text = std::fs::read_to_string(&path).expect("cluster.toml");
    let mut table: toml::Table = text.parse().expect("TOML");
    let times = [("keep_ms", 60_000), ("grace_ms", 60_000), ("lease_ms", 120_000)];
    table.extend(times.map(|(key, value)| (key.to_owned(), value.into())));
    std::fs::write(&path, table.to_string()).expect("our file");
    cluster.try_up_as_it_is().ok();
    let script = "echo up; read line; echo over";
    let mut other = cluster.start(&["run", "--name", "other", "sh", "-c", script]);
    assert!(other.output_line().ends_with("up"));
    let place = cluster.wait_state("other", "running")["layout"][0]["node"].as_u64();
    let node = u32::try_from(place.expect("a node")).expect("a number");
    let job = pingpong(&cluster, "with-af-xdp");
    let daemon = cluster.pid(&format!("node-{node}"));
    machine::signal(daemon, Signal::SIGKILL);
    wait_for("the daemon's end", || (!machine::lives(daemon)).then_some(()));
    let next = cluster.start_daemon(node, &["node", "--node", &node.to_string()]);
    wait_for("both nodes", || (cluster.nodes_up() == 2).then_some(()));
    assert_ne!(job.finish().code(), 0);
    let ended = cluster.job("with-af-xdp").expect("it is known");
    assert_eq!(ended["outcome"]["kind"], "node_lost", "{ended}");
    other.write("\n");
    assert!(other.finish().ok().out.ends_with("over\n"));
    cluster.down().ok();
    next.finish();
}

#[test]
fn a_node_that_cannot_says_why() {
    const TEST: &str = "a_node_that_cannot_says_why";
    if !possible(TEST) {
        return;
    }
    if !machine::has_command("setpriv") {
        return kumi_skip::skip(TEST, "setpriv is not installed");
    }
    // Root without capabilities has neither AF_XDP nor namespaces: its cluster is on loopback.
    let state = tempfile::Builder::new().prefix("kumi-test-").tempdir().expect("a directory");
    let kumi = |words: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set=-all", "--inh-caps=-all"]);
        command.arg(binaries::path("kumi")).args(words);
        let name = format!("x{}", std::process::id());
        command.env("KUMI_DIR", state.path()).env("KUMI_CLUSTER", name);
        command::run(command)
    };
    let strict = kumi(&["cluster", "up", "--local", "2", "--wire", "xdp"]);
    let cleaned = kumi(&["cluster", "destroy", "--yes"]);
    let lenient = kumi(&["cluster", "up", "--local", "2", "--wire", "auto"]);
    let status = kumi(&["cluster", "status"]);
    let lockstep = binaries::path("lockstep").display().to_string();
    let ran = kumi(&["run", "-n", "2", "--nodes", "2", &lockstep, "--seconds", "0.5"]);
    let down = kumi(&["cluster", "destroy", "--yes"]);
    assert_ne!(strict.code(), 0);
    let said = format!("{strict:?}");
    assert!(said.contains("AF_XDP") && said.contains("loopback"), "{said}");
    drop(cleaned);
    lenient.ok();
    let status = status.ok().out;
    assert!(status.contains("no AF_XDP") && status.contains("loopback"), "{status}");
    ran.ok();
    down.ok();
}
