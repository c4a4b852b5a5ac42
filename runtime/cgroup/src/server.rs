//! The groups of a server of routines and of its slots.

use std::fmt;
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::Pid;

use super::job::{JobGroups, JobLimits};
use super::mounts::Controller;
use super::node::{Access, DaemonGroup, NodeGroups};
use super::unified::ControlGroup;

/// The group above those of all servers. Those of clusters begin with `kumi-`.
const ABOVE: &str = "kumi_call";
/// How the name of a server's group begins.
const SERVER: &str = "server-";
/// How often a server makes other groups if another process locks or removes them before they are locked.
const TRIES: usize = 8;
/// How long a lock on a new group is waited for, and how long until it is tried again.
const LOCKING: Duration = Duration::from_millis(200);
const LOCKING_AGAIN: Duration = Duration::from_millis(10);
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
    /// Those that the system takes.
    limits: SlotLimits,
    /// Controllers of limits that do not hold, and why not.
    missing: Vec<(Controller, String)>,
    next: AtomicU64,
    /// Groups of other servers that stay although they may be of no use, and why, as sentences for people.
    left: Vec<String>,
    /// The kernel unlocks them when this process ends, however it does.
    _locked: Vec<File>,
}

impl ServerGroups {
    /// Makes the groups of this process, and removes those of servers that have died. Moves this process to a group below its
    /// own, if a service manager has delegated that to it alone. Makes and removes a slot's groups with each limit, so that
    /// one that the system refuses counts as missing.
    ///
    /// # Errors
    /// Why there are none, as a sentence for people.
    pub fn make(limits: SlotLimits) -> Result<Self, String> {
        let mut reason = String::new();
        for _ in 0..TRIES {
            match Self::make_as(&name()?, limits) {
                Ok(mut made) => {
                    made.left = remove_dead(&made.groups);
                    return made.tried();
                }
                // Another process may have locked or removed them.
                Err(why) => reason = why,
            }
        }
        Err(reason)
    }

    /// Makes the groups with this name, which no other may have, and locks them.
    fn make_as(name: &str, limits: SlotLimits) -> Result<Self, String> {
        let names = [ABOVE.to_owned(), name.to_owned()];
        let (home, wanted) = (DaemonGroup::Leave, limits.controllers());
        let groups = NodeGroups::make_with(&names, Access::Private, home, &wanted)?;
        match lock_all(&groups) {
            Ok(locked) => {
                let (missing, left) = (groups.missing().to_vec(), Vec::new());
                let next = AtomicU64::new(0);
                Ok(Self { groups, limits, missing, next, left, _locked: locked })
            }
            Err(error) => {
                let mut why = format!("the control group {name} cannot be locked: {error}");
                if let Err(error) = remove(&groups, LOCKING) {
                    why = format!("{why}; it stays: {error}");
                }
                Err(why)
            }
        }
    }

    /// As they are, without limits that the system refuses: in version 1, for example, no group may have more processor time
    /// than one above it.
    fn tried(mut self) -> Result<Self, String> {
        let none = SlotLimits::default();
        for (controller, one) in [
            (Controller::Memory, SlotLimits { memory: self.limits.memory, ..none }),
            (Controller::Pids, SlotLimits { processes: self.limits.processes, ..none }),
            (Controller::Cpu, SlotLimits { processors: self.limits.processors, ..none }),
        ] {
            if one == none || !self.groups.has(controller) {
                continue;
            }
            if let Err(error) = self.try_slot(&one) {
                self.missing.push((controller, format!("the system refuses it: {error}")));
                match controller {
                    Controller::Memory => self.limits.memory = None,
                    Controller::Pids => self.limits.processes = None,
                    _ => self.limits.processors = None,
                }
            }
        }
        self.try_slot(&self.limits).map_err(|error| {
            let why = format!("no control group of a slot can be made: {error}");
            match self.destroy(EMPTYING) {
                Ok(()) => why,
                Err(error) => format!("{why}; those of the server stay: {error}"),
            }
        })?;
        Ok(self)
    }

