//! Backfilling policies (EASY and conservative). A job may overtake others if, by the users'
//! estimates, it delays none of them.

use alloc::vec::Vec;

use super::pool::{FreeProcessors, Pool};
use super::profile::Profile;
use super::queue::{UNPLANNED, WaitingJob};
use super::running_jobs::RunningJobs;
use super::{Batch, Discipline, Machine};
use crate::policy::held_up_by_first;
use crate::shares::QueueRank;
use crate::{JobId, Obstacle, Placement};

/// EASY: the first waiting job has a reservation for the time at which enough nodes should be free.
/// Any other job may start, in order of arrival, if it fits now. It must also end before the
/// reservation begins, or use none of the reserved nodes.
pub(crate) type Easy = Batch<EasyBackfill>;

/// Conservative backfilling: each waiting job has a reservation, the earliest that delays no job
/// before it. When a job ends early, the others move forward one after the other, in order of
/// arrival and each as far as it can. No job moves back. Only so many have
/// reservations ([`RESERVATIONS`]). The others wait until one of these begins, even where they would fit.
pub(crate) type Conservative = Batch<ConservativeBackfill>;

#[derive(Default)]
pub(crate) struct EasyBackfill {
    running: RunningJobs,
}

impl EasyBackfill {
    /// Index of the next job of the queue.
    fn find(&mut self, machine: &Machine<FreeProcessors>, now: u64) -> Option<usize> {
        let pool = &machine.pool;
        let free = pool.free();
        if free == 0 {
            return None;
        }
        let first = machine.queue.position(|waiting| pool.possible(&waiting.demand))?;
        let wanted = machine.queue[first].count;
        if wanted <= free {
            // It may still find no place, for its parts or for what else it takes. Nobody overtakes it then.
            return Some(first);
        }
        if machine.queue.iter().skip(first + 1).all(|waiting| waiting.count > free) {
            return None;
        }
        self.running.prolong(now);
        let (shadow, spare) = reservation(&self.running.releases(machine), free, wanted);
        let overtakes = |waiting: &WaitingJob| {
            waiting.count <= free
                && (waiting.count <= spare || now.saturating_add(waiting.estimate) <= shadow)
                && pool.fits(&waiting.demand)
        };
        let others = machine.queue.iter().skip(first + 1);
        others.enumerate().find(|(_, waiting)| overtakes(waiting)).map(|(at, _)| first + 1 + at)
    }
}

/// When `wanted` nodes will be free, and how many more will be then.
fn reservation(releases: &[(u64, u32)], mut free: u32, wanted: u32) -> (u64, u32) {
    let mut shadow = None;
    for &(end, nodes) in releases {
        if shadow.is_some_and(|shadow| end > shadow) {
            break;
        }
        free = free.saturating_add(nodes);
        if free >= wanted {
            shadow = Some(end);
        }
    }
    (shadow.unwrap_or(u64::MAX), free.saturating_sub(wanted))
}

impl Discipline for EasyBackfill {
    type Pool = FreeProcessors;
    const PLANS: bool = true;

    fn obstacles(&self, machine: &Machine<FreeProcessors>) -> Vec<(JobId, Obstacle)> {
        obstacles(machine)
    }

    fn next(&mut self, machine: &mut Machine<FreeProcessors>, now: u64) -> Option<Placement> {
        let index = self.find(machine, now)?;
        let WaitingJob { job, demand, estimate, .. } = machine.queue[index];
        let processors = machine.pool.take(job, &demand)?;
        machine.queue.remove(index);
        self.running.insert(job, count(processors.len()), now, Some(estimate));
        Some(Placement { job, processors })
    }

    fn restored(&mut self, job: JobId, processors: usize, estimate: Option<u64>, now: u64) {
        self.running.insert(job, count(processors), now, estimate);
    }

    fn ended(&mut self, job: JobId, _freed: Option<u32>, _now: u64) {
        self.running.remove(job);
    }
}

