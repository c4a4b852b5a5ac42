//! Threads of processes, as the system's tables show them (`/proc/PID/task`).
//!
//! The daemon may see system calls as root, or as the user of the job where the kernel lets processes look at their descendants.

use std::fs;

use nix::unistd::{SysconfVar, sysconf};

/// Most threads of a job that are looked at: looking at more would keep the daemon from other jobs.
pub(crate) const MOST_THREADS: usize = 4096;

/// What the system says of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ThreadStat {
    /// Its name, which may hold anything.
    pub(crate) name: String,
    /// Its state: a letter, see proc(5).
    pub(crate) state: char,
    /// Ticks that it has used in the program and in the system.
    ticks: u64,
    /// Ticks of processes that it has waited for.
    waited_ticks: u64,
}

/// Where in the system a thread is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SystemCall {
    /// In none: it runs, or sleeps for another reason.
    None,
    /// In this call, with these arguments.
    In(i64, [u64; 6]),
    /// The system does not say.
    Hidden,
}

impl ThreadStat {
    /// Nanoseconds that it has used, to the system's tick.
    pub(crate) fn used(&self) -> u64 {
        nanoseconds(self.ticks)
    }

    /// The same with those of processes that it has waited for.
    pub(crate) fn used_with_children(&self) -> u64 {
        nanoseconds(self.ticks.saturating_add(self.waited_ticks))
    }
}

fn nanoseconds(ticks: u64) -> u64 {
    let per_second = sysconf(SysconfVar::CLK_TCK).ok().flatten().unwrap_or(100).max(1);
    let per_second = u64::try_from(per_second).unwrap_or(100);
    ticks.saturating_mul(1_000_000_000 / per_second)
}

/// The threads of a process; none if it has ended.
pub(crate) fn threads_of(process: i32) -> Vec<i32> {
    let Ok(entries) = fs::read_dir(format!("/proc/{process}/task")) else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// What the system says of a process with all its threads, also of one that has ended and is not waited for yet.
pub(crate) fn process_stat(process: i32) -> Option<ThreadStat> {
    parse_stat(&fs::read_to_string(format!("/proc/{process}/stat")).ok()?)
}

/// What the system says of a thread; `None` if it has ended.
pub(crate) fn stat(process: i32, thread: i32) -> Option<ThreadStat> {
    parse_stat(&fs::read_to_string(format!("/proc/{process}/task/{thread}/stat")).ok()?)
}

fn parse_stat(text: &str) -> Option<ThreadStat> {
    // The name, in parentheses, may hold anything, parentheses included.
    let (before, rest) = text.rsplit_once(") ")?;
    let (_, name) = before.split_once('(')?;
    let mut fields = rest.split(' ');
    let state = fields.next()?.chars().next()?;
    let mut ticks = fields.skip(10).map(str::parse::<u64>);
    let mut two = || Some(ticks.next()?.ok()?.saturating_add(ticks.next()?.ok()?));
    let (ticks, waited_ticks) = (two()?, two()?);
    Some(ThreadStat { name: name.to_owned(), state, ticks, waited_ticks })
}

/// The call in which a thread is.
pub(crate) fn system_call(process: i32, thread: i32) -> SystemCall {
    fs::read_to_string(format!("/proc/{process}/task/{thread}/syscall"))
        .map_or(SystemCall::Hidden, |text| parse_call(&text))
}

/// Its number and arguments: decimal, and hexadecimal with `0x`. `running`, if it is not blocked; -1, if it is in no call.
fn parse_call(text: &str) -> SystemCall {
    let mut words = text.split_whitespace();
    let Some(Ok(number)) = words.next().map(str::parse::<i64>) else { return SystemCall::None };
    if number < 0 {
        return SystemCall::None;
    }
    let mut arguments = [0; 6];
    for argument in &mut arguments {
        let word = words.next().and_then(|word| word.strip_prefix("0x"));
        let Some(Ok(value)) = word.map(|word| u64::from_str_radix(word, 16)) else {
            return SystemCall::Hidden;
        };
        *argument = value;
    }
    SystemCall::In(number, arguments)
}

/// Processes that tests look at.
#[cfg(test)]
pub(crate) mod test {
    use std::collections::BTreeSet;
    use std::io::{BufRead, BufReader};
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command, Stdio};
    use std::time::{Duration, Instant};

    use nix::sys::signal::{Signal, killpg};
    use nix::unistd::Pid;

    /// A process with all that it starts: they are a group, and end together.
    pub(crate) struct Process(Child);

    impl Process {
        pub(crate) fn start(program: &str, args: &[&str]) -> Self {
            let mut command = Command::new(program);
            command.args(args).stdin(Stdio::piped()).stdout(Stdio::null()).process_group(0);
            Self(command.spawn().expect("it starts"))
        }

        /// One that has said a line, and the line; none if it has ended before.
        pub(crate) fn heard(program: &str, args: &[&str]) -> (Self, String) {
            let mut command = Command::new(program);
            command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
            let mut child = command.spawn().expect("it starts");
            let mut line = String::new();
            let said = child.stdout.take().expect("a pipe");
            BufReader::new(said).read_line(&mut line).expect("a line");
            (Self(child), line)
        }

        pub(crate) fn shell(script: &str) -> Self {
            Self::start("sh", &["-c", script])
        }

        pub(crate) fn id(&self) -> i32 {
            i32::try_from(self.0.id()).expect("a number")
        }

        pub(crate) fn set(&self) -> BTreeSet<i32> {
            BTreeSet::from([self.id()])
        }
    }

    impl Drop for Process {
        fn drop(&mut self) {
            killpg(Pid::from_raw(self.id()), Signal::SIGKILL).expect("it was there");
            self.0.wait().expect("it was there");
        }
    }

    /// Looks until one finds this.
    pub(crate) fn until(expected: bool, mut look: impl FnMut() -> bool) {
        let end = Instant::now() + Duration::from_secs(60);
        while look() != expected {
            assert!(Instant::now() < end, "not seen");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_is_read_whatever_the_name() {
        let text = "7 (a) b) S 1 7 7 0 -1 4194304 100 0 0 0 12 34 5 6 20 0 1 0 5";
        let expected =
            ThreadStat { name: "a) b".to_owned(), state: 'S', ticks: 46, waited_ticks: 11 };
        assert_eq!(parse_stat(text), Some(expected));
        assert_eq!(parse_stat("7 (a) S 1"), None);
        assert_eq!(parse_stat("7 a S"), None);
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(stat(own, own).is_some() && threads_of(own).contains(&own));
        assert!(stat(own, i32::MAX).is_none() && threads_of(i32::MAX).is_empty());
    }

    #[test]
    fn calls_are_read() {
        let text = "7 0x7ffd 0x2 0xffffffff 0x0 0x0 0xa 0x7ffdc 0x7f01\n";
        let call = SystemCall::In(7, [0x7ffd, 2, 0xffff_ffff, 0, 0, 10]);
        assert_eq!(parse_call(text), call);
        assert_eq!(parse_call("running\n"), SystemCall::None);
        assert_eq!(parse_call("-1 0x7ffd 0x7f01\n"), SystemCall::None);
        assert_eq!(parse_call("7 0x1\n"), SystemCall::Hidden);
        assert_eq!(parse_call(""), SystemCall::None);
    }
}
