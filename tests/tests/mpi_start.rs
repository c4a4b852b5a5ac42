//! Programs of stock MPI libraries start under `kumi run`, know who they are, and end with the rank named.
#![forbid(unsafe_code)]

use kumi_tests::binaries::repository;
use kumi_tests::cluster::TestCluster;
use kumi_tests::command::{self, FinishedCommand};
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use tempfile::TempDir;

/// `tests/mpi/start.c`, compiled with the distribution's Open MPI; none, after saying so, without that.
fn program(test: &str) -> Option<String> {
    static FOLDER: OnceLock<Option<TempDir>> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let mut compiler = Command::new("mpicc");
        compiler.args(["-Wall", "-Werror", "-o"]).arg(folder.path().join("start"));
        compiler.arg(repository().join("tests/mpi/start.c"));
        match compiler.status() {
            Ok(status) => {
                assert!(status.success(), "tests/mpi/start.c does not compile");
                Some(folder)
            }
            Err(_) => None,
        }
    });
    match folder {
        Some(folder) => Some(folder.path().join("start").display().to_string()),
        None => {
            kumi_skip::skip(test, "there is no mpicc; install libopenmpi-dev");
            None
        }
    }
}

fn pmi_client() -> String {
    repository().join("tests/mpi/pmi.py").display().to_string()
}

