//! Plan of a switch: the jobs to stop, to put behind the others, and to let run at a tick.
//!
//! The plan is pure, so that tests need no processes.

use std::collections::BTreeMap;

use kumi_sched::{ClusterTime, JobId, Mode, NodeId, Timetable};

use super::switched_job::RunMode;
use crate::fill::Filling;

/// Changes to make now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Stop these first.
    pub freeze: Vec<JobId>,
    /// Then put these behind the others; they have what is left idle, also if they were stopped.
    pub lower: Vec<JobId>,
    /// Then let these run.
    pub thaw: Vec<JobId>,
    /// Set when this step begins a tick: its generation, number and the time it was due.
    pub tick: Option<(u64, u64, ClusterTime)>,
    /// Ticks that passed unseen since the last step.
    pub missed: u64,
    /// The jobs that have their turns from now on, ascending.
    pub current: Vec<JobId>,
    /// All jobs run, as the operating system shares the processors.
    pub everyone: bool,
    /// Some jobs have what those of `current` leave idle.
    pub filled: bool,
    /// Some jobs had until now.
    pub was_filled: bool,
    /// Slices of these, which begin now, are to be measured.
    pub measure: Vec<JobId>,
    /// When to look again; `None` when nothing changes by itself.
    pub wake: Option<ClusterTime>,
}

/// A job of the node.
#[derive(Clone, Copy, Debug)]
struct PlannedJob {
    hold: RunMode,
    /// It may run beside others that leave something idle.
    may_fill: bool,
    /// Whether others run beside it.
    filling: Filling,
    /// Some slot of the timetable is its.
    in_rotation: bool,
    /// Slices that it had.
    slices: u64,
    /// In this slice nobody runs beside it, to compare.
    strict: bool,
}

/// The jobs of a node, which of them run, and the timetable they run by.
#[derive(Debug)]
pub struct Plan {
    node: NodeId,
    timetable: Option<Timetable>,
    /// Newer than `timetable`, and its start has not come.
    next: Option<Timetable>,
    jobs: BTreeMap<JobId, PlannedJob>,
    /// Generation and number of the last tick shown, while ticks are followed one by one.
    last_tick: Option<(u64, u64)>,
}

impl Plan {
    /// Nothing to run yet.
    pub fn new(node: NodeId) -> Self {
        Self { node, timetable: None, next: None, jobs: BTreeMap::new(), last_tick: None }
    }

    /// Takes a timetable, which counts from its start on. Old ones are kept from coming here by the
    /// agent.
    pub fn set_timetable(&mut self, timetable: Timetable) {
        self.next = Some(timetable);
    }

    /// A job has come; it runs until the next step says otherwise.
    pub fn add(&mut self, job: JobId) {
        let in_rotation = self.timetable.as_ref().is_some_and(|now| shows(now, self.node, job));
        let (may_fill, filling) = (false, Filling::Off);
        let state = PlannedJob {
            hold: RunMode::Runs,
            may_fill,
            filling,
            in_rotation,
            slices: 0,
            strict: false,
        };
        self.jobs.insert(job, state);
    }

    /// A job is gone.
    pub fn remove(&mut self, job: JobId) {
        self.jobs.remove(&job);
    }

    /// Whether a job may run beside others that leave something idle.
    pub fn set_may_fill(&mut self, job: JobId, may_fill: bool) {
        if let Some(state) = self.jobs.get_mut(&job) {
            state.may_fill = may_fill;
        }
    }

    /// Whether others run beside a job in its turns.
    pub fn set_filling(&mut self, job: JobId, filling: Filling) {
        if let Some(state) = self.jobs.get_mut(&job) {
            state.filling = filling;
            state.strict &= filling != Filling::Off;
        }
    }

    /// A change of a job failed: it does this still.
    pub fn set_hold(&mut self, job: JobId, hold: RunMode) {
        if let Some(state) = self.jobs.get_mut(&job) {
            state.hold = hold;
        }
    }

