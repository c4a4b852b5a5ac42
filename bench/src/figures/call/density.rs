//! Very uneven work of unknown size, as in the density of states of a large molecule: 256 frequencies in some
//! calls, on eight servers of one slot. Each server sleeps as long as the work would take, because this
//! machine may have fewer processors. The same work is measured and simulated. The ideal is an eighth of the time that
//! all parts would take on one server, one after the other, by the measured time of one of them alone.

use super::crowd::{SLEEP_SECONDS, until};
use super::draw::{COLOURS, HEIGHT, MARGIN, WIDTH, circle, label, page, path, save};
use super::process::{self, Process};
use super::{ArrayTransport, Server, cluster};
use crate::error::BenchError;
use crate::figures::Setting;
use crate::record::{self, Goal, Peer, Record};
use kumi_call_client::{Client, Grid, GridCall};
use kumi_sim::Monitor;
use kumi_sim::calls::figures::frequencies;
use kumi_sim::calls::{self, Clients, Discipline, Law, Model, Routine, Site, Source, Task};
use std::time::Instant;

const SERVERS: usize = 8;
/// Seconds of all work on one server.
const WORK_S: f64 = 24.0;
/// Numbers of calls into which the work is divided.
const SPLITS: [usize; 4] = [32, 64, 128, 256];
/// Number of calls for the run in which idle servers take the next one.
const CYCLIC: usize = 32;
/// How many times an eighth of the work the best division may take. Whoever gives out 256 frequencies without knowing
/// their work needs 1.055 times it in the median of random lists, at no cost.
const IDEAL: f64 = 1.08;
/// Empty calls whose mean is the cost of a call.
const EMPTY: usize = 200;

/// Seconds of each call. Neighbouring frequencies go to different calls, because expensive ones lie together.
fn split(work: &[f64], splits: usize) -> Vec<f64> {
    (0..splits).map(|first| work.iter().skip(first).step_by(splits).sum()).collect()
}

/// Eight servers behind a metaserver.
struct ServerGroup {
    grid: Grid,
    servers: Vec<Client>,
    _processes: (Process, Vec<Server>, tempfile::TempDir),
}

impl ServerGroup {
    fn new() -> Result<Self, BenchError> {
        let folder = cluster::folder()?;
        let meta = Process::metaserver(&["--policy", "least-load"])?;
        let args =
            process::routines(folder.path(), "sleep_seconds", SLEEP_SECONDS.0, SLEEP_SECONDS.1)?;
        let server = |_| Server::with(1, &["--meta", &meta.address], &args);
        let processes = (0..SERVERS).map(server).collect::<Result<Vec<Server>, _>>()?;
        let grid = Grid::connect(&meta.address, &ArrayTransport::Tcp.options())?;
        until(&grid, "eight servers", |state| state.servers.len() == SERVERS)?;
        let servers =
            processes.iter().map(|it| it.connect(ArrayTransport::Tcp)).collect::<Result<_, _>>()?;
        let field = Self { grid, servers, _processes: (meta, processes, folder) };
        // From then on every slot has its process.
        field.cyclic(&[0.0; SERVERS])?;
        field.dynamic(&[0.0; SERVERS])?;
        Ok(field)
    }

    /// Seconds until all calls are over, if the metaserver gives each to an idle server.
    fn dynamic(&self, work: &[f64]) -> Result<f64, BenchError> {
        let begin = Instant::now();
        let call =
            |&seconds: &f64| self.grid.call_async("sleep_seconds", vec![seconds.into()], None);
        let mut calls = work.iter().map(call).collect::<Result<Vec<GridCall>, _>>()?;
        for call in &mut calls {
            call.wait(&|| false)?;
        }
        Ok(begin.elapsed().as_secs_f64())
    }

    /// The same if call k goes to server k modulo 8, which takes its calls in turn.
    fn cyclic(&self, work: &[f64]) -> Result<f64, BenchError> {
        let begin = Instant::now();
        let place = |(number, &seconds): (usize, &f64)| {
            self.servers[number % SERVERS].call_async("sleep_seconds", vec![seconds.into()], None)
        };
        let mut calls = work.iter().enumerate().map(place).collect::<Result<Vec<_>, _>>()?;
        for call in &mut calls {
            call.wait(&|| false)?;
        }
        Ok(begin.elapsed().as_secs_f64())
    }

    /// Seconds of a call with this work that is alone, on one server.
    fn alone(&self, seconds: f64) -> Result<f64, BenchError> {
        let begin = Instant::now();
        self.servers[0].call("sleep_seconds", vec![seconds.into()])?;
        Ok(begin.elapsed().as_secs_f64())
    }

