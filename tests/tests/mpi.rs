//! Stock MPI programs whose ranks end badly, and hpcc.
#![forbid(unsafe_code)]

use kumi_tests::binaries::repository;
use kumi_tests::cluster::TestCluster;
use kumi_tests::command::{self, RunningCommand};
use kumi_tests::machine;
use kumi_tests::mpi::{self, Library};
use std::path::Path;

const LIBRARIES: [Library; 3] = [Library::OpenMpi4, Library::OpenMpi5, Library::Mpich];

/// How rank 1 ends, the code of `kumi run`, 0 if any but 0, and what it says.
const ENDS: [(&str, i32, &[&str]); 6] = [
    ("abort", 7, &["rank 1"]),
    ("exit", 0, &["rank 1"]),
    ("code", 9, &["rank 1"]),
    ("segfault", 139, &["rank 1"]),
    ("killed", 137, &["rank 1"]),
    ("truncated", 0, &[]),
];

#[test]
fn a_rank_that_ends_badly_ends_its_job() {
    let test = "a_rank_that_ends_badly_ends_its_job";
    let cluster = TestCluster::up(2);
    for library in LIBRARIES {
        let Some(programs) = library.programs(test) else { continue };
        for (way, code, words) in ENDS {
            let job = mpi::start(&cluster, 4, 2, &programs.path("ends"), &[way]);
            let ended = mpi::finish(job, way);
            assert!(ended.out.contains("all 4 ranks run"), "{library:?}, {way}: {ended:#?}");
            assert_ne!(ended.code(), 0, "{library:?}, {way}: {ended:#?}");
            if code == 0 {
                assert!(words.iter().all(|word| ended.err.contains(word)), "{way}: {ended:#?}");
            } else {
                ended.fails(code, words);
            }
        }
        let job = mpi::start(&cluster, 4, 2, &programs.path("ends"), &["outlive"]);
        mpi::finish(job, "outlive").ok();
    }
}

#[test]
fn a_job_that_hangs_is_killed() {
    let test = "a_job_that_hangs_is_killed";
    for library in LIBRARIES {
        let Some(programs) = library.programs(test) else { continue };
        let cluster = TestCluster::up(2);
        let job = mpi::start(&cluster, 4, 2, &programs.path("ends"), &["hang"]);
        let record = cluster.wait_state("ends", "running");
        cluster.wait_lines(&record, 1);
        cluster.kumi(&["kill", &record["job"].to_string()]).ok();
        mpi::finish(job, "killed job").fails(137, &[]);
        command::wait_for("end of all its processes", || {
            let name = programs.path("ends").display().to_string();
            machine::processes(&name).is_empty().then_some(())
        });
    }
}

/// Starts hpcc in a folder of its own, where it reads what to do and writes what it found.
fn start_hpcc(cluster: &TestCluster, folder: &Path) -> RunningCommand {
    let input = repository().join("tests/mpi/hpccinf.txt");
    std::fs::copy(input, folder.join("hpccinf.txt")).expect("its input");
    let mut words = mpi::words(2, 2, Path::new("hpcc"), &[]);
    words.splice(1..1, ["--cwd".to_owned(), folder.display().to_string()]);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    cluster.start(&words)
}

/// What hpcc says of its own results: lines of its summary, and of the table of PTRANS.
const HPCC_RIGHT: [&str; 5] = [
    "Success=1",
    "MPIRandomAccess_Errors=0",
    "MPIRandomAccess_LCG_Errors=0",
    "0 tests completed and failed residual checks",
    "1 tests completed and passed residual checks",
];

#[test]
fn hpcc_finds_its_results_right() {
    let test = "hpcc_finds_its_results_right";
    if !machine::has_command("hpcc") {
        return kumi_skip::skip(test, "there is no hpcc; `make bench-peers` installs it");
    }
    let cluster = TestCluster::up(2);
    let folder = cluster.state().to_owned();
    mpi::finish(start_hpcc(&cluster, &folder), "end of hpcc").ok();
    let found = std::fs::read_to_string(folder.join("hpccoutf.txt")).expect("its output");
    for words in HPCC_RIGHT {
        assert!(found.contains(words), "no '{words}' in {found}");
    }
    assert!(!found.contains("FAILED"), "{found}");
}
