//! Cluster of one test: it has a unique name and a temporary directory, and goes with the value.

use crate::command::{self, FinishedCommand, RunningCommand};
use crate::{binaries, machine};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tempfile::TempDir;

/// Clusters run one after another: their tests bound times, and the machine may have two cores.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// How ranks send to other nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    /// UDP sockets.
    Udp,
    /// Short packets by AF_XDP. One rank of a node has it, in a local cluster.
    Xdp,
}

impl Wire {
    /// The options of `kumi cluster up` for it.
    pub fn options(self) -> [&'static str; 2] {
        match self {
            Self::Udp => ["--wire", "udp"],
            Self::Xdp => ["--wire", "xdp"],
        }
    }
}

/// A local cluster.
pub struct TestCluster {
    name: String,
    directory: TempDir,
    up: bool,
    _turn: MutexGuard<'static, ()>,
}

impl TestCluster {
    /// A cluster that is not up yet.
    ///
    /// # Panics
    /// When there is no temporary directory.
    pub fn prepare() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        // A test that panicked has taken its cluster down like any other.
        let turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let directory = tempfile::Builder::new().prefix("kumi-test-").tempdir();
        Self {
            name: format!("t{}-{number}", std::process::id()),
            directory: directory.expect("a temporary directory"),
            up: false,
            _turn: turn,
        }
    }

    /// A cluster of `nodes` nodes.
    ///
    /// # Panics
    /// When it does not come up.
    #[track_caller]
    pub fn up(nodes: u32) -> Self {
        Self::up_with(nodes, &[])
    }

    /// A cluster of `nodes` nodes, with more options for `kumi cluster up`.
    ///
    /// # Panics
    /// When it does not come up.
    #[track_caller]
    pub fn up_with(nodes: u32, options: &[&str]) -> Self {
        let mut cluster = Self::prepare();
        cluster.try_up(nodes, options).ok();
        cluster
    }

    /// A cluster whose nodes have these processors, and all of them these settings in cluster.toml.
    ///
    /// # Panics
    /// When it does not come up.
    #[track_caller]
    pub fn up_with_nodes(processors: &[Vec<usize>], settings: &[(&str, &str)]) -> Self {
        let mut cluster = Self::prepare();
        cluster.kumi(&["cluster", "init", "--local", &processors.len().to_string()]).ok();
        let path = cluster.path().join("cluster.toml");
        let text = std::fs::read_to_string(&path).expect("cluster.toml");
        let mut table: toml::Table = text.parse().expect("TOML");
        let nodes = table["nodes"].as_array_mut().expect("nodes");
        for (node, processors) in nodes.iter_mut().zip(processors) {
            let node = node.as_table_mut().expect("a table");
            let cpus = processors.iter().map(|&cpu| i64::try_from(cpu).expect("a number"));
            node.insert("cpus".to_owned(), cpus.collect::<Vec<_>>().into());
            node.extend(settings.iter().map(|&(key, value)| (key.to_owned(), value.into())));
        }
        std::fs::write(&path, table.to_string()).expect("our file");
        cluster.try_up_as_it_is().ok();
        cluster
    }

    /// Tries to bring it up. Its nodes have one processor each unless the options say otherwise, so that jobs share these on
    /// all machines.
    #[track_caller]
    pub fn try_up(&mut self, nodes: u32, options: &[&str]) -> FinishedCommand {
        self.up = true;
        let mut args = vec!["cluster", "up", "--local"];
        let nodes = nodes.to_string();
        args.push(&nodes);
        args.extend(options);
        if !options.contains(&"--cpus") {
            args.extend(["--cpus", "per-node"]);
        }
        self.kumi(&args)
    }

    /// Tries to bring it up as it is configured.
    #[track_caller]
    pub fn try_up_as_it_is(&mut self) -> FinishedCommand {
        self.up = true;
        self.kumi(&["cluster", "up"])
    }

    /// Brings it up as it is configured, by a command that is made of the usual one: on another machine, say.
    #[track_caller]
    pub fn up_by(&mut self, there: impl FnOnce(&Command) -> Command) -> FinishedCommand {
        self.up = true;
        command::run(there(&self.command(&["cluster", "up"])))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// `$KUMI_DIR`.
    pub fn state(&self) -> &Path {
        self.directory.path()
    }

    /// The cluster's directory in it.
    pub fn path(&self) -> PathBuf {
        self.state().join(&self.name)
    }

    /// The namespace of node `node`, if its nodes are namespaces.
    pub fn namespace(&self, node: u32) -> Option<String> {
        let name = format!("kumi-{}-{node}", self.name);
        Path::new("/run/netns").join(&name).exists().then_some(name)
    }

    /// `kumi ARGS` on this cluster.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(binaries::path("kumi"));
        command.args(args).env("KUMI_DIR", self.state()).env("KUMI_CLUSTER", &self.name);
        command
    }

    /// Runs `kumi ARGS` on this cluster to its end.
    #[track_caller]
    pub fn kumi(&self, args: &[&str]) -> FinishedCommand {
        command::run(self.command(args))
    }

    /// Lets other users reach the cluster's sockets: the directory of a test is its owner's only.
    ///
    /// # Panics
    /// When it is not.
    pub fn open_to_others(&self) {
        for folder in [self.state().to_owned(), self.path()] {
            let everybody = std::fs::Permissions::from_mode(0o755);
            std::fs::set_permissions(folder, everybody).expect("our own directory");
        }
    }

    /// Runs `kumi ARGS` as another user than the cluster's.
    #[track_caller]
    pub fn run_as_other(&self, args: &[&str]) -> FinishedCommand {
        self.run_as_other_after(":", args)
    }

    /// The same, after a script of root's shell, which may change limits.
    #[track_caller]
    pub fn run_as_other_after(&self, script: &str, args: &[&str]) -> FinishedCommand {
        command::run(self.command_of_other(script, args))
    }

    /// Starts `kumi ARGS` as another user than the cluster's.
    #[track_caller]
    pub fn start_as_other(&self, args: &[&str]) -> RunningCommand {
        RunningCommand::start(self.command_of_other(":", args))
    }

    fn command_of_other(&self, script: &str, args: &[&str]) -> Command {
        let own = self.command(args);
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{script}; exec \"$0\" \"$@\""), "setpriv"]);
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        command.arg(own.get_program()).args(own.get_args());
        for (name, value) in own.get_envs() {
            command.env(name, value.unwrap_or_default());
        }
        command
    }

    /// Starts `kumi ARGS` on this cluster.
    #[track_caller]
    pub fn start(&self, args: &[&str]) -> RunningCommand {
        RunningCommand::start(self.command(args))
    }

    /// The JSON that `kumi ARGS` prints.
    ///
    /// # Panics
    /// When it fails or prints something else.
    #[track_caller]
    pub fn json(&self, args: &[&str]) -> Value {
        let text = self.kumi(args).ok().out;
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{args:?}: {error}: {text}"))
    }

    /// The job of this name as `kumi ps --all --json` shows it.
    #[track_caller]
    pub fn job(&self, name: &str) -> Option<Value> {
        let jobs = self.json(&["ps", "--all", "--json"]);
        let jobs = jobs.as_array().expect("an array of jobs");
        jobs.iter().find(|job| job["name"] == name).cloned()
    }

    /// Waits until the job of this name is in `state`.
    #[track_caller]
    pub fn wait_state(&self, name: &str, state: &str) -> Value {
        let what = format!("job {name} in state {state}");
        command::wait_for(&what, || self.job(name).filter(|job| job["state"] == state))
    }

    /// Waits until a running job's output holds `count` lines; they are returned, sorted.
    #[track_caller]
    pub fn wait_lines(&self, job: &Value, count: usize) -> Vec<String> {
        let number = job["job"].to_string();
        command::wait_for(&format!("{count} lines of job {number}"), || {
            let text = self.kumi(&["logs", &number]).ok().out;
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines.sort();
            (lines.len() >= count).then_some(lines)
        })
    }

    /// The process that wrote this pid file ("head", "node-0").
    ///
    /// # Panics
    /// When there is none.
    #[track_caller]
    pub fn pid(&self, daemon: &str) -> u32 {
        let file = self.path().join(format!("{daemon}.pid"));
        let text = std::fs::read_to_string(&file);
        let text = text.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        text.trim().parse().unwrap_or_else(|_| panic!("{}: {text}", file.display()))
    }

    /// Starts a daemon of this cluster by hand, in its node's namespace, as an operator would.
    #[track_caller]
    pub fn start_daemon(&self, node: u32, args: &[&str]) -> RunningCommand {
        let kumid = binaries::path("kumid");
        let mut command = match self.namespace(node) {
            Some(name) => {
                let mut command = Command::new("nsenter");
                command.arg(format!("--net=/run/netns/{name}")).arg(kumid);
                command
            }
            None => Command::new(kumid),
        };
        command.args(args).arg("--cluster-dir").arg(self.path());
        RunningCommand::start(command)
    }

    /// How many nodes are attached.
    #[track_caller]
    pub fn nodes_up(&self) -> usize {
        let status = self.json(&["cluster", "status", "--json"]);
        let nodes = status["nodes"].as_array().expect("an array of nodes");
        nodes.iter().filter(|node| node["up"] == true).count()
    }

    /// Takes it down.
    #[track_caller]
    pub fn down(&mut self) -> FinishedCommand {
        self.up = false;
        self.kumi(&["cluster", "destroy", "--yes"])
    }

    /// Everything of this cluster that is on the machine: processes, namespaces, cgroups, files.
    pub fn traces(&self) -> Vec<String> {
        let prefix = format!("kumi-{}", self.name);
        let mut traces = machine::processes(&self.path().display().to_string());
        traces.extend(machine::namespaces(&format!("{prefix}-")));
        traces.extend(machine::cgroups(&prefix));
        if self.path().exists() {
            traces.push(self.path().display().to_string());
        }
        traces
    }
}

