//! Programs over shared memory: beside the same by one process, by puts and gets, and by threads; with homes that fit and
//! with homes that do not; traced.

use super::Setting;
use super::shared_jobs::{self, Job, PROGRAMS};
use super::turns::{self, Measure, PeerComparison};
use crate::cluster::Cluster;
use crate::error::BenchError;
use crate::record::{Goal, Record};

/// What SOR may lose by homes that nobody has thought about.
const CARELESS: f64 = 1.3;
/// Time of threads that ranks of one node may take: 0.9 of their speed.
const THREADS: f64 = 1.11;

pub(super) fn measure(setting: &Setting, runs: usize) -> Result<Vec<Record>, BenchError> {
    let mut records = Vec::new();
    {
        let cluster = Cluster::up(2, &["--mtu", "9000"])?;
        records.extend(versions(setting, &cluster, runs)?);
        records.extend(homes(setting, &cluster, runs)?);
        records.extend(traced(setting, &cluster, runs)?);
    }
    records.extend(threads(setting, runs)?);
    Ok(records)
}

fn versions(setting: &Setting, cluster: &Cluster, runs: usize) -> Result<Vec<Record>, BenchError> {
    let mut records = Vec::new();
    let cpu = cluster.nodes[0].cpu(0);
    for program in &PROGRAMS {
        let job = |version| Job { version, ..Job::shared(cluster, setting, program) };
        let ours: Measure<'_> = Box::new(move || job("dsm").seconds());
        let cpu = &cpu;
        let mut against = vec![PeerComparison {
            name: Ok("one process, memory of its own".to_owned()),
            goal: Goal::None,
            measure: Box::new(move || program.sequential(setting, cpu)),
        }];
        if program.putget {
            against.push(PeerComparison {
                name: Ok("two ranks, puts and gets".to_owned()),
                goal: Goal::None,
                measure: Box::new(move || job("putget").seconds()),
            });
        }
        let figure = format!("{} {}, 2 nodes", program.name, program.size(setting));
        records.extend(turns::measure(&figure, "s", runs, ours, against)?);
    }
    Ok(records)
}

fn homes(setting: &Setting, cluster: &Cluster, runs: usize) -> Result<Vec<Record>, BenchError> {
    let program = shared_jobs::of_name("sor");
    let job =
        |more: &'static [&'static str]| Job { more, ..Job::shared(cluster, setting, program) };
    let ours: Measure<'_> = Box::new(move || job(&["--homes=careless"]).seconds());
    let against = vec![PeerComparison {
        name: Ok("homes where the rows are written".to_owned()),
        goal: Goal::RatioAtMost(CARELESS),
        measure: Box::new(move || job(&[]).seconds()),
    }];
    let figure = format!("sor {}, 2 nodes, all homes at rank 0", program.size(setting));
    turns::measure(&figure, "s", runs, ours, against)
}

fn traced(setting: &Setting, cluster: &Cluster, runs: usize) -> Result<Vec<Record>, BenchError> {
    let mut records = Vec::new();
    for name in ["sor", "lu"] {
        let program = shared_jobs::of_name(name);
        let job =
            |run: &'static [&'static str]| Job { run, ..Job::shared(cluster, setting, program) };
        let ours: Measure<'_> = Box::new(move || job(&["--trace"]).seconds());
        let against = vec![PeerComparison {
            name: Ok("the same without a trace".to_owned()),
            goal: Goal::RatioAtMost(1.03),
            measure: Box::new(move || job(&[]).seconds()),
        }];
        let figure = format!("{name} {}, 2 nodes, traced", program.size(setting));
        records.extend(turns::measure(&figure, "s", runs, ours, against)?);
    }
    Ok(records)
}

/// Ranks of one node, beside threads of one process.
fn threads(setting: &Setting, runs: usize) -> Result<Vec<Record>, BenchError> {
    let cluster = Cluster::up(1, &[])?;
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let mut records = Vec::new();
    for (name, steps) in [("mm", ["0", "0"]), ("sor", ["40", "100"])] {
        let program = shared_jobs::of_name(name);
        let job = Job { ranks: cpus, ..Job::shared(&cluster, setting, program) };
        let ours: Measure<'_> = Box::new(move || job.seconds());
        let steps = steps[usize::from(setting.scaled)];
        let against = vec![PeerComparison {
            name: setting.peers.openmp_name(),
            goal: Goal::RatioAtMost(THREADS),
            measure: Box::new(move || {
                setting.peers.openmp(name, program.size(setting), steps, cpus)
            }),
        }];
        let figure = format!("{name} {}, {cpus} ranks of one node", program.size(setting));
        records.extend(turns::measure(&figure, "s", runs, ours, against)?);
    }
    Ok(records)
}