/// Why jobs wait. Running jobs have the nodes of some. For the others enough nodes are free, but they are reserved; the
/// first in the queue stands for all jobs with reservations.
fn obstacles(machine: &Machine<FreeProcessors>) -> Vec<(JobId, Obstacle)> {
    let free = machine.pool.free();
    let fit = |waiting: &WaitingJob| machine.pool.fit(&waiting.demand);
    let jobs = machine.queue.iter().map(|waiting| (waiting.job, fit(waiting)));
    let mut obstacles = held_up_by_first(jobs);
    for ((_, obstacle), waiting) in obstacles.iter_mut().zip(machine.queue.iter()) {
        if waiting.count > free && *obstacle != Obstacle::TooFewNodes {
            *obstacle = Obstacle::PlacedJobs;
        }
    }
    obstacles
}

fn count(processors: usize) -> u32 {
    u32::try_from(processors).unwrap_or(u32::MAX)
}

/// How many waiting jobs have a reservation at most, unless the caller says otherwise. One end may move all of them, so this
/// bounds what it costs.
pub(crate) const RESERVATIONS: usize = 1_000;

pub(crate) struct ConservativeBackfill {
    running: RunningJobs,
    /// Free nodes over time, without those of running jobs and of reservations.
    profile: Profile,
    validity: PlanValidity,
    /// How many waiting jobs have a reservation, and at most may have one.
    reserved: usize,
    most: usize,
}

impl Default for ConservativeBackfill {
    fn default() -> Self {
        let (running, profile, validity) = Default::default();
        Self { running, profile, validity, reserved: 0, most: RESERVATIONS }
    }
}

impl Conservative {
    /// With so many reservations at most, and at least one.
    pub(crate) fn planning(most: usize) -> Self {
        Self::with(ConservativeBackfill { most: most.max(1), ..Default::default() })
    }
}

/// Whether the plan still holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum PlanValidity {
    /// No change, or only new jobs.
    #[default]
    Current,
    /// Nodes became free: reservations may become earlier.
    Improvable,
    /// Nodes were lost or a job overran its estimate: some reservation may not hold.
    Invalid,
}

impl ConservativeBackfill {
    fn mark(&mut self, validity: PlanValidity) {
        self.validity = self.validity.max(validity);
    }

    /// Brings the plan up to date.
    fn plan(&mut self, machine: &mut Machine<FreeProcessors>, now: u64) {
        if self.running.prolong(now) {
            self.mark(PlanValidity::Invalid);
        }
        self.profile.forget_before(now);
        match self.validity {
            PlanValidity::Current => {}
            PlanValidity::Improvable => {
                self.move_forward(machine, now);
            }
            PlanValidity::Invalid => self.begin_anew(machine, now),
        }
        self.validity = PlanValidity::Current;
        self.plan_further(machine, now);
        while self.missed(machine, now) && self.move_forward(machine, now) {}
    }

    /// Makes reservations for the first jobs without one, as many as may be.
    fn plan_further(&mut self, machine: &mut Machine<FreeProcessors>, now: u64) {
        let up = machine.pool.up();
        // Jobs without a reservation come last. Exceptions are jobs too large for the machine, and
        // important jobs that came at this instant.
        let Machine { pool, queue, .. } = machine;
        let mut unplanned = queue.iter_mut().filter(|waiting| waiting.start == UNPLANNED);
        while self.reserved < self.most
            && let Some(waiting) = unplanned.next()
        {
            waiting.count = pool.count(&waiting.demand);
            if waiting.count <= up
                && pool.possible(&waiting.demand)
                && let Some(start) = self.profile.earliest(now, waiting.estimate, waiting.count)
            {
                waiting.start = start;
                self.profile.take(start, waiting.estimate, waiting.count);
                self.reserved += 1;
            }
        }
    }

    /// Moves each reservation to the earliest time possible now. Returns whether any has changed.
    fn move_forward(&mut self, machine: &mut Machine<FreeProcessors>, now: u64) -> bool {
        let mut moved = false;
        let planned = machine.queue.iter_mut().filter(|waiting| waiting.start != UNPLANNED);
        for waiting in planned.take(self.reserved) {
            let &mut WaitingJob { start: before, estimate, count, .. } = waiting;
            if let Some(start) = self.profile.earlier(now, before, estimate, count) {
                self.profile.give(before, estimate, count);
                self.profile.take(start, estimate, count);
                waiting.start = start;
                moved = true;
            }
        }
        moved
    }

