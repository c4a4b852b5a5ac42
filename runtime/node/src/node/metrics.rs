//! Metrics of a node for Prometheus: the node, its jobs, their ranks, and its switching.

use std::cell::RefCell;
use std::rc::Rc;

use kumi_control::message::Percentiles;
use kumi_metrics::{MetricKind, MetricsPage};
use kumi_net::counters::{NAMES, is_level};

use super::Shared;
use super::sampling::Sampler;
use crate::cgroup::JobGroups;
use crate::config::ShowOthers;
use crate::job::{JobShare, LiveJob, NodeServices};
use crate::process_metrics;

/// Ranks of one job that have lines of their own, and of all jobs. What the others of a job count is
/// added up under `rank="others"`: a page stays small enough, and sums over a job stay right.
const MOST_RANKS_OF_JOB: usize = 64;
const MOST_RANKS: usize = 512;

/// Source of the node's metrics.
pub(super) struct NodeMetrics {
    cluster: String,
    show: ShowOthers,
    services: Rc<NodeServices>,
    shared: Shared,
    sampler: Rc<RefCell<Sampler>>,
}

/// What a job has of the node, and uses of it; or all jobs together.
#[derive(Clone, Debug, Default, PartialEq)]
struct JobFigures {
    share: JobShare,
    /// Nanoseconds, and bytes; not of a job of which nobody counts.
    processor_time: Option<u64>,
    memory_used: Option<u64>,
}

impl JobFigures {
    fn of(live: &LiveJob) -> Self {
        let groups = live.control.as_ref();
        Self {
            share: live.share,
            processor_time: groups.and_then(|groups| groups.main().processor_time().ok()),
            memory_used: groups.and_then(JobGroups::memory_used),
        }
    }

    fn add(&mut self, other: &Self) {
        self.share.processors += other.share.processors;
        self.share.memory = self.share.memory.saturating_add(other.share.memory);
        let pairs = [
            (&mut self.processor_time, other.processor_time),
            (&mut self.memory_used, other.memory_used),
        ];
        for (sum, more) in pairs {
            *sum = [*sum, more].into_iter().flatten().reduce(u64::saturating_add);
        }
    }
}

/// A line's worth of counters: a rank, or the rest of a job's ranks.
#[derive(Debug)]
struct Row {
    job: String,
    rank: String,
    /// Ranks in it that wait with nothing else to do.
    idle: u64,
    /// By place in [`NAMES`].
    counters: Vec<u64>,
}

impl NodeMetrics {
    pub(super) fn new(
        (cluster, show): (String, ShowOthers),
        services: &Rc<NodeServices>,
        shared: &Shared,
        sampler: &Rc<RefCell<Sampler>>,
    ) -> Self {
        let (services, sampler) = (Rc::clone(services), Rc::clone(sampler));
        Self { cluster, show, services, shared: shared.clone(), sampler }
    }

    fn rows(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        let mut unseen = Vec::new();
        for (job, live) in &*self.services.live.borrow() {
            let all = (live.first..).zip(0..live.load.len()).map(|(rank, local)| {
                let sample = live.segment.sample(local);
                let counters = sample.counters.iter().map(|&(_, value)| value).collect();
                (rank, u64::from(sample.idle), counters)
            });
            if self.show == ShowOthers::Nothing {
                unseen.extend(all);
                continue;
            }
            let room = MOST_RANKS.saturating_sub(rows.len()).min(MOST_RANKS_OF_JOB);
            rows.extend(rows_of(&job.to_string(), all, room));
        }
        // Sums stay right.
        rows.extend(rows_of("others", unseen.into_iter(), 0));
        rows
    }

    fn node(&self, page: &mut MetricsPage) {
        let node = self.services.node.to_string();
        let version = env!("CARGO_PKG_VERSION");
        page.family("node_info", MetricKind::Gauge, "The node, 1.");
        let labels = [("cluster", &*self.cluster), ("node", &*node), ("version", version)];
        page.sample(&labels, 1);
        page.family("processors", MetricKind::Gauge, "Processors that ranks may use.");
        page.sample(&[], self.services.cpus.len());
        page.family(
            "control_messages",
            MetricKind::Counter,
            "Control messages sent and received by the daemon.",
        );
        page.sample(&[], self.shared.traffic.counts().total());
        page.family("refused", MetricKind::Counter, "What the control plane dropped or refused.");
        for (reason, count) in self.shared.refusals.snapshot() {
            page.sample(&[("reason", &reason)], count);
        }
        let live = self.services.live.borrow();
        page.family("jobs", MetricKind::Gauge, "Jobs with ranks on the node.");
        page.sample(&[], live.len());
        if self.show == ShowOthers::Nothing {
            return;
        }
        page.family("job_info", MetricKind::Gauge, "A job's name, 1.");
        for (job, live) in &*live {
            let name = if self.show == ShowOthers::All { &*live.name } else { "-" };
            page.sample(&[("job", &job.to_string()), ("name", name)], 1);
        }
        page.family("job_ranks", MetricKind::Gauge, "A job's ranks on the node.");
        for (job, live) in &*live {
            page.sample(&[("job", &job.to_string())], live.load.len());
        }
    }

    /// What each job has and uses; where users do not see others' jobs, that of all together.
    fn job_figures(&self) -> Vec<(String, JobFigures)> {
        let live = self.services.live.borrow();
        let all = live.iter().map(|(job, live)| (job.to_string(), JobFigures::of(live)));
        if self.show != ShowOthers::Nothing {
            return all.collect();
        }
        let mut sum = JobFigures::default();
        all.for_each(|(_, figures)| sum.add(&figures));
        vec![("others".to_owned(), sum)]
    }

