//! Engine for policies that share time: it goes slot by slot.

use kumi_sched::{ClusterTime, JobId, Policy, ProcessorId, Round};

use super::fast_forward::fast_forward;
use super::load::{Load, Runs};
use super::tally::Tally;
use super::{Instant, Options, Run};
use crate::error::SimError;
use crate::machine::Machine;
use crate::policies::partitions;

/// Most empty slots in a row while jobs are active. A policy that leaves more has lost them.
const MOST_EMPTY_SLOTS: u32 = 1_000_000;

/// The job has not run yet, or not on its present processors.
pub(super) const NO_SLOT: u64 = u64::MAX;

/// The part of a job that a slot needs, in one place: most slots touch nothing else.
#[derive(Clone, Copy, Default)]
pub(super) struct SlotState {
    /// Remaining service and costs, in nanoseconds.
    pub(super) left: u64,
    /// The slot after the last one that it ran in.
    pub(super) expected: u64,
    /// 0 while it is not placed.
    pub(super) size: u32,
}

pub(super) struct Slots {
    pub(super) hot: Vec<SlotState>,
    places: Vec<Runs>,
    load: Load,
    active: u64,
    /// Jobs that ended in the last slot: place in the list and when.
    ended: Vec<(usize, u64)>,
    /// The slot to come.
    pub(super) slot: u64,
    pub(super) empty: u32,
    /// Sizes of the policy's partitions are powers of this.
    partitions: Option<u32>,
}

impl Slots {
    /// The processors that a job on these nodes occupies: the whole partition, if the policy gives such.
    fn runs(&self, machine: &Machine, nodes: &[ProcessorId]) -> Runs {
        let partition = self.partitions.and_then(|arity| machine.partition(arity, nodes));
        partition.map_or_else(|| Runs::of(nodes), |range| Runs::One(range.start, range.end))
    }
}

pub(super) fn run(run: &mut Run<'_>) -> Result<(), SimError> {
    let jobs = run.workload.jobs.len();
    let mut slots = Slots {
        hot: vec![SlotState::default(); jobs],
        places: vec![Runs::None; jobs],
        load: Load::new(&run.machine),
        active: 0,
        ended: Vec::new(),
        slot: 0,
        empty: 0,
        partitions: partitions(run.name),
    };
    let slice = run.options.slice_ns;
    run.tally.max_tqlb = Some(0);
    let mut round = Round::default();
    loop {
        let now = slots.slot.checked_mul(slice).ok_or(SimError::Endless)?;
        let time = now.min(run.horizon());
        sample(run, &slots, time);
        boundary(run, &mut slots, now)?;
        if now >= run.horizon() {
            break;
        }
        if slots.active == 0 {
            let Some(submission) = run.next_submission() else { break };
            slots.slot = submission.div_ceil(slice).max(slots.slot + 1);
            continue;
        }
        if !fast_forward(run, &mut slots, &mut round)? {
            step(run, &mut slots, now)?;
            slots.slot += 1;
        }
        let done = if run.workload.horizon.is_some() { now } else { run.tally.over };
        run.progress.at(done)?;
    }
    match run.workload.horizon {
        Some(horizon) => cut(run, &slots, horizon),
        None => run.check_nobody_waits()?,
    }
    Ok(())
}

/// Tells the policy all events between two slots.
fn boundary(run: &mut Run<'_>, slots: &mut Slots, now: u64) -> Result<(), SimError> {
    let single = run.options.instant == Instant::Single;
    let mut changed = !slots.ended.is_empty();
    let mut ended = std::mem::take(&mut slots.ended);
    ended.sort_unstable();
    for &(index, at) in &ended {
        run.tally.end(index, at);
        run.leave(index, now);
        slots.load.remove(&std::mem::take(&mut slots.places[index]));
        slots.hot[index].size = 0;
        slots.active -= 1;
        if single {
            place(run, slots, now)?;
        }
    }
    ended.clear();
    slots.ended = ended;
    while run.next_submission().is_some_and(|submission| submission <= now) {
        run.arrive(now)?;
        changed = true;
        if single {
            place(run, slots, now)?;
        }
    }
    if changed {
        place(run, slots, now)?;
        migrate(run, slots, now)?;
        let most = slots.load.most();
        run.tally.max_tqlb = run.tally.max_tqlb.max(Some(most));
    }
    Ok(())
}

