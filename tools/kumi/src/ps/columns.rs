//! Columns of the table of jobs.

use crate::table::{self, Table};
use crate::{job_descriptions, output};
use kumi_control::message::{JobList, JobRecord, JobRequest};

/// What a table has beside its jobs.
#[derive(Clone, Copy, Debug)]
pub struct Scene {
    /// The wall clock.
    pub now_ms: u64,
    /// The name of a user.
    pub user: fn(u32) -> String,
}

impl Scene {
    /// That of this moment.
    pub fn now() -> Self {
        Self { now_ms: output::wall_ms(), user: output::user_name }
    }
}

/// When a table has a column that nobody asks for.
#[derive(Clone, Copy)]
enum Shown {
    Always,
    /// If some job has something unusual in it.
    If(fn(&JobRecord, &JobList) -> bool),
    Never,
}

/// A column.
pub struct Column {
    /// By which users ask for it.
    pub name: &'static str,
    heading: &'static str,
    shown: Shown,
    text: fn(&JobRecord, &JobList, &Scene) -> String,
}

fn request(record: &JobRecord) -> &JobRequest {
    &record.spec.request
}

fn or_dash(text: Option<String>) -> String {
    text.filter(|text| !text.is_empty()).unwrap_or_else(|| "-".to_owned())
}

/// Nanoseconds as people read them.
fn nanos(time: Option<u64>) -> String {
    or_dash(time.map(|time| table::elapsed(time / 1_000_000)))
}

/// Milliseconds since the epoch, as programs read them.
fn stamp(time: Option<u64>) -> String {
    or_dash(time.map(|ms| ms.to_string()))
}

fn devices(record: &JobRecord) -> String {
    let word = |(name, count)| format!("{}={count}", table::printable(name));
    let devices = request(record).resources.devices.iter();
    devices.map(|device| word((&device.name, device.count))).collect::<Vec<_>>().join(",")
}

fn time(record: &JobRecord, scene: &Scene) -> String {
    let end = record.ended_ms.unwrap_or(scene.now_ms);
    or_dash(record.started_ms.map(|start| table::elapsed(end.saturating_sub(start))))
}