impl Drop for TestCluster {
    fn drop(&mut self) {
        if !self.up {
            return;
        }
        if std::thread::panicking() {
            // What the daemons say often tells why the test failed.
            eprintln!("{}", self.logs());
        }
        let down = self.command(&["cluster", "destroy", "--yes"]);
        if std::thread::panicking() {
            // A second panic would hide the first.
            let down = std::panic::AssertUnwindSafe(|| command::run(down).status.success());
            let ended = std::panic::catch_unwind(down);
            if !matches!(ended, Ok(true)) {
                eprintln!("`kumi cluster destroy` failed or hung: {:?}", self.traces());
            }
        } else {
            command::run(down).ok();
        }
    }
}

impl TestCluster {
    /// The ends of the daemons' logs.
    fn logs(&self) -> String {
        let Ok(entries) = std::fs::read_dir(self.path()) else { return String::new() };
        let mut text = String::new();
        for path in entries.flatten().map(|entry| entry.path()) {
            if path.extension().is_some_and(|extension| extension == "log") {
                let log = std::fs::read_to_string(&path).unwrap_or_default();
                let lines: Vec<&str> = log.lines().collect();
                let tail = lines[lines.len().saturating_sub(20)..].join("\n");
                text += &format!("--- {}\n{tail}\n", path.display());
            }
        }
        text
    }
}
