//! Gang switcher: a thread that stops and continues jobs by the timetable and its clock alone.
//!
//! It has real-time priority where that is permitted, since a thawed job that computes would
//! otherwise keep it from the processor, and shares with the rest of the daemon only a mailbox
//! that it looks into at each tick and when its event descriptor says so.

mod plan;
mod record;
mod turns;

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use kumi_net::disclosure::{NodePage, Turn};
use kumi_sched::{JobId, NodeId, Timetable};
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::signal::{Signal, killpg};
use nix::sys::time::{TimeSpec, TimeValLike};
use nix::unistd::Pid;
use thread_priority::unix::{
    RealtimeThreadSchedulePolicy, ThreadSchedulePolicy, set_thread_priority_and_policy,
    thread_native_id,
};
use thread_priority::{ThreadPriority, ThreadPriorityValue};

pub use plan::{Plan, Step};
pub use record::{RING, RecordRing, SwitchRecord, SwitchStatistics};
pub use turns::JobTurns;

use crate::clock::{SharedClock, monotonic};

/// Priority of the switching thread among the real-time ones.
const PRIORITY: u8 = 50;

/// How the ranks of a job are stopped and continued.
#[derive(Debug)]
pub enum Stopper {
    /// By its control group's `cgroup.freeze`, open for writing.
    Freezer(File),
    /// By signals to the ranks' process groups. An entry becomes 0 when the group is gone.
    Signals(Arc<Vec<AtomicI32>>),
}

impl Stopper {
    fn set_running(&self, running: bool) -> nix::Result<()> {
        match self {
            Self::Freezer(file) => {
                let word: &[u8] = if running { b"0" } else { b"1" };
                nix::sys::uio::pwrite(file, word, 0).map(drop)
            }
            Self::Signals(groups) => {
                let signal = if running { Signal::SIGCONT } else { Signal::SIGSTOP };
                for group in groups.iter() {
                    let group = group.load(Ordering::Relaxed);
                    if group > 0 {
                        match killpg(Pid::from_raw(group), signal) {
                            Ok(()) | Err(nix::Error::ESRCH) => {}
                            Err(error) => return Err(error),
                        }
                    }
                }
                Ok(())
            }
        }
    }
}

#[derive(Debug)]
enum SwitcherCommand {
    Timetable(Timetable),
    Add(JobId, Stopper, Arc<JobTurns>),
    Remove(JobId),
    Stop,
}

#[derive(Debug)]
struct Mailbox {
    orders: Mutex<Vec<SwitcherCommand>>,
    pending: AtomicBool,
    bell: EventFd,
}

/// The daemon's handle on the switching thread. Dropping it continues every job and ends the thread.
#[derive(Debug)]
pub struct Switcher {
    mailbox: Arc<Mailbox>,
    ring: Arc<RecordRing>,
    thread: Option<JoinHandle<()>>,
    realtime: bool,
}

impl Switcher {
    /// Starts the thread for `node`, on processor `cpu` if one is given. It says in `page` whose turn
    /// it is.
    ///
    /// # Errors
    /// When no thread or descriptor can be had.
    pub fn start(
        node: NodeId,
        clock: SharedClock,
        cpu: Option<usize>,
        page: Option<Arc<NodePage>>,
    ) -> std::io::Result<Self> {
        let bell = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        let mailbox = Arc::new(Mailbox {
            orders: Mutex::new(Vec::new()),
            pending: AtomicBool::new(false),
            bell,
        });
        let ring = Arc::new(RecordRing::default());
        let worker = SwitcherThread {
            mailbox: Arc::clone(&mailbox),
            ring: Arc::clone(&ring),
            clock,
            page,
            plan: Plan::new(node),
            jobs: BTreeMap::new(),
        };
        let (tell, told) = std::sync::mpsc::channel();
        let thread = std::thread::Builder::new().name("switcher".to_owned()).spawn(move || {
            let realtime = prepare_thread(cpu);
            // The daemon waits for this answer, so it is there to take it.
            let _ = tell.send(realtime);
            worker.run();
        })?;
        let realtime = told.recv().unwrap_or(false);
        Ok(Self { mailbox, ring, thread: Some(thread), realtime })
    }

