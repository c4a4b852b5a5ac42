//! Plan of a switch: the jobs to stop and to continue at a tick.
//!
//! The plan is pure, so that tests need no processes.

use std::collections::BTreeMap;

use kumi_sched::{ClusterTime, JobId, Mode, NodeId, Timetable};

/// Jobs to stop and to continue now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Stop these first.
    pub freeze: Vec<JobId>,
    /// Then continue these.
    pub thaw: Vec<JobId>,
    /// Set when this step begins a tick: its generation, number and the time it was due.
    pub tick: Option<(u64, u64, ClusterTime)>,
    /// Ticks that passed unseen since the last step.
    pub missed: u64,
    /// The jobs that have their turns from now on, ascending.
    pub current: Vec<JobId>,
    /// All jobs run, as the operating system shares the processors.
    pub everyone: bool,
    /// When to look again; `None` when nothing changes by itself.
    pub wake: Option<ClusterTime>,
}

/// The jobs of a node, which of them run, and the timetable they run by.
#[derive(Debug)]
pub struct Plan {
    node: NodeId,
    timetable: Option<Timetable>,
    /// Newer than `timetable`, and its start has not come.
    next: Option<Timetable>,
    /// Every job here, and whether it runs.
    jobs: BTreeMap<JobId, bool>,
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
        self.jobs.insert(job, true);
    }

    /// A job is gone.
    pub fn remove(&mut self, job: JobId) {
        self.jobs.remove(&job);
    }

    /// Stopping or continuing a job failed: what it does is not what was planned.
    pub fn set_running(&mut self, job: JobId, running: bool) {
        if let Some(state) = self.jobs.get_mut(&job) {
            *state = running;
        }
    }

    /// Computes the step at `now`, and assumes that it is then carried out. `step` is reused, so that the
    /// switching thread does not allocate.
    pub fn step(&mut self, now: ClusterTime, step: &mut Step) {
        step.freeze.clear();
        step.thaw.clear();
        step.tick = None;
        step.missed = 0;
        step.current.clear();
        step.everyone = false;
        step.wake = None;
        if self.next.as_ref().is_some_and(|next| next.start <= now) {
            self.timetable = self.next.take();
            self.last_tick = None;
        }
        let started = self.next.as_ref().map(|next| next.start);
        let mut forced = false;
        let mut everything = false;
        if let Some(timetable) = &self.timetable {
            match timetable.mode {
                Mode::OperatingSystem => {
                    everything = true;
                    self.last_tick = None;
                }
                Mode::Gang { force_switch } => {
                    let column = timetable.column(self.node);
                    let constant = column.and_then(|column| column.constant_jobs());
                    let empty = column.is_none_or(|column| column.slots.iter().all(Vec::is_empty));
                    if empty || (constant.is_some() && !force_switch) {
                        step.current.extend(constant.into_iter().flatten());
                        self.last_tick = None;
                    } else {
                        let tick = timetable.tick_at(now);
                        step.current.extend(timetable.jobs_at(self.node, tick));
                        step.wake = Some(timetable.tick_start(tick.saturating_add(1)));
                        let this = (timetable.generation, tick);
                        if self.last_tick != Some(this) {
                            step.tick = Some((this.0, this.1, timetable.tick_start(tick)));
                            if let Some((_, last)) = self.last_tick {
                                step.missed = tick.saturating_sub(last.saturating_add(1));
                            }
                            self.last_tick = Some(this);
                            forced = force_switch;
                        }
                    }
                }
            }
        }
        if let Some(jobs) = self.early_birds() {
            step.current.clear();
            step.current.extend(jobs);
        }
        step.wake = match (step.wake, started) {
            (Some(tick), Some(start)) => Some(tick.min(start)),
            (tick, start) => tick.or(start),
        };
        step.everyone = everything;
        self.decide(step, everything, forced);
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
    fn decide(&mut self, step: &mut Step, everything: bool, forced: bool) {
        let idle = self.timetable.as_ref().map_or(&[][..], |timetable| &timetable.idle);
        for (&job, running) in &mut self.jobs {
            // Jobs that only wait are left alone, so that they answer at once.
            let aside = idle.binary_search(&job).is_ok();
            let (wanted, forced) =
                (everything || aside || step.current.binary_search(&job).is_ok(), forced && !aside);
            if *running && (!wanted || forced) {
                step.freeze.push(job);
            }
            if wanted && (!*running || forced) {
                step.thaw.push(job);
            }
            *running = wanted;
        }
    }
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

    const GANG: Mode = Mode::Gang { force_switch: false };

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
        plan.set_timetable(timetable(2, 0, Mode::Gang { force_switch: true }, &[Some(A)]));
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
        let forced = Mode::Gang { force_switch: true };
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
        plan.set_running(A, true);
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
}
