//! Jobs whose ranks wait for each other for ever are found and explained, and others are not called so.
#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use kumi_tests::binaries;
use kumi_tests::cluster::TestCluster;
use kumi_tests::command::{RunningCommand, wait_for};
use kumi_tests::deadlock::{calls_are_named, causes, kill, stopped, wait_of};
use kumi_tests::faults;

/// How long jobs that are not stopped are looked at.
const LOOK: Duration = Duration::from_secs(6);

fn program() -> String {
    binaries::path("deadlock").display().to_string()
}

fn start(cluster: &TestCluster, kind: &str, ranks: u32, options: &[&str]) -> RunningCommand {
    let ranks = ranks.to_string();
    let program = program();
    let args = ["run", "-n", &ranks, "--nodes", "2", "--name", kind];
    cluster.start(&[&args[..], options, &[&program, kind]].concat())
}

#[test]
fn each_kind_of_deadlock_is_explained() {
    let cluster = TestCluster::up(2);
    let none = Vec::<u32>::new();
    let cases = [
        ("crossed", 3, "cycle", vec![0, 1, 2], none.clone(), "Message"),
        ("left", 2, "left_too_early", vec![0], vec![1], "Message"),
        ("anybody", 3, "anybody", vec![0, 2], vec![1], "Message"),
        ("locks", 2, "cycle", vec![0, 1], none.clone(), "Lock"),
        ("barrier", 2, "cycle", vec![0, 1], none.clone(), "Barrier"),
    ];
    for (kind, ranks, cause, waiting, over, wait) in cases {
        let job = start(&cluster, kind, ranks, &[]);
        let (number, waits) = stopped(&cluster, kind);
        let (waiting, over) = (serde_json::json!(waiting), serde_json::json!(over));
        let wanted = (cause.to_owned(), waiting, over);
        assert_eq!(causes(&waits), [wanted], "{kind}: {waits}");
        assert_eq!(wait_of(&waits, 0)["kind"], wait, "{kind}: {waits}");
        kill(&cluster, &number);
        let err = job.finish().fails(137, &["is stopped"]).err;
        assert_eq!(err.matches("is stopped").count(), 1, "once: {err}");
    }
}

#[test]
fn calls_of_c_are_named() {
    let cluster = TestCluster::up(2);
    let program = binaries::path("deadlock-c").display().to_string();
    let receive = "kumi_message_recv";
    let kinds = [
        ("crossed", [receive, receive]),
        ("left", [receive, ""]),
        ("barrier", ["kumi_barrier", receive]),
        ("notification", ["kumi_window_wait_notify", receive]),
        ("locks", ["kumi_dsm_lock", "kumi_dsm_lock"]),
    ];
    calls_are_named(&cluster, &[&program], &kinds);
}

#[test]
fn a_stopped_job_is_ended_if_that_is_wanted() {
    let cluster = TestCluster::up(2);
    let options = ["--on-deadlock", "kill", "--deadlock-grace", "500ms"];
    let job = start(&cluster, "notification", 2, &options);
    let words = ["is stopped", "notification number 3 of window", "it is ended in", "for ever"];
    job.finish().fails(72, &words);
    let outcome = wait_for("the job is over", || {
        let jobs = cluster.json(&["ps", "--all", "--json"]);
        let jobs = jobs.as_array().expect("jobs").clone();
        jobs.into_iter().find(|job| job["state"] == "ended")
    });
    assert_eq!(outcome["outcome"]["kind"], "deadlocked");
    cluster.kumi(&["run", "--on-deadlock", "maybe", "true"]).fails(64, &["maybe"]);
}

#[test]
fn whoever_wants_no_verdict_gets_none() {
    let cluster = TestCluster::up_with(2, &["--idle-after", "200ms"]);
    let job = start(&cluster, "crossed", 2, &["--on-deadlock", "ignore"]);
    let idle =
        wait_for("it is idle", || cluster.job("crossed").filter(|job| job["verdict"] == "idle"));
    kill(&cluster, &idle);
    job.finish().fails(137, &[]);
}

/// Looks at jobs for a while; none is ever stopped.
fn never_stopped(cluster: &TestCluster, names: &[&str]) {
    let end = Instant::now() + LOOK;
    while Instant::now() < end {
        for name in names {
            let verdict = cluster.job(name).map(|job| job["verdict"].clone());
            assert_ne!(verdict, Some("stopped".into()), "{name}");
        }
    }
}

#[test]
fn jobs_that_think_sleep_or_talk_are_not_stopped() {
    let cluster = TestCluster::up(2);
    let mut input = start(&cluster, "input", 2, &[]);
    let sleep = start(&cluster, "sleep", 3, &[]);
    let ring = start(&cluster, "ring", 2, &[]);
    for name in ["input", "sleep", "ring"] {
        wait_for(name, || cluster.job(name).filter(|job| job["state"] != "queued"));
    }
    never_stopped(&cluster, &["input", "sleep", "ring"]);
    sleep.finish().ok();
    input.write("\n");
    input.finish().ok();
    kill(&cluster, &cluster.job("ring").expect("it runs"));
    ring.finish().fails(137, &[]);
}

#[test]
fn messages_that_are_lost_and_come_later_keep_a_job_running() {
    if !faults::possible("messages_that_are_lost_and_come_later_keep_a_job_running") {
        return;
    }
    let cluster = TestCluster::up(2);
    for node in 0..2 {
        faults::lose(&cluster, node, "0.05");
    }
    let ring = start(&cluster, "ring", 4, &[]);
    cluster.wait_state("ring", "running");
    never_stopped(&cluster, &["ring"]);
    kill(&cluster, &cluster.job("ring").expect("it runs"));
    ring.finish().fails(137, &[]);
}

#[test]
fn a_job_with_a_rank_that_a_signal_has_stopped_is_not_stopped_itself() {
    let cluster = TestCluster::up(2);
    let ring = start(&cluster, "ring", 2, &[]);
    let job = cluster.wait_state("ring", "running");
    let number = job["job"].to_string();
    cluster.kumi(&["kill", "--signal", "STOP", &number]).ok();
    never_stopped(&cluster, &["ring"]);
    cluster.kumi(&["kill", "--signal", "CONT", &number]).ok();
    kill(&cluster, &job);
    ring.finish().fails(137, &[]);
}
