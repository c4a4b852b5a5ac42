//! The ways of an MPI library's messages, each chosen by options of `kumi run`.

use crate::cluster::Cluster;
use crate::error::BenchError;
use std::path::Path;

/// What carries the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Kumi's channels.
    Kumi,
    /// The library's own TCP.
    Tcp,
    /// libfabric with its provider `tcp`.
    StockProvider,
    /// The library's own shared memory, on one node.
    SharedMemory,
}

impl Way {
    /// Its name in records and plots.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Kumi => "Kumi",
            Self::Tcp => "its own TCP",
            Self::StockProvider => "libfabric's tcp",
            Self::SharedMemory => "its own shared memory",
        }
    }

    /// The options of `kumi run`.
    pub(super) fn options(self) -> &'static [&'static str] {
        match self {
            Self::Kumi => &["--fabric=kumi"],
            Self::Tcp => &["--fabric=tcp"],
            Self::StockProvider => &[
                "--fabric=tcp",
                "--env",
                "OMPI_MCA_pml=cm",
                "--env",
                "OMPI_MCA_mtl=ofi",
                "--env",
                "OMPI_MCA_mtl_ofi_provider_include=tcp",
            ],
            Self::SharedMemory => &["--fabric=shm"],
        }
    }

    /// Runs a program in this way; returns its standard output.
    ///
    /// # Errors
    /// When it fails.
    pub(super) fn run(
        self,
        cluster: &Cluster,
        shape: Shape,
        program: &Path,
        args: &[&str],
    ) -> Result<String, BenchError> {
        let program = program.display().to_string();
        let (ranks, nodes) = (shape.ranks.to_string(), shape.nodes.to_string());
        let run = ["run", "-n", &ranks, "--nodes", &nodes];
        cluster.kumi(&[&run[..], self.options(), &[&program], args].concat())
    }
}

/// Numbers of ranks and of nodes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) ranks: u32,
    pub(super) nodes: u32,
}
