//! Monitor of idle jobs: finds the jobs that have nothing to do on this node.
//!
//! Ranks in a wait of the library say so in their contexts; of all others the processor time of their threads tells. Looks
//! are taken off the switching thread's path, ten times a second and with a hundredth of a processor at most. A stopped job
//! uses no time because it is stopped, so what counts are its turns: it must have had some and used nothing of them.

mod blocked;
mod detector;
mod observer;
mod syscalls;
mod thread_times;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kumi_net::segment::RankActivity;
use kumi_sched::{JobId, Mode, Timetable};
use tokio::time::Instant;

use crate::clock::monotonic;
use crate::job::{LiveJob, NodeServices, ProcessTable};
use detector::{Activity, IdleAllowance, IdleDetector};
use observer::Observer;
use thread_times::ThreadTimes;

/// Time between observations.
const INTERVAL: Duration = Duration::from_millis(100);
/// Observations may take one part in so many of a processor's time.
const SHARE: u32 = 100;
/// How often the system's process table is read where jobs have no control groups.
const TABLE: Duration = Duration::from_secs(1);
/// Shortest and longest time after which a job counts as idle, in milliseconds.
const RANGE_MS: std::ops::RangeInclusive<u64> = 100..=3_600_000;

/// After which a job counts as idle unless the configuration says otherwise, in milliseconds.
pub fn default_ms() -> u64 {
    1_000
}

/// Checks the time after which jobs count as idle; 0 is never.
///
/// # Errors
/// A sentence that gives the permitted values.
pub fn check_ms(milliseconds: u64) -> Result<(), String> {
    if milliseconds == 0 || RANGE_MS.contains(&milliseconds) {
        return Ok(());
    }
    let (low, high) = (RANGE_MS.start(), RANGE_MS.end());
    Err(format!("idle_after_ms is {milliseconds}, which is neither 0 nor between {low} and {high}"))
}

/// Monitor of the node's jobs.
#[derive(Debug)]
pub(crate) struct IdleMonitor {
    /// Nanoseconds; 0: never.
    after: u64,
    gang: bool,
    slice_ns: u64,
    next: Instant,
    watches: BTreeMap<JobId, WatchedJob>,
    observer: RefCell<Observer>,
    /// Of the system, where there is a job without a control group, and when it was read.
    table: Option<(Instant, ProcessTable)>,
}

/// State of a job between observations.
#[derive(Debug)]
struct WatchedJob {
    detector: IdleDetector,
    at: u64,
    turns: u64,
    on: bool,
    idle: bool,
    standings: Vec<RankActivity>,
    /// Processor time of all that is or was in its control group, nanoseconds.
    used: Option<u64>,
    thread_times: ThreadTimes,
}

impl IdleMonitor {
    /// Jobs count as idle after so many milliseconds; 0: never.
    pub(crate) fn new(after_ms: u64) -> Self {
        Self {
            after: after_ms.saturating_mul(1_000_000),
            gang: true,
            slice_ns: 0,
            next: Instant::now(),
            watches: BTreeMap::new(),
            observer: Observer::new(syscalls::some_works).into(),
            table: None,
        }
    }

    /// The timetable by which jobs run, almost from now on: those outside the rotation are told.
    pub(crate) fn set_timetable(&mut self, services: &NodeServices, timetable: &Timetable) {
        self.gang = matches!(timetable.mode, Mode::Gang { .. });
        self.slice_ns = timetable.slice_ns;
        for (job, live) in services.live.borrow_mut().iter_mut() {
            live.idle = self.gang && timetable.idle.binary_search(job).is_ok();
            if let Some(page) = &live.page {
                page.set_idle(live.idle);
            }
        }
    }

    /// Time of the next observation.
    pub(crate) fn due(&self) -> Instant {
        self.next
    }

    /// Observes all jobs. Returns those that have become idle (`true`) or busy again.
    pub(crate) fn look(&mut self, services: &NodeServices) -> Vec<(JobId, bool)> {
        let begin = Instant::now();
        let live = services.live.borrow();
        let mut before = std::mem::take(&mut self.watches);
        let mut changes = Vec::new();
        if self.after > 0 && self.gang {
            self.read_table(&live, begin);
            for (&job, live) in live.iter().filter(|(_, live)| live.started) {
                let on = live.idle || live.turns.has_turn();
                let (runs, slice_ns) = (live.runs(), self.slice_ns);
                let look = Observation { now: monotonic(), on, runs, slice_ns };
                let watch = before.remove(&job);
                let mut watch = watch.unwrap_or_else(|| WatchedJob::new(self.after, &look, live));
                let processes = || self.processes(services, job, live);
                let works = |exempt: &BTreeSet<i32>| {
                    self.observer.borrow_mut().some_works(job, processes(), exempt)
                };
                if let Some(idle) = watch.look(&look, live, &processes, &works) {
                    changes.push((job, idle));
                }
                self.watches.insert(job, watch);
            }
        } else {
            let idle = before.into_iter().filter(|(_, watch)| watch.detector.is_idle());
            changes.extend(idle.map(|(job, _)| (job, false)));
        }
        self.next = begin + INTERVAL.max(begin.elapsed() * SHARE);
        changes
    }

