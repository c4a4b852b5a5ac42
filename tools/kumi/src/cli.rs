//! What can be written on the command line.

use crate::parse;
use clap::{Args, Parser, Subcommand, ValueEnum};
use nix::sys::signal::Signal;
use std::path::PathBuf;
use std::time::Duration;

/// Turns Linux machines into one interactive parallel computer.
#[derive(Debug, Parser)]
#[command(name = "kumi", version, max_term_width = 100, disable_help_subcommand = true)]
pub struct Cli {
    /// The cluster to work with
    #[arg(long, global = true, value_name = "NAME", env = "KUMI_CLUSTER", default_value = "default",
          value_parser = parse::cluster_name)]
    pub cluster: String,
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make, start, look at, change and stop clusters
    #[command(subcommand)]
    Cluster(ClusterCommand),
    /// Run a parallel program and follow it
    Run(RunArgs),
    /// List jobs
    Ps(PsArgs),
    /// End jobs on all their nodes, or send all their ranks a signal
    Kill(KillArgs),
    /// Show what a job has written
    Logs(LogsArgs),
    /// Follow a running job: its output, and signals to it
    Attach(AttachArgs),
    /// Live view of jobs, nodes and ranks
    Top(TopArgs),
    /// Figures of the switching and of the ranks' channels
    Stats(StatsArgs),
    /// What this machine permits, what it does not, what that costs and how to get it
    Doctor(DoctorArgs),
    /// Show what gang scheduling does, on a cluster of its own on this machine
    Demo(crate::demo::DemoArgs),
    /// Simulate before you buy or change: jobs and scheduling policies in virtual time
    #[command(subcommand)]
    Sim(crate::sim::SimCommand),
    /// Routines that are called over the network
    #[command(subcommand)]
    Call(crate::call::CallCommand),
    /// Print a script by which a shell completes command lines of kumi
    Completions(crate::completions::CompletionsArgs),
}

/// `kumi cluster …`
#[derive(Debug, Subcommand)]
pub enum ClusterCommand {
    /// Write a cluster's configuration and keys, start nothing
    Init(InitArgs),
    /// Start a cluster, making its configuration if there is none
    Up(UpArgs),
    /// Show the cluster's nodes
    Status(StatusArgs),
    /// End all jobs and stop the cluster, leaving nothing of it on this machine
    Down(DownArgs),
    /// Change how the processors are shared while jobs run
    Set(SetArgs),
}

/// Where the nodes are.
#[derive(Clone, Debug, Args)]
#[group(required = false, multiple = false)]
pub struct NodePlacementArgs {
    /// This many nodes on this machine
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=200))]
    pub local: Option<u32>,
    /// The hosts in FILE, one line each: NAME ADDRESS[:PORT] [cpus=LIST]
    #[arg(long, value_name = "FILE")]
    pub hosts: Option<PathBuf>,
}

/// How processors are shared and the tree is built.
#[derive(Clone, Debug, Args)]
pub struct SharingArgs {
    /// Length of a slice, 250us to 10s
    #[arg(long, value_name = "TIME", value_parser = parse::slice, default_value = "10ms")]
    pub slice: Duration,
    /// Processors of each node of a local cluster
    #[arg(long, value_enum, default_value_t = Cpus::Auto)]
    pub cpus: Cpus,
    /// How jobs share the nodes: the name of a scheduling policy as dqt, fair-dqt:apa, matrix or
    /// easy, gang for the default one, or os for the operating systems' own
    #[arg(long, alias = "mode", value_name = "NAME", value_parser = parse::policy,
          default_value = "gang")]
    pub policy: Policy,
    /// Switch even where one job runs alone, to measure what switching costs
    #[arg(long)]
    pub force_switch: bool,
    /// Children per node of the control tree
    #[arg(long, value_name = "K", default_value_t = 16,
          value_parser = clap::value_parser!(u32).range(2..=1024))]
    pub fan_out: u32,
    /// How long nodes that have lost the head go on with their jobs, 500ms to 3600s
    #[arg(long, value_name = "TIME", value_parser = parse::duration, default_value = "15s")]
    pub lease: Duration,
    /// A job whose ranks have only waited for so long gives its slots to others, 100ms to 3600s; 0s: never
    #[arg(long, value_name = "TIME", value_parser = parse::duration, default_value = "1s")]
    pub idle_after: Duration,
    /// Encrypt the packets of jobs between nodes, unless `kumi run` says otherwise
    #[arg(long)]
    pub encrypt: bool,
    /// Scheduling of the threads that serve others while ranks compute, unless `kumi run` says otherwise: other, rr or
    /// fifo, with :low, :even or :high
    #[arg(long, value_name = "POLICY[:PRIORITY]", value_parser = parse::handler)]
    pub handler: Option<String>,
    /// Priority of jobs, unless `kumi run` says otherwise; 1 if not given
    #[arg(long, value_name = "N", value_parser = parse::priority)]
    pub priority: Option<u16>,
    /// How long jobs are thought to run, unless `kumi run` says otherwise: 30s, 10m, 2h
    #[arg(long, value_name = "TIME", value_parser = parse::estimate_text)]
    pub estimate: Option<String>,
}

