//! Engine that runs one policy over one list of jobs in virtual time.
//!
//! *The order of events.* Time is in nanoseconds. [`Instant::Batched`] tells the policy all ends of an
//! instant, then all arrivals, and then asks for placements. [`Instant::Single`] asks after each event: first
//! the arrivals of the instant in the order of the list, then the ends in the order in which the jobs
//! started. Simulators with a plain list of events use this order: events of one time stay in the order of
//! insertion, and submissions are inserted first. `Single` exists for comparisons with them. Backfilling
//! decides differently in the two if a trace counts in whole seconds. Where time is shared, ends come first
//! in both.
//!
//! *Slots.* Where time is shared, slot `k` is from `k * slice` to `(k + 1) * slice`. The policy hears of an
//! arrival at the first boundary at or after it. A job that ends within a slot ends when its service is used
//! up. Its processors idle for the rest of that slot, and the policy hears of the end at the boundary. Slots
//! without an active job are skipped.
//!
//! *Costs.* A job pays for a switch at the start of each slot that does not follow one of its own. It pays
//! once for its launch and for each migration. It pays with time of its slots, which then does not count as
//! service.

mod fast_forward;
mod load;
mod slots;
mod space;
mod tally;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use kumi_sched::{
    ClusterTime, FairPolicy, FairShares, JobId, Policy, ProcessorId, Request, ShareRules, Sharing,
    UserId,
};
use serde::Serialize;

use crate::error::SimError;
use crate::job::{Job, LONGEST_S, SECOND, Workload};
use crate::machine::Machine;
use crate::policies::partitions;
use tally::Tally;
pub use tally::{Outcome, Sample};

/// A job that has waited for so many half-lives goes before all others: by then little is left of what was spent before it came.
/// The same as in a cluster that is not told otherwise.
const OVERTAKEN_HALF_LIVES: u64 = 7;

/// When the policy is asked for placements, if several things happen at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Instant {
    /// After all events of an instant.
    #[default]
    Batched,
    /// After each event.
    Single,
}

/// The machine and its costs. Times are nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Options {
    /// Processors.
    pub procs: u32,
    /// Processors of a node.
    #[serde(skip_serializing_if = "is_one")]
    pub node_procs: u32,
    /// Bytes of memory of a node; 0 if it limits no job.
    #[serde(skip_serializing_if = "is_zero")]
    pub node_memory: u64,
    /// Processors of each rank of a job, which are on one node.
    #[serde(skip_serializing_if = "is_one")]
    pub rank_procs: u32,
    /// Length of a slot, where time is shared.
    pub slice_ns: u64,
    /// Cost of giving a job its processors back.
    pub switch_ns: u64,
    /// Cost of starting a job.
    pub launch_ns: u64,
    /// Cost of moving a job to other processors.
    pub migration_ns: u64,
    /// When the policy is asked for placements.
    pub instant: Instant,
    /// Jobs wait in the order of fair shares of their users, and half of what these have spent is forgotten in this time. `None`:
    /// in the order of the policy alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub half_life_ns: Option<u64>,
    /// Interval of the samples of the time line; `None`: none are taken.
    pub sample_ns: Option<u64>,
}

#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_one(number: &u32) -> bool {
    *number == 1
}

#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Options {
    /// A machine of `procs` processors, slots of a second and no costs, as in the SCore-D paper, §7.2.
    pub fn new(procs: u32) -> Self {
        Self {
            procs,
            node_procs: 1,
            node_memory: 0,
            rank_procs: 1,
            slice_ns: SECOND,
            switch_ns: 0,
            launch_ns: 0,
            migration_ns: 0,
            instant: Instant::Batched,
            half_life_ns: None,
            sample_ns: None,
        }
    }

    fn check(&self) -> Result<(), SimError> {
        let wrong = |name, value: u64, advice| {
            Err(SimError::Parameter { name, value: value.to_string(), advice })
        };
        if self.procs == 0 || self.procs > 1 << 24 {
            let advice = "give a machine of 1 to 16777216 processors";
            return wrong("--procs", u64::from(self.procs), advice);
        }
        if self.node_procs == 0 || self.node_procs > self.procs {
            let advice = "a node has 1 processor or more, and the machine at least one node";
            return wrong("--cpus-per-node", self.node_procs.into(), advice);
        }
        if self.rank_procs == 0 || self.rank_procs > self.node_procs {
            let advice = "a rank has 1 processor or more, all on one node: see --cpus-per-node";
            return wrong("--cpus-per-rank", self.rank_procs.into(), advice);
        }
        if self.slice_ns == 0 || self.slice_ns > LONGEST_S * SECOND {
            return wrong("--slice", self.slice_ns, "a slice has a length, of 31 years at most");
        }
        if self.switch_ns >= self.slice_ns {
            let advice = "it is in ns and must be shorter than a slice, or no job would ever end";
            return wrong("--switch-cost", self.switch_ns, advice);
        }
        if self.launch_ns.max(self.migration_ns) > LONGEST_S * SECOND {
            return wrong("--launch-cost", self.launch_ns, "31 years are the most");
        }
        if let Some(half_life) = self.half_life_ns
            && !(SECOND..=LONGEST_S * SECOND).contains(&half_life)
        {
            return wrong(
                "--half-life",
                half_life,
                "it is in ns: give 1s or more, 31 years at most",
            );
        }
        if self.sample_ns == Some(0) {
            return wrong("--sample", 0, "give an interval above 0");
        }
        Ok(())
    }
}

