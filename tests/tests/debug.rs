//! `kumi debug channel`.
#![forbid(unsafe_code)]

use kumi_tests::binaries;
use kumi_tests::cluster::TestCluster;
use kumi_tests::command::{RunningCommand, wait_for};
use serde_json::Value;

/// Starts a job that runs until it is killed; with its number, once it runs.
fn start(cluster: &TestCluster, name: &str, words: &[&str]) -> (RunningCommand, String) {
    let job = cluster.start(&[&["run", "--name", name], words].concat());
    (job, cluster.wait_state(name, "running")["job"].to_string())
}

/// The channels of a job, once each of its two ranks has sent something.
fn channels(cluster: &TestCluster, job: &str) -> Vec<Value> {
    wait_for("two channels with traffic", || {
        let answer = cluster.json(&["debug", "channel", "--json", job]);
        assert_eq!(answer["job"].to_string(), job, "{answer}");
        let channels = answer["channels"].as_array().expect("channels").clone();
        let sent = |channel: &Value| channel["context"]["counters"]["sent"].as_u64() > Some(10);
        (channels.len() == 2 && channels.iter().all(sent)).then_some(channels)
    })
}

#[test]
fn a_running_jobs_channels_are_shown() {
    let cluster = TestCluster::up(2);
    let program = binaries::path("pingpong").display().to_string();
    let endless = ["--mode", "send", "--sizes", "64", "--iterations", "100000000"];
    let words = [&["-n", "2", "--nodes", "2", &*program][..], &endless].concat();
    let (running, job) = start(&cluster, "traffic", &words);
    for (index, channel) in channels(&cluster, &job).iter().enumerate() {
        let index = index as u64;
        assert_eq!(
            (channel["rank"].as_u64(), channel["node"].as_u64()),
            (Some(index), Some(index))
        );
        let context = &channel["context"];
        let [peer] = &context["peers"].as_array().expect("peers")[..] else {
            panic!("one peer: {channel}")
        };
        assert_eq!(peer["peer"].as_u64(), Some(1 - index), "{channel}");
        // The next packet in both directions is not the first any more.
        for number in ["tail", "expected"] {
            assert!(peer[number].as_u64() > Some(10), "{channel}");
        }
        assert!(context["max_datagram"].as_u64() >= Some(1_472), "{channel}");
    }
    // A rank that is stopped where it is tells the same twice.
    cluster.kumi(&["kill", "--signal", "STOP", &job]).ok();
    let one = || cluster.kumi(&["debug", "channel", &job, "1"]).ok().out;
    let mut before = one();
    let still = wait_for("a rank that rests", || {
        let now = one();
        let same = now == before;
        before = now;
        same.then(|| before.clone())
    });
    let rows: Vec<Vec<&str>> =
        still.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0][..3], ["RANK", "NODE", "STATE"], "{still}");
    assert_eq!(rows[1][..2], ["1", "1"], "{still}");
    assert!(!rows.iter().any(|row| row.first() == Some(&"0")), "only rank 1: {still}");
    assert!(rows.iter().any(|row| row.starts_with(&["1", "0"])), "its peer: {still}");

    cluster.kumi(&["debug", "channel", &job, "2"]).fails(64, &["no rank 2", "0 to 1"]);
    cluster.kumi(&["debug", "channel", "999"]).fails(66, &["job 999"]);
    cluster.kumi(&["kill", &job]).ok();
    drop(running.finish());
    cluster.kumi(&["debug", "channel", &job]).fails(66, &["no running ranks"]);
}

#[test]
fn a_job_without_far_ranks_and_one_that_has_not_joined() {
    let cluster = TestCluster::up(2);
    let on_nodes = |nodes| ["-n", "2", "--nodes", nodes, "sleep", "1000"];
    let (near_running, near) = start(&cluster, "near", &on_nodes("1"));
    let (far_running, far) = start(&cluster, "far", &on_nodes("2"));
    cluster.kumi(&["debug", "channel", &near]).fails(64, &["through memory"]);
    let text = cluster.kumi(&["debug", "channel", &far]).ok().out;
    assert_eq!(text.matches("not joined").count(), 2, "{text}");
    let answer = cluster.json(&["debug", "channel", "--json", &far, "0"]);
    assert_eq!(answer["channels"][0]["state"], "not joined", "{answer}");
    assert!(answer["channels"][0]["context"].is_null(), "{answer}");
    cluster.kumi(&["kill", &near, &far]).ok();
    drop((near_running.finish(), far_running.finish()));
}
