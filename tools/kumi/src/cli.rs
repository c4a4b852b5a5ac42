//! Command line of `kumi`.

use crate::cluster::JobDefaultArgs;
use crate::parse;
use crate::run::{FabricChoice, MpiChoice, ResourceArgs};
use crate::terminal::TerminalArgs;
use clap::{Args, Parser, Subcommand, ValueEnum};
use kumi_control::message::WaitLimit;
use kumi_sched::SliceLength;
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
    /// Make, start, show, change and stop clusters
    #[command(subcommand)]
    Cluster(ClusterCommand),
    /// Run a parallel program and follow it
    Run(RunArgs),
    /// List jobs
    Ps(PsArgs),
    /// End jobs on all their nodes, or send all their ranks a signal
    Kill(crate::kill::KillArgs),
    /// Show what a job has written
    Logs(LogsArgs),
    /// Follow a running job: print its output, and show its terminal if it has one; Ctrl-C or `~.` leaves it
    Attach(AttachArgs),
    /// Show jobs, nodes and ranks live
    Top(crate::top::TopArgs),
    /// Show the cluster in a browser: load of ranks, slices, jobs, nodes, history
    Web(crate::web::WebArgs),
    /// Show statistics of gang switching and of the ranks' channels
    Stats(StatsArgs),
    /// Look into a running job to find a fault
    #[command(subcommand)]
    Debug(crate::debug::DebugCommand),
    /// Write what a traced job's ranks have recorded as a page and as JSON for Perfetto, and say what it suggests
    Trace(crate::trace::TraceArgs),
    /// Check what this machine permits, what is missing, what that costs and how to get it
    Doctor(DoctorArgs),
    /// Demonstrate gang scheduling on a temporary cluster on this machine
    Demo(crate::demo::DemoArgs),
    /// Simulate jobs, scheduling policies and calls in virtual time
    #[command(subcommand)]
    Sim(crate::sim::SimCommand),
    /// Serve and call routines over the network
    #[command(subcommand)]
    Call(crate::call::CallCommand),
    /// Print a script by which a shell completes command lines of kumi
    Completions(crate::completions::CompletionsArgs),
}

/// `kumi cluster …`
#[derive(Debug, Subcommand)]
pub enum ClusterCommand {
    /// Write a cluster's configuration and keys without starting it
    Init(InitArgs),
    /// Start a cluster, and make its configuration if there is none
    Up(UpArgs),
    /// Show the cluster's nodes
    Status(StatusArgs),
    /// End all jobs, stop the cluster and leave nothing of it on this machine
    Down(DownArgs),
    /// Change how jobs share the processors, while they run
    Set(SetArgs),
    /// Refuse all certificates that a node has now
    Revoke(RevokeArgs),
    /// Make new certificates and keys, where the cluster was made
    Rotate(RotateArgs),
}

/// Places of the nodes.
#[derive(Clone, Debug, Args)]
#[group(required = false, multiple = false)]
pub struct NodePlacementArgs {
    /// Number of nodes, all on this machine
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=200))]
    pub local: Option<u32>,
    /// File of hosts, one line each: NAME ADDRESS[:PORT] [cpus=LIST] [users=LIST] [memory=SIZE] [devices=NAME:LIST]
    #[arg(long, value_name = "FILE")]
    pub hosts: Option<PathBuf>,
}

/// Addresses of the nodes.
#[derive(Clone, Copy, Debug, Args)]
pub struct AddressArgs {
    /// Give the nodes of a local cluster IPv6 addresses, and look up names of hosts as such
    #[arg(long)]
    pub ipv6: bool,
}

