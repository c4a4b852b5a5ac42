//! Calls from Python, compared with Ray, Dask and Arrow Flight. Each measurement runs in a process of its
//! own.

use super::super::Setting;
use super::super::turns::{self, Measure, PeerComparison};
use super::efficiency::{Point, draw};
use super::{ArrayTransport, Server, cluster, ends, round_trip};
use crate::error::BenchError;
use crate::record::{Goal, Record};
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::process::Command;

const SCRIPT: &str = include_str!("../../../call/measure.py");
const LINEAR: &str = include_str!("../../../call/linear.idl");

/// Number of calls for the median, and for the rate; slow peers make fewer.
const NOOPS: [&str; 2] = ["2000", "200"];
const RATES: [&str; 2] = ["20000", "2000"];

/// Sizes, and the goal: computing alone as a share of a call's time.
const SIZES: [(&str, f64); 3] = [("600", 0.85), ("1000", 0.92), ("1400", 0.94)];

/// Longest buffer of a raw stream.
const MOST_BUFFER: u32 = 32 << 20;

/// The peers with their usual names, and the goal for our rate of calls over theirs.
const PEERS: [(&str, &str, Goal); 3] = [
    ("ray", "Ray actor", Goal::RatioAtLeast(8.0)),
    ("dask", "Dask submit", Goal::RatioAtLeast(20.0)),
    ("flight", "Arrow Flight", Goal::None),
];

struct Python<'a> {
    interpreter: &'a Path,
    script: PathBuf,
}

impl Python<'_> {
    fn run(&self, args: &[&str], way: ArrayTransport) -> Result<serde_json::Value, BenchError> {
        let mut command = Command::new(self.interpreter);
        command.arg(&self.script).args(args).env("OPENBLAS_NUM_THREADS", "1");
        command.env("KUMI_CALL_SHARED", way.shared());
        let output = cluster::output(&mut command)?;
        let result = output.lines().find_map(|line| line.strip_prefix("RESULT "));
        result.and_then(|json| serde_json::from_str(json).ok()).ok_or_else(|| BenchError::Output {
            wanted: "RESULT".to_owned(),
            what: format!("{command:?}"),
            output,
        })
    }

    fn number(&self, args: &[&str], field: &str, way: ArrayTransport) -> Result<f64, BenchError> {
        let result = self.run(args, way)?;
        result[field].as_f64().ok_or_else(|| BenchError::Output {
            wanted: field.to_owned(),
            what: args.join(" "),
            output: result.to_string(),
        })
    }

    /// A peer's name with its version, or why it is absent.
    fn name(&self, system: &str, title: &str) -> Result<String, String> {
        match self.run(&[system, "version"], ArrayTransport::Tcp) {
            Ok(result) => Ok(format!("{title} {}", result["version"].as_str().unwrap_or_default())),
            Err(error) => {
                let text = error.to_string();
                Err(text.trim().lines().last().unwrap_or_default().to_owned())
            }
        }
    }
}

pub(super) fn measure(
    setting: &Setting,
    runs: usize,
    server: &Server,
    folder: &Path,
) -> Result<Vec<Record>, BenchError> {
    let (script, linear) = (folder.join("measure.py"), folder.join("linear.idl"));
    for (path, text) in [(&script, SCRIPT), (&linear, LINEAR)] {
        let failed = |source| BenchError::File { path: path.clone(), source };
        std::fs::write(path, text).map_err(failed)?;
    }
    let python = Python { interpreter: &setting.python, script };
    if let Err(why) = python.name("kumi", "kumi") {
        let why = format!("{why} (--python names an interpreter that has kumi)");
        return Ok(vec![Record::unmeasured("calls from Python, and their efficiency", &why)]);
    }
    let mut records = Vec::new();
    for way in [ArrayTransport::Tcp, ArrayTransport::Memory] {
        records.extend(noop(setting, &python, runs, server.address(), way)?);
    }
    records.extend(rate(&python, runs, server.address())?);
    let server = Server::of(&[linear])?;
    for routine in ["dmmul", "dgesv"] {
        let mut points = Vec::new();
        for (n, least) in SIZES {
            let measured = |way| {
                efficiency(setting, (&python, server.address(), way), runs, (routine, n, least))
            };
            let (tcp, memory) = (measured(ArrayTransport::Tcp)?, measured(ArrayTransport::Memory)?);
            records.extend(tcp.iter().chain(&memory).cloned());
            points.push(Point { n, least, tcp, memory });
        }
        draw(&setting.out, routine, &points)?;
    }
    Ok(records)
}

