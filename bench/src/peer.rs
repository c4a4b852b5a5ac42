//! The peers: raw programs in C (`bench/peers/`), and Open MPI and UCX where they are installed.

use crate::cluster::{self, Node};
use crate::error::BenchError;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The port of raw ping-pongs, in namespaces or on loopback addresses of this machine.
const PORT: &str = "7900";

/// The waiting end of a peer, which is ended when dropped.
pub(crate) struct Server(Child);

impl Server {
    /// Starts it. Waits until it has printed `word`, if given, or has ended.
    pub(crate) fn start(mut command: Command, word: Option<&str>) -> Result<Self, BenchError> {
        let what = format!("{command:?}");
        command.stdin(Stdio::null());
        if word.is_some() {
            command.stdout(Stdio::piped());
        } else {
            command.stdout(Stdio::null()).stderr(Stdio::null());
        }
        let started = command.spawn();
        let child = started.map_err(|source| BenchError::Start { what: what.clone(), source })?;
        let mut server = Self(child);
        let (Some(word), Some(out)) = (word, server.0.stdout.take()) else { return Ok(server) };
        let mut line = String::new();
        match BufReader::new(out).read_line(&mut line) {
            Ok(_) if line.trim() == word => Ok(server),
            _ => Err(BenchError::Output { wanted: word.to_owned(), what, output: line }),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ended = self.0.kill();
        let _status = self.0.wait();
    }
}

/// The peers on this machine.
pub struct Peers {
    pub(crate) folder: PathBuf,
    /// "Open MPI 4.1.4", or why it is absent.
    pub mpi: Result<String, String>,
    /// "UCX 1.13.1", or why it is absent.
    pub ucx: Result<String, String>,
    /// "Linux 6.1.0".
    pub kernel: String,
}

impl Peers {
    /// Looks for peers; `folder` holds the built C programs.
    pub fn find(folder: &Path) -> Self {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let kernel = format!("Linux {}", release.split('-').next().unwrap_or_default().trim());
        Self { folder: folder.to_owned(), mpi: mpi_version(), ucx: crate::ucx::version(), kernel }
    }

    /// The path of a built program.
    ///
    /// # Errors
    /// It is not there.
    pub fn program(&self, name: &str) -> Result<PathBuf, BenchError> {
        cluster::existing(self.folder.join(name))
    }

    /// Where hpcc is installed, if it is.
    pub fn hpcc(&self) -> Option<PathBuf> {
        let path = std::env::var_os("PATH")?;
        std::env::split_paths(&path).map(|folder| folder.join("hpcc")).find(|file| file.is_file())
    }

    /// Open MPI's name with its transport, or the reason why it is absent.
    ///
    /// # Errors
    /// It is absent.
    pub fn mpi_with(&self, how: &str) -> Result<String, String> {
        self.mpi.as_ref().map(|version| format!("{version}, {how}")).map_err(Clone::clone)
    }

    /// Half round trip in microseconds of a raw ping-pong. `kind` is "udp" or "tcp", which poll, or
    /// "udp-blocking". `batches` replaces the usual number of batches.
    ///
    /// # Errors
    /// When it fails.
    pub fn wire(
        &self,
        kind: &str,
        nodes: &[Node],
        bytes: &str,
        batches: Option<&str>,
    ) -> Result<f64, BenchError> {
        let output = self.two_ends("wire", kind, "ping", nodes, bytes, batches.unwrap_or("200"))?;
        half_round_trip_us(&output, "wire ping")
    }

    /// Half round trip in microseconds of raw frames over AF_XDP, which takes over the nodes' interfaces meanwhile.
    ///
    /// # Errors
    /// When it fails: not on loopback addresses.
    pub fn raw_xdp(&self, nodes: &[Node]) -> Result<f64, BenchError> {
        let path = cluster::existing(self.folder.join("xdp"))?;
        let end = |node: &Node, role: &str| {
            let mut command = node.command(&path);
            command.args([role, "eth0", &node.cpu(0)]);
            command
        };
        let _server = Server::start(end(&nodes[1], "serve"), Some("ready"))?;
        half_round_trip_us(&cluster::output(end(&nodes[0], "ping").arg("200"))?, "xdp ping")
    }

    /// Megabytes per second of a raw one-way transfer from and to a buffer of this many bytes. `kind` is
    /// "gso" (UDP in runs of packets) or "tcp".
    ///
    /// # Errors
    /// When it fails.
    pub fn bulk(
        &self,
        kind: &str,
        nodes: &[Node],
        bytes: &str,
        batches: &str,
    ) -> Result<f64, BenchError> {
        let output = self.two_ends("bulk", kind, "send", nodes, bytes, batches)?;
        cluster::number(&output, "megabytes_per_second", "bulk send")
    }