/// A view into a running simulation from other threads: how far it is, and a way to stop it.
#[derive(Debug, Default)]
pub struct Monitor {
    permille: AtomicU64,
    cancelled: AtomicBool,
}

impl Monitor {
    /// Ends the simulation soon, with [`SimError::Cancelled`].
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// Whether the simulation is to end.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// Progress of the simulations that share this monitor: a thousand for each that has ended.
    pub fn permille(&self) -> u64 {
        self.permille.load(Ordering::Relaxed)
    }

    /// Adds to the progress.
    pub(crate) fn advance(&self, permille: u64) {
        self.permille.fetch_add(permille, Ordering::Relaxed);
    }
}

/// Whether a simulation goes on: not if the monitor says stop, or an earlier case of the same sweep has
/// failed. Cases before a failed one go on, so that the reported error is always that of the first failing
/// case.
#[derive(Clone, Copy)]
pub(crate) struct StopSignal<'a> {
    pub(crate) monitor: &'a Monitor,
    /// Its place in the sweep.
    pub(crate) place: usize,
    /// Place of the first case that has failed.
    pub(crate) failed: &'a AtomicUsize,
}

impl StopSignal<'_> {
    /// # Errors
    /// [`SimError::Cancelled`] if it is to stop.
    pub(crate) fn check(&self) -> Result<(), SimError> {
        let stop = self.monitor.is_cancelled() || self.failed.load(Ordering::Relaxed) < self.place;
        if stop { Err(SimError::Cancelled) } else { Ok(()) }
    }
}

/// Progress of one simulation, which it reports to the monitor.
struct Progress<'a> {
    watch: StopSignal<'a>,
    told: u64,
    of: u64,
    calls: u32,
}

impl<'a> Progress<'a> {
    fn new(watch: StopSignal<'a>, of: u64) -> Self {
        Self { watch, told: 0, of: of.max(1), calls: 0 }
    }

    /// Checks at every call whether to stop, because a slot of a slow policy can take long. Reports progress
    /// now and then.
    fn at(&mut self, done: u64) -> Result<(), SimError> {
        self.calls = self.calls.wrapping_add(1);
        if self.calls.is_multiple_of(256) { self.tell(done) } else { self.watch.check() }
    }

    fn tell(&mut self, done: u64) -> Result<(), SimError> {
        self.watch.check()?;
        let permille = u128::from(done.min(self.of)) * 1000 / u128::from(self.of);
        let permille = (permille as u64).max(self.told);
        self.watch.monitor.permille.fetch_add(permille - self.told, Ordering::Relaxed);
        self.told = permille;
        Ok(())
    }
}

/// Runs `policy`, called `name` in messages, over the jobs. With several processors for each rank, sizes of jobs must be
/// multiples of them: see [`Workload::in_ranks_of`].
///
/// # Errors
/// The list or a parameter is impossible, the policy refuses a job or leaves jobs waiting for ever,
/// or the monitor says stop.
pub fn run(
    name: &str,
    policy: &mut dyn Policy,
    workload: &Workload,
    options: &Options,
    monitor: &Monitor,
) -> Result<Outcome, SimError> {
    let failed = AtomicUsize::new(usize::MAX);
    run_watched(name, policy, workload, options, StopSignal { monitor, place: 0, failed: &failed })
}

