//! `kumi demo`: a cluster on this machine that time-shares programs, and what that costs.
//!
//! The NAS kernels EP, CG and IS run each alone, then all at once under gang scheduling, each alone again, then all at once
//! under plain operating-system scheduling. In between, so do several copies of `lockstep`, whose ranks exchange a message
//! every few microseconds. Every result is verified. The demonstration does everything through this very command, as a user
//! would.

mod cluster;
mod ideal;
mod program;
mod report;

use cluster::DemoCluster;
use kumi_node::exit::ExitCode;
use program::{PROGRAMS, Program};
use report::{Report, SwitchResult, Times};
use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;

/// Most nodes the demonstration chooses by itself.
const MOST_NODES: usize = 8;

/// Options of `kumi demo`.
#[derive(Debug, clap::Args)]
pub struct DemoArgs {
    /// Also write the results to FILE as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// NAS problem class
    #[arg(long, value_name = "CLASS", value_parser = ["S", "W", "A"], default_value = "W")]
    class: String,
    /// Programs to run, separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = PROGRAMS.map(|p| p.name),
          default_value = "EP,CG,IS,lockstep", hide_possible_values = true)]
    programs: Vec<String>,
    /// About how long each program runs alone, in seconds; it repeats its work as needed
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "2")]
    seconds: f64,
    /// Nodes of the cluster, a power of two [default: one for each core, from 2 to 8]
    #[arg(long, value_name = "N")]
    nodes: Option<u32>,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.01..=600.0).contains(&seconds) => Ok(seconds),
        _ => Err("give a number of seconds from 0.01 to 600".to_owned()),
    }
}

/// Why the demonstration failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DemoError {
    /// The kernels need a power of two of ranks, and sharing needs at least two nodes.
    #[error("{0} nodes do not fit the demonstration's kernels; give --nodes 2, 4, 8 or 16")]
    Nodes(u32),
    /// An example is not built.
    #[error("there is no program {}; build the examples with `make build`", .0.display())]
    ProgramMissing(PathBuf),
    /// No directory for the cluster.
    #[error("cannot make a temporary directory: {0}; set TMPDIR to a writable directory")]
    TemporaryDirectory(#[source] io::Error),
    /// A program could not be started.
    #[error("cannot run {what}: {source}")]
    Start {
        /// Its name.
        what: String,
        /// The reason.
        source: io::Error,
    },
    /// A command failed.
    #[error("`kumi {shown}` failed ({status}): {said}")]
    Command {
        /// Its arguments.
        shown: String,
        /// Its exit status.
        status: ExitStatus,
        /// Its message.
        said: String,
    },
    /// The output of a command is not as expected.
    #[error("cannot read the answer of `kumi {shown}`: {reason}; are kumi and kumid of one build?")]
    Answer {
        /// Its arguments.
        shown: &'static str,
        /// The error.
        reason: String,
    },
    /// The results could not be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// Some program's result differs from the official values.
    #[error("a program's result is not the official one (see the table)")]
    NotVerified,
    /// Ctrl-C or SIGTERM.
    #[error("interrupted; the cluster has been taken down")]
    Interrupted,
}

impl DemoError {
    /// The exit code, as `docs/reference/errors.md` lists them.
    pub fn exit_code(&self) -> u8 {
        let code = match self {
            Self::Nodes(_) => ExitCode::Usage,
            Self::ProgramMissing(_) => ExitCode::NoInput,
            Self::TemporaryDirectory(_) | Self::Write { .. } => ExitCode::Io,
            Self::Start { .. } | Self::Answer { .. } => ExitCode::Internal,
            // The command's exit code; without one, a signal ended it.
            Self::Command { status, .. } => {
                let code = status.code().and_then(|code| u8::try_from(code).ok());
                return code.unwrap_or(ExitCode::Internal.code());
            }
            Self::NotVerified => return 1,
            Self::Interrupted => return 130,
        };
        code.code()
    }
}