/// Runs a program over the library's TCP on four ranks.
#[track_caller]
fn run(cluster: &TestCluster, nodes: &str, words: &[&str]) -> FinishedCommand {
    let mut args = vec!["run", "-n", "4", "--nodes", nodes, "--fabric=tcp"];
    args.extend(words);
    cluster.kumi(&args)
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn open_mpi_programs_start_on_one_two_and_four_nodes() {
    let Some(program) = program("open_mpi_programs_start_on_one_two_and_four_nodes") else {
        return;
    };
    let cluster = TestCluster::up(4);
    for (nodes, local) in [("1", 4), ("2", 2), ("4", 1)] {
        let out = run(&cluster, nodes, &[&program]).ok().out;
        let expected = (0..4)
            .map(|rank| format!("rank {rank} of 4, sum 4, {local} on its node, known as {rank}"));
        assert_eq!(sorted(&out), expected.collect::<Vec<_>>(), "{nodes} nodes");
    }
    let out = cluster.kumi(&["run", "-n", "2", "--nodes", "1", "--fabric=shm", &program]).ok().out;
    assert_eq!(out.lines().count(), 2);
    let refused = cluster.kumi(&["run", "-n", "2", "--nodes", "2", "--fabric=shm", &program]);
    refused.fails(64, &["shared memory joins ranks of one node", "--nodes 1"]);
}

#[test]
fn the_rank_that_ends_an_mpi_program_is_named() {
    let Some(program) = program("the_rank_that_ends_an_mpi_program_is_named") else { return };
    let cluster = TestCluster::up(2);
    let aborted = run(&cluster, "2", &[&program, "abort"]);
    aborted
        .fails(7, &["rank 3 called MPI_Abort with code 7", "rank 3 on node1 exited with code 7"]);
    let left = run(&cluster, "2", &[&program, "leave"]);
    left.fails(1, &["rank 3 on node1 ended between MPI_Init and MPI_Finalize"]);
    for (signal, code) in [("9", 137), ("11", 139)] {
        let killed = run(&cluster, "2", &[&program, "signal", signal]);
        killed.fails(code, &["rank 3 on node1 was killed by signal"]);
    }
    let aborted = run(&cluster, "2", &["--mpi=mpich", "python3", &pmi_client(), "1", "abort"]);
    aborted.fails(9, &["rank 3 called MPI_Abort with code 9: enough"]);
    let left = run(&cluster, "2", &["--mpi=mpich", "python3", &pmi_client(), "1", "leave"]);
    left.fails(1, &["ended between MPI_Init and MPI_Finalize"]);
}

#[test]
fn names_are_published_and_spawning_is_refused() {
    let Some(program) = program("names_are_published_and_spawning_is_refused") else { return };
    let cluster = TestCluster::up(2);
    let out = run(&cluster, "2", &[&program, "names"]).ok().out;
    let found = (0..4).map(|rank| format!("rank {rank} found kumi:port"));
    assert_eq!(sorted(&out), found.collect::<Vec<_>>());
    let refused = run(&cluster, "2", &[&program, "spawn"]).ok();
    assert_eq!(refused.out, "spawn: refused\n");
    assert!(refused.err.contains("rank 3: MPI_Comm_spawn is refused"), "{}", refused.err);
}

#[test]
fn ranks_speak_pmi_of_both_versions() {
    let cluster = TestCluster::up(2);
    for version in ["1", "2"] {
        let out = run(&cluster, "2", &["--mpi=mpich", "python3", &pmi_client(), version]).ok().out;
        let all = (0..4).map(|rank| format!("rank {rank} of 4 knows all "));
        assert_eq!(sorted(&out), all.collect::<Vec<_>>(), "version {version}");
    }
    let words = ["-n", "3", "--nodes", "2", "--fabric=tcp", "--mpi=mpich", "python3"];
    let client = pmi_client();
    let mut args = vec!["run"];
    args.extend(words);
    args.extend([&*client, "1", "mapping"]);
    let out = cluster.kumi(&args).ok().out;
    assert!(out.contains("(vector,(0,1,2),(1,1,1))"), "{out}");
    let nonsense = run(&cluster, "2", &["--mpi=mpich", "python3", &pmi_client(), "1", "nonsense"]);
    nonsense.fails(1, &["rank 3: its PMI connection is closed", "\"fly\""]);
}

#[test]
fn ranks_read_who_they_are_in_the_words_of_other_launchers() {
    let cluster = TestCluster::up(2);
    let script = "echo $OMPI_COMM_WORLD_RANK $PMI_SIZE $SLURM_PROCID $SLURM_NODEID $SLURM_LOCALID $PMI_ID $PMIX_ID";
    let strangers = ["--env", "PMI_ID=7", "--env", "PMIX_ID=kumi.7"];
    let mut words = vec!["--mpi=openmpi"];
    words.extend(strangers);
    words.extend(["sh", "-c", script]);
    let out = run(&cluster, "2", &words).ok().out;
    assert_eq!(sorted(&out), ["0 4 0 0 0", "1 4 1 0 1", "2 4 2 1 0", "3 4 3 1 1"]);
    // A program without MPI hears nothing of it.
    let out = cluster.kumi(&["run", "sh", "-c", "echo .$OMPI_COMM_WORLD_RANK.$PMI_RANK."]).ok().out;
    assert_eq!(out, "...\n");
    // What the user sets stays.
    let words = ["--mpi=openmpi", "--env", "OMPI_MCA_pml=x", "sh", "-c", "echo $OMPI_MCA_pml"];
    assert_eq!(run(&cluster, "2", &words).ok().out, "x\n".repeat(4));
}

#[test]
fn without_libpmix_there_is_a_sentence() {
    let cluster = TestCluster::up(1);
    let missing = ["run", "--fabric=tcp", "--env", "KUMI_LIBPMIX=/nowhere/libpmix.so"];
    let run = |words: &[&str]| cluster.kumi(&[&missing[..], words].concat());
    run(&["--mpi=openmpi", "true"]).fails(66, &["has no libpmix.so.2", "libpmix2"]);
    // A script may do without, and says what it lacked if it fails.
    run(&["python3", "-c", "print(1)"]).ok();
    run(&["python3", "-c", "raise SystemExit(3)"]).fails(3, &["has no libpmix.so.2"]);
}

#[test]
fn nothing_of_an_mpi_program_is_left() {
    let Some(program) = program("nothing_of_an_mpi_program_is_left") else { return };
    let cluster = TestCluster::up(2);
    let out = run(&cluster, "2", &[&program, "folder"]).ok().out;
    let folder = Path::new(out.trim());
    assert!(folder.is_absolute(), "{out}");
    command::wait_for("the end of the folder", || (!folder.exists()).then_some(()));
}