    fn switching(&self, page: &mut MetricsPage) {
        let (switches, [took, late]) = self.sampler.borrow().switches(&self.services);
        page.family("switches", MetricKind::Counter, "Switches between jobs.");
        page.sample(&[], switches.count);
        page.family(
            "missed_ticks",
            MetricKind::Counter,
            "Ticks of the timetable that were not kept.",
        );
        page.sample(&[], switches.missed_ticks);
        page.family(
            "switch_failures",
            MetricKind::Counter,
            "Jobs that could not be stopped or continued.",
        );
        page.sample(&[], self.services.switcher.ring().failures());
        summary(page, "switch_seconds", "Time that a switch took.", &switches.total, took);
        let help = "How far behind the timetable a switch began.";
        summary(page, "switch_lateness_seconds", help, &switches.lateness, late);
    }

    /// Writes all metrics as they are now.
    pub(super) fn write(&self, page: &mut MetricsPage) {
        self.node(page);
        process_metrics::write(page, "daemon");
        shares(page, &self.job_figures());
        self.switching(page);
        ranks(page, &self.rows());
    }
}

fn shares(page: &mut MetricsPage, jobs: &[(String, JobFigures)]) {
    let mut family = |name, kind, help, value: &dyn Fn(&JobFigures) -> Option<f64>| {
        page.family(name, kind, help);
        for (job, figures) in jobs {
            if let Some(value) = value(figures) {
                page.sample(&[("job", job)], value);
            }
        }
    };
    let gauge = MetricKind::Gauge;
    family("job_processors", gauge, "Processors that a job has at least in its turns.", &|job| {
        Some(job.share.processors as f64)
    });
    family("job_memory_reserved_bytes", gauge, "Memory that is reserved for a job.", &|job| {
        Some(job.share.memory as f64)
    });
    family("job_processor_seconds", MetricKind::Counter, "Processor time of a job.", &|job| {
        job.processor_time.map(|nanos| nanos as f64 / 1e9)
    });
    let help = "Memory that a job uses, with files that are in memory for it.";
    family("job_memory_bytes", gauge, help, &|job| job.memory_used.map(|bytes| bytes as f64));
}

/// The rows of a job: one for each of the first `room` ranks, one for all others.
fn rows_of(job: &str, all: impl Iterator<Item = (u32, u64, Vec<u64>)>, room: usize) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for (index, (rank, idle, counters)) in all.enumerate() {
        if index <= room {
            let rank = if index < room { rank.to_string() } else { "others".to_owned() };
            rows.push(Row { job: job.to_owned(), rank, idle, counters });
        } else if let Some(others) = rows.last_mut() {
            others.idle += idle;
            for (sum, value) in others.counters.iter_mut().zip(counters) {
                // Ranks write what they like there.
                *sum = sum.saturating_add(value);
            }
        }
    }
    rows
}

fn ranks(page: &mut MetricsPage, rows: &[Row]) {
    page.family("rank_idle", MetricKind::Gauge, "Ranks that wait with nothing else to do.");
    for row in rows {
        page.sample(&[("job", &row.job), ("rank", &row.rank)], row.idle);
    }
    for (place, name) in NAMES.iter().enumerate() {
        let kind = if is_level(name) { MetricKind::Gauge } else { MetricKind::Counter };
        page.family(
            &format!("rank_{name}"),
            kind,
            "Of the rank's channel; see docs/guide/administering.md.",
        );
        for row in rows {
            // Round trips do not add up.
            if *name == "round_trip_us" && row.rank == "others" {
                continue;
            }
            let value = row.counters.get(place).copied().unwrap_or(0);
            page.sample(&[("job", &row.job), ("rank", &row.rank)], value);
        }
    }
}

fn summary(page: &mut MetricsPage, name: &str, help: &str, values: &Percentiles, sum: u64) {
    let seconds = |nanos: u64| nanos as f64 / 1e9;
    page.family(name, MetricKind::Summary, help);
    for (quantile, value) in [("0.5", values.p50), ("0.9", values.p90), ("0.99", values.p99)] {
        page.sample(&[("quantile", quantile)], seconds(value));
    }
    page.sample_of("_sum", &[], seconds(sum));
    page.sample_of("_count", &[], values.count);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_added_up() {
        let job = |processors, memory, processor_time, memory_used| JobFigures {
            share: JobShare { processors, memory },
            processor_time,
            memory_used,
        };
        let mut sum = JobFigures::default();
        sum.add(&job(2, 5, Some(7), None));
        assert_eq!(sum, job(2, 5, Some(7), None), "nobody counts memory");
        sum.add(&job(1, 0, None, Some(3)));
        sum.add(&job(4, 1, Some(1), Some(4)));
        assert_eq!(sum, job(7, 6, Some(8), Some(7)));
    }

    #[test]
    fn ranks_beyond_the_bound_are_added_up() {
        let all = (0..5).map(|rank| (rank, u64::from(rank % 2), vec![10, u64::MAX - 1]));
        let rows = rows_of("3", all.clone(), 3);
        let shown: Vec<_> =
            rows.iter().map(|row| (&*row.rank, row.idle, row.counters[0])).collect();
        assert_eq!(shown, [("0", 0, 10), ("1", 1, 10), ("2", 0, 10), ("others", 1, 20)]);
        assert_eq!(rows[3].counters[1], u64::MAX);
        assert_eq!(rows_of("3", all.clone(), 5).len(), 5);
        assert_eq!(rows_of("3", all, 0)[0].counters[0], 50);
    }
}
