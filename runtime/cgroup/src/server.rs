//! The groups of a server of routines and of its slots.

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::job::{JobGroups, JobLimits};
use super::mounts::Controller;
use super::node::{DaemonGroup, NodeGroups};
use super::unified::ControlGroup;

/// The group above those of all servers. Those of clusters begin with `kumi-`.
const ABOVE: &str = "kumi_call";
/// How the name of a server's group begins.
const SERVER: &str = "server-";
/// How often a server makes its groups again if another removes them before they are locked.
const TRIES: usize = 8;
/// How long the groups of a server that has died may take to become empty.
const EMPTYING: Duration = Duration::from_secs(5);
/// Microseconds of one processor in the time over which processor time is bounded.
const OF_ONE_PROCESSOR: f64 = 100_000.0;
/// The kernel gives no less.
const LEAST_TIME: u64 = 1_000;

/// Limits of a slot: of a routine's process with all that it starts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SlotLimits {
    /// Bytes of memory, none of them in swap.
    pub memory: Option<u64>,
    /// Processes and threads.
    pub processes: Option<u64>,
    /// Processors whose time they may use together.
    pub processors: Option<f64>,
}

impl SlotLimits {
    /// What they need.
    fn controllers(&self) -> Vec<Controller> {
        let wanted = [
            (self.memory.is_some(), Controller::Memory),
            (self.processes.is_some(), Controller::Pids),
            (self.processors.is_some(), Controller::Cpu),
        ];
        wanted.into_iter().filter_map(|(is_wanted, one)| is_wanted.then_some(one)).collect()
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates")]
    fn of_job(&self) -> JobLimits {
        let time = self.processors.map(|count| (count * OF_ONE_PROCESSOR) as u64);
        JobLimits {
            memory: self.memory,
            processes: self.processes,
            processor_time: time.map(|time| time.max(LEAST_TIME)),
            weight: 1,
            ..JobLimits::default()
        }
    }
}

/// The groups of a server of routines. They are locked as long as the server lives, so that a later server can tell and remove
/// those of a dead one. Dropping this does not remove them.
#[derive(Debug)]
pub struct ServerGroups {
    groups: NodeGroups,
    limits: SlotLimits,
    next: AtomicU64,
    /// Groups of dead servers that could not be removed, and why.
    left: Vec<String>,
    /// The kernel unlocks them when this process ends, however it does.
    _locked: Vec<File>,
}

impl ServerGroups {
    /// Makes the groups of this process, and removes those of servers that have died. Moves this process to a group below its
    /// own, if a service manager has delegated that to it alone.
    ///
    /// # Errors
    /// Why there are none, as a sentence for people.
    pub fn make(limits: SlotLimits) -> Result<Self, String> {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let mut reason = String::new();
        for _ in 0..TRIES {
            let number = MADE.fetch_add(1, Ordering::Relaxed);
            let name = format!("{SERVER}{}-{number}", process::id());
            let names = [ABOVE.to_owned(), name.clone()];
            // A server that ends may remove the group above just now.
            let made = NodeGroups::make_with(&names, DaemonGroup::Leave, &limits.controllers());
            let locked = made.and_then(|groups| match lock_all(&groups) {
                Ok(locked) => Ok((groups, locked)),
                Err(error) => Err(format!("the control group {name} cannot be locked: {error}")),
            });
            match locked {
                Ok((groups, locked)) => {
                    let (left, next) = (remove_dead(&groups), AtomicU64::new(0));
                    return Ok(Self { groups, limits, next, left, _locked: locked });
                }
                Err(why) => reason = why,
            }
        }
        Err(reason)
    }

    /// The limits of each slot.
    pub fn limits(&self) -> SlotLimits {
        self.limits
    }

    /// Controllers of limits that do not hold, and why not, as sentences for people.
    pub fn missing(&self) -> &[(Controller, String)] {
        self.groups.missing()
    }

    /// Whether slots have a limit of memory that holds.
    pub fn bounds_memory(&self) -> bool {
        self.limits.memory.is_some() && self.groups.has(Controller::Memory)
    }