    /// Whether the thread has real-time priority.
    pub fn realtime(&self) -> bool {
        self.realtime
    }

    /// Records of what it did.
    pub fn ring(&self) -> &RecordRing {
        &self.ring
    }

    fn post(&self, order: SwitcherCommand) {
        self.mailbox.orders.lock().unwrap_or_else(PoisonError::into_inner).push(order);
        self.mailbox.pending.store(true, Ordering::Release);
        if let Err(error) = self.mailbox.bell.write(1) {
            tracing::error!(%error, "the switching thread could not be woken; it looks at its next tick");
        }
    }

    /// Gives it a timetable, which replaces the one before at its start time.
    pub fn set_timetable(&self, timetable: Timetable) {
        self.post(SwitcherCommand::Timetable(timetable));
    }

    /// Hands it a job, which it stops or lets run by the timetable from now on; it tells in `turns` of the job's turns.
    pub fn add(&self, job: JobId, stopper: Stopper, turns: Arc<JobTurns>) {
        self.post(SwitcherCommand::Add(job, stopper, turns));
    }

    /// Takes a job away from it, as it is: running or stopped.
    pub fn remove(&self, job: JobId) {
        self.post(SwitcherCommand::Remove(job));
    }
}

impl Drop for Switcher {
    fn drop(&mut self) {
        self.post(SwitcherCommand::Stop);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the switching thread had failed");
        }
    }
}

/// Pins the thread and raises its priority; whether the latter was permitted.
fn prepare_thread(cpu: Option<usize>) -> bool {
    if let Some(cpu) = cpu {
        let mut set = CpuSet::new();
        let pinned = set.set(cpu).and_then(|()| sched_setaffinity(Pid::from_raw(0), &set));
        if let Err(error) = pinned {
            tracing::warn!(cpu, %error, "the switching thread is not bound to its processor");
        }
    }
    // Matters only without real-time priority, where the default would add 50 us to every sleep.
    if let Err(error) = nix::sys::prctl::set_timerslack(1) {
        tracing::debug!(%error, "timer slack stays");
    }
    realtime_this_thread()
}

/// Gives the calling thread real-time priority, if the system permits.
pub(crate) fn realtime_this_thread() -> bool {
    let Ok(priority) = ThreadPriorityValue::try_from(PRIORITY) else { return false };
    set_thread_priority_and_policy(
        thread_native_id(),
        ThreadPriority::Crossplatform(priority),
        ThreadSchedulePolicy::Realtime(RealtimeThreadSchedulePolicy::Fifo),
    )
    .is_ok()
}

struct SwitcherThread {
    mailbox: Arc<Mailbox>,
    ring: Arc<RecordRing>,
    clock: SharedClock,
    page: Option<Arc<NodePage>>,
    plan: Plan,
    jobs: BTreeMap<JobId, (Stopper, Arc<JobTurns>)>,
}