    /// Runs a raw program at two nodes, the server first; returns the output of the other end.
    fn two_ends(
        &self,
        program: &str,
        kind: &str,
        role: &str,
        nodes: &[Node],
        bytes: &str,
        batches: &str,
    ) -> Result<String, BenchError> {
        let path = cluster::existing(self.folder.join(program))?;
        let address = &nodes[1].address;
        let end = |node: &Node, role: &str| {
            let mut command = node.command(&path);
            command.args([kind, role, address, PORT, &node.cpu(0), bytes]);
            command
        };
        // Over TCP it ends by itself.
        let _server = Server::start(end(&nodes[1], "serve"), Some("ready"))?;
        cluster::output(end(&nodes[0], role).arg(batches))
    }

    /// Megabytes per second of memcpy on a node's first processor; `kind` is "ordinary" or "shared",
    /// the memory copied to.
    ///
    /// # Errors
    /// When it fails.
    pub fn copy(&self, kind: &str, node: &Node, bytes: &str) -> Result<f64, BenchError> {
        let mut command = Command::new(cluster::existing(self.folder.join("copy"))?);
        command.args([kind, &node.cpu(0), bytes, "100"]);
        let output = cluster::output(&mut command)?;
        cluster::number(&output, "megabytes_per_second", "copy")
    }

    /// Median half round trip in microseconds of a test of UCX's own benchmark over TCP.
    ///
    /// # Errors
    /// When it fails.
    pub fn ucx(&self, test: &str, nodes: &[Node], bytes: &str) -> Result<f64, BenchError> {
        crate::ucx::latency(test, nodes, bytes)
    }

    /// Half round trip in microseconds of two flags in shared memory, one to a processor.
    ///
    /// # Errors
    /// When it fails.
    pub fn flag(&self, node: &Node) -> Result<f64, BenchError> {
        let flag = cluster::existing(self.folder.join("flag"))?;
        let mut command = Command::new(flag);
        command.args([node.cpu(0), node.cpu(1), "2000".to_owned()]);
        half_round_trip_us(&cluster::output(&mut command)?, "flag")
    }

    /// Half round trip in microseconds of MPI_Send and MPI_Recv between two nodes over TCP.
    ///
    /// # Errors
    /// When it fails.
    pub fn mpi_between(&self, nodes: &[Node], bytes: &str) -> Result<f64, BenchError> {
        let output = self.mpi_far(nodes, "mpi", &[bytes, "200"])?;
        half_round_trip_us(&output, "mpirun mpi")
    }

    /// Messages per second from one node to another over TCP, with this many in flight at once.
    ///
    /// # Errors
    /// When it fails.
    pub fn mpi_rate(&self, nodes: &[Node], bytes: &str, window: &str) -> Result<f64, BenchError> {
        let output = self.mpi_far(nodes, "mpirate", &[bytes, "20", window])?;
        cluster::number(&output, "messages_per_second", "mpirun mpirate")
    }

    /// Median microseconds of a collective of so many ranks on each of these nodes, over TCP and, in a node, over shared
    /// memory. Ranks that wait yield their processor, since there may be more ranks than processors.
    ///
    /// # Errors
    /// When it fails.
    pub fn mpi_collective(
        &self,
        nodes: &[Node],
        ranks_each: usize,
        args: &[&str],
    ) -> Result<f64, BenchError> {
        let program = cluster::existing(self.folder.join("mpicollective"))?;
        let mut command = self.mpi_command(nodes)?;
        command.args(["--mca", "pml", "ob1", "--mca", "btl", "tcp,vader,self"]);
        command.args(["--mca", "mpi_yield_when_idle", "1", "--oversubscribe"]);
        for (index, node) in nodes.iter().enumerate() {
            if index > 0 {
                command.arg(":");
            }
            if node.netns.is_some() {
                command.args(["--host", &format!("{}:{ranks_each}", node.address)]);
            }
            command.args(["-np", &ranks_each.to_string()]);
            if !node.cpus.is_empty() {
                let cpus: Vec<String> = node.cpus.iter().map(ToString::to_string).collect();
                command.args(["taskset", "-c", &cpus.join(",")]);
            }
            command.arg(&program).args(args);
        }
        cluster::number(&cluster::output(&mut command)?, "microseconds", "mpirun mpicollective")
    }

    /// Runs an MPI program between two nodes over TCP.
    fn mpi_far(&self, nodes: &[Node], program: &str, args: &[&str]) -> Result<String, BenchError> {
        let program = cluster::existing(self.folder.join(program))?;
        let command = self.mpi_command(nodes)?;
        let host = |node: &Node| node.netns.is_some().then(|| node.address.clone());
        let hosts = [host(&nodes[0]), host(&nodes[1])];
        let hosts = [hosts[0].as_deref(), hosts[1].as_deref()];
        mpi_run(command, "tcp,self", hosts, nodes, &program, args)
    }

