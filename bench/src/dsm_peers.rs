//! Other systems of shared memory: OpenMP's threads, ArgoDSM and M-JIAJIA. `bench/peers/dsm` builds the programs of
//! `examples/dsm` for the latter two from sources that the user names.

use crate::cluster::{self, Node};
use crate::error::BenchError;
use crate::figures::checked_seconds;
use crate::peer::{self, Peers};
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

/// Runs of a peer that may fail before it is given up: they do not always reach their end.
const ATTEMPTS: usize = 3;
/// Seconds after which a run of a peer is ended.
const LIMIT: &str = "20";

/// Where pages have their homes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Homes {
    /// Where they are written, or dealt out.
    Matched,
    /// At the first rank.
    Careless,
}

/// A program on nodes, one rank on each.
#[derive(Debug)]
pub struct PeerJob<'a> {
    /// Of `examples/dsm`.
    pub name: &'a str,
    /// Its arguments.
    pub arguments: &'a [String],
    /// The nodes.
    pub nodes: &'a [Node],
    /// Where pages have their homes.
    pub homes: Homes,
}

impl Peers {
    /// OpenMP's name, or why it is absent.
    ///
    /// # Errors
    /// It is absent.
    pub fn openmp_name(&self) -> Result<String, String> {
        let built = self.folder.join("openmp").is_file();
        if built {
            Ok("threads of one process, OpenMP".to_owned())
        } else {
            Err("not built".to_owned())
        }
    }

    /// Seconds of a program by threads.
    ///
    /// # Errors
    /// When it fails.
    pub fn openmp(
        &self,
        name: &str,
        size: &str,
        steps: &str,
        threads: usize,
    ) -> Result<f64, BenchError> {
        let mut command = Command::new(cluster::existing(self.folder.join("openmp"))?);
        command.args([name, size, steps]).env("OMP_NUM_THREADS", threads.to_string());
        cluster::number(&cluster::output(&mut command)?, "seconds", "openmp")
    }

    fn built(&self, system: &str, program: &str) -> Result<(), String> {
        let built = self.folder.join(program).is_file();
        let why = || format!("{system} is not built; `make bench-dsm SRC=DIR` builds it from DIR");
        if built { Ok(()) } else { Err(why()) }
    }

    /// ArgoDSM's name, or why it is absent. It is absent also if it never reaches the end of this program.
    ///
    /// # Errors
    /// It is absent.
    pub fn argo_name(&self, job: &PeerJob<'_>) -> Result<String, String> {
        self.built("ArgoDSM", &format!("argo-{}", job.name))?;
        let mpi = self.mpi_with("shared memory of this machine")?;
        let ended = self.argo(job).is_ok();
        if ended { Ok(format!("ArgoDSM, {mpi}")) } else { Err(unending("ArgoDSM", job)) }
    }

    /// Seconds of a program over ArgoDSM: processes of this machine, on the nodes' processors. The library's one-sided
    /// operations for several threads exist over shared memory and special networks, not over TCP. So it has no network between
    /// its ranks, and ours have one.
    ///
    /// # Errors
    /// When it fails.
    pub fn argo(&self, job: &PeerJob<'_>) -> Result<f64, BenchError> {
        attempts(|| self.argo_once(job))
    }

    fn argo_once(&self, job: &PeerJob<'_>) -> Result<f64, BenchError> {
        let program = cluster::existing(self.folder.join(format!("argo-{}", job.name)))?;
        let mut command = peer::mpirun();
        command.args(["--oversubscribe", "--timeout", LIMIT]);
        for setting in argo_settings(job) {
            command.args(["-x", &setting]);
        }
        let cpus: Vec<String> = job.nodes.iter().map(processors).collect();
        command.args(["-np", &cpus.len().to_string(), "taskset", "-c", &cpus.join(",")]);
        command.arg(&program).args(job.arguments);
        checked_seconds(&cluster::output(&mut command)?, job.name)
    }

    /// M-JIAJIA's name, or why it is absent. It is absent also if it never reaches the end of this program.
    ///
    /// # Errors
    /// It is absent.
    pub fn jiajia_name(&self, job: &PeerJob<'_>) -> Result<String, String> {
        self.built("M-JIAJIA", &format!("jia-{}", job.name))?;
        if job.nodes.iter().any(|node| node.netns.is_none()) {
            return Err("M-JIAJIA needs nodes with addresses of their own".to_owned());
        }
        let ended = self.jiajia(job).is_ok();
        if ended { Ok("M-JIAJIA, UDP".to_owned()) } else { Err(unending("M-JIAJIA", job)) }
    }

    /// Seconds of a program over M-JIAJIA. It is started as its manual says, by ssh and scp, whose places scripts take.
    ///
    /// # Errors
    /// When it fails, several times in turn.
    pub fn jiajia(&self, job: &PeerJob<'_>) -> Result<f64, BenchError> {
        attempts(|| self.jiajia_once(job))
    }

