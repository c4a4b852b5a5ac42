//! Tables of the paper on calls over wide-area networks, measured on network namespaces with limited paths,
//! and simulated. They are Linpack from one site (table 1) and from several (figure 3), and EP (table 2).
//! Rates are 59 times those of the paper and sizes are smaller, so hours become minutes.

mod cell;
mod net;
mod plot;

use super::draw::save;
use super::process::{self, Process};
use super::{DESCRIPTIONS, ROUTINES, cluster};
use crate::error::BenchError;
use crate::figures::Setting;
use crate::record::{self, Goal, Peer, Record};
use cell::{Cell, CellResult, Parameters, PreparedWork, Work};
use kumi_call_client::Client;
use net::SiteNetwork;
use std::path::Path;
use std::time::Instant;

const LINEAR: &str = include_str!("../../../../call/linear.idl");
const EP: (&str, &str) =
    (include_str!("../../../../call/ep.c"), include_str!("../../../../call/ep.idl"));

/// Bytes per second of each path.
const RATE: f64 = 10e6;
/// Slots of the server. Like the paper's server, it refuses nobody.
const SLOTS: u32 = 17;
/// At steps of this length a client calls with probability 1/2, unless a call is in progress.
const EVERY_S: f64 = 0.05;
/// Pairs of a call of EP.
const PAIRS: i64 = 1 << 22;
/// Bytes for measuring a path.
const PROBE: usize = 5_000_000;

/// A line of a table.
struct TableRow {
    work: Work,
    cell: Cell,
    measured: CellResult,
    simulated: CellResult,
}

impl TableRow {
    fn ratio(&self) -> f64 {
        self.measured.response_s / self.simulated.response_s
    }
}

pub(in crate::figures) fn measure(setting: &Setting, _: usize) -> Result<Vec<Record>, BenchError> {
    if let Some(why) = net::impossible() {
        let why = format!("there are no networks with limited rates here: {why}");
        return Ok(vec![Record::unmeasured("calls over limited paths", &why)]);
    }
    let folder = cluster::folder()?;
    let field = Testbed::new(folder.path())?;
    let lines = field.tables(setting.quick)?;
    save(&setting.out, "call-sites.svg", &plot::svg(&lines))?;
    Ok(records(&lines))
}

/// The network, its server, and measurements of both.
struct Testbed {
    net: SiteNetwork,
    server: Process,
    bandwidth: f64,
    latency_s: f64,
    processors: u32,
}

impl Testbed {
    fn new(folder: &Path) -> Result<Self, BenchError> {
        let net = SiteNetwork::new(4, RATE)?;
        let mut command = net.server.command(&cluster::program("kumi")?);
        command.args(["call", "serve", "--insecure-listen", "--listen"]);
        command.arg(format!("{}:0", net::SERVER)).args(["--slots", &SLOTS.to_string()]);
        command.args(process::routines(folder, "routines", ROUTINES, DESCRIPTIONS)?);
        command.args(process::routines(folder, "ep", EP.0, EP.1)?);
        let linear = folder.join("linear.idl");
        let failed = |source| BenchError::File { path: linear.clone(), source };
        std::fs::write(&linear, LINEAR).map_err(failed)?;
        command.arg(&linear);
        let server = Process::start(command)?;
        let processors = std::thread::available_parallelism().map_or(1, |count| count.get() as u32);
        let mut field = Self { net, server, bandwidth: RATE, latency_s: 0.0, processors };
        field.path()?;
        Ok(field)
    }

