//! A local cluster for measurements, driven by the `kumi` command like a user's.

use crate::error::BenchError;
use crate::interrupt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// One node in the cluster's configuration.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its address.
    pub address: String,
    /// Its network namespace; `None` where the machine does not permit them.
    pub netns: Option<String>,
    /// Its processors; empty if it may use all.
    pub cpus: Vec<u32>,
}

impl Node {
    /// A command that runs in this node's namespace.
    pub fn command(&self, program: &Path) -> Command {
        match &self.netns {
            Some(name) => {
                let mut command = Command::new("nsenter");
                command.arg(format!("--net=/run/netns/{name}")).arg(program);
                command
            }
            None => Command::new(program),
        }
    }

    /// The processor to which a peer's process of this node is pinned.
    pub fn cpu(&self, index: usize) -> String {
        self.cpus.get(index).map_or_else(|| "-1".to_owned(), ToString::to_string)
    }
}

/// A daemon of the cluster.
#[derive(Clone, Copy, Debug)]
pub enum Daemon {
    /// The head.
    Head,
    /// That of a node, by the node's number.
    Node(u32),
}

impl Daemon {
    /// The file in the cluster's directory that has its process number.
    fn pid_file(self) -> String {
        match self {
            Self::Head => "head.pid".to_owned(),
            Self::Node(number) => format!("node-{number}.pid"),
        }
    }
}

/// The cluster; taken down when dropped.
pub struct Cluster {
    kumi: PathBuf,
    name: String,
    directory: TempDir,
    /// Its nodes.
    pub nodes: Vec<Node>,
}

impl Cluster {
    /// Brings up `nodes` nodes on this machine, with more options for `kumi cluster up`.
    ///
    /// # Errors
    /// The cluster does not start.
    pub fn up(nodes: u32, options: &[&str]) -> Result<Self, BenchError> {
        Self::up_with(nodes, options, &[])
    }