    /// `mpirun` on the first of these nodes, with a way to reach the others.
    fn mpi_command(&self, nodes: &[Node]) -> Result<Command, BenchError> {
        let agent = self.write_agent(nodes)?;
        let Some(netns) = &nodes[0].netns else { return Ok(mpirun()) };
        // Each node needs a host name of its own, or the library takes all for one machine.
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{netns}"));
        command.args(["unshare", "--uts", "sh", "-c", "hostname \"$0\" && exec \"$@\"", netns]);
        command.arg("mpirun").args(MPIRUN_OPTIONS).args(["--mca", "plm_rsh_agent"]).arg(agent);
        Ok(command)
    }

    /// The same between two processors of one node, over shared memory.
    ///
    /// # Errors
    /// When it fails.
    pub fn mpi_within(&self, node: &Node, bytes: &str) -> Result<f64, BenchError> {
        let program = cluster::existing(self.folder.join("mpi"))?;
        let second = Node { cpus: node.cpus.iter().skip(1).copied().collect(), ..node.clone() };
        let nodes = [node.clone(), second];
        let args = [bytes, "200"];
        let output = mpi_run(mpirun(), "vader,self", [None, None], &nodes, &program, &args)?;
        half_round_trip_us(&output, "mpirun mpi")
    }

    /// The "remote shell" with which mpirun reaches the other namespace.
    fn write_agent(&self, nodes: &[Node]) -> Result<PathBuf, BenchError> {
        let path = self.folder.join("agent.sh");
        let mut text = String::from("#!/bin/sh\nhost=$1\nshift\ncase $host in\n");
        for node in nodes {
            if let Some(netns) = &node.netns {
                let _infallible = writeln!(text, "{}) node={netns} ;;", node.address);
            }
        }
        text += "*) echo \"no node $host\" >&2; exit 1 ;;\nesac\n\
                 exec nsenter --net=/run/netns/$node unshare --uts sh -c \"hostname $node; $*\"\n";
        let failed = |source| BenchError::File { path: path.clone(), source };
        std::fs::write(&path, text).map_err(failed)?;
        let executable = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&path, executable).map_err(failed)?;
        Ok(path)
    }

    /// Seconds of `mpirun -np 8 true`.
    ///
    /// # Errors
    /// When it fails.
    pub fn mpi_launch(&self) -> Result<f64, BenchError> {
        self.mpi_start(Path::new("true"))
    }

    /// Seconds of a program started by `mpirun -np 8`.
    ///
    /// # Errors
    /// When it fails.
    pub fn mpi_start(&self, program: &Path) -> Result<f64, BenchError> {
        let begin = std::time::Instant::now();
        cluster::output(mpirun().args(["--oversubscribe", "-np", "8"]).arg(program))?;
        Ok(begin.elapsed().as_secs_f64())
    }
}

const MPIRUN_OPTIONS: [&str; 3] = ["--allow-run-as-root", "--bind-to", "none"];

pub(crate) fn mpirun() -> Command {
    let mut command = Command::new("mpirun");
    command.args(MPIRUN_OPTIONS);
    command
}

/// One rank on each of two nodes, or both on this machine.
fn mpi_run(
    mut command: Command,
    transports: &str,
    hosts: [Option<&str>; 2],
    nodes: &[Node],
    program: &Path,
    args: &[&str],
) -> Result<String, BenchError> {
    command.args(["--mca", "pml", "ob1", "--mca", "btl", transports]);
    for (index, (host, node)) in hosts.iter().zip(nodes).enumerate() {
        if index > 0 {
            command.arg(":");
        }
        if let Some(host) = host {
            command.args(["--host", host]);
        }
        command.args(["-np", "1"]);
        if let Some(cpu) = node.cpus.first() {
            command.args(["taskset", "-c", &cpu.to_string()]);
        }
        command.arg(program).args(args);
    }
    cluster::output(&mut command)
}

fn mpi_version() -> Result<String, String> {
    let absent = || "mpirun is not installed; `make bench-peers` installs it".to_owned();
    let output = Command::new("mpirun").arg("--version").output().map_err(|_| absent())?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // "mpirun (Open MPI) 4.1.4"
    let version = text.lines().next().and_then(|line| line.split("(Open MPI) ").nth(1));
    version.map(|version| format!("Open MPI {}", version.trim())).ok_or_else(absent)
}

fn half_round_trip_us(output: &str, what: &str) -> Result<f64, BenchError> {
    Ok(cluster::number(output, "half_round_trip_ns", what)? / 1e3)
}