    /// Runs a client's thread in a site's namespace, or in the server's.
    fn at<T: Send>(
        &self,
        site: Option<usize>,
        act: impl FnOnce(&Client) -> Result<T, BenchError> + Send,
    ) -> Result<T, BenchError> {
        let space = site.map_or(&self.net.server, |site| &self.net.sites[site]);
        std::thread::scope(|scope| {
            let run = || act(&cell::connect(space, &self.server.address)?);
            match scope.spawn(run).join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }

    /// Measures latency and rate of a path.
    fn path(&mut self) -> Result<(), BenchError> {
        let data = vec![1.0_f64; PROBE / 8];
        let (latency_s, seconds) = self.at(Some(0), |client| {
            let noop = median_s(20, || client.call("noop", Vec::new()))?;
            let sink = median_s(3, || {
                let args = vec![(data.len() as i64).into(), data.as_slice().into()];
                client.call("sink", args)
            })?;
            Ok((noop / 2.0, sink - noop))
        })?;
        (self.latency_s, self.bandwidth) = (latency_s, PROBE as f64 / seconds);
        println!(
            "paths of {:.2} MB/s as limited, {:.2} MB/s and {:.3} ms one way as measured; {} processors",
            RATE / 1e6,
            self.bandwidth / 1e6,
            1e3 * self.latency_s,
            self.processors
        );
        Ok(())
    }

    /// Seconds of a call in the server's own namespace without other clients.
    fn service_s(&self, prepared: &PreparedWork) -> Result<f64, BenchError> {
        self.at(None, |client| median_s(7, || prepared.call(client, None)))
    }

    fn tables(&self, quick: bool) -> Result<Vec<TableRow>, BenchError> {
        let (orders, clients): (&[u64], &[usize]) = match quick {
            true => (&[200, 400], &[1, 4, 16]),
            false => (&[200, 400, 600], &[1, 2, 4, 8, 16]),
        };
        let (time_s, warm_up_s) = if quick { (4.0, 0.5) } else { (9.0, 1.0) };
        let cell = |sites, clients| Cell { sites, clients, every_s: EVERY_S, time_s, warm_up_s };
        let mut lines = Vec::new();
        for &order in orders {
            let cells: Vec<Cell> = clients.iter().map(|&count| cell(1, count)).collect();
            self.table(&mut lines, "Linpack from one site", Work::Linpack(order), &cells)?;
        }
        let order = orders.last().copied().unwrap_or(400);
        let several: &[usize] = if quick { &[4] } else { &[2, 4] };
        let cells: Vec<Cell> = several.iter().flat_map(|&s| [cell(s, 1), cell(s, 4)]).collect();
        self.table(&mut lines, "Linpack from several sites", Work::Linpack(order), &cells)?;
        let cells: Vec<Cell> = clients.iter().map(|&count| cell(1, count)).collect();
        self.table(&mut lines, "EP from one site", Work::Ep(PAIRS), &cells)?;
        Ok(lines)
    }

    fn table(
        &self,
        lines: &mut Vec<TableRow>,
        title: &str,
        work: Work,
        cells: &[Cell],
    ) -> Result<(), BenchError> {
        let prepared = work.prepare();
        let parameters = Parameters {
            bandwidth: self.bandwidth,
            latency_s: self.latency_s,
            service_s: self.service_s(&prepared)?,
            processors: self.processors,
        };
        println!("{title}, {}; alone {:.1} ms", name(work), 1e3 * parameters.service_s);
        println!(
            "{:>5} {:>2} {:>6} {:>21} {:>7} {:>21} {:>21}",
            "sites",
            "c",
            "calls",
            "response s, simulated",
            "ratio",
            "Mflops, simulated",
            "MB/s all, simulated"
        );
        for &cell in cells {
            let measured = cell::measured(&self.net, &self.server.address, &prepared, cell)?;
            let simulated = cell::simulated(work, cell, parameters)?;
            lines.push(TableRow { work, cell, measured, simulated });
            if let Some(line) = lines.last() {
                println!("{}", row(line));
            }
        }
        Ok(())
    }
}

fn name(work: Work) -> String {
    match work {
        Work::Linpack(n) => format!("n = {n}"),
        Work::Ep(pairs) => format!("{pairs} pairs"),
    }
}

fn row(line: &TableRow) -> String {
    let TableRow { work, cell, measured, simulated } = line;
    let bytes = (work.bytes().0 + work.bytes().1) as f64;
    let mflops = |found: &CellResult| work.operations() / found.response_s / 1e6;
    let carried = |found: &CellResult| found.calls_per_s * bytes / 1e6;
    format!(
        "{:>5} {:>2} {:>6} {:>10.4} {:>10.4} {:>7.3} {:>10.2} {:>10.2} {:>10.3} {:>10.3}",
        cell.sites,
        cell.clients,
        measured.calls,
        measured.response_s,
        simulated.response_s,
        line.ratio(),
        mflops(measured),
        mflops(simulated),
        carried(measured),
        carried(simulated)
    )
}

/// The median of several times.
fn median_s<T>(
    times: usize,
    act: impl Fn() -> Result<T, kumi_call_client::CallError>,
) -> Result<f64, BenchError> {
    act()?;
    let mut all = Vec::new();
    for _ in 0..times {
        let begin = Instant::now();
        act()?;
        all.push(begin.elapsed().as_secs_f64());
    }
    Ok(record::median(&all))
}

/// Records a line's response with the simulated one, and what the paper says of their shape.
fn records(lines: &[TableRow]) -> Vec<Record> {
    let one = |line: &TableRow| {
        let Cell { sites, clients, .. } = line.cell;
        let kind = if matches!(line.work, Work::Ep(_)) { "EP" } else { "Linpack" };
        let figure = format!("{kind}, {}, {clients} clients at {sites} sites", name(line.work));
        let peer = [line.simulated.response_s];
        let peer = Peer::Measured("simulation", &peer);
        Record::new(&figure, "s", &[line.measured.response_s], &peer, Goal::None)
    };
    let mut records: Vec<Record> = lines.iter().map(one).collect();
    let linpack = |line: &&TableRow| matches!(line.work, Work::Linpack(_));
    let mut off: Vec<f64> = lines.iter().map(|line| (line.ratio() - 1.0).abs()).collect();
    off.retain(|off| off.is_finite());
    let alone =
        |figure: &str, values: &[f64], goal| Record::new(figure, "", values, &Peer::Nobody, goal);
    let what = "response, measured against simulated: off by (median of all rows)";
    records.push(alone(what, &[record::median(&off)], Goal::OursAtMost(0.15)));
    let last = lines.iter().filter(linpack).map(|line| line.work).next_back();
    let carried = |sites: usize, clients: usize| {
        let wanted = |line: &&TableRow| {
            Some(line.work) == last && (line.cell.sites, line.cell.clients) == (sites, clients)
        };
        lines.iter().find(wanted).map_or(f64::NAN, |line| line.measured.calls_per_s)
    };
    let what = "what 16 clients of one site get through together, over what one gets";
    records.push(alone(what, &[carried(1, 16) / carried(1, 1)], Goal::None));
    let what = "what four sites of 4 clients get through together, over what one site gets";
    records.push(alone(what, &[carried(4, 4) / carried(1, 4)], Goal::OursAtLeast(3.0)));
    records
}
