//! Costs of the schedulers. Simulations run in processes of their own, events and timetables in this one.
//! EASY backfilling is compared with a simulator in Python on the same trace.

use super::Setting;
use crate::cluster;
use crate::error::BenchError;
use crate::record::{Goal, Peer, Record};
use kumi_sched::{
    ClusterTime, Dqt, DqtConfig, JobId, NodeId, NodeResources, Numbering, Policy, ProcessorId,
    Request,
};
use kumi_sim::generate::{Poisson, Service, Sizes, WorkloadMix};
use kumi_sim::{Job, SimError, Workload, swf};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const NOW: ClusterTime = ClusterTime(0);

/// The trace: processors, seconds and mean service of 10^5 jobs.
const TRACE: (u32, u64, f64) = (128, 31_536_000, 1560.0);
/// Its load.
const TRACE_LOAD: f64 = 0.7;
/// The adapter to the simulator in Python.
const EASY: &str = include_str!("../../peers/easy.py");

pub(super) fn measure(setting: &Setting, runs: usize) -> Result<Vec<Record>, BenchError> {
    let mut records = simulations(runs)?;
    records.push(events(runs));
    records.extend([1, 8, 64].map(|most| timetable(most, runs)));
    records.extend(trace(setting, runs)?);
    Ok(records)
}

/// One simulation's output, and the time of its process.
fn simulate(args: &[&str]) -> Result<(String, f64), BenchError> {
    let mut command = Command::new(cluster::program("kumi-bench-jobs")?);
    timed(command.args(args))
}

/// A command's output, and its time.
fn timed(command: &mut Command) -> Result<(String, f64), BenchError> {
    let begin = Instant::now();
    let output = cluster::output(command)?;
    Ok((output, begin.elapsed().as_secs_f64()))
}

fn simulations(runs: usize) -> Result<Vec<Record>, BenchError> {
    let alone = |figure: &str, unit, values: &[f64], most: f64| {
        Record::new(figure, unit, values, &Peer::Nobody, Goal::OursAtMost(most))
    };
    let small = ["--policy", "dqt", "--procs", "128", "--load", "0.8", "--units", "1000000"];
    let mut seconds = Vec::new();
    for _ in 0..runs {
        seconds.push(simulate(&small)?.1);
    }
    let large = ["--policy", "dqt", "--procs", "4096", "--load", "0.8", "--units", "104500000"];
    let (output, long) = simulate(&large)?;
    let number = |name| cluster::number(&output, name, "kumi-bench-jobs");
    let megabytes = number("peak_kilobytes")? / 1e3;
    let what = format!("dqt, 4,096 processors, {} jobs", number("jobs")?);
    Ok(vec![
        alone("dqt, 128 processors, 10^6 units at load 0.8", "s", &seconds, 1.0),
        alone(&what, "s", &[long], 60.0),
        alone(&format!("{what}, peak memory"), "MB", &[megabytes], 1000.0),
    ])
}

fn arrive(policy: &mut Dqt, job: u64, nodes: u32) {
    let arrived = policy.arrive(&Request::new(JobId(job), nodes), NOW);
    let placement = arrived.ok().and_then(|()| policy.next_placement(NOW));
    assert!(
        placement.is_some_and(|placement| placement.job == JobId(job)),
        "a queue tree takes all"
    );
    policy.set_active(JobId(job), true);
}

fn tree(nodes: u32) -> Dqt {
    let mut policy = Dqt::new(DqtConfig::default());
    (0..nodes).for_each(|node| policy.add_node(&NodeResources::single(ProcessorId(node))));
    policy
}

/// Nanoseconds of an arrival or an end, with four jobs of each size. Some slots pass now and then, and do not
/// count.
fn event(nodes: u32) -> f64 {
    const ROUNDS: u64 = 1000;
    let (mut policy, levels) = (tree(nodes), u64::from(nodes.ilog2()));
    let size = |job: u64| 1 << (job % levels);
    (0..4 * levels).for_each(|job| arrive(&mut policy, job, size(job)));
    let (mut time, mut events) = (Duration::ZERO, 0);
    for round in 0..ROUNDS {
        let jobs = round * levels..(round + 1) * levels;
        let begin = Instant::now();
        for job in jobs {
            policy.leave(JobId(job), NOW);
            arrive(&mut policy, job + 4 * levels, size(job));
            events += 2;
        }
        time += begin.elapsed();
        policy.advance(3);
    }
    time.as_nanos() as f64 / f64::from(events)
}

fn events(runs: usize) -> Record {
    let (mut large, mut small) = (Vec::new(), Vec::new());
    for _ in 0..runs {
        large.push(event(4096));
        small.push(event(64));
    }
    let peer = Peer::Measured("the same on 64, whose tree has half the height", &small);
    let goal = Goal::RatioAtMost(2.0);
    Record::new("dqt, an arrival or end on 4,096 processors", "ns", &large, &peer, goal)
}

