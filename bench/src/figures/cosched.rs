//! Asynchronous coscheduling (SCore-D, chapter 5): the same programs, one to three copies at once, under gangs, gangs that fill, and
//! the operating systems' scheduling with every way of waiting.
//!
//! Two-phase waits spin for a fixed number of microseconds and then block; the number is swept over decades. The ways hold for waits
//! for messages and for waits for room to send alike. The throughput of copies is the sum of their speeds, as a part of the speed that
//! one has alone.

use super::Setting;
use super::chart::{self, Line};
use crate::cluster::{self, Cluster};
use crate::error::BenchError;
use crate::machine::Activity;
use crate::meter::{Meter, Window};
use crate::record::{Goal, Peer, Record, median};
use std::time::Duration;

/// A program: its name, file and arguments.
type Program = (&'static str, &'static str, &'static [&'static str]);

const KERNEL: [&str; 2] = ["--repeat", "1000000"];
const PROGRAMS: [Program; 5] = [
    ("EP.S", "ep", &["--class", "S"]),
    ("CG.W", "cg", &["--class", "W"]),
    ("FT.S", "ft", &["--class", "S"]),
    ("IS.W", "is", &["--class", "W"]),
    ("lockstep", "lockstep", &["--seconds", "100000"]),
];

/// Microseconds of spinning before a wait blocks.
const DECADES: [&str; 5] = ["1", "10", "100", "1000", "10000"];

/// Who shares the processors, and how ranks wait.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Way {
    name: &'static str,
    /// Settings of `kumi cluster set`.
    sharing: &'static [&'static str],
    /// Value of `KUMI_SPIN`.
    spin: &'static str,
}

const GANG: &[&str] = &["--policy", "dqt", "--fill", "off"];
const FILLED: &[&str] = &["--policy", "dqt", "--fill", "on"];
const PLAIN: &[&str] = &["--policy", "os"];

/// All ways, those with fixed numbers of microseconds in the order of [`DECADES`].
fn ways() -> Vec<Way> {
    let fixed = |&spin: &&'static str| Way { name: "two-phase fixed", sharing: PLAIN, spin };
    let mut ways = vec![
        Way { name: "gang", sharing: GANG, spin: "adaptive" },
        Way { name: "gang that fills", sharing: FILLED, spin: "adaptive" },
        Way { name: "spinning", sharing: PLAIN, spin: "infinite" },
        Way { name: "two-phase adaptive", sharing: PLAIN, spin: "adaptive" },
    ];
    ways.extend(DECADES.iter().map(fixed));
    ways
}

/// Time for the daemons to find out what programs leave.
const SETTLE: Duration = Duration::from_secs(2);
const TOGETHER: Duration = Duration::from_millis(800);
const ALONE: Duration = Duration::from_millis(400);

/// What a mix came to, by run.
#[derive(Debug, Default)]
struct Found {
    /// Of what one has alone.
    throughput: Vec<f64>,
    switches: Vec<f64>,
    busy: Vec<f64>,
}

pub(super) fn measure(setting: &Setting, runs: usize) -> Result<Vec<Record>, BenchError> {
    let cluster = Cluster::up(2, &["--slice", "10ms"])?;
    let most = if setting.quick { 2 } else { 3 };
    let mut records = Vec::new();
    for program in &PROGRAMS {
        for copies in 1..=most {
            let mut swept = Vec::new();
            for way in ways() {
                let found = together(&cluster, program, copies, way, runs)?;
                if way.name == "two-phase fixed" {
                    swept.push((way.spin, median(&found.throughput)));
                }
                records.extend(table(program.0, copies, way, &found));
            }
            plot(setting, program.0, copies, &swept, &records)?;
        }
    }
    Ok(records)
}

/// The name of a figure.
fn figure(program: &str, copies: usize, way: Way) -> String {
    let spin =
        if way.name == "two-phase fixed" { format!(" {} us", way.spin) } else { String::new() };
    format!("{program} x {copies}, {}{spin}", way.name)
}