    /// As [`Cluster::up`], with lines for `cluster.toml` that have no option; each replaces the line of the
    /// same name.
    ///
    /// # Errors
    /// As [`Cluster::up`].
    pub fn up_with(
        nodes: u32,
        options: &[&str],
        settings: &[(&str, u32)],
    ) -> Result<Self, BenchError> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let kumi = program("kumi")?;
        let directory = folder()?;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("b{}-{number}", std::process::id());
        interrupt::add(&kumi, &name, directory.path());
        let mut cluster = Self { kumi, name, directory, nodes: Vec::new() };
        let nodes = nodes.to_string();
        let make = |what| [&["cluster", what, "--local", &nodes], options].concat();
        if settings.is_empty() {
            cluster.kumi(&make("up"))?;
        } else {
            cluster.kumi(&make("init"))?;
            cluster.set(settings)?;
            cluster.kumi(&["cluster", "up"])?;
        }
        cluster.nodes = cluster.read_nodes()?;
        Ok(cluster)
    }

    /// Its directory.
    pub fn path(&self) -> PathBuf {
        self.directory.path().join(&self.name)
    }

    /// Nanoseconds of processor time that a daemon has used, in all its threads.
    ///
    /// # Errors
    /// When it does not run.
    pub fn processor_time(&self, daemon: Daemon) -> Result<u64, BenchError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| BenchError::File { path, source }
        };
        let file = self.path().join(daemon.pid_file());
        let number = std::fs::read_to_string(&file).map_err(failed(&file))?;
        let tasks = Path::new("/proc").join(number.trim()).join("task");
        let mut sum = 0;
        for task in std::fs::read_dir(&tasks).map_err(failed(&tasks))?.flatten() {
            // A thread may just have ended.
            let text = std::fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
            let nanos = text.split_whitespace().next().and_then(|word| word.parse::<u64>().ok());
            sum += nanos.unwrap_or(0);
        }
        Ok(sum)
    }

    /// The same of all daemons together.
    ///
    /// # Errors
    /// When one of them does not run.
    pub fn processor_time_of_all(&self) -> Result<u64, BenchError> {
        let nodes = (0..).zip(&self.nodes).map(|(number, _)| Daemon::Node(number));
        nodes.chain([Daemon::Head]).map(|daemon| self.processor_time(daemon)).sum()
    }

    /// Part of a processor that all daemons take over a window.
    ///
    /// # Errors
    /// As [`Cluster::processor_time_of_all`].
    pub fn share_of_all(&self, window: Duration) -> Result<f64, BenchError> {
        let (before, begin) = (self.processor_time_of_all()?, Instant::now());
        std::thread::sleep(window);
        let used = self.processor_time_of_all()?.saturating_sub(before);
        Ok(used as f64 / begin.elapsed().as_nanos() as f64)
    }

    fn file(&self) -> PathBuf {
        self.path().join("cluster.toml")
    }

    fn set(&self, settings: &[(&str, u32)]) -> Result<(), BenchError> {
        let path = self.file();
        let failed = |source| BenchError::File { path: path.clone(), source };
        let text = std::fs::read_to_string(&path).map_err(failed)?;
        let line = |line: &str| {
            let has = |name: &str| line.split('=').next().map(str::trim) == Some(name);
            match settings.iter().find(|(name, _)| has(name)) {
                Some((name, value)) => format!("{name} = {value}\n"),
                None => format!("{line}\n"),
            }
        };
        std::fs::write(&path, text.lines().map(line).collect::<String>()).map_err(failed)
    }

    fn read_nodes(&self) -> Result<Vec<Node>, BenchError> {
        let path = self.file();
        let text = std::fs::read_to_string(&path)
            .map_err(|source| BenchError::File { path: path.clone(), source })?;
        let table: toml::Table = text.parse().unwrap_or_default();
        let word = |node: &toml::Value, key: &str| {
            node.get(key).and_then(toml::Value::as_str).map(str::to_owned)
        };
        let cpus = |node: &toml::Value| {
            let list =
                node.get("cpus").and_then(toml::Value::as_array).cloned().unwrap_or_default();
            list.iter().filter_map(|cpu| u32::try_from(cpu.as_integer()?).ok()).collect()
        };
        let read = |node: &toml::Value| {
            let address = word(node, "address")?;
            Some(Node { address, netns: word(node, "netns"), cpus: cpus(node) })
        };
        let nodes = table.get("nodes").and_then(toml::Value::as_array);
        nodes.and_then(|nodes| nodes.iter().map(read).collect()).ok_or_else(|| BenchError::Output {
            wanted: "the nodes".to_owned(),
            what: path.display().to_string(),
            output: text,
        })
    }

    /// `kumi ARGS` on this cluster.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.kumi);
        command.args(args).stdin(Stdio::null());
        self.show_to(&mut command);
        command
    }

    /// Lets a program find this cluster, and the command for it.
    pub fn show_to(&self, command: &mut Command) {
        command.env("KUMI_DIR", self.directory.path()).env("KUMI_CLUSTER", &self.name);
        command.env("KUMI_BIN", &self.kumi);
    }

    /// Runs `kumi ARGS` on this cluster; returns its standard output.
    ///
    /// # Errors
    /// When it fails.
    pub fn kumi(&self, args: &[&str]) -> Result<String, BenchError> {
        output(&mut self.command(args))
    }

    /// Starts `kumi run`, one rank on each of `nodes` nodes. Such jobs take turns, however many processors nodes have.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(&self, nodes: usize, program: &Path, args: &[&str]) -> Result<Child, BenchError> {
        self.start_with(&[], nodes, program, args)
    }

    /// As [`Cluster::start`], with more options for `kumi run`.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start_with(
        &self,
        options: &[&str],
        nodes: usize,
        program: &Path,
        args: &[&str],
    ) -> Result<Child, BenchError> {
        let mut command =
            self.command(&["run", "--exclusive", "--nodes", &nodes.to_string(), "-n"]);
        command.arg(nodes.to_string()).args(options).arg(program).args(args);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let what = format!("{command:?}");
        command.spawn().map_err(|source| BenchError::Start { what, source })
    }

    /// Runs a program, one rank on each of `nodes` nodes; returns its standard output.
    ///
    /// # Errors
    /// When it fails.
    pub fn run(&self, nodes: usize, program: &Path, args: &[&str]) -> Result<String, BenchError> {
        finish(self.start(nodes, program, args)?, &program.display().to_string())
    }

    /// Output of `kumi stats --json`.
    ///
    /// # Errors
    /// It fails, or its output is not JSON.
    pub fn stats(&self) -> Result<serde_json::Value, BenchError> {
        let text = self.kumi(&["stats", "--json"])?;
        serde_json::from_str(&text).map_err(|error| BenchError::Output {
            wanted: error.to_string(),
            what: "kumi stats --json".to_owned(),
            output: text,
        })
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        interrupt::take_down(self.directory.path());
    }
}

