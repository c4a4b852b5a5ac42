//! Stock MPI programs over the distribution's Open MPI 4.1, on one, two and four nodes.
#![forbid(unsafe_code)]

use kumi_tests::mpi::{self, Extent, Library};

const LIBRARY: Library = Library::OpenMpi4;

#[test]
fn on_one_node() {
    mpi::run_on("mpi_open_mpi::on_one_node", LIBRARY, 1, Extent::Few, &[2, 4]);
}

#[test]
fn on_two_nodes() {
    mpi::run_on("mpi_open_mpi::on_two_nodes", LIBRARY, 2, Extent::Most, &[4, 2, 8]);
}

#[test]
fn on_four_nodes() {
    mpi::run_on("mpi_open_mpi::on_four_nodes", LIBRARY, 4, Extent::Few, &[8, 16]);
}
