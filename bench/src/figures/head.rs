//! Load on the head of a large cluster: [`crate::head_load`].

use super::Setting;
use crate::error::BenchError;
use crate::head_load::{HeadLoad, HeadLoadOutcome};
use crate::record::{Goal, Peer, Record};

/// Policies that are measured.
const POLICIES: [&str; 6] = ["dqt", "matrix", "dhc", "easy", "conservative", "scan"];
/// Most of a processor that the head may take.
const GOAL: f64 = 0.5;

fn load(policy: &str, quick: bool) -> HeadLoad {
    let seconds = if quick { 1 } else { 5 };
    HeadLoad {
        policy: policy.into(),
        nodes: 1_000,
        processors: 8,
        jobs_per_processor: 4,
        queued: 10_000,
        running: 2_000,
        rate: 100,
        watchers: 5,
        seconds,
    }
}

pub(super) fn measure(setting: &Setting, runs: usize) -> Result<Vec<Record>, BenchError> {
    let mut records = Vec::new();
    for policy in POLICIES {
        let load = load(policy, setting.quick);
        let outcomes: Result<Vec<HeadLoadOutcome>, BenchError> =
            (0..runs).map(|_| load.run()).collect();
        let outcomes = outcomes?;
        if let Some(last) = outcomes.last() {
            print_costs(policy, last);
        }
        records.extend(figures(policy, &outcomes));
    }
    Ok(records)
}

fn figures(policy: &str, outcomes: &[HeadLoadOutcome]) -> [Record; 2] {
    let of = |value: fn(&HeadLoadOutcome) -> f64| outcomes.iter().map(value).collect::<Vec<f64>>();
    let what = format!("head, {policy}, 1,000 nodes, 10,000 jobs wait, 100 start and end a second");
    let (share, bytes) =
        (of(HeadLoadOutcome::share), of(|outcome| outcome.timetable_bytes() / 1e3));
    let time = format!("{what}: processor time in a second");
    let size = format!("{what}: timetables in a second");
    [
        Record::new(&time, "s", &share, &Peer::Nobody, Goal::OursAtMost(GOAL)),
        Record::new(&size, "kB", &bytes, &Peer::Nobody, Goal::None),
    ]
}

/// Where the time goes.
fn print_costs(policy: &str, outcome: &HeadLoadOutcome) {
    let [waiting, running] = outcome.left;
    let [starts, ends] = outcome.changes;
    println!("{policy}: {waiting} wait, {running} run, {starts} started and {ends} ended");
    for (kind, costs) in &outcome.costs {
        let milliseconds = costs.nanos as f64 / 1e6 / outcome.seconds;
        let longest = costs.longest as f64 / 1e6;
        println!(
            "  {kind:?}: {} events, {milliseconds:.1} ms in a second, longest {longest:.1} ms, \
             {} B of records, {} B sent, {} timetables of {} B",
            costs.events,
            costs.record_bytes,
            costs.sent_bytes,
            costs.timetables,
            costs.timetable_bytes
        );
    }
}
