//! Several jobs on the same processors: switched together, all progressing, without messages.
#![forbid(unsafe_code)]

use kumi_tests::binaries;
use kumi_tests::cluster::TestCluster;
use serde_json::Value;

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
    let cluster = TestCluster::up(2);
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
    for node in nodes(&stats) {
        assert_eq!(node["switching"]["messages"], 0, "a switch needs no message: {node}");
    }
    assert!(stats["skew"]["ticks"].as_u64() > Some(0), "{stats}");
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
    for change in [["--slice", "1ms"], ["--mode", "os"], ["--mode", "gang"], ["--slice", "10ms"]] {
        cluster.kumi(&["cluster", "set", change[0], change[1]]).ok();
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
    let status = cluster.json(&["cluster", "status", "--json"]);
    assert_eq!(status["mode"], "gang", "{status}");
    for job in jobs {
        job.finish().ok();
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
