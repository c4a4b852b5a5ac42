//! Calls of routines over loopback TCP and through shared memory, compared with raw TCP. The server is a
//! process of its own whose routines do nothing. Further modules: [`python`] compares with other systems for
//! Python, and Linpack is called from C. Benchmarks of their own are limited paths ([`sites`]), uneven work
//! ([`density`]), many clients ([`crowd`]), and other systems behind a server ([`adapters`]).

mod adapters;
mod crowd;
mod density;
mod draw;
mod efficiency;
mod linpack;
mod process;
mod python;
mod sites;

pub(super) use adapters::measure as adapters;
pub(super) use crowd::measure as crowd;
pub(super) use density::measure as density;
pub(super) use sites::measure as sites;

use super::Setting;
use super::turns::{self, Measure, PeerComparison};
use crate::cluster::{self, Node};
use crate::error::BenchError;
use crate::record::{Goal, Record};
use kumi_call_client::{Client, Options};
use process::Process;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// Descriptions of the routines.
const ROUTINES: &str = include_str!("../../../call/routines.c");
const DESCRIPTIONS: &str = include_str!("../../../call/routines.idl");

/// Bytes of the array argument.
const ARRAY: usize = 32 << 20;
/// Bytes of an empty call: header, and head with the name. The answer is slightly shorter; the raw round trip
/// sends as many.
const NOOP: &str = "32";
/// Calls whose mean is one measurement.
const NOOPS: u32 = 5000;
/// Arrays whose mean is one measurement.
const ARRAYS: u32 = 20;

/// The transport of arrays to a server on this machine.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ArrayTransport {
    /// Over loopback TCP.
    Tcp,
    /// Through shared memory.
    Memory,
}

impl ArrayTransport {
    /// Options of a client in this process.
    fn options(self) -> Options {
        Options { share_memory: self == ArrayTransport::Memory, ..Options::default() }
    }

    /// The value of `KUMI_CALL_SHARED` for a client.
    fn shared(self) -> &'static str {
        match self {
            ArrayTransport::Tcp => "no",
            ArrayTransport::Memory => "yes",
        }
    }

    /// The suffix of a figure's name.
    fn suffix(self) -> &'static str {
        match self {
            ArrayTransport::Tcp => "",
            ArrayTransport::Memory => ", shared memory",
        }
    }
}

pub(super) fn measure(setting: &Setting, runs: usize) -> Result<Vec<Record>, BenchError> {
    let folder = cluster::folder()?;
    let server = Server::start(folder.path())?;
    let mut records = Vec::new();
    for way in [ArrayTransport::Tcp, ArrayTransport::Memory] {
        records.extend(arrays(setting, runs, &server, way)?);
        records.extend(noop(setting, runs, &server, way)?);
    }
    records.extend(noop_from_c(setting, runs, &server)?);
    records.extend(linpack::measure(runs, folder.path())?);
    records.extend(python::measure(setting, runs, &server, folder.path())?);
    Ok(records)
}

/// A process of `kumi call serve`, ended when this is dropped.
pub(super) struct Server {
    process: Process,
}

impl Server {
    /// A server of the empty routines.
    fn start(folder: &Path) -> Result<Self, BenchError> {
        Self::of(&process::routines(folder, "routines", ROUTINES, DESCRIPTIONS)?)
    }

    /// A server with these arguments, on a free port.
    pub(super) fn of(args: &[PathBuf]) -> Result<Self, BenchError> {
        Self::with(2, &[], args)
    }

    /// A server with this many slots that registers at this metaserver.
    fn with(slots: u32, more: &[&str], args: &[PathBuf]) -> Result<Self, BenchError> {
        let mut command = Command::new(cluster::program("kumi")?);
        command.args(["call", "serve", "--listen", "127.0.0.1:0", "--slots"]);
        command.arg(slots.to_string()).args(more).args(args);
        Ok(Self { process: Process::start(command)? })
    }

    /// Its address.
    fn address(&self) -> &str {
        &self.process.address
    }

    fn connect(&self, way: ArrayTransport) -> Result<Client, BenchError> {
        Ok(Client::connect(self.address(), &way.options())?)
    }
}

