//! Threads of a job, which are put behind all others one by one where jobs have no processor groups of their own.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

use kumi_net::thread_policy::{ThreadPolicy, nice_of, set_nice_of};

use crate::cgroup::ControlGroup;

/// A job with more threads on a node does not fill: each costs a switch a microsecond.
pub const MOST_THREADS: usize = 64;
/// `nice` of threads behind all others. The system looks who is to run when that changes, but not when only the policy does.
const LAST: i32 = 19;

/// A thread in the hands of the switching thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobThread {
    id: i32,
    /// What it has in the job's turns: its policy, and `nice`.
    policy: ThreadPolicy,
    nice: i32,
}

/// Whether this process may put threads behind others and back.
pub fn permitted() -> bool {
    let probe = || {
        let nice = nice_of(0)?;
        ThreadPolicy::Idle.give(0)?;
        set_nice_of(0, LAST)?;
        set_nice_of(0, nice)?;
        ThreadPolicy::Other.give(0)
    };
    // A thread of its own, which ends with what it may not undo.
    std::thread::spawn(probe).join().is_ok_and(|done: io::Result<()>| done.is_ok())
}

impl JobThread {
    /// A thread that runs with this `nice`.
    pub fn new(id: i32, nice: i32) -> Self {
        Self { id, policy: ThreadPolicy::Other, nice }
    }

    /// Puts it behind all others, or back; with `look` the system looks at once who is to run. A thread that has ended is none.
    ///
    /// # Errors
    /// As the system says; `EPERM` if it has real-time priority.
    pub fn set_lowered(&mut self, lowered: bool, look: bool) -> nix::Result<()> {
        match self.change(lowered, look).map_err(|error| error.raw_os_error().unwrap_or(0)) {
            Err(code) if code == nix::Error::ESRCH as i32 => Ok(()),
            other => other.map_err(nix::Error::from_raw),
        }
    }

    fn change(&mut self, lowered: bool, look: bool) -> io::Result<()> {
        if !lowered {
            if ThreadPolicy::of(self.id)? == ThreadPolicy::Idle {
                self.policy.give(self.id)?;
            }
            return if look { set_nice_of(self.id, self.nice) } else { Ok(()) };
        }
        // The program may have changed them.
        match ThreadPolicy::of(self.id)? {
            ThreadPolicy::RealTime => {
                return Err(io::Error::from_raw_os_error(nix::Error::EPERM as i32));
            }
            // It was born so.
            ThreadPolicy::Idle => {}
            policy => self.policy = policy,
        }
        ThreadPolicy::Idle.give(self.id)?;
        if look {
            self.nice = Some(nice_of(self.id)?).filter(|&nice| nice != LAST).unwrap_or(self.nice);
            set_nice_of(self.id, LAST)?;
        }
        Ok(())
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
    nice: i32,
}

impl JobThreads {
    /// For ranks that are started with this `nice`.
    pub fn new(leaders: &[i32], nice: i32) -> Self {
        Self { known: leaders.iter().copied().collect(), nice }
    }

    /// The threads known now.
    pub fn all(&self) -> Vec<JobThread> {
        self.known.iter().map(|&id| JobThread::new(id, self.nice)).collect()
    }

    /// Looks for new threads of the group, or of these processes.
    pub fn refresh(&mut self, group: Option<&ControlGroup>, leaders: &[i32]) -> ThreadNews {
        let mut found = BTreeSet::new();
        match group {
            Some(group) => of_group(group.path(), &mut found),
            None => leaders.iter().for_each(|&leader| found.extend(of_process(leader))),
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

fn of_process(process: i32) -> Vec<i32> {
    let entries = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
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
        let nice = nice_of(0).expect("there is one");
        let state = || (ThreadPolicy::of(id).expect("it lives"), nice_of(id).expect("it lives"));
        for look in [false, true] {
            let mut thread = JobThread::new(id, nice);
            for _ in 0..2 {
                thread.set_lowered(true, look).expect("permitted");
                assert_eq!(state(), (ThreadPolicy::Idle, if look { LAST } else { nice }));
            }
            thread.set_lowered(false, look).expect("permitted");
            assert_eq!(state(), (ThreadPolicy::Other, nice));
        }
        // What a program gave itself it has again.
        ThreadPolicy::Batch.give(id).and_then(|()| set_nice_of(id, nice + 1)).expect("permitted");
        let mut thread = JobThread::new(id, nice);
        thread.set_lowered(true, true).expect("permitted");
        thread.set_lowered(false, true).expect("permitted");
        assert_eq!(state(), (ThreadPolicy::Batch, nice + 1));
        child.kill().and_then(|()| child.wait()).expect("it was there");
        assert_eq!(JobThread::new(id, nice).set_lowered(true, true), Ok(()), "it has ended");
    }

    #[test]
    fn new_threads_are_found() {
        let own = i32::try_from(std::process::id()).expect("a number");
        let mut threads = JobThreads::new(&[own], 3);
        assert_eq!(threads.all(), [JobThread::new(own, 3)]);
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let other = std::thread::spawn(move || ended.recv());
        let ThreadNews::Changed(found) = threads.refresh(None, &[own]) else { panic!("one more") };
        assert!(found.len() > 1 && found.contains(&JobThread::new(own, 3)));
        drop(end);
        assert!(other.join().is_ok_and(|nothing| nothing.is_err()));
    }
}
