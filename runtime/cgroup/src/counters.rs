//! How often limits were reached, for who looks before each call: files stay open, and a look is one read of each.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::folder::number_in;

/// Most bytes of such a file. Each has some lines with a word and a number.
const MOST: usize = 1024;

/// How often limits were reached so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitCounts {
    /// Processes that the kernel has killed because memory ran out; 0 if nobody counts.
    pub memory_kills: u64,
    /// Processes and threads that the kernel has refused because there were as many as the limit; 0 if nobody counts.
    pub process_refusals: u64,
}

/// The kernel's counters of a group.
#[derive(Debug)]
pub struct LimitCounters {
    memory_kills: Option<Counter>,
    process_refusals: Option<Counter>,
}

impl LimitCounters {
    pub(super) fn new(memory_kills: Option<Counter>, process_refusals: Option<Counter>) -> Self {
        Self { memory_kills, process_refusals }
    }

    /// What they say now.
    pub fn read(&self) -> LimitCounts {
        let now = |counter: &Option<Counter>| counter.as_ref().and_then(Counter::read).unwrap_or(0);
        LimitCounts {
            memory_kills: now(&self.memory_kills),
            process_refusals: now(&self.process_refusals),
        }
    }
}

/// A line of an open file of a group.
#[derive(Debug)]
pub(super) struct Counter {
    file: File,
    name: &'static str,
}

impl Counter {
    /// The number behind this name in a file. `None`: this kernel does not count it.
    pub(super) fn open(folder: &Path, file: &str, name: &'static str) -> Option<Self> {
        let file = File::open(folder.join(file)).ok()?;
        Some(Self { file, name })
    }

    fn read(&self) -> Option<u64> {
        let mut bytes = [0; MOST];
        // The kernel writes such a file anew for each read from its start.
        let length = self.file.read_at(&mut bytes, 0).ok()?;
        number_in(std::str::from_utf8(&bytes[..length]).ok()?, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_again_from_the_same_file() {
        let folder = tempfile::tempdir().unwrap();
        let write =
            |file: &str, text: &str| std::fs::write(folder.path().join(file), text).unwrap();
        write("pids.events", "max 3\n");
        write("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n");
        let open = |file, name| Counter::open(folder.path(), file, name);
        let counters =
            LimitCounters::new(open("memory.oom_control", "oom_kill"), open("pids.events", "max"));
        assert_eq!(counters.read(), LimitCounts { memory_kills: 2, process_refusals: 3 });
        write("pids.events", "max 12\n");
        assert_eq!(counters.read(), LimitCounts { memory_kills: 2, process_refusals: 12 });
        let none = LimitCounters::new(None, open("no.such.file", "max"));
        assert_eq!(none.read(), LimitCounts::default());
    }
}
