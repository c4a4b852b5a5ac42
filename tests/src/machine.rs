//! Capabilities of this machine, and the namespaces, cgroups and processes on it.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// Whether the test runs as root and may make network namespaces; tried, not guessed.
pub fn has_namespaces() -> bool {
    is_root()
        && Command::new("unshare")
            .args(["--net", "true"])
            .stderr(std::process::Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
}

/// Whether the test runs as root.
pub fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// The processors on which this process may run.
///
/// # Panics
/// When the kernel does not say.
pub fn processors() -> Vec<usize> {
    let set = nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0)).expect("our affinity");
    let all = 0..nix::sched::CpuSet::count();
    all.filter(|&cpu| set.is_set(cpu).unwrap_or(false)).collect()
}

/// Whether a command is installed.
pub fn has_command(name: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(name).is_file()))
}

/// Where cgroup v2 is mounted, from the mount table.
pub fn cgroup_mount() -> Option<PathBuf> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    table.lines().find_map(|line| {
        let (mount, filesystem) = line.split_once(" - ")?;
        let path = mount.split(' ').nth(4)?;
        (filesystem.split(' ').next()? == "cgroup2").then(|| PathBuf::from(path))
    })
}

/// A free port of this address that stays free until the test uses it: the system gives it to nobody by itself, this process
/// gives it once, and other test programs begin elsewhere.
///
/// # Panics
/// When all of them are taken.
#[track_caller]
pub fn free_port(address: &str) -> u16 {
    // The system's own ports begin at 32,768.
    const PORTS: std::ops::Range<u32> = 10_000..32_000;
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    // Neighbours in the list of processes are far from each other, by a prime number.
    let first = std::process::id().wrapping_mul(7_919);
    for _ in PORTS {
        let number = first.wrapping_add(GIVEN.fetch_add(1, Ordering::Relaxed));
        let port = PORTS.start + number % (PORTS.end - PORTS.start);
        let port = u16::try_from(port).expect("below 65,536");
        if TcpListener::bind((address, port)).is_ok() {
            return port;
        }
    }
    panic!("no port of {address} is free");
}

/// Network namespaces whose name starts with `prefix`.
pub fn namespaces(prefix: &str) -> Vec<String> {
    names_in(Path::new("/run/netns"), prefix)
}

/// Top cgroups whose name starts with `prefix`.
pub fn cgroups(prefix: &str) -> Vec<String> {
    cgroup_mount().map(|mount| names_in(&mount, prefix)).unwrap_or_default()
}

fn names_in(folder: &Path, prefix: &str) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with(prefix)).collect()
}

/// Processes that have `word` in their command line, as "pid command"; zombies and this process are
/// left out.
pub fn processes(word: &str) -> Vec<String> {
    let own = std::process::id().to_string();
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let mut found = Vec::new();
    for entry in entries.flatten() {
        let pid = entry.file_name().to_string_lossy().into_owned();
        if pid == own || !pid.bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        // One that ends meanwhile is none.
        let Ok(bytes) = std::fs::read(entry.path().join("cmdline")) else { continue };
        let line = String::from_utf8_lossy(&bytes).replace('\0', " ");
        if line.contains(word) {
            found.push(format!("{pid} {line}"));
        }
    }
    found
}

/// Whether a process of this number exists and is not a zombie. One whose first thread has ended and others not yet still has
/// its sockets and files.
pub fn lives(pid: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    let fields: Vec<&str> =
        stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    // The number of threads is the twentieth field of all, and the state the third.
    let (state, threads) = (fields.first().copied(), fields.get(17).copied());
    !matches!(state, Some("Z" | "X") | None)
        || threads.is_some_and(|count| !matches!(count, "0" | "1"))
}

/// Sends a signal to a process.
///
/// # Panics
/// When there is no such process.
#[track_caller]
pub fn signal(pid: u32, signal: nix::sys::signal::Signal) {
    let pid = nix::unistd::Pid::from_raw(i32::try_from(pid).expect("a process number"));
    nix::sys::signal::kill(pid, signal).expect("the process is there");
}
