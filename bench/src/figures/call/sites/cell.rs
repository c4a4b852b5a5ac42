//! One cell of a table: clients at sites that call a routine for some time, measured and simulated.

use super::net::{Namespace, SiteNetwork};
use crate::error::BenchError;
use kumi_call_client::{CallError, Client, Options};
use kumi_sim::Monitor;
use kumi_sim::calls::{self, Clients, Discipline, Law, Link, Model, Routine, Site, Source};
use kumi_sim::random::RandomStream;
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// Probability that a client calls at a step.
const PROBABILITY: f64 = 0.5;
/// Simulations of a cell.
const REPLICATIONS: u32 = 40;

/// The routine and its size.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Work {
    /// A linear system with this many equations.
    Linpack(u64),
    /// EP with this many pairs.
    Ep(i64),
}

impl Work {
    /// Operations, as the paper counts them.
    pub(super) fn operations(self) -> f64 {
        match self {
            Self::Linpack(n) => Routine::linpack(n).operations,
            Self::Ep(pairs) => 2.0 * pairs as f64,
        }
    }

    /// Bytes in each direction, without names and heads.
    pub(super) fn bytes(self) -> (u64, u64) {
        match self {
            Self::Linpack(n) => (8 * n * n + 8 * n, 8 * n + 4),
            Self::Ep(_) => (64, 64),
        }
    }

    /// Arguments of the calls, made once because making them takes time.
    pub(super) fn prepare(self) -> PreparedWork {
        let matrix = match self {
            Self::Linpack(n) => {
                let (mut draws, n) = (RandomStream::new(n, 7), n as usize);
                let mut matrix: Vec<f64> = (0..n * n).map(|_| draws.unit() - 0.5).collect();
                // Far from singular.
                (0..n).for_each(|i| matrix[i * n + i] += n as f64);
                matrix
            }
            Self::Ep(_) => Vec::new(),
        };
        PreparedWork { work: self, matrix }
    }
}

/// Work with its arguments.
pub(super) struct PreparedWork {
    pub(super) work: Work,
    matrix: Vec<f64>,
}

impl PreparedWork {
    pub(super) fn call(&self, client: &Client, time: Option<Duration>) -> Result<(), CallError> {
        match self.work {
            Work::Linpack(n) => {
                let mut right = vec![1.0_f64; n as usize];
                let args = vec![
                    (n as i64).into(),
                    1_i64.into(),
                    self.matrix.as_slice().into(),
                    right.as_mut_slice().into(),
                ];
                client.call_within("dgesv", args, time).map(|_| ())
            }
            Work::Ep(pairs) => {
                // The sum comes back in the outcome, like all scalars.
                client.call_within("ep", vec![pairs.into()], time).map(|_| ())
            }
        }
    }
}

/// The clients, and the duration.
#[derive(Clone, Copy)]
pub(super) struct Cell {
    pub(super) sites: usize,
    /// Clients at each site.
    pub(super) clients: usize,
    pub(super) every_s: f64,
    pub(super) time_s: f64,
    pub(super) warm_up_s: f64,
}

/// Measured properties of path and server.
#[derive(Clone, Copy)]
pub(super) struct Parameters {
    /// Bytes per second of a path.
    pub(super) bandwidth: f64,
    /// Latency in one direction.
    pub(super) latency_s: f64,
    /// Seconds of a single call.
    pub(super) service_s: f64,
    pub(super) processors: u32,
}

/// The result of a cell.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CellResult {
    pub(super) calls: f64,
    /// Mean seconds of a call.
    pub(super) response_s: f64,
    /// Calls of all clients.
    pub(super) calls_per_s: f64,
}

/// Runs the clients.
pub(super) fn measured(
    net: &SiteNetwork,
    address: &str,
    prepared: &PreparedWork,
    cell: Cell,
) -> Result<CellResult, BenchError> {
    let barrier = Barrier::new(cell.sites * cell.clients);
    let all = std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for number in 0..cell.sites * cell.clients {
            let (site, barrier) = (&net.sites[number / cell.clients], &barrier);
            threads.push(scope.spawn(move || {
                let ready = connect(site, address).and_then(|client| {
                    // From then on its slot has a process.
                    let small = match prepared.work {
                        Work::Linpack(_) => Work::Linpack(2),
                        Work::Ep(_) => Work::Ep(1),
                    };
                    small.prepare().call(&client, None)?;
                    Ok(client)
                });
                // The others wait for it, whatever its result.
                barrier.wait();
                calls_of(&ready?, prepared, cell, number as u64)
            }));
        }
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| match thread.join() {
            Ok(found) => found,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        threads.into_iter().map(join).collect::<Result<Vec<Vec<f64>>, BenchError>>()
    })?;
    let times: Vec<f64> = all.into_iter().flatten().collect();
    let calls = times.len() as f64;
    Ok(CellResult {
        calls,
        response_s: times.iter().sum::<f64>() / calls.max(1.0),
        calls_per_s: calls / (cell.time_s - cell.warm_up_s),
    })
}

