//! A group in one hierarchy: how limits are written in each version.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use nix::sys::stat::{major, minor};

use super::counters::Counter;
use super::folder::{get, gone, may_write, number, number_of, set};
use super::mounts::Controller;

/// Weight of a group without another, in version 2.
const WEIGHT: u64 = 100;
/// Highest weight, in version 2.
const MOST_WEIGHT: u64 = 10_000;
/// Shares of a group without others, in version 1.
const SHARES: u64 = 1_024;

/// Microseconds in which processor time is bounded: the kernel's own period.
const PERIOD: u64 = 100_000;

/// Version of a hierarchy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    One,
    Two,
}

/// The kernel's number of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceNumber {
    /// A block device; otherwise a character device.
    pub block: bool,
    /// Major and minor number, as `stat` has them.
    pub number: u64,
}

/// The group of a cluster, node or job in one hierarchy.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) version: Version,
    /// Those that limit it.
    pub(super) controllers: BTreeSet<Controller>,
    pub(super) path: PathBuf,
}

impl Part {
    pub(super) fn has(&self, controller: Controller) -> bool {
        self.controllers.contains(&controller)
    }

    /// Its child of that name, made if need be and with the same controllers.
    pub(super) fn child(&self, name: &str) -> io::Result<Self> {
        let path = self.path.join(name);
        match fs::create_dir(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made?,
        }
        self.prepared(path)
    }

    /// Its child of that name, which must not be there yet, with the same controllers. Other users cannot open it.
    pub(super) fn private_child(&self, name: &str) -> io::Result<Self> {
        let path = self.path.join(name);
        DirBuilder::new().mode(0o700).create(&path)?;
        self.prepared(path)
    }

    /// The child in this folder, so that processes can join it.
    fn prepared(&self, path: PathBuf) -> io::Result<Self> {
        let child = Self { version: self.version, controllers: self.controllers.clone(), path };
        if self.version == Version::One && self.has(Controller::Cpuset) {
            // Without these nobody can join.
            for file in ["cpuset.cpus", "cpuset.mems"] {
                if get(&child.path, file)?.is_empty() {
                    set(&child.path, file, &get(&self.path, file)?)?;
                }
            }
        }
        Ok(child)
    }

    /// Whether processes can be put there by this process.
    pub(super) fn usable(&self) -> io::Result<()> {
        may_write(&self.path, "cgroup.procs")
    }

    /// Bounds memory, and keeps it out of swap: a rank that is swapped in holds up all of its job.
    pub(super) fn set_memory(&self, bytes: u64) -> io::Result<()> {
        let bytes = bytes.to_string();
        let (limit, with_swap, swap) = match self.version {
            Version::Two => ("memory.max", "memory.swap.max", "0"),
            Version::One => ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes", &*bytes),
        };
        if self.version == Version::One && self.path.join(with_swap).exists() {
            // Never below the other: so lower in this order and raise in the other.
            let raised = set(&self.path, limit, &bytes);
            set(&self.path, with_swap, swap)?;
            return raised.or_else(|_| set(&self.path, limit, &bytes));
        }
        set(&self.path, limit, &bytes)?;
        match set(&self.path, with_swap, swap) {
            // A kernel without swap.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            written => written,
        }
    }

    /// The file that counts how many of its processes the kernel has killed because memory ran out, and the count's name.
    fn kills_file(&self) -> (&'static str, &'static str) {
        let file = match self.version {
            Version::Two => "memory.events",
            Version::One => "memory.oom_control",
        };
        (file, "oom_kill")
    }

    /// How many of its processes the kernel has killed because memory ran out.
    pub(super) fn memory_kills(&self) -> Option<u64> {
        let (file, name) = self.kills_file();
        number_of(&self.path, file, name)
    }

    /// The counter of that, open.
    pub(super) fn memory_kills_counter(&self) -> Option<Counter> {
        let (file, name) = self.kills_file();
        Counter::open(&self.path, file, name)
    }

    /// The most memory that it has used at a time, in bytes.
    pub(super) fn memory_peak(&self) -> Option<u64> {
        let file = match self.version {
            Version::Two => "memory.peak",
            Version::One => "memory.max_usage_in_bytes",
        };
        number(&self.path, file)
    }

    /// The memory that it uses now, in bytes, with files that are in memory for it.
    pub(super) fn memory_used(&self) -> Option<u64> {
        let file = match self.version {
            Version::Two => "memory.current",
            Version::One => "memory.usage_in_bytes",
        };
        number(&self.path, file)
    }

    /// The limit that holds for a group with all above it, as far as they are seen.
    pub(super) fn memory_limit(&self, mount: &Path) -> Option<u64> {
        if self.version == Version::One {
            return number_of(&self.path, "memory.stat", "hierarchical_memory_limit");
        }
        let above = self.path.ancestors().take_while(|folder| folder.starts_with(mount));
        above.filter_map(|folder| number(folder, "memory.max")).min()
    }