/// Sharing of processors, and the shape of the control tree.
#[derive(Clone, Debug, Args)]
pub struct SharingArgs {
    /// Length of a time slice, 250us to 10s; auto: 1ms to 100ms, the fewer jobs take turns the longer
    #[arg(long, value_name = "TIME", value_parser = parse::slice, default_value = "auto")]
    pub slice: SliceLength,
    /// Processors of each node of a local cluster
    #[arg(long, value_enum, default_value_t = Cpus::Auto)]
    pub cpus: Cpus,
    /// How jobs share the nodes: a scheduling policy such as dqt, fair-dqt:apa, matrix or easy; gang
    /// for the default policy; or os to leave it to the operating systems
    #[arg(long, alias = "mode", value_name = "NAME", value_parser = parse::policy,
          default_value = "gang")]
    pub policy: Policy,
    /// Switch even when one job runs alone, to measure the cost of switching
    #[arg(long)]
    pub force_switch: bool,
    /// Whether jobs have what others leave idle in their turns, unless `kumi run` says otherwise
    #[arg(long, value_enum, default_value_t = OnOff::On)]
    pub fill: OnOff,
    /// Children per node of the control tree
    #[arg(long, value_name = "K", default_value_t = 16,
          value_parser = clap::value_parser!(u32).range(2..=1024))]
    pub fan_out: u32,
    /// How long nodes keep running their jobs after they lost the head, 500ms to 3600s
    #[arg(long, value_name = "TIME", value_parser = parse::duration, default_value = "15s")]
    pub lease: Duration,
    /// A job gives its slots to others once all its ranks have waited for this long, 100ms to 3600s;
    /// 0s: never
    #[arg(long, value_name = "TIME", value_parser = parse::duration, default_value = "1s")]
    pub idle_after: Duration,
    /// Encrypt the packets of jobs between nodes, unless `kumi run` says otherwise
    #[arg(long)]
    pub encrypt: bool,
    /// How ranks send to other nodes: udp; xdp, short packets past the network stack by AF_XDP; or
    /// auto, as xdp where that can be had
    #[arg(long, value_enum, default_value_t = Wire::Udp)]
    pub wire: Wire,
    /// Scheduling of the threads that handle messages while ranks compute: other, rr or fifo, with
    /// :low, :even or :high; `kumi run` may say otherwise
    #[arg(long, value_name = "POLICY[:PRIORITY]", value_parser = parse::handler)]
    pub handler: Option<String>,
    /// Priority of jobs, unless `kumi run` says otherwise [default: 1]
    #[arg(long, value_name = "N", value_parser = parse::priority)]
    pub priority: Option<u16>,
    /// Estimated run time of jobs, unless `kumi run` says otherwise: 30s, 10m, 2h
    #[arg(long, value_name = "TIME", value_parser = parse::estimate_text)]
    pub estimate: Option<String>,
    /// How long jobs may wait in the queue, unless `kumi run` says otherwise: 30s, 10m, no or forever
    /// [default: forever]
    #[arg(long, value_name = "TIME", value_parser = parse::wait_text)]
    pub wait: Option<String>,
    #[command(flatten)]
    pub job: JobDefaultArgs,
}

/// `kumi cluster init`
#[derive(Clone, Debug, Args)]
pub struct InitArgs {
    #[command(flatten)]
    pub place: NodePlacementArgs,
    #[command(flatten)]
    pub addresses: AddressArgs,
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
    pub addresses: AddressArgs,
    #[command(flatten)]
    pub sharing: SharingArgs,
    /// Largest packet between the nodes of a local cluster, where they are network namespaces; 9000
    /// is that of Ethernet with jumbo frames
    #[arg(long, value_name = "BYTES", default_value_t = 1500,
          value_parser = clap::value_parser!(u32).range(1280..=65535))]
    pub mtu: u32,
}

/// `kumi cluster status`
#[derive(Clone, Debug, Args)]
pub struct StatusArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `kumi cluster down`
#[derive(Clone, Debug, Args)]
pub struct DownArgs {
    /// Also remove the configuration and the keys of a cluster of hosts
    #[arg(long)]
    pub purge: bool,
}

