//! Fast-forward over many slots to the next event, if the policy describes the slots to come.
//!
//! The result is the same as slot by slot, to the nanosecond.

use kumi_sched::{Line, Round};

use super::slots::{NO_SLOT, SlotState, Slots};
use super::tally::Tally;
use super::{Options, Run};
use crate::error::SimError;

/// A line and its position.
struct Track<'a> {
    line: Line<'a>,
    length: u64,
    /// The first slot of the round.
    first: u64,
}

impl Track<'_> {
    /// The slot in which it has its turn of this number.
    fn slot_of(&self, turn: u64) -> u64 {
        self.first.saturating_add(self.line.slot_of(turn, self.length))
    }

    /// How many of these turns, from the first one on, do not directly follow the turn before, if one job has
    /// all turns. The first turn counts.
    fn breaks(&self, turns: u64) -> u64 {
        let slots = self.line.slots;
        let inner = |turns: usize| {
            slots[..turns].windows(2).filter(|pair| pair[0] + 1 != pair[1]).count() as u64
        };
        let between = u64::from(self.slot_of(slots.len() as u64) != self.last_of_round() + 1);
        let (rounds, rest) = (turns / slots.len() as u64, turns % slots.len() as u64);
        let begun = rounds + u64::from(rest > 0);
        1 + rounds * inner(slots.len()) + (begun - 1) * between + inner(rest as usize)
    }

    fn last_of_round(&self) -> u64 {
        self.slot_of(self.line.slots.len() as u64 - 1)
    }

    /// A slot before which the job at a place of the ring does not end. Without a switching cost, the job
    /// ends in this slot.
    fn lasts_until(&self, place: usize, hot: &SlotState, options: &Options) -> u64 {
        let &Options { slice_ns, switch_ns, .. } = options;
        let (jobs, slots) = (self.line.jobs.len() as u64, self.line.slots.len() as u64);
        // The first turn may be the only one without a switching cost.
        let left = (hot.left - 1).saturating_sub(switch_ns);
        let turns = if switch_ns == 0 || jobs > 1 {
            left / (slice_ns - switch_ns)
        } else {
            let breaks = self.breaks(2 * slots) - self.breaks(slots);
            let [slots, breaks] = [(slots, slice_ns), (breaks, switch_ns)]
                .map(|(count, time)| u128::from(count) * u128::from(time));
            let rounds = u128::from(left) / (slots - breaks);
            rounds as u64 * self.line.slots.len() as u64
        };
        self.slot_of(turns.saturating_mul(jobs).saturating_add(place as u64))
    }

    /// Gives the job at a place of the ring its turns before the slot `until`. Returns how many.
    fn serve(&self, place: usize, until: u64, hot: &mut SlotState, options: &Options) -> Turns {
        let &Options { slice_ns, switch_ns, .. } = options;
        let all = self.line.turns(until - self.first, self.length);
        let (place, jobs) = (place as u64, self.line.jobs.len() as u64);
        let turns = all.saturating_sub(place).div_ceil(jobs);
        if turns == 0 {
            return Turns::default();
        }
        let begin = self.slot_of(place);
        let breaks = if jobs == 1 { self.breaks(turns) } else { turns };
        let switches = breaks - u64::from(hot.expected == begin);
        let first = (hot.expected == NO_SLOT).then_some(begin * slice_ns);
        hot.left -= turns * (slice_ns - switch_ns) + (turns - switches) * switch_ns;
        hot.expected = self.slot_of(place + (turns - 1) * jobs) + 1;
        Turns { turns, switches, first }
    }
}

/// Turns of a job.
#[derive(Default)]
struct Turns {
    turns: u64,
    switches: u64,
    /// Time of its very first turn, if that was among them.
    first: Option<u64>,
}

/// Goes on to the slot in which the next job ends or arrives, or as far as the policy's round reaches.
/// Returns whether any slot has passed.
pub(super) fn fast_forward(
    run: &mut Run<'_>,
    slots: &mut Slots,
    round: &mut Round,
) -> Result<bool, SimError> {
    let most = unchanged(run, slots.slot);
    if most < 2 || !run.policy.next_round(most, round) {
        return Ok(false);
    }
    let Some(until) = until(slots, round, run.options, most) else {
        return Err(run.wrong("it gives turns to a job that is not there"));
    };
    let passed = until - slots.slot;
    if passed == 0 {
        return Ok(false);
    }
    let Tally { starts, switches, occupied, .. } = &mut run.tally;
    let (length, first, mut busy) = (round.length(), slots.slot, 0u128);
    for line in round.lines() {
        let track = Track { line, length, first };
        for (place, job) in line.jobs.iter().enumerate() {
            let index = job.0 as usize;
            let hot = &mut slots.hot[index];
            let had = track.serve(place, until, hot, run.options);
            if let Some(at) = had.first {
                starts[index] = starts[index].min(at);
            }
            *switches += had.switches;
            busy += u128::from(had.turns) * u128::from(hot.size);
        }
    }
    if busy > u128::from(run.options.procs) * u128::from(passed) {
        return Err(run.wrong("it gives a processor to two jobs at once"));
    }
    *occupied += busy * u128::from(run.options.slice_ns);
    run.tally.slots += passed;
    run.policy.advance(passed);
    slots.slot = until;
    slots.empty = 0;
    Ok(true)
}

/// Number of whole slots from this one on without an arrival or a sample.
fn unchanged(run: &Run<'_>, slot: u64) -> u64 {
    let slice = run.options.slice_ns;
    let submission = run.next_submission().map(|at| at.div_ceil(slice));
    let sample = run.tally.next_sample().map(|at| at.div_ceil(slice));
    let ends = [submission, sample, Some(run.horizon() / slice)];
    ends.into_iter().flatten().min().unwrap_or(0).saturating_sub(slot)
}

/// The slot, at most this many from now, before which no job ends. `None` if a line has an unknown job.
fn until(slots: &Slots, round: &Round, options: &Options, most: u64) -> Option<u64> {
    let (length, first) = (round.length(), slots.slot);
    let mut until = first + most;
    for line in round.lines() {
        let track = Track { line, length, first };
        for (place, job) in line.jobs.iter().enumerate() {
            let there = |hot: &&SlotState| {
                hot.size != 0 && (hot.expected <= first || hot.expected == NO_SLOT)
            };
            let hot = slots.hot.get(job.0 as usize).filter(there)?;
            until = until.min(track.lasts_until(place, hot, options));
        }
    }
    Some(until)
}
