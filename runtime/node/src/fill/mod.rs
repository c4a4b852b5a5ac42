//! Gangs that fill: jobs that have what others leave idle in their turns.
//!
//! Whoever's turn it is has the processors first. What it leaves goes to jobs that may fill, at idle priority. For each job the
//! daemon decides by measurement whether others run beside it ([`FillDecision`]); the switching thread carries it out.

mod decision;
mod threads;

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use kumi_sched::{JobId, Mode, Timetable};
use tokio::time::Instant;

use crate::cgroup::JobGroups;
use crate::clock::monotonic;
use crate::job::{LiveJob, NodeServices};
use crate::switch::{SliceMeasure, Switcher};

pub use decision::{FillDecision, Filling, Reason};
pub use threads::{JobThread, JobThreads, MOST_THREADS, ThreadNews, permitted};

/// Between two looks at what was measured.
const INTERVAL: Duration = Duration::from_millis(100);
/// Slices that wait to be looked at; more are forgotten.
const WAITING: usize = 256;

/// The way of measurements from the switching thread, which never waits.
pub fn measurements() -> (SyncSender<SliceMeasure>, Receiver<SliceMeasure>) {
    sync_channel(WAITING)
}

/// Decides for all jobs of the node.
#[derive(Debug)]
pub(crate) struct FillMonitor {
    measured: Receiver<SliceMeasure>,
    processors: u32,
    /// The cluster's setting, for jobs that say nothing.
    wanted: bool,
    next: Instant,
    /// Nanoseconds in which jobs could fill: pauses do not pass while nobody may.
    time: u64,
    looked: u64,
    jobs: BTreeMap<JobId, WatchedJob>,
}

/// What is decided of a job, and what the switching thread was told.
#[derive(Debug)]
struct WatchedJob {
    decision: FillDecision,
    filling: Filling,
    may_fill: bool,
    threads: JobThreads,
    /// It has too many threads, or some that nobody may put behind others.
    unfit: bool,
}

impl FillMonitor {
    /// For a node with so many processors, where slices are measured that come here.
    pub(crate) fn new(measured: Receiver<SliceMeasure>, processors: usize) -> Self {
        Self {
            measured,
            processors: u32::try_from(processors).unwrap_or(u32::MAX),
            wanted: false,
            next: Instant::now(),
            time: 0,
            looked: monotonic(),
            jobs: BTreeMap::new(),
        }
    }

    /// The timetable by which jobs run, almost from now on.
    pub(crate) fn set_timetable(&mut self, services: &NodeServices, timetable: &Timetable) {
        self.wanted = matches!(timetable.mode, Mode::Gang { fill: true, .. });
        self.look(services);
    }

    /// Time of the next look.
    pub(crate) fn due(&self) -> Instant {
        self.next
    }

    /// Takes what was measured, decides, and tells the switching thread what is new.
    pub(crate) fn look(&mut self, services: &NodeServices) {
        self.next = Instant::now() + INTERVAL;
        for slice in self.measured.try_iter() {
            if let Some(watched) = self.jobs.get_mut(&slice.job) {
                watched.decision.take(&slice);
            }
        }
        let (looked, now) = (self.looked, monotonic());
        if self.jobs.values().any(|watched| watched.may_fill) {
            self.time = self.time.saturating_add(now.saturating_sub(looked));
        }
        self.looked = now;
        let live = services.live.borrow();
        let mut before = std::mem::take(&mut self.jobs);
        let several = live.values().filter(|live| live.started).count() > 1;
        for (&job, live) in live.iter().filter(|(_, live)| live.started) {
            let watched = before.remove(&job);
            let place = (self.processors, self.time);
            let mut watched = watched.unwrap_or_else(|| WatchedJob::new(place, live));
            let wanted = live.may_fill && live.fill.unwrap_or(self.wanted);
            watched.look(&services.switcher, (job, live), wanted && several, self.time);
            self.jobs.insert(job, watched);
        }
    }
}

impl WatchedJob {
    fn new((processors, now): (u32, u64), live: &LiveJob) -> Self {
        Self {
            decision: FillDecision::new(processors, now),
            filling: Filling::Off,
            may_fill: false,
            threads: JobThreads::new(&live.leaders()),
            unfit: false,
        }
    }

    fn look(
        &mut self,
        switcher: &Switcher,
        (job, live): (JobId, &LiveJob),
        wanted: bool,
        now: u64,
    ) {
        if wanted {
            match self.threads.refresh(live.control.as_ref().map(JobGroups::main), &live.leaders())
            {
                ThreadNews::Same => {}
                ThreadNews::Changed(threads) => switcher.set_threads(job, threads),
                ThreadNews::TooMany => self.unfit = true,
            }
        }
        let may_fill = wanted && !self.unfit && !live.turns.unfit();
        if std::mem::replace(&mut self.may_fill, may_fill) != may_fill {
            switcher.set_may_fill(job, may_fill);
        }
        let filling = self.decision.decide(now);
        if std::mem::replace(&mut self.filling, filling) != filling {
            let (reason, found) = (self.decision.reason(), self.decision.findings());
            tracing::debug!(%job, ?filling, ?reason, ?found, "others in its turns");
            switcher.set_filling(job, filling);
        }
    }
}