/// `kumi cluster init`
#[derive(Clone, Debug, Args)]
pub struct InitArgs {
    #[command(flatten)]
    pub place: NodePlacementArgs,
    #[command(flatten)]
    pub sharing: SharingArgs,
    /// The cluster's name; the same as --cluster
    #[arg(long, value_name = "NAME", value_parser = parse::cluster_name)]
    pub name: Option<String>,
}

/// `kumi cluster up`
#[derive(Clone, Debug, Args)]
pub struct UpArgs {
    #[command(flatten)]
    pub place: NodePlacementArgs,
    #[command(flatten)]
    pub sharing: SharingArgs,
    /// Largest packet of the network between the nodes of a local cluster, where the nodes are
    /// network namespaces; 9000 is that of an Ethernet with jumbo frames
    #[arg(long, value_name = "BYTES", default_value_t = 1500,
          value_parser = clap::value_parser!(u32).range(1280..=65535))]
    pub mtu: u32,
}

/// `kumi cluster status`
#[derive(Clone, Debug, Args)]
pub struct StatusArgs {
    /// As data
    #[arg(long)]
    pub json: bool,
}

/// `kumi cluster down`
#[derive(Clone, Debug, Args)]
pub struct DownArgs {
    /// Of a cluster of hosts, remove the configuration and the keys too
    #[arg(long)]
    pub purge: bool,
}

/// `kumi cluster set`
#[derive(Clone, Debug, Args)]
#[group(required = true, multiple = true)]
pub struct SetArgs {
    /// Length of a slice, 250us to 10s
    #[arg(long, value_name = "TIME", value_parser = parse::slice)]
    pub slice: Option<Duration>,
    /// How jobs share the nodes: the name of a scheduling policy as dqt, fair-dqt:apa, matrix or
    /// easy, os for the operating systems' own, or gang for the last policy that was none
    #[arg(long, alias = "mode", value_name = "NAME", value_parser = parse::policy)]
    pub policy: Option<Policy>,
    /// Switch even where one job runs alone
    #[arg(long, value_enum)]
    pub force_switch: Option<OnOff>,
}

/// Which processors the nodes of a local cluster get.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Cpus {
    /// An equal share of the machine each; one each, in turn, when there are more nodes
    Auto,
    /// All of them for every node
    All,
    /// One each, in turn
    PerNode,
}

/// How processors are shared among jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Policy {
    /// All ranks of a job in the same slice, by the policy that the cluster has.
    Gang,
    /// Every job all the time, as the operating systems like.
    Os,
    /// All ranks of a job in the same slice, by this policy.
    Named(String),
}

/// How packets are acked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Ack {
    /// Every data packet by a packet of its own, to compare with
    PerMessage,
    /// By replies and other data, else late and many at once
    Reduced,
}

impl Ack {
    /// The value of `KUMI_ACK` that means it.
    pub fn word(self) -> &'static str {
        match self {
            Self::PerMessage => "per-message",
            Self::Reduced => "reduced",
        }
    }
}

/// What the checksum of a packet covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Checksum {
    /// Packets of up to 256 bytes whole, the first 128 bytes of longer ones; the rest is left to UDP's own
    Headers,
    /// Every byte
    All,
}

