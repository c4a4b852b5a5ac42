//! Processes of the cluster on this machine, found by their command lines.

use nix::sys::signal::{Signal, kill as send};
use nix::unistd::Pid;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Time for killed processes to disappear.
const DYING: Duration = Duration::from_secs(5);
/// Time for a process to begin a program. Until then it has no arguments by which to recognise it.
const BEGINNING: Duration = Duration::from_secs(1);
/// The flag of the kernel's own threads in `/proc/N/stat`.
const KERNEL_THREAD: u64 = 0x20_0000;

/// The processes of the cluster in `dir`. Daemons have `--cluster-dir DIR` among their arguments, watchers
/// have the cluster's control group, and ranks have the directory in their environment.
pub fn existing(dir: &Path) -> Vec<i32> {
    look(dir).0
}

/// [`existing`], and whether some process is still unknown. A process that is about to begin another program
/// has no arguments for a moment. A daemon is in that state when its starter is killed.
fn look(dir: &Path) -> (Vec<i32>, bool) {
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let (mut found, mut unknown) = (Vec::new(), false);
    for number in numbers.filter(|&number| number != own) {
        // An unreadable process has ended, or belongs to another user.
        let Ok(cmdline) = fs::read(format!("/proc/{number}/cmdline")) else { continue };
        if belongs(number, &cmdline, dir) {
            found.push(number);
        }
        unknown |= cmdline.is_empty() && begins(number);
    }
    (found, unknown)
}

fn belongs(number: i32, cmdline: &[u8], dir: &Path) -> bool {
    let environ = || fs::read(format!("/proc/{number}/environ")).unwrap_or_default();
    daemon_arguments(cmdline, dir)
        || watcher_arguments(cmdline, dir)
        || rank_environment(&environ(), dir)
}

/// Whether a process without arguments may soon have some: it lives, and is not a kernel thread.
fn begins(number: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{number}/stat")).unwrap_or_default();
    state(&stat).is_some_and(|(state, flags)| !ended(state) && flags & KERNEL_THREAD == 0)
}

/// `kumid watch …/kumi-NAME/node-…`; the cluster's name follows from its directory.
fn watcher_arguments(cmdline: &[u8], dir: &Path) -> bool {
    let words: Vec<&[u8]> = cmdline.split(|&byte| byte == 0).collect();
    let Some(name) = dir.file_name().and_then(|name| name.to_str()) else { return false };
    let part = format!("/kumi-{name}/node-");
    words.len() > 2
        && words[0].ends_with(b"kumid")
        && words[1] == b"watch"
        && words[2].windows(part.len()).any(|window| window == part.as_bytes())
}

fn daemon_arguments(cmdline: &[u8], dir: &Path) -> bool {
    cluster_dir(cmdline) == Some(dir)
}

/// DIR of `… --cluster-dir DIR …`.
fn cluster_dir(cmdline: &[u8]) -> Option<&Path> {
    let mut words = cmdline.split(|&byte| byte == 0);
    words.find(|word| *word == b"--cluster-dir")?;
    Some(Path::new(OsStr::from_bytes(words.next()?)))
}

/// Other directories in which this user runs a cluster of the same name. Names of network namespaces and
/// control groups contain the cluster's name, so existing ones belong to that cluster.
pub fn namesake(dir: &Path) -> Option<PathBuf> {
    let user = nix::unistd::geteuid().as_raw();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let own = entries.filter(|entry| entry.metadata().is_ok_and(|data| data.uid() == user));
    let mut lines = own.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    lines.find_map(|line| namesake_in(&line, dir).map(Path::to_owned))
}

fn namesake_in<'l>(cmdline: &'l [u8], dir: &Path) -> Option<&'l Path> {
    cluster_dir(cmdline).filter(|other| *other != dir && other.file_name() == dir.file_name())
}

/// `KUMI_CLUSTER_DIR=DIR`, which `kumi run` sets for ranks, and `KUMI_JOB`, which their daemon sets.
fn rank_environment(environ: &[u8], dir: &Path) -> bool {
    let dir = dir.as_os_str().as_bytes();
    let settings: Vec<&[u8]> = environ.split(|&byte| byte == 0).collect();
    settings.iter().any(|setting| setting.strip_prefix(b"KUMI_CLUSTER_DIR=") == Some(dir))
        && settings.iter().any(|setting| setting.starts_with(b"KUMI_JOB="))
}

/// Kills one process; if it has ended already, that is no error.
pub fn kill(number: i32) {
    let _gone = send(Pid::from_raw(number), Signal::SIGKILL);
}

