//! Options of `kumi run` and `kumi submit`.

use super::{FabricChoice, MpiChoice, ResourceArgs};
use crate::cli::OnOff;
use crate::parse;
use crate::terminal::TerminalArgs;
use clap::{Args, ValueEnum};
use kumi_control::batch::MOST_REQUEUES;
use kumi_control::message::WaitLimit;
use std::path::PathBuf;
use std::time::Duration;

/// Acknowledgement of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Ack {
    /// One ack packet for each data packet, for comparison
    PerMessage,
    /// Acks ride on other data if there is any; otherwise one packet acks many, a little later
    Reduced,
}

impl Ack {
    /// The value of `KUMI_ACK` for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::PerMessage => "per-message",
            Self::Reduced => "reduced",
        }
    }
}

/// Data that the checksum of a packet covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Checksum {
    /// Packets of up to 256 bytes, and the first 128 bytes of longer ones; UDP's checksum covers the rest
    Headers,
    /// Every byte
    All,
}

impl Checksum {
    /// The value of `KUMI_CHECKSUM` for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Headers => "headers",
            Self::All => "all",
        }
    }
}

/// What a job is.
#[derive(Clone, Debug, Args)]
pub struct JobArgs {
    /// Number of ranks
    #[arg(short = 'n', long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub ranks: u32,
    /// Number of nodes [default: the cluster chooses]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub nodes: Option<u32>,
    /// Name that `kumi ps` shows [default: the program's]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Working directory on every node [default: this one]
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,
    /// Set an environment variable; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse::env)]
    pub env: Vec<(String, String)>,
    /// How packets between nodes are acked [default: reduced, or KUMI_ACK]
    #[arg(long, value_name = "MODE", value_enum)]
    pub ack: Option<Ack>,
    /// What the checksums of packets between nodes cover, beside UDP's own [default: headers, or
    /// KUMI_CHECKSUM]
    #[arg(long, value_name = "WHAT", value_enum)]
    pub checksum: Option<Checksum>,
    /// Whether to encrypt packets between nodes [default: as the cluster is configured]
    #[arg(long, value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "on")]
    pub encrypt: Option<OnOff>,
    /// Priority, 1 to 100: where jobs take turns, the least number of turns in a round [default: as the
    /// cluster is configured]
    #[arg(long, value_name = "N", env = "KUMI_PRIORITY", value_parser = parse::priority)]
    pub priority: Option<u16>,
    /// Estimated run time, for policies that plan ahead: 30s, 10m, 2h; the job may take longer
    /// [default: as the cluster is configured]
    #[arg(long, value_name = "TIME", env = "KUMI_ESTIMATE", value_parser = parse::estimate)]
    pub estimate: Option<Duration>,
    /// Time after which the job is ended: 30s, 10m, 2h; its ranks have ten seconds to end then, exit code 124 [default: as
    /// the cluster is configured]
    #[arg(long, value_name = "TIME", value_parser = parse::estimate)]
    pub time: Option<Duration>,
    /// Start only when this job has succeeded, or with :any when it is over; a number or FIRST-LAST; may be repeated
    #[arg(long, value_name = "JOB[:any]", value_parser = parse::after)]
    pub after: Vec<parse::AfterJobs>,
    /// Start the job again when a node is lost or the head was away for too long, at most N times; without a number once. It
    /// finds in KUMI_RESTARTS how often it was, and has no standard input
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "1",
          value_parser = clap::value_parser!(u32).range(0..=i64::from(MOST_REQUEUES)))]
    pub requeue: Option<u32>,
    /// How long the job may wait in the queue: 30s, 10m; no, so that it starts at once; or forever. If
    /// it does not start in that time it is withdrawn, exit code 75 [default: as the cluster is
    /// configured]
    #[arg(long, value_name = "TIME", env = "KUMI_WAIT", value_parser = parse::wait)]
    pub wait: Option<WaitLimit>,
    /// What becomes of the job when its ranks wait for each other for ever: a report; a report and its end after the grace time,
    /// exit code 72; or nothing [default: KUMI_ON_DEADLOCK, or as the cluster is configured, or report]
    #[arg(long, value_name = "POLICY", value_enum)]
    pub on_deadlock: Option<DeadlockPolicy>,
    /// How long a job stays that is to be ended for a deadlock [default: KUMI_DEADLOCK_GRACE_MS, or 10s]
    #[arg(long, value_name = "TIME", value_parser = parse::duration)]
    pub deadlock_grace: Option<Duration>,
    /// Scheduling of the thread that handles messages while a rank computes: other, rr or fifo, with
    /// :low, :even or :high [default: KUMI_HANDLER, or as the cluster is configured]
    #[arg(long, value_name = "POLICY[:PRIORITY]", value_parser = parse::handler)]
    pub handler: Option<String>,
    /// Record page requests, locks, barriers and messages of the ranks for `kumi trace`; the last so many
    /// events of each rank are kept, 1024 to 4194304 [default: KUMI_TRACE, or none; without a number 65536]
    #[arg(long, value_name = "EVENTS", num_args = 0..=1, require_equals = true, default_missing_value = "65536",
          value_parser = clap::value_parser!(u64).range(1024..=4_194_304))]
    pub trace: Option<u64>,
    /// MPI library of the program: auto looks at the program; none starts it as any other program [default: KUMI_MPI, or
    /// auto]
    #[arg(long, value_name = "LIBRARY", value_enum)]
    pub mpi: Option<MpiChoice>,
    /// What messages of an MPI program go over: kumi, or the library's own tcp, or on one node its shm, to compare
    /// [default: KUMI_FABRIC, or kumi]
    #[arg(long, value_name = "NAME", value_enum)]
    pub fabric: Option<FabricChoice>,
    #[command(flatten)]
    pub resources: ResourceArgs,
    /// File of options, in TOML: its keys are the long options; those of the command line go before
    #[arg(long, value_name = "FILE")]
    pub job_file: Option<PathBuf>,
}

/// `kumi run`
#[derive(Clone, Debug, Args)]
pub struct RunArgs {
    #[command(flatten)]
    pub job: JobArgs,
    /// Put the rank before each line of output
    #[arg(short = 'l', long)]
    pub label: bool,
    /// Write the standard output of the ranks to FILE on this machine
    #[arg(long, value_name = "FILE", conflicts_with = "terminal")]
    pub output: Option<PathBuf>,
    /// Kill the job at the first SIGINT, SIGTERM or SIGHUP instead of sending it to the ranks
    #[arg(long)]
    pub kill: bool,
    /// Give rank 0 a terminal, which this one shows: for shells, editors and debuggers
    #[arg(short = 't', long, conflicts_with = "label")]
    pub terminal: bool,
    /// Pass standard input on to rank 0, which is so without this option, too
    #[arg(short = 'i', long)]
    pub interactive: bool,
    #[command(flatten)]
    pub shown: TerminalArgs,
    #[command(flatten)]
    pub program: ProgramArgs,
}

/// What a job runs: everything behind the options.
#[derive(Clone, Debug, Args)]
pub struct ProgramArgs {
    /// The program and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM"
    )]
    pub command: Vec<String>,
}

/// What becomes of a job whose ranks wait for each other for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DeadlockPolicy {
    /// Those who follow it get a report
    Report,
    /// They get a report, and it is ended after the grace time
    Kill,
    /// Nobody looks
    Ignore,
}

impl DeadlockPolicy {
    /// As its variable has it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Report => "report",
            Self::Kill => "kill",
            Self::Ignore => "ignore",
        }
    }
}
