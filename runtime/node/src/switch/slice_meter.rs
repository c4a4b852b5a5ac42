//! Measurement of a slice of a job: what its ranks used of it, and how far they came.
//!
//! The switching thread reads at the beginning and at the end of some slices. A reading costs some microseconds, so few slices
//! are measured, and few ranks of them.

use kumi_net::segment::ProgressReader;
use kumi_sched::JobId;
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;

/// Most ranks of a job that are looked at.
pub const MOST_RANKS: usize = 4;

/// A slice of a job, from its beginning to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SliceMeasure {
    /// The job.
    pub job: JobId,
    /// The slice's number in its timetable.
    pub tick: u64,
    /// Others had what the job left idle.
    pub filled: bool,
    /// Length in nanoseconds.
    pub wall_ns: u64,
    /// Ranks that were looked at, and all of the job here.
    pub ranks: [u32; 2],
    /// Processor time that the ranks used, nanoseconds.
    pub used_ns: u64,
    /// Frames that they sent and took.
    pub frames: u64,
}

/// Reads what is needed of a job's ranks.
#[derive(Debug)]
pub struct SliceMeter {
    /// Of each rank that is looked at: the clock of its processor time.
    ranks: Vec<ClockId>,
    all: u32,
    progress: ProgressReader,
}

/// Sums over the ranks at an instant.
#[derive(Clone, Copy, Debug)]
pub(super) struct SliceReading {
    used_ns: u64,
    frames: u64,
}

impl SliceMeter {
    /// For the ranks with these processes; none if they cannot be looked at.
    pub fn new(processes: &[i32], progress: ProgressReader) -> Option<Self> {
        let clock = |&process: &i32| ClockId::pid_cpu_clock_id(Pid::from_raw(process)).ok();
        let ranks = processes.iter().take(MOST_RANKS).map(clock).collect::<Option<Vec<_>>>()?;
        let all = u32::try_from(processes.len()).ok()?;
        (all > 0).then_some(Self { ranks, all, progress })
    }

    /// How it stands now; none if a rank has ended.
    pub(super) fn read(&self) -> Option<SliceReading> {
        let mut sum = SliceReading { used_ns: 0, frames: self.progress.frames() };
        for clock in &self.ranks {
            let time = clock_gettime(*clock).ok()?;
            let used = u64::try_from(time.tv_sec()).ok()?.saturating_mul(1_000_000_000);
            let used = used.saturating_add(u64::try_from(time.tv_nsec()).ok()?);
            sum.used_ns = sum.used_ns.saturating_add(used);
        }
        Some(sum)
    }

    /// The slice between two readings, of which the caller knows the rest.
    pub(super) fn between(
        &self,
        (job, tick, filled, wall_ns): (JobId, u64, bool, u64),
        [before, after]: [SliceReading; 2],
    ) -> SliceMeasure {
        let looked_at = u32::try_from(self.ranks.len()).unwrap_or(u32::MAX);
        SliceMeasure {
            job,
            tick,
            filled,
            wall_ns,
            ranks: [looked_at, self.all],
            used_ns: after.used_ns.saturating_sub(before.used_ns),
            frames: after.frames.wrapping_sub(before.frames),
        }
    }
}