impl SwitcherThread {
    fn run(mut self) {
        let mut step = Step::default();
        loop {
            if self.mailbox.pending.swap(false, Ordering::AcqRel) && !self.read_mail() {
                break;
            }
            self.tick(&mut step);
            self.sleep(step.wake.map(|time| self.clock.local(time)));
        }
        // Whatever is left must be able to end.
        for (stopper, _) in self.jobs.values() {
            if stopper.set_running(true).is_err() {
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
                SwitcherCommand::Add(job, stopper, turns) => {
                    self.jobs.insert(job, (stopper, turns));
                    self.plan.add(job);
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

    fn tick(&mut self, step: &mut Step) {
        let begin = monotonic();
        let now = self.clock.cluster(begin);
        self.plan.step(now, step);
        for &job in &step.freeze {
            self.set_running(job, false);
        }
        // Before anybody is continued, who then looks there.
        self.publish(step);
        let frozen = monotonic();
        for &job in &step.thaw {
            self.set_running(job, true);
        }
        let thawed = monotonic();
        if step.missed > 0 {
            self.ring.miss(step.missed);
        }
        let Some((generation, tick, due)) = step.tick else { return };
        if step.freeze.is_empty() && step.thaw.is_empty() {
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

    /// Says whose turn it is from now on.
    fn publish(&self, step: &Step) {
        for (job, (_, turns)) in &self.jobs {
            turns.set_turn(match (step.everyone, step.current.binary_search(job)) {
                (true, _) => Turn::Shared,
                (false, Ok(_)) => Turn::Own,
                (false, Err(_)) => Turn::None,
            });
        }
        if let Some(page) = &self.page {
            page.set_turns(step.current.iter().map(|job| job.0), step.everyone);
        }
    }

    fn set_running(&mut self, job: JobId, running: bool) {
        let Some((stopper, turns)) = self.jobs.get(&job) else { return };
        if running {
            turns.count();
        }
        // A job whose group is gone is about to be taken away; anything else is tried again at
        // the next tick, and counted.
        if let Err(error) = stopper.set_running(running)
            && !matches!(error, nix::Error::ENODEV | nix::Error::ENOENT)
        {
            self.ring.fail();
            self.plan.set_running(job, !running);
        }
    }

    /// Sleeps until `wake` on the machine's clock or until there is mail.
    fn sleep(&self, wake: Option<u64>) {
        let timeout = match wake {
            Some(wake) => {
                let left = wake.saturating_sub(monotonic());
                if left == 0 {
                    return;
                }
                Some(TimeSpec::nanoseconds(i64::try_from(left).unwrap_or(i64::MAX)))
            }
            None => None,
        };
        let mut fds = [PollFd::new(self.mailbox.bell.as_fd(), PollFlags::POLLIN)];
        // An interrupted or failed wait only means looking too early.
        if matches!(ppoll(&mut fds, timeout, None), Ok(ready) if ready > 0) {
            // Empties the bell; what it stands for is the flag.
            let _ = self.mailbox.bell.read();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kumi_sched::{ClusterTime, Column, Mode};
    use std::process::Command;
    use std::time::{Duration, Instant};

    fn state_of(pid: u32) -> char {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.rsplit_once(") ").unwrap().1.chars().next().unwrap()
    }

    fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
        let end = Instant::now() + Duration::from_secs(10);
        while !done() {
            assert!(Instant::now() < end, "{what} did not happen");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn signals_stop_and_continue_by_the_timetable() {
        use std::os::unix::process::CommandExt;
        let mut child = Command::new("sleep").arg("100").process_group(0).spawn().unwrap();
        let clock = SharedClock::default();
        let page = Arc::new(NodePage::create(0, 1, 1).unwrap());
        let switcher =
            Switcher::start(NodeId(0), clock.clone(), None, Some(Arc::clone(&page))).unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let turns = Arc::new(JobTurns::default());
        let groups = Arc::new(vec![AtomicI32::new(pid)]);
        switcher.add(JobId(7), Stopper::Signals(groups), Arc::clone(&turns));
        wait_for("stop without a timetable", || state_of(child.id()) == 'T');
        let column = Column { node: NodeId(0), slots: vec![vec![JobId(7)], vec![]] };
        let mut timetable = Timetable {
            generation: 1,
            start: clock.now(),
            slice_ns: 1_000_000,
            phase_ns: 0,
            mode: Mode::Gang { force_switch: false },
            columns: vec![column],
            idle: Vec::new(),
        };
        switcher.set_timetable(timetable.clone());
        wait_for("continue", || state_of(child.id()) == 'S');
        assert_eq!(turns.turn(), Turn::Own);
        assert!(!page.is_shared());
        timetable.generation = 2;
        timetable.mode = Mode::Gang { force_switch: true };
        timetable.start = ClusterTime(0);
        switcher.set_timetable(timetable);
        let mut digest = SwitchStatistics::default();
        wait_for("forced switches", || {
            digest.drain(switcher.ring());
            digest.sample(switcher.ring(), 0).count >= 4
        });
        // Of two switches at least one continues the job; the other may only stop it.
        assert!(turns.begun() >= 2);
        drop(switcher);
        wait_for("continue at the end", || state_of(child.id()) == 'S');
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
