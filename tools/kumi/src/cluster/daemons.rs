//! Starter of daemons: detaches them from this command, and notices when one of them fails.

use super::{directory, netns, processes};
use crate::error::Error;
use kumi_node::config::ClusterConfig;
use kumi_node::exit::ExitCode;
use kumi_node::paths;
use kumi_sched::NodeId;
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// One daemon of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Daemon {
    /// The head.
    Head,
    /// The daemon of a node.
    Node(NodeId),
}

impl Daemon {
    /// All daemons of a cluster, the head first.
    pub fn all(config: &ClusterConfig) -> Vec<Self> {
        let nodes = config.members().map(|(node, _)| Self::Node(node));
        [Self::Head].into_iter().chain(nodes).collect()
    }

    /// `the head`, or the node's name.
    pub fn title(self, config: &ClusterConfig) -> String {
        match self {
            Self::Head => "the head".to_owned(),
            Self::Node(node) => {
                config.node(node).map_or_else(|_| format!("node {node}"), |part| part.name.clone())
            }
        }
    }

    /// Its unit of systemd.
    pub fn unit(self) -> String {
        match self {
            Self::Head => "kumid-head".to_owned(),
            Self::Node(node) => format!("kumid-node@{node}"),
        }
    }

    /// Its log.
    pub fn log(self, dir: &Path) -> PathBuf {
        match self {
            Self::Head => paths::head_log(dir),
            Self::Node(node) => paths::node_log(dir, node),
        }
    }

    fn pid_file(self, dir: &Path) -> PathBuf {
        match self {
            Self::Head => paths::head_pid(dir),
            Self::Node(node) => paths::node_pid(dir, node),
        }
    }

    /// Whether it listens: its pid file names a live process.
    pub fn ready(self, dir: &Path) -> bool {
        let text = fs::read_to_string(self.pid_file(dir)).unwrap_or_default();
        text.trim().parse().is_ok_and(|number: i32| !processes::is_dead(number))
    }

    /// Has it read its certificates anew. Returns whether it runs here.
    pub fn reload(self, dir: &Path) -> bool {
        let text = fs::read_to_string(self.pid_file(dir)).unwrap_or_default();
        let Ok(number) = text.trim().parse() else { return false };
        !processes::is_dead(number)
            && nix::sys::signal::kill(Pid::from_raw(number), Signal::SIGHUP).is_ok()
    }

    /// The arguments of `kumid`.
    fn arguments(self) -> Vec<String> {
        match self {
            Self::Head => vec!["head".to_owned()],
            Self::Node(node) => vec!["node".to_owned(), "--node".to_owned(), node.to_string()],
        }
    }

    /// The head runs where node 0 does.
    fn namespace(self, config: &ClusterConfig) -> Option<&str> {
        let node = match self {
            Self::Head => NodeId(0),
            Self::Node(node) => node,
        };
        config.node(node).ok()?.netns.as_deref()
    }
}

/// The path of `kumid`: beside this command, otherwise in the search path.
pub fn kumid() -> Result<PathBuf, Error> {
    beside("kumid").map_err(|error| match error {
        Error::NoProgram { own, .. } => Error::NoDaemon(own),
        other => other,
    })
}

/// The path of another of Kumi's programs: beside this command, otherwise in the search path.
pub fn beside(name: &'static str) -> Result<PathBuf, Error> {
    let own = std::env::current_exe()
        .map_err(|source| Error::SetUp { what: "the search for our other programs", source })?;
    let beside = own.with_file_name(name);
    if beside.is_file() {
        return Ok(beside);
    }
    on_search_path(name).ok_or(Error::NoProgram { name, own })
}

/// The first file of this name in the directories of `PATH`.
pub fn on_search_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places = std::env::split_paths(&path).map(|folder| folder.join(name));
    places.find(|place| place.is_file())
}

/// Daemons that this command has started.
#[derive(Default)]
pub struct Started(Vec<(Daemon, Child)>);

impl Started {
    /// Starts a daemon, in a session and, if it has one, a namespace of its own.
    pub fn start(
        &mut self,
        kumid: &Path,
        dir: &Path,
        config: &ClusterConfig,
        daemon: Daemon,
    ) -> Result<(), Error> {
        let log = daemon.log(dir);
        let open = || OpenOptions::new().create(true).append(true).open(&log);
        let failed = |source| Error::File { doing: "write", path: log.clone(), source };
        let (out, err) = (open().map_err(failed)?, open().map_err(failed)?);
        // `setsid` and `nsenter` replace themselves, so the child process is the daemon.
        let mut command = Command::new("setsid");
        if let Some(namespace) = daemon.namespace(config) {
            let file = netns::file(namespace);
            command.arg("nsenter").arg(format!("--net={}", file.display()));
        }
        command.arg(kumid).args(daemon.arguments()).arg("--cluster-dir").arg(dir);
        command.current_dir("/").stdin(Stdio::null()).stdout(out).stderr(err);
        let child = command.spawn().map_err(|error| Error::Machine {
            what: "`setsid` cannot be run, which is part of util-linux".to_owned(),
            said: error.to_string(),
        })?;
        self.0.push((daemon, child));
        Ok(())
    }

    /// Fails if a daemon has ended.
    pub fn check(&mut self, dir: &Path, config: &ClusterConfig) -> Result<(), Error> {
        for (daemon, child) in &mut self.0 {
            let Ok(Some(status)) = child.try_wait() else { continue };
            let code = status.code().and_then(|code| u8::try_from(code).ok());
            return Err(Error::Daemon {
                who: daemon.title(config),
                said: directory::tail(&daemon.log(dir)),
                code: code.and_then(of_daemon).unwrap_or(ExitCode::Internal),
            });
        }
        Ok(())
    }

    /// The daemons that do not listen yet.
    pub fn not_ready(&self, dir: &Path) -> Vec<Daemon> {
        self.0.iter().map(|(daemon, _)| *daemon).filter(|daemon| !daemon.ready(dir)).collect()
    }

    /// Kills them.
    pub fn kill(&mut self) {
        for (_, child) in &mut self.0 {
            // A daemon that has already ended is no error.
            let _ended = child.kill();
            let _collected = child.wait();
        }
    }
}

/// The exit code of a daemon if it is one of Kumi's; signals and other programs leave other codes.
fn of_daemon(code: u8) -> Option<ExitCode> {
    ExitCode::from_code(code).filter(|known| *known != ExitCode::Ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemons_exit_code_is_passed_on() {
        assert_eq!(of_daemon(73), Some(ExitCode::Exists));
        assert_eq!(of_daemon(77), Some(ExitCode::NotPermitted));
        assert_eq!(of_daemon(0), None);
        assert_eq!(of_daemon(101), None);
    }

    #[test]
    fn a_daemon_is_ready_when_its_pid_file_names_a_living_process() {
        let dir = tempfile::tempdir().unwrap();
        let daemon = Daemon::Node(NodeId(3));
        assert!(!daemon.ready(dir.path()));
        fs::write(dir.path().join("node-3.pid"), i32::MAX.to_string()).unwrap();
        assert!(!daemon.ready(dir.path()));
        fs::write(dir.path().join("node-3.pid"), format!("{}\n", std::process::id())).unwrap();
        assert!(daemon.ready(dir.path()));
    }
}
