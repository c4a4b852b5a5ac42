//! Timetable: which job runs on which node in which slot of an endless cycle.
//!
//! It is published once per change; the nodes switch by their clocks and a slice costs no message.

use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};

/// A node's number in its cluster: dense, from 0, fixed by the cluster's configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeId(pub u32);

/// A processor's number in scheduling policies: those of a node follow one another. The caller numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ProcessorId(pub u32);

/// A job's number: given by the head in order of submission, never reused in a cluster's life. Nodes know each start of a job
/// by a name of its own, see [`JobId::of_start`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct JobId(pub u64);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for ProcessorId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl JobId {
    /// Where the count of restarts begins in the name by which nodes know a start of a job.
    const RESTARTS: u32 = 48;

    /// A job can be started again so often.
    pub const MOST_RESTARTS: u32 = (1 << 15) - 1;

    /// The name by which nodes know the job after it was started again so often, at most [`JobId::MOST_RESTARTS`]. So they never
    /// take one start for another.
    #[must_use]
    pub fn of_start(self, restarts: u32) -> Self {
        let restarts = u64::from(restarts & Self::MOST_RESTARTS);
        Self(self.number().0 | restarts << Self::RESTARTS)
    }

    /// The job's number alone.
    #[must_use]
    pub fn number(self) -> Self {
        Self(self.0 & ((1 << Self::RESTARTS) - 1))
    }

    /// How often the job was started again before the start that this names.
    #[must_use]
    pub fn restarts(self) -> u32 {
        u32::try_from(self.0 >> Self::RESTARTS).unwrap_or(0) & Self::MOST_RESTARTS
    }
}

/// Its number, and of a start that is not the first its place after a dot.
impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.restarts() {
            0 => self.0.fmt(f),
            restarts => write!(f, "{}.{restarts}", self.number().0),
        }
    }
}

/// Nanoseconds on the cluster's common clock, which is the head's monotonic clock.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct ClusterTime(pub u64);

/// How the nodes share their processors among jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    /// All ranks of a job run in the same slice. `force_switch` switches (freezes and thaws) even
    /// where only one job is runnable, to measure what a switch costs.
    Gang {
        /// Switch where nothing has to be switched.
        force_switch: bool,
        /// Jobs that do not say otherwise have what others leave idle in their turns.
        fill: bool,
    },
    /// Every job is runnable all the time; the operating systems share the processors as they like.
    OperatingSystem,
}

/// One processor's part of a timetable, as policies make it: the job of each slot, `None` for an idle slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessorColumn {
    /// The processor.
    pub processor: ProcessorId,
    /// As long as every other column's.
    pub slots: Vec<Option<JobId>>,
}

impl ProcessorColumn {
    /// The only job of this column, if there is exactly one.
    pub fn sole_job(&self) -> Option<JobId> {
        let mut jobs = self.slots.iter().flatten();
        let first = *jobs.next()?;
        jobs.all(|&job| job == first).then_some(first)
    }
}

/// After how few of so many slots they repeat; whole times that many are in all. `repeats` says whether they do after some.
pub(crate) fn shortest_period(slots: usize, repeats: impl Fn(usize) -> bool) -> usize {
    let shorter = (1..slots).find(|&period| slots.is_multiple_of(period) && repeats(period));
    shorter.unwrap_or(slots)
}

/// Whether the slots repeat after so many, at most all.
pub(crate) fn repeats<S: PartialEq>(slots: &[S], period: usize) -> bool {
    slots[period..] == slots[..slots.len() - period]
}

/// One node's part of a timetable: the jobs of each slot of the cycle, each on processors of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    /// The node.
    pub node: NodeId,
    /// They repeat, and are as few as possible: columns of one timetable may have different lengths. The jobs of a slot ascend.
    pub slots: Vec<Vec<JobId>>,
}

impl Column {
    /// The place of the slot of this tick.
    pub(crate) fn place_of(&self, tick: u64) -> usize {
        let length = self.slots.len().max(1) as u64;
        usize::try_from(tick % length).unwrap_or(0)
    }