    /// Computes the step at `now`, and assumes that it is then carried out. `step` is reused, so that the
    /// switching thread does not allocate.
    pub fn step(&mut self, now: ClusterTime, step: &mut Step) {
        for list in [
            &mut step.freeze,
            &mut step.lower,
            &mut step.thaw,
            &mut step.current,
            &mut step.measure,
        ] {
            list.clear();
        }
        (step.tick, step.missed, step.wake) = (None, 0, None);
        step.was_filled = std::mem::take(&mut step.filled);
        step.everyone = false;
        if self.next.as_ref().is_some_and(|next| next.start <= now) {
            self.timetable = self.next.take();
            self.last_tick = None;
            if let Some(timetable) = &self.timetable {
                for (&job, state) in &mut self.jobs {
                    state.in_rotation = shows(timetable, self.node, job);
                }
            }
        }
        let started = self.next.as_ref().map(|next| next.start);
        let forced = self.show(now, step);
        if let Some(jobs) = self.early_birds() {
            step.current.clear();
            step.current.extend(jobs);
        }
        step.wake = match (step.wake, started) {
            (Some(tick), Some(start)) => Some(tick.min(start)),
            (tick, start) => tick.or(start),
        };
        self.begin_slices(step);
        self.decide(step, forced);
    }

    /// What the timetable shows now; whether whoever has a turn is to be switched all the same.
    fn show(&mut self, now: ClusterTime, step: &mut Step) -> bool {
        let Some(timetable) = &self.timetable else { return false };
        let Mode::Gang { force_switch, .. } = timetable.mode else {
            step.everyone = true;
            self.last_tick = None;
            return false;
        };
        let column = timetable.column(self.node);
        let constant = column.and_then(|column| column.constant_jobs());
        let empty = column.is_none_or(|column| column.slots.iter().all(Vec::is_empty));
        if empty || (constant.is_some() && !force_switch) {
            step.current.extend(constant.into_iter().flatten());
            self.last_tick = None;
            return false;
        }
        let tick = timetable.tick_at(now);
        step.current.extend(timetable.jobs_at(self.node, tick));
        step.wake = Some(timetable.tick_start(tick.saturating_add(1)));
        let this = (timetable.generation, tick);
        if self.last_tick == Some(this) {
            return false;
        }
        step.tick = Some((this.0, this.1, timetable.tick_start(tick)));
        if let Some((_, last)) = self.last_tick {
            step.missed = tick.saturating_sub(last.saturating_add(1));
        }
        self.last_tick = Some(this);
        force_switch
    }

    /// Counts the slices that begin, and says which are to be measured: one without others beside the job, and the next one.
    fn begin_slices(&mut self, step: &mut Step) {
        if step.tick.is_none() {
            return;
        }
        let measured = self.jobs.values().any(|state| state.may_fill);
        for job in &step.current {
            let Some(state) = self.jobs.get_mut(job) else { continue };
            state.slices = state.slices.wrapping_add(1);
            let measure = match state.filling {
                Filling::On { strict_every } => {
                    let place = state.slices % u64::from(strict_every.max(2));
                    state.strict = place == 0;
                    // Of those that are filled one in four.
                    state.strict || place % 4 == 1
                }
                // Whether it has stopped using everything.
                Filling::Off => state.slices.is_multiple_of(2),
            };
            if measured && measure {
                step.measure.push(*job);
            }
        }
    }

    /// The jobs that may run before their timetable starts: the only ones here, when nothing of the
    /// timetable in force is left. Their start is not held up by the lead that switches need.
    fn early_birds(&self) -> Option<&[JobId]> {
        let next = self.next.as_ref()?;
        let present = |timetable: &Timetable| match (timetable.mode, timetable.column(self.node)) {
            (Mode::OperatingSystem, _) => true,
            (_, column) => column
                .into_iter()
                .flat_map(|column| column.slots.iter().flatten())
                .any(|job| self.jobs.contains_key(job)),
        };
        if self.timetable.as_ref().is_some_and(present) {
            return None;
        }
        next.column(self.node)?.constant_jobs()
    }

    /// Compares what runs with what should.
    fn decide(&mut self, step: &mut Step, forced: bool) {
        let idle = self.timetable.as_ref().map_or(&[][..], |timetable| &timetable.idle);
        let lets = |job| {
            let state = self.jobs.get(job);
            state.is_none_or(|state| state.filling != Filling::Off && !state.strict)
        };
        // Where switches are forced they are to be measured as they are.
        let filled = !step.everyone && !self.forces() && step.current.iter().all(lets);
        for (&job, state) in &mut self.jobs {
            // Jobs that only wait are left alone, so that they answer at once.
            let aside = idle.binary_search(&job).is_ok();
            let wanted = if step.everyone || aside || step.current.binary_search(&job).is_ok() {
                RunMode::Runs
            } else if filled && state.may_fill && state.in_rotation {
                step.filled = true;
                RunMode::Fills
            } else {
                RunMode::Stopped
            };
            let forced = forced && !aside;
            let old = std::mem::replace(&mut state.hold, wanted);
            if forced && old == RunMode::Runs || old != wanted && wanted == RunMode::Stopped {
                step.freeze.push(job);
            }
            if old != wanted && wanted == RunMode::Fills {
                step.lower.push(job);
            }
            if wanted == RunMode::Runs && (forced || old != wanted) {
                step.thaw.push(job);
            }
        }
    }

