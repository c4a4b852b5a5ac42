//! Timetable of the head: made when something has changed, and sent with a start a little in the future.
//!
//! Only nodes whose column does not go on as it was hear of a new timetable. The others go by the one that they have: it shows
//! them the same slots at the same times. A large timetable is made only now and then, and has all changes until then.

use alloc::vec::Vec;

use kumi_sched::{
    ClusterTime, JobId, Mode, NodeId, SliceChooser, SliceLength, Timetable, round_slots,
};

use super::HeadConfig;
use super::scheduler::Scheduler;
use super::time::HeadTime;
use crate::message::Nanos;
use crate::timetable_generation::first_generation;

/// How far in the future a timetable starts: enough for it to get down the tree. A node that gets
/// it later begins with the tick that is due then.
const LEAD: Nanos = 2_000_000;

/// A timetable with so many slots of processors, and no more, is made at once.
const SMALL: u64 = 1 << 14;
/// After a larger one, the next is made when so many nanoseconds have passed for each slot: several times what it costs to make.
const PAUSE_PER_SLOT: Nanos = 64;
/// But at the latest then.
const LONGEST_PAUSE: Nanos = 100_000_000;

/// How long no timetable is made after one with so many slots.
fn pause_after(slots: u64) -> Nanos {
    match slots {
        0..=SMALL => 0,
        _ => slots.saturating_mul(PAUSE_PER_SLOT).min(LONGEST_PAUSE),
    }
}

/// Whom a new timetable concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Concerned {
    /// All nodes: slices are of another length or begin at other times, or processors are shared otherwise.
    All,
    /// These have another column.
    Columns {
        /// The nodes, ascending.
        nodes: Vec<NodeId>,
        /// Jobs that have become idle or are so no longer. Their nodes are concerned too.
        idle: Vec<JobId>,
    },
}

/// The timetable in force, and how it is shared in time.
#[derive(Debug)]
pub(super) struct TimetablePublisher {
    published: Timetable,
    /// Generation of the next one. See [`first_generation`].
    next_generation: u64,
    /// The set of running jobs, or how they share, has changed since.
    stale: bool,
    /// The next one is not made before.
    not_before: Nanos,
    /// Ticks of the timetable that the policy has been told of.
    passed: u64,
    mode: Mode,
    slice: SliceChooser,
}

impl TimetablePublisher {
    /// None yet, of a head with this number.
    pub(super) fn new(config: &HeadConfig, head: u32) -> Self {
        let next_generation = first_generation(head);
        let slice = SliceChooser::new(config.slice);
        let published = Timetable {
            generation: 0,
            start: ClusterTime(0),
            slice_ns: slice.current(),
            phase_ns: 0,
            mode: config.mode,
            columns: Vec::new(),
            idle: Vec::new(),
        };
        let (mode, passed, not_before) = (config.mode, 0, 0);
        Self { published, next_generation, stale: true, not_before, passed, mode, slice }
    }

    /// The timetable in force.
    pub(super) fn published(&self) -> &Timetable {
        &self.published
    }

    /// How processors are shared.
    pub(super) fn mode(&self) -> Mode {
        self.mode
    }

    /// How long slices are to be.
    pub(super) fn slice(&self) -> SliceLength {
        self.slice.length()
    }

    /// Changes how processors are shared; `None` leaves it. The next timetable is made at once.
    pub(super) fn set_sharing(&mut self, mode: Option<Mode>, slice: Option<SliceLength>) {
        self.mode = mode.unwrap_or(self.mode);
        self.slice.set(slice.unwrap_or(self.slice.length()));
        self.stale = true;
        self.not_before = 0;
    }

    /// Notes that the set of running jobs, or how they share, has changed.
    pub(super) fn mark_stale(&mut self) {
        self.stale = true;
    }

    /// When a timetable that is published now starts.
    fn next_start(now: Nanos) -> ClusterTime {
        ClusterTime(now.saturating_add(LEAD))
    }

    /// Tells the policy which slots will be over when a timetable that is published now starts.
    /// This comes before the policy hears of any change, because those slots go by the old state.
    pub(super) fn pass_slots(&mut self, now: Nanos, scheduler: &mut Scheduler) {
        let tick = self.published.tick_at(Self::next_start(now));
        let slots = tick.saturating_sub(self.passed);
        if slots > 0 {
            scheduler.pass_slots(slots);
            self.passed = tick;
        }
    }

    /// Slots since the last that the policy has been told of.
    pub(super) fn slots_since(&self, now: Nanos) -> u64 {
        self.published.tick_at(ClusterTime(now)).saturating_sub(self.passed)
    }

    /// Whether the timetable must be looked at again now; it counts as up to date then.
    pub(super) fn take_stale(&mut self, now: Nanos) -> bool {
        now >= self.not_before && core::mem::take(&mut self.stale)
    }

    /// When the timetable must be looked at again, if it must.
    pub(super) fn next_deadline(&self) -> Option<Nanos> {
        self.stale.then_some(self.not_before)
    }

    /// Makes a new timetable, unless it would say the same as the last. Returns whom it concerns. `interactive`: somebody works
    /// with a job that takes turns.
    pub(super) fn renew(
        &mut self,
        time: &HeadTime,
        scheduler: &mut Scheduler,
        idle: Vec<JobId>,
        interactive: bool,
    ) -> Option<Concerned> {
        let now = time.now();
        self.pass_slots(now, scheduler);
        let last_columns = core::mem::take(&mut self.published.columns);
        let (renewed, slots) = scheduler.renew_columns(last_columns, self.passed);
        self.not_before = now.saturating_add(pause_after(slots));
        let mode = self.mode;
        let slice_ns = match mode {
            Mode::Gang { .. } => self.slice.choose(round_slots(&renewed.columns), interactive),
            Mode::OperatingSystem => self.slice.current(),
        };
        let last = &self.published;
        let in_step = last.mode == mode && last.slice_ns == slice_ns;
        let start = Self::next_start(now);
        // Since its tick 0 would have begun: it may itself have gone on with another's slice.
        let since = start.0.saturating_sub(last.start.0).saturating_add(last.phase_ns);
        // A slice that is under way when slices become shorter may be over at once. If it began anew, jobs that come and go
        // quickly could keep the others from their turns.
        let used = (since % last.slice_ns).min(slice_ns - 1);
        let phase_ns = if last.mode == mode { used } else { 0 };
        let (nodes, idle_changes) = (renewed.changed, differing(&last.idle, &idle));
        // The first one is always news: nodes may still go by that of an earlier head.
        let everybody = !in_step || last.generation == 0;
        let news = everybody || !nodes.is_empty() || !idle_changes.is_empty();
        let generation = if news { self.next_generation } else { last.generation };
        self.next_generation = self.next_generation.max(generation.saturating_add(1));
        let columns = renewed.columns;
        self.published = Timetable { generation, start, slice_ns, phase_ns, mode, columns, idle };
        self.passed = 0;
        let concerned = match everybody {
            true => Concerned::All,
            false => Concerned::Columns { nodes, idle: idle_changes },
        };
        news.then_some(concerned)
    }
}

/// The jobs that are in one of the lists only. Both ascend.
fn differing(one: &[JobId], other: &[JobId]) -> Vec<JobId> {
    let missing = |from: &[JobId], all: &[JobId]| -> Vec<JobId> {
        all.iter().copied().filter(|job| from.binary_search(job).is_err()).collect()
    };
    let mut jobs = missing(one, other);
    jobs.extend(missing(other, one));
    jobs
}