/// The two ends of a raw connection on this machine. They are not bound to processors, as those of a call are
/// not.
fn ends() -> [Node; 2] {
    let node = Node { address: "127.0.0.1".to_owned(), netns: None, cpus: Vec::new() };
    [node.clone(), node]
}

/// Megabytes a second of an array argument, and of an array that comes back.
fn arrays(
    setting: &Setting,
    runs: usize,
    server: &Server,
    way: ArrayTransport,
) -> Result<Vec<Record>, BenchError> {
    let client = server.connect(way)?;
    let data = vec![1.0_f64; ARRAY / 8];
    let mut back = vec![0.0_f64; ARRAY / 8];
    let count = (ARRAY / 8) as i64;
    let rate =
        |begin: Instant| f64::from(ARRAYS) * ARRAY as f64 / begin.elapsed().as_secs_f64() / 1e6;
    let sent: Measure<'_> = Box::new(|| {
        let begin = Instant::now();
        for _ in 0..ARRAYS {
            client.call("sink", vec![count.into(), data.as_slice().into()])?;
        }
        Ok(rate(begin))
    });
    let got: Measure<'_> = Box::new(|| {
        let begin = Instant::now();
        for _ in 0..ARRAYS {
            let args = vec![count.into(), back.as_mut_slice().into()];
            client.call("source", args)?;
        }
        Ok(rate(begin))
    });
    let raw = |goal| PeerComparison {
        name: Ok(format!("TCP stream, {}", setting.peers.kernel)),
        goal,
        measure: Box::new(|| setting.peers.bulk("tcp", &ends(), &ARRAY.to_string(), "20")),
    };
    let goal = Goal::RatioAtLeast(0.9);
    let named = |figure: &str| format!("{figure}{}", way.suffix());
    let mut records =
        turns::measure(&named("array argument of 32 MB"), "MB/s", runs, sent, vec![raw(goal)])?;
    records.extend(turns::measure(
        &named("array result of 32 MB"),
        "MB/s",
        runs,
        got,
        vec![raw(Goal::None)],
    )?);
    Ok(records)
}

/// A raw round trip of the same size, in microseconds.
fn round_trip<'a>(setting: &'a Setting, title: &str) -> PeerComparison<'a> {
    PeerComparison {
        name: Ok(format!("{title}, {}", setting.peers.kernel)),
        goal: Goal::RatioAtMost(3.0),
        measure: Box::new(|| Ok(2.0 * setting.peers.wire("tcp-blocking", &ends(), NOOP, None)?)),
    }
}

/// Microseconds of an empty call of a warm routine.
fn noop(
    setting: &Setting,
    runs: usize,
    server: &Server,
    way: ArrayTransport,
) -> Result<Vec<Record>, BenchError> {
    let client = server.connect(way)?;
    let ours: Measure<'_> = Box::new(move || {
        let begin = Instant::now();
        for _ in 0..NOOPS {
            client.call("noop", Vec::new())?;
        }
        Ok(begin.elapsed().as_secs_f64() * 1e6 / f64::from(NOOPS))
    });
    let raw = round_trip(setting, "TCP round trip");
    let figure = format!("call of a warm routine that does nothing, Rust{}", way.suffix());
    turns::measure(&figure, "us", runs, ours, vec![raw])
}

/// The same through the GridRPC interface, measured by the example `rate`.
fn noop_from_c(setting: &Setting, runs: usize, server: &Server) -> Result<Vec<Record>, BenchError> {
    let program = cluster::program("rate")?;
    let ours: Measure<'_> = Box::new(|| {
        let mut command = Command::new(&program);
        command.args(["-n", &NOOPS.to_string(), "noop"]).env("KUMI_CALL_SERVER", server.address());
        command.env("KUMI_CALL_SHARED", ArrayTransport::Tcp.shared());
        let output = cluster::output(&mut command)?;
        let found = output.lines().find_map(|line| line.split_once(" us a call"));
        found.and_then(|(number, _)| number.trim().parse().ok()).ok_or_else(|| BenchError::Output {
            wanted: "us a call".to_owned(),
            what: format!("{command:?}"),
            output,
        })
    });
    let raw = round_trip(setting, "TCP round trip");
    turns::measure("call of a warm routine that does nothing, C", "us", runs, ours, vec![raw])
}