    /// Bounds processes and threads.
    pub(super) fn set_processes(&self, most: u64) -> io::Result<()> {
        set(&self.path, "pids.max", &most.to_string())
    }

    /// How often the kernel has refused a process or thread because of that bound.
    pub(super) fn process_refusals(&self) -> Option<u64> {
        number_of(&self.path, "pids.events", "max")
    }

    /// The counter of that, open.
    pub(super) fn process_refusals_counter(&self) -> Option<Counter> {
        Counter::open(&self.path, "pids.events", "max")
    }

    /// Bounds processor time: microseconds in each [`PERIOD`].
    pub(super) fn set_processor_time(&self, microseconds: u64) -> io::Result<()> {
        match self.version {
            Version::Two => set(&self.path, "cpu.max", &format!("{microseconds} {PERIOD}")),
            Version::One => {
                set(&self.path, "cpu.cfs_period_us", &PERIOD.to_string())?;
                set(&self.path, "cpu.cfs_quota_us", &microseconds.to_string())
            }
        }
    }

    /// Sets its share of contended processors: so many times that of a group without another.
    pub(super) fn set_weight(&self, times: u64) -> io::Result<()> {
        let (file, weight) = self.weight(times);
        set(&self.path, file, &weight)
    }

    /// The file with the weight, and what stands for so many times the usual one.
    fn weight(&self, times: u64) -> (&'static str, String) {
        match self.version {
            Version::Two => {
                let weight = times.saturating_mul(WEIGHT).clamp(1, MOST_WEIGHT);
                ("cpu.weight", weight.to_string())
            }
            Version::One => {
                let shares = times.max(1).saturating_mul(SHARES).min(SHARES * WEIGHT);
                ("cpu.shares", shares.to_string())
            }
        }
    }

    /// What puts it behind all others, and gives it this weight again.
    pub(super) fn idle_switch(&self, times: u64) -> io::Result<IdleSwitch> {
        let open = |file| OpenOptions::new().write(true).open(self.path.join(file));
        let (file, weight) = self.weight(times);
        Ok(IdleSwitch { idle: open("cpu.idle")?, weight: (open(file)?, weight.into_bytes()) })
    }

    /// Bounds the processors that it may run on.
    pub(super) fn set_processors(&self, processors: &[usize]) -> io::Result<()> {
        let list: Vec<String> = processors.iter().map(ToString::to_string).collect();
        set(&self.path, "cpuset.cpus", &list.join(","))
    }

    /// Keeps its processes from a device.
    pub(super) fn hide(&self, device: DeviceNumber) -> io::Result<()> {
        let kind = if device.block { 'b' } else { 'c' };
        let (major, minor) = (major(device.number), minor(device.number));
        set(&self.path, "devices.deny", &format!("{kind} {major}:{minor} rwm"))
    }

    /// Whether real-time threads need a time of their own in it, which it has not.
    pub(super) fn forbids_realtime(&self) -> bool {
        self.has(Controller::Cpu) && number(&self.path, "cpu.rt_runtime_us") == Some(0)
    }

    /// Turns a controller on for its children, where it is off.
    pub(super) fn enable(&self, controller: Controller) -> io::Result<()> {
        let on = get(&self.path, "cgroup.subtree_control")?;
        if Controller::of_file(&on).contains(&controller) {
            return Ok(());
        }
        set(&self.path, "cgroup.subtree_control", &format!("+{}", controller.name()))
    }

    /// The processes in it, not those in groups below.
    pub(super) fn processes(&self) -> io::Result<BTreeSet<i32>> {
        match get(&self.path, "cgroup.procs") {
            Err(error) if gone(&error) => Ok(BTreeSet::new()),
            text => Ok(text?.lines().filter_map(|line| line.parse().ok()).collect()),
        }
    }
}

/// Lets a group run only where nobody else wants to, or as usual. Its files are open, so that a switch is short.
#[derive(Debug)]
pub struct IdleSwitch {
    idle: File,
    /// The kernel forgets the weight of an idle group.
    weight: (File, Vec<u8>),
}

