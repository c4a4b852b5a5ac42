//! Metaserver with many clients: 1,000 connections, and 10,000 calls that wait for a slot. Measures its
//! memory, and its time to place another call meanwhile.

use super::process::{self, Process};
use super::{ArrayTransport, Server, cluster};
use crate::error::BenchError;
use crate::figures::Setting;
use crate::record::{self, Goal, Peer, Record};
use kumi_call_client::state::State;
use kumi_call_client::{Client, Grid, GridCall};
use std::time::{Duration, Instant};

const CLIENTS: usize = 1000;
/// Waiting calls of each client.
const CALLS: usize = 10;
/// Slots of the server for which they wait.
const SLOTS: usize = 2;
/// Measured calls to another server, through the metaserver and directly.
const PROBES: usize = 300;
/// Time limit for the metaserver to reach an expected state.
const PATIENCE: Duration = Duration::from_secs(60);

/// A simulated work load: only its duration matters.
pub(super) const SLEEP_SECONDS: (&str, &str) = (
    include_str!("../../../call/sleep_seconds.c"),
    include_str!("../../../call/sleep_seconds.idl"),
);
/// The routine of the other server.
const REST: (&str, &str) =
    ("void rest(void) {}\n", "Define rest() \"nothing\"\n@idempotent\nCalls \"C\" rest();\n");

pub(in crate::figures) fn measure(_: &Setting, runs: usize) -> Result<Vec<Record>, BenchError> {
    let mut found: Vec<Vec<f64>> = vec![Vec::new(); 7];
    for _ in 0..runs {
        for (values, value) in found.iter_mut().zip(once()?) {
            values.push(value);
        }
    }
    let [memory, through, straight, work, rate, mean, longest] = &found[..] else {
        return Ok(Vec::new());
    };
    let added: Vec<f64> = through.iter().zip(straight).map(|(one, other)| one - other).collect();
    let straight = Peer::Measured("the same call straight to its server", straight);
    let alone = |figure: &str, unit, values: &[f64], goal| {
        Record::new(figure, unit, values, &Peer::Nobody, goal)
    };
    Ok(vec![
        alone(
            "memory of a metaserver with 1,000 clients and 10,000 waiting calls",
            "MB",
            memory,
            Goal::OursAtMost(200.0),
        ),
        Record::new(
            "call of another routine meanwhile, through the metaserver",
            "us",
            through,
            &straight,
            Goal::None,
        ),
        alone("what the metaserver adds to it", "us", &added, Goal::OursAtMost(1000.0)),
        alone(
            "metaserver's processor time for a call, while all 10,000 are given out",
            "us",
            work,
            Goal::OursAtMost(1000.0),
        ),
        alone("calls given out and done in a second", "1/s", rate, Goal::None),
        alone(
            "decision on a call that comes, mean by the metaserver's clock",
            "us",
            mean,
            Goal::OursAtMost(1000.0),
        ),
        alone("the longest of them, whatever interrupted it", "us", longest, Goal::None),
    ])
}

/// Waits until the metaserver's state satisfies the condition.
pub(super) fn until(
    grid: &Grid,
    what: &str,
    holds: impl Fn(&State) -> bool,
) -> Result<State, BenchError> {
    let begin = Instant::now();
    loop {
        let state = grid.status()?;
        if holds(&state) {
            return Ok(state);
        }
        if begin.elapsed() > PATIENCE {
            return Err(BenchError::Output {
                wanted: what.to_owned(),
                what: "the metaserver's state".to_owned(),
                output: format!("{} waiting, {} running", state.waiting, state.running),
            });
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Columns: memory (MB); a call through the metaserver and a direct call (us); the metaserver's processor
/// time per call (us); calls a second; mean and longest decision by its own clock (us).
fn once() -> Result<[f64; 7], BenchError> {
    let folder = cluster::folder()?;
    let meta = Process::metaserver(&["--policy", "min-completion"])?;
    let register = ["--meta", &meta.address];
    let args = process::routines(folder.path(), "sleep_seconds", SLEEP_SECONDS.0, SLEEP_SECONDS.1)?;
    let _busy = Server::with(SLOTS as u32, &register, &args)?;
    let args = process::routines(folder.path(), "rest", REST.0, REST.1)?;
    let other = Server::with(SLOTS as u32, &register, &args)?;
    let first = connect(&meta)?;
    until(&first, "two servers", |state| state.servers.len() == 2)?;
    let sleep_seconds =
        |grid: &Grid, seconds: f64| grid.call_async("sleep_seconds", vec![seconds.into()], None);
    let mut holders: Vec<GridCall> = Vec::new();
    for _ in 0..SLOTS {
        holders.push(sleep_seconds(&first, 3600.0)?);
    }
    until(&first, "calls that hold the slots", |state| state.running == SLOTS)?;
    let grids: Vec<Grid> = (0..CLIENTS).map(|_| connect(&meta)).collect::<Result<_, _>>()?;
    let mut calls = Vec::with_capacity(CLIENTS * CALLS);
    for grid in &grids {
        for _ in 0..CALLS {
            calls.push(sleep_seconds(grid, 0.0)?);
        }
    }
    until(&first, "10,000 calls that wait", |state| state.waiting == calls.len())?;
    let (through, straight) = probe(&first, &other.connect(ArrayTransport::Tcp)?)?;
    let (before, begin) = (meta.processor_s()?, Instant::now());
    holders.iter().for_each(GridCall::cancel);
    for call in &mut calls {
        call.wait(&|| false)?;
    }
    let seconds = begin.elapsed().as_secs_f64();
    let work = (meta.processor_s()? - before) / calls.len() as f64;
    let counters = first.status()?.counters;
    let rate = calls.len() as f64 / seconds;
    let (mean, longest) = (1e6 * counters.decision_mean, 1e6 * counters.decision_longest);
    Ok([meta.memory_mb()?, through, straight, 1e6 * work, rate, mean, longest])
}

fn connect(meta: &Process) -> Result<Grid, BenchError> {
    Ok(Grid::connect(&meta.address, &ArrayTransport::Tcp.options())?)
}

/// Median microseconds of a call through the metaserver, and of a direct call.
fn probe(grid: &Grid, client: &Client) -> Result<(f64, f64), BenchError> {
    let (mut through, mut straight) = (Vec::new(), Vec::new());
    for _ in 0..PROBES {
        let begin = Instant::now();
        grid.call("rest", Vec::new())?;
        let between = Instant::now();
        client.call("rest", Vec::new())?;
        through.push(1e6 * (between - begin).as_secs_f64());
        straight.push(1e6 * between.elapsed().as_secs_f64());
    }
    Ok((record::median(&through), record::median(&straight)))
}
