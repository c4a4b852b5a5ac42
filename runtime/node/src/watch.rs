//! `kumid watch`: a watcher that kills and removes whatever a killed daemon leaves behind.
//!
//! The watcher reads a pipe from the daemon, and does its work when that ends. Where there are no
//! control groups the daemon writes the process groups of its ranks into the pipe. If the watcher
//! dies, the daemon starts another.
//!
//! Ranks that have a keeper are not told: it ends them before it gives up their numbers. Others end with the daemon. So what is
//! told is killed at once, whether another daemon is awaited or not: later the numbers may be those of others.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::cgroup::{ControlGroup, NodeGroups};
use crate::clock::boottime;
use crate::exit::ExitCode;
use crate::keep::life::daemons;

/// The daemon's handle on its watcher.
#[derive(Debug)]
pub struct Watcher {
    executable: PathBuf,
    /// The node's control groups, that of version 2 first.
    groups: Vec<PathBuf>,
    process: RefCell<Option<(Child, ChildStdin)>>,
    /// Process groups of living ranks without a keeper, for a watcher that is started later.
    ranks: RefCell<BTreeSet<u32>>,
    restarts: Cell<u32>,
    /// How long to wait for another daemon, if jobs are to run on.
    successor: Option<AwaitedDaemon>,
    /// Jobs are left to that.
    leaves: Cell<bool>,
}

/// Another daemon of the node, which may come when this one is gone.
#[derive(Clone, Debug)]
pub struct AwaitedDaemon {
    /// How long it may take.
    pub patience: Duration,
    /// The file that tells of it.
    pub life: PathBuf,
    /// The number of this one there.
    pub number: u64,
}

/// The option by which a watcher is told of that.
const AWAIT: &str = "--await";
/// What the daemon says last if nothing is to run on.
const NOBODY: &str = "!";
/// Beyond the time for which keepers wait: they kill first.
const MARGIN: Duration = Duration::from_secs(2);
/// Between looks for another daemon.
const LOOK: Duration = Duration::from_millis(100);

impl Watcher {
    /// Starts a watcher over the node's control groups, or over process groups if there are none.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(
        executable: &Path,
        groups: Option<&NodeGroups>,
        successor: Option<AwaitedDaemon>,
    ) -> io::Result<Self> {
        let watcher = Self {
            executable: executable.to_owned(),
            groups: groups.map(NodeGroups::paths).unwrap_or_default(),
            process: RefCell::new(None),
            ranks: RefCell::default(),
            restarts: Cell::new(0),
            successor,
            leaves: Cell::new(false),
        };
        *watcher.process.borrow_mut() = Some(watcher.spawn()?);
        Ok(watcher)
    }

    fn spawn(&self) -> io::Result<(Child, ChildStdin)> {
        use std::os::unix::process::CommandExt;
        let mut command = Command::new(&self.executable);
        command.arg("watch");
        command.args(&self.groups);
        if let Some(AwaitedDaemon { patience, life, number }) = &self.successor {
            command.args([AWAIT, &patience.as_millis().to_string(), &number.to_string()]).arg(life);
        }
        // A process group of its own, so that what is sent to the daemon's does not reach it.
        let command = command.env_clear().current_dir("/").process_group(0);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
        let pipe = child.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
        // Where there are control groups, nobody would tell it that a rank is gone.
        for rank in self.ranks.borrow().iter().filter(|_| self.groups.is_empty()) {
            writeln!(&pipe, "+{rank}")?;
        }
        Ok((child, pipe))
    }

    /// Its process, if it runs.
    pub fn pid(&self) -> Option<u32> {
        self.process.borrow().as_ref().map(|(child, _)| child.id())
    }

    /// Starts another if it has died. To be called whenever a child of the daemon has ended.
    pub fn revive(&self) {
        let mut process = self.process.borrow_mut();
        let dead = match process.as_mut() {
            Some((child, _)) => !matches!(child.try_wait(), Ok(None)),
            None => true,
        };
        if !dead {
            return;
        }
        self.restarts.set(self.restarts.get().saturating_add(1));
        tracing::warn!(restarts = self.restarts.get(), "the watcher died; starting another");
        *process = match self.spawn() {
            Ok(started) => Some(started),
            Err(error) => {
                tracing::error!(%error, "no watcher: jobs would survive if this daemon were killed");
                None
            }
        };
    }

    /// A rank without a keeper has come, leading this process group.
    pub fn add(&self, group: u32) {
        self.ranks.borrow_mut().insert(group);
        self.tell(format_args!("+{group}\n"));
    }

    /// The rank without a keeper that led this process group is gone.
    pub fn remove(&self, group: i32) {
        let group = group.cast_unsigned();
        self.ranks.borrow_mut().remove(&group);
        self.tell(format_args!("-{group}\n"));
    }

    /// Jobs run on when this daemon has ended: the watcher waits for another one.
    pub fn leave_jobs(&self) {
        self.leaves.set(true);
    }

    fn tell(&self, line: std::fmt::Arguments<'_>) {
        if !self.groups.is_empty() {
            return;
        }
        let told = match self.process.borrow_mut().as_mut() {
            Some((_, pipe)) => pipe.write_all(line.to_string().as_bytes()),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        };
        if told.is_err() {
            self.revive();
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        if let Some((mut child, mut pipe)) = self.process.borrow_mut().take() {
            if self.leaves.get() {
                return;
            }
            if self.successor.is_some()
                && let Err(error) = writeln!(pipe, "{NOBODY}")
            {
                tracing::warn!(%error, "the watcher does not hear that nothing is left");
            }
            drop(pipe);
            if let Err(error) = child.wait() {
                tracing::warn!(%error, "the watcher could not be waited for");
            }
        }
    }
}