    fn jiajia_once(&self, job: &PeerJob<'_>) -> Result<f64, BenchError> {
        let file = format!("jia-{}", job.name);
        let program = cluster::existing(self.folder.join(&file))?;
        let (folder, first) = (cluster::folder()?, &job.nodes[0]);
        let home = folder.path().join(&first.address);
        let failed = |source| BenchError::File { path: home.clone(), source };
        std::fs::create_dir_all(&home).map_err(failed)?;
        std::fs::copy(program, home.join(&file)).map_err(failed)?;
        let (mut hosts, mut nodes) = (String::new(), String::new());
        for node in job.nodes {
            let namespace = node.netns.as_deref().unwrap_or_default();
            let _infallible = writeln!(hosts, "{} root none", node.address);
            let _infallible = writeln!(nodes, "{} {namespace} {}", node.address, processors(node));
        }
        std::fs::write(home.join(".jiahosts"), hosts).map_err(failed)?;
        std::fs::write(home.join(".jiaconf"), JIAJIA_SETTINGS).map_err(failed)?;
        std::fs::write(folder.path().join("nodes"), nodes).map_err(failed)?;
        let mut command = first.command(Path::new("taskset"));
        command.args(["-c", &processors(first), "timeout", "-k", "1", LIMIT]);
        command.arg(format!("./{file}")).current_dir(&home).env("HOME", &home);
        // It starts elsewhere.
        let scripts = std::path::absolute(self.folder.join("jia/bin")).map_err(failed)?;
        let scripts = scripts.display();
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{scripts}:{path}")).env("PEER_LIMIT", LIMIT);
        command.env("PEER_HOMES", folder.path()).env("PEER_NODES", folder.path().join("nodes"));
        command.env("PROGRAM_ARGUMENTS", job.arguments.join(" "));
        checked_seconds(&cluster::output(&mut command)?, job.name)
    }
}

/// Runs a peer until it has reached its end once.
fn attempts(run: impl Fn() -> Result<f64, BenchError>) -> Result<f64, BenchError> {
    let mut last = run();
    for _ in 1..ATTEMPTS {
        if last.is_ok() {
            break;
        }
        last = run();
    }
    last
}

fn unending(system: &str, job: &PeerJob<'_>) -> String {
    format!("{system} did not end {} rightly in {ATTEMPTS} attempts", job.name)
}

fn processors(node: &Node) -> String {
    let list: Vec<String> = node.cpus.iter().map(ToString::to_string).collect();
    if list.is_empty() { "0-1023".to_owned() } else { list.join(",") }
}

/// Its own defaults, but for buffers as its sources have them.
const JIAJIA_SETTINGS: &str = "system_mode = hybrid\ncomm_type = udp\n\
     global_start_addr = 0x400000000000\nmsg_buffer_size = 48\nmsg_queue_size = 32\nprefetch = off\n\
     prefetch_pages = 4\nmax_checking_pages = 10\n";

/// Homes are not its programs' business: each node is the home of an equal part of the whole memory. One that is hardly larger
/// than the program's data shares these out, a larger one has all of them at the first node.
fn argo_settings(job: &PeerJob<'_>) -> Vec<String> {
    let bytes = match job.homes {
        Homes::Matched => data_bytes(job) + (1 << 20),
        Homes::Careless => 1 << 29,
    };
    vec![
        "ARGO_ALLOCATION_POLICY=0".to_owned(),
        format!("ARGO_MEMORY_SIZE={bytes}"),
        format!("ARGO_CACHE_SIZE={}", 1 << 29),
        "ARGO_PRINT_STATISTICS=0".to_owned(),
    ]
}

/// Bytes of a program's large arrays.
fn data_bytes(job: &PeerJob<'_>) -> u64 {
    let size = job.arguments.iter().find_map(|word| word.strip_prefix("--size=")?.parse().ok());
    let size: u64 = size.unwrap_or(0);
    match job.name {
        "mm" => 3 * 8 * size * size,
        "sor" => 8 * (size + 2) * (size + 2),
        "lu" => 8 * size.next_multiple_of(32).pow(2),
        "radix" => 2 * 4 * size,
        _ => 1 << 20,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn homes_of_argo_follow_the_size_of_its_memory() {
        let arguments = ["dsm".to_owned(), "--size=1022".to_owned()];
        let with = |homes| {
            argo_settings(&PeerJob { name: "sor", arguments: &arguments, nodes: &[], homes })
        };
        assert!(with(Homes::Matched).contains(&"ARGO_MEMORY_SIZE=9437184".to_owned()));
        assert!(with(Homes::Careless).contains(&"ARGO_MEMORY_SIZE=536870912".to_owned()));
    }
}
