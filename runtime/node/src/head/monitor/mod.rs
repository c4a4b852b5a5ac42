//! The monitor: asks nodes for the load of their ranks, makes pictures for browsers, and keeps history.
//!
//! It asks several times a second while somebody watches, each second while jobs run, and otherwise every ten seconds. One
//! request is under way at a time, and a slow node makes pictures rare, not many.

mod history;
mod keeper;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use kumi_control::head::{ClientId, Head};
use kumi_control::message::{ClientRequest, JobRecord, LoadSample, NodeSample, SliceBegin, User};
use kumi_monitor::tracker::{JobCounts, LoadTracker, per_cent};
use kumi_monitor::{JobRow, NodeCell, Row};
use kumi_sched::NodeId;
use kumi_web::picture::{JobPicture, NodePicture, SlicePicture};
use kumi_web::{Picture, Watchers};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::clock::{monotonic, wall_ms};
use crate::config::ClusterConfig;
use history::HistoryWriter;

/// The monitor among the clients of the state machine: no connection has this number.
pub(super) const MONITOR: ClientId = ClientId(0);
/// The monitor sees everything; pictures are cut for who sees them.
pub(super) const MONITOR_USER: User = User { uid: 0, gid: 0, name: String::new() };

/// Between requests while somebody watches.
const WATCHED: Duration = Duration::from_millis(160);
/// Between requests while jobs run.
const RUNNING: Duration = Duration::from_secs(1);
/// Between requests otherwise.
const QUIET: Duration = Duration::from_secs(10);
/// Between counts of the queue.
const COUNT: Duration = Duration::from_secs(1);

/// A node's switches as of its last answer.
#[derive(Clone, Copy, Debug)]
struct Switches {
    at: Instant,
    count: u64,
    nanos: u64,
}

/// What the monitor knows.
#[derive(Debug)]
pub(super) struct Monitor {
    config: Arc<ClusterConfig>,
    tracker: LoadTracker,
    switches: BTreeMap<NodeId, Switches>,
    pictures: watch::Sender<Arc<Picture>>,
    watchers: Arc<Watchers>,
    history: Option<HistoryWriter>,
    number: u64,
    queued: (Instant, usize),
    /// When the last request went out, and whether it is under way.
    asked: (Instant, bool),
    next: Instant,
}

impl Monitor {
    /// A monitor that keeps history in the file at `history`, if it can.
    pub(super) fn new(config: &Arc<ClusterConfig>, history: &Path) -> Self {
        let now = Instant::now();
        Self {
            config: Arc::clone(config),
            tracker: LoadTracker::default(),
            switches: BTreeMap::new(),
            pictures: watch::Sender::new(Arc::default()),
            watchers: Arc::default(),
            history: HistoryWriter::start(history, config.node_count()),
            number: 0,
            queued: (now, 0),
            asked: (now, false),
            next: now,
        }
    }

    /// The pictures.
    pub(super) fn pictures(&self) -> watch::Receiver<Arc<Picture>> {
        self.pictures.subscribe()
    }

    /// The counts of those who watch.
    pub(super) fn watchers(&self) -> Arc<Watchers> {
        Arc::clone(&self.watchers)
    }

    /// Whether there is history.
    pub(super) fn has_history(&self) -> bool {
        self.history.is_some()
    }

    /// When to ask next; none while an answer is waited for.
    pub(super) fn due(&self) -> Option<Instant> {
        (!self.asked.1).then_some(self.next)
    }

    /// A job runs, of which the monitor may not have known.
    pub(super) fn job_runs(&mut self) {
        self.next = self.next.min(self.asked.0 + RUNNING);
    }

    /// Somebody has begun to watch.
    pub(super) fn hurry(&mut self) {
        self.next = self.next.min(self.asked.0 + WATCHED);
    }

    /// The request to the state machine, which answers it in a second or less.
    pub(super) fn ask(&mut self) -> ClientRequest {
        self.asked = (Instant::now(), true);
        ClientRequest::SampleLoad { slices: self.watchers.slices() }
    }

    /// The answer: samples of the nodes that answered in time.
    pub(super) fn answered(&mut self, samples: &[NodeSample], head: &Head) {
        self.asked.1 = false;
        let running: BTreeMap<u64, &JobRecord> =
            head.running().map(|record| (record.spec.job.0, record)).collect();
        let idle = head.idle();
        let interval = if self.watchers.any() {
            WATCHED
        } else if running.values().any(|record| !idle.contains(&record.spec.job)) {
            RUNNING
        } else {
            QUIET
        };
        self.next = self.asked.0 + interval;
        self.tracker.retain(|job| running.get(&job).map(|record| record.spec.request.ranks));
        for sample in samples {
            self.take_load(sample, &running);
        }
        let nodes: Vec<NodePicture> = (0..self.config.node_count())
            .map(|number| self.node(NodeId(number), samples, head))
            .collect();
        if let Some(history) = &mut self.history {
            history.add(row(&nodes, &running, &self.tracker));
        }
        if self.watchers.any() {
            self.publish(nodes, &running, head);
        }
    }

