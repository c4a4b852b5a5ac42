//! The comparison as tables and as JSON.

use super::columns::{Column, Costs, lost, overlap};
use super::machine::Switching;
use super::{Comparison, Plan};
use kumi_sim::figures::{Cell, PAPER, paper_total};
use kumi_sim::stats::mean;
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt;

/// Version of the JSON; rises when a field is removed or changes its meaning.
pub const SCHEMA: u32 = 2;

/// The whole comparison. Times are nanoseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Version of the program.
    pub version: &'static str,
    /// Its parameters.
    pub plan: Plan,
    /// Costs, in the form of the simulator's options.
    pub costs: Costs,
    /// Switches of the nodes.
    pub switching: Switching,
    /// Used share of the real processors' time.
    pub busy: f64,
    /// The longest wait of a rank that was not stopped; it should be a 50th of a slice.
    pub longest_wait_ns: u64,
    /// Share of the time in which a second job computed on a node.
    pub overlap: f64,
    /// Share of the time in which a node had jobs with turns but none computed.
    pub lost: f64,
    /// The part of a slot that a rank has for itself.
    pub turn: f64,
    /// From the end of a job's rank 0 to that of its last rank, by size; size 0 means all.
    pub spreads: Vec<Spread>,
    /// The columns as a whole, in their order.
    pub totals: Vec<Total>,
    /// Tables 7.2 to 7.4 of the SCore-D paper.
    pub tables: Vec<Table>,
    /// Parts of measured RETR.
    pub parts: Vec<Parts>,
    /// Every job.
    pub jobs: Vec<JobLine>,
}

/// Time between the ends of a job's ranks. Nanoseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Spread {
    /// Nodes of a job; 0: any.
    pub size: u32,
    /// Mean.
    pub mean_ns: f64,
    /// Median.
    pub median_ns: u64,
}

/// A column as a whole.
#[derive(Clone, Debug, Serialize)]
pub struct Total {
    /// Its name.
    pub column: &'static str,
    /// Mean of RETR over all jobs.
    pub mean_retr: f64,
    /// Service over the nodes' time from the first submission to the last end.
    pub utilisation: f64,
    /// Most jobs on a node at once.
    pub max_tqlb: Option<u32>,
    /// Share of the jobs that had the same nodes as on the cluster.
    pub same_nodes: f64,
}

/// Mean RETR by size.
#[derive(Clone, Debug, Serialize)]
pub struct Table {
    /// The selected jobs.
    pub title: &'static str,
    /// By size; the last, size 0, is for all.
    pub rows: Vec<Row>,
}

/// One size.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Nodes of a job; 0: any.
    pub size: u32,
    /// Number of jobs.
    pub jobs: usize,
    /// Mean RETR: simulated without costs, with costs, with each job's delays, the same in whole slots, the
    /// same with turns as short as they were, measured.
    pub retr: [f64; 6],
    /// Measured over simulated without costs.
    pub ratio: f64,
    /// The paper's: jobs, simulated, measured.
    pub paper: Option<Cell>,
}

/// Means over the jobs of a size, each as a multiple of a job's service. Their sum plus 1 is measured RETR.
#[derive(Clone, Debug, Serialize)]
pub struct Parts {
    /// Nodes of a job; 0: any.
    pub size: u32,
    /// Until all nodes have prepared.
    pub prepare: f64,
    /// From its first turn to its ranks' first instruction, as [`Costs::begin_of`] has it.
    pub begin: f64,
    /// Turns of others.
    pub others: f64,
    /// From the end of its work until the head reports its end.
    pub end: f64,
    /// Turns of others as simulated without costs.
    pub others_simulated: f64,
}

/// One job. Times since the list began.
#[derive(Clone, Debug, Serialize)]
pub struct JobLine {
    /// Its number in the list.
    pub number: u64,
    /// Nodes.
    pub size: u32,
    /// When it was due.
    pub due_ns: u64,
    /// Its service.
    pub service_ns: u64,
    /// Simulated without costs: its end.
    pub simulated_end_ns: u64,
    /// RETR as in [`Row::retr`].
    pub retr: [f64; 6],
    /// Measured: submission, taking turns, beginning, work done, over.
    pub measured_ns: [u64; 5],
    /// Turns of its rank 0: begins and ends.
    pub turns: Vec<(u64, u64)>,
    /// Its nodes when simulated without costs.
    pub simulated_nodes: Vec<u32>,
    /// Its nodes.
    pub nodes: Vec<u32>,
}

const NAMES: [&str; 6] =
    ["simulated", "with costs", "with delays", "whole slots", "short turns", "measured"];

fn columns(all: &Comparison) -> [&Column; 6] {
    let Comparison { ideal, with_costs, with_delays, whole_slots, short_turns, measured, .. } = all;
    [ideal, with_costs, with_delays, whole_slots, short_turns, measured]
}

fn retr(all: &Comparison, index: usize) -> [f64; 6] {
    let service = all.jobs[index].service.max(1) as f64;
    columns(all).map(|column| column.response[index] as f64 / service)
}

