//! Calls through a server of routines to a cluster of Dask or Ray, compared with direct calls to that
//! cluster. The paper found a cost of 4 to 20 % for a foreign system.

use super::cluster;
use crate::error::BenchError;
use crate::figures::Setting;
use crate::record::{Goal, Peer, Record};
use std::process::Command;

const SCRIPTS: [(&str, &str); 2] = [
    ("adapters.py", include_str!("../../../call/adapters.py")),
    ("adapted.py", include_str!("../../../call/adapted.py")),
];

/// Longest time of a call, as a multiple of the direct call.
const GOAL: Goal = Goal::RatioAtMost(1.2);

pub(in crate::figures) fn measure(
    setting: &Setting,
    runs: usize,
) -> Result<Vec<Record>, BenchError> {
    let folder = cluster::folder()?;
    let failed =
        |path: &std::path::Path, source| BenchError::File { path: path.to_owned(), source };
    for (name, text) in SCRIPTS {
        let path = folder.path().join(name);
        std::fs::write(&path, text).map_err(|source| failed(&path, source))?;
    }
    let json = folder.path().join("rows.json");
    let mut command = Command::new(&setting.python);
    command.arg(folder.path().join(SCRIPTS[0].0)).args(["--times", &runs.to_string(), "--json"]);
    command.arg(&json).env("KUMI_BIN", cluster::program("kumi")?);
    print!("{}", cluster::output(&mut command)?);
    let text = std::fs::read_to_string(&json).map_err(|source| failed(&json, source))?;
    let rows: serde_json::Value =
        serde_json::from_str(&text).map_err(|error| failed(&json, std::io::Error::other(error)))?;
    let rows = rows.as_array().cloned().unwrap_or_default();
    rows.iter().map(|row| record(row).ok_or_else(|| unclear(row))).collect()
}

fn unclear(row: &serde_json::Value) -> BenchError {
    BenchError::Output {
        wanted: "a row of both ways".to_owned(),
        what: SCRIPTS[0].0.to_owned(),
        output: row.to_string(),
    }
}

fn record(row: &serde_json::Value) -> Option<Record> {
    let numbers = |field: &str| -> Option<Vec<f64>> {
        row[field].as_array()?.iter().map(serde_json::Value::as_f64).collect()
    };
    let (system, routine) = (row["system"].as_str()?, row["routine"].as_str()?);
    let (through, direct) = (numbers("through_ms")?, numbers("direct_ms")?);
    let n = row["n"].as_u64()?;
    // The share of an empty call means nothing, so its time is shown.
    let (size, goal) = match n {
        0 => (String::new(), Goal::None),
        n => (format!(", n = {n}"), GOAL),
    };
    let version = row["version"].as_str()?;
    let peer = format!("{system} {version} itself");
    let pairs = !through.is_empty() && through.len() == direct.len();
    pairs.then(|| {
        let figure = format!("{routine} on {system} through a server{size}");
        Record::new(&figure, "ms", &through, &Peer::Measured(&peer, &direct), goal)
    })
}
