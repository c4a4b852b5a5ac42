//! The benchmarks: each measures some figures and writes a record of each.

mod bulk;
mod call;
mod chart;
mod collectives;
mod cosched;
mod deadlock;
mod encryption;
mod engines;
mod fill;
mod flood;
mod footprint;
mod gang;
mod gets;
mod handler;
mod head;
mod launch;
mod lockstep;
mod monitor;
mod mpi;
mod pages;
mod pingpong;
mod put;
mod queue;
mod rate;
mod sched;
mod settle;
mod shared;
mod shared_acks;
mod shared_handler;
mod shared_jobs;
mod shared_peers;
mod shared_programs;
mod shares;
mod terminal;
mod think;
mod together;
mod turns;
mod wait;
mod xdp;

pub(crate) use shared_jobs::seconds as checked_seconds;

use crate::error::BenchError;
use crate::peer::Peers;
use crate::record::Record;
use std::path::PathBuf;

/// Bytes of the frames of paths that are measured beside each other.
const MTUS: [&str; 3] = ["1500", "9000", "65535"];

/// How a figure's name tells the path; that of the first is not told.
fn of_mtu(mtu: &str) -> String {
    if mtu == MTUS[0] { String::new() } else { format!(", MTU {mtu}") }
}

/// Context of a benchmark.
pub struct Setting {
    /// The peers.
    pub peers: Peers,
    /// Number of runs for the median; default: the benchmark's own number.
    pub runs: Option<usize>,
    /// Sources of a job simulator in Python.
    pub simulator: Option<PathBuf>,
    /// The Python interpreter for them.
    pub python: PathBuf,
    /// Folder for output other than records.
    pub out: PathBuf,
    /// Fewer and shorter measurements, if a benchmark supports that.
    pub quick: bool,
    /// The larger sizes of programs over shared memory, and more nodes.
    pub scaled: bool,
}

/// A benchmark.
pub struct Benchmark {
    /// Its name, which is also that of its JSON file.
    pub name: &'static str,
    /// One line that describes the benchmark.
    pub about: &'static str,
    /// Default number of runs.
    pub runs: usize,
    measure: fn(&Setting, usize) -> Result<Vec<Record>, BenchError>,
}

impl Benchmark {
    /// Runs the benchmark.
    ///
    /// # Errors
    /// A figure cannot be measured at all. A missed goal or an absent peer is no error.
    pub fn measure(&self, setting: &Setting) -> Result<Vec<Record>, BenchError> {
        (self.measure)(setting, setting.runs.unwrap_or(self.runs))
    }
}