/// The sizes that there are, then 0 for all.
fn sizes(all: &Comparison) -> Vec<u32> {
    let sizes: BTreeSet<u32> = all.jobs.iter().map(|job| job.size).collect();
    sizes.into_iter().chain([0]).collect()
}

/// The jobs of a size that `chosen` selects.
fn of_size(all: &Comparison, size: u32, chosen: impl Fn(usize) -> bool) -> Vec<usize> {
    let fits = |&index: &usize| (size == 0 || all.jobs[index].size == size) && chosen(index);
    (0..all.jobs.len()).filter(fits).collect()
}

impl Report {
    /// Makes a comparison.
    pub fn new(all: &Comparison) -> Self {
        let longest = all.ran.iter().map(|ran| ran.longest_ns).max();
        Self {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION"),
            plan: all.plan.clone(),
            costs: all.costs.clone(),
            switching: all.switching,
            busy: all.busy,
            longest_wait_ns: longest.unwrap_or(0),
            overlap: overlap(&all.ran),
            lost: lost(&all.ran),
            turn: all.turn,
            spreads: sizes(all).into_iter().map(|size| spread(all, size)).collect(),
            totals: NAMES.into_iter().zip(columns(all)).map(|of| total(all, of)).collect(),
            tables: tables(all),
            parts: sizes(all).into_iter().map(|size| parts(all, size)).collect(),
            jobs: (0..all.jobs.len()).map(|index| line(all, index)).collect(),
        }
    }
}

fn total(all: &Comparison, (name, column): (&'static str, &Column)) -> Total {
    let services = all.jobs.iter().map(|job| job.service.max(1) as f64);
    let retrs = column.response.iter().zip(services).map(|(&time, service)| time as f64 / service);
    Total {
        column: name,
        mean_retr: mean(&retrs.collect::<Vec<f64>>()),
        utilisation: column.utilisation(&all.jobs, all.plan.nodes),
        max_tqlb: column.max_tqlb,
        same_nodes: column.same_nodes(&all.measured),
    }
}

/// The paper divides by the time of a job's end. Here that is the end in the simulation without costs, so
/// that all columns compare the same jobs.
fn tables(all: &Comparison) -> Vec<Table> {
    let half = all.plan.units * all.plan.unit_ns / 2;
    let early = |index: usize| all.ideal.ended[index] < half;
    let table = |title, which: usize, chosen: &dyn Fn(usize) -> bool| {
        let rows = sizes(all).into_iter().map(|size| row(all, size, which, chosen));
        Table { title, rows: rows.filter(|row| row.jobs > 0).collect() }
    };
    vec![
        table("all jobs (table 7.2)", 0, &|_| true),
        table("over in the first half (table 7.3)", 1, &early),
        table("over in the second half (table 7.4)", 2, &|index| !early(index)),
    ]
}

fn row(all: &Comparison, size: u32, which: usize, chosen: &dyn Fn(usize) -> bool) -> Row {
    let indexes = of_size(all, size, chosen);
    let retrs: Vec<[f64; 6]> = indexes.iter().map(|&index| retr(all, index)).collect();
    let means =
        [0, 1, 2, 3, 4, 5].map(|column| mean(&retrs.iter().map(|r| r[column]).collect::<Vec<_>>()));
    let printed = || PAPER.iter().find(|(of, _)| *of == size).map(|(_, cells)| cells[which]);
    let paper = if size == 0 { Some(paper_total(which)) } else { printed() };
    let ratio = if means[0] > 0.0 { means[5] / means[0] } else { 0.0 };
    Row { size, jobs: indexes.len(), retr: means, ratio, paper }
}

fn parts(all: &Comparison, size: u32) -> Parts {
    let indexes = of_size(all, size, |_| true);
    let of = |part: &dyn Fn(usize) -> f64| {
        let share = |&index: &usize| part(index) / all.jobs[index].service.max(1) as f64;
        mean(&indexes.iter().map(share).collect::<Vec<f64>>())
    };
    let begin = |index: usize| all.costs.begin_of(&all.jobs[index]);
    let once = |index: usize| {
        let ran = &all.ran[index];
        ran.prepare_delay() + begin(index) + ran.end_delay() + all.jobs[index].service
    };
    Parts {
        size,
        prepare: of(&|index| all.ran[index].prepare_delay() as f64),
        begin: of(&|index| begin(index) as f64),
        others: of(&|index| all.ran[index].response() as f64 - once(index) as f64),
        end: of(&|index| all.ran[index].end_delay() as f64),
        others_simulated: of(&|i| all.ideal.response[i] as f64 - all.jobs[i].service as f64),
    }
}

fn spread(all: &Comparison, size: u32) -> Spread {
    let chosen = of_size(all, size, |_| true);
    let mut spreads: Vec<u64> = chosen.into_iter().map(|index| all.ran[index].spread()).collect();
    spreads.sort_unstable();
    let median_ns = spreads.get(spreads.len() / 2).copied().unwrap_or(0);
    let spreads: Vec<f64> = spreads.into_iter().map(|spread| spread as f64).collect();
    Spread { size, mean_ns: mean(&spreads), median_ns }
}

fn line(all: &Comparison, index: usize) -> JobLine {
    let (job, ran) = (&all.jobs[index], &all.ran[index]);
    JobLine {
        number: job.number,
        size: job.size,
        due_ns: job.submit,
        service_ns: job.service,
        simulated_end_ns: all.ideal.ended[index],
        retr: retr(all, index),
        measured_ns: [ran.submitted, ran.running, ran.begin, ran.done, ran.ended],
        turns: ran.turns.clone(),
        simulated_nodes: all.ideal.nodes[index].clone(),
        nodes: ran.nodes.clone(),
    }
}

fn milliseconds(ns: u64) -> f64 {
    ns as f64 / 1e6
}

fn name(size: u32) -> String {
    if size == 0 { "all".to_owned() } else { size.to_string() }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Plan { policy, nodes, units, unit_ns, peak, seed } = &self.plan;
        let (jobs, unit) = (self.jobs.len(), milliseconds(*unit_ns));
        writeln!(
            f,
            "{jobs} jobs on {nodes} nodes by {policy}, load up to {peak} within {units} units of {unit} ms, seed {seed}"
        )?;
        self.tables.iter().try_for_each(|table| write!(f, "\n{table}"))?;
        writeln!(f, "\n| | mean RETR | utilisation | max TQLB | same nodes as measured |")?;
        writeln!(f, "|---|---|---|---|---|")?;
        for Total { column, mean_retr, utilisation, max_tqlb, same_nodes } in &self.totals {
            let tqlb = max_tqlb.map_or_else(|| "-".to_owned(), |most| most.to_string());
            let same = 100.0 * same_nodes;
            writeln!(f, "| {column} | {mean_retr:.2} | {utilisation:.3} | {tqlb} | {same:.0} % |")?;
        }
        self.write_parts(f)?;
        self.write_machine(f)
    }
}

