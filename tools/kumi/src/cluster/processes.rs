//! The cluster's processes on this machine, found by what they were started with.

use nix::sys::signal::{Signal, kill as send};
use nix::unistd::Pid;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long killed processes may take to be gone.
const DYING: Duration = Duration::from_secs(5);

/// The processes of the cluster in `dir`: daemons have `--cluster-dir DIR` among their arguments,
/// watchers the cluster's control group, and ranks have the directory in their environment.
pub fn existing(dir: &Path) -> Vec<i32> {
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter(|&number| number != own && belongs(number, dir)).collect()
}

fn belongs(number: i32, dir: &Path) -> bool {
    let read = |what: &str| fs::read(format!("/proc/{number}/{what}")).unwrap_or_default();
    let cmdline = read("cmdline");
    daemon_arguments(&cmdline, dir)
        || watcher_arguments(&cmdline, dir)
        || rank_environment(&read("environ"), dir)
}

/// `kumid watch …/kumi-NAME/node-…`; the cluster's name is that of its directory.
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

/// Where else a cluster of the same name is run by the same user. The names of network namespaces
/// and control groups are made of the cluster's name, so they are that cluster's then.
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

/// `KUMI_CLUSTER_DIR=DIR`, which `kumi run` gives to ranks, and `KUMI_JOB`, which their daemon does.
fn rank_environment(environ: &[u8], dir: &Path) -> bool {
    let dir = dir.as_os_str().as_bytes();
    let settings: Vec<&[u8]> = environ.split(|&byte| byte == 0).collect();
    settings.iter().any(|setting| setting.strip_prefix(b"KUMI_CLUSTER_DIR=") == Some(dir))
        && settings.iter().any(|setting| setting.starts_with(b"KUMI_JOB="))
}

/// Kills one process; one that is gone already is no failure.
pub fn kill(number: i32) {
    let _gone = send(Pid::from_raw(number), Signal::SIGKILL);
}

/// Waits until no process of the cluster is left; the ones that are when the time is over.
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

/// Kills every process of the cluster; those that do not go are returned.
pub fn kill_all(dir: &Path) -> Vec<i32> {
    let deadline = Instant::now() + DYING;
    loop {
        for number in existing(dir) {
            kill(number);
        }
        let left = wait_gone(dir, Duration::from_millis(100));
        if left.is_empty() || Instant::now() >= deadline {
            return left;
        }
    }
}

/// Whether a process is gone or only waits to be collected by its parent.
pub fn is_dead(number: i32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{number}/stat")) else { return true };
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    matches!(state, None | Some('Z' | 'X'))
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
    fn a_process_that_never_was_is_dead() {
        assert!(is_dead(i32::MAX));
        assert!(!is_dead(i32::try_from(std::process::id()).unwrap()));
    }
}
