//! Several jobs on the same processors: switched together, all progressing, without messages.
#![forbid(unsafe_code)]

use kumi_tests::binaries;
use kumi_tests::cluster::TestCluster;
use kumi_tests::command::wait_for;
use serde_json::Value;
use std::time::{Duration, Instant};

fn program(name: &str) -> String {
    binaries::path(name).display().to_string()
}

fn nodes(stats: &Value) -> &[Value] {
    stats["nodes"].as_array().expect("an array of nodes")
}

/// The smallest number that the nodes have at this place of their statistics.
fn least(stats: &Value, pointer: &str) -> u64 {
    let numbers = nodes(stats).iter().map(|node| node.pointer(pointer).and_then(Value::as_u64));
    numbers.map(|number| number.expect("a number")).min().expect("a node")
}

#[test]
fn two_jobs_are_switched_together_and_both_progress() {
    let cluster = TestCluster::up_with(2, &["--slice", "10ms"]);
    let lockstep = program("lockstep");
    let args = ["run", "-n", "2", "--nodes", "2", &lockstep, "--seconds", "3"];
    let (first, second) = (cluster.start(&args), cluster.start(&args));
    for job in [first, second] {
        let out = job.finish().ok().out;
        assert!(out.contains("Steps per second"), "{out}");
    }
    let stats = cluster.json(&["stats", "--json"]);
    assert!(least(&stats, "/switching/count") > 50, "{stats}");
    assert!(least(&stats, "/switching/total/p50") > 0, "{stats}");
    let skew = &stats["skew"];
    assert!(skew["ticks"].as_u64() > Some(0), "{stats}");
    assert_eq!(skew["clock"], "machine", "the nodes of this cluster share one: {stats}");
    // Half a slice: that they switch together, by a clock that does not know what they believe.
    assert!(skew["p50_ns"].as_u64() < Some(5_000_000), "{stats}");
}

/// Switches of all nodes so far, and their daemons' control messages: those that links need at all times, and others.
fn switches_and_messages(cluster: &TestCluster) -> [u64; 3] {
    let stats = cluster.json(&["stats", "--json"]);
    let sum = |pointer: &str| -> u64 {
        let number = |node: &Value| node.pointer(pointer).and_then(Value::as_u64);
        nodes(&stats).iter().map(|node| number(node).expect("a number")).sum()
    };
    let (all, other) = (sum("/control_messages"), sum("/control_messages_by_kind/other"));
    assert_eq!(all, CONSTANT_KINDS.iter().map(|kind| sum(kind)).sum::<u64>() + other, "{stats}");
    [sum("/switching/count"), all - other, other]
}

/// Kinds of control messages that are there whatever is switched.
const CONSTANT_KINDS: [&str; 4] = [
    "/control_messages_by_kind/clock",
    "/control_messages_by_kind/disclosure",
    "/control_messages_by_kind/lease",
    "/control_messages_by_kind/sample",
];

/// More than what all links of two nodes carry in a second whatever happens: on each of the at most two links of a daemon
/// four probes of the clock, as many exchanges, all answered, and a lease; counted where they leave and where they arrive.
const CONSTANT_MESSAGES: u64 = 2 * 2 * 2 * (4 + 4 + 1);
/// And what each `kumi stats` asks for and gets.
const MESSAGES_OF_A_QUESTION: u64 = 2 * 2 * 2;

#[test]
fn switches_send_no_messages() {
    let cluster = TestCluster::up_with(2, &["--slice", "250us"]);
    let lockstep = program("lockstep");
    let args = ["run", "-n", "2", "--nodes", "2", &lockstep, "--seconds", "600"];
    let jobs = [cluster.start(&args), cluster.start(&args)];
    let switched = wait_for("switches", || {
        Some(switches_and_messages(&cluster)).filter(|[switches, ..]| *switches > 10)
    });
    let (begin, mut questions) = (Instant::now(), 0);
    let [switches, constant, other, most] =
        wait_for("switches that outnumber other traffic", || {
            std::thread::sleep(Duration::from_secs(1));
            questions += 1;
            let now = switches_and_messages(&cluster);
            let [switches, constant, other] = std::array::from_fn(|i| now[i] - switched[i]);
            let seconds = begin.elapsed().as_secs() + 2;
            let most = seconds * CONSTANT_MESSAGES + (questions + 1) * MESSAGES_OF_A_QUESTION;
            (switches > 2 * most).then_some([switches, constant, other, most])
        });
    println!("{switches} switches, {constant} messages of constant kinds, {other} others");
    assert!(constant <= most, "{constant} messages with {switches} switches, {most} without any");
    assert!(other * 50 < switches, "{other} messages beside {switches} switches");
    cluster.kumi(&["kill", "1"]).ok();
    cluster.kumi(&["kill", "2"]).ok();
    drop(jobs.map(kumi_tests::command::RunningCommand::finish));
}

#[test]
fn one_job_alone_is_not_switched_unless_told_to() {
    let cluster = TestCluster::up(2);
    let args = ["run", "-n", "2", "--nodes", "2", "sleep", "0.5"];
    cluster.kumi(&args).ok();
    let stats = cluster.json(&["stats", "--json"]);
    for node in nodes(&stats) {
        assert_eq!(node["switching"]["count"], 0, "{node}");
    }
    cluster.kumi(&["cluster", "set", "--force-switch", "on", "--slice", "1ms"]).ok();
    cluster.kumi(&args).ok();
    let stats = cluster.json(&["stats", "--json"]);
    assert!(least(&stats, "/switching/count") > 100, "{stats}");
}

