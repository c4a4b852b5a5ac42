//! What a job uses on this node: processor time of its turns and of its processes, and memory.
//!
//! A control group counts what all processes used that were ever in it. Where there is none, the ranks are looked at, each with
//! the processes that it has waited for, to the system's tick.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use kumi_control::agent::AgentEvent;
use kumi_control::message::PartUse;

use super::run::JobTask;
use crate::process_table::process_stat;

/// From one report to the next of a job that runs.
const INTERVAL: Duration = Duration::from_secs(60);

/// Processor time of ranks that have ended, in nanoseconds; none if that of one of them is not known.
#[derive(Clone, Debug)]
pub(super) struct EndedTime(Rc<Cell<Option<u64>>>);

impl Default for EndedTime {
    fn default() -> Self {
        Self(Rc::new(Cell::new(Some(0))))
    }
}

impl EndedTime {
    /// One more has ended, and used so much if that is known.
    pub(super) fn add(&self, used: Option<u64>) {
        let before = self.0.get();
        self.0.set(before.zip(used).map(|(before, used)| before.saturating_add(used)));
    }
}

/// What is needed to say what the job has used.
#[derive(Debug)]
pub(super) struct UseMeter {
    ended: EndedTime,
    told: Instant,
    /// Nanoseconds that turns lasted under former daemons.
    turns_before: u64,
}

impl Default for UseMeter {
    fn default() -> Self {
        Self { ended: EndedTime::default(), told: Instant::now(), turns_before: 0 }
    }
}

impl UseMeter {
    /// Turns of former daemons count, too.
    pub(super) fn begin_at(&mut self, turns: u64) {
        self.turns_before = turns;
    }

    /// Where ranks that end are counted.
    pub(super) fn ended(&self) -> EndedTime {
        self.ended.clone()
    }
}

impl JobTask {
    /// Tells what the job has used, if it runs and that was not told lately.
    pub(super) async fn tell_use_so_far(&mut self) {
        self.note_turns();
        if self.use_meter.told.elapsed() >= INTERVAL {
            self.tell_use().await;
        }
    }

    /// Tells what the job has used, if it was started.
    pub(super) async fn tell_use(&mut self) {
        self.use_meter.told = Instant::now();
        if let Some(used) = self.known_use().or_else(|| self.measured_use()) {
            self.services.tell(AgentEvent::Used { job: self.job, used }).await;
        }
    }

    /// For a later daemon, which cannot know.
    fn note_turns(&self) {
        let live = self.services.live.borrow();
        let Some((kept, live)) = self.kept.as_ref().zip(live.get(&self.job)) else { return };
        let turns = live.turns.lasted().saturating_add(self.use_meter.turns_before);
        if let Err(error) = kept.state.set_turns(turns) {
            tracing::error!(job = %self.job, %error, "a later daemon will not know the job's turns");
        }
    }

    /// What a former daemon measured when the job had ended.
    fn known_use(&self) -> Option<PartUse> {
        let used = self.kept.as_ref()?.state.used();
        let used = used.inspect_err(|error| {
            tracing::error!(job = %self.job, %error, "what a job has used is not known");
        });
        used.ok().flatten()
    }

    /// Measures for the last time, also for a later daemon, which could not.
    pub(super) async fn tell_last_use(&mut self) {
        if let Some(kept) = &self.kept
            && self.known_use().is_none()
            && let Some(used) = self.measured_use()
            && let Err(error) = kept.state.set_use(used)
        {
            tracing::error!(job = %self.job, %error, "a later daemon will not know what the job has used");
        }
        self.tell_use().await;
    }

    /// None before its start, and if the system does not say what was used: nobody is to take that for nothing.
    fn measured_use(&self) -> Option<PartUse> {
        let live = self.services.live.borrow();
        let live = live.get(&self.job).filter(|_| self.started)?;
        let lasted = live.turns.lasted().saturating_add(self.use_meter.turns_before);
        let turns = lasted.saturating_mul(live.share.processors);
        let (used, memory) = match &self.control {
            Some(groups) => {
                let used = groups.main().processor_time();
                let used = used.inspect_err(|error| {
                    tracing::warn!(job = %self.job, %error, "the control group does not say what the job has used");
                });
                (used.ok()?, groups.memory_peak())
            }
            None => (self.processor_time_of_ranks()?, None),
        };
        Some(PartUse { turns_us: turns / 1_000, used_us: used / 1_000, memory })
    }

    /// Nanoseconds that ranks have used, those that have ended too; none if one has ended unseen.
    fn processor_time_of_ranks(&self) -> Option<u64> {
        let ranks = self.groups.iter().map(|group| group.load(Ordering::Relaxed));
        let used = ranks.filter(|&rank| rank > 0).filter_map(process_stat);
        let used = used.map(|stat| stat.used_with_children());
        let ended = self.use_meter.ended.0.get()?;
        Some(used.fold(ended, u64::saturating_add))
    }
}
