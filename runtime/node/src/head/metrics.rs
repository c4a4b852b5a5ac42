//! Metrics of the head for Prometheus: jobs and nodes by state, the timetable, refusals, the spool.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use kumi_control::head::Head;
use kumi_control::message::JobState;
use kumi_metrics::{MetricKind, MetricsPage, Page};
use tokio::net::TcpListener;

use super::Shared;
use super::state::StateRefusal;
use crate::process_metrics;

/// Counters of the main loop.
#[derive(Debug, Default)]
pub(super) struct HeadCounters {
    /// Jobs that were asked for and not taken.
    pub(super) submissions_refused: Cell<u64>,
    /// Bytes of all jobs' kept output.
    pub(super) spool_bytes: Cell<u64>,
    /// Output of jobs that could not be kept.
    pub(super) spool_failures: Cell<u64>,
    /// Records that wait to be written.
    pub(super) unwritten: Cell<usize>,
    /// Why etcd refuses records, if it does.
    pub(super) state_refusal: StateRefusal,
    /// Connections of clients.
    pub(super) clients: Cell<usize>,
}

/// Source of the head's metrics.
struct HeadMetrics {
    shared: Shared,
    /// Borrowed by the main loop while it handles an event, which it does without waiting.
    head: Rc<RefCell<Head>>,
    counts: Rc<HeadCounters>,
}

/// Answers Prometheus at this listener, if there is one.
pub(super) fn serve_figures(
    listener: Option<TcpListener>,
    shared: &Shared,
    head: &Rc<RefCell<Head>>,
    counts: &Rc<HeadCounters>,
) {
    let Some(listener) = listener else { return };
    let (shared, head, counts) = (shared.clone(), Rc::clone(head), Rc::clone(counts));
    let source = HeadMetrics { shared, head, counts };
    let page = Page::metrics(move |page| source.write(page));
    tokio::task::spawn_local(kumi_metrics::serve(listener, vec![page]));
}

/// States as `kumi ps` calls them.
const STATES: [&str; 5] = ["queued", "starting", "running", "ending", "ended"];

fn place(state: &JobState) -> usize {
    match state {
        JobState::Queued => 0,
        JobState::Preparing => 1,
        JobState::Running => 2,
        JobState::Ending(_) => 3,
        JobState::Ended(_) => 4,
    }
}

impl HeadMetrics {
    fn jobs(&self, page: &mut MetricsPage) {
        let head = self.head.borrow();
        let (mut jobs, mut ranks) = ([0u64; 5], [0u64; 5]);
        for record in head.records() {
            let place = place(&record.state);
            jobs[place] += 1;
            ranks[place] += u64::from(record.spec.request.ranks);
        }
        page.family("head_jobs", MetricKind::Gauge, "Jobs in the head's table.");
        for (state, count) in STATES.iter().zip(jobs) {
            page.sample(&[("state", state)], count);
        }
        page.family("head_job_ranks", MetricKind::Gauge, "Ranks of the jobs that are not over.");
        for (state, count) in STATES.iter().zip(ranks).take(4) {
            page.sample(&[("state", state)], count);
        }
        let config = self.shared.config.get();
        let up = config.members().filter(|(node, _)| head.is_up(*node)).count();
        page.family("head_nodes", MetricKind::Gauge, "Nodes of the cluster.");
        page.sample(&[("state", "up")], up);
        page.sample(&[("state", "down")], config.members().count() - up);
        let all = head.cluster_use();
        page.family("head_processors", MetricKind::Gauge, "Processors of the nodes that are up.");
        page.sample(&[("state", "taken")], all.processors_taken);
        page.sample(&[("state", "free")], all.processors - all.processors_taken);
        page.family("head_memory_bytes", MetricKind::Gauge, "Memory of the nodes that are up.");
        page.sample(&[("state", "reserved")], all.memory_taken);
        page.sample(&[("state", "free")], all.memory - all.memory_taken);
        let timetable = head.timetable();
        page.family(
            "head_timetable_generation",
            MetricKind::Gauge,
            "Number of the timetable in force.",
        );
        page.sample(&[], timetable.generation);
        page.family("head_timetable_slots", MetricKind::Gauge, "Slots after which it repeats.");
        page.sample(&[], timetable.cycle());
        page.family("head_slice_seconds", MetricKind::Gauge, "Length of a slice.");
        page.sample(&[], timetable.slice_ns as f64 / 1e9);
    }

    /// Writes all metrics as they are now.
    fn write(&self, page: &mut MetricsPage) {
        page.family("head_info", MetricKind::Gauge, "The head, 1.");
        let version = env!("CARGO_PKG_VERSION");
        page.sample(&[("cluster", &self.shared.config.get().name), ("version", version)], 1);
        process_metrics::write(page, "head_daemon");
        self.jobs(page);
        let counts = &self.counts;
        page.family(
            "head_submissions_refused",
            MetricKind::Counter,
            "Jobs that were asked for and not taken.",
        );
        page.sample(&[], counts.submissions_refused.get());
        page.family("head_spool_bytes", MetricKind::Gauge, "Output of jobs that is kept.");
        page.sample(&[], counts.spool_bytes.get());
        page.family("head_spool_failures", MetricKind::Counter, "Output that could not be kept.");
        page.sample(&[], counts.spool_failures.get());
        page.family(
            "head_records_unwritten",
            MetricKind::Gauge,
            "Jobs whose record waits for the disk.",
        );
        page.sample(&[], counts.unwritten.get());
        page.family(
            "head_state_refused",
            MetricKind::Gauge,
            "Whether etcd refuses records until it is mended.",
        );
        page.sample(&[], u8::from(counts.state_refusal.get().is_some()));
        page.family("head_clients", MetricKind::Gauge, "Connections of clients.");
        page.sample(&[], counts.clients.get());
        let messages = self.shared.traffic.counts().total();
        page.family("head_control_messages", MetricKind::Counter, "Control messages of the head.");
        page.sample(&[], messages);
        page.family(
            "head_refused",
            MetricKind::Counter,
            "What the control plane dropped or refused.",
        );
        for (reason, count) in self.shared.refusals.snapshot() {
            page.sample(&[("reason", &reason)], count);
        }
    }
}
