//! Clusters go by scheduling policies that are chosen by name.
#![forbid(unsafe_code)]

use kumi_tests::cluster::TestCluster;
use kumi_tests::command::{RunningCommand, run, wait_for};
use kumi_tests::machine;
use nix::sys::signal::Signal;
use serde_json::Value;

/// A job of this name that sleeps, with one rank on each of so many nodes.
fn sleeper(cluster: &TestCluster, name: &str, nodes: &str) -> RunningCommand {
    cluster.start(&["run", "-n", nodes, "--nodes", nodes, "--name", name, "sleep", "600"])
}

fn nodes_of(job: &Value) -> Vec<u64> {
    job["nodes"].as_array().expect("nodes").iter().filter_map(Value::as_u64).collect()
}

fn number(job: &Value) -> u64 {
    job["job"].as_u64().expect("a number")
}

fn kill(cluster: &TestCluster, job: &Value) {
    cluster.kumi(&["kill", &number(job).to_string()]).ok();
}

/// The slots of a node in the cluster's status.
fn slots(status: &Value, node: usize) -> Vec<Option<u64>> {
    let slots = status["nodes"][node]["timetable"].as_array().expect("slots");
    slots.iter().map(|slot| slot[0].as_u64()).collect()
}

#[test]
fn jobs_of_different_sizes_share_space_and_time_in_a_tree() {
    // Jobs that sleep keep their turns here.
    let cluster = TestCluster::up_with(4, &["--idle-after", "0s"]);
    let running: Vec<_> = [("whole", "4"), ("left", "2"), ("right", "2"), ("one", "1")]
        .map(|(name, nodes)| {
            let job = sleeper(&cluster, name, nodes);
            (cluster.wait_state(name, "running"), job)
        })
        .into();
    let job = |index: usize| &running[index].0;
    assert_eq!(nodes_of(job(0)), [0, 1, 2, 3]);
    assert_eq!((nodes_of(job(1)), nodes_of(job(2))), (vec![0, 1], vec![2, 3]));
    assert_eq!(nodes_of(job(3)), [0]);
    let status = cluster.json(&["cluster", "status", "--json"]);
    assert_eq!(status["policy"], "dqt");
    for node in 0..4 {
        let slots = slots(&status, node);
        assert!(slots.contains(&Some(number(job(0)))), "{status}");
        assert!(slots.contains(&Some(number(job(1 + node / 2)))), "{status}");
    }
    let tree = status["tree"].as_array().expect("a tree");
    let queue = |node: &Value| node["queue"].as_array().map_or(0, Vec::len);
    assert_eq!(tree.iter().map(queue).sum::<usize>(), 4, "{status}");
    assert_eq!(tree[0]["max_tqlb"], 3, "whole, left and one on node 0");
    assert!(tree.iter().any(|node| node["front"] == true), "{status}");

    let top = cluster.kumi(&["top", "--once"]).ok().out;
    let queues: Vec<&str> =
        top.lines().skip_while(|line| !line.contains("QUEUE")).take(5).collect();
    assert!(queues.len() == 5 && queues.iter().any(|line| line.starts_with('>')), "{top}");
    assert!(queues.iter().all(|line| line.chars().count() <= 80), "{top}");
    let top = cluster.json(&["top", "--json"]);
    assert_eq!(top["cluster"]["tree"].as_array().map(Vec::len), Some(tree.len()));
    assert_eq!(top["jobs"].as_array().map(Vec::len), Some(4));

    // A job ends, the others go on.
    kill(&cluster, job(1));
    let status = cluster.json(&["cluster", "status", "--json"]);
    assert_eq!(status["tree"][0]["max_tqlb"], 2, "{status}");
    assert!(!slots(&status, 1).contains(&Some(number(job(1)))), "{status}");
    for index in [0, 2, 3] {
        kill(&cluster, job(index));
    }
    for (_, job) in running {
        job.finish().fails(137, &[]);
    }
}