    /// Makes and removes the groups of a slot with these limits.
    fn try_slot(&self, limits: &SlotLimits) -> io::Result<()> {
        self.groups.job("trial", &limits.of_job())?.remove()
    }

    /// Groups of dead servers that could not be removed, and why, as sentences for people.
    pub fn left(&self) -> &[String] {
        &self.left
    }

    /// The limits of each slot.
    pub fn limits(&self) -> SlotLimits {
        self.limits
    }

    /// Controllers of limits that do not hold, and why not, as sentences for people.
    pub fn missing(&self) -> &[(Controller, String)] {
        &self.missing
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
        remove(&self.groups, patience)
    }
}

/// A name for a server's groups that no other has: numbers of processes are the same in several PID namespaces, and return.
fn name() -> Result<String, String> {
    let mut random = [0; 8];
    getrandom::fill(&mut random)
        .map_err(|error| format!("the system has no random numbers: {error}"))?;
    Ok(format!("{SERVER}{}-{:016x}", process::id(), u64::from_ne_bytes(random)))
}

/// Ends all that is in a server's groups and removes them, waiting at most `patience`.
fn remove(groups: &NodeGroups, patience: Duration) -> io::Result<()> {
    groups.destroy(patience)?;
    groups.remove_empty_parents();
    Ok(())
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
        self.left.iter().try_for_each(|left| write!(out, "; {left}"))
    }
}

/// Locks all folders.
///
/// # Errors
/// `WouldBlock`: another process has the lock. `NotFound`: another has removed one meanwhile. An error of the system.
fn lock_all(groups: &NodeGroups) -> io::Result<Vec<File>> {
    groups.paths().iter().map(|path| lock(path)).collect()
}

fn lock(path: &Path) -> io::Result<File> {
    let file = File::open(path)?;
    let end = Instant::now() + LOCKING;
    // Who looks whether its server is dead has it for a moment, or removes it. Others may keep it as long as they like.
    loop {
        match file.try_lock() {
            Ok(()) => break,
            Err(TryLockError::WouldBlock) if Instant::now() < end => {
                std::thread::sleep(LOCKING_AGAIN);
            }
            Err(error) => return Err(error.into()),
        }
    }
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
            let name = entry.file_name();
            if let Some(rest) = name.to_str().and_then(|name| name.strip_prefix(SERVER)) {
                left.extend(remove_if_dead(&entry.path(), rest));
            }
        }
    }
    left
}

