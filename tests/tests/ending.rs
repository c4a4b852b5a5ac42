//! Whole-system tests of how jobs end, and of commands that leave them.

use kumi_tests::cluster::TestCluster;
use kumi_tests::machine;
use nix::sys::signal::Signal;
use std::process::Stdio;

/// Says that it runs, saves what it has when it is asked to end, and takes some time for that.
const SAVES: &str =
    "trap 'sleep 1; echo saved; exit 0' TERM; echo ready; while :; do sleep 0.05; done";
/// Does not end when it is asked.
const STAYS: &str = "trap '' TERM INT HUP QUIT PIPE; echo ready; while :; do sleep 0.05; done";

#[test]
fn a_killed_job_has_time_to_save_what_it_has() {
    let cluster = TestCluster::up(2);
    let run = cluster.start(&["run", "-n", "2", "--name", "saves", "sh", "-c", SAVES]);
    let job = cluster.wait_state("saves", "running");
    cluster.wait_lines(&job, 2);
    cluster.kumi(&["kill", &job["job"].to_string(), "--grace", "2m"]).ok();
    let run = run.finish().fails(137, &["it was killed"]);
    assert_eq!(run.out.matches("saved").count(), 2, "{run:?}");
}

#[test]
fn ranks_that_do_not_end_are_killed_after_the_grace() {
    let cluster = TestCluster::up(1);
    let run = cluster.start(&["run", "--name", "stays", "sh", "-c", STAYS]);
    let job = cluster.wait_state("stays", "running");
    cluster.wait_lines(&job, 1);
    let number = job["job"].to_string();
    let killed = cluster.kumi(&["kill", &number, "--grace", "2s"]).ok();
    assert!(
        killed.err.contains("waiting for ranks to end"),
        "it says what it waits for: {killed:?}"
    );
    run.finish().fails(137, &["it was killed"]);
    cluster.kumi(&["kill", &number, "--grace", "2h"]).fails(64, &["at most 1h"]);
}

#[test]
fn attach_leaves_and_never_kills() {
    let cluster = TestCluster::up(1);
    let run = cluster.start(&["run", "--name", "stays", "sh", "-c", SAVES]);
    let job = cluster.wait_state("stays", "running");
    cluster.wait_lines(&job, 1);
    let number = job["job"].to_string();
    for signal in [Signal::SIGINT, Signal::SIGHUP, Signal::SIGTERM, Signal::SIGQUIT] {
        let attached = cluster.start(&["attach", &number]);
        attached.output_line();
        // Twice would have killed the job.
        machine::signal(attached.pid(), signal);
        let left = attached.finish().fails(128 + signal as i32, &["left job", "goes on"]);
        assert_eq!(left.out, "ready\n");
        assert_eq!(cluster.job("stays").expect("it is there")["state"], "running");
    }
    // A reader that has had enough says nothing to the job either.
    let mut attached = cluster.command(&["attach", &number]);
    let mut attached = attached.stdout(Stdio::piped()).spawn().expect("the command");
    drop(attached.stdout.take());
    attached.wait().expect("our child");
    cluster.kumi(&["kill", &number]).ok();
    let run = run.finish().fails(137, &["it was killed"]);
    assert_eq!(run.out, "ready\nsaved\n", "only kill ended it");
}
