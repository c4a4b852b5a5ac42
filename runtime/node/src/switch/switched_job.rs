//! How a job is kept from the processors outside its turns.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use super::JobTurns;
use super::slice_meter::SliceMeter;
use crate::cgroup::IdleSwitch;
use crate::fill::JobThread;

/// What a job may do outside its turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunMode {
    /// Nothing: it is stopped.
    Stopped,
    /// It has what others leave idle.
    Fills,
    /// It is its turn, or it is left alone.
    Runs,
}

/// How the ranks of a job are stopped and continued.
#[derive(Debug)]
pub enum Stopper {
    /// By its control group's `cgroup.freeze`, open for writing.
    Freezer(File),
    /// By signals to the ranks' process groups. An entry becomes 0 when the group is gone.
    Signals(Arc<Vec<AtomicI32>>),
}

/// How the ranks of a job are put behind all others and back.
#[derive(Debug)]
pub enum IdlePriority {
    /// By its control group's `cpu.idle`: where jobs have processor groups of their own.
    Group(IdleSwitch),
    /// By the policy of each of its threads: where all jobs are in one processor group.
    Threads(Vec<JobThread>),
}

/// A job in the hands of the switching thread.
#[derive(Debug)]
pub struct SwitchedJob {
    stopper: Stopper,
    /// Without it the job does not fill.
    idle_priority: Option<IdlePriority>,
    stopped: bool,
    lowered: bool,
    pub(super) turns: Arc<JobTurns>,
    pub(super) meter: Option<SliceMeter>,
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

impl IdlePriority {
    fn set_lowered(&mut self, lowered: bool) -> nix::Result<()> {
        match self {
            Self::Group(switch) => switch.set(lowered),
            Self::Threads(threads) => {
                threads.iter_mut().try_for_each(|thread| thread.set_lowered(lowered))
            }
        }
    }
}

impl SwitchedJob {
    /// A job that runs; it fills if there is an idle priority, and its turns are measured if there is a meter.
    pub fn new(
        stopper: Stopper,
        idle_priority: Option<IdlePriority>,
        turns: Arc<JobTurns>,
        meter: Option<SliceMeter>,
    ) -> Self {
        Self { stopper, idle_priority, stopped: false, lowered: false, turns, meter }
    }

    /// The same of a job that may have been left stopped or behind others.
    ///
    /// # Errors
    /// As the system says.
    pub fn let_run(&mut self) -> nix::Result<()> {
        if let Some(priority) = &mut self.idle_priority {
            priority.set_lowered(false)?;
        }
        self.stopper.set_running(true)
    }

    /// Whether it can be put behind the others.
    pub fn can_fill(&self) -> bool {
        self.idle_priority.is_some()
    }

    /// Has the job do this from now on.
    ///
    /// # Errors
    /// As the system says. What has been done stays done, and the next call goes on from there.
    pub(super) fn set(&mut self, hold: RunMode) -> nix::Result<()> {
        match hold {
            // Its priority does not matter meanwhile.
            RunMode::Stopped => self.set_stopped(true),
            RunMode::Fills => self.set_lowered(true).and_then(|()| self.set_stopped(false)),
            RunMode::Runs => self.set_lowered(false).and_then(|()| self.set_stopped(false)),
        }
    }

    /// Has the system do again what has been done already.
    pub(super) fn rehearse(&self) {
        // The calls that count follow, and their errors are told. A signal would have an effect.
        if matches!(self.stopper, Stopper::Freezer(_)) {
            let _ = self.stopper.set_running(!self.stopped);
        }
        if let Some(IdlePriority::Group(switch)) = &self.idle_priority {
            let _ = switch.set(self.lowered);
        }
    }

    /// What it does, as far as that is known.
    pub(super) fn hold(&self) -> RunMode {
        match (self.stopped, self.lowered) {
            (true, _) => RunMode::Stopped,
            (false, true) => RunMode::Fills,
            (false, false) => RunMode::Runs,
        }
    }

    /// The job has these threads now. Those that are new may have been born on the other side.
    pub(super) fn set_threads(&mut self, new: Vec<JobThread>) -> nix::Result<()> {
        let Some(priority) = &mut self.idle_priority else { return Ok(()) };
        let IdlePriority::Threads(threads) = &mut *priority else { return Ok(()) };
        *threads = new;
        priority.set_lowered(self.lowered)
    }

    /// It is not put behind the others any more, so that it can end.
    pub(super) fn let_end(&mut self) -> nix::Result<()> {
        let raised = self.set_lowered(false);
        self.idle_priority = None;
        raised
    }

    fn set_stopped(&mut self, stopped: bool) -> nix::Result<()> {
        if self.stopped != stopped {
            self.stopper.set_running(!stopped)?;
            self.stopped = stopped;
        }
        Ok(())
    }

    fn set_lowered(&mut self, lowered: bool) -> nix::Result<()> {
        let Some(priority) = self.idle_priority.as_mut().filter(|_| self.lowered != lowered) else {
            return Ok(());
        };
        // Before, since some may be behind the others if not all are.
        self.lowered = true;
        priority.set_lowered(lowered)?;
        self.lowered = lowered;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fill::permitted;
    use std::process::{Child, Command};

    fn switched(child: &Child) -> SwitchedJob {
        let id = i32::try_from(child.id()).expect("a number");
        let stopper = Stopper::Signals(Arc::new(vec![AtomicI32::new(id)]));
        let threads = IdlePriority::Threads(vec![JobThread::new(id)]);
        SwitchedJob::new(stopper, Some(threads), Arc::default(), None)
    }

    #[test]
    fn a_job_is_stopped_filled_in_and_let_run() {
        use kumi_net::thread_policy::ThreadPolicy;
        use std::os::unix::process::CommandExt;
        if !permitted() {
            return kumi_skip::skip("a_job_is_stopped_filled_in_and_let_run", "no right to");
        }
        let mut child = Command::new("sleep").arg("100").process_group(0).spawn().expect("sleep");
        let id = i32::try_from(child.id()).expect("a number");
        let mut switched = switched(&child);
        let policy = || ThreadPolicy::of(id).expect("it lives");
        let stopped = || {
            let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).expect("it lives");
            stat.rsplit_once(") ").expect("a name").1.starts_with('T')
        };
        let until = |wanted: bool| while stopped() != wanted {};
        let steps = [
            RunMode::Runs,
            RunMode::Stopped,
            RunMode::Fills,
            RunMode::Stopped,
            RunMode::Runs,
            RunMode::Fills,
        ];
        for hold in steps {
            switched.set(hold).expect("permitted");
            assert_eq!(switched.hold(), hold);
            until(hold == RunMode::Stopped);
            match hold {
                RunMode::Stopped => {}
                RunMode::Fills => assert_eq!(policy(), ThreadPolicy::Idle),
                RunMode::Runs => assert_eq!(policy(), ThreadPolicy::Other),
            }
        }
        switched.set_threads([id, i32::MAX].map(JobThread::new).into()).expect("gone");
        assert_eq!(policy(), ThreadPolicy::Idle);
        switched.let_end().expect("permitted");
        assert!(policy() == ThreadPolicy::Other && !switched.can_fill());
        child.kill().and_then(|()| child.wait()).expect("it was there");
    }
}
