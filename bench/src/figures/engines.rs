//! Round trip of a notebook's cell that does nothing on 8 ranks, compared with ipyparallel and `mpi4py.futures`.
//!
//! All are driven by one Python process, which lets them take turns.

use super::Setting;
use crate::cluster::{self, Cluster};
use crate::error::BenchError;
use crate::record::{Goal, Peer, Record};
use std::process::Command;

const SCRIPT: &str = include_str!("../../engines/measure.py");
const NAME: &str = "measure.py";

/// The peers, with the goals beside them.
const PEERS: [(&str, &str, Goal); 2] = [
    ("ipyparallel", "ipyparallel", Goal::RatioAtMost(0.1)),
    ("mpi4py", "mpi4py.futures", Goal::None),
];

pub(super) fn measure(setting: &Setting, runs: usize) -> Result<Vec<Record>, BenchError> {
    let folder = cluster::folder()?;
    let path = folder.path().join(NAME);
    std::fs::write(&path, SCRIPT)
        .map_err(|source| BenchError::File { path: path.clone(), source })?;
    let cluster = Cluster::up(2, &[])?;
    let mut command = Command::new(&setting.python);
    command.arg(&path).args(["--ranks", "8", "--rounds", &runs.to_string()]);
    cluster.show_to(&mut command);
    let text = cluster::output(&mut command)?;
    let last = text.lines().last().unwrap_or_default();
    let unclear =
        |wanted: String| BenchError::Output { wanted, what: NAME.to_owned(), output: text.clone() };
    let result: serde_json::Value =
        serde_json::from_str(last).map_err(|error| unclear(error.to_string()))?;
    let record = |(system, title, goal): (&str, &str, Goal)| {
        let peer = &result["peers"][system];
        let turns = |of: &str| -> Option<Vec<f64>> {
            let turns = peer[of]["turns_ms"].as_array()?;
            turns.iter().map(serde_json::Value::as_f64).collect()
        };
        let figure = "empty cell of a notebook on 8 ranks, p50";
        match (turns("kumi"), turns(system)) {
            (Some(ours), Some(theirs)) if ours.len() == theirs.len() => {
                let name = format!("{title} {}", peer["version"].as_str().unwrap_or_default());
                Record::new(figure, "ms", &ours, &Peer::Measured(&name, &theirs), goal)
            }
            _ => {
                let why = peer["absent"].as_str().unwrap_or("not measured");
                Record::unmeasured(figure, &format!("{title}: {why}"))
            }
        }
    };
    Ok(PEERS.map(record).to_vec())
}