pub(super) fn connect(site: &Namespace, address: &str) -> Result<Client, BenchError> {
    site.enter()?;
    Ok(Client::connect(address, &Options { share_memory: false, ..Options::default() })?)
}

/// Seconds of each call that ended in time, after the warm-up. The simulated client calls in the same way.
fn calls_of(
    client: &Client,
    prepared: &PreparedWork,
    cell: Cell,
    number: u64,
) -> Result<Vec<f64>, BenchError> {
    let (begin, mut draws) = (Instant::now(), RandomStream::new(1, number));
    let (mut times, mut phase) = (Vec::new(), draws.unit() - 1.0);
    let mut last = 0.0;
    loop {
        let mut steps = 1.0;
        while draws.unit() > PROBABILITY {
            steps += 1.0;
        }
        let next: f64 = last + cell.every_s * (steps + std::mem::take(&mut phase));
        let until = next.max(0.0).min(cell.time_s);
        let wait = until - begin.elapsed().as_secs_f64();
        std::thread::sleep(Duration::from_secs_f64(wait.max(0.0)));
        let called = begin.elapsed().as_secs_f64();
        if called >= cell.time_s {
            return Ok(times);
        }
        let left = Duration::from_secs_f64(cell.time_s - called);
        match prepared.call(client, Some(left)) {
            Ok(()) => {}
            Err(CallError::TimedOut(_)) => return Ok(times),
            Err(error) => return Err(error.into()),
        }
        last = begin.elapsed().as_secs_f64();
        if last > cell.warm_up_s && last <= cell.time_s {
            times.push(last - called);
        }
    }
}

/// The same in virtual time.
pub(super) fn simulated(
    work: Work,
    cell: Cell,
    parameters: Parameters,
) -> Result<CellResult, BenchError> {
    let (bytes_out, bytes_back) = work.bytes();
    let names: Vec<String> = (1..=cell.sites).map(|number| format!("site{number}")).collect();
    let link = Link {
        servers: Vec::new(),
        bandwidth: parameters.bandwidth,
        latency_s: parameters.latency_s,
        discipline: Discipline::Ps,
        law: Law::Constant,
        background: 0.0,
        background_bytes: 1.0,
    };
    let site = |name: &String| Site { name: name.clone(), links: vec![link.clone()] };
    let clients = |name: &String| Clients {
        site: name.clone(),
        count: cell.clients as u32,
        user: 0,
        routines: vec!["work".to_owned()],
        source: Source::Step { every_s: cell.every_s, probability: PROBABILITY },
    };
    let model = Model {
        sites: names.iter().map(site).collect(),
        clients: names.iter().map(clients).collect(),
        servers: vec![calls::Server {
            name: "server".to_owned(),
            processors: parameters.processors,
            speed: 1.0,
            discipline: Discipline::Ps,
            limit: None,
            overhead_s: 0.0,
            routines: Vec::new(),
        }],
        routines: vec![Routine {
            name: "work".to_owned(),
            bytes_out,
            bytes_back,
            operations: parameters.service_s,
            law: Law::Constant,
        }],
        policy: "least-load".to_owned(),
        metaserver_s: 0.0,
        most_waiting: None,
    };
    let (time_s, warm_up_s) = (Some(cell.time_s), cell.warm_up_s);
    let options = calls::Options { time_s, warm_up_s, replications: REPLICATIONS, seed: 1 };
    let report = calls::run(&model, &options, &Monitor::default())?;
    let calls = report.rows.iter().map(|row| row.calls).sum::<u64>() as f64;
    let sum: f64 = report.rows.iter().map(|row| row.calls as f64 * row.response_s.mean.mean).sum();
    Ok(CellResult {
        calls: calls / f64::from(REPLICATIONS),
        response_s: sum / calls.max(1.0),
        calls_per_s: report.rows.iter().map(|row| row.calls_per_s.mean).sum(),
    })
}
