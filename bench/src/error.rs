//! Errors of a measurement.

use std::io;
use std::path::PathBuf;

/// Why a figure could not be measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// A program that should be built is not there.
    #[error("there is no {}; run `make bench`, which builds it", .0.display())]
    Missing(PathBuf),
    /// A program could not be started.
    #[error("cannot run {what}: {source}")]
    Start {
        /// Its name.
        what: String,
        /// The reason.
        source: io::Error,
    },
    /// A program failed.
    #[error("{what} failed ({status}): {said}")]
    Failed {
        /// Its name.
        what: String,
        /// Its exit status.
        status: std::process::ExitStatus,
        /// Its message.
        said: String,
    },
    /// A program's output is not as expected.
    #[error("cannot find {wanted} in the output of {what}: {output}")]
    Output {
        /// The text that was sought.
        wanted: String,
        /// The program.
        what: String,
        /// Its output.
        output: String,
    },
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// Its path.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// A head in virtual time does not do what it should.
    #[error("the head under load: {0}")]
    HeadLoad(String),
    /// This program is not a release build.
    #[error(
        "this is a debug build, whose figures say nothing; run `make bench`, or target/release/kumi-bench after `make build`"
    )]
    DebugBuild,
    /// A Python package that cannot be measured.
    #[error(
        "the package kumi of {python} {why}; `make bench-call` builds and installs the right one, and --python names another interpreter"
    )]
    Package {
        /// The interpreter.
        python: String,
        /// The reason.
        why: String,
    },
    /// A file of records cannot be read.
    #[error("{} is no file of records: {why}; measure again", path.display())]
    Records {
        /// Its path.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// The cluster's head could not be asked, or refused.
    #[error(transparent)]
    Head(#[from] kumi_node::client::ClientError),
    /// A call of a routine failed.
    #[error(transparent)]
    Call(#[from] kumi_call_client::CallError),
    /// The simulator refused.
    #[error(transparent)]
    Sim(#[from] kumi_sim::SimError),
    /// A job that should succeed did not.
    #[error("job {job} did not succeed: {outcome}")]
    Job {
        /// The job.
        job: u64,
        /// Its outcome.
        outcome: String,
    },
    /// A list of jobs takes too long.
    #[error("the jobs are not over after {limit:?}; does the machine have too much else to do?")]
    Slow {
        /// The time limit.
        limit: std::time::Duration,
    },
}