/// `kumi cluster set`
#[derive(Clone, Debug, Args)]
#[group(required = true, multiple = true)]
pub struct SetArgs {
    /// Length of a time slice, 250us to 10s; auto: 1ms to 100ms, the fewer jobs take turns the longer
    #[arg(long, value_name = "TIME", value_parser = parse::slice)]
    pub slice: Option<SliceLength>,
    /// How jobs share the nodes: a scheduling policy such as dqt, fair-dqt:apa, matrix or easy; os to
    /// leave it to the operating systems; or gang to return to the policy in force before os
    #[arg(long, alias = "mode", value_name = "NAME", value_parser = parse::policy)]
    pub policy: Option<Policy>,
    /// Switch even when one job runs alone
    #[arg(long, value_enum)]
    pub force_switch: Option<OnOff>,
    /// Whether jobs have what others leave idle in their turns, unless `kumi run` says otherwise
    #[arg(long, value_enum)]
    pub fill: Option<OnOff>,
}

/// `kumi cluster revoke`
#[derive(Clone, Debug, Args)]
pub struct RevokeArgs {
    /// The node: its name or number
    #[arg(value_name = "NODE")]
    pub node: String,
}

/// `kumi cluster rotate`
#[derive(Clone, Debug, Args)]
pub struct RotateArgs {
    /// Daemons that get new ones: names or numbers of nodes, or head; all if none is given
    #[arg(value_name = "NODE")]
    pub daemons: Vec<String>,
    /// Days for which they are valid
    #[arg(long, value_name = "N", default_value_t = kumi_node::tls::DAEMON_DAYS,
          value_parser = clap::value_parser!(u16).range(1..=3650))]
    pub days: u16,
}

/// Wire between nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Wire {
    /// UDP sockets
    Udp,
    /// Short packets by AF_XDP; nodes that cannot do not start
    Xdp,
    /// Short packets by AF_XDP where that can be had
    Auto,
}

/// Processors of the nodes of a local cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Cpus {
    /// An equal share of the machine for each node; one processor each, in turn, if there are more nodes
    Auto,
    /// All processors for every node
    All,
    /// One processor for each node, in turn
    PerNode,
}

/// Sharing of processors among jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Policy {
    /// All ranks of a job in the same slice, by the policy that the cluster has.
    Gang,
    /// Every job all the time, as the operating systems like.
    Os,
    /// All ranks of a job in the same slice, by this policy.
    Named(String),
}

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
    /// Put the rank before each line of output
    #[arg(short = 'l', long)]
    pub label: bool,
    /// Kill the job at the first SIGINT, SIGTERM or SIGHUP instead of sending it to the ranks
    #[arg(long)]
    pub kill: bool,
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
    /// Give rank 0 a terminal, which this one shows: for shells, editors and debuggers
    #[arg(short = 't', long, conflicts_with = "label")]
    pub terminal: bool,
    /// Pass standard input on to rank 0, which is so without this option, too
    #[arg(short = 'i', long)]
    pub interactive: bool,
    #[command(flatten)]
    pub shown: TerminalArgs,
    #[command(flatten)]
    pub resources: ResourceArgs,
    /// File of options, in TOML: its keys are the long options; those of the command line go before
    #[arg(long, value_name = "FILE")]
    pub job_file: Option<PathBuf>,
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

/// `kumi ps`
#[derive(Clone, Debug, Args)]
pub struct PsArgs {
    /// Also list the jobs that are over
    #[arg(short, long)]
    pub all: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `kumi logs`
#[derive(Clone, Debug, Args)]
pub struct LogsArgs {
    /// Wait for more output until the job is over
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
    #[command(flatten)]
    pub shown: TerminalArgs,
    /// Number of the job
    pub job: u64,
}

/// `kumi stats`
#[derive(Clone, Debug, Args)]
pub struct StatsArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Also show each rank's peers on other nodes: packets by kind, bytes, round trip, unacked packets
    #[arg(long, requires = "job")]
    pub peers: bool,
    /// Show only the ranks of this job
    pub job: Option<u64>,
}

/// `kumi doctor`
#[derive(Clone, Debug, Args)]
pub struct DoctorArgs {
    /// Print JSON
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
            &["kumi", "debug", "channel"],
            &["kumi", "debug", "channel", "1", "-1"],
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
