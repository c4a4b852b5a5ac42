//! The tests of mpi4py, with each of the libraries.
#![forbid(unsafe_code)]

use kumi_tests::cluster::TestCluster;
use kumi_tests::mpi::{self, Library};

/// All of mpi4py's tests on two and on four ranks, but those that start further processes: Kumi refuses these.
fn mpi4py(test: &str, library: Library) {
    let (Some(python), Some(suite)) = (library.python(test), mpi::mpi4py_tests(test)) else {
        return;
    };
    let cluster = TestCluster::up(2);
    let suite = suite.display().to_string();
    let ranks = if mpi::everything() { &[2, 4][..] } else { &[2] };
    for &ranks in ranks {
        let job = mpi::start(&cluster, ranks, 2, &python, &["-B", &suite, "-e", "spawn"]);
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
