//! Timetable of the head: made once per change, and sent with a start a little in the future.

use alloc::vec::Vec;

use kumi_sched::{ClusterTime, JobId, Mode, SliceChooser, SliceLength, Timetable, round_slots};

use super::HeadConfig;
use super::scheduler::Scheduler;
use super::time::HeadTime;
use crate::message::Nanos;
use crate::timetable_generation::first_generation;

/// How far in the future a timetable starts: enough for it to get down the tree. A node that gets
/// it later begins with the tick that is due then.
const LEAD: Nanos = 2_000_000;

/// The timetable in force, and how it is shared in time.
#[derive(Debug)]
pub(super) struct TimetablePublisher {
    published: Timetable,
    /// Generation of the next one. See [`first_generation`].
    next_generation: u64,
    /// The set of running jobs, or how they share, has changed since.
    stale: bool,
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
        Self { published, next_generation, stale: true, passed: 0, mode: config.mode, slice }
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

    /// Changes how processors are shared; `None` leaves it.
    pub(super) fn set_sharing(&mut self, mode: Option<Mode>, slice: Option<SliceLength>) {
        self.mode = mode.unwrap_or(self.mode);
        self.slice.set(slice.unwrap_or(self.slice.length()));
        self.stale = true;
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

    /// Whether the timetable must be looked at again; it counts as up to date then.
    pub(super) fn take_stale(&mut self) -> bool {
        core::mem::take(&mut self.stale)
    }

    /// Makes a new timetable, unless it would say the same as the last. Returns whether it has. `interactive`: somebody works
    /// with a job that takes turns.
    pub(super) fn renew(
        &mut self,
        time: &HeadTime,
        scheduler: &mut Scheduler,
        idle: Vec<JobId>,
        interactive: bool,
    ) -> bool {
        let now = time.now();
        self.pass_slots(now, scheduler);
        let columns = scheduler.columns();
        let mode = self.mode;
        let slice_ns = match mode {
            Mode::Gang { .. } => self.slice.choose(round_slots(&columns), interactive),
            Mode::OperatingSystem => self.slice.current(),
        };
        let last = &self.published;
        let in_step = last.mode == mode && last.slice_ns == slice_ns;
        // The first one is always news: nodes may still go by that of an earlier head.
        let same = last.idle == idle && last.continues(self.passed, &columns);
        if in_step && last.generation > 0 && same {
            return false;
        }
        let start = Self::next_start(now);
        // Since its tick 0 would have begun: it may itself have gone on with another's slice.
        let since = start.0.saturating_sub(last.start.0).saturating_add(last.phase_ns);
        // A slice that is under way when slices become shorter may be over at once. If it began anew, jobs that come and go
        // quickly could keep the others from their turns.
        let used = (since % last.slice_ns).min(slice_ns - 1);
        let phase_ns = if last.mode == mode { used } else { 0 };
        let generation = self.next_generation;
        self.next_generation += 1;
        self.published = Timetable { generation, start, slice_ns, phase_ns, mode, columns, idle };
        self.passed = 0;
        true
    }
}
