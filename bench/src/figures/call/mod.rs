//! Calls of routines over loopback TCP: a server process with routines that do nothing, beside raw TCP,
//! and (in [`python`]) beside what people use from Python today.

mod python;

use super::Setting;
use super::turns::{self, Against, Measure};
use crate::cluster::{self, Node};
use crate::error::BenchError;
use crate::record::{Goal, Record};
use kumi_call::{Client, Options};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// The routines, and what they take and give.
const ROUTINES: &str = include_str!("../../../call/routines.c");
const DESCRIPTIONS: &str = include_str!("../../../call/routines.idl");

/// Bytes of the array argument.
const ARRAY: usize = 32 << 20;
/// Bytes of a call that does nothing: header, head with name. The raw round trip sends as many.
const NOOP: &str = "38";
/// Calls whose mean is one measurement.
const NOOPS: u32 = 5000;
/// Arrays whose mean is one measurement.
const ARRAYS: u32 = 20;

pub(super) fn measure(setting: &Setting, runs: usize) -> Result<Vec<Record>, BenchError> {
    let folder = cluster::folder()?;
    let server = Server::start(folder.path())?;
    let mut records = arrays(setting, runs, &server)?;
    records.extend(noop(setting, runs, &server)?);
    records.extend(noop_from_c(setting, runs, &server)?);
    records.extend(python::measure(setting, runs, &server, folder.path())?);
    Ok(records)
}

/// `kumi call serve` in a process of its own; ended when dropped.
pub(super) struct Server {
    child: Child,
    /// Where it listens.
    pub(super) address: String,
}

impl Server {
    /// With the routines that cost nothing.
    fn start(folder: &Path) -> Result<Self, BenchError> {
        let (source, idl) = (folder.join("routines.c"), folder.join("routines.idl"));
        for (path, text) in [(&source, ROUTINES), (&idl, DESCRIPTIONS)] {
            let failed = |source| BenchError::File { path: path.clone(), source };
            std::fs::write(path, text).map_err(failed)?;
        }
        let library = folder.join("libroutines.so");
        let mut compiler = Command::new("cc");
        compiler.args(["-O2", "-shared", "-fPIC", "-o"]).arg(&library).arg(&source);
        cluster::output(&mut compiler)?;
        Self::of(&["--library".into(), library, idl])
    }

    /// With these arguments; it listens on a port that is free.
    pub(super) fn of(args: &[PathBuf]) -> Result<Self, BenchError> {
        let mut command = Command::new(cluster::program("kumi")?);
        command.args(["call", "serve", "--listen", "127.0.0.1:0", "--slots", "2"]).args(args);
        let what = format!("{command:?}");
        let started = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn();
        let mut child =
            started.map_err(|source| BenchError::Start { what: what.clone(), source })?;
        let mut said = String::new();
        let Some(stderr) = child.stderr.take() else {
            return Err(BenchError::Missing(PathBuf::from("standard error")));
        };
        let mut lines = BufReader::new(stderr);
        loop {
            let mut line = String::new();
            let read = lines.read_line(&mut line);
            said.push_str(&line);
            if let Some((_, at)) =
                line.trim().rsplit_once(" at ").filter(|_| line.contains("serves"))
            {
                let address = at.to_owned();
                // What it says later belongs to whoever looks at the benchmark.
                std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::stderr()));
                return Ok(Self { child, address });
            }
            if !matches!(read, Ok(count) if count > 0) {
                let mut server = Self { child, address: String::new() };
                server.end();
                return Err(BenchError::Output { wanted: "serves".to_owned(), what, output: said });
            }
        }
    }

    fn connect(&self) -> Result<Client, BenchError> {
        Ok(Client::connect(&self.address, &Options::default())?)
    }

    fn end(&mut self) {
        // It may have ended by itself.
        let _ended = self.child.kill();
        let _status = self.child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

/// The two ends of a raw connection on this machine, not bound to processors, as the call's are not.
fn ends() -> [Node; 2] {
    let node = Node { address: "127.0.0.1".to_owned(), netns: None, cpus: Vec::new() };
    [node.clone(), node]
}

/// Megabytes a second of an array argument, and of an array that comes back.
fn arrays(setting: &Setting, runs: usize, server: &Server) -> Result<Vec<Record>, BenchError> {
    let client = server.connect()?;
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
    let raw = |goal| Against {
        name: Ok(format!("TCP stream, {}", setting.peers.kernel)),
        goal,
        measure: Box::new(|| setting.peers.bulk("tcp", &ends(), &ARRAY.to_string(), "20")),
    };
    let goal = Goal::RatioAtLeast(0.9);
    let mut records =
        turns::measure("array argument of 32 MB", "MB/s", runs, sent, vec![raw(goal)])?;
    records.extend(turns::measure(
        "array result of 32 MB",
        "MB/s",
        runs,
        got,
        vec![raw(Goal::None)],
    )?);
    Ok(records)
}

/// A raw round trip of as many bytes, in microseconds.
fn round_trip<'a>(setting: &'a Setting, title: &str) -> Against<'a> {
    Against {
        name: Ok(format!("{title}, {}", setting.peers.kernel)),
        goal: Goal::RatioAtMost(3.0),
        measure: Box::new(|| Ok(2.0 * setting.peers.wire("tcp-blocking", &ends(), NOOP, None)?)),
    }
}

/// Microseconds of a call of a warm routine that does nothing.
fn noop(setting: &Setting, runs: usize, server: &Server) -> Result<Vec<Record>, BenchError> {
    let client = server.connect()?;
    let ours: Measure<'_> = Box::new(move || {
        let begin = Instant::now();
        for _ in 0..NOOPS {
            client.call("noop", Vec::new())?;
        }
        Ok(begin.elapsed().as_secs_f64() * 1e6 / f64::from(NOOPS))
    });
    let raw = round_trip(setting, "TCP round trip");
    turns::measure("call of a warm routine that does nothing, Rust", "us", runs, ours, vec![raw])
}

/// The same with the GridRPC interface: the example `rate` measures.
fn noop_from_c(setting: &Setting, runs: usize, server: &Server) -> Result<Vec<Record>, BenchError> {
    let program = cluster::program("rate")?;
    let ours: Measure<'_> = Box::new(|| {
        let mut command = Command::new(&program);
        command.args(["-n", &NOOPS.to_string(), "noop"]).env("KUMI_CALL_SERVER", &server.address);
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
