//! Network of namespaces: one for the server and one for each site of clients, joined to the server's by a
//! path of limited rate. Each namespace belongs to a process that waits for the end of its input. So no
//! namespace outlives the benchmark.

use crate::cluster;
use crate::error::BenchError;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The server's address, as every site sees it.
pub(super) const SERVER: &str = "10.77.0.1";
/// Queue of a path before it drops packets, as time at its rate.
const QUEUE: &str = "500ms";

/// A namespace, removed when this is dropped.
pub(super) struct Namespace {
    holder: Child,
}

impl Namespace {
    fn new() -> Result<Self, BenchError> {
        let mut command = Command::new("unshare");
        command.args(["--net", "cat"]).stdin(Stdio::piped()).stdout(Stdio::null());
        let what = format!("{command:?}");
        let spawned = command.spawn();
        let space = Self { holder: spawned.map_err(|source| BenchError::Start { what, source })? };
        let ours = std::fs::read_link("/proc/self/ns/net").ok();
        let begin = Instant::now();
        // It has one if it differs from ours.
        while std::fs::read_link(space.file()).ok().is_none_or(|link| Some(link) == ours) {
            if begin.elapsed() > Duration::from_secs(10) {
                return Err(BenchError::Missing(space.file()));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(space)
    }

    fn file(&self) -> PathBuf {
        Path::new("/proc").join(self.holder.id().to_string()).join("ns/net")
    }

    /// A command that runs in the namespace.
    pub(super) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.file().display())).arg(program);
        command
    }

    fn run(&self, line: &str) -> Result<(), BenchError> {
        let mut words = line.split(' ');
        let mut command = self.command(Path::new(words.next().unwrap_or_default()));
        cluster::output(command.args(words))?;
        Ok(())
    }

    /// Moves this thread, and threads that it starts, into the namespace.
    pub(super) fn enter(&self) -> Result<(), BenchError> {
        let path = self.file();
        let failed = |source| BenchError::File { path: path.clone(), source };
        let file = File::open(&path).map_err(failed)?;
        nix::sched::setns(file, nix::sched::CloneFlags::CLONE_NEWNET)
            .map_err(|errno| failed(errno.into()))
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ended = self.holder.kill();
        let _status = self.holder.wait();
    }
}

/// The namespaces of the server and of the sites.
pub(super) struct SiteNetwork {
    pub(super) server: Namespace,
    pub(super) sites: Vec<Namespace>,
}

impl SiteNetwork {
    /// A network whose paths have this rate in bytes per second in each direction.
    pub(super) fn new(sites: usize, rate: f64) -> Result<Self, BenchError> {
        let server = Namespace::new()?;
        server.run("ip link set lo up")?;
        server.run(&format!("ip address add {SERVER}/32 dev lo"))?;
        let mut net = Self { server, sites: Vec::new() };
        for number in 1..=sites {
            net.sites.push(Namespace::new()?);
            net.join(number, rate)?;
        }
        Ok(net)
    }

    fn join(&self, number: usize, rate: f64) -> Result<(), BenchError> {
        let (server, site) = (&self.server, &self.sites[number - 1]);
        let holder = site.holder.id();
        server.run(&format!("ip link add v{number} type veth peer name eth0 netns {holder}"))?;
        let bits = 8.0 * rate;
        for (space, device, host) in [(server, format!("v{number}"), 1), (site, "eth0".into(), 2)] {
            space.run(&format!("ip address add 10.77.{number}.{host}/24 dev {device}"))?;
            space.run(&format!("ip link set {device} up"))?;
            space.run(&format!(
                "tc qdisc add dev {device} root tbf rate {bits:.0}bit burst 32kb latency {QUEUE}"
            ))?;
        }
        site.run("ip link set lo up")?;
        site.run(&format!("ip route add {SERVER}/32 via 10.77.{number}.1"))
    }
}

/// Why this machine cannot have such a network. `None`: it can.
pub(super) fn impossible() -> Option<String> {
    if !nix::unistd::geteuid().is_root() {
        return Some("only root makes network namespaces".to_owned());
    }
    let tried = SiteNetwork::new(1, 1e6).err()?;
    Some(tried.to_string().trim().to_owned())
}