    /// Makes the groups of a slot.
    ///
    /// # Errors
    /// As the system says. Nothing is left then.
    pub fn slot(&self) -> io::Result<JobGroups> {
        self.slot_with(&self.limits)
    }

    /// Makes the groups of a slot with other limits, of what the server's limits bound.
    ///
    /// # Errors
    /// As of [`ServerGroups::slot`].
    pub fn slot_with(&self, limits: &SlotLimits) -> io::Result<JobGroups> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.groups.job(&format!("slot-{number}"), &limits.of_job())
    }

    /// The folders of the server's groups, version 2 first.
    pub fn paths(&self) -> Vec<PathBuf> {
        self.groups.paths()
    }

    /// Ends all slots and removes all groups, waiting at most `patience`.
    ///
    /// # Errors
    /// When something is left of them after that.
    pub fn destroy(&self, patience: Duration) -> io::Result<()> {
        self.groups.destroy(patience)?;
        self.groups.remove_empty_parents();
        Ok(())
    }
}

impl fmt::Display for ServerGroups {
    /// What the groups do, for people.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let has = |controller| self.groups.has(controller);
        write!(out, "each routine's process has a control group with all that it starts")?;
        if let Some(bytes) = self.limits.memory.filter(|_| has(Controller::Memory)) {
            write!(out, ", {} MiB of memory", bytes >> 20)?;
        }
        if let Some(most) = self.limits.processes.filter(|_| has(Controller::Pids)) {
            write!(out, ", {most} processes and threads")?;
        }
        if let Some(most) = self.limits.processors.filter(|_| has(Controller::Cpu)) {
            write!(out, ", the time of {most} processors")?;
        }
        self.missing().iter().try_for_each(|(controller, why)| {
            write!(out, "; no limit by controller {}: {why}", controller.name())
        })?;
        self.left.iter().try_for_each(|left| write!(out, "; a dead server's group stays: {left}"))
    }
}

/// Locks all folders.
///
/// # Errors
/// `NotFound`: another has removed one meanwhile. An error of the system.
fn lock_all(groups: &NodeGroups) -> io::Result<Vec<File>> {
    groups.paths().iter().map(|path| lock(path)).collect()
}

fn lock(path: &Path) -> io::Result<File> {
    let file = File::open(path)?;
    // Who looks whether its server is dead has it for a moment, or removes it.
    file.lock()?;
    match fs::metadata(path)?.ino() == file.metadata()?.ino() {
        true => Ok(file),
        false => Err(io::ErrorKind::NotFound.into()),
    }
}