/// A folder that is removed when it is dropped.
///
/// # Errors
/// When it cannot be made.
pub fn folder() -> Result<TempDir, BenchError> {
    let folder = tempfile::Builder::new().prefix("kumi-bench-").tempdir();
    folder.map_err(|source| BenchError::File { path: std::env::temp_dir(), source })
}

/// A program of the same build: beside this one.
///
/// # Errors
/// When it is not there.
pub fn program(name: &str) -> Result<PathBuf, BenchError> {
    let own = std::env::current_exe()
        .map_err(|source| BenchError::Start { what: name.to_owned(), source })?;
    existing(own.with_file_name(name))
}

/// The path, if the file exists.
///
/// # Errors
/// The file does not exist.
pub fn existing(path: PathBuf) -> Result<PathBuf, BenchError> {
    if path.is_file() { Ok(path) } else { Err(BenchError::Missing(path)) }
}

/// Runs a command to its end; returns its standard output.
///
/// # Errors
/// When it cannot be run or fails.
pub fn output(command: &mut Command) -> Result<String, BenchError> {
    let what = format!("{command:?}");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn();
    finish(child.map_err(|source| BenchError::Start { what: what.clone(), source })?, &what)
}

/// Waits for the end of a command; returns its standard output.
///
/// # Errors
/// When it fails.
pub fn finish(child: Child, what: &str) -> Result<String, BenchError> {
    let Output { status, stdout, stderr } = child
        .wait_with_output()
        .map_err(|source| BenchError::Start { what: what.to_owned(), source })?;
    if status.success() {
        return Ok(String::from_utf8_lossy(&stdout).into_owned());
    }
    let said = format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    Err(BenchError::Failed { what: what.to_owned(), status, said: said.trim().to_owned() })
}

/// The number behind `name` (and an optional `=`) at the beginning of a line of a program's output.
///
/// # Errors
/// When there is none.
pub fn number(output: &str, name: &str, what: &str) -> Result<f64, BenchError> {
    let value = output.lines().map(str::trim).find_map(|line| {
        let rest = line.strip_prefix(name)?.trim_start();
        let rest = rest.strip_prefix('=').unwrap_or(rest);
        rest.split_whitespace().next()?.parse().ok()
    });
    value.ok_or_else(|| BenchError::Output {
        wanted: name.to_owned(),
        what: what.to_owned(),
        output: output.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_numbers_with_and_without_equals() {
        let text =
            " Time in seconds =       0.41\nhalf_round_trip_ns 5012.5\n Steps per second = 1e6\n";
        let of = |name| number(text, name, "test").unwrap();
        assert!((of("Time in seconds") - 0.41).abs() < 1e-12);
        assert!((of("half_round_trip_ns") - 5012.5).abs() < 1e-12);
        assert!((of("Steps per second") - 1e6).abs() < 1e-12);
        assert!(number(text, "nothing", "test").is_err());
    }
}