/// Removes a server's group unless it is locked. Returns why it stays, if it may be of no use; `rest` is of its name.
fn remove_if_dead(path: &Path, rest: &str) -> Option<String> {
    // It has gone meanwhile, or is another user's, who removes it.
    let folder = File::open(path).ok()?;
    let why = match folder.try_lock() {
        Ok(()) => ControlGroup::at(path.to_owned()).destroy(EMPTYING).err()?,
        Err(TryLockError::Error(error)) => error,
        Err(TryLockError::WouldBlock) => {
            let pid = rest.split('-').next()?.parse().ok()?;
            let is_dead = kill(Pid::from_raw(pid), None) == Err(Errno::ESRCH);
            return is_dead.then(|| {
                format!(
                    "the group {} stays: it is locked, though no process here has the number {pid}; a server in another PID \
                     namespace may have it, otherwise `lslocks` shows which process keeps it",
                    path.display()
                )
            });
        }
    };
    Some(format!("a dead server's group stays: {}: {why}", path.display()))
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

    /// Groups of this name, without limits; `None` with a skip where there can be none.
    fn named(test: &str, name: &str) -> Option<ServerGroups> {
        ServerGroups::make_as(name, SlotLimits::default())
            .inspect_err(|reason| kumi_skip::skip(test, reason))
            .ok()
    }

    /// As in another PID namespace, or after a process number has come back.
    #[test]
    fn a_server_does_not_join_the_groups_of_another_of_its_name() {
        let test = "a_server_does_not_join_the_groups_of_another_of_its_name";
        let name = name().unwrap();
        let Some(dead) = named(test, &name) else { return };
        let slot = dead.slot().unwrap();
        let paths = dead.paths();
        // Its lock is of this process, so that others leave the groups.
        std::mem::forget(dead);
        let error = ServerGroups::make_as(&name, SlotLimits::default()).unwrap_err();
        assert!(error.contains("File exists"), "{error}");
        let next = ServerGroups::make(SlotLimits::default()).unwrap();
        let slots = next.slot().unwrap();
        assert_ne!(slots.main().path(), slot.main().path());
        assert!(slot.main().path().exists(), "it has been left alone");
        next.destroy(EMPTYING).unwrap();
        for path in &paths {
            ControlGroup::at(path.clone()).destroy(EMPTYING).unwrap();
            ControlGroup::at(path.clone()).remove_empty_parent();
        }
        assert!(!exist(&next.paths()) && !exist(&paths));
    }

    #[test]
    fn no_other_user_can_open_the_groups_of_a_server() {
        use std::os::unix::fs::PermissionsExt;
        let test = "no_other_user_can_open_the_groups_of_a_server";
        let Some(server) = server(test) else { return };
        for path in server.paths() {
            let mode = fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o7777, 0o700, "{}", path.display());
        }
        server.destroy(EMPTYING).unwrap();
    }

    #[test]
    fn a_folder_that_another_holds_is_not_waited_for_long() {
        let folder = tempfile::tempdir().unwrap();
        let held = File::open(folder.path()).unwrap();
        held.lock().unwrap();
        assert_eq!(lock(folder.path()).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(held);
        // Another test's process that is about to start its program may still have it.
        let deadline = Instant::now() + Duration::from_secs(60);
        while lock(folder.path()).is_err() {
            assert!(Instant::now() < deadline, "it is free");
        }
    }

    #[test]
    fn a_locked_group_without_its_process_is_told_and_stays() {
        let folder = tempfile::tempdir().unwrap();
        // More than the kernel gives.
        let nobody = (1 << 22) + 1;
        let held = File::open(folder.path()).unwrap();
        held.lock().unwrap();
        let told = remove_if_dead(folder.path(), &format!("{nobody}-12ab")).unwrap();
        assert!(told.contains("it is locked, though no process here has"), "{told}");
        assert_eq!(remove_if_dead(folder.path(), &format!("{}-12ab", process::id())), None);
        assert!(folder.path().exists());
        drop(held);
    }

    #[test]
    fn a_limit_that_the_system_refuses_is_missing_and_slots_go_without_it() {
        use super::super::part::{Part, Version};
        let folder = tempfile::tempdir().unwrap();
        // No file of a limit is there.
        let controllers = [Controller::Memory].into();
        let path = folder.path().to_owned();
        let groups = NodeGroups::of(vec![Part { version: Version::Two, controllers, path }]);
        let (missing, left, next) = (Vec::new(), Vec::new(), AtomicU64::new(0));
        let limits = SlotLimits { memory: Some(1 << 20), processes: Some(7), processors: None };
        let server = ServerGroups { groups, limits, missing, next, left, _locked: Vec::new() };
        let server = server.tried().unwrap();
        assert_eq!(server.limits(), SlotLimits { memory: None, ..limits });
        let [(Controller::Memory, why)] = server.missing() else {
            panic!("{:?}", server.missing())
        };
        assert!(why.contains("the system refuses it: memory.max"), "{why}");
        assert!(server.to_string().contains("no limit by controller memory"), "{server}");
        assert!(fs::read_dir(folder.path()).unwrap().next().is_none(), "the trial is removed");
        server.slot().unwrap();
    }

    /// The group above them comes and goes with them.
    #[test]
    fn servers_that_begin_and_end_together_have_all_their_limits() {
        let test = "servers_that_begin_and_end_together_have_all_their_limits";
        let Some(first) = server(test) else { return };
        first.destroy(EMPTYING).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        let server = ServerGroups::make(LIMITS).unwrap();
                        assert_eq!(server.missing(), [], "{server}");
                        server.destroy(EMPTYING).unwrap();
                    }
                });
            }
        });
    }
}
