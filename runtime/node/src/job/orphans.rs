//! Search for orphans of a job, where there is no control group: descendants of this process (which
//! adopts orphans) whose environment names the job.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use kumi_sched::JobId;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::{Pid, getpid};

#[derive(Debug, PartialEq, Eq)]
struct Process {
    parent: i32,
    state: char,
}

fn parse_stat(stat: &str) -> Option<Process> {
    // The name, in parentheses, may hold anything, parentheses included.
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    let state = fields.next()?.chars().next()?;
    Some(Process { parent: fields.next()?.parse().ok()?, state })
}

fn table() -> BTreeMap<i32, Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return BTreeMap::new() };
    let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers
        .filter_map(|pid: i32| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            Some((pid, parse_stat(&stat)?))
        })
        .collect()
}

fn descends(table: &BTreeMap<i32, Process>, pid: i32, ancestor: i32) -> bool {
    let mut at = pid;
    // Bounded, since the table is no snapshot and might hold a circle.
    for _ in 0..table.len() {
        match table.get(&at) {
            Some(process) if process.parent == ancestor => return true,
            Some(process) => at = process.parent,
            None => return false,
        }
    }
    false
}

fn belongs_to(pid: i32, job: Option<JobId>) -> bool {
    let Ok(environment) = fs::read(format!("/proc/{pid}/environ")) else { return false };
    let is_it = |variable: &[u8]| match job {
        Some(job) => variable == format!("KUMI_JOB={}", job.number()).as_bytes(),
        None => variable.starts_with(b"KUMI_JOB="),
    };
    environment.split(|&byte| byte == 0).any(is_it)
}

/// The system's process table at one moment, by parent.
#[derive(Debug)]
pub struct ProcessTable(BTreeMap<i32, Vec<i32>>);

impl ProcessTable {
    /// Reads it.
    pub fn read() -> Self {
        let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
        for (pid, process) in table() {
            children.entry(process.parent).or_default().push(pid);
        }
        Self(children)
    }

    /// Processes that the ranks of `job` have started, including those that this process adopted; `known` are the ranks of all jobs.
    /// `keeper` adopted them if the job has one.
    pub fn of(
        &self,
        job: JobId,
        ranks: &[i32],
        known: &BTreeSet<i32>,
        keeper: Option<i32>,
    ) -> BTreeSet<i32> {
        let adopter = keeper.unwrap_or_else(|| getpid().as_raw());
        let adopted = self.0.get(&adopter).into_iter().flatten();
        let adopted = adopted.filter(|&&pid| !known.contains(&pid) && belongs_to(pid, Some(job)));
        let mut found = BTreeSet::new();
        let mut next: Vec<i32> = ranks.iter().chain(adopted).copied().collect();
        while let Some(pid) = next.pop() {
            if pid > 0 && found.insert(pid) {
                next.extend(self.0.get(&pid).into_iter().flatten());
            }
        }
        found
    }
}

/// Kills the descendants of this process that belong to `job`, or to any job, and reaps those that
/// it adopted and that have ended; `ranks` are left to their own waiters. Returns how many were
/// still there. Those of a job with a `keeper` descend from that, which waits for what it adopted.
pub fn kill_descendants(job: Option<JobId>, ranks: &[i32], keeper: Option<i32>) -> usize {
    let table = table();
    let own = keeper.unwrap_or_else(|| getpid().as_raw());
    let mut found = 0;
    for (&pid, process) in &table {
        if process.state == 'Z' {
            if process.parent == own && !ranks.contains(&pid) && is_orphan(pid) {
                // Adopted and dead: nobody else waits for it.
                let _ = waitpid(Pid::from_raw(pid), Some(WaitPidFlag::WNOHANG));
            }
        } else if descends(&table, pid, own) && belongs_to(pid, job) {
            found += 1;
            // Gone meanwhile is as good as killed.
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
    found
}

/// Children that this process started lead their own process groups, in its session or as leaders of one; what it adopted was
/// started by a rank, perhaps by a shell that gave it a group.
fn is_orphan(pid: i32) -> bool {
    use nix::unistd::{getpgid, getsid};
    let group = getpgid(Some(Pid::from_raw(pid))).map(Pid::as_raw);
    let session = getsid(Some(Pid::from_raw(pid))).map(Pid::as_raw);
    let own = getsid(None).map(Pid::as_raw);
    group.is_ok_and(|group| group != pid)
        || session.is_ok_and(|session| session != pid && own.is_ok_and(|own| own != session))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_stat_whatever_the_name() {
        let process = parse_stat("12 (a) b) (c) S 7 12 12 0").unwrap();
        assert_eq!(process, Process { parent: 7, state: 'S' });
        assert_eq!(parse_stat("nonsense"), None);
    }

    #[test]
    fn descent_ends_in_circles() {
        let process = |parent| Process { parent, state: 'S' };
        let table =
            BTreeMap::from([(2, process(3)), (3, process(2)), (5, process(4)), (4, process(9))]);
        assert!(descends(&table, 5, 9));
        assert!(!descends(&table, 2, 9));
        assert!(!descends(&table, 9, 9));
    }

    #[test]
    fn what_ranks_have_started_is_found() {
        let own = getpid().as_raw();
        let mut child = std::process::Command::new("sh");
        let child = child.args(["-c", "sleep 100 & wait"]).env("KUMI_JOB", "7");
        let mut child = child.spawn().unwrap();
        let rank = i32::try_from(child.id()).unwrap();
        let found = |job, ranks: &[i32], known: &[i32]| {
            ProcessTable::read().of(JobId(job), ranks, &known.iter().copied().collect(), None)
        };
        while found(7, &[rank], &[rank]).len() < 2 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        assert!(!found(7, &[rank, 0], &[rank]).contains(&own));
        // Adopted ones are known by their environment.
        assert_eq!(found(7, &[], &[]), found(7, &[rank], &[rank]));
        assert!(found(8, &[], &[]).is_empty() && found(7, &[], &[rank]).is_empty());
        let all = found(7, &[rank], &[rank]);
        for pid in all {
            kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
        }
        child.wait().unwrap();
    }

    #[test]
    fn finds_this_process_as_a_descendant() {
        let table = table();
        assert!(descends(&table, getpid().as_raw(), nix::unistd::getppid().as_raw()));
    }
}
