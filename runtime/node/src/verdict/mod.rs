//! Verdicts: reads what the ranks of each job wait for, and tells the agent when that settles.
//!
//! Looks are taken off the switching thread's path, as those of idle detection. A look reads a few words of each rank. The
//! threads of a job are looked at only when its ranks wait as they did a look ago, and only while the job is not frozen: what a
//! frozen thread would do cannot be seen.

mod threads;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kumi_net::segment::Segment;
use kumi_sched::JobId;
use kumi_verdict::{FINAL_ROUND, NodeReading, NodeWatch, RankReading, Standing};
use tokio::time::Instant;

use crate::idle::IdleMonitor;
use crate::job::{LiveJob, NodeServices};

/// Time between looks, and between looks for the next turn of a job whose threads are to be looked at.
const INTERVAL: Duration = Duration::from_millis(100);
const SHORT_INTERVAL: Duration = Duration::from_millis(10);
/// Looks may take one part in so many of a processor's time.
const SHARE: u32 = 100;

/// Readings of the node's jobs.
#[derive(Debug)]
pub(crate) struct VerdictMonitor {
    next: Instant,
    jobs: BTreeMap<JobId, WatchedJob>,
}

/// A job between looks.
#[derive(Debug, Default)]
struct WatchedJob {
    watch: NodeWatch,
    /// What the ranks said at the latest look.
    last: Vec<RankReading>,
    /// The head has asked, and there was no answer yet.
    asked: bool,
}

/// What came of a look at a job.
enum Look {
    Tell(Standing),
    Nothing,
    /// Its threads are to be looked at when it runs.
    Later,
}

impl VerdictMonitor {
    pub(crate) fn new() -> Self {
        Self { next: Instant::now(), jobs: BTreeMap::new() }
    }

    /// Time of the next look.
    pub(crate) fn due(&self) -> Instant {
        self.next
    }

    /// The head begins a round for a job: it is read as soon as possible.
    pub(crate) fn confirm(&mut self, job: JobId, round: u64) {
        if let Some(watched) = self.jobs.get_mut(&job) {
            watched.watch.confirm(round);
            watched.asked = true;
            self.next = Instant::now();
        }
    }

    /// Reads all jobs. Returns what is to be told.
    pub(crate) fn look(
        &mut self,
        services: &NodeServices,
        idle: &IdleMonitor,
    ) -> Vec<(JobId, Standing)> {
        let begin = Instant::now();
        let mut before = std::mem::take(&mut self.jobs);
        let mut told = Vec::new();
        let mut interval = INTERVAL;
        for (&job, live) in services.live.borrow().iter().filter(|(_, live)| live.started) {
            let mut watched = before.remove(&job).unwrap_or_default();
            match watched.look(live, &|| idle.processes(services, job, live)) {
                Look::Tell(standing) => told.push((job, standing)),
                Look::Nothing => {}
                Look::Later => interval = SHORT_INTERVAL,
            }
            self.jobs.insert(job, watched);
        }
        self.next = begin + interval.max(begin.elapsed() * SHARE);
        told
    }
}

impl WatchedJob {
    fn look(&mut self, live: &LiveJob, processes: &dyn Fn() -> BTreeSet<i32>) -> Look {
        let ranks = read_ranks(live);
        let mut reading = NodeReading { ranks, ..NodeReading::default() };
        let same = reading.ranks == self.last;
        self.last.clone_from(&reading.ranks);
        let unknown = !self.watch.is_settled() || self.asked;
        if reading.is_quiet() && !reading.is_over() && same && unknown {
            if !live.runs() || live.stopped {
                return Look::Later;
            }
            let turns = live.turns.begun();
            reading.outside = threads::act_outside(&processes(), &reading.ranks);
            if !live.runs() || live.turns.begun() != turns {
                return Look::Later;
            }
        }
        self.asked &= !reading.is_quiet() || !same;
        self.watch.read(reading).map_or(Look::Nothing, Look::Tell)
    }
}

/// What the ranks of a job here say, and whether their processes are there.
fn read_ranks(live: &LiveJob) -> Vec<RankReading> {
    let leaders = live.leaders().into_iter().enumerate();
    let read = |(local, leader): (usize, i32)| {
        let mut reading = live.segment.rank_reading(local)?;
        reading.over |= leader == 0;
        Some(reading)
    };
    leaders.filter_map(read).collect()
}

/// The standing of a node on which all ranks of a job are over.
pub(crate) fn last_standing(segment: &Segment, ranks: usize) -> Standing {
    let over = |reading: RankReading| RankReading { over: true, ..reading };
    let ranks = (0..ranks).filter_map(|local| segment.rank_reading(local).map(over)).collect();
    let reading = NodeReading { ranks, ..NodeReading::default() };
    Standing::Settled(reading.summary(FINAL_ROUND, true))
}
