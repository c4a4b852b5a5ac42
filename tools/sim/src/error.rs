//! Errors of a simulation.

use std::io;
use std::path::PathBuf;

/// Reason why there is no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SimError {
    /// The policy's name is unknown.
    #[error(transparent)]
    UnknownPolicy(#[from] kumi_sched::registry::UnknownPolicy),
    /// The list holds no job.
    #[error("there is no job to simulate; check the trace, the load and the length of time")]
    Empty,
    /// A job that would run on nothing.
    #[error("job {job} asks for no processors; a job runs on at least one")]
    NoProcessors {
        /// Its number in the list.
        job: u64,
    },
    /// A job larger than the machine.
    #[error(
        "job {job} asks for {size} processors of a machine that has {procs}; give a larger machine with --procs"
    )]
    TooLarge {
        /// Its number in the list.
        job: u64,
        /// Its size.
        size: u32,
        /// The machine's size.
        procs: u32,
    },
    /// An invalid parameter.
    #[error("{name} of {value} is not possible; {advice}")]
    Parameter {
        /// Its name on the command line.
        name: &'static str,
        /// Its value.
        value: String,
        /// The possible values.
        advice: &'static str,
    },
    /// A file that cannot be read.
    #[error("cannot read {}: {source}; check its name, permissions and format", path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// The system's error message.
        source: io::Error,
    },
    /// A line of a trace, where every line must be right.
    #[error(
        "line {line} of the trace: {reason}; mend it, or leave out --strict to skip such lines"
    )]
    Trace {
        /// Counted from 1.
        line: u64,
        /// The error.
        reason: String,
    },
    /// A file that is not a cluster's history.
    #[error("{} is not a history of a cluster: {reason}; write one with `kumi ps --all --json`", path.display())]
    History {
        /// Which.
        path: PathBuf,
        /// The error.
        reason: String,
    },
    /// A record of a history, where every record must be right.
    #[error(
        "record {place} of the history: {reason}; mend it, or leave out --strict to skip such records"
    )]
    Record {
        /// Place in the list, counted from 1.
        place: u64,
        /// The error.
        reason: String,
    },
    /// The policy does not take a job.
    #[error("policy {policy} refuses job {job}: {reason}")]
    Refused {
        /// Its name.
        policy: String,
        /// The job's number in the list.
        job: u64,
        /// Why.
        reason: kumi_sched::ArriveError,
    },
    /// Jobs wait for ever.
    #[error(
        "policy {policy} leaves {jobs} jobs waiting on an idle machine, the first is job {first} of {size} processors; choose another policy or machine size"
    )]
    Stuck {
        /// Its name.
        policy: String,
        /// How many jobs.
        jobs: u64,
        /// The first one's number in the list.
        first: u64,
        /// Its size.
        size: u32,
    },
    /// The policy broke its own contract.
    #[error("policy {policy} broke its contract: {what}; please report it")]
    Policy {
        /// Its name.
        policy: String,
        /// The breach.
        what: &'static str,
    },
    /// Virtual time overflowed.
    #[error("the simulated time exceeds 500 years; check submission and run times")]
    Endless,
    /// The caller asked to stop.
    #[error("interrupted; nothing was written")]
    Cancelled,
    /// The name of a policy for calls is unknown.
    #[error(transparent)]
    UnknownCallPolicy(#[from] kumi_broker::UnknownPolicy),
    /// An invalid model of calls.
    #[error(
        "the model of calls is not possible: {reason}; docs/guide/simulating.md says what it may hold"
    )]
    Model {
        /// The error in it.
        reason: String,
    },
    /// A result that cannot be written.
    #[error("cannot write {}: {source}; check permissions and free space", path.display())]
    Unwritable {
        /// Which file.
        path: PathBuf,
        /// The system's error message.
        source: io::Error,
    },
}
