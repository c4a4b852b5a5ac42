//! The peers: raw ping-pongs in C (`bench/peers/`) and Open MPI where it is installed.

use crate::cluster::{self, Node};
use crate::error::BenchError;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The port of raw ping-pongs, in namespaces or on loopback addresses of this machine.
const PORT: &str = "7900";

/// The peers on this machine.
pub struct Peers {
    folder: PathBuf,
    /// "Open MPI 4.1.4", or why it is absent.
    pub mpi: Result<String, String>,
    /// "Linux 6.1.0".
    pub kernel: String,
}

impl Peers {
    /// Looks which peers there are; `folder` holds the built C programs.
    pub fn find(folder: &Path) -> Self {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let kernel = format!("Linux {}", release.split('-').next().unwrap_or_default().trim());
        Self { folder: folder.to_owned(), mpi: mpi_version(), kernel }
    }

    /// Open MPI's name with how it is used, or why it is absent.
    ///
    /// # Errors
    /// Why it is absent.
    pub fn mpi_with(&self, how: &str) -> Result<String, String> {
        self.mpi.as_ref().map(|version| format!("{version}, {how}")).map_err(Clone::clone)
    }

    /// Half round trip in microseconds of a raw busy-polling ping-pong; `kind` is "udp" or "tcp".
    ///
    /// # Errors
    /// When it fails.
    pub fn wire(&self, kind: &str, nodes: &[Node], bytes: &str) -> Result<f64, BenchError> {
        let wire = cluster::existing(self.folder.join("wire"))?;
        let address = &nodes[1].address;
        let end = |node: &Node, role: &str| {
            let mut command = node.command(&wire);
            command.args([kind, role, address, PORT, &node.cpu(0), bytes]);
            command
        };
        let mut server = end(&nodes[1], "serve");
        server.stdout(Stdio::piped());
        let mut server = server
            .spawn()
            .map_err(|source| BenchError::Start { what: "wire serve".to_owned(), source })?;
        // It says when it listens, or ends without a word.
        let mut ready = String::new();
        let said = server.stdout.take().map(|out| BufReader::new(out).read_line(&mut ready));
        let result = match said {
            Some(Ok(1..)) => cluster::output(end(&nodes[0], "ping").arg("200")),
            _ => Err(BenchError::Output {
                wanted: "ready".to_owned(),
                what: "wire serve".to_owned(),
                output: ready,
            }),
        };
        // Over TCP it has ended by itself.
        let _ended = server.kill();
        let _status = server.wait();
        half_round_trip_us(&result?, "wire ping")
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
        let program = cluster::existing(self.folder.join("mpi"))?;
        let agent = self.write_agent(nodes)?;
        let Some(netns) = &nodes[0].netns else {
            return self.mpi_run(mpirun(), "tcp,self", [None, None], nodes, &program, bytes);
        };
        // Each node needs a host name of its own, or the library takes both for one machine.
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{netns}"));
        command.args(["unshare", "--uts", "sh", "-c", "hostname \"$0\" && exec \"$@\"", netns]);
        command.arg("mpirun").args(MPIRUN_OPTIONS).args(["--mca", "plm_rsh_agent"]).arg(agent);
        let hosts = [Some(nodes[0].address.as_str()), Some(nodes[1].address.as_str())];
        self.mpi_run(command, "tcp,self", hosts, nodes, &program, bytes)
    }

    /// The same between two processors of one node, over shared memory.
    ///
    /// # Errors
    /// When it fails.
    pub fn mpi_within(&self, node: &Node, bytes: &str) -> Result<f64, BenchError> {
        let program = cluster::existing(self.folder.join("mpi"))?;
        let second = Node { cpus: node.cpus.iter().skip(1).copied().collect(), ..node.clone() };
        let nodes = [node.clone(), second];
        self.mpi_run(mpirun(), "vader,self", [None, None], &nodes, &program, bytes)
    }

    fn mpi_run(
        &self,
        mut command: Command,
        transports: &str,
        hosts: [Option<&str>; 2],
        nodes: &[Node],
        program: &Path,
        bytes: &str,
    ) -> Result<f64, BenchError> {
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
            command.arg(program).args([bytes, "200"]);
        }
        half_round_trip_us(&cluster::output(&mut command)?, "mpirun mpi")
    }

    /// The "remote shell" by which mpirun reaches the other namespace.
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
        let begin = std::time::Instant::now();
        cluster::output(mpirun().args(["--oversubscribe", "-np", "8", "true"]))?;
        Ok(begin.elapsed().as_secs_f64())
    }
}

const MPIRUN_OPTIONS: [&str; 3] = ["--allow-run-as-root", "--bind-to", "none"];

fn mpirun() -> Command {
    let mut command = Command::new("mpirun");
    command.args(MPIRUN_OPTIONS);
    command
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
