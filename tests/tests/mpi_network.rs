//! Stock MPI programs where packets are lost, and where their jobs are switched.
#![forbid(unsafe_code)]

use kumi_tests::cluster::TestCluster;
use kumi_tests::faults::{lose, lost, possible};
use kumi_tests::mpi::{self, Extent, Library};

fn under_loss(test: &str, library: Library) {
    if !possible(test) {
        return;
    }
    let Some(programs) = library.programs(test) else { return };
    let cluster = TestCluster::up(2);
    for node in 0..2 {
        lose(&cluster, node, "0.02");
    }
    mpi::run_all(&cluster, &programs, (Extent::Few, [4, 2]), &["--seed", "2"]);
    assert!(lost(&cluster, 0) + lost(&cluster, 1) > 0, "no packet was lost");
}

#[test]
fn two_per_cent_lost_with_open_mpi() {
    under_loss("two_per_cent_lost_with_open_mpi", Library::OpenMpi4);
}

#[test]
fn two_per_cent_lost_with_mpich() {
    under_loss("two_per_cent_lost_with_mpich", Library::Mpich);
}

/// Each program runs twice at once. The two jobs take turns, so each is frozen wherever it happens to be.
fn frozen(test: &str, library: Library) {
    let Some(programs) = library.programs(test) else { return };
    let cluster = TestCluster::up_with(2, &["--slice", "2ms"]);
    for case in mpi::cases(Extent::Few).filter(|case| case.ranks == 0) {
        let seeds = ["3", "4"];
        let start = |seed| mpi::start_case(&cluster, &programs, [2, 2], case, &["--seed", seed]);
        for job in seeds.map(start) {
            mpi::has_passed(job, case, [2, 2], library);
        }
    }
    let stats = cluster.json(&["stats", "--json"]);
    for node in stats["nodes"].as_array().expect("nodes") {
        assert!(node["switching"]["count"].as_u64() > Some(0), "{node}");
    }
}

#[test]
fn jobs_that_take_turns_with_open_mpi() {
    frozen("jobs_that_take_turns_with_open_mpi", Library::OpenMpi4);
}

#[test]
fn jobs_that_take_turns_with_mpich() {
    frozen("jobs_that_take_turns_with_mpich", Library::Mpich);
}