    /// Begins with the slot of this tick. Nothing else changes.
    pub(crate) fn pass(&mut self, ticks: u64) {
        let first = self.place_of(ticks);
        self.slots.rotate_left(first);
    }

    /// Leaves out slots that only repeat others.
    pub(crate) fn shorten(&mut self) {
        let period = shortest_period(self.slots.len(), |period| repeats(&self.slots, period));
        self.slots.truncate(period);
    }

    /// The jobs of its slots, if all slots that have any have the same: such a node needs no switching.
    pub fn constant_jobs(&self) -> Option<&[JobId]> {
        let mut slots = self.slots.iter().filter(|slot| !slot.is_empty());
        let first = slots.next()?;
        slots.all(|slot| slot == first).then_some(first)
    }
}

/// A cyclic timetable. Tick `k` begins at `start - phase_ns + k * slice_ns` and shows slot
/// `k` of each column, which repeats. It holds from `start` on, so tick 0 may be short.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timetable {
    /// Rises with each timetable published; a node ignores one that is not newer than its own.
    pub generation: u64,
    /// When tick 0 begins. A node that gets it later starts with the tick then due.
    pub start: ClusterTime,
    /// Length of a slice, in nanoseconds; never 0.
    pub slice_ns: u64,
    /// How much of tick 0 is over at `start`, in nanoseconds, less than a slice. A timetable that
    /// replaces another continues its current slice, so the running job keeps that slice to its
    /// end.
    pub phase_ns: u64,
    /// How processors are shared.
    pub mode: Mode,
    /// Sorted by node. A node not named has no job.
    pub columns: Vec<Column>,
    /// Jobs outside the rotation, ascending: all their ranks wait, so they have no slots and no
    /// node stops them.
    pub idle: Vec<JobId>,
}

impl Timetable {
    /// The number of slots after which the timetable repeats; 0 when it holds no job.
    pub fn cycle(&self) -> usize {
        let lengths = self.columns.iter().map(|column| column.slots.len());
        lengths.reduce(least_common_multiple).unwrap_or(0)
    }

    /// The same with the parts of nodes below this number only.
    #[must_use]
    pub fn of_first_nodes(&self, nodes: u32) -> Self {
        let first = self.columns.partition_point(|column| column.node.0 < nodes);
        let &Self { generation, start, slice_ns, phase_ns, mode, .. } = self;
        let (columns, idle) = (self.columns[..first].to_vec(), self.idle.clone());
        Self { generation, start, slice_ns, phase_ns, mode, columns, idle }
    }

    /// The part of `node`.
    pub fn column(&self, node: NodeId) -> Option<&Column> {
        let index = self.columns.binary_search_by_key(&node, |column| column.node).ok()?;
        Some(&self.columns[index])
    }

    /// The tick that is due at `now`; 0 before the start.
    pub fn tick_at(&self, now: ClusterTime) -> u64 {
        let since = now.0.saturating_sub(self.start.0);
        since.saturating_add(self.phase_ns) / self.slice_ns.max(1)
    }

    /// When tick `tick` begins.
    pub fn tick_start(&self, tick: u64) -> ClusterTime {
        let after = tick.saturating_mul(self.slice_ns).saturating_sub(self.phase_ns);
        ClusterTime(self.start.0.saturating_add(after))
    }

    /// The jobs of `node` in each slot until the timetable repeats; nothing if it has none at all.
    pub fn slots_of(&self, node: NodeId) -> Vec<&[JobId]> {
        let cycle = self.column(node).map_or(0, |_| self.cycle() as u64);
        (0..cycle).map(|slot| self.jobs_at(node, slot)).collect()
    }

    /// The jobs that `node` runs in tick `tick`.
    pub fn jobs_at(&self, node: NodeId, tick: u64) -> &[JobId] {
        let Some(column) = self.column(node) else { return &[] };
        column.slots.get(column.place_of(tick)).map_or(&[], Vec::as_slice)
    }
}

/// The smallest number that is a multiple of both, or the largest that there is.
fn least_common_multiple(one: usize, other: usize) -> usize {
    let (mut divisor, mut rest) = (one, other);
    while rest > 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    one.checked_div(divisor).map_or(0, |part| part.saturating_mul(other))
}
