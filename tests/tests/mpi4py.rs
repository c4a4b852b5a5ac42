//! The tests of mpi4py, with each of the libraries.
#![forbid(unsafe_code)]

use kumi_tests::cluster::TestCluster;
use kumi_tests::mpi::{self, Library};

/// Of mpi4py's tests those of messages, collectives and one-sided operations; all of them, on two and on four ranks, if everything is
/// wanted. Those that start further processes or connect jobs are left out: Kumi refuses these.
fn mpi4py(test: &str, library: Library) {
    let (Some(python), Some(suite)) = (library.python(test), mpi::mpi4py_tests(test)) else {
        return;
    };
    let cluster = TestCluster::up(2);
    let suite = suite.display().to_string();
    let mut options = vec!["-B", &suite, "-e", "spawn", "-e", "dynproc"];
    let ranks = if mpi::everything() { &[2, 4][..] } else { &[2] };
    if !mpi::everything() {
        options.extend(["-i", "test_cco_obj.py", "-i", "test_comm.py", "-i", "test_status.py"]);
        // Open MPI 4.1 ends by a signal when it cancels a send over libfabric, and has no one-sided operations with several threads.
        if library != Library::OpenMpi4 {
            options.extend(["-i", "test_p2p_obj.py", "-i", "test_rma.py"]);
        }
    }
    for &ranks in ranks {
        let job = mpi::start(&cluster, ranks, 2, &python, &options);
        let ended = mpi::finish(job, "end of mpi4py's tests").ok();
        let passed =
            ended.err.lines().filter(|line| *line == "OK" || line.starts_with("OK (")).count();
        assert!(passed > 0, "{ended:#?}");
    }
}

#[test]
fn mpi4py_with_open_mpi() {
    mpi4py("mpi4py_with_open_mpi", Library::OpenMpi4);
}

#[test]
fn mpi4py_with_open_mpi_5() {
    mpi4py("mpi4py_with_open_mpi_5", Library::OpenMpi5);
}

#[test]
fn mpi4py_with_mpich() {
    mpi4py("mpi4py_with_mpich", Library::Mpich);
}