    /// Whether the first reservation is due before any job is expected to end. This happens when a
    /// job behind it held it up and then moved. No event would start the job at its time, so it
    /// begins now.
    fn missed(&self, machine: &Machine<FreeProcessors>, now: u64) -> bool {
        let (mut first, mut end) = (UNPLANNED, self.running.first_end());
        for waiting in self.planned(machine) {
            if waiting.start > now {
                first = first.min(waiting.start);
            } else {
                // It begins now.
                end = end.min(waiting.start.saturating_add(waiting.estimate));
            }
        }
        first < end
    }

    /// The waiting jobs that have a reservation.
    fn planned<'a>(
        &self,
        machine: &'a Machine<FreeProcessors>,
    ) -> impl Iterator<Item = &'a WaitingJob> {
        let planned = machine.queue.iter().filter(|waiting| waiting.start != UNPLANNED);
        // Nobody looks at the many jobs behind the last of them.
        planned.take(self.reserved)
    }

    fn begin_anew(&mut self, machine: &mut Machine<FreeProcessors>, now: u64) {
        self.profile = Profile::new(now, machine.pool.free());
        for (end, nodes) in self.running.releases(machine) {
            if end < u64::MAX {
                self.profile.give(end, u64::MAX, nodes);
            }
        }
        let planned = machine.queue.iter_mut().filter(|waiting| waiting.start != UNPLANNED);
        planned.take(self.reserved).for_each(|waiting| waiting.start = UNPLANNED);
        self.reserved = 0;
    }
}

impl Discipline for ConservativeBackfill {
    type Pool = FreeProcessors;
    const PLANS: bool = true;

    fn obstacles(&self, machine: &Machine<FreeProcessors>) -> Vec<(JobId, Obstacle)> {
        obstacles(machine)
    }

    fn reorder(
        &mut self,
        machine: &mut Machine<FreeProcessors>,
        rank: &mut dyn FnMut(JobId) -> QueueRank,
    ) -> bool {
        let changed = machine.queue.reorder(rank);
        if changed {
            self.mark(PlanValidity::Invalid);
        }
        changed
    }

    fn withdraw(&mut self, machine: &mut Machine<FreeProcessors>, job: JobId) {
        let Some(waiting) = machine.queue.withdraw(job) else { return };
        if waiting.start != UNPLANNED {
            self.profile.give(waiting.start, waiting.estimate, waiting.count);
            self.reserved -= 1;
            self.mark(PlanValidity::Improvable);
        }
    }

    fn next(&mut self, machine: &mut Machine<FreeProcessors>, now: u64) -> Option<Placement> {
        self.plan(machine, now);
        let free = machine.pool.free();
        let due = |waiting: &&WaitingJob| waiting.start <= now && waiting.count <= free;
        let first = self.planned(machine).find(due)?.job;
        let index = machine.queue.position(|waiting| waiting.job == first)?;
        let WaitingJob { job, count: wanted, demand, estimate, start, .. } = machine.queue[index];
        let processors = machine.pool.take(job, &demand)?;
        machine.queue.remove(index);
        self.reserved -= 1;
        let taken = count(processors.len());
        self.running.insert(job, taken, now, Some(estimate));
        if start < now || taken != wanted {
            self.mark(PlanValidity::Invalid);
        }
        Some(Placement { job, processors })
    }

    fn restored(&mut self, job: JobId, processors: usize, estimate: Option<u64>, now: u64) {
        self.running.insert(job, count(processors), now, estimate);
        self.mark(PlanValidity::Invalid);
    }

    fn ended(&mut self, job: JobId, freed: Option<u32>, now: u64) {
        let Some(end) = self.running.remove(job) else { return };
        match freed {
            Some(nodes) if now < end && end < u64::MAX => {
                self.profile.give(now, end - now, nodes);
                self.mark(PlanValidity::Improvable);
            }
            Some(_) if now == end => {}
            _ => self.mark(PlanValidity::Invalid),
        }
    }

    fn node_added(&mut self, fresh: Option<u32>) {
        match fresh {
            Some(processors) => {
                self.profile.grow(processors);
                self.mark(PlanValidity::Improvable);
            }
            None => self.mark(PlanValidity::Invalid),
        }
    }

    fn node_removed(&mut self) {
        self.mark(PlanValidity::Invalid);
    }
}