impl Checksum {
    /// The value of `KUMI_CHECKSUM` that means it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Headers => "headers",
            Self::All => "all",
        }
    }
}

/// On or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OnOff {
    /// On
    On,
    /// Off
    Off,
}

/// `kumi run`
#[derive(Clone, Debug, Args)]
pub struct RunArgs {
    /// Number of ranks
    #[arg(short = 'n', long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub ranks: u32,
    /// Number of nodes; chosen by the cluster if not given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub nodes: Option<u32>,
    /// Name shown by `kumi ps`; the program's if not given
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Working directory on every node; this one if not given
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,
    /// Set an environment variable; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse::env)]
    pub env: Vec<(String, String)>,
    /// Put the rank before each line of output
    #[arg(short = 'l', long)]
    pub label: bool,
    /// The first SIGINT, SIGTERM or SIGHUP kills the job, instead of going to its ranks
    #[arg(long)]
    pub kill: bool,
    /// How packets between nodes are acked; reduced unless KUMI_ACK says otherwise
    #[arg(long, value_name = "MODE", value_enum)]
    pub ack: Option<Ack>,
    /// What the checksums of packets between nodes cover, beside UDP's own; headers unless KUMI_CHECKSUM says otherwise
    #[arg(long, value_name = "WHAT", value_enum)]
    pub checksum: Option<Checksum>,
    /// Encrypt packets between nodes, or do not; as the cluster is configured if not given
    #[arg(long, value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "on")]
    pub encrypt: Option<OnOff>,
    /// How important it is, 1 to 100: at least so many turns in a round where jobs take turns; as the cluster is
    /// configured if not given
    #[arg(long, value_name = "N", env = "KUMI_PRIORITY", value_parser = parse::priority)]
    pub priority: Option<u16>,
    /// How long it will run, for policies that plan ahead: 30s, 10m, 2h; it may take longer. As the cluster is
    /// configured if not given
    #[arg(long, value_name = "TIME", env = "KUMI_ESTIMATE", value_parser = parse::estimate)]
    pub estimate: Option<Duration>,
    /// Scheduling of the thread that serves others while a rank computes: other, rr or fifo, with :low, :even or :high; as
    /// KUMI_HANDLER or the cluster's configuration says if not given
    #[arg(long, value_name = "POLICY[:PRIORITY]", value_parser = parse::handler)]
    pub handler: Option<String>,
    /// The program and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM"
    )]
    pub command: Vec<String>,
}

/// `kumi ps`
#[derive(Clone, Debug, Args)]
pub struct PsArgs {
    /// Also the jobs that are over
    #[arg(short, long)]
    pub all: bool,
    /// As data
    #[arg(long)]
    pub json: bool,
}

/// `kumi kill`
#[derive(Clone, Debug, Args)]
pub struct KillArgs {
    /// Numbers of the jobs, as `kumi ps` shows them
    #[arg(required = true, value_name = "JOB")]
    pub jobs: Vec<u64>,
    /// Send their ranks this signal, by name or number, instead of ending the jobs
    #[arg(short, long, value_name = "SIGNAL", value_parser = signal)]
    pub signal: Option<u8>,
}

/// A signal as `kill` takes it: `USR1`, `SIGUSR1` or 10.
fn signal(text: &str) -> Result<u8, String> {
    let name = text.to_ascii_uppercase();
    let full = if name.starts_with("SIG") { name } else { format!("SIG{name}") };
    let named = full.parse().map(|signal: Signal| signal as i32);
    named
        .or_else(|_| text.parse())
        .ok()
        .and_then(|number| u8::try_from(number).ok())
        .filter(|number| (1..=64).contains(number))
        .ok_or_else(|| "give a name as USR1 or a number from 1 to 64".to_owned())
}

/// `kumi logs`
#[derive(Clone, Debug, Args)]
pub struct LogsArgs {
    /// Wait for more until the job is over
    #[arg(short, long)]
    pub follow: bool,
    /// Put the rank before each line
    #[arg(short = 'l', long)]
    pub label: bool,
    /// Number of the job
    pub job: u64,
}

/// `kumi attach`
#[derive(Clone, Debug, Args)]
pub struct AttachArgs {
    /// Put the rank before each line
    #[arg(short = 'l', long)]
    pub label: bool,
    /// Number of the job
    pub job: u64,
}