/// How long processes that are killed may take to go.
const PATIENCE: Duration = Duration::from_secs(10);

/// Waits for another daemon. Returns whether it came, and has the jobs.
fn has_come(awaited: &AwaitedDaemon) -> bool {
    let time = awaited.patience.saturating_add(MARGIN);
    let end = boottime().saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    while boottime() < end {
        if daemons(&awaited.life).is_some_and(|daemons| daemons > awaited.number) {
            return true;
        }
        std::thread::sleep(LOOK);
    }
    false
}

/// Takes the daemon to wait for off the arguments.
fn awaited(arguments: &mut Vec<PathBuf>) -> Option<AwaitedDaemon> {
    let at = arguments.iter().position(|word| word.as_os_str() == AWAIT)?;
    let words = arguments.split_off(at);
    let number = |at: usize| words.get(at)?.to_str()?.parse::<u64>().ok();
    let (patience, number) = (Duration::from_millis(number(1)?), number(2)?);
    Some(AwaitedDaemon { patience, life: words.get(3)?.clone(), number })
}

/// Watches over the daemon at the other end of standard input. The first of the groups is that of version 2.
pub fn main(mut arguments: Vec<PathBuf>) -> ExitCode {
    let mut successor = awaited(&mut arguments);
    let groups = arguments;
    let groups = groups.into_iter().map(ControlGroup::at);
    let groups: Vec<_> = groups.map(|group| (group.identity(), group)).collect();
    let mut ranks = BTreeSet::new();
    // An unreadable pipe means the same as its end.
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        if line == NOBODY {
            successor = None;
        }
        match (line.get(..1), line.get(1..).and_then(|number| number.parse::<i32>().ok())) {
            (Some("+"), Some(rank)) if rank > 1 => ranks.insert(rank),
            (Some("-"), Some(rank)) => ranks.remove(&rank),
            _ => false,
        };
    }
    for &rank in &ranks {
        // Gone already is what is wanted.
        let _ = killpg(Pid::from_raw(rank), Signal::SIGKILL);
    }
    if successor.is_some_and(|awaited| has_come(&awaited)) {
        return ExitCode::Ok;
    }
    let end = Instant::now() + PATIENCE;
    for (identity, group) in &groups {
        // A daemon that has been started again has made the group anew, and that one is not ours.
        while identity.is_some() && group.identity() == *identity {
            match group.destroy(Duration::ZERO) {
                Ok(()) => group.remove_empty_parent(),
                Err(_) if Instant::now() >= end => return ExitCode::Internal,
                Err(_) => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }
    ExitCode::Ok
}
