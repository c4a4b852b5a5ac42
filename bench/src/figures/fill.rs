//! Gangs that fill: every mix of two and of three programs, with what the owners of turns leave idle given to the others, against
//! gangs that leave it idle, and against the operating systems' sharing. And the owner's part beside others.
//!
//! The throughput of a mix is the sum of what each program does, as a part of what it does alone.

use super::Setting;
use crate::cluster::{self, Cluster};
use crate::error::BenchError;
use crate::meter::{Meter, Window};
use crate::record::{Goal, Peer, Record};
use std::time::Duration;

/// A program.
struct Kind {
    name: &'static str,
    file: &'static str,
    args: &'static [&'static str],
}

/// Programs that only compute, that exchange much, that must run together, that leave a part of their time, and one that waits
/// for somebody who thinks.
const KINDS: [Kind; 7] = [
    Kind { name: "EP", file: "ep", args: &["--class", "S", "--repeat", "1000000"] },
    Kind { name: "CG", file: "cg", args: &["--class", "W", "--repeat", "1000000"] },
    Kind { name: "IS", file: "is", args: &["--class", "W", "--repeat", "1000000"] },
    Kind { name: "FT", file: "ft", args: &["--class", "S", "--repeat", "1000000"] },
    Kind { name: "lockstep", file: "lockstep", args: &["--seconds", "100000"] },
    Kind {
        name: "uneven",
        file: "lockstep",
        args: &["--seconds", "100000", "--compute-us", "500", "--imbalance", "60"],
    },
    Kind {
        name: "think",
        file: "lockstep",
        args: &["--seconds", "100000", "--compute-us", "20", "--think-ms", "20"],
    },
];

/// Time in which the daemons find out what each program leaves.
const SETTLE: Duration = Duration::from_secs(4);
const TOGETHER: Duration = Duration::from_millis(1_200);
const ALONE: Duration = Duration::from_millis(500);

/// The ways of sharing that are compared.
const SHARING: [&[&str]; 3] = [
    &["--policy", "dqt", "--fill", "on"],
    &["--policy", "dqt", "--fill", "off"],
    &["--policy", "os"],
];

pub(super) fn measure(setting: &Setting, runs: usize) -> Result<Vec<Record>, BenchError> {
    // Short ones, so that daemons find out soon and windows have many.
    let cluster = Cluster::up(2, &["--slice", "10ms"])?;
    let mut records = Vec::new();
    for mix in mixes(setting.quick) {
        let found = throughput(&cluster, &mix, runs)?;
        records.extend(found);
    }
    for owner in 0..KINDS.len() {
        let beside: Vec<usize> = (0..KINDS.len()).filter(|&other| other != owner).collect();
        // One that computes, and one that uses the caches, are the hardest to have beside oneself.
        for other in beside.into_iter().filter(|other| [0, 1].contains(other)) {
            records.push(part(&cluster, [owner, other], runs)?);
        }
    }
    Ok(records)
}

/// All mixes of two and three programs.
fn mixes(quick: bool) -> Vec<Vec<usize>> {
    let all = 0..KINDS.len();
    let mut mixes = Vec::new();
    for first in all.clone() {
        for second in first..KINDS.len() {
            // Two of a kind, too, as users run them.
            mixes.push(vec![first, second]);
            if !quick {
                mixes.extend(
                    (second + 1..KINDS.len())
                        .filter(|_| first < second)
                        .map(|third| vec![first, second, third]),
                );
            }
        }
    }
    mixes
}

fn start<'c>(
    cluster: &'c Cluster,
    name: &str,
    kind: &Kind,
    options: &[&str],
) -> Result<Meter<'c>, BenchError> {
    Meter::start(cluster, name, options, &cluster::program(kind.file)?, kind.args)
}

fn set(cluster: &Cluster, settings: &[&str]) -> Result<(), BenchError> {
    cluster.kumi(&[&["cluster", "set"], settings].concat()).map(drop)
}

/// The throughput of a mix.
fn throughput(cluster: &Cluster, mix: &[usize], runs: usize) -> Result<Vec<Record>, BenchError> {
    set(cluster, SHARING[0])?;
    let name = mix.iter().map(|&kind| KINDS[kind].name).collect::<Vec<_>>().join(" + ");
    let meters = mix.iter().enumerate().map(|(place, &kind)| {
        start(cluster, &format!("{}-{place}", KINDS[kind].name), &KINDS[kind], &[])
    });
    let meters = meters.collect::<Result<Vec<_>, _>>()?;
    let all: Vec<&Meter<'_>> = meters.iter().collect();
    std::thread::sleep(SETTLE);
    let mut windows = Vec::new();
    for _ in 0..runs {
        let mut shared = Vec::new();
        for settings in SHARING {
            set(cluster, settings)?;
            shared.push(Window::pass(TOGETHER));
        }
        windows.push((shared, Meter::each_alone(&all, ALONE)?));
    }
    Meter::catch_up();
    let mut totals = vec![Vec::new(); SHARING.len()];
    for (shared, alone) in &windows {
        for (total, &window) in totals.iter_mut().zip(shared) {
            let parts = all.iter().zip(alone).map(|(job, &alone)| {
                Ok(job.seconds_per_step(alone)? / job.seconds_per_step(window)?)
            });
            total.push(parts.sum::<Result<f64, BenchError>>()?);
        }
    }
    let figure = format!("{name}: work done together, gangs that fill");
    let goals = [("gangs that do not", 1.0), ("operating-system scheduling", 1.0)];
    let record = |(place, (peer, least)): (usize, (&str, f64))| {
        let peer = Peer::Measured(peer, &totals[place + 1]);
        Record::new(&figure, "of one alone", &totals[0], &peer, Goal::RatioAtLeast(least))
    };
    Ok(goals.into_iter().enumerate().map(record).collect())
}

/// What the owner of a turn has beside another that fills, of what it has alone in it. The owner does not fill itself.
fn part(cluster: &Cluster, [owner, other]: [usize; 2], runs: usize) -> Result<Record, BenchError> {
    set(cluster, SHARING[0])?;
    let (owner, other) = (&KINDS[owner], &KINDS[other]);
    let job = start(cluster, "owner", owner, &["--fill", "off"])?;
    let _other = start(cluster, "other", other, &[])?;
    std::thread::sleep(SETTLE);
    let mut windows = Vec::new();
    for _ in 0..runs {
        let pair = [1, 0, 1].map(|way| {
            set(cluster, SHARING[way])?;
            Ok::<Window, BenchError>(Window::pass(TOGETHER))
        });
        windows.push(pair);
    }
    Meter::catch_up();
    let (mut ours, mut peer) = (Vec::new(), Vec::new());
    for [before, filled, after] in windows {
        let speed = |window: Result<Window, BenchError>| {
            Ok::<f64, BenchError>(1.0 / job.seconds_per_step(window?)?)
        };
        peer.push(f64::midpoint(speed(before)?, speed(after)?));
        ours.push(speed(filled)?);
    }
    let figure = format!("{} in its turns beside {}", owner.name, other.name);
    let peer = Peer::Measured("alone in its turns", &peer);
    Ok(Record::new(&figure, "steps/s", &ours, &peer, Goal::RatioAtLeast(0.97)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_mixes_are_there_once() {
        let mixes = mixes(false);
        let count = |size: usize| mixes.iter().filter(|mix| mix.len() == size).count();
        assert_eq!((count(2), count(3)), (28, 35));
        assert!(mixes.iter().all(|mix| mix.is_sorted()));
    }
}