    fn read_table(&mut self, live: &BTreeMap<JobId, LiveJob>, now: Instant) {
        if live.values().all(|live| live.control.is_some()) {
            self.table = None;
        } else if self.table.as_ref().is_none_or(|(read, _)| now.duration_since(*read) >= TABLE) {
            self.table = Some((now, ProcessTable::read()));
        }
    }

    /// The processes of a job, as far as they are known.
    pub(crate) fn processes(
        &self,
        services: &NodeServices,
        job: JobId,
        live: &LiveJob,
    ) -> BTreeSet<i32> {
        let ranks = live.leaders();
        let listed = live.control.as_ref().and_then(|groups| groups.main().processes().ok());
        let mut all = listed.unwrap_or_else(|| match &self.table {
            Some((_, table)) => {
                let live = services.live.borrow();
                let known: BTreeSet<i32> = live.values().flat_map(LiveJob::leaders).collect();
                let keeper = services.kept.borrow().get(&job).map(|kept| kept.link.pid);
                table.of(job, &ranks, &known, keeper)
            }
            None => BTreeSet::new(),
        });
        all.extend(ranks.iter().filter(|&&rank| rank > 0));
        all
    }
}

/// Time and circumstances of an observation.
struct Observation {
    now: u64,
    /// It is the job's turn, or it has left the rotation.
    on: bool,
    /// It is not stopped.
    runs: bool,
    slice_ns: u64,
}

impl WatchedJob {
    fn new(after: u64, look: &Observation, live: &LiveJob) -> Self {
        Self {
            detector: IdleDetector::new(after, look.now),
            at: look.now,
            turns: live.turns.begun(),
            on: false,
            idle: false,
            standings: Vec::new(),
            used: None,
            thread_times: ThreadTimes::default(),
        }
    }

    /// Observes the job. Returns whether it is idle, if that has changed.
    fn look(
        &mut self,
        look: &Observation,
        live: &LiveJob,
        processes: &dyn Fn() -> BTreeSet<i32>,
        works: &dyn Fn(&BTreeSet<i32>) -> bool,
    ) -> Option<bool> {
        let turns = live.turns.begun();
        let begun = turns.saturating_sub(self.turns);
        let throughout = begun == 0 && self.on && look.on;
        let allowance = IdleAllowance::new(look.now.saturating_sub(self.at), begun, look.slice_ns);
        let standings: Vec<RankActivity> =
            (0..live.load.len()).map(|local| live.segment.rank_activity(local)).collect();
        let exempt = self.spinning(live, &standings);
        let pending = standings.iter().any(|standing| standing.pending);
        let mut doing = self.doing(&allowance, live, &exempt, processes);
        if pending && doing == Activity::None {
            doing = Activity::Slight;
        }
        (self.at, self.turns, self.on) = (look.now, turns, look.on);
        (self.idle, self.standings) = (live.idle, standings);
        // What threads of a stopped job would do cannot be seen.
        let ready = || look.runs && works(&exempt);
        self.detector.look(look.now, (begun, throughout), doing, ready)
    }

    /// The first threads of ranks that have been in the same wait since the last look: whatever they do is waiting. Of a
    /// job outside the rotation waits do not spin, so there nobody is believed.
    fn spinning(&self, live: &LiveJob, standings: &[RankActivity]) -> BTreeSet<i32> {
        if live.idle && self.idle {
            return BTreeSet::new();
        }
        let ranks = live.leaders().into_iter().zip(self.standings.iter().zip(standings));
        let waits = ranks.filter(|(_, (before, now))| now.waits && before == now);
        waits.map(|(rank, _)| rank).filter(|&rank| rank > 0).collect()
    }

    /// Activity of its threads, those in `exempt` aside.
    fn doing(
        &mut self,
        allowance: &IdleAllowance,
        live: &LiveJob,
        exempt: &BTreeSet<i32>,
        processes: &dyn Fn() -> BTreeSet<i32>,
    ) -> Activity {
        let used = live.control.as_ref().and_then(|groups| groups.main().processor_time().ok());
        let before = std::mem::replace(&mut self.used, used);
        let grown = used.zip(before).map(|(used, before)| used.saturating_sub(before));
        if grown.is_some_and(|grown| self.thread_times.may_skip(allowance, grown)) {
            return Activity::None;
        }
        self.thread_times.look(allowance, exempt, grown, processes)
    }
}
