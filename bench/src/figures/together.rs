//! Two and three programs at once: each against its completion time under exactly equal shares.
//!
//! The demonstration measures this; here it is repeated and the medians are taken.

use super::Setting;
use crate::cluster;
use crate::error::BenchError;
use crate::record::{Goal, Peer, Record};
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::Command;

/// About how long each program runs alone, in seconds.
const SECONDS: &str = "3";

/// Times of one program over the runs.
#[derive(Default)]
struct Times {
    gang: Vec<f64>,
    os: Vec<f64>,
    ideal: Vec<f64>,
}

pub(super) fn measure(_: &Setting, runs: usize) -> Result<Vec<Record>, BenchError> {
    let mut records = Vec::new();
    for programs in ["CG,IS", "EP,CG,IS"] {
        let mut times: BTreeMap<String, Times> = BTreeMap::new();
        for _ in 0..runs {
            demonstrate(programs, &mut times)?;
        }
        let jobs = programs.split(',').count();
        for (name, Times { gang, os, ideal }) in &times {
            let equal = Peer::Measured("exactly equal shares", ideal);
            let figure = format!("{name} of {jobs} jobs together, gang");
            records.push(Record::new(&figure, "s", gang, &equal, Goal::RatioAtMost(1.03)));
            let figure = format!("{name} of {jobs} jobs together, operating system");
            records.push(Record::new(&figure, "s", os, &equal, Goal::None));
        }
    }
    Ok(records)
}

fn demonstrate(programs: &str, times: &mut BTreeMap<String, Times>) -> Result<(), BenchError> {
    let file = tempfile::NamedTempFile::new()
        .map_err(|source| BenchError::File { path: std::env::temp_dir(), source })?;
    let mut command = Command::new(cluster::program("kumi")?);
    command.args(["demo", "--nodes", "2", "--programs", programs, "--seconds", SECONDS, "--json"]);
    let output = cluster::output(command.arg(file.path()))?;
    let wrong = || BenchError::Output {
        wanted: "programs[]".to_owned(),
        what: "kumi demo".to_owned(),
        output: output.clone(),
    };
    let text = std::fs::read_to_string(file.path())
        .map_err(|source| BenchError::File { path: file.path().to_owned(), source })?;
    let json: Value = serde_json::from_str(&text).map_err(|_| wrong())?;
    for program in json["programs"].as_array().ok_or_else(wrong)? {
        let number = |field: &str| program[field].as_f64().ok_or_else(wrong);
        let words = [&program["name"], &program["class"]].map(|word| word.as_str().unwrap_or("?"));
        let times = times.entry(words.join(".")).or_default();
        times.gang.push(number("together_gang_s")?);
        times.os.push(number("together_os_s")?);
        times.ideal.push(number("together_gang_s")? / number("ratio_gang")?);
    }
    Ok(())
}
