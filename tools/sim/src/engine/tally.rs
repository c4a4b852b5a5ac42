//! Statistics that a simulation collects while it runs.

use serde::Serialize;

use super::Options;
use crate::job::Workload;

/// Not yet, or never.
const NEVER: u64 = u64::MAX;

/// Outcome of every job. Times are nanoseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// When each job first ran, in the order of the list.
    starts: Vec<u64>,
    /// When each job ended.
    ends: Vec<u64>,
    /// Size of each job's last partition; empty where the policy has no partitions.
    given: Vec<u32>,
    /// Length of the simulation: from the first submission, or from 0 with a horizon.
    pub time_ns: u64,
    /// Begin of that time.
    pub from_ns: u64,
    /// Processor-nanoseconds in which a job held its processors and had its turn.
    pub occupied: u128,
    /// The part of these that was service.
    pub served: u128,
    /// Jobs that were submitted within the time simulated.
    pub arrived: u64,
    /// Number of times that a job got its processors back.
    pub switches: u64,
    /// Jobs that were moved.
    pub migrations: u64,
    /// Slots run (0 where time is not shared).
    pub slots: u64,
    /// Largest number of jobs on one processor at a time; `None` where time is not shared. In a tree of
    /// queues this is the largest Max-TQLB (§7.1.2).
    pub max_tqlb: Option<u32>,
    /// The time line, if it was asked for.
    pub samples: Vec<Sample>,
}

impl Outcome {
    /// When the job at this place of the list first ran.
    pub fn start(&self, index: usize) -> Option<u64> {
        self.starts.get(index).copied().filter(|&at| at != NEVER)
    }

    /// Size of its last partition; `None` if it had none, or the policy has no partitions.
    pub fn given(&self, index: usize) -> Option<u32> {
        self.given.get(index).copied().filter(|&given| given > 0)
    }

    /// When it ended.
    pub fn end(&self, index: usize) -> Option<u64> {
        self.ends.get(index).copied().filter(|&at| at != NEVER)
    }
}

/// The machine at one time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Sample {
    /// When, in nanoseconds.
    pub at: u64,
    /// Share of the processors that were busy since the sample before.
    pub utilisation: f64,
    /// Jobs placed.
    pub placed: u64,
    /// Jobs that wait for processors.
    pub queued: u64,
    /// Most jobs on a processor at this time (Max-TQLB), where time is shared.
    pub max_tqlb: Option<u32>,
    /// Fewest jobs on a processor at this time (Min-TQLB), where time is shared.
    pub min_tqlb: Option<u32>,
}

pub(super) struct Tally<'a> {
    workload: &'a Workload,
    options: &'a Options,
    /// Boundaries between samples: where time is shared, whole slots.
    interval: Option<u64>,
    pub(super) starts: Vec<u64>,
    pub(super) ends: Vec<u64>,
    pub(super) given: Vec<u32>,
    pub(super) occupied: u128,
    pub(super) served: u128,
    pub(super) arrived: u64,
    pub(super) placed: u64,
    pub(super) over: u64,
    pub(super) switches: u64,
    pub(super) migrations: u64,
    pub(super) slots: u64,
    pub(super) max_tqlb: Option<u32>,
    /// Time of the last event.
    pub(super) last: u64,
    samples: Vec<Sample>,
    next_sample: u64,
    occupied_before: u128,
}

/// Begin of the simulated time: the first submission, unless a length was given.
fn from(workload: &Workload) -> u64 {
    let first = workload.jobs.first().map_or(0, |job| job.submit);
    if workload.horizon.is_some() { 0 } else { first }
}

impl<'a> Tally<'a> {
    /// `grain`: distances of samples are a multiple of this, 1 or a slice.
    pub(super) fn new(workload: &'a Workload, options: &'a Options, grain: u64) -> Self {
        let jobs = workload.jobs.len();
        let whole = |interval: u64| interval.div_ceil(grain).saturating_mul(grain);
        let interval = options.sample_ns.map(whole);
        let from = from(workload) / grain * grain;
        Self {
            workload,
            options,
            interval,
            starts: vec![NEVER; jobs],
            ends: vec![NEVER; jobs],
            given: vec![0; jobs],
            occupied: 0,
            served: 0,
            arrived: 0,
            placed: 0,
            over: 0,
            switches: 0,
            migrations: 0,
            slots: 0,
            max_tqlb: None,
            last: 0,
            samples: Vec::new(),
            next_sample: interval.map_or(NEVER, |interval| from.saturating_add(interval)),
            occupied_before: 0,
        }
    }

    /// The job has its first turn, unless it had one.
    pub(super) fn start(&mut self, index: usize, at: u64) {
        if self.starts[index] == NEVER {
            self.starts[index] = at;
        }
    }

    /// The job is over.
    pub(super) fn end(&mut self, index: usize, at: u64) {
        self.ends[index] = at;
        self.over += 1;
        self.last = self.last.max(at);
        let job = self.workload.jobs[index];
        self.served += u128::from(job.service) * u128::from(job.size);
    }

    /// When the next sample is due, if any are taken.
    pub(super) fn next_sample(&self) -> Option<u64> {
        self.interval.map(|_| self.next_sample)
    }

    /// Whether a sample is due at or before `now`.
    pub(super) fn sample_due(&self, now: u64) -> Option<u64> {
        (self.next_sample <= now).then_some(self.next_sample)
    }

    /// Writes the sample that is due; `occupied` is the sum up to then.
    pub(super) fn sample(&mut self, occupied: u128, tqlb: Option<(u32, u32)>) {
        let Some(interval) = self.interval else { return };
        let capacity = u128::from(interval) * u128::from(self.options.procs);
        #[allow(clippy::cast_precision_loss)]
        let utilisation = (occupied - self.occupied_before) as f64 / capacity as f64;
        self.occupied_before = occupied;
        self.samples.push(Sample {
            at: self.next_sample,
            utilisation,
            placed: self.placed - self.over,
            queued: self.arrived - self.placed,
            max_tqlb: tqlb.map(|(_, most)| most),
            min_tqlb: tqlb.map(|(least, _)| least),
        });
        self.next_sample = self.next_sample.saturating_add(interval);
    }

    pub(super) fn finish(self) -> Outcome {
        let from_ns = from(self.workload);
        let until = self.workload.horizon.unwrap_or(self.last.max(from_ns));
        Outcome {
            starts: self.starts,
            ends: self.ends,
            given: self.given,
            time_ns: until - from_ns,
            from_ns,
            occupied: self.occupied,
            served: self.served,
            arrived: self.arrived,
            switches: self.switches,
            migrations: self.migrations,
            slots: self.slots,
            max_tqlb: self.max_tqlb,
            samples: self.samples,
        }
    }
}