/// Removes the groups of servers that have died, with all processes in them. Returns what stays, and why.
fn remove_dead(groups: &NodeGroups) -> Vec<String> {
    let mut left = Vec::new();
    for above in groups.paths().iter().filter_map(|path| path.parent()) {
        // Servers begin and end meanwhile.
        for entry in fs::read_dir(above).into_iter().flatten().flatten() {
            let is_server = entry.file_name().to_str().is_some_and(|name| name.starts_with(SERVER));
            let Ok(folder) = File::open(entry.path()) else { continue };
            if is_server
                && folder.try_lock().is_ok()
                && let Err(error) = ControlGroup::at(entry.path()).destroy(EMPTYING)
            {
                left.push(format!("{}: {error}", entry.path().display()));
            }
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};
    use std::time::Instant;

    use super::*;

    const LIMITS: SlotLimits =
        SlotLimits { memory: Some(32 << 20), processes: Some(20), processors: Some(0.5) };

    /// A server's groups; `None` with a skip where there can be none with all limits.
    fn server(test: &str) -> Option<ServerGroups> {
        let reason = match ServerGroups::make(LIMITS) {
            Ok(groups) if groups.missing().is_empty() => return Some(groups),
            Ok(groups) => {
                groups.destroy(EMPTYING).unwrap();
                groups.to_string()
            }
            Err(reason) => reason,
        };
        kumi_skip::skip(test, &reason);
        None
    }

    /// A shell in the slot's groups.
    fn shell(slot: &JobGroups, script: &str) -> Child {
        let joins = slot.all_to_join();
        let joins: String =
            joins.iter().map(|file| format!("echo 0 >{}\n", file.display())).collect();
        let mut command = Command::new("/bin/bash");
        command.args(["-c", &format!("set -e\n{joins}set +e\n{script}")]);
        command.env("PATH", "/usr/bin:/bin").stderr(Stdio::null()).spawn().unwrap()
    }

    fn exist(paths: &[PathBuf]) -> bool {
        paths.iter().any(|path| path.exists())
    }

    #[test]
    fn all_that_a_slot_starts_shares_its_limits_and_is_counted() {
        let test = "all_that_a_slot_starts_shares_its_limits_and_is_counted";
        let Some(server) = server(test) else { return };
        let (slot, other) = (server.slot().unwrap(), server.slot().unwrap());
        assert_ne!(slot.main().path(), other.main().path());
        let quota = |slot: &JobGroups| {
            let folders = slot.all_to_join();
            let folders = folders.iter().filter_map(|file| file.parent());
            let file = |folder: &Path, name: &str| fs::read_to_string(folder.join(name)).ok();
            let mut quotas = folders.filter_map(|folder| {
                file(folder, "cpu.cfs_quota_us").or_else(|| file(folder, "cpu.max"))
            });
            quotas.next().unwrap()
        };
        assert!(quota(&slot).starts_with("50000"), "{}", quota(&slot));
        // Two processes, each within the limit.
        let script = "hold() { head -c 25000000 /dev/zero | tail -c 24000000 >/dev/null; }\n\
            hold & wait $! || exit 3; (sleep 600 | tail -c 1) & \n\
            (head -c 24000000 /dev/zero; sleep 600) | tail -c 24000000 >/dev/null & \n\
            (head -c 24000000 /dev/zero; sleep 600) | tail -c 24000000 >/dev/null & \n wait";
        let mut child = shell(&slot, script);
        let deadline = Instant::now() + Duration::from_secs(60);
        while slot.memory_kills() == 0 {
            assert_eq!(child.try_wait().unwrap(), None, "it waits");
            assert!(Instant::now() < deadline, "nothing is killed: {:?}", slot.memory_used());
            std::thread::sleep(Duration::from_millis(2));
        }
        // More processes than there may be. The shell tries again for a while before it gives up.
        let mut bomb = shell(&other, "for i in {1..40}; do sleep 600 & done; wait");
        while other.process_refusals() == 0 {
            assert!(Instant::now() < deadline, "nothing is refused");
            std::thread::sleep(Duration::from_millis(2));
        }
        assert!(other.main().processes().unwrap().len() <= 20);
        assert_eq!((slot.process_refusals(), other.memory_kills()), (0, 0));
        slot.destroy(EMPTYING).unwrap();
        server.destroy(EMPTYING).unwrap();
        assert!(!exist(&server.paths()));
        assert!(!child.wait().unwrap().success() && !bomb.wait().unwrap().success());
    }

    #[test]
    fn the_groups_of_a_dead_server_go_when_the_next_one_starts_and_others_stay() {
        let test = "the_groups_of_a_dead_server_go_when_the_next_one_starts_and_others_stay";
        let (Some(dead), Some(alive)) = (server(test), server(test)) else { return };
        let slot = dead.slot().unwrap();
        // It leaves its session.
        let mut child = shell(&slot, "exec setsid --wait sleep 600");
        let file = slot.all_to_join().pop().unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        let joined = || fs::read_to_string(&file).unwrap().lines().count() > 0;
        while !joined() {
            assert!(Instant::now() < deadline, "it has not joined");
            std::thread::sleep(Duration::from_millis(2));
        }
        let paths = dead.paths();
        let start_another = || server(test).unwrap().destroy(EMPTYING).unwrap();
        start_another();
        assert!(paths.iter().all(|path| path.exists()), "its server lives");
        drop(dead);
        // Another test's process that is about to start its program may still have the lock.
        while exist(&paths) {
            assert!(Instant::now() < deadline, "{paths:?} stay");
            start_another();
        }
        assert!(!child.wait().unwrap().success(), "it was killed");
        assert!(alive.paths().iter().all(|path| path.exists()));
        alive.destroy(EMPTYING).unwrap();
    }
}
