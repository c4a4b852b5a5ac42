//! The switching thread itself.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, PoisonError};

use kumi_net::disclosure::{NodePage, Turn};
use kumi_sched::{JobId, NodeId};
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::{TimeSpec, TimeValLike};

use super::slice_meter::{SliceMeasure, SliceReading};
use super::switched_job::{RunMode, SwitchedJob};
use super::wakeup_lead::{self, WakeupLead};
use super::wakeup_threads::WakeupThreads;
use super::{Mailbox, Plan, RecordRing, Step, SwitchRecord, SwitcherCommand};
use crate::clock::{SharedClock, monotonic};

/// A slice that is being measured.
#[derive(Debug)]
struct OpenSlice {
    job: JobId,
    generation: u64,
    tick: u64,
    filled: bool,
    begin: u64,
    reading: SliceReading,
}

pub(super) struct SwitcherThread {
    mailbox: Arc<Mailbox>,
    ring: Arc<RecordRing>,
    clock: SharedClock,
    page: Option<Arc<NodePage>>,
    plan: Plan,
    jobs: BTreeMap<JobId, Box<SwitchedJob>>,
    measured: SyncSender<SliceMeasure>,
    /// Slices that are being measured, with the readings at their beginnings.
    readings: Vec<OpenSlice>,
    wakeups: WakeupThreads,
}

impl SwitcherThread {
    /// A thread without jobs.
    pub(super) fn new(
        (mailbox, ring): (Arc<Mailbox>, Arc<RecordRing>),
        (node, clock): (NodeId, SharedClock),
        page: Option<Arc<NodePage>>,
        measured: SyncSender<SliceMeasure>,
    ) -> Self {
        let (plan, jobs, readings) = (Plan::new(node), BTreeMap::new(), Vec::new());
        let wakeups = WakeupThreads::default();
        Self { mailbox, ring, clock, page, plan, jobs, measured, readings, wakeups }
    }

    /// With threads for the other processors.
    pub(super) fn with_wakeups(mut self, wakeups: WakeupThreads) -> Self {
        self.wakeups = wakeups;
        self
    }

    /// With `realtime` it wakes a little before ticks, and waits for the instant: nobody else can take the processor meanwhile.
    pub(super) fn run(mut self, realtime: bool) {
        let mut step = Step::default();
        let mut lead = WakeupLead::default();
        loop {
            if self.mailbox.pending.swap(false, Ordering::AcqRel) && !self.read_mail() {
                break;
            }
            self.tick(&mut step);
            let wake = step.wake.map(|time| self.clock.local(time));
            self.sleep(wake, realtime.then_some(&mut lead));
        }
        // Whatever is left must be able to end.
        for switched in self.jobs.values_mut() {
            if switched.set(RunMode::Runs).is_err() {
                self.ring.fail();
            }
        }
    }

    /// Carries out orders; whether to go on.
    fn read_mail(&mut self) -> bool {
        let orders = std::mem::take(
            &mut *self.mailbox.orders.lock().unwrap_or_else(PoisonError::into_inner),
        );
        for order in orders {
            match order {
                SwitcherCommand::Timetable(timetable) => self.plan.set_timetable(timetable),
                SwitcherCommand::Add(job, switched) => {
                    self.jobs.insert(job, switched);
                    self.plan.add(job);
                }
                SwitcherCommand::Threads(job, threads) => {
                    self.attempt(job, |switched| switched.set_threads(threads));
                }
                SwitcherCommand::MayFill(job, may_fill) => {
                    let can = self.jobs.get(&job).is_some_and(|switched| switched.can_fill());
                    self.plan.set_may_fill(job, may_fill && can);
                }
                SwitcherCommand::Filling(job, filling) => self.plan.set_filling(job, filling),
                SwitcherCommand::LetEnd(job) => {
                    self.plan.set_may_fill(job, false);
                    self.attempt(job, SwitchedJob::let_end);
                }
                SwitcherCommand::Remove(job) => {
                    self.jobs.remove(&job);
                    self.plan.remove(job);
                }
                SwitcherCommand::Stop => return false,
            }
        }
        true
    }

    fn attempt(&mut self, job: JobId, change: impl FnOnce(&mut SwitchedJob) -> nix::Result<()>) {
        if let Some(switched) = self.jobs.get_mut(&job)
            && change(switched).is_err()
        {
            self.ring.fail();
        }
    }

    fn tick(&mut self, step: &mut Step) {
        let woke = monotonic();
        let due = step.wake.map(|time| self.clock.local(time));
        let due = due.filter(|due| (1..=wakeup_lead::MOST).contains(&due.saturating_sub(woke)));
        self.plan.step(self.clock.cluster(due.unwrap_or(woke)), step);
        if !self.readings.is_empty() {
            self.end_slices(step, due.unwrap_or(woke));
        }
        if let Some(due) = due {
            self.wait_until(due, step);
        }
        let begin = monotonic();
        let now = self.clock.cluster(begin);
        for &job in &step.freeze {
            self.set(job, RunMode::Stopped);
        }
        for &job in &step.lower {
            self.set(job, RunMode::Fills);
        }
        // Before anybody is continued, who then looks there.
        self.publish(step);
        let frozen = monotonic();
        for &job in &step.thaw {
            self.set(job, RunMode::Runs);
        }
        // Who is stopped or continued makes its processor look by itself.
        if !step.lower.is_empty() || step.was_filled {
            self.wakeups.wake_all();
        }
        let thawed = monotonic();
        if step.missed > 0 {
            self.ring.miss(step.missed);
        }
        let Some((generation, tick, due)) = step.tick else { return };
        self.begin_slices(step);
        if step.freeze.is_empty() && step.lower.is_empty() && step.thaw.is_empty() {
            return;
        }
        self.ring.push(&SwitchRecord {
            generation,
            tick,
            begin: now,
            machine: begin,
            freeze_ns: frozen - begin,
            thaw_ns: thawed - frozen,
            late_ns: now.0.saturating_sub(due.0),
        });
    }

