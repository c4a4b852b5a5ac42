//! The groups of a job on a node, and its limits.

use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::counters::LimitCounters;
use super::mounts::Controller;
use super::part::{DeviceNumber, IdleSwitch, Part, Version};
use super::unified::ControlGroup;

/// Memory below its limit at which a group counts as having used it up: the kernel kills when the next request does not fit.
const NEARLY: u64 = 2 << 20;

/// Limits of a job on one node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobLimits {
    /// Bytes of memory; none: only those of the node.
    pub memory: Option<u64>,
    /// Processes and threads.
    pub processes: Option<u64>,
    /// Its share of contended processors, as a multiple of the usual one.
    pub weight: u64,
    /// Microseconds of processor time in each tenth of a second, over all processors.
    pub processor_time: Option<u64>,
    /// Its processors; none: all of the node.
    pub processors: Vec<usize>,
    /// Whether it may have real-time threads.
    pub realtime: bool,
    /// Devices that it must not open.
    pub hidden: Vec<DeviceNumber>,
}

/// The groups of a job on a node. Dropping them does not remove them.
#[derive(Clone, Debug)]
pub struct JobGroups {
    main: ControlGroup,
    /// Version 2 first.
    parts: Vec<Part>,
    memory: Option<u64>,
    weight: u64,
}

impl JobGroups {
    pub(super) fn make(node: &[Part], name: &str, limits: &JobLimits) -> io::Result<Self> {
        let main = match node.first() {
            Some(first) => ControlGroup::at(first.path.clone()).child(name)?,
            None => return Err(io::ErrorKind::NotFound.into()),
        };
        let mut groups = Self { main, parts: Vec::new(), memory: None, weight: limits.weight };
        match groups.fill(node, name, limits) {
            Ok(()) => Ok(groups),
            Err(error) => {
                // The error is what counts; nobody is in them yet.
                let _ = groups.remove();
                Err(error)
            }
        }
    }

    /// Those that a former daemon made, which are as it left them.
    pub(super) fn again(node: &[Part], name: &str, (memory, weight): (Option<u64>, u64)) -> Self {
        let below = |part: &Part| Part { path: part.path.join(name), ..part.clone() };
        let parts: Vec<Part> = node.iter().map(below).filter(|part| part.path.exists()).collect();
        let main = node.first().map(|part| part.path.join(name)).unwrap_or_default();
        let limited = parts.iter().any(|part| part.has(Controller::Memory));
        let memory = memory.filter(|_| limited);
        Self { main: ControlGroup::at(main), parts, memory, weight }
    }

    fn fill(&mut self, node: &[Part], name: &str, limits: &JobLimits) -> io::Result<()> {
        for above in node {
            // Without a time of their own in it, the kernel refuses real-time threads.
            if above.version == Version::One && limits.realtime && above.forbids_realtime() {
                continue;
            }
            let part = above.child(name)?;
            self.parts.push(part.clone());
            if let (true, Some(bytes)) = (part.has(Controller::Memory), limits.memory) {
                part.set_memory(bytes)?;
                self.memory = Some(bytes);
            }
            if let (true, Some(most)) = (part.has(Controller::Pids), limits.processes) {
                part.set_processes(most)?;
            }
            if part.has(Controller::Cpu) {
                part.set_weight(limits.weight)?;
                limits.processor_time.map_or(Ok(()), |time| part.set_processor_time(time))?;
            }
            if part.has(Controller::Cpuset) && !limits.processors.is_empty() {
                part.set_processors(&limits.processors)?;
            }
            if part.has(Controller::Devices) {
                limits.hidden.iter().try_for_each(|&device| part.hide(device))?;
            }
        }
        Ok(())
    }

    fn with(&self, controller: Controller) -> Option<&Part> {
        self.parts.iter().find(|part| part.has(controller))
    }

    /// The group of version 2, in which the job's processes are born.
    pub fn main(&self) -> &ControlGroup {
        &self.main
    }

    /// All files by which a process of one thread joins: it writes 0, or its number.
    pub fn all_to_join(&self) -> Vec<PathBuf> {
        let main = self.main.path().join("cgroup.procs");
        std::iter::once(main).chain(self.to_join()).collect()
    }

    /// Files by which a thread joins the groups of version 1: it writes its number.
    pub fn to_join(&self) -> Vec<PathBuf> {
        let legacy = self.parts.iter().filter(|part| part.version == Version::One);
        legacy.map(|part| part.path.join("tasks")).collect()
    }

    /// What lets the job run only on processors that nobody else wants, and as usual again.
    ///
    /// # Errors
    /// `Unsupported` where no controller can; otherwise as the system says.
    pub fn idle_switch(&self) -> io::Result<IdleSwitch> {
        let part = self.with(Controller::Cpu).ok_or(io::ErrorKind::Unsupported)?;
        part.idle_switch(self.weight)
    }

