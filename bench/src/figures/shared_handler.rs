//! Programs over shared memory by the scheduling of the handler thread, which answers page requests while a rank computes
//! (Nakada et al., §4, figures 2 to 4).

use super::Setting;
use super::shared_jobs::{self, Job};
use crate::cluster::Cluster;
use crate::error::BenchError;
use crate::record::{Goal, Peer, Record};

/// Policy of both threads and the handler's priority. The first is a job's default.
const SETTINGS: [&str; 8] =
    ["", "other:high", "fifo:low", "fifo:even", "fifo:high", "rr:low", "rr:even", "rr:high"];
const NAMES: [&str; 3] = ["lu", "mm", "bitonic"];

pub(super) fn measure(setting: &Setting, runs: usize) -> Result<Vec<Record>, BenchError> {
    let cluster = Cluster::up(2, &[])?;
    let mut records = Vec::new();
    for name in NAMES {
        let program = shared_jobs::of_name(name);
        let mut columns = vec![Vec::new(); SETTINGS.len()];
        for _ in 0..runs {
            for (handler, column) in SETTINGS.iter().zip(&mut columns) {
                let variable = format!("KUMI_HANDLER={handler}");
                let run = ["--env", &variable];
                let job = Job { run: &run, ..Job::shared(&cluster, setting, program) };
                column.push(job.seconds()?);
            }
        }
        records.extend(of_columns(&format!("{name} {}", program.size(setting)), &columns));
    }
    Ok(records)
}

fn of_columns(name: &str, columns: &[Vec<f64>]) -> Vec<Record> {
    let mut records = Vec::new();
    let default = Peer::Measured("without a setting", &columns[0]);
    for (handler, seconds) in SETTINGS.iter().zip(columns).skip(1) {
        let figure = format!("{name}, {handler}");
        records.push(Record::new(&figure, "s", seconds, &default, Goal::None));
    }
    for policy in ["fifo", "rr"] {
        let of = |priority: &str| {
            let name = format!("{policy}:{priority}");
            let at = SETTINGS.iter().position(|setting| *setting == name);
            at.map_or(&columns[0], |at| &columns[at])
        };
        let below = Peer::Measured("handler below", of("low"));
        let figure = format!("{name}, {policy}, handler above");
        records.push(Record::new(&figure, "s", of("high"), &below, Goal::RatioAtMost(1.0)));
    }
    records
}