/// `kumi top`
#[derive(Clone, Debug, Args)]
pub struct TopArgs {
    /// Print one plain text snapshot and exit
    #[arg(long)]
    pub once: bool,
    /// Print one snapshot as data and exit
    #[arg(long)]
    pub json: bool,
}

/// `kumi stats`
#[derive(Clone, Debug, Args)]
pub struct StatsArgs {
    /// As data
    #[arg(long)]
    pub json: bool,
    /// Also each rank's peers on other nodes: packets by kind, bytes, round trip, what is not acked
    #[arg(long, requires = "job")]
    pub peers: bool,
    /// Only the ranks of this job
    pub job: Option<u64>,
}

/// `kumi doctor`
#[derive(Clone, Debug, Args)]
pub struct DoctorArgs {
    /// As data
    #[arg(long)]
    pub json: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn read(words: &[&str]) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(words)
    }

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn what_follows_the_program_is_the_programs() {
        let cli = read(&["kumi", "run", "-n", "8", "-l", "--env", "A=b", "prog", "-n", "--help"]);
        let Command::Run(args) = cli.unwrap().command else { panic!("not run") };
        assert_eq!(args.ranks, 8);
        assert!(args.label);
        assert_eq!(args.encrypt, None);
        assert_eq!(args.env, [("A".to_owned(), "b".to_owned())]);
        assert_eq!(args.command, ["prog", "-n", "--help"]);
    }

    #[test]
    fn encryption_is_on_off_or_not_mentioned() {
        for (word, expected) in
            [("--encrypt", OnOff::On), ("--encrypt=on", OnOff::On), ("--encrypt=off", OnOff::Off)]
        {
            let Command::Run(args) = read(&["kumi", "run", word, "prog"]).unwrap().command else {
                panic!("not run")
            };
            assert_eq!((args.encrypt, &*args.command[0]), (Some(expected), "prog"));
        }
        assert!(read(&["kumi", "run", "--encrypt=maybe", "prog"]).is_err());
    }

    #[test]
    fn the_handlers_scheduling_is_checked() {
        for word in ["other", "rr:low", "fifo:high"] {
            let Command::Run(args) =
                read(&["kumi", "run", "--handler", word, "prog"]).unwrap().command
            else {
                panic!("not run")
            };
            assert_eq!(args.handler.as_deref(), Some(word));
        }
        for wrong in ["", "fast", "rr:", "fifo:highest"] {
            let error = read(&["kumi", "run", "--handler", wrong, "prog"]).unwrap_err().to_string();
            assert!(error.contains("other, rr or fifo"), "{error}");
            assert!(read(&["kumi", "cluster", "up", "--local", "1", "--handler", wrong]).is_err());
        }
    }

    #[test]
    fn wrong_values_are_refused() {
        for words in [
            &["kumi", "run", "-n", "0", "prog"][..],
            &["kumi", "run", "-n", "-3", "prog"],
            &["kumi", "run", "-n", "many", "prog"],
            &["kumi", "run"],
            &["kumi", "run", "--env", "A", "prog"],
            &["kumi", "run", "--ack", "sometimes", "prog"],
            &["kumi", "run", "--checksum", "none", "prog"],
            &["kumi", "stats", "--peers"],
            &["kumi", "cluster", "up", "--local", "0"],
            &["kumi", "cluster", "up", "--local", "2", "--hosts", "f"],
            &["kumi", "cluster", "up", "--local", "2", "--slice", "1us"],
            &["kumi", "cluster", "up", "--local", "2", "--mtu", "100"],
            &["kumi", "cluster", "set"],
            &["kumi", "cluster", "set", "--policy", "esy"],
            &["kumi", "cluster", "up", "--local", "2", "--policy", "dqt+migrate"],
            &["kumi", "run", "--priority", "0", "prog"],
            &["kumi", "run", "--estimate", "10", "prog"],
            &["kumi", "--cluster", "A/b", "ps"],
            &["kumi", "kill"],
            &["kumi", "kill", "x"],
        ] {
            assert!(read(words).is_err(), "{words:?}");
        }
    }
}
