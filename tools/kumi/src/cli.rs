//! Command line of `kumi`.

use crate::cluster::joining::{JoinArgs, TokenArgs};
use crate::cluster::{JobDefaultArgs, StateArgs};
use crate::parse;
use crate::terminal::TerminalArgs;
use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
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
    /// Show the cluster's nodes, drain them, add and remove them
    #[command(subcommand)]
    Node(crate::node::NodeCommand),
    /// Run a parallel program and follow it
    Run(crate::run::RunArgs),
    /// Submit a parallel program or a script, and print the number of its job
    Submit(crate::submit::SubmitArgs),
    /// Wait until jobs are over, and end with the exit code of the first that failed
    Wait(crate::wait::WaitArgs),
    /// List jobs
    Ps(crate::ps::PsArgs),
    /// Show what jobs have used: processors, memory, waiting; by user, job or day
    Usage(crate::usage::UsageArgs),
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
    /// End all jobs and stop the cluster; its table of jobs, their output, logs and configuration stay
    Down(DownArgs),
    /// Stop the cluster and remove everything of it from this machine, after asking
    Destroy(DestroyArgs),
    /// Change how jobs share the processors, while they run
    Set(SetArgs),
    /// Refuse all certificates that a node has now
    Revoke(RevokeArgs),
    /// Make new certificates and keys, where the cluster was made
    Rotate(RotateArgs),
    /// Make a token with which a new machine becomes a node
    Token(TokenArgs),
    /// Make this machine the node of a token
    Join(JoinArgs),
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

/// Sharing of processors, the shape of the control tree, and where its state is.
#[derive(Clone, Debug, Args)]
pub struct SharingArgs {
    #[command(flatten)]
    pub state: StateArgs,
    /// Length of a time slice, 250us to 10s; auto: 1ms to 100ms, the fewer jobs take turns the longer
    #[arg(long, value_name = "TIME", value_parser = parse::slice, default_value = "auto")]
    pub slice: SliceLength,
    /// Processors of each node of a local cluster
    #[arg(long, value_enum, default_value_t = Cpus::Auto)]
    pub cpus: Cpus,
    /// How jobs share the nodes: a scheduling policy such as dqt, fair-dqt:apa, matrix or easy, or os to leave
    /// it to the operating systems
    #[arg(long, value_name = "NAME", value_parser = parse::policy, default_value = "dqt")]
    pub policy: Policy,
    /// Refused: `--policy` says it
    #[arg(long, hide = true, value_name = "NAME", value_parser = parse::no_mode)]
    pub mode: Option<String>,
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
    /// Give up links between daemons on which nothing came for this long, 1s to 600s; 10s if not given, 3s with --local
    #[arg(long, value_name = "TIME", value_parser = parse::duration)]
    pub silence: Option<Duration>,
    /// How long a node may be away before its jobs fail, 100ms to 3600s; 60s if not given, 1s with --local
    #[arg(long, value_name = "TIME", value_parser = parse::duration)]
    pub grace: Option<Duration>,
    /// How long nodes keep running their jobs after they lost the head, 500ms to 3600s; 300s if not given, 15s with --local
    #[arg(long, value_name = "TIME", value_parser = parse::duration)]
    pub lease: Option<Duration>,
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
    /// Refused: `kumi cluster destroy` removes a cluster
    #[arg(long, hide = true, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "",
          value_parser = parse::no_purge)]
    pub purge: Option<String>,
}

/// `kumi cluster destroy`
#[derive(Clone, Debug, Args)]
pub struct DestroyArgs {
    /// Do not ask
    #[arg(short, long)]
    pub yes: bool,
}

/// `kumi cluster set`
#[derive(Clone, Debug, Args)]
#[group(required = true, multiple = true, args = ["slice", "policy", "force_switch", "fill"])]
pub struct SetArgs {
    /// Length of a time slice, 250us to 10s; auto: 1ms to 100ms, the fewer jobs take turns the longer
    #[arg(long, value_name = "TIME", value_parser = parse::slice)]
    pub slice: Option<SliceLength>,
    /// How jobs share the nodes: a scheduling policy such as dqt, fair-dqt:apa, matrix or easy, or os to leave
    /// it to the operating systems
    #[arg(long, value_name = "NAME", value_parser = parse::policy)]
    pub policy: Option<Policy>,
    /// Refused: `--policy` says it
    #[arg(long, hide = true, value_name = "NAME", value_parser = parse::no_mode)]
    pub mode: Option<String>,
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
    /// Every job all the time, as the operating systems like.
    Os,
    /// All ranks of a job in the same slice, by this policy.
    Named(String),
}

/// On or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OnOff {
    /// On
    On,
    /// Off
    Off,
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
        assert_eq!(args.job.ranks, 8);
        assert!(args.label);
        assert_eq!(args.job.encrypt, None);
        assert_eq!(args.job.env, [("A".to_owned(), "b".to_owned())]);
        assert_eq!(args.program.command, ["prog", "-n", "--help"]);
    }

    #[test]
    fn encryption_is_on_off_or_not_mentioned() {
        for (word, expected) in
            [("--encrypt", OnOff::On), ("--encrypt=on", OnOff::On), ("--encrypt=off", OnOff::Off)]
        {
            let Command::Run(args) = read(&["kumi", "run", word, "prog"]).unwrap().command else {
                panic!("not run")
            };
            assert_eq!((args.job.encrypt, &*args.program.command[0]), (Some(expected), "prog"));
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
            assert_eq!(args.job.handler.as_deref(), Some(word));
        }
        for wrong in ["", "fast", "rr:", "fifo:highest"] {
            let error = read(&["kumi", "run", "--handler", wrong, "prog"]).unwrap_err().to_string();
            assert!(error.contains("other, rr or fifo"), "{error}");
            assert!(read(&["kumi", "cluster", "up", "--local", "1", "--handler", wrong]).is_err());
        }
    }

    #[test]
    fn what_was_called_otherwise_is_refused_with_its_name_of_today() {
        for (words, says) in [
            (&["kumi", "cluster", "set", "--mode", "os"][..], "write --policy os"),
            (&["kumi", "cluster", "up", "--local", "1", "--mode", "gang"], "write --policy dqt"),
            (&["kumi", "cluster", "set", "--policy", "gang"], "write dqt"),
            (&["kumi", "cluster", "down", "--purge"], "kumi cluster destroy"),
        ] {
            let error = read(words).unwrap_err().to_string();
            assert!(error.contains(says), "{words:?}: {error}");
        }
        assert!(read(&["kumi", "cluster", "down"]).is_ok());
    }

    #[test]
    fn misspelt_commands_and_options_have_suggestions() {
        for (words, says) in [
            (&["kumi", "submt", "x"][..], "'submit'"),
            (&["kumi", "cluster", "staus"], "'status'"),
            (&["kumi", "ps", "--filtr", "x"], "'--filter'"),
        ] {
            let error = read(words).unwrap_err().to_string();
            assert!(error.contains(says), "{words:?}: {error}");
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