    /// Waits for the instant of a step. The calls of the system that it makes are made before without effect, where there is time:
    /// then they find what they need in the caches.
    fn wait_until(&mut self, due: u64, step: &Step) {
        for job in step.freeze.iter().chain(&step.lower).chain(&step.thaw) {
            if monotonic().saturating_add(wakeup_lead::REHEARSAL) >= due {
                break;
            }
            if let Some(switched) = self.jobs.get_mut(job) {
                switched.rehearse();
            }
        }
        while monotonic() < due {
            std::hint::spin_loop();
        }
    }

    /// Says whose turn it is from now on.
    fn publish(&self, step: &Step) {
        let own = if step.filled { Turn::Filled } else { Turn::Own };
        for (job, switched) in &self.jobs {
            switched.turns.set_turn(match (step.everyone, step.current.binary_search(job)) {
                (true, _) => Turn::Shared,
                (false, Ok(_)) => own,
                (false, Err(_)) => Turn::None,
            });
        }
        if let Some(page) = &self.page {
            page.set_turns(step.current.iter().map(|job| job.number().0), step.everyone);
        }
    }

    fn set(&mut self, job: JobId, hold: RunMode) {
        let Some(switched) = self.jobs.get_mut(&job) else { return };
        if hold == RunMode::Runs {
            switched.turns.count();
        }
        switched.turns.set_fills(hold == RunMode::Fills);
        let Err(error) = switched.set(hold) else { return };
        match error {
            // A job whose group is gone is about to be taken away.
            nix::Error::ENODEV | nix::Error::ENOENT => {}
            // It has threads that nobody may put behind others.
            _ if hold == RunMode::Fills => {
                switched.turns.set_unfit();
                self.plan.set_may_fill(job, false);
                self.plan.set_hold(job, RunMode::Stopped);
                self.set(job, RunMode::Stopped);
            }
            // Anything else is tried again at the next tick, and counted.
            _ => {
                self.ring.fail();
                self.plan.set_hold(job, switched.hold());
            }
        }
    }

    /// Sends what was measured of slices that end here, as they were planned.
    fn end_slices(&mut self, step: &Step, now: u64) {
        // A step within the slice: a timetable or a decision may have come, so that the slice is not what it was.
        let Some((generation, tick, _)) = step.tick else {
            if !(step.freeze.is_empty() && step.lower.is_empty() && step.thaw.is_empty()) {
                self.readings.clear();
            }
            return;
        };
        for open in self.readings.drain(..) {
            if (open.generation, open.tick.wrapping_add(1)) != (generation, tick) {
                continue;
            }
            let Some(meter) = self.jobs.get(&open.job).and_then(|switched| switched.meter.as_ref())
            else {
                continue;
            };
            let Some(reading) = meter.read() else { continue };
            let known = (open.job, open.tick, open.filled, now.saturating_sub(open.begin));
            let measure = meter.between(known, [open.reading, reading]);
            // Who does not look often enough misses some.
            let _ = self.measured.try_send(measure);
        }
    }

    fn begin_slices(&mut self, step: &Step) {
        let Some((generation, tick, _)) = step.tick else { return };
        for &job in &step.measure {
            let meter = self.jobs.get(&job).and_then(|switched| switched.meter.as_ref());
            let Some(reading) = meter.and_then(|meter| meter.read()) else { continue };
            let (filled, begin) = (step.filled, monotonic());
            self.readings.push(OpenSlice { job, generation, tick, filled, begin, reading });
        }
    }

    /// Sleeps until `wake` on the machine's clock, less what `lead` says, or until there is mail.
    fn sleep(&self, wake: Option<u64>, lead: Option<&mut WakeupLead>) {
        let mut wanted = None;
        let timeout = match wake {
            Some(wake) => {
                let now = monotonic();
                let left = wake.saturating_sub(now);
                let left = left.saturating_sub(lead.as_ref().map_or(0, |lead| lead.of(left)));
                if left == 0 {
                    return;
                }
                wanted = Some(now.saturating_add(left));
                Some(TimeSpec::nanoseconds(i64::try_from(left).unwrap_or(i64::MAX)))
            }
            None => None,
        };
        let mut fds = [PollFd::new(self.mailbox.bell.as_fd(), PollFlags::POLLIN)];
        // An interrupted or failed wait only means looking too early.
        if matches!(ppoll(&mut fds, timeout, None), Ok(ready) if ready > 0) {
            // Empties the bell; what it stands for is the flag.
            let _ = self.mailbox.bell.read();
        } else if let (Some(lead), Some(wanted)) = (lead, wanted) {
            lead.learn(monotonic().saturating_sub(wanted));
        }
    }
}
