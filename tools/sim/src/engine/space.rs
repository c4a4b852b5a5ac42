//! Engine for policies that share space only: it goes from event to event.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::{Instant, Run};
use crate::error::SimError;

/// Jobs that run, and the processors that they hold.
#[derive(Default)]
struct Running {
    /// End, number of the start and place in the list; the earliest first.
    ends: BinaryHeap<Reverse<(u64, u64, usize)>>,
    busy: u64,
    /// `Tally::occupied` counts up to this time.
    counted: u64,
}

impl Running {
    fn next_end(&self) -> Option<u64> {
        self.ends.peek().map(|Reverse((at, ..))| *at)
    }
}

pub(super) fn run(run: &mut Run<'_>) -> Result<(), SimError> {
    let mut running = Running::default();
    loop {
        let (end, submission) = (running.next_end(), run.next_submission());
        let Some(now) = end.into_iter().chain(submission).min() else { break };
        if now >= run.horizon() {
            break;
        }
        count(run, &mut running, now);
        match run.options.instant {
            Instant::Single => one(run, &mut running, now)?,
            Instant::Batched => {
                while running.next_end() == Some(now) {
                    end_one(run, &mut running, now);
                }
                while run.next_submission() == Some(now) {
                    run.arrive(now)?;
                }
            }
        }
        place(run, &mut running, now)?;
        let done = if run.workload.horizon.is_some() { now } else { run.tally.over };
        run.progress.at(done)?;
    }
    match run.workload.horizon {
        Some(horizon) => cut(run, &mut running, horizon),
        None => run.check_nobody_waits()?,
    }
    Ok(())
}

/// The first event of this instant; arrivals come first here.
fn one(run: &mut Run<'_>, running: &mut Running, now: u64) -> Result<(), SimError> {
    if run.next_submission() == Some(now) {
        return run.arrive(now);
    }
    end_one(run, running, now);
    Ok(())
}

/// Counts processor time up to `now`, and takes the samples before it.
fn count(run: &mut Run<'_>, running: &mut Running, now: u64) {
    let since = |at: u64| u128::from(at - running.counted) * u128::from(running.busy);
    while let Some(at) = run.tally.sample_due(now) {
        let occupied = run.tally.occupied + since(at);
        run.tally.sample(occupied, None);
    }
    run.tally.occupied += since(now);
    running.counted = now;
}

fn end_one(run: &mut Run<'_>, running: &mut Running, now: u64) {
    if let Some(Reverse((.., index))) = running.ends.pop() {
        running.busy -= u64::from(run.workload.jobs[index].size);
        run.tally.end(index, now);
        run.leave(index, now);
    }
}

fn place(run: &mut Run<'_>, running: &mut Running, now: u64) -> Result<(), SimError> {
    while let Some((index, _)) = run.placement(now)? {
        let job = run.workload.jobs[index];
        running.busy += u64::from(job.size);
        if running.busy > u64::from(run.options.procs) {
            return Err(run.wrong("it gives a processor to two jobs at once"));
        }
        let end = now.checked_add(job.service + run.options.launch_ns).ok_or(SimError::Endless)?;
        run.tally.start(index, now);
        running.ends.push(Reverse((end, run.tally.placed, index)));
    }
    Ok(())
}

/// Time is up: counts the service of running jobs.
fn cut(run: &mut Run<'_>, running: &mut Running, horizon: u64) {
    count(run, running, horizon);
    for Reverse((.., index)) in &running.ends {
        let started = run.tally.starts[*index].saturating_add(run.options.launch_ns);
        let size = u128::from(run.workload.jobs[*index].size);
        run.tally.served += u128::from(horizon.saturating_sub(started)) * size;
    }
}