#[test]
fn easy_queues_and_lets_the_short_overtake() {
    let cluster = TestCluster::up_with(2, &["--policy", "easy"]);
    cluster.kumi(&["run", "true"]).fails(64, &["policy easy", "--estimate"]);
    let start = |name: &str, nodes: &str, estimate: &str| {
        let args = ["run", "-n", nodes, "--nodes", nodes, "--name", name, "--estimate", estimate];
        cluster.start(&[&args[..], &["--priority", "2", "sleep", "600"]].concat())
    };
    let first = start("first", "1", "1h");
    let one = cluster.wait_state("first", "running");
    let wide = start("wide", "2", "10m");
    let two = cluster.wait_state("wide", "queued");
    let long = start("long", "1", "2h");
    let three = cluster.wait_state("long", "queued");
    let short = start("short", "1", "30m");
    let four = cluster.wait_state("short", "running");
    assert_eq!((nodes_of(&one), nodes_of(&four)), (vec![0], vec![1]));
    assert_eq!(four["estimate_s"].as_f64(), Some(1_800.0), "{four}");
    assert_eq!(four["priority"], 2, "{four}");
    let table = cluster.kumi(&["ps"]).ok().out;
    assert!(table.contains("ESTIMATE") && table.contains("30m00s"), "{table}");
    kill(&cluster, &one);
    kill(&cluster, &four);
    cluster.wait_state("wide", "running");
    cluster.wait_state("long", "queued");
    kill(&cluster, &three);
    kill(&cluster, &two);
    for job in [first, wide, long, short] {
        job.finish().fails(137, &[]);
    }
}

#[test]
fn jobs_that_wait_for_others_say_for_which() {
    let cluster = TestCluster::up_with(2, &["--policy", "fcfs", "--wait", "1s"]);
    let first = sleeper(&cluster, "first", "1");
    let one = cluster.wait_state("first", "running");
    let start = |name: &str, nodes: &str| {
        let sizes = ["--wait", "forever", "-n", nodes, "--nodes", nodes];
        cluster.start(&[&["run", "--name", name], &sizes[..], &["true"]].concat())
    };
    let wide = start("wide", "2");
    let two = cluster.wait_state("wide", "queued");
    let narrow = start("narrow", "1");
    let three = cluster.wait_state("narrow", "queued");
    assert_eq!(two["waits_for"]["kind"], "processors_taken", "{two}");
    assert_eq!(two["waits_for"]["free"], 1, "{two}");
    assert_eq!(three["waits_for"]["job"], number(&two), "{three}");
    let words = format!("waits: job {} is before it in the queue", number(&two));
    assert!(narrow.error_line().contains(&words), "{}", narrow.error_line());
    // As the cluster is configured.
    cluster.kumi(&["run", "true"]).fails(75, &["did not start within 1s", "is before it"]);
    // The first in the queue goes, and the next has room.
    machine::signal(wide.pid(), Signal::SIGINT);
    wide.finish().fails(130, &["killed"]);
    narrow.finish().ok();
    kill(&cluster, &one);
    first.finish().fails(137, &[]);
}