/// Runs the demonstration.
///
/// # Errors
/// [`DemoError`]; the cluster has been taken down then too.
pub fn run(args: &DemoArgs) -> Result<(), DemoError> {
    let nodes = choose_nodes(args.nodes)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|source| DemoError::Start { what: "the demonstration".to_owned(), source })?;
    let mut cluster = DemoCluster::new()?;
    let result = runtime.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt()).map_err(no_signals)?;
        let mut terminate = signal(SignalKind::terminate()).map_err(no_signals)?;
        let mut demo = Demo::new(&mut cluster, args, nodes);
        tokio::select! {
            // Ctrl-C also reaches the commands that run for us; their failure is not the reason.
            biased;
            _ = interrupt.recv() => Err(DemoError::Interrupted),
            _ = terminate.recv() => Err(DemoError::Interrupted),
            result = demo.run() => result,
        }
    });
    cluster.down()?;
    let report = result?;
    println!("\n{}", report.table());
    if let Some(reading) = report.reading() {
        println!("{reading}");
    }
    if let Some(path) = &args.json {
        let text = serde_json::to_string_pretty(&report)
            .map_err(|error| DemoError::Write { path: path.clone(), source: error.into() })?;
        crate::whole_file::write(path, text + "\n")
            .map_err(|source| DemoError::Write { path: path.clone(), source })?;
    }
    if report.verified() { Ok(()) } else { Err(DemoError::NotVerified) }
}

fn no_signals(source: io::Error) -> DemoError {
    DemoError::Start { what: "the demonstration".to_owned(), source }
}

/// The kernels need a power of two of ranks. Each node gets one rank, so that all nodes are shared equally.
fn choose_nodes(asked: Option<u32>) -> Result<u32, DemoError> {
    if let Some(nodes) = asked {
        let fits = nodes.is_power_of_two() && (2..=16).contains(&nodes);
        return if fits { Ok(nodes) } else { Err(DemoError::Nodes(nodes)) };
    }
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    let most = cores.clamp(2, MOST_NODES);
    Ok(1 << most.ilog2())
}

struct Demo<'c> {
    cluster: &'c mut DemoCluster,
    args: &'c DemoArgs,
    nodes: u32,
    begin: Instant,
    programs: Vec<Program>,
}

impl<'c> Demo<'c> {
    fn new(cluster: &'c mut DemoCluster, args: &'c DemoArgs, nodes: u32) -> Self {
        Self { cluster, args, nodes, begin: Instant::now(), programs: Vec::new() }
    }

    fn say(&self, text: &str) {
        println!("[{:5.1} s] {text}", self.begin.elapsed().as_secs_f64());
    }

    async fn run(&mut self) -> Result<Report, DemoError> {
        let asked = |name: &str| self.args.programs.iter().any(|asked| asked == name);
        for known in PROGRAMS.into_iter().filter(|known| asked(known.name)) {
            let path = self.cluster.program(known.file)?;
            self.programs.push(Program::new(known, path, &self.args.class));
        }
        self.cluster.up(self.nodes).await?;
        self.say(&format!("a cluster of {} nodes is up on this machine", self.nodes));
        self.calibrate().await?;
        self.alone().await?;
        let gang = self.together("under gang scheduling").await?;
        let switch = self.switches().await?;
        self.alone().await?;
        self.cluster.call(&["cluster", "set", "--policy", "os"]).await?;
        let os = self.together("under operating-system scheduling").await?;
        let times: Vec<Times> = (self.programs.iter().zip(gang).zip(os))
            .map(|((program, gang), os)| Times {
                name: program.name(),
                class: program.class(),
                copies: program.copies(),
                verified: program.verified,
                alone: program.alone.iter().sum::<f64>() / program.alone.len() as f64,
                gang,
                os,
            })
            .collect();
        Ok(Report::new(&times, switch))
    }

    /// Runs each program once, for a short time. Afterwards all nodes have its file, and its necessary length
    /// is known.
    async fn calibrate(&mut self) -> Result<(), DemoError> {
        for index in 0..self.programs.len() {
            let (_, output) = self.one(index).await?;
            let plan = self.programs[index].plan(&output, self.args.seconds);
            let plan = plan.ok_or_else(|| DemoError::Answer {
                shown: "run",
                reason: "the program does not say how long it took".to_owned(),
            })?;
            self.judge(index, &output);
            self.say(&format!("{}: {plan}", self.programs[index].title()));
        }
        Ok(())
    }

    async fn alone(&mut self) -> Result<(), DemoError> {
        for index in 0..self.programs.len() {
            let (seconds, output) = self.one(index).await?;
            self.judge(index, &output);
            self.programs[index].alone.push(seconds);
            self.say(&format!("{} alone: {seconds:.2} s", self.programs[index].name()));
        }
        Ok(())
    }

    /// Runs the kernels at once, then the copies of each synchronised program at once. For each program: seconds from the
    /// common start to its end, or to that of its last copy.
    async fn together(&mut self, how: &str) -> Result<Vec<f64>, DemoError> {
        let (copied, single): (Vec<_>, Vec<_>) =
            (0..self.programs.len()).partition(|&index| self.programs[index].copies() > 1);
        let mut ends = vec![0.0; self.programs.len()];
        if !single.is_empty() {
            self.say(&format!("all together {how}"));
            self.at_once(&single, &mut ends).await?;
        }
        for index in copied {
            let (name, copies) = (self.programs[index].name(), self.programs[index].copies());
            self.say(&format!("{copies} copies of {name} {how}"));
            self.at_once(&vec![index; copies as usize], &mut ends).await?;
        }
        Ok(ends)
    }