impl IdleSwitch {
    /// Lets the group run only where nobody else wants to, or as usual.
    ///
    /// # Errors
    /// As the system says.
    pub fn set(&self, idle: bool) -> nix::Result<()> {
        let word: &[u8] = if idle { b"1" } else { b"0" };
        nix::sys::uio::pwrite(&self.idle, word, 0)?;
        let (file, weight) = &self.weight;
        if idle { Ok(()) } else { nix::sys::uio::pwrite(file, weight, 0).map(drop) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(version: Version, controllers: &[Controller]) -> (tempfile::TempDir, Part) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_owned();
        (dir, Part { version, controllers: controllers.iter().copied().collect(), path })
    }

    fn with(part: &Part, files: &[(&str, &str)]) {
        for (file, text) in files {
            fs::write(part.path.join(file), text).unwrap();
        }
    }

    #[test]
    fn limits_are_written_as_each_version_has_them() {
        use Version::{One, Two};
        let files = [
            "memory.max",
            "memory.swap.max",
            "memory.limit_in_bytes",
            "memory.memsw.limit_in_bytes",
            "pids.max",
            "cpu.weight",
            "cpu.shares",
            "cpu.idle",
            "cpuset.cpus",
            "cpu.max",
            "cpu.cfs_period_us",
            "cpu.cfs_quota_us",
        ];
        for (version, expected) in [
            (Two, ["4096", "0", "", "", "7", "300", "", "1", "0,2", "150000 100000", "", ""]),
            (One, ["", "", "4096", "4096", "7", "", "3072", "1", "0,2", "", "100000", "150000"]),
        ] {
            let (_dir, part) = part(version, &[]);
            with(&part, &files.map(|file| (file, "")));
            part.set_memory(4096).unwrap();
            part.set_processes(7).unwrap();
            part.set_weight(3).unwrap();
            part.idle_switch(3).unwrap().set(true).unwrap();
            part.set_processors(&[0, 2]).unwrap();
            part.set_processor_time(150_000).unwrap();
            assert_eq!(files.map(|file| get(&part.path, file).unwrap()), expected);
        }
        let (_dir, none) = part(Two, &[]);
        assert!(none.set_memory(1).unwrap_err().to_string().starts_with("memory.max"));
        with(&none, &[("memory.max", "")]);
        none.set_memory(1).unwrap();
    }

    #[test]
    fn weights_stay_within_what_the_kernel_takes() {
        let (_dir, part) = part(Version::Two, &[]);
        with(&part, &[("cpu.weight", "")]);
        for (times, weight) in [(0, 1), (1, 100), (100, 10_000), (1_000, 10_000)] {
            part.set_weight(times).unwrap();
            assert_eq!(number(&part.path, "cpu.weight"), Some(weight), "{times}");
            fs::write(part.path.join("cpu.weight"), "").unwrap();
        }
    }

    #[test]
    fn what_the_kernel_says_of_memory_is_read() {
        let (_dir, two) = part(Version::Two, &[]);
        with(&two, &[("memory.events", "low 0\noom 9\noom_kill 2\n"), ("memory.peak", "77\n")]);
        assert_eq!((two.memory_kills(), two.memory_peak()), (Some(2), Some(77)));
        with(&two, &[("memory.current", "33\n")]);
        assert_eq!(two.memory_used(), Some(33));
        with(&two, &[("memory.max", "max\n")]);
        assert_eq!(two.memory_limit(&two.path), None);
        with(&two, &[("memory.max", "500\n")]);
        let child = two.child("a").unwrap();
        with(&child, &[("memory.max", "900\n")]);
        assert_eq!(child.memory_limit(&two.path), Some(500));
        with(&two, &[("pids.events", "max 3\n")]);
        assert_eq!(two.process_refusals(), Some(3));
        let (_dir, one) = part(Version::One, &[]);
        let text = "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n";
        with(&one, &[("memory.oom_control", text), ("memory.max_usage_in_bytes", "5\n")]);
        assert_eq!((one.memory_kills(), one.memory_peak()), (Some(1), Some(5)));
        with(&one, &[("memory.usage_in_bytes", "4\n")]);
        assert_eq!(one.memory_used(), Some(4));
        with(&one, &[("memory.stat", "cache 1\nhierarchical_memory_limit 600\n")]);
        assert_eq!(one.memory_limit(&one.path), Some(600));
    }

    #[test]
    fn devices_are_hidden_by_kind_and_number() {
        let (_dir, part) = part(Version::One, &[Controller::Devices]);
        with(&part, &[("devices.deny", "")]);
        part.hide(DeviceNumber { block: true, number: nix::sys::stat::makedev(8, 1) }).unwrap();
        assert_eq!(get(&part.path, "devices.deny").unwrap(), "b 8:1 rwm");
    }

    #[test]
    fn controllers_are_turned_on_once() {
        let (_dir, two) = part(Version::Two, &[]);
        with(&two, &[("cgroup.subtree_control", "cpu io\n")]);
        two.enable(Controller::Cpu).unwrap();
        assert_eq!(get(&two.path, "cgroup.subtree_control").unwrap(), "cpu io");
        // The file of a test takes what is written over its beginning; the kernel adds.
        two.enable(Controller::Memory).unwrap();
        assert_eq!(get(&two.path, "cgroup.subtree_control").unwrap(), "+memory");
    }
}