    /// How many processes of the job the kernel has killed so far because memory ran out; 0 if nobody counts.
    pub fn memory_kills(&self) -> u64 {
        self.with(Controller::Memory).and_then(Part::memory_kills).unwrap_or(0)
    }

    /// How often the kernel has refused a process or thread because there were as many as the limit so far; 0 if nobody counts.
    pub fn process_refusals(&self) -> u64 {
        self.with(Controller::Pids).and_then(Part::process_refusals).unwrap_or(0)
    }

    /// Both counts, for who reads them often.
    pub fn limit_counters(&self) -> LimitCounters {
        let memory = self.with(Controller::Memory).and_then(Part::memory_kills_counter);
        let processes = self.with(Controller::Pids).and_then(Part::process_refusals_counter);
        LimitCounters::new(memory, processes)
    }

    /// The memory that the job uses now, in bytes, with files that are in memory for it; none if nobody counts.
    pub fn memory_used(&self) -> Option<u64> {
        self.with(Controller::Memory).and_then(Part::memory_used)
    }

    /// The most memory that the job had at a time, in bytes, counted as now; none if nobody counts it.
    pub fn memory_peak(&self) -> Option<u64> {
        self.with(Controller::Memory).and_then(Part::memory_peak)
    }

    /// The memory that the job had used up when the kernel killed: its limit or, if the node ran out first, what it had.
    pub fn memory_used_up(&self) -> u64 {
        let peak = self.with(Controller::Memory).and_then(Part::memory_peak);
        match (self.memory, peak) {
            (Some(limit), Some(peak)) if peak.saturating_add(NEARLY) < limit => peak,
            (Some(limit), _) => limit,
            (None, peak) => peak.unwrap_or(0),
        }
    }

    /// Kills every process of the job; works on stopped groups too.
    ///
    /// # Errors
    /// As the system says. Groups that are gone already are no error.
    pub fn kill(&self) -> io::Result<()> {
        self.main.kill()
    }

    /// Waits until no process is left.
    ///
    /// # Errors
    /// As the system says. Groups that are gone already are no error.
    pub async fn wait_empty(&self) -> io::Result<()> {
        self.main.wait_empty().await
    }

    /// Removes them; no process may be left in them.
    ///
    /// # Errors
    /// As the system says. Groups that are gone already are no error.
    pub fn remove(&self) -> io::Result<()> {
        self.main.remove()?;
        self.parts.iter().try_for_each(|part| ControlGroup::at(part.path.clone()).remove())
    }