/// All benchmarks, in the order in which they run.
pub const ALL: [Benchmark; 39] = [
    Benchmark {
        name: "pingpong",
        about: "half round trip of an 8-byte put with notification",
        runs: 7,
        measure: pingpong::measure,
    },
    Benchmark {
        name: "launch",
        about: "a job of 8 ranks on 4 nodes that does nothing, warm",
        runs: 25,
        measure: launch::measure,
    },
    Benchmark {
        name: "gang",
        about: "what switching costs a program alone, and how nodes switch",
        runs: 40,
        measure: gang::measure,
    },
    Benchmark {
        name: "lockstep",
        about: "programs that synchronise every few microseconds, several at once",
        runs: 30,
        measure: lockstep::measure,
    },
    Benchmark {
        name: "together",
        about: "two and three programs at once against equal shares",
        runs: 16,
        measure: together::measure,
    },
    Benchmark {
        name: "fill",
        about: "every mix of two and three programs, filled, against strict gangs and operating systems",
        runs: 5,
        measure: fill::measure,
    },
    Benchmark {
        name: "cosched",
        about: "one to three copies of programs under gangs and under every way of waiting",
        runs: 3,
        measure: cosched::measure,
    },
    Benchmark {
        name: "think",
        about: "jobs whose users think, by slice, beside perfect sharing",
        runs: 1,
        measure: think::measure,
    },
    Benchmark {
        name: "monitor",
        about: "what it costs to watch 64 ranks in a browser",
        runs: 5,
        measure: monitor::measure,
    },
    Benchmark {
        name: "handler",
        about: "reads from ranks that compute, by the scheduling of the handler thread",
        runs: 3,
        measure: handler::measure,
    },
    Benchmark {
        name: "pages",
        about: "page requests of 16 clients, acks reduced and per message",
        runs: 9,
        measure: pages::measure,
    },
    Benchmark {
        name: "gets",
        about: "gets of 4 KB from another node, 16 under way, beside one after the other",
        runs: 9,
        measure: gets::measure,
    },
    Benchmark {
        name: "shared",
        about: "shared memory between two nodes: page faults, releases, locks, barriers",
        runs: 7,
        measure: shared::measure,
    },
    Benchmark {
        name: "shared-programs",
        about: "programs over shared memory, beside one process, puts and gets, and OpenMP",
        runs: 3,
        measure: shared_programs::measure,
    },
    Benchmark {
        name: "shared-acks",
        about: "programs over shared memory, acks reduced and per message",
        runs: 3,
        measure: shared_acks::measure,
    },
    Benchmark {
        name: "shared-handler",
        about: "programs over shared memory, by the scheduling of the handler thread",
        runs: 3,
        measure: shared_handler::measure,
    },
    Benchmark {
        name: "shared-peers",
        about: "the same programs over shared memory, ArgoDSM and M-JIAJIA",
        runs: 3,
        measure: shared_peers::measure,
    },
    Benchmark {
        name: "encryption",
        about: "what encrypting packets costs, against the same in clear",
        runs: 11,
        measure: encryption::measure,
    },
    Benchmark {
        name: "xdp",
        about: "puts by AF_XDP, against the same by UDP and raw AF_XDP",
        runs: 11,
        measure: xdp::measure,
    },
    Benchmark {
        name: "put",
        about: "half round trip of an 8-byte put, polling, blocked, and on one node",
        runs: 15,
        measure: put::measure,
    },
    Benchmark {
        name: "bulk",
        about: "bytes a second of large puts",
        runs: 15,
        measure: bulk::measure,
    },
    Benchmark {
        name: "rate",
        about: "16-byte puts a second, many in flight",
        runs: 15,
        measure: rate::measure,
    },
    Benchmark {
        name: "collectives",
        about: "collectives of 8 ranks on 4 nodes",
        runs: 5,
        measure: collectives::measure,
    },
    Benchmark {
        name: "footprint",
        about: "memory of a rank's idle channel in a job of 1,024 ranks",
        runs: 3,
        measure: footprint::measure,
    },
    Benchmark {
        name: "flood",
        about: "half round trip of a pair of ranks beside a job that floods its own channel",
        runs: 30,
        measure: flood::measure,
    },
    Benchmark {
        name: "settle",
        about: "what settling a rank's channel costs, against a round trip",
        runs: 5,
        measure: settle::measure,
    },
    Benchmark {
        name: "terminal",
        about: "echo of keys in kumi run -it while another job computes, against a local shell",
        runs: 3,
        measure: terminal::measure,
    },
    Benchmark {
        name: "deadlock",
        about: "how soon a job that is stopped is reported",
        runs: 10,
        measure: deadlock::measure,
    },
    Benchmark {
        name: "wait",
        about: "ways of waiting: two jobs of pairs that synchronise, against one alone",
        runs: 10,
        measure: wait::measure,
    },
    Benchmark {
        name: "mpi",
        about: "stock MPI programs, beside the same library over TCP and over its own shared memory",
        runs: 7,
        measure: mpi::measure,
    },
    Benchmark {
        name: "call",
        about: "calls of routines over loopback, from Rust and from Python",
        runs: 5,
        measure: call::measure,
    },
    Benchmark {
        name: "call-adapters",
        about: "calls of Dask and Ray through a server, beside their own",
        runs: 9,
        measure: call::adapters,
    },
    Benchmark {
        name: "call-crowd",
        about: "a metaserver with 1,000 clients and 10,000 calls that wait",
        runs: 1,
        measure: call::crowd,
    },
    Benchmark {
        name: "call-density",
        about: "uneven work on 8 servers, given out by the metaserver and in turn, beside its simulation",
        runs: 3,
        measure: call::density,
    },
    Benchmark {
        name: "call-sites",
        about: "clients of 1 to 4 sites on paths of limited rate, beside their simulation",
        runs: 1,
        measure: call::sites,
    },
    Benchmark {
        name: "engines",
        about: "a notebook's cell on 8 ranks, beside ipyparallel and mpi4py.futures",
        runs: 20,
        measure: engines::measure,
    },
    Benchmark {
        name: "head",
        about: "the head of 1,000 nodes while many jobs wait, start and end, in virtual time",
        runs: 3,
        measure: head::measure,
    },
    Benchmark {
        name: "queue",
        about: "1,000 short jobs that wait for 64 nodes, with real daemons",
        runs: 3,
        measure: queue::measure,
    },
    Benchmark {
        name: "sched",
        about: "what the schedulers cost: simulations, events, timetables",
        runs: 7,
        measure: sched::measure,
    },
];