/// All columns, in the order in which a table has them.
pub const COLUMNS: [Column; 24] = [
    Column {
        name: "job",
        heading: ">JOB",
        shown: Shown::Always,
        text: |it, _, _| it.spec.job.to_string(),
    },
    Column {
        name: "array",
        heading: ">ARRAY",
        shown: Shown::Never,
        text: |it, _, _| or_dash(request(it).batch.task.map(|task| task.array.to_string())),
    },
    Column {
        name: "index",
        heading: ">INDEX",
        shown: Shown::If(|it, _| request(it).batch.task.is_some()),
        text: |it, _, _| or_dash(request(it).batch.task.map(|task| task.index.to_string())),
    },
    Column {
        name: "name",
        heading: "NAME",
        shown: Shown::Always,
        text: |it, _, _| table::shortened(&request(it).name, 24),
    },
    Column {
        name: "user",
        heading: "USER",
        shown: Shown::Always,
        text: |it, _, scene| (scene.user)(it.spec.user.uid),
    },
    Column {
        name: "ranks",
        heading: ">RANKS",
        shown: Shown::Always,
        text: |it, _, _| request(it).ranks.to_string(),
    },
    Column {
        name: "nodes",
        heading: "NODES",
        shown: Shown::Always,
        text: |it, _, _| table::ranges(it.spec.layout.iter().map(|part| part.node.0)),
    },
    Column {
        name: "state",
        heading: "STATE",
        shown: Shown::Always,
        text: |it, jobs, _| job_descriptions::state(&it.state, jobs.verdict(it.spec.job)),
    },
    Column {
        name: "time",
        heading: ">TIME",
        shown: Shown::Always,
        text: |it, _, scene| time(it, scene),
    },
    Column {
        name: "limit",
        heading: ">LIMIT",
        shown: Shown::If(|it, _| request(it).batch.time_limit_ns.is_some()),
        text: |it, _, _| nanos(request(it).batch.time_limit_ns),
    },
    Column {
        name: "restarts",
        heading: ">RESTARTS",
        shown: Shown::If(|it, _| it.restarts > 0),
        text: |it, _, _| it.restarts.to_string(),
    },
    Column {
        name: "priority",
        heading: ">PRIORITY",
        shown: Shown::If(|it, _| request(it).priority > 1),
        text: |it, _, _| request(it).priority.to_string(),
    },
    Column {
        name: "estimate",
        heading: ">ESTIMATE",
        shown: Shown::If(|it, _| request(it).estimate_ns.is_some()),
        text: |it, _, _| nanos(request(it).estimate_ns),
    },
    Column {
        name: "cpus",
        heading: ">CPUS/RANK",
        shown: Shown::If(|it, _| request(it).resources.processors_per_rank.is_some_and(|n| n > 1)),
        text: |it, _, _| request(it).resources.processors_per_rank.unwrap_or(1).to_string(),
    },
    Column {
        name: "mem",
        heading: ">MEM/RANK",
        shown: Shown::If(|it, _| request(it).resources.memory_per_rank.is_some_and(|n| n > 0)),
        text: |it, _, _| {
            let bytes = request(it).resources.memory_per_rank.filter(|&bytes| bytes > 0);
            or_dash(bytes.map(table::bytes))
        },
    },
    Column {
        name: "devices",
        heading: "DEVICES/RANK",
        shown: Shown::If(|it, _| !request(it).resources.devices.is_empty()),
        text: |it, _, _| or_dash(Some(devices(it))),
    },
    Column {
        name: "lost",
        heading: ">OUTPUT LOST",
        shown: Shown::If(|it, _| it.output_not_kept > 0),
        text: |it, _, _| {
            or_dash((it.output_not_kept > 0).then(|| table::bytes(it.output_not_kept)))
        },
    },
    Column {
        name: "waits",
        heading: "WAITS FOR",
        shown: Shown::If(|_, jobs| !jobs.waiting.is_empty()),
        text: |it, jobs, _| or_dash(jobs.waits_for(it.spec.job).map(job_descriptions::waits_for)),
    },
    Column {
        name: "after",
        heading: "AFTER",
        shown: Shown::Never,
        text: |it, _, _| {
            let after = request(it).batch.after.iter().map(|after| after.job.to_string());
            or_dash(Some(after.collect::<Vec<_>>().join(",")))
        },
    },
    Column {
        name: "submitted",
        heading: ">SUBMITTED",
        shown: Shown::Never,
        text: |it, _, _| stamp(Some(it.submitted_ms)),
    },
    Column {
        name: "started",
        heading: ">STARTED",
        shown: Shown::Never,
        text: |it, _, _| stamp(it.started_ms),
    },
    Column {
        name: "ended",
        heading: ">ENDED",
        shown: Shown::Never,
        text: |it, _, _| stamp(it.ended_ms),
    },
    Column {
        name: "folder",
        heading: "FOLDER",
        shown: Shown::Never,
        text: |it, _, _| or_dash(Some(table::printable(&request(it).cwd))),
    },
    Column {
        name: "command",
        heading: "COMMAND",
        shown: Shown::Always,
        text: |it, _, _| table::shortened(&job_descriptions::command(it), 60),
    },
];

/// The columns that a table has if nobody asks for others. What is usual has none.
pub fn usual(jobs: &JobList) -> Vec<&'static Column> {
    let shown = |column: &&Column| match column.shown {
        Shown::Always => true,
        Shown::If(unusual) => jobs.records.iter().any(|record| unusual(record, jobs)),
        Shown::Never => false,
    };
    let columns: &'static [Column] = &COLUMNS;
    columns.iter().filter(shown).collect()
}

/// The table.
pub fn render(jobs: &JobList, columns: &[&Column], scene: &Scene) -> String {
    let headings: Vec<&str> = columns.iter().map(|column| column.heading).collect();
    let mut table = Table::new(&headings);
    for record in &jobs.records {
        table.row(columns.iter().map(|column| (column.text)(record, jobs, scene)).collect());
    }
    table.render()
}