fn noop(
    setting: &Setting,
    python: &Python<'_>,
    runs: usize,
    address: &str,
    way: ArrayTransport,
) -> Result<Vec<Record>, BenchError> {
    let measured = move |system: &str, count: &str, address: &str| {
        python.number(&[system, "noop", count, address], "round_trip_us", way)
    };
    let ours: Measure<'_> = Box::new(move || measured("kumi", NOOPS[0], address));
    let mut against = vec![round_trip(setting, "TCP round trip in C")];
    against.extend(PEERS.map(|(system, title, _)| PeerComparison {
        name: python.name(system, title),
        goal: Goal::None,
        measure: Box::new(move || measured(system, NOOPS[1], "")),
    }));
    let figure = format!("call of a warm routine that does nothing, Python{}", way.suffix());
    turns::measure(&figure, "us", runs, ours, against)
}

fn rate(python: &Python<'_>, runs: usize, address: &str) -> Result<Vec<Record>, BenchError> {
    let measured = move |system: &str, count: &str, address: &str| {
        python.number(&[system, "rate", count, address], "calls_per_second", ArrayTransport::Tcp)
    };
    let ours: Measure<'_> = Box::new(move || measured("kumi", RATES[0], address));
    let against = PEERS.map(|(system, title, goal)| PeerComparison {
        name: python.name(system, title),
        goal,
        measure: Box::new(move || measured(system, RATES[1], "")),
    });
    turns::measure("calls with 16 under way, Python", "1/s", runs, ours, against.into())
}

/// Local time divided by the time of the call. Then the same for a call that consists of the computation and
/// a TCP stream of the arguments and results.
fn efficiency(
    setting: &Setting,
    (python, address, way): (&Python<'_>, &str, ArrayTransport),
    runs: usize,
    (routine, n, least): (&'static str, &'static str, f64),
) -> Result<Vec<Record>, BenchError> {
    let local = Cell::new(0.0);
    let number = |result: &serde_json::Value, field: &str| {
        result[field].as_f64().ok_or_else(|| BenchError::Output {
            wanted: field.to_owned(),
            what: format!("{routine} {n}"),
            output: result.to_string(),
        })
    };
    let ours: Measure<'_> = Box::new(|| {
        let result = python.run(&["kumi", "efficiency", routine, n, address], way)?;
        local.set(number(&result, "local_ms")?);
        number(&result, "efficiency")
    });
    let bytes = moved(routine, n)?;
    let bound = PeerComparison {
        name: Ok("bound: computed here, the bytes as a TCP stream".to_owned()),
        goal: Goal::None,
        measure: Box::new(|| {
            let buffer = bytes.min(MOST_BUFFER).to_string();
            let rate = setting.peers.bulk("tcp", &ends(), &buffer, "40")?;
            let ms = f64::from(bytes) / rate / 1e3;
            Ok(local.get() / (local.get() + ms))
        }),
    };
    let mut against = vec![bound];
    against.extend(PEERS.map(|(system, title, _)| PeerComparison {
        name: python.name(system, title),
        goal: Goal::OursAtLeast(least),
        measure: Box::new(move || {
            python.number(&[system, "efficiency", routine, n, ""], "efficiency", way)
        }),
    }));
    let figure = format!("efficiency of {routine}, n = {n}, Python{}", way.suffix());
    turns::measure(&figure, "", runs, ours, against)
}

/// Bytes of a call's arrays in both directions.
fn moved(routine: &str, n: &str) -> Result<u32, BenchError> {
    let n: u32 = n.parse().map_err(|_| BenchError::Output {
        wanted: "a size".to_owned(),
        what: routine.to_owned(),
        output: n.to_owned(),
    })?;
    Ok(8 * if routine == "dmmul" { 3 * n * n } else { n * n + 2 * n })
}