/// As [`run`], in a sweep.
pub(crate) fn run_watched(
    name: &str,
    policy: &mut dyn Policy,
    workload: &Workload,
    options: &Options,
    watch: StopSignal<'_>,
) -> Result<Outcome, SimError> {
    options.check()?;
    workload.check(options.procs)?;
    let shares = options.half_life_ns.map(|half_life_ns| {
        let overtaken_ns = half_life_ns.saturating_mul(OVERTAKEN_HALF_LIVES);
        FairShares::new(ShareRules { half_life_ns, overtaken_ns })
    });
    let policy: &mut dyn Policy = &mut FairPolicy::new(policy, shares);
    let machine = Machine::new(options, policy.arity());
    machine.nodes().for_each(|node| policy.add_node(&node));
    let grain = match policy.sharing() {
        Sharing::Space => 1,
        Sharing::SpaceAndTime => options.slice_ns,
    };
    let tally = Tally::new(workload, options, grain);
    let total = workload.horizon.unwrap_or(workload.jobs.len() as u64);
    let progress = Progress::new(watch, total);
    let partitions = partitions(name);
    let next = 0;
    let mut run =
        Run { name, policy, workload, options, machine, tally, progress, partitions, next };
    match run.policy.sharing() {
        Sharing::Space => space::run(&mut run)?,
        Sharing::SpaceAndTime => slots::run(&mut run)?,
    }
    run.progress.tell(total)?;
    Ok(run.tally.finish())
}

/// State that both engines share.
struct Run<'a> {
    name: &'a str,
    policy: &'a mut dyn Policy,
    workload: &'a Workload,
    options: &'a Options,
    machine: Machine,
    tally: Tally<'a>,
    progress: Progress<'a>,
    /// Sizes of the policy's partitions are powers of this.
    partitions: Option<u32>,
    /// The first job that has not been submitted.
    next: usize,
}

impl Run<'_> {
    fn horizon(&self) -> u64 {
        self.workload.horizon.unwrap_or(u64::MAX)
    }

    /// The next job to be submitted within the simulated time.
    fn next_submission(&self) -> Option<u64> {
        let submit = self.workload.jobs.get(self.next)?.submit;
        Some(submit).filter(|&submit| submit < self.horizon())
    }

    /// Submits the next job.
    fn arrive(&mut self, now: u64) -> Result<(), SimError> {
        let job = self.workload.jobs[self.next];
        let request = Request {
            job: JobId(self.next as u64),
            demand: self.machine.demand(&job),
            user: UserId(job.user),
            priority: job.priority,
            estimate_ns: Some(job.estimate.saturating_add(self.options.launch_ns)),
        };
        self.next += 1;
        self.tally.arrived += 1;
        self.policy.arrive(&request, ClusterTime(now)).map_err(|reason| SimError::Refused {
            policy: self.name.to_owned(),
            job: job.number,
            reason,
        })
    }

    fn leave(&mut self, index: usize, now: u64) {
        self.policy.leave(JobId(index as u64), ClusterTime(now));
    }

    /// The next placement: the job's place in the list, and its nodes.
    fn placement(&mut self, now: u64) -> Result<Option<(usize, Vec<ProcessorId>)>, SimError> {
        // Many placements at once can take long too.
        self.progress.watch.check()?;
        let Some(placement) = self.policy.next_placement(ClusterTime(now)) else { return Ok(None) };
        let index = usize::try_from(placement.job.0).unwrap_or(usize::MAX);
        let right = self.workload.jobs.get(index).is_some_and(|job| {
            index < self.next && placement.processors.len() == job.size as usize
        });
        if !right {
            return Err(self.wrong("it places a job that does not wait, or on too few nodes"));
        }
        self.policy.set_active(placement.job, true);
        self.tally.placed += 1;
        self.give(index, &placement.processors);
        Ok(Some((index, placement.processors)))
    }

    /// The processors of a job with these nodes: its whole partition where the policy gives such.
    fn give(&mut self, index: usize, nodes: &[ProcessorId]) {
        let Some(arity) = self.partitions else { return };
        if let Some(partition) = self.machine.partition(arity, nodes) {
            self.tally.given[index] = self.machine.count(&partition).max(nodes.len() as u32);
        }
    }

    fn wrong(&self, what: &'static str) -> SimError {
        SimError::Policy { policy: self.name.to_owned(), what }
    }

    /// The machine is idle and no job comes any more: no job may wait.
    fn check_nobody_waits(&self) -> Result<(), SimError> {
        if self.tally.placed == self.tally.arrived {
            return Ok(());
        }
        let waiting = self.policy.queued();
        let index = waiting.first().and_then(|job| usize::try_from(job.0).ok());
        let first = index.and_then(|index| self.workload.jobs.get(index));
        let Some(&Job { number, size, .. }) = first else {
            return Err(self.wrong("it has lost jobs"));
        };
        Err(SimError::Stuck {
            policy: self.name.to_owned(),
            jobs: self.tally.arrived - self.tally.placed,
            first: number,
            size,
        })
    }
}
