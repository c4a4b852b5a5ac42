//! Threads of a job, which are put behind all others one by one where jobs have no processor groups of their own.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

use kumi_net::thread_policy::ThreadPolicy;

use crate::cgroup::ControlGroup;
use crate::process_table::threads_of;

/// A job with more threads on a node does not fill: each costs a switch a microsecond.
pub const MOST_THREADS: usize = 64;

/// A thread in the hands of the switching thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobThread {
    id: i32,
    /// What it has in the job's turns.
    policy: ThreadPolicy,
}

/// Whether this process may put threads behind others and back.
pub fn permitted() -> bool {
    let probe = || ThreadPolicy::Idle.give(0).and_then(|()| ThreadPolicy::Other.give(0));
    // A thread of its own, which ends with what it may not undo.
    std::thread::spawn(probe).join().is_ok_and(|done| done.is_ok())
}

impl JobThread {
    /// A thread that has the ordinary policy, or was born behind the others.
    pub fn new(id: i32) -> Self {
        Self { id, policy: ThreadPolicy::Other }
    }

    /// Puts it behind all others, or back. A thread that has ended is none.
    ///
    /// # Errors
    /// As the system says; `EPERM` if it has real-time priority.
    pub fn set_lowered(&mut self, lowered: bool) -> nix::Result<()> {
        match self.change(lowered).map_err(|error| error.raw_os_error().unwrap_or(0)) {
            Err(code) if code == nix::Error::ESRCH as i32 => Ok(()),
            other => other.map_err(nix::Error::from_raw),
        }
    }

    fn change(&mut self, lowered: bool) -> io::Result<()> {
        let now = ThreadPolicy::of(self.id)?;
        match (lowered, now) {
            (true, ThreadPolicy::RealTime) => {
                Err(io::Error::from_raw_os_error(nix::Error::EPERM as i32))
            }
            (true, ThreadPolicy::Idle) => Ok(()),
            (true, policy) => {
                // The program may have changed it.
                self.policy = policy;
                ThreadPolicy::Idle.give(self.id)
            }
            (false, ThreadPolicy::Idle) => self.policy.give(self.id),
            (false, _) => Ok(()),
        }
    }
}

/// Changes in the threads of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ThreadNews {
    /// None are new.
    Same,
    /// These are its threads now.
    Changed(Vec<JobThread>),
    /// There are too many: it must not fill.
    TooMany,
}

/// The threads of a job that were found. What they start while the job is behind the others is so from its birth.
#[derive(Debug)]
pub struct JobThreads {
    known: BTreeSet<i32>,
}

impl JobThreads {
    /// With the first threads of ranks.
    pub fn new(leaders: &[i32]) -> Self {
        Self { known: leaders.iter().copied().collect() }
    }

    /// The threads known now.
    pub fn all(&self) -> Vec<JobThread> {
        self.known.iter().copied().map(JobThread::new).collect()
    }

    /// Looks for new threads of the group, or of these processes.
    pub fn refresh(&mut self, group: Option<&ControlGroup>, leaders: &[i32]) -> ThreadNews {
        let mut found = BTreeSet::new();
        match group {
            Some(group) => of_group(group.path(), &mut found),
            None => leaders.iter().for_each(|&leader| found.extend(threads_of(leader))),
        }
        if found.len() > MOST_THREADS {
            return ThreadNews::TooMany;
        }
        if found.is_subset(&self.known) {
            return ThreadNews::Same;
        }
        self.known = found;
        ThreadNews::Changed(self.all())
    }
}

/// The threads of a group and of those below; stops when there are too many.
fn of_group(path: &Path, found: &mut BTreeSet<i32>) {
    // A group that is gone has none.
    let text = fs::read_to_string(path.join("cgroup.threads")).unwrap_or_default();
    found.extend(text.lines().filter_map(|line| line.parse::<i32>().ok()));
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        if found.len() <= MOST_THREADS && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            of_group(&entry.path(), found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn threads_go_behind_the_others_and_come_back() {
        if !permitted() {
            return kumi_skip::skip("threads_go_behind_the_others_and_come_back", "no right to");
        }
        let mut child = Command::new("sleep").arg("100").spawn().expect("sleep");
        let id = i32::try_from(child.id()).expect("a number");
        let policy = || ThreadPolicy::of(id).expect("it lives");
        let mut thread = JobThread::new(id);
        for (lowered, expected) in [
            (true, ThreadPolicy::Idle),
            (true, ThreadPolicy::Idle),
            (false, ThreadPolicy::Other),
            (false, ThreadPolicy::Other),
        ] {
            thread.set_lowered(lowered).expect("permitted");
            assert_eq!(policy(), expected);
        }
        // What a program gave itself it has again.
        ThreadPolicy::Batch.give(id).expect("permitted");
        thread.set_lowered(true).expect("permitted");
        thread.set_lowered(false).expect("permitted");
        assert_eq!(policy(), ThreadPolicy::Batch);
        child.kill().and_then(|()| child.wait()).expect("it was there");
        assert_eq!(JobThread::new(id).set_lowered(true), Ok(()), "it has ended");
    }

    #[test]
    fn new_threads_are_found() {
        let own = i32::try_from(std::process::id()).expect("a number");
        let mut threads = JobThreads::new(&[own]);
        assert_eq!(threads.all(), [JobThread::new(own)]);
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let other = std::thread::spawn(move || ended.recv());
        let ThreadNews::Changed(found) = threads.refresh(None, &[own]) else { panic!("one more") };
        assert!(found.len() > 1 && found.contains(&JobThread::new(own)));
        drop(end);
        assert!(other.join().is_ok_and(|nothing| nothing.is_err()));
    }
}
