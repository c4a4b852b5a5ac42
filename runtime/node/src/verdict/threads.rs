//! Threads of a job's processes beside those that wait in the library: whether one of them could act.

use std::collections::BTreeSet;
use std::fs;

use kumi_verdict::RankReading;
use nix::libc;

/// A job with more threads than this is never called stopped: looking at them all would keep the daemon from other jobs.
const MOST_THREADS: usize = 4_096;
/// Threads of the library, and of its server of MPI programs: they act only for those that wait.
const LIBRARY: [&str; 2] = ["kumi-handler", "kumi-pmi-server"];

/// What the system says of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ThreadState {
    name: String,
    state: char,
}

/// Whether a thread of these processes does something that could end a wait, would do it, or cannot be seen. The processes run.
pub(super) fn act_outside(processes: &BTreeSet<i32>, ranks: &[RankReading]) -> bool {
    let waits = ranks.iter().filter(|rank| !rank.over).flat_map(|rank| &rank.waits);
    let waiting: BTreeSet<u32> = waits.clone().map(|wait| wait.thread).collect();
    let alone: BTreeSet<u32> = waits.filter(|wait| wait.alone).map(|wait| wait.thread).collect();
    let mut seen = BTreeSet::new();
    let mut threads = 0;
    for process in processes {
        let all = threads_of(*process);
        threads += all.len();
        if threads > MOST_THREADS {
            return true;
        }
        let has = |thread: &i32, of: &BTreeSet<u32>| {
            u32::try_from(*thread).is_ok_and(|thread| of.contains(&thread))
        };
        let alone = all.iter().any(|thread| has(thread, &alone));
        for thread in all {
            let waits = has(&thread, &waiting);
            let Some(state) = thread_state(*process, thread) else { return true };
            if waits {
                seen.insert(thread);
            }
            let harmless = waits || alone || LIBRARY.contains(&&*state.name);
            let acts = match state.state {
                // A signal has stopped it, or a debugger. Nobody knows when it goes on.
                'T' | 't' => true,
                'Z' | 'X' => false,
                _ if harmless => false,
                'S' => !waits_inside(&syscall(*process, thread).unwrap_or_default()),
                _ => true,
            };
            if acts {
                return true;
            }
        }
    }
    // Threads by other numbers than the system's here, or none.
    seen.len() < waiting.len()
}

