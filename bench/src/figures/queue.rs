//! A queue of many short jobs on 64 daemons of this machine: how fast the cluster works it off, what its head takes, and how soon
//! the head answers meanwhile.
//!
//! All daemons share this machine's processors with the jobs, so the rate is that of one machine. The head's own share says what
//! a head with a processor for itself would bear.

use super::Setting;
use crate::cluster::{Cluster, Daemon};
use crate::error::BenchError;
use crate::record::{Goal, Peer, Record};
use std::process::Child;
use std::time::{Duration, Instant};

const NODES: u32 = 64;
/// Most of a processor that the head may take.
const SHARE: f64 = 0.5;
/// Between two questions to the head.
const PAUSE: Duration = Duration::from_millis(250);
/// An idle cluster is watched for so long.
const IDLE: Duration = Duration::from_secs(5);

/// What one run has found.
struct Outcome {
    /// From the submission to the end of the last job, in seconds.
    seconds: f64,
    /// Part of a processor that the head took meanwhile.
    head: f64,
    /// Of `kumi ps`, from its start to its end, in milliseconds: the median and the longest.
    answers: [f64; 2],
}

pub(super) fn measure(setting: &Setting, runs: usize) -> Result<Vec<Record>, BenchError> {
    let jobs = if setting.quick { 200 } else { 1_000 };
    let cluster = Cluster::up(NODES, &[])?;
    let idle = cluster.share_of_all(IDLE)?;
    let outcomes: Result<Vec<Outcome>, BenchError> =
        (0..runs).map(|_| work_off(&cluster, jobs)).collect();
    let outcomes = outcomes?;
    let of = |value: fn(&Outcome) -> f64| outcomes.iter().map(value).collect::<Vec<f64>>();
    let rates: Vec<f64> =
        outcomes.iter().map(|outcome| f64::from(jobs) / outcome.seconds).collect();
    let what = format!("{jobs} jobs of 2 ranks wait on {NODES} nodes");
    let none = Peer::Nobody;
    let record = |name: &str, unit, values: &[f64], goal| {
        Record::new(&format!("{what}: {name}"), unit, values, &none, goal)
    };
    Ok(vec![
        record("jobs a second", "a second", &rates, Goal::None),
        record("the head", "of a core", &of(|outcome| outcome.head), Goal::OursAtMost(SHARE)),
        record("kumi ps, median", "ms", &of(|outcome| outcome.answers[0]), Goal::None),
        record("kumi ps, longest", "ms", &of(|outcome| outcome.answers[1]), Goal::None),
        Record::new(
            &format!("{NODES} daemons and a head without jobs"),
            "% of a core",
            &[idle * 100.0],
            &none,
            Goal::None,
        ),
    ])
}

/// Submits all jobs at once and waits until each has succeeded.
fn work_off(cluster: &Cluster, jobs: u32) -> Result<Outcome, BenchError> {
    let (before, begin) = (cluster.processor_time(Daemon::Head)?, Instant::now());
    let array = format!("1-{jobs}");
    let numbers =
        cluster.kumi(&["submit", "--array", &array, "-n", "2", "--nodes", "2", "true"])?;
    let wait = ["wait", numbers.trim()];
    let mut waiting = cluster.command(&wait);
    let mut waiting = waiting
        .spawn()
        .map_err(|source| BenchError::Start { what: "kumi wait".to_owned(), source })?;
    let asked = ask_until_over(cluster, &mut waiting);
    if asked.is_err() {
        // The error counts; a process that has ended already is no other one.
        let _ = waiting.kill().and_then(|()| waiting.wait());
    }
    let (mut answers, status) = asked?;
    if !status.success() {
        let said = "a job failed; it is shown above".to_owned();
        return Err(BenchError::Failed { what: wait.join(" "), status, said });
    }
    let used = cluster.processor_time(Daemon::Head)?.saturating_sub(before);
    answers.sort_by(f64::total_cmp);
    let [middle, last] = [answers.len() / 2, answers.len().saturating_sub(1)];
    let answer = |at| answers.get(at).copied().unwrap_or(0.0);
    let answers = [answer(middle), answer(last)];
    let seconds = begin.elapsed().as_secs_f64();
    Ok(Outcome { seconds, head: used as f64 / 1e9 / seconds, answers })
}

/// Asks the head for its jobs until the command has ended; returns how many milliseconds each answer took.
fn ask_until_over(
    cluster: &Cluster,
    waiting: &mut Child,
) -> Result<(Vec<f64>, std::process::ExitStatus), BenchError> {
    let failed = |source| BenchError::Start { what: "kumi wait".to_owned(), source };
    let mut answers = Vec::new();
    loop {
        if let Some(status) = waiting.try_wait().map_err(failed)? {
            return Ok((answers, status));
        }
        let begin = Instant::now();
        cluster.kumi(&["ps"])?;
        answers.push(begin.elapsed().as_secs_f64() * 1e3);
        std::thread::sleep(PAUSE);
    }
}