/// A change with 64 nodes and 200 jobs of up to this many nodes: an end, an arrival, and the timetable.
fn timetable(most: u32, runs: usize) -> Record {
    let mut policy = tree(64);
    let numbering = Numbering::new(2, (0..64).map(|node| (NodeId(node), 1)));
    for job in 0..200 {
        arrive(&mut policy, job, 1 + (job as u32 * 7) % most);
        policy.advance(job % 3);
    }
    let mut microseconds = Vec::new();
    for job in 0..runs as u64 {
        let begin = Instant::now();
        policy.leave(JobId(job), NOW);
        arrive(&mut policy, job + 200, 1 + (job as u32 * 7) % most);
        let timetable = numbering.columns(&policy.columns());
        microseconds.push(begin.elapsed().as_nanos() as f64 / 1e3);
        drop(timetable);
        policy.advance(3);
    }
    let figure = format!("dqt, timetable of 64 nodes and 200 jobs of 1 to {most}");
    Record::new(&figure, "us", &microseconds, &Peer::Nobody, Goal::OursAtMost(1000.0))
}

/// 10^5 jobs within a year.
fn year() -> Result<Workload, SimError> {
    let (procs, arrivals, mean) = TRACE;
    let service = Service::Exponential { mean };
    let mix = WorkloadMix { procs, sizes: Sizes::Uniform, largest: None, service, seed: 1 };
    Poisson { mix, load: TRACE_LOAD, arrivals, units: None }.workload()
}

/// The jobs as a trace; estimates are two to six times the run time. With an exact estimate a job's end is
/// known in advance. Jobs that arrive at that very second then meet processors that are free in one simulator
/// and in use in the other.
fn as_trace(workload: &Workload) -> String {
    let loose = |job: &Job| Job { estimate: job.service * (2 + job.number * 7919 % 5), ..*job };
    let jobs: Vec<Job> = workload.jobs.iter().map(loose).collect();
    swf::text(&jobs, TRACE.0, "a year of synthetic jobs")
}

fn trace(setting: &Setting, runs: usize) -> Result<Vec<Record>, BenchError> {
    let folder = cluster::folder()?;
    let (path, script) = (folder.path().join("year.swf"), folder.path().join("easy.py"));
    let workload = year().map_err(BenchError::Sim)?;
    for (path, text) in [(&path, as_trace(&workload)), (&script, EASY.to_owned())] {
        let failed = |source| BenchError::File { path: path.clone(), source };
        std::fs::write(path, text).map_err(failed)?;
    }
    let (file, procs) = (path.display().to_string(), TRACE.0.to_string());
    let ours = || simulate(&["--policy", "easy", "--procs", &procs, "--swf", &file]);
    let what = format!("easy, a year of {} jobs on {procs} processors", workload.jobs.len());
    let Some(source) = &setting.simulator else {
        let mut seconds = Vec::new();
        for _ in 0..runs {
            seconds.push(ours()?.1);
        }
        let peer = Peer::Absent("no simulator in Python was given, --src DIR");
        return Ok(vec![Record::new(&what, "s", &seconds, &peer, Goal::RatioAtMost(0.05))]);
    };
    let theirs = |source: &Path| {
        let mut python = Command::new(&setting.python);
        timed(python.arg("-O").arg(&script).arg(source).args([&file, &procs]))
    };
    // The peer is slow, so both run once.
    let (one, two) = (ours()?, theirs(source)?);
    let name = "pyss in Python";
    let wait = |output: &str, what: &str| cluster::number(output, "mean_wait_s", what);
    let (our, their) = (wait(&one.0, "kumi-bench-jobs")?, wait(&two.0, name)?);
    let difference = format!("{what}, difference of the mean waits ({our:.3} and {their:.3} s)");
    Ok(vec![
        Record::new(&what, "s", &[one.1], &Peer::Measured(name, &[two.1]), Goal::RatioAtMost(0.05)),
        Record::new(
            &difference,
            "s",
            &[(our - their).abs()],
            &Peer::Nobody,
            Goal::OursAtMost(0.001),
        ),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_trace_is_a_year_of_a_hundred_thousand_jobs() {
        let workload = year().unwrap();
        assert!((99_000..101_000).contains(&workload.jobs.len()), "{}", workload.jobs.len());
        let text = as_trace(&workload);
        let read = kumi_sim::swf::parse("year", &text, true).unwrap();
        let same = |(one, two): (&kumi_sim::Job, &kumi_sim::Job)| {
            (one.submit, one.service, one.size) == (two.submit, two.service, two.size)
                && two.estimate >= two.service
        };
        assert_eq!(read.jobs.len(), workload.jobs.len());
        assert!(workload.jobs.iter().zip(&read.jobs).all(same));
    }
}
