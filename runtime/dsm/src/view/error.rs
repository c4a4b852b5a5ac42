//! Why an operation on a view fails.

use std::io;
use std::ops::Range;

use super::mechanism::Missing;
use crate::node_memory::MemoryError;

/// Why a view cannot be made or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ViewError {
    /// The kernel or its settings lack what [`super::Mechanism::UserFault`] needs.
    #[error(transparent)]
    Missing(#[from] Missing),
    /// This process has too many views.
    #[error(
        "this process has {most} views of shared memory, the most that it can have; drop one first"
    )]
    TooManyViews {
        /// Most views of a process.
        most: usize,
    },
    /// Units that are not there.
    #[error("units {} to {} are not inside of a view of {count} units", .units.start, .units.end)]
    Outside {
        /// Units asked for.
        units: Range<u64>,
        /// Units that there are.
        count: u64,
    },
    /// [`super::Mechanism::Protect`] has divided the view into more pieces than the kernel permits.
    #[error(
        "the view is in more pieces than the kernel permits ({limit}): raise it (sysctl vm.max_map_count=1048576), use larger units, or a kernel with userfaultfd"
    )]
    TooManyMappings {
        /// The kernel's limit of mappings of a process, if it could be read.
        limit: Limit,
    },
    /// The node has no memory for units that were never touched.
    #[error(
        "no memory for units that are touched for the first time: {source}; give the job more memory"
    )]
    NoMemory {
        /// The kernel's error.
        source: io::Error,
    },
    /// A system call failed.
    #[error("{what} failed: {source}")]
    Io {
        /// The call.
        what: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// The resolver does not let the program write.
    #[error("unit {unit} cannot be written: {reason}")]
    Refused {
        /// The unit.
        unit: u64,
        /// The resolver's reason.
        reason: String,
    },
    /// The memory of the node refused something.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// A child made by `fork` has no view.
    #[error(
        "this process is a fork of the rank's process and has no view of shared memory; start another program, or use threads"
    )]
    Forked,
}

/// The kernel's limit of mappings of a process; `None` where `/proc` does not say it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit(pub Option<u64>);

impl Limit {
    /// That of this machine.
    pub(super) fn read() -> Limit {
        let text = std::fs::read_to_string("/proc/sys/vm/max_map_count").ok();
        Limit(text.and_then(|text| text.trim().parse().ok()))
    }
}

impl std::fmt::Display for Limit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(limit) => write!(f, "vm.max_map_count is {limit}"),
            None => f.write_str("vm.max_map_count"),
        }
    }
}

pub(super) fn failed(what: &'static str) -> impl Fn(io::Error) -> ViewError {
    move |source| ViewError::Io { what, source }
}