    fn forces(&self) -> bool {
        let mode = self.timetable.as_ref().map(|timetable| timetable.mode);
        matches!(mode, Some(Mode::Gang { force_switch: true, .. }))
    }
}

/// Whether some slot of a node is a job's.
fn shows(timetable: &Timetable, node: NodeId, job: JobId) -> bool {
    let column = timetable.column(node);
    column.is_some_and(|column| column.slots.iter().any(|slot| slot.binary_search(&job).is_ok()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kumi_sched::Column;

    const NODE: NodeId = NodeId(3);
    const A: JobId = JobId(1);
    const B: JobId = JobId(2);

    fn timetable(generation: u64, start: u64, mode: Mode, slots: &[Option<JobId>]) -> Timetable {
        Timetable {
            generation,
            start: ClusterTime(start),
            slice_ns: 100,
            phase_ns: 0,
            mode,
            columns: vec![Column {
                node: NODE,
                slots: slots.iter().map(|&job| job.into_iter().collect()).collect(),
            }],
            idle: Vec::new(),
        }
    }

    const GANG: Mode = Mode::Gang { force_switch: false, fill: true };

    fn at(plan: &mut Plan, now: u64) -> Step {
        let mut step = Step::default();
        plan.step(ClusterTime(now), &mut step);
        step
    }

    #[test]
    fn two_jobs_take_turns() {
        let mut plan = Plan::new(NODE);
        plan.set_timetable(timetable(1, 1_000, GANG, &[Some(A), Some(B)]));
        plan.add(A);
        plan.add(B);
        let before = at(&mut plan, 900);
        assert_eq!((before.freeze, before.wake), (vec![A, B], Some(ClusterTime(1_000))));
        let first = at(&mut plan, 1_003);
        assert_eq!((first.thaw, first.tick), (vec![A], Some((1, 0, ClusterTime(1_000)))));
        assert_eq!(first.wake, Some(ClusterTime(1_100)));
        // Looking again within the tick changes nothing.
        let again = at(&mut plan, 1_050);
        assert_eq!((again.freeze, again.thaw, again.tick), (vec![], vec![], None));
        let second = at(&mut plan, 1_101);
        assert_eq!((second.freeze, second.thaw, second.missed), (vec![A], vec![B], 0));
        let late = at(&mut plan, 1_450);
        assert_eq!((late.thaw, late.missed, late.current), (vec![A], 2, vec![A]));
    }

    #[test]
    fn a_sole_job_runs_without_ticks_unless_forced() {
        let mut plan = Plan::new(NODE);
        plan.add(A);
        plan.set_timetable(timetable(1, 0, GANG, &[Some(A), None, Some(A)]));
        let step = at(&mut plan, 5);
        assert_eq!((step.freeze, step.thaw, step.wake), (vec![], vec![], None));
        assert_eq!(step.current, [A]);
        plan.set_timetable(timetable(
            2,
            0,
            Mode::Gang { force_switch: true, fill: true },
            &[Some(A)],
        ));
        let step = at(&mut plan, 10);
        assert_eq!((step.freeze, step.thaw, step.wake), (vec![A], vec![A], Some(ClusterTime(100))));
        let step = at(&mut plan, 20);
        assert_eq!((step.freeze, step.thaw), (vec![], vec![]));
        let step = at(&mut plan, 100);
        assert_eq!((step.freeze, step.thaw, step.missed), (vec![A], vec![A], 0));
    }

    #[test]
    fn the_old_timetable_holds_until_the_new_one_starts() {
        let mut plan = Plan::new(NODE);
        plan.add(A);
        plan.set_timetable(timetable(5, 0, GANG, &[Some(A)]));
        at(&mut plan, 1);
        plan.add(B);
        plan.set_timetable(timetable(6, 500, GANG, &[Some(B), Some(A)]));
        let step = at(&mut plan, 2);
        assert_eq!((step.freeze, step.current), (vec![B], vec![A]));
        assert_eq!(step.wake, Some(ClusterTime(500)));
        let step = at(&mut plan, 500);
        assert_eq!((step.freeze, step.thaw), (vec![A], vec![B]));
        plan.set_timetable(timetable(7, 0, GANG, &[Some(A)]));
        assert_eq!(at(&mut plan, 510).thaw, vec![A]);
    }

    #[test]
    fn a_job_alone_need_not_wait_for_its_timetable() {
        let mut plan = Plan::new(NODE);
        plan.add(A);
        plan.set_timetable(timetable(1, 1_000, GANG, &[Some(A)]));
        let step = at(&mut plan, 10);
        assert_eq!((step.freeze, step.current), (vec![], vec![A]));
        assert_eq!(step.wake, Some(ClusterTime(1_000)));
        at(&mut plan, 1_000);
        // While it is here the next has to wait; when it is gone, no more.
        plan.add(B);
        plan.set_timetable(timetable(2, 2_000, GANG, &[Some(B)]));
        assert_eq!(at(&mut plan, 1_010).freeze, vec![B]);
        plan.remove(A);
        assert_eq!(at(&mut plan, 1_020).thaw, vec![B]);
    }

    #[test]
    fn idle_jobs_run_beside_the_others() {
        let mut plan = Plan::new(NODE);
        plan.add(A);
        plan.add(B);
        let with_idle = |mut timetable: Timetable, job| {
            timetable.idle = vec![job];
            timetable
        };
        plan.set_timetable(timetable(1, 0, GANG, &[Some(A), Some(B)]));
        assert_eq!(at(&mut plan, 1).freeze, vec![B]);
        plan.set_timetable(with_idle(timetable(2, 0, GANG, &[Some(B), Some(B)]), A));
        let step = at(&mut plan, 5);
        assert_eq!((step.freeze, step.thaw, step.current), (vec![], vec![B], vec![B]));
        assert_eq!(step.wake, None, "one job alone in the rotation is not switched");
        // Not even where one job alone is.
        let forced = Mode::Gang { force_switch: true, fill: true };
        plan.set_timetable(with_idle(timetable(3, 0, forced, &[Some(B)]), A));
        let step = at(&mut plan, 10);
        assert_eq!((step.freeze, step.thaw), (vec![B], vec![B]));
        // All are idle.
        plan.set_timetable(with_idle(timetable(4, 0, GANG, &[]), B));
        let step = at(&mut plan, 20);
        assert_eq!((step.freeze, step.thaw, step.current), (vec![A], vec![], vec![]));
        plan.set_timetable(timetable(5, 0, GANG, &[Some(A), Some(B)]));
        let step = at(&mut plan, 30);
        assert_eq!((step.freeze, step.thaw), (vec![B], vec![A]));
    }

    #[test]
    fn jobs_outside_the_column_stay_stopped() {
        let mut plan = Plan::new(NODE);
        plan.add(B);
        let step = at(&mut plan, 1);
        assert_eq!((step.freeze, step.wake), (vec![B], None));
        plan.set_timetable(timetable(1, 0, GANG, &[Some(A), None]));
        assert_eq!(at(&mut plan, 2).thaw, vec![]);
        plan.set_timetable(timetable(2, 0, Mode::OperatingSystem, &[]));
        let step = at(&mut plan, 3);
        assert_eq!((step.thaw, step.wake), (vec![B], None));
        assert!(step.everyone && step.current.is_empty());
        plan.add(A);
        plan.remove(B);
        assert_eq!(at(&mut plan, 4).freeze, vec![]);
        // Back to gang scheduling: whoever has no slot stops.
        plan.set_timetable(timetable(3, 0, GANG, &[None]));
        assert_eq!(at(&mut plan, 5).freeze, vec![A]);
        // A stop that failed is tried again.
        plan.set_hold(A, RunMode::Runs);
        assert_eq!(at(&mut plan, 6).freeze, vec![A]);
    }

    /// Jobs beside each other: who is in both slots goes on.
    #[test]
    fn jobs_of_a_slot_run_together() {
        let c = JobId(3);
        let mut plan = Plan::new(NODE);
        [A, B, c].into_iter().for_each(|job| plan.add(job));
        let mut beside = timetable(1, 0, GANG, &[]);
        beside.columns[0].slots = vec![vec![A, B], vec![B, c]];
        plan.set_timetable(beside.clone());
        let step = at(&mut plan, 1);
        assert_eq!((step.freeze, step.current), (vec![c], vec![A, B]));
        let step = at(&mut plan, 100);
        assert_eq!((step.freeze, step.thaw, step.current), (vec![A], vec![c], vec![B, c]));
        // The same jobs in all slots are not switched.
        beside.generation = 2;
        beside.columns[0].slots = vec![vec![A, c], vec![], vec![A, c]];
        plan.set_timetable(beside);
        let step = at(&mut plan, 110);
        assert_eq!((step.freeze, step.thaw, step.wake), (vec![B], vec![A], None));
    }

    fn filled(jobs: &[(JobId, bool, Filling)]) -> Plan {
        let mut plan = Plan::new(NODE);
        for &(job, may_fill, filling) in jobs {
            plan.add(job);
            plan.set_may_fill(job, may_fill);
            plan.set_filling(job, filling);
        }
        plan
    }

    const ON: Filling = Filling::On { strict_every: 1_000 };

    #[test]
    fn jobs_fill_what_those_leave_who_let_them() {
        let c = JobId(3);
        let mut plan = filled(&[(A, true, ON), (B, true, Filling::Off), (c, false, ON)]);
        plan.set_timetable(timetable(1, 0, GANG, &[Some(A), Some(B), Some(c), None]));
        let first = at(&mut plan, 1);
        assert_eq!((first.freeze, first.lower, first.thaw), (vec![c], vec![B], vec![]));
        assert!(first.filled);
        let second = at(&mut plan, 101);
        assert_eq!((second.freeze, second.lower, second.thaw), (vec![A], vec![], vec![B]));
        assert!(!second.filled);
        let third = at(&mut plan, 201);
        assert_eq!((third.freeze, third.lower, third.thaw), (vec![], vec![A, B], vec![c]));
        // Nobody's slot is filled by all who may.
        let fourth = at(&mut plan, 301);
        assert_eq!((fourth.freeze, fourth.lower, fourth.thaw), (vec![c], vec![], vec![]));
        assert!(fourth.filled && fourth.current.is_empty());
        // A change of mind counts at once.
        plan.set_may_fill(A, false);
        let now = at(&mut plan, 302);
        assert_eq!((now.freeze, now.lower, now.tick), (vec![A], vec![], None));
    }

    #[test]
    fn only_jobs_of_the_timetable_fill_and_not_where_switches_are_forced() {
        let mut plan = filled(&[(A, true, ON), (B, true, ON)]);
        plan.set_timetable(timetable(1, 0, GANG, &[Some(A)]));
        assert_eq!(at(&mut plan, 1).freeze, [B]);
        let forced = Mode::Gang { force_switch: true, fill: true };
        plan.set_timetable(timetable(2, 0, forced, &[Some(A), Some(B)]));
        let step = at(&mut plan, 2);
        assert_eq!((step.freeze, step.lower, step.thaw), (vec![A], vec![], vec![A]));
        plan.set_timetable(timetable(3, 0, GANG, &[Some(A), Some(B)]));
        assert_eq!(at(&mut plan, 3).lower, [B]);
        // All run.
        plan.set_timetable(timetable(4, 0, Mode::OperatingSystem, &[]));
        let step = at(&mut plan, 4);
        assert_eq!((step.thaw, step.lower), (vec![B], vec![]));
    }

    #[test]
    fn some_slices_are_strict_and_measured_with_the_next() {
        let mut plan = filled(&[(A, true, Filling::On { strict_every: 4 }), (B, true, ON)]);
        plan.set_timetable(timetable(1, 0, GANG, &[Some(A), Some(B)]));
        let mut of_a = Vec::new();
        for tick in 0..16 {
            let step = at(&mut plan, tick * 100 + 1);
            if step.current == [A] {
                of_a.push((step.filled, step.measure == [A]));
            }
            // Looking again within the slice changes nothing.
            let again = at(&mut plan, tick * 100 + 50);
            assert_eq!((again.filled, again.lower, again.freeze), (step.filled, vec![], vec![]));
            assert_eq!((again.measure, again.tick), (vec![], None));
        }
        let usual = (true, false);
        assert_eq!(
            of_a,
            [(true, true), usual, usual, (false, true), (true, true), usual, usual, (false, true)]
        );
        // Every other one of a job that leaves nothing, as long as somebody would fill.
        for (fills, expected) in [(true, [true, false, true, false]), (false, [false; 4])] {
            let mut plan = filled(&[(A, fills, Filling::Off), (B, fills, ON)]);
            plan.set_timetable(timetable(1, 0, GANG, &[Some(A), Some(B)]));
            let steps: Vec<Step> = (0..8).map(|tick| at(&mut plan, tick * 100 + 1)).collect();
            let of_a = steps.iter().filter(|step| step.current == [A]);
            let measured: Vec<bool> = of_a.map(|step| step.measure == [A]).collect();
            assert!(
                measured == expected || measured.iter().rev().eq(expected.iter()),
                "{measured:?}"
            );
        }
    }
}
