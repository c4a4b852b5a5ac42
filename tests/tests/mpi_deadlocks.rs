//! Stock MPI programs whose ranks wait for each other for ever are found and explained, and others are not called so.
#![forbid(unsafe_code)]

use kumi_tests::cluster::TestCluster;
use kumi_tests::command::RunningCommand;
use kumi_tests::deadlock::{causes, kill, stopped, wait_of};
use kumi_tests::mpi::{self, Library, Programs};
use serde_json::json;

fn start(
    cluster: &TestCluster,
    programs: &Programs,
    (kind, ranks): (&str, u32),
    options: &[&str],
) -> RunningCommand {
    let words = mpi::words(ranks, 2, &programs.path("deadlocks"), &[kind]);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    cluster.start(&[&words[..1], &["--name", kind], options, &words[1..]].concat())
}

fn each_kind_is_explained(test: &str, library: Library) {
    let Some(programs) = library.programs(test) else { return };
    let cluster = TestCluster::up(2);
    let none = Vec::<u32>::new();
    let cases = [
        ("receives", 3, "cycle", vec![0, 1, 2], none.clone(), "MpiReceive", "MPI_Recv"),
        ("sends", 3, "cycle", vec![0, 1, 2], none.clone(), "MpiSend", "MPI_Send"),
        ("probes", 2, "cycle", vec![0, 1], none.clone(), "MpiReceive", "MPI_Probe"),
        ("anybody", 3, "anybody", vec![0, 1, 2], none, "MpiReceive", "MPI_Recv"),
        ("left", 2, "left_too_early", vec![0], vec![1], "MpiReceive", "MPI_Recv"),
    ];
    for (kind, ranks, cause, waiting, over, wait, call) in cases {
        let job = start(&cluster, &programs, (kind, ranks), &[]);
        let (number, waits) = stopped(&cluster, kind);
        let wanted = (cause.to_owned(), json!(waiting), json!(over));
        assert_eq!(causes(&waits), [wanted], "{kind}: {waits}");
        let found = wait_of(&waits, 0);
        assert_eq!((&found["kind"], &found["call"]), (&json!(wait), &json!(call)), "{kind}");
        kill(&cluster, &number);
        mpi::finish(job, kind).fails(137, &["is stopped", call]);
    }
}

/// A false verdict would end the program at once.
fn programs_that_go_on_are_not_stopped(test: &str, library: Library) {
    let Some(programs) = library.programs(test) else { return };
    let cluster = TestCluster::up(2);
    let busy =
        ["run", "-n", "2", "--nodes", "2", "--name", "busy", "sh", "-c", "while :; do :; done"];
    let busy = cluster.start(&busy);
    let job = cluster.wait_state("busy", "running");
    let ends = ["--on-deadlock", "kill", "--deadlock-grace", "0ms"];
    for kind in ["turns", "test", "poll"] {
        let ended = mpi::finish(start(&cluster, &programs, (kind, 4), &ends), kind);
        assert!(ended.status.success() && !ended.err.contains("is stopped"), "{kind}: {ended:#?}");
    }
    kill(&cluster, &job);
    busy.finish().fails(137, &[]);
}

#[test]
fn deadlocks_of_open_mpi_are_explained() {
    each_kind_is_explained("deadlocks_of_open_mpi_are_explained", Library::OpenMpi4);
}

#[test]
fn deadlocks_of_mpich_are_explained() {
    each_kind_is_explained("deadlocks_of_mpich_are_explained", Library::Mpich);
}

#[test]
fn programs_of_open_mpi_that_go_on_are_not_stopped() {
    let test = "programs_of_open_mpi_that_go_on_are_not_stopped";
    programs_that_go_on_are_not_stopped(test, Library::OpenMpi4);
}

#[test]
fn programs_of_mpich_that_go_on_are_not_stopped() {
    let test = "programs_of_mpich_that_go_on_are_not_stopped";
    programs_that_go_on_are_not_stopped(test, Library::Mpich);
}
