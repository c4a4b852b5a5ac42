//! What goes wrong with shared memory.

use kumi_coherence::Misuse;

use crate::node_memory::MemoryError;
use crate::view::ViewError;

/// An error of shared memory. After all but [`Error::Misuse`] the memory is of no use any more.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A mistake of the program, or ranks whose programs differ.
    #[error(transparent)]
    Misuse(#[from] Misuse),
    /// The channel to the other ranks.
    #[error(transparent)]
    Channel(#[from] kumi_mem::Error),
    /// The memory of the node.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The addresses of this process.
    #[error(transparent)]
    View(#[from] ViewError),
    /// A setting that cannot be.
    #[error("{name} is {value:?}; give {wanted}")]
    Setting {
        /// The environment variable.
        name: &'static str,
        /// What it is.
        value: String,
        /// What it may be.
        wanted: &'static str,
    },
    /// Another rank could not make its part of the memory.
    #[error("rank {rank} has no shared memory; its own message says why")]
    Elsewhere {
        /// That rank.
        rank: u32,
    },
    /// Ranks could not have the memory at the same addresses.
    #[error(
        "rank {rank} has the shared memory at other addresses than rank 0; lower KUMI_DSM_BYTES, and map nothing at fixed addresses before"
    )]
    Addresses {
        /// The first rank that differs.
        rank: u32,
    },
    /// A node's first rank offered memory that this rank cannot use.
    #[error(
        "rank {rank} of this node offers no memory; all ranks of a job need the same version of Kumi"
    )]
    Offer {
        /// The rank that offered it.
        rank: u32,
    },
    /// A range outside of what was allocated.
    #[error("{bytes} bytes at byte {offset} are not in an array of {length} bytes")]
    Outside {
        /// First byte.
        offset: usize,
        /// How many.
        bytes: usize,
        /// Bytes of the array.
        length: usize,
    },
}