fn place(run: &mut Run<'_>, slots: &mut Slots, now: u64) -> Result<(), SimError> {
    while let Some((index, nodes)) = run.placement(now)? {
        let job = run.workload.jobs[index];
        let runs = slots.runs(&run.machine, &nodes);
        slots.load.add(&runs);
        slots.places[index] = runs;
        let left = job.service + run.options.launch_ns;
        // A job without any work still has one turn.
        slots.hot[index] = SlotState { left: left.max(1), expected: NO_SLOT, size: job.size };
        slots.active += 1;
    }
    Ok(())
}

fn migrate(run: &mut Run<'_>, slots: &mut Slots, now: u64) -> Result<(), SimError> {
    let mut moves = slots.active;
    while let Some(placement) = run.policy.next_migration(ClusterTime(now)) {
        let index = usize::try_from(placement.job.0).unwrap_or(usize::MAX);
        let nodes = placement.processors.len();
        let Some(hot) = slots.hot.get_mut(index).filter(|hot| hot.size as usize == nodes) else {
            return Err(run.wrong("it moves a job that does not run, or to too few nodes"));
        };
        let Some(left) = moves.checked_sub(1) else {
            return Err(run.wrong("it moves jobs without end"));
        };
        moves = left;
        hot.left = hot.left.checked_add(run.options.migration_ns).ok_or(SimError::Endless)?;
        run.give(index, &placement.processors);
        // Its new processors have not run it.
        hot.expected = NO_SLOT;
        let runs = slots.runs(&run.machine, &placement.processors);
        slots.load.add(&runs);
        slots.load.remove(&std::mem::replace(&mut slots.places[index], runs));
        run.tally.migrations += 1;
    }
    Ok(())
}

/// Runs one slot; the last one may be shorter.
fn step(run: &mut Run<'_>, slots: &mut Slots, now: u64) -> Result<(), SimError> {
    let Slots { hot, ended, slot, .. } = slots;
    let &Options { slice_ns, switch_ns, procs, .. } = run.options;
    let slice_ns = slice_ns.min(run.horizon() - now);
    let Tally { starts, switches, occupied, .. } = &mut run.tally;
    let policy: &mut dyn Policy = run.policy;
    let (slot, mut busy, mut idle_tail, mut wrong) = (*slot, 0u64, 0u128, false);
    policy.run_slot(&mut |job: JobId| {
        let index = job.0 as usize;
        let runs = |hot: &&mut SlotState| hot.size != 0 && hot.expected != slot + 1;
        let Some(hot) = hot.get_mut(index).filter(runs) else {
            wrong = true;
            return;
        };
        let mut turn = slice_ns;
        if hot.expected != slot {
            if hot.expected == NO_SLOT {
                starts[index] = starts[index].min(now);
            }
            turn = turn.saturating_sub(switch_ns);
            *switches += 1;
        }
        hot.expected = slot + 1;
        busy += u64::from(hot.size);
        if hot.left > turn {
            hot.left -= turn;
            return;
        }
        let unused = turn - hot.left;
        hot.left = 0;
        idle_tail += u128::from(unused) * u128::from(hot.size);
        ended.push((index, now + slice_ns - unused));
    });
    *occupied += u128::from(busy) * u128::from(slice_ns) - idle_tail;
    run.tally.slots += 1;
    if wrong {
        return Err(run.wrong("it runs a job that is not there, or twice in a slot"));
    }
    if busy > u64::from(procs) {
        return Err(run.wrong("it gives a processor to two jobs at once"));
    }
    slots.empty = if busy == 0 { slots.empty + 1 } else { 0 };
    if slots.empty > MOST_EMPTY_SLOTS {
        return Err(run.wrong("it gives no slots to jobs that are placed"));
    }
    Ok(())
}

/// Writes the samples that are due. Skipped slots were idle.
fn sample(run: &mut Run<'_>, slots: &Slots, now: u64) {
    while run.tally.sample_due(now).is_some() {
        let occupied = run.tally.occupied;
        run.tally.sample(occupied, Some(slots.load.range()));
    }
}

/// Time is up: counts the service of jobs that have not ended.
fn cut(run: &mut Run<'_>, slots: &Slots, horizon: u64) {
    sample(run, slots, horizon);
    for (index, hot) in slots.hot.iter().enumerate().filter(|(_, hot)| hot.size != 0) {
        let job = run.workload.jobs[index];
        let had = job.service.saturating_sub(hot.left);
        run.tally.served += u128::from(had) * u128::from(job.size);
    }
}