fn table(program: &str, copies: usize, way: Way, found: &Found) -> Vec<Record> {
    let figure = figure(program, copies, way);
    let ideal = vec![1.0; found.throughput.len()];
    let ideal = Peer::Measured("exactly equal shares", &ideal);
    let other = |what: &str, unit, values: &[f64]| {
        Record::new(&format!("{figure}: {what}"), unit, values, &Peer::Nobody, Goal::None)
    };
    vec![
        Record::new(&figure, "of one alone", &found.throughput, &ideal, Goal::None),
        other("context switches", "/s", &found.switches),
        other("processors in use", "of 1", &found.busy),
    ]
}

/// Copies of a program share the processors in a way; what they do is compared with what each does alone right after.
fn together(
    cluster: &Cluster,
    &(name, file, args): &Program,
    copies: usize,
    way: Way,
    runs: usize,
) -> Result<Found, BenchError> {
    let spin = format!("KUMI_SPIN={}", way.spin);
    let program = cluster::program(file)?;
    let args = if file == "lockstep" { args.to_vec() } else { [args, &KERNEL].concat() };
    let set = |sharing: &[&str]| cluster.kumi(&[&["cluster", "set"], sharing].concat()).map(drop);
    set(way.sharing)?;
    let start = |options: &[&str], at: usize| {
        Meter::start(cluster, &format!("{name}-{at}"), options, &program, &args)
    };
    let meters =
        (0..copies).map(|at| start(&["--env", &spin], at)).collect::<Result<Vec<_>, _>>()?;
    std::thread::sleep(SETTLE);
    let all: Vec<&Meter<'_>> = meters.iter().collect();
    let mut windows = Vec::new();
    let mut found = Found::default();
    for _ in 0..runs {
        set(way.sharing)?;
        let before = Activity::now()?;
        let shared = Window::pass(TOGETHER);
        let passed = before.until(&Activity::now()?);
        found.switches.push(passed.switches_per_second);
        found.busy.push(passed.busy);
        set(PLAIN)?;
        windows.push((shared, Meter::each_alone(&all, ALONE)?));
    }
    Meter::catch_up();
    for (shared, alone) in windows {
        let parts = all
            .iter()
            .zip(alone)
            .map(|(job, alone)| Ok(job.seconds_per_step(alone)? / job.seconds_per_step(shared)?));
        found.throughput.push(parts.sum::<Result<f64, BenchError>>()?);
    }
    Ok(found)
}

/// Throughput by microseconds of spinning, with the other ways as level lines.
fn plot(
    setting: &Setting,
    program: &str,
    copies: usize,
    swept: &[(&str, f64)],
    records: &[Record],
) -> Result<(), BenchError> {
    let at = |spin: &str| spin.parse::<f64>().unwrap_or(1.0);
    let fixed = swept.iter().map(|&(spin, throughput)| (at(spin), throughput)).collect();
    let mut lines = vec![Line { name: "two-phase fixed", points: fixed }];
    for way in ways().into_iter().filter(|way| way.name != "two-phase fixed").take(3) {
        let figure = figure(program, copies, way);
        if let Some(record) = records.iter().find(|record| record.figure == figure) {
            let points = DECADES.iter().map(|spin| (at(spin), record.ours)).collect();
            lines.push(Line { name: way.name, points });
        }
    }
    let title = format!("{program} x {copies}: throughput by microseconds of spinning");
    let file = format!("cosched-{}-{copies}.svg", program.replace('.', "-"));
    chart::write(&setting.out, &file, &title, &lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_has_a_name_of_its_own() {
        let mut names: Vec<String> = ways().into_iter().map(|way| figure("EP.S", 2, way)).collect();
        let count = names.len();
        assert_eq!(count, 4 + DECADES.len());
        assert!(names.contains(&"EP.S x 2, two-phase fixed 100 us".to_owned()), "{names:?}");
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