impl Report {
    fn write_parts(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nWhat measured RETR consists of, besides 1:\n")?;
        writeln!(
            f,
            "| size | prepare | begin | turns of others | end | turns of others as simulated |"
        )?;
        writeln!(f, "|---|---|---|---|---|---|")?;
        for Parts { size, prepare, begin, others, end, others_simulated } in &self.parts {
            let size = name(*size);
            writeln!(
                f,
                "| {size} | {prepare:.2} | {begin:.2} | {others:.2} | {end:.2} | {others_simulated:.2} |"
            )?;
        }
        Ok(())
    }

    fn write_machine(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Costs { prepare_ns, begin_ns, end_ns, switch_ns, .. } = self.costs;
        writeln!(
            f,
            "\nA job costs {:.1} ms to prepare, {:.1} ms to begin and {:.1} ms to end; a switch {:.3} ms.",
            milliseconds(prepare_ns),
            milliseconds(begin_ns),
            milliseconds(end_ns),
            milliseconds(switch_ns)
        )?;
        let Switching { count, missed, late_p50_ns, late_p99_ns, skew_p50_ns, skew_p99_ns, .. } =
            self.switching;
        writeln!(
            f,
            "{count} switches, {missed} ticks missed; late by {:.2} ms (p50), {:.1} ms (p99 of the worst node); skew between nodes {:.2} ms (p50), {:.1} ms (p99).",
            milliseconds(late_p50_ns),
            milliseconds(late_p99_ns),
            milliseconds(skew_p50_ns),
            milliseconds(skew_p99_ns)
        )?;
        writeln!(
            f,
            "Processors busy {:.0} %; nodes with jobs computed none in {:.1} % of their time and two at once in {:.2} %; a rank that was not stopped waited {:.1} ms at most.",
            100.0 * self.busy,
            100.0 * self.lost,
            100.0 * self.overlap,
            milliseconds(self.longest_wait_ns)
        )?;
        write!(
            f,
            "A rank has {:.1} % of a slot for itself. After rank 0 the last is done",
            100.0 * self.turn
        )?;
        for Spread { size, mean_ns, median_ns } in &self.spreads {
            let (mean, median) = (mean_ns / 1e6, milliseconds(*median_ns));
            write!(
                f,
                "{} {mean:.0} ms (p50 {median:.0}) of {}",
                if *size == self.spreads[0].size { "" } else { "," },
                name(*size)
            )?;
        }
        writeln!(f, ".")
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "RETR, {}:\n", self.title)?;
        writeln!(
            f,
            "| size | jobs | simulated | with costs | with delays | whole slots | short turns | measured | ratio | paper: simulated | SCore-D | ratio |"
        )?;
        writeln!(f, "|---|---|---|---|---|---|---|---|---|---|---|---|")?;
        for Row { size, jobs, retr, ratio, paper } in &self.rows {
            write!(f, "| {} | {jobs} |", name(*size))?;
            retr.iter().chain([ratio]).try_for_each(|value| write!(f, " {value:.2} |"))?;
            match paper {
                Some((_, simulated, measured)) => {
                    let ratio = measured / simulated;
                    writeln!(f, " {simulated:.2} | {measured:.2} | {ratio:.2} |")?;
                }
                None => writeln!(f, " - | - | - |")?,
            }
        }
        Ok(())
    }
}