    /// Counts of the ranks that a node has by the job table.
    fn take_load(&mut self, sample: &NodeSample, running: &BTreeMap<u64, &JobRecord>) {
        for load in sample.load.iter().flat_map(|load| &load.jobs) {
            let Some(record) = running.get(&load.job.0) else { continue };
            let mut parts = record.spec.layout.iter();
            let own = parts.any(|part| {
                let count = usize::try_from(part.count).unwrap_or(usize::MAX);
                part.node == sample.node && part.first == load.first && load.busy.len() <= count
            });
            if own {
                let (job, turns, busy) = (load.job.0, load.turns, load.busy.clone());
                let counts = JobCounts { job, first: load.first, turns, busy };
                self.tracker.update(sample.node.0, record.spec.request.ranks, counts);
            }
        }
    }

    fn node(&mut self, node: NodeId, samples: &[NodeSample], head: &Head) -> NodePicture {
        let sample = samples.iter().find(|sample| sample.node == node);
        let load = sample.and_then(|sample| sample.load.as_ref());
        let mut picture = NodePicture {
            node: node.0,
            up: head.is_up(node),
            fresh: load.is_some(),
            ..NodePicture::default()
        };
        if let Some(load) = load {
            let [used, all] = load.machine.memory_kib;
            // Before its first measurement it says that it has no memory.
            if all > 0 {
                picture.busy = Some(per_cent(load.machine.busy_permille.into(), 1000));
                picture.memory = Some(per_cent(used, all));
            }
            picture.network = load.machine.network_bytes;
            (picture.switches, picture.switching) = self.switches_since(node, load);
            picture.slices = load.slices.iter().map(slice_picture).collect();
        }
        picture
    }

    /// Switches a second, and hundredths of a per cent of time that they took, since the node's last answer.
    fn switches_since(&mut self, node: NodeId, load: &LoadSample) -> (u32, u16) {
        let at = Instant::now();
        let now = Switches { at, count: load.switches, nanos: load.switch_ns };
        let Some(before) = self.switches.insert(node, now) else { return (0, 0) };
        let passed =
            u64::try_from(at.duration_since(before.at).as_nanos()).unwrap_or(u64::MAX).max(1);
        let rate = |more: u64, per: u128| u128::from(more) * per / u128::from(passed);
        let count = rate(now.count.saturating_sub(before.count), 1_000_000_000);
        let share = rate(now.nanos.saturating_sub(before.nanos), 10_000);
        (
            u32::try_from(count).unwrap_or(u32::MAX),
            u16::try_from(share.min(10_000)).unwrap_or(10_000),
        )
    }

    fn publish(
        &mut self,
        nodes: Vec<NodePicture>,
        running: &BTreeMap<u64, &JobRecord>,
        head: &Head,
    ) {
        let now = Instant::now();
        if self.number == 0 || now.duration_since(self.queued.0) >= COUNT {
            self.queued = (now, head.queued());
        }
        self.number += 1;
        let idle = head.idle();
        let shown = self.config.privacy.show_others;
        let picture = Picture {
            number: self.number,
            at_ms: wall_ms(),
            // The cluster's clock is that of the head's machine.
            cluster_us: monotonic() / 1_000,
            open: shown != crate::config::ShowOthers::Nothing,
            named: shown == crate::config::ShowOthers::All,
            owner_uid: self.config.owner_uid,
            nodes,
            jobs: running
                .values()
                .map(|record| job_picture(record, &idle, &self.tracker))
                .collect(),
            queued: self.queued.1,
            texts: Default::default(),
        };
        self.pictures.send_replace(Arc::new(picture));
    }

    /// Keeps what has come since the last row.
    pub(super) fn finish(&mut self) {
        if let Some(history) = self.history.take() {
            history.finish();
        }
    }
}

fn slice_picture(slice: &SliceBegin) -> SlicePicture {
    let jobs = slice.jobs.iter().map(|job| job.0).collect();
    SlicePicture { at_us: slice.at.0 / 1_000, jobs }
}

fn job_picture(
    record: &JobRecord,
    idle: &BTreeSet<kumi_sched::JobId>,
    tracker: &LoadTracker,
) -> JobPicture {
    let spec = &record.spec;
    JobPicture {
        job: spec.job.0,
        user: spec.user.clone(),
        name: spec.request.name.clone(),
        idle: idle.contains(&spec.job),
        parts: spec.layout.iter().map(|part| [part.node.0, part.first, part.count]).collect(),
        loads: tracker.loads(spec.job.0).to_vec(),
    }
}

/// A row of history of what is known now.
fn row(nodes: &[NodePicture], running: &BTreeMap<u64, &JobRecord>, tracker: &LoadTracker) -> Row {
    let cell = |node: &NodePicture| NodeCell {
        node: node.node,
        busy: node.busy.unwrap_or(kumi_monitor::UNKNOWN),
        memory: node.memory.unwrap_or(kumi_monitor::UNKNOWN),
        switching: node.switching,
        network_kib: u32::try_from(node.network >> 10).unwrap_or(u32::MAX),
    };
    let job = |(&job, record): (&u64, &&JobRecord)| JobRow {
        job,
        ranks: record.spec.request.ranks,
        loads: tracker.loads(job).to_vec(),
    };
    Row {
        at_s: wall_ms() / 1000,
        nodes: nodes.iter().filter(|node| node.fresh).map(cell).collect(),
        jobs: running.iter().map(job).collect(),
    }
}