    /// Kills what is in them and removes them, waiting at most `patience`.
    ///
    /// # Errors
    /// When something is left of them after that.
    pub fn destroy(&self, patience: Duration) -> io::Result<()> {
        let end = Instant::now() + patience;
        self.main.destroy(patience)?;
        self.parts.iter().try_for_each(|part| {
            let rest = end.saturating_duration_since(Instant::now());
            ControlGroup::at(part.path.clone()).destroy(rest)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::process::{Child, Command};

    use super::super::{DaemonGroup, NodeGroups};
    use super::*;

    /// A node's groups of their own; `None` with a skip where there can be none with these controllers.
    fn node(test: &str, wanted: &[Controller]) -> Option<NodeGroups> {
        let name =
            format!("{}-{}", &test[..test.len().min(8)].replace('_', "-"), std::process::id());
        let groups = match NodeGroups::make(&name, 0, DaemonGroup::Keep) {
            Ok(groups) => groups,
            Err(reason) => {
                kumi_skip::skip(test, &reason);
                return None;
            }
        };
        if let Some((one, why)) = groups.missing().iter().find(|(one, _)| wanted.contains(one)) {
            kumi_skip::skip(test, &format!("no controller {}: {why}", one.name()));
            groups.destroy(Duration::from_secs(1)).unwrap();
            groups.remove_empty_parents();
            return None;
        }
        Some(groups)
    }

    fn end(groups: &NodeGroups) {
        groups.destroy(Duration::from_secs(1)).unwrap();
        groups.remove_empty_parents();
        for path in groups.paths() {
            assert!(!path.parent().unwrap().exists(), "{} is left", path.display());
        }
    }

    /// A shell in the job's groups.
    fn shell(job: &JobGroups, script: &str) -> Child {
        let joins: BTreeSet<_> =
            job.to_join().into_iter().chain([job.main().path().join("cgroup.procs")]).collect();
        let joins: String =
            joins.iter().map(|file| format!("echo $$ >{}\n", file.display())).collect();
        let mut command = Command::new("/bin/bash");
        command.args(["-c", &format!("{joins}{script}")]).env("PATH", "/usr/bin:/bin");
        command.stderr(std::process::Stdio::null()).spawn().unwrap()
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_job_is_killed_and_removed_from_all_hierarchies() {
        let Some(node) = node("a_job_is_killed_and_removed_from_all_hierarchies", &[]) else {
            return;
        };
        let job = node.job("job-1", &JobLimits { weight: 1, ..JobLimits::default() }).unwrap();
        assert!(node.job("job-1", &JobLimits::default()).is_err(), "there is one already");
        let mut child = shell(&job, "exec sleep 100");
        let id = i32::try_from(child.id()).unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        while !job.parts.iter().all(|part| part.processes().unwrap().contains(&id)) {
            assert!(Instant::now() < deadline, "it has not joined");
            std::thread::sleep(Duration::from_millis(2));
        }
        assert!(job.main().processor_time().is_ok());
        std::fs::write(job.main().path().join("cgroup.freeze"), "1").unwrap();
        assert!(job.remove().is_err());
        job.kill().unwrap();
        job.wait_empty().await.unwrap();
        child.wait().unwrap();
        job.destroy(Duration::from_secs(1)).unwrap();
        assert!(job.parts.iter().all(|part| !part.path.exists()));
        job.kill().unwrap();
        job.wait_empty().await.unwrap();
        job.remove().unwrap();
        end(&node);
    }

    #[test]
    fn the_kernel_ends_who_uses_more_memory_than_the_limit() {
        let test = "the_kernel_ends_who_uses_more_memory_than_the_limit";
        let Some(node) = node(test, &[Controller::Memory]) else { return };
        let limits = JobLimits { memory: Some(32 << 20), weight: 1, ..JobLimits::default() };
        let job = node.job("job-1", &limits).unwrap();
        assert_eq!(job.memory_kills(), 0);
        let mut small = shell(&job, "exit 3");
        assert_eq!(small.wait().unwrap().code(), Some(3));
        let mut large = shell(&job, "head -c 100000000 /dev/zero | tail -c 90000000 >/dev/null");
        assert!(!large.wait().unwrap().success());
        assert_eq!((job.memory_kills(), job.memory_used_up()), (1, 32 << 20));
        job.destroy(Duration::from_secs(1)).unwrap();
        end(&node);
    }

    #[test]
    fn a_job_can_have_so_many_processes_and_not_one_more() {
        let test = "a_job_can_have_so_many_processes_and_not_one_more";
        let Some(node) = node(test, &[Controller::Pids]) else { return };
        let limits = JobLimits { processes: Some(20), weight: 1, ..JobLimits::default() };
        let job = node.job("job-1", &limits).unwrap();
        // The shell tries again for a while before it gives up.
        let mut bomb = shell(&job, "for i in {1..40}; do sleep 30 & done; exit 0");
        let mut most = 0;
        let deadline = Instant::now() + Duration::from_secs(10);
        while most < 20 && Instant::now() < deadline {
            most = job.parts.iter().map(|part| part.processes().unwrap().len()).max().unwrap_or(0);
            std::thread::sleep(Duration::from_millis(2));
        }
        std::thread::sleep(Duration::from_millis(50));
        let most = job.main().processes().unwrap().len();
        assert_eq!(most, 20);
        job.destroy(Duration::from_secs(1)).unwrap();
        bomb.wait().unwrap();
        end(&node);
    }

    #[test]
    fn a_job_gives_way_where_there_is_a_controller_for_it() {
        let test = "a_job_gives_way_where_there_is_a_controller_for_it";
        let Some(node) = node(test, &[Controller::Cpu]) else { return };
        let job = node.job("job-1", &JobLimits { weight: 3, ..JobLimits::default() }).unwrap();
        let cpu = job.with(Controller::Cpu).unwrap().path.clone();
        let read = |file: &str| std::fs::read_to_string(cpu.join(file)).ok();
        let weight = || read("cpu.weight").or(read("cpu.shares")).unwrap();
        let before = weight();
        let switch = job.idle_switch().unwrap();
        switch.set(true).unwrap();
        assert_eq!(read("cpu.idle").unwrap(), "1\n");
        assert_ne!(weight(), before);
        switch.set(false).unwrap();
        assert_eq!((read("cpu.idle").unwrap(), weight()), ("0\n".to_owned(), before));
        job.destroy(Duration::from_secs(1)).unwrap();
        // Real-time threads are possible, if need be outside the hierarchy that refuses them.
        let limits = JobLimits { realtime: true, weight: 1, ..JobLimits::default() };
        let job = node.job("job-2", &limits).unwrap();
        let refused = job.with(Controller::Cpu).is_some_and(Part::forbids_realtime);
        assert!(!refused, "{job:?}");
        job.destroy(Duration::from_secs(1)).unwrap();
        end(&node);
    }
}