    /// Seconds that a call costs in addition to its work, one after the other through the metaserver.
    fn cost(&self) -> Result<f64, BenchError> {
        let begin = Instant::now();
        for _ in 0..EMPTY {
            self.grid.call("sleep_seconds", vec![0.0.into()])?;
        }
        Ok(begin.elapsed().as_secs_f64() / EMPTY as f64)
    }
}

/// Simulated seconds until all calls are over.
fn simulated(work: &[f64], cost_s: f64, cyclic: bool) -> Result<f64, BenchError> {
    let task = |(number, &work): (usize, &f64)| Task {
        at_s: 0.0,
        work,
        server: cyclic.then_some(number % SERVERS),
    };
    let server = |number: usize| calls::Server {
        name: format!("server{number}"),
        processors: 1,
        speed: 1.0,
        discipline: Discipline::Fcfs,
        limit: (!cyclic).then_some(1),
        overhead_s: cost_s,
        routines: Vec::new(),
    };
    let name = "sleep_seconds".to_owned();
    let (bytes_out, bytes_back, operations, law) = (0, 0, 1.0, Law::Constant);
    let model = Model {
        sites: vec![Site { name: "here".to_owned(), links: Vec::new() }],
        servers: (0..SERVERS).map(server).collect(),
        routines: vec![Routine { name: name.clone(), bytes_out, bytes_back, operations, law }],
        clients: vec![Clients {
            site: "here".to_owned(),
            count: 1,
            user: 0,
            routines: vec![name],
            source: Source::List(work.iter().enumerate().map(task).collect()),
        }],
        policy: "least-load".to_owned(),
        metaserver_s: 0.0,
        most_waiting: None,
    };
    let options = calls::Options { time_s: None, warm_up_s: 0.0, replications: 1, seed: 1 };
    Ok(calls::run(&model, &options, &Monitor::default())?.end_s.mean)
}

/// Time of each run: first in turn, then by number of calls.
#[derive(Default)]
struct MeasuredTimes {
    /// An eighth of what all work takes on one server, by the time of one part alone.
    eighth: Vec<f64>,
    /// One frequency at a time to idle servers, at no cost, simulated: the best possible without knowledge of the work.
    uninformed: Vec<f64>,
    measured: Vec<Vec<f64>>,
    simulated: Vec<Vec<f64>>,
}

pub(in crate::figures) fn measure(
    setting: &Setting,
    runs: usize,
) -> Result<Vec<Record>, BenchError> {
    let field = ServerGroup::new()?;
    let rows = 1 + SPLITS.len();
    let mut columns = MeasuredTimes {
        eighth: Vec::new(),
        uninformed: Vec::new(),
        measured: vec![Vec::new(); rows],
        simulated: vec![Vec::new(); rows],
    };
    println!(
        "256 frequencies of {WORK_S} s in all on {SERVERS} servers; sleeps stand for processors"
    );
    let [one, two, three, four] = ["measured", "an eighth", "ratio", "simulated"];
    println!("{:<22} {one:>10} {two:>10} {three:>7} {four:>10}", "seconds");
    for seed in 1..=runs as u64 {
        let (work, cost_s) = (frequencies(seed, WORK_S), field.cost()?);
        columns.uninformed.push(simulated(&work, 0.0, false)?);
        let part = split(&work, CYCLIC)[0];
        let eighth = field.alone(part)? / part * WORK_S / SERVERS as f64;
        columns.eighth.push(eighth);
        println!("load {seed}; a call costs {:.3} ms besides its work", 1e3 * cost_s);
        for row in 0..rows {
            let cyclic = row == 0;
            let work = split(&work, if cyclic { CYCLIC } else { SPLITS[row - 1] });
            let seconds = if cyclic { field.cyclic(&work)? } else { field.dynamic(&work)? };
            let expected = simulated(&work, cost_s, cyclic)?;
            let ratio = seconds / eighth;
            println!(
                "{:<22} {seconds:>10.3} {eighth:>10.3} {ratio:>7.3} {expected:>10.3}",
                name(row)
            );
            columns.measured[row].push(seconds);
            columns.simulated[row].push(expected);
        }
    }
    save(&setting.out, "call-density.svg", &svg(&columns))?;
    Ok(records(&columns))
}