    /// Runs programs at once, and records in `ends` the end of each one's last run, in seconds from the
    /// start.
    async fn at_once(&mut self, indices: &[usize], ends: &mut [f64]) -> Result<(), DemoError> {
        let begin = Instant::now();
        let mut running = JoinSet::new();
        for &index in indices {
            let run = self.start(index);
            running.spawn(async move { (index, run.await, begin.elapsed().as_secs_f64()) });
        }
        let mut tick = tokio::time::interval(Duration::from_secs(5));
        tick.tick().await;
        loop {
            let ended = tokio::select! {
                ended = running.join_next() => ended,
                _ = tick.tick() => { self.say("  ... running"); continue; }
            };
            let Some(ended) = ended else { return Ok(()) };
            let (index, output, seconds) = ended.map_err(|error| DemoError::Start {
                what: "the programs together".to_owned(),
                source: error.into(),
            })?;
            self.judge(index, &output?);
            self.say(&format!("{} together: {seconds:.2} s", self.programs[index].name()));
            ends[index] = ends[index].max(seconds);
        }
    }

    /// One run of a program: seconds and output.
    async fn one(&self, index: usize) -> Result<(f64, String), DemoError> {
        let begin = Instant::now();
        let output = self.start(index).await?;
        Ok((begin.elapsed().as_secs_f64(), output))
    }

    /// A run of a program: its output.
    fn start(&self, index: usize) -> impl Future<Output = Result<String, DemoError>> + use<> {
        let program = &self.programs[index];
        let (ranks, path) = (self.nodes.to_string(), program.path.display().to_string());
        // On nodes of several processors they would run beside each other.
        let mut words = vec!["run", "--exclusive", "-n", &ranks, "--nodes", &ranks];
        words.extend(["--name", program.name()]);
        words.extend(program.options());
        words.push(&path);
        words.extend(program.arguments.iter().map(String::as_str));
        self.cluster.call(&words)
    }

    fn judge(&mut self, index: usize, output: &str) {
        self.programs[index].verified &= program::verified(output);
    }

    async fn switches(&self) -> Result<SwitchResult, DemoError> {
        parse_switches(&self.cluster.call(&["stats", "--json"]).await?)
    }
}

/// Reads the switches out of `kumi stats --json`.
fn parse_switches(text: &str) -> Result<SwitchResult, DemoError> {
    let wrong = |reason: String| DemoError::Answer { shown: "stats --json", reason };
    let json: serde_json::Value =
        serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
    let nodes = json["nodes"].as_array().ok_or_else(|| wrong("no `nodes`".to_owned()))?;
    let mut worst = SwitchResult::default();
    for node in nodes {
        let switching = &node["switching"];
        let number = |value: &serde_json::Value| {
            value.as_u64().ok_or_else(|| wrong(format!("a node's `switching` is {switching}")))
        };
        worst.count = worst.count.max(number(&switching["count"])?);
        let micros = |nanos: u64| nanos as f64 / 1e3;
        worst.p50_us = worst.p50_us.max(micros(number(&switching["total"]["p50"])?));
        worst.p99_us = worst.p99_us.max(micros(number(&switching["total"]["p99"])?));
    }
    Ok(worst)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_the_worst_node() {
        let text = r#"{"nodes":[
            {"switching":{"count":10,"total":{"p50":8000,"p99":90000}}},
            {"switching":{"count":12,"total":{"p50":9500,"p99":40000}}}]}"#;
        let worst = parse_switches(text).unwrap();
        assert_eq!(worst, SwitchResult { count: 12, p50_us: 9.5, p99_us: 90.0 });
        assert!(parse_switches("{}").is_err());
        assert!(parse_switches(r#"{"nodes":[{}]}"#).is_err());
    }

    #[test]
    fn nodes_are_a_power_of_two() {
        assert!(matches!(choose_nodes(Some(3)), Err(DemoError::Nodes(3))));
        assert!(matches!(choose_nodes(Some(0)), Err(DemoError::Nodes(0))));
        assert!(matches!(choose_nodes(Some(1)), Err(DemoError::Nodes(1))));
        assert_eq!(choose_nodes(Some(4)).unwrap(), 4);
        let chosen = choose_nodes(None).unwrap();
        assert!(chosen.is_power_of_two() && (2..=8).contains(&chosen));
    }
}
