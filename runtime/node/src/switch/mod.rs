//! Gang switcher: a thread that keeps jobs from the processors outside their turns, by the timetable and its clock alone.
//!
//! It has real-time priority where that is permitted, since a thawed job that computes would
//! otherwise keep it from the processor, and shares with the rest of the daemon only a mailbox
//! that it looks into at each tick and when its event descriptor says so.

mod plan;
mod record;
mod slice_meter;
mod switched_job;
mod thread;
mod turns;
mod wakeup_lead;
mod wakeup_threads;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use kumi_net::disclosure::NodePage;
use kumi_sched::{JobId, NodeId, Timetable};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::unistd::Pid;
use thread_priority::unix::{
    RealtimeThreadSchedulePolicy, ThreadSchedulePolicy, set_thread_priority_and_policy,
    thread_native_id,
};
use thread_priority::{ThreadPriority, ThreadPriorityValue};

pub use plan::{Plan, Step};
pub use record::{RING, RecordRing, SwitchRecord, SwitchStatistics};
pub use slice_meter::{MOST_RANKS, SliceMeasure, SliceMeter};
pub use switched_job::{IdlePriority, RunMode, Stopper, SwitchedJob};
pub use turns::JobTurns;

use crate::clock::SharedClock;
use crate::fill::{Filling, JobThread};
use thread::SwitcherThread;
use wakeup_threads::WakeupThreads;

/// Priority of the switching thread among the real-time ones.
const PRIORITY: u8 = 50;

#[derive(Debug)]
enum SwitcherCommand {
    Timetable(Timetable),
    Add(JobId, Box<SwitchedJob>),
    Threads(JobId, Vec<JobThread>),
    MayFill(JobId, bool),
    Filling(JobId, Filling),
    LetEnd(JobId),
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
    /// Starts the thread for `node`, on the first of these processors if there are some. It says in `page` whose turn
    /// it is, and sends slices that it has measured.
    ///
    /// # Errors
    /// When no thread or descriptor can be had.
    pub fn start(
        node: NodeId,
        clock: SharedClock,
        processors: &[usize],
        page: Option<Arc<NodePage>>,
        measured: SyncSender<SliceMeasure>,
    ) -> std::io::Result<Self> {
        let bell = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        let mailbox = Arc::new(Mailbox {
            orders: Mutex::new(Vec::new()),
            pending: AtomicBool::new(false),
            bell,
        });
        let ring = Arc::new(RecordRing::default());
        let shared = (Arc::clone(&mailbox), Arc::clone(&ring));
        let worker = SwitcherThread::new(shared, (node, clock), page, measured);
        let wakeups = WakeupThreads::start(processors.get(1..).unwrap_or_default())?;
        let worker = worker.with_wakeups(wakeups);
        let cpu = processors.first().copied();
        let (tell, told) = std::sync::mpsc::channel();
        let thread = std::thread::Builder::new().name("switcher".to_owned()).spawn(move || {
            let realtime = prepare_thread(cpu);
            // The daemon waits for this answer, so it is there to take it.
            let _ = tell.send(realtime);
            worker.run(realtime);
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

    /// Hands it a job, which it keeps from the processors outside its turns from now on.
    pub fn add(&self, job: JobId, switched: SwitchedJob) {
        self.post(SwitcherCommand::Add(job, Box::new(switched)));
    }

    /// A job has these threads now.
    pub fn set_threads(&self, job: JobId, threads: Vec<JobThread>) {
        self.post(SwitcherCommand::Threads(job, threads));
    }

    /// Whether a job may run beside others that leave something idle.
    pub fn set_may_fill(&self, job: JobId, may_fill: bool) {
        self.post(SwitcherCommand::MayFill(job, may_fill));
    }

    /// Whether others run beside a job in its turns.
    pub fn set_filling(&self, job: JobId, filling: Filling) {
        self.post(SwitcherCommand::Filling(job, filling));
    }

    /// A job is to end, which it could not behind others that leave nothing.
    pub fn let_end(&self, job: JobId) {
        self.post(SwitcherCommand::LetEnd(job));
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
    if let Some(cpu) = cpu
        && let Err(error) = pin_this_thread(cpu)
    {
        tracing::warn!(cpu, %error, "the switching thread is not bound to its processor");
    }
    // Matters only without real-time priority, where the default would add 50 us to every sleep.
    if let Err(error) = nix::sys::prctl::set_timerslack(1) {
        tracing::debug!(%error, "timer slack stays");
    }
    realtime_this_thread()
}

/// Binds the calling thread to a processor.
fn pin_this_thread(cpu: usize) -> nix::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu).and_then(|()| sched_setaffinity(Pid::from_raw(0), &set))
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

#[cfg(test)]
mod tests {
    use super::*;
    use kumi_net::disclosure::Turn;
    use kumi_sched::{ClusterTime, Column, Mode};
    use std::process::Command;
    use std::sync::atomic::AtomicI32;
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
        let (measured, _) = crate::fill::measurements();
        let switcher =
            Switcher::start(NodeId(0), clock.clone(), &[], Some(Arc::clone(&page)), measured)
                .unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let turns = Arc::new(JobTurns::default());
        let groups = Arc::new(vec![AtomicI32::new(pid)]);
        let stopper = Stopper::Signals(groups);
        switcher.add(JobId(7), SwitchedJob::new(stopper, None, Arc::clone(&turns), None));
        wait_for("stop without a timetable", || state_of(child.id()) == 'T');
        let column = Column { node: NodeId(0), slots: vec![vec![JobId(7)], vec![]] };
        let mut timetable = Timetable {
            generation: 1,
            start: clock.now(),
            slice_ns: 1_000_000,
            phase_ns: 0,
            mode: Mode::Gang { force_switch: false, fill: true },
            columns: vec![column],
            idle: Vec::new(),
        };
        switcher.set_timetable(timetable.clone());
        wait_for("continue", || state_of(child.id()) == 'S');
        assert_eq!(turns.turn(), Turn::Own);
        assert!(!page.is_shared());
        timetable.generation = 2;
        timetable.mode = Mode::Gang { force_switch: true, fill: true };
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
