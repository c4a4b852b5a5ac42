//! What a routine has left: the descendants of the guard.
//!
//! Processes that start others without end would outrun a guard that kills them one by one. So it stops what it finds until
//! it finds nothing new, and only then kills all of it.

use std::collections::HashSet;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getpid};

use crate::native::{reap_ended, signal_if};

/// How long it waits before it looks again.
const AGAIN: Duration = Duration::from_millis(1);

/// How often it stops what it finds before it kills.
const PASSES: usize = 100;

/// Waits for this time, or until there are no children.
pub(super) fn wait(time: Duration) -> io::Result<()> {
    let until = Instant::now() + time;
    while Instant::now() < until && reap()? {
        std::thread::sleep(AGAIN);
    }
    Ok(())
}

/// Ends all descendants.
///
/// # Errors
/// `TimedOut`: some are left. An error of the system.
pub(super) fn end(until: Instant) -> io::Result<()> {
    while reap()? {
        if Instant::now() >= until {
            let text = "they have not ended in time; look for them with ps, and kill them";
            return Err(io::Error::new(io::ErrorKind::TimedOut, text));
        }
        stop(until)?;
        for found in descendants()? {
            found.signal(Signal::SIGKILL)?;
        }
        std::thread::sleep(AGAIN);
    }
    Ok(())
}

/// Reaps the children that have ended. Returns whether others are left.
fn reap() -> io::Result<bool> {
    loop {
        match reap_ended() {
            Err(Errno::ECHILD) => return Ok(false),
            Ok(None) => return Ok(true),
            Ok(Some(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Stops descendants until a look finds no new one. Some may be left after the last pass: what is killed then lets the
/// guard see them.
fn stop(until: Instant) -> io::Result<()> {
    let mut stopped = HashSet::new();
    for _ in 0..PASSES {
        let mut is_new = false;
        for found in descendants()? {
            if stopped.insert(found.pid) {
                found.signal(Signal::SIGSTOP)?;
                is_new = true;
            }
        }
        if !is_new || Instant::now() >= until || !reap()? {
            break;
        }
    }
    Ok(())
}

/// A process below the guard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Descendant {
    pid: Pid,
    parent: Pid,
}

impl Descendant {
    /// Sends it a signal. It may have ended.
    fn signal(self, signal: Signal) -> io::Result<()> {
        if self.parent == getpid() {
            // Only the guard waits for it, so the number is its own.
            return Ok(kill(self.pid, signal)?);
        }
        // Its parent may have waited for it, and the number may be that of a process elsewhere.
        let is_below = || {
            let now = parent_of(self.pid);
            now == Some(self.parent) || now == Some(getpid())
        };
        match signal_if(self.pid, signal, is_below) {
            // Without process descriptors (before Linux 5.3) it waits until its parent has been killed.
            Ok(()) | Err(Errno::ESRCH | Errno::ENOSYS) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// All processes below this one that can be seen; its own children in any case, whatever /proc hides.
fn descendants() -> io::Result<Vec<Descendant>> {
    let own = getpid();
    let below =
        |parent, pids: Vec<Pid>| pids.into_iter().map(move |pid| Descendant { pid, parent });
    let mut found: Vec<Descendant> = below(own, own_children(own)?).collect();
    let mut seen: HashSet<Pid> = found.iter().map(|child| child.pid).collect();
    let mut at = 0;
    while let Some(Descendant { pid, .. }) = found.get(at).copied() {
        // One that has ended, or is hidden, shows no children: they are the guard's soon.
        let children = children_of(pid).unwrap_or_default();
        found.extend(below(pid, children).filter(|child| seen.insert(child.pid)));
        at += 1;
    }
    Ok(found)
}

/// The children of the guard's only thread.
fn own_children(own: Pid) -> io::Result<Vec<Pid>> {
    match std::fs::read_to_string(format!("/proc/self/task/{own}/children")) {
        Ok(text) => Ok(numbers(&text)),
        // A kernel without lists of children.
        Err(error) if error.kind() == io::ErrorKind::NotFound => own_children_among_all(own),
        Err(error) => Err(error),
    }
}

fn own_children_among_all(own: Pid) -> io::Result<Vec<Pid>> {
    let pids = std::fs::read_dir("/proc")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    Ok(pids.map(Pid::from_raw).filter(|pid| parent_of(*pid) == Some(own)).collect())
}

/// The children of all threads of a process.
fn children_of(pid: Pid) -> io::Result<Vec<Pid>> {
    let mut found = Vec::new();
    for task in std::fs::read_dir(Path::new("/proc").join(pid.to_string()).join("task"))? {
        found.extend(numbers(&std::fs::read_to_string(task?.path().join("children"))?));
    }
    Ok(found)
}

fn numbers(text: &str) -> Vec<Pid> {
    text.split_ascii_whitespace()
        .filter_map(|number| number.parse().ok())
        .map(Pid::from_raw)
        .collect()
}

/// The parent of a process. `None`: it has ended, or is hidden.
fn parent_of(pid: Pid) -> Option<Pid> {
    parent(&std::fs::read(format!("/proc/{pid}/stat")).ok()?)?.parse().ok().map(Pid::from_raw)
}

/// The parent's number in the text of `/proc/PID/stat`. The name before it, in parentheses, may have any bytes.
fn parent(stat: &[u8]) -> Option<&str> {
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    str::from_utf8(&stat[end..]).ok()?.split(' ').nth(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_is_found_whatever_the_name_is() {
        assert_eq!(parent(b"7 (sh) S 5 7 7 0"), Some("5"));
        assert_eq!(parent(b"7 (a) R 9 (\xff b) S 5 7 7 0"), Some("5"));
        assert_eq!(parent(b"7 (sh"), None);
        assert_eq!(parent(b""), None);
    }

    #[test]
    fn lists_of_children_are_read() {
        assert_eq!(numbers("12 7 "), [12, 7].map(Pid::from_raw));
        assert_eq!(numbers(""), []);
    }

    /// By lists of children and by a look at all processes.
    #[test]
    fn a_child_and_its_child_are_found() {
        let mut command = std::process::Command::new("sh");
        command.args(["-c", "sleep 600 & echo $!; wait"]).stdout(std::process::Stdio::piped());
        let mut child = command.spawn().expect("a process");
        let pid = Pid::from_raw(i32::try_from(child.id()).expect("a number"));
        let mut line = String::new();
        let mut output = std::io::BufReader::new(child.stdout.take().expect("its output"));
        std::io::BufRead::read_line(&mut output, &mut line).expect("a line");
        let grandchild = numbers(&line)[0];
        assert_eq!(children_of(pid).expect("a list"), [grandchild]);
        assert_eq!(parent_of(grandchild), Some(pid));
        assert!(own_children_among_all(getpid()).expect("a list").contains(&pid));
        signal_if(grandchild, Signal::SIGKILL, || false).expect("it is there");
        assert_eq!(parent_of(grandchild), Some(pid), "the condition was not met");
        signal_if(grandchild, Signal::SIGKILL, || true).expect("it is there");
        assert!(child.wait().is_ok());
    }
}