/// Waits until no process of the cluster is left; returns those left after the time limit.
pub fn wait_gone(dir: &Path, patience: Duration) -> Vec<i32> {
    let deadline = Instant::now() + patience;
    loop {
        let left: Vec<i32> = existing(dir).into_iter().filter(|&n| !is_dead(n)).collect();
        if left.is_empty() || Instant::now() >= deadline {
            return left;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Kills every process of the cluster; returns those that do not end.
pub fn kill_all(dir: &Path) -> Vec<i32> {
    let begin = Instant::now();
    loop {
        // One search for both: otherwise a process could be unknown to one and a daemon to the other.
        let (found, unknown) = look(dir);
        let left: Vec<i32> = found.into_iter().filter(|&n| !is_dead(n)).collect();
        let clear = left.is_empty() && (!unknown || begin.elapsed() >= BEGINNING);
        if clear || begin.elapsed() >= DYING {
            return left;
        }
        left.into_iter().for_each(kill);
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a process has ended or only waits for its parent to collect it.
pub fn is_dead(number: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{number}/stat"));
    stat.map_or(true, |stat| state(&stat).is_none_or(|(state, _)| ended(state)))
}

fn ended(state: char) -> bool {
    matches!(state, 'Z' | 'X')
}

/// State and flags of a process by its line in `/proc/N/stat`.
fn state(stat: &str) -> Option<(char, u64)> {
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((state, fields.nth(5)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn daemons_are_known_by_their_directory() {
        let dir = Path::new("/var/lib/kumi/lab");
        assert!(daemon_arguments(
            b"kumid\0node\0--cluster-dir\0/var/lib/kumi/lab\0--node\x003\0",
            dir
        ));
        assert!(!daemon_arguments(b"kumid\0head\0--cluster-dir\0/var/lib/kumi/lab2\0", dir));
        assert!(!daemon_arguments(b"vi\0/var/lib/kumi/lab\0", dir));
        assert!(!daemon_arguments(b"", dir));
        assert!(rank_environment(b"KUMI_JOB=3\0KUMI_CLUSTER_DIR=/var/lib/kumi/lab\0", dir));
        assert!(!rank_environment(b"KUMI_CLUSTER_DIR=/var/lib/kumi/lab\0", dir));
        assert!(!rank_environment(b"KUMI_JOB=3\0KUMI_CLUSTER_DIR=/var/lib/kumi/lab2\0", dir));
        let watch = |group: &str| format!("/usr/bin/kumid\0watch\0{group}\0").into_bytes();
        assert!(watcher_arguments(&watch("/sys/fs/cgroup/kumi-lab/node-1"), dir));
        assert!(!watcher_arguments(&watch("/sys/fs/cgroup/kumi-lab2/node-1"), dir));
    }

    #[test]
    fn clusters_of_the_same_name_in_another_place_are_noticed() {
        let dir = Path::new("/var/lib/kumi/lab");
        let line = |dir: &str| format!("kumid\0head\0--cluster-dir\0{dir}\0").into_bytes();
        assert_eq!(namesake_in(&line("/tmp/lab"), dir), Some(Path::new("/tmp/lab")));
        assert_eq!(namesake_in(&line("/var/lib/kumi/lab"), dir), None);
        assert_eq!(namesake_in(&line("/tmp/lab2"), dir), None);
        assert_eq!(namesake_in(b"kumid\0--cluster-dir", dir), None);
    }

    #[test]
    fn a_process_that_begins_one_program_after_the_other_is_killed() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("program");
        fs::write(&program, "exec /bin/sh \"$0\" \"$@\"\n").unwrap();
        for _ in 0..50 {
            let mut child = std::process::Command::new("/bin/sh")
                .arg(&program)
                .arg("--cluster-dir")
                .arg(dir.path())
                .spawn()
                .unwrap();
            assert_eq!(kill_all(dir.path()), [0; 0]);
            let number = i32::try_from(child.id()).unwrap();
            let dead = is_dead(number);
            child.kill().unwrap();
            child.wait().unwrap();
            assert!(dead, "it was not seen");
        }
    }

    #[test]
    fn who_has_no_arguments_yet_is_neither_the_kernels_nor_dead() {
        let line = "7 (a) b) S 1 7 7 0 -1 4194560 1 2";
        assert_eq!(state(line), Some(('S', 0x40_0100)));
        assert_eq!(state("7 (kworker/0:1) I 2 0 0 0 -1 69238880 0"), Some(('I', 0x420_8060)));
        assert_eq!(state("7 (a) R"), None);
        assert_eq!(state(""), None);
        // The first kernel thread, if visible, and this process.
        assert!(
            !fs::read_to_string("/proc/2/comm").is_ok_and(|name| name == "kthreadd\n")
                || !begins(2)
        );
        assert!(begins(i32::try_from(std::process::id()).unwrap()) && !begins(i32::MAX));
    }

    #[test]
    fn a_process_that_never_was_is_dead() {
        assert!(is_dead(i32::MAX));
        assert!(!is_dead(i32::try_from(std::process::id()).unwrap()));
    }
}