fn threads_of(process: i32) -> Vec<i32> {
    // A process that has ended has none.
    let Ok(entries) = fs::read_dir(format!("/proc/{process}/task")) else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

fn thread_state(process: i32, thread: i32) -> Option<ThreadState> {
    parse_stat(&fs::read_to_string(format!("/proc/{process}/task/{thread}/stat")).ok()?)
}

/// The name, which may hold anything, is in parentheses; the state follows.
fn parse_stat(text: &str) -> Option<ThreadState> {
    let (before, rest) = text.rsplit_once(") ")?;
    let (_, name) = before.split_once('(')?;
    Some(ThreadState { name: name.to_owned(), state: rest.chars().next()? })
}

/// The call of the system in which a thread is, with its arguments.
fn syscall(process: i32, thread: i32) -> Option<String> {
    fs::read_to_string(format!("/proc/{process}/task/{thread}/syscall")).ok()
}

/// Whether a call ends only by another thread or a child of the same job: a futex without a time, or a wait for a child.
fn waits_inside(text: &str) -> bool {
    let mut words = text.split_ascii_whitespace();
    let number = words.next().and_then(|word| word.parse::<i64>().ok());
    let arguments: Option<Vec<u64>> =
        words.take(4).map(|word| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok()).collect();
    let (Some(number), Some(arguments)) = (number, arguments) else { return false };
    let [_, operation, _, timeout] = arguments[..] else { return false };
    match number {
        libc::SYS_futex => {
            let waits = [libc::FUTEX_WAIT, libc::FUTEX_WAIT_BITSET].map(|wait| wait as u64);
            timeout == 0 && waits.contains(&(operation & 0x7f))
        }
        libc::SYS_wait4 | libc::SYS_waitid => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kumi_verdict::Wait;
    use nix::sys::signal::{Signal, killpg};
    use nix::unistd::Pid;
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command, Stdio};
    use std::time::{Duration, Instant};

    #[test]
    fn names_and_states_are_read_whatever_the_name() {
        let state = |name: &str, state| Some(ThreadState { name: name.to_owned(), state });
        assert_eq!(parse_stat("7 (a) b) S 1 7"), state("a) b", 'S'));
        assert_eq!(parse_stat("7 (kumi-handler) R 1"), state("kumi-handler", 'R'));
        assert_eq!(parse_stat("7 a S"), None);
    }

    #[test]
    fn only_waits_for_the_same_job_are_inside() {
        let futex = |operation: i32, timeout: u64| {
            format!(
                "{} 0x7f00 {operation:#x} 0x2 {timeout:#x} 0x0 0x0 0x7ffe 0x7f1",
                libc::SYS_futex
            )
        };
        let private = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
        assert!(waits_inside(&futex(private, 0)));
        assert!(waits_inside(&futex(libc::FUTEX_WAIT_BITSET | 0x180, 0)));
        assert!(!waits_inside(&futex(private, 0x7ffe)), "it has a time");
        assert!(!waits_inside(&futex(libc::FUTEX_WAKE, 0)));
        assert!(waits_inside(&format!(
            "{} 0xffffffff 0x7ffe 0x0 0x0 0x0 0x0 0x1 0x2",
            libc::SYS_wait4
        )));
        for other in ["running", "-1 0x7ffe 0x7f", "0 0x0 0x7f 0x400 0x0 0x0 0x0 0x1 0x2", ""] {
            assert!(!waits_inside(other), "{other}");
        }
    }

    /// A process, killed in the end.
    /// A process with all that it starts: they are a group, and end together.
    struct Process(Child);

    impl Process {
        fn start(script: &str) -> Self {
            let mut command = Command::new("sh");
            command
                .args(["-c", script])
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .process_group(0);
            Self(command.spawn().expect("sh"))
        }

        fn id(&self) -> i32 {
            i32::try_from(self.0.id()).expect("a number")
        }
    }

    impl Drop for Process {
        fn drop(&mut self) {
            let group = Pid::from_raw(self.0.id().cast_signed());
            killpg(group, Signal::SIGKILL).expect("it was there");
            self.0.wait().expect("it was there");
        }
    }

    fn waits(thread: i32, alone: bool) -> RankReading {
        let wait = Wait { thread: thread as u32, alone, ..Wait::default() };
        RankReading { idle: true, waits: vec![wait], ..RankReading::default() }
    }

    fn until(acts: bool, mut look: impl FnMut() -> bool) {
        let end = Instant::now() + Duration::from_secs(20);
        while look() != acts {
            assert!(Instant::now() < end, "not seen");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    #[test]
    fn whoever_reads_computes_or_is_stopped_could_act() {
        let (reads, computes) = (Process::start("read x"), Process::start("while :; do :; done"));
        let of = |process: &Process| BTreeSet::from([process.id()]);
        for process in [&reads, &computes] {
            until(true, || act_outside(&of(process), &[]));
            until(false, || act_outside(&of(process), &[waits(process.id(), false)]));
        }
        assert!(act_outside(&of(&reads), &[waits(computes.id(), false)]), "that wait is not there");
        let signal = |signal| {
            let pid = nix::unistd::Pid::from_raw(reads.id());
            nix::sys::signal::kill(pid, signal).expect("signalled");
        };
        signal(nix::sys::signal::Signal::SIGSTOP);
        until(true, || act_outside(&of(&reads), &[waits(reads.id(), true)]));
        signal(nix::sys::signal::Signal::SIGCONT);
        until(false, || act_outside(&of(&reads), &[waits(reads.id(), true)]));
    }

    #[test]
    fn a_parent_that_waits_for_its_child_does_not_act() {
        let parent = Process::start("sleep 600; echo");
        let of = BTreeSet::from([parent.id()]);
        // The system may not let us look.
        if syscall(parent.id(), parent.id()).is_none() {
            let reason = "/proc/PID/syscall cannot be read";
            return kumi_skip::skip("a_parent_that_waits_for_its_child_does_not_act", reason);
        }
        until(false, || act_outside(&of, &[]));
    }
}