#[test]
fn mode_and_slice_change_while_jobs_run() {
    let cluster = TestCluster::up_with(2, &["--slice", "100ms"]);
    let lockstep = program("lockstep");
    let args = ["run", "-n", "2", "--nodes", "2", &lockstep, "--seconds", "3"];
    let jobs = [cluster.start(&args), cluster.start(&args)];
    for (option, value, mode, slice_us) in [
        ("--slice", "1ms", "gang", 1_000.0),
        ("--policy", "os", "os", 1_000.0),
        ("--policy", "dqt", "gang", 1_000.0),
        ("--slice", "10ms", "gang", 10_000.0),
    ] {
        cluster.kumi(&["cluster", "set", option, value]).ok();
        std::thread::sleep(std::time::Duration::from_millis(200));
        let status = cluster.json(&["cluster", "status", "--json"]);
        assert_eq!(status["mode"], mode, "{status}");
        assert_eq!(status["slice_us"].as_f64(), Some(slice_us), "{status}");
    }
    for job in jobs {
        job.finish().ok();
    }
}

/// Waits for a timetable with so many slots; its slice in milliseconds, as `kumi cluster status` says it in both forms.
fn slice_of(cluster: &TestCluster, slots: u64) -> f64 {
    wait_for(&format!("a timetable of {slots} slots"), || {
        let before = cluster.json(&["cluster", "status", "--json"]);
        let text = cluster.kumi(&["cluster", "status"]).ok().out;
        let after = cluster.json(&["cluster", "status", "--json"]);
        let same = before["generation"] == after["generation"] && before["slots"] == slots;
        same.then(|| {
            let milliseconds = before["slice_us"].as_f64().expect("a number") / 1e3;
            let auto = if before["slice_auto"] == true { " (auto)" } else { "" };
            let words = format!("in slices of {milliseconds}ms{auto}, ");
            assert!(text.contains(&words), "{words}: {text}");
            milliseconds
        })
    })
}

#[test]
fn slices_are_shorter_the_more_jobs_take_turns() {
    // Nobody comes back from idleness: then rounds would be shorter.
    let cluster = TestCluster::up_with(2, &["--idle-after", "0s"]);
    let lockstep = program("lockstep");
    let run = ["run", "-n", "2", "--nodes", "2", &lockstep, "--seconds", "100000"];
    let mut jobs = vec![cluster.start(&run)];
    assert_eq!(slice_of(&cluster, 1), 100.0);
    jobs.extend([cluster.start(&run), cluster.start(&run)]);
    assert_eq!(slice_of(&cluster, 3), 66.0);
    // One that is set stays.
    cluster.kumi(&["cluster", "set", "--slice", "2ms"]).ok();
    assert_eq!(slice_of(&cluster, 3), 2.0);
    cluster.kumi(&["kill", "1"]).ok();
    assert_eq!(slice_of(&cluster, 2), 2.0);
    let file = cluster.path().join("cluster.toml");
    let text = |path| std::fs::read_to_string(path).expect("cluster.toml");
    assert!(text(&file).contains("slice_us = 2000\n"), "{}", text(&file));
    cluster.kumi(&["cluster", "set", "--slice", "auto"]).ok();
    assert_eq!(slice_of(&cluster, 2), 100.0);
    assert!(text(&file).contains("slice_us = 0\n"), "{}", text(&file));
    cluster.kumi(&["kill", "2"]).ok();
    cluster.kumi(&["kill", "3"]).ok();
    for job in jobs {
        job.finish().fails(137, &[]);
    }
}

#[test]
fn the_kernels_verify_while_they_share_every_250_microseconds() {
    let cluster = TestCluster::up_with(2, &["--slice", "250us"]);
    let jobs: Vec<_> = ["ep", "cg", "is", "ft"]
        .map(|name| {
            let path = program(name);
            let class = ["--class", "S"];
            let args = ["run", "-n", "2", "--nodes", "2", "--name", name, &path];
            cluster.start(&[&args[..], &class].concat())
        })
        .into();
    for job in jobs {
        let out = job.finish().ok().out;
        let verified = out.lines().any(|line| {
            line.trim_start().starts_with("Verification") && line.ends_with(" SUCCESSFUL")
        });
        assert!(verified, "{out}");
    }
}

#[test]
fn a_stopped_job_keeps_nothing_from_running() {
    // Many jobs of which each only waits: the one that works gets through.
    let cluster = TestCluster::up(2);
    let sleep = ["run", "-n", "2", "--nodes", "2", "--name", "sleeper", "sleep", "600"];
    let sleepers: Vec<_> = (0..5).map(|_| cluster.start(&sleep)).collect();
    cluster.wait_state("sleeper", "running");
    cluster.kumi(&["run", "-n", "2", "--nodes", "2", &program("ep"), "--class", "S"]).ok();
    let jobs = cluster.json(&["ps", "--json"]);
    for job in jobs.as_array().expect("an array") {
        cluster.kumi(&["kill", &job["job"].to_string()]).ok();
    }
    drop(sleepers);
}