/// Seconds by number of calls, as in the paper's table 3. Circles are measured, lines simulated. Level lines:
/// calls in turn, single frequencies at no cost, and an eighth of the work.
fn svg(columns: &MeasuredTimes) -> String {
    let medians = |rows: &[Vec<f64>]| rows.iter().map(|row| record::median(row)).collect();
    let (measured, simulated): (Vec<f64>, Vec<f64>) =
        (medians(&columns.measured), medians(&columns.simulated));
    let least = record::median(&columns.eighth);
    let most = measured.iter().copied().fold(0.0, f64::max);
    let (low, high) = (0.95 * least, 1.05 * most);
    let x =
        |row: usize| MARGIN + (row - 1) as f64 / (SPLITS.len() - 1) as f64 * (WIDTH - 2.0 * MARGIN);
    let y = |time: f64| HEIGHT - MARGIN - (time - low) / (high - low) * (HEIGHT - 2.0 * MARGIN);
    let rows = 1..measured.len();
    let mut parts = Vec::new();
    let levels = [
        (measured[0], COLOURS[1], format!("{CYCLIC} calls in turn")),
        (
            record::median(&columns.uninformed),
            COLOURS[2],
            "a frequency at a time at no cost".to_owned(),
        ),
        (least, "#888888", "an eighth of the work".to_owned()),
    ];
    for (time, colour, text) in levels {
        parts.push(path(colour, &[(x(1), y(time)), (x(SPLITS.len()), y(time))]));
        parts.push(label(WIDTH / 2.0, y(time) - 5.0, colour, &format!("{text}: {time:.3} s")));
    }
    parts.push(path(
        COLOURS[0],
        &rows.clone().map(|row| (x(row), y(simulated[row]))).collect::<Vec<_>>(),
    ));
    for row in rows {
        parts.push(circle(COLOURS[0], (x(row), y(measured[row]))));
        parts.push(label(
            x(row),
            y(measured[row]) + 18.0,
            COLOURS[0],
            &format!("{:.3} s", measured[row]),
        ));
        parts.push(label(x(row), HEIGHT - MARGIN + 18.0, "black", &SPLITS[row - 1].to_string()));
    }
    let title = "seconds against calls that whoever is free takes; points measured, line simulated";
    parts.push(label(WIDTH / 2.0, 24.0, "black", title));
    page(&parts)
}

fn name(row: usize) -> String {
    match row {
        0 => format!("in turn, {CYCLIC} calls"),
        _ => format!("whoever is free, {}", SPLITS[row - 1]),
    }
}

fn records(columns: &MeasuredTimes) -> Vec<Record> {
    let MeasuredTimes { eighth, uninformed, measured, simulated } = columns;
    let simulation = |row: usize| Peer::Measured("simulation", &simulated[row]);
    let mut records = Vec::new();
    for (row, values) in measured.iter().enumerate() {
        let figure = format!("density of states, {}", name(row));
        records.push(Record::new(&figure, "s", values, &simulation(row), Goal::None));
    }
    let best = (1..measured.len())
        .min_by(|&a, &b| record::median(&measured[a]).total_cmp(&record::median(&measured[b])));
    let best = best.unwrap_or(1);
    let ideals = [
        ("an eighth of the work, by one part alone", eighth, Goal::RatioAtMost(IDEAL)),
        ("a frequency at a time at no cost, simulated", uninformed, Goal::None),
    ];
    for (peer, values, goal) in ideals {
        let figure = format!("density of states, best ({} calls)", SPLITS[best - 1]);
        let peer = Peer::Measured(peer, values);
        records.push(Record::new(&figure, "s", &measured[best], &peer, goal));
    }
    for (row, values) in measured.iter().enumerate().skip(1) {
        records.push(Record::new(
            &format!("density of states, {}", name(row)),
            "s",
            values,
            &Peer::Measured("32 calls in turn", &measured[0]),
            Goal::RatioAtMost(1.0),
        ));
    }
    records
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The record with a goal, if the best division takes so many times an eighth of the work.
    fn judged(times: f64) -> Option<bool> {
        let rows = 1 + SPLITS.len();
        let mut measured = vec![vec![4.0; 2]; rows];
        measured[rows - 1] = vec![3.0 * times; 2];
        // The simulation says the same as the measurement.
        let (eighth, uninformed) = (vec![3.0; 2], vec![3.0 * times; 2]);
        let columns = MeasuredTimes { eighth, uninformed, simulated: measured.clone(), measured };
        let records = records(&columns);
        let best = "density of states, best (256 calls)";
        records.iter().find(|record| record.figure == best && record.goal.is_some())?.met
    }

    #[test]
    fn the_goal_is_an_eighth_of_the_work_whatever_the_simulation_says() {
        assert_eq!((judged(1.07), judged(1.09)), (Some(true), Some(false)));
    }
}