#[test]
fn the_policy_changes_while_jobs_run_and_outlives_the_head() {
    let cluster = TestCluster::up_with(2, &["--policy", "fcfs"]);
    let first = sleeper(&cluster, "first", "2");
    cluster.wait_state("first", "running");
    let second = sleeper(&cluster, "second", "2");
    cluster.wait_state("second", "queued");
    cluster.kumi(&["cluster", "set", "--policy", "easy"]).fails(64, &["has no estimate"]);
    let said = cluster.kumi(&["cluster", "set", "--policy", "dqt:ff"]).ok().out;
    assert!(said.contains("gang scheduling by dqt:ff"), "{said}");
    let job = cluster.wait_state("second", "running");
    assert_eq!(nodes_of(&job), [0, 1]);
    cluster.kumi(&["cluster", "set", "--policy", "os"]).ok();
    cluster.kumi(&["cluster", "set", "--policy", "dqt:ff"]).ok();
    let file = std::fs::read_to_string(cluster.path().join("cluster.toml")).expect("cluster.toml");
    assert!(file.contains("policy = \"dqt:ff\"") && !file.contains("mode ="), "{file}");

    machine::signal(cluster.pid("head"), Signal::SIGKILL);
    cluster.kumi(&["cluster", "up"]).ok();
    let status = wait_for("the head to answer", || {
        let found = cluster.kumi(&["cluster", "status", "--json"]);
        (found.code() == 0).then(|| serde_json::from_str::<Value>(&found.out).expect("JSON"))
    });
    assert_eq!(status["policy"], "dqt:ff");
    for name in ["first", "second"] {
        kill(&cluster, &cluster.wait_state(name, "running"));
    }
    for job in [first, second] {
        job.finish().fails(137, &[]);
    }
}

/// The cluster's wishes for jobs that have none of their own; the environment's go before them, and the command line's before all.
#[test]
fn jobs_that_do_not_say_get_the_clusters_wishes() {
    let mut cluster = TestCluster::prepare();
    let wishes = ["--policy", "easy", "--priority", "3", "--estimate", "10m"];
    cluster.try_up(1, &wishes).ok();
    let with = |args: &[&str], set: &[(&str, &str)]| {
        let mut command = cluster.command(args);
        command.envs(set.iter().copied());
        run(command)
    };
    let of = |name: &str, set: &[(&str, &str)], args: &[&str]| {
        with(&[&["run", "--name", name], args, &["true"]].concat(), set).ok();
        let job = cluster.job(name).expect("the job");
        (job["priority"].as_u64(), job["estimate_s"].as_f64())
    };
    assert_eq!(of("cluster", &[], &[]), (Some(3), Some(600.0)));
    let set = [("KUMI_PRIORITY", "2"), ("KUMI_ESTIMATE", "20s")];
    assert_eq!(of("environment", &set, &[]), (Some(2), Some(20.0)));
    assert_eq!(
        of("command", &set, &["--priority", "4", "--estimate", "1h"]),
        (Some(4), Some(3600.0))
    );
    with(&["run", "true"], &[("KUMI_PRIORITY", "0")]).fails(64, &["from 1 (ordinary)"]);
}

#[test]
fn wrong_wishes_are_refused() {
    let mut cluster = TestCluster::prepare();
    cluster.try_up(1, &["--policy", "esy"]).fails(64, &["did you mean easy?"]);
    cluster.try_up(1, &["--policy", "dqt+migrate"]).fails(64, &["needs checkpoints"]);
    cluster.try_up(1, &[]).ok();
    let set = |name| cluster.kumi(&["cluster", "set", "--policy", name]);
    set("no-such-policy").fails(64, &["no-such-policy", "fair-dqt"]);
    set("dqt:fff").fails(64, &["did you mean dqt:ff?"]);
    set("fair-dqt:apa+migrate").fails(64, &["moves running jobs, which needs checkpoints"]);
    cluster.kumi(&["run", "--priority", "101", "true"]).fails(64, &["from 1 (ordinary) to 100"]);
    cluster.kumi(&["run", "--estimate", "10", "true"]).fails(64, &["10m"]);
    cluster.kumi(&["run", "--priority", "100", "--estimate", "1m", "true"]).ok();
    // Written by hand.
    let path = cluster.path().join("cluster.toml");
    let text = std::fs::read_to_string(&path).expect("cluster.toml");
    std::fs::write(&path, text.replace("policy = \"dqt\"", "policy = \"esy\"")).expect("our file");
    cluster.kumi(&["cluster", "set", "--slice", "5ms"]).fails(65, &["did you mean easy?"]);
    std::fs::write(&path, text).expect("our file");
}
