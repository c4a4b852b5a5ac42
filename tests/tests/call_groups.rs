//! Control groups of a server of routines, as its owner sees them: what it says of them, refuses, logs and leaves.
#![forbid(unsafe_code)]

use kumi_tests::binaries;
use kumi_tests::call_server::{CallServer, routines};
use kumi_tests::command::run;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const DESCRIPTIONS: &str = r#"
Define hog(mode_in int mib) Calls "C" hog(mib);
Define nap(mode_in int ms) Calls "C" nap(ms);
Define breed(mode_in int most) Calls "C" breed(most);
"#;

const SOURCE: &str = r#"
#include <stdlib.h>
#include <unistd.h>
void hog(int mib)
{ volatile char *memory = malloc((size_t)mib << 20);
  for (size_t at = 0; memory && at < (size_t)mib << 20; at += 4096) memory[at] = 1; }
void nap(int ms) { usleep(1000 * ms); }
void breed(int most)
{ while (most-- > 0) { int child = fork(); if (child < 0) abort(); if (!child) { alarm(300); for (;;) pause(); } } }
"#;

/// A server that has said what it has.
struct Server(CallServer);

impl std::ops::Deref for Server {
    type Target = CallServer;

    fn deref(&self) -> &CallServer {
        &self.0
    }
}

/// The command of a server, with further words before and behind.
fn serve(folder: &Path, before: &[&str], options: &[&str]) -> Command {
    let kumi = binaries::path("kumi");
    let mut words: Vec<&str> = before.to_vec();
    words.push(kumi.to_str().expect("a name"));
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).args(["call", "serve", "--listen", "127.0.0.1:0"]);
    command.args(["--library", "libroutines.so"]).args(options).arg("routines.idl");
    // So that it says what is as always, too.
    command.current_dir(folder).env("KUMI_LOG", "info");
    command
}

impl Server {
    fn start(folder: &Path, before: &[&str], options: &[&str]) -> Server {
        let server = CallServer::start(serve(folder, before, options), folder);
        server.wait_for("what it says of groups", |log| log.contains(" control group"));
        Server(server)
    }

    fn call(&self, words: &[&str]) -> kumi_tests::command::FinishedCommand {
        let mut command = Command::new(binaries::path("kumi"));
        run({
            command.args(["call", "run", "--server", &self.address]).args(words);
            command
        })
    }

    /// Whether its slots have groups with all that these options say; otherwise the test is skipped.
    fn has_groups(&self, test: &str) -> bool {
        let log = self.log();
        let said = log.lines().find(|line| line.contains(" control group")).unwrap_or_default();
        let has = said.contains("has a control group") && !said.contains("no limit by");
        if !has {
            kumi_skip::skip(test, said);
        }
        has
    }

    /// Its groups in all hierarchies.
    fn groups(&self) -> Vec<PathBuf> {
        let mounts = fs::read_to_string("/proc/self/mounts").expect("the mounts");
        let mut found = Vec::new();
        for line in mounts.lines() {
            let mut words = line.split(' ').skip(1);
            if let (Some(point), Some("cgroup" | "cgroup2")) = (words.next(), words.next()) {
                find(Path::new(point), &format!("server-{}-", self.child.id()), 8, &mut found);
            }
        }
        found
    }
}

/// Folders whose names begin so, below this one.
fn find(folder: &Path, start: &str, depth: u32, found: &mut Vec<PathBuf>) {
    // Groups of others come and go.
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        if entry.file_name().to_str().is_some_and(|name| name.starts_with(start)) {
            found.push(entry.path());
        } else if depth > 0 {
            find(&entry.path(), start, depth - 1, found);
        }
    }
}

#[test]
fn limits_are_told_at_the_start_and_to_callers_and_logged_with_their_values() {
    let test = "limits_are_told_at_the_start_and_to_callers_and_logged_with_their_values";
    let folder = routines(DESCRIPTIONS, SOURCE);
    let options = ["--slot-memory", "48", "--slot-processes", "30", "--slot-processors", "1.5"];
    // A server of a machine without controllers refuses.
    let probe = Server::start(folder.path(), &[], &[]);
    if !probe.has_groups(test) {
        return;
    }
    let server = Server::start(folder.path(), &[], &options);
    let said = ", 48 MiB of memory, 30 processes and threads, the time of 1.5 processors\n";
    assert!(server.log().contains(said), "{}", server.log());
    server.call(&["hog", "8"]).ok();
    let told = server.call(&["hog", "100"]);
    assert_ne!(told.status.code(), Some(0));
    assert!(told.err.contains("ran out of memory"), "{}", told.err);
    assert!(told.err.contains("may have 48 MiB"), "{}", told.err);
    assert_ne!(server.call(&["breed", "100"]).status.code(), Some(0));
    assert_ne!(server.call(&["--timeout", "150ms", "nap", "600000"]).status.code(), Some(0));
    let log = server.log();
    for words in [
        "a process has reached a limit: the kernel has killed 1 process of it, which had ",
        " together and may have 48 MiB",
        "a process has reached a limit: it may have 30 processes and threads",
        "its limit is 150 ms",
    ] {
        assert!(log.contains(words), "{words}: {log}");
    }
}

#[test]
fn a_server_removes_its_groups_and_those_of_one_that_was_killed() {
    let test = "a_server_removes_its_groups_and_those_of_one_that_was_killed";
    let folder = routines(DESCRIPTIONS, SOURCE);
    let mut killed = Server::start(folder.path(), &[], &[]);
    if !killed.has_groups(test) {
        return;
    }
    killed.call(&["nap", "1"]).ok();
    let groups = killed.groups();
    assert!(!groups.is_empty());
    assert!(groups.iter().all(|group| group.join("slot-0").is_dir()), "{groups:?}");
    killed.0.child.kill().expect("it is ours");
    killed.0.child.wait().expect("it ends");
    let mut next = Server::start(folder.path(), &[], &[]);
    assert_eq!(killed.groups(), Vec::<PathBuf>::new());
    next.call(&["nap", "1"]).ok();
    assert!(!next.groups().is_empty());
    let pid = nix::unistd::Pid::from_raw(i32::try_from(next.child.id()).expect("a number"));
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).expect("it is ours");
    assert!(next.0.child.wait().expect("it ends").success());
    assert_eq!(next.groups(), Vec::<PathBuf>::new(), "{}", next.log());
}

/// Without the hierarchy of version 2.
#[test]
fn a_server_without_groups_says_so_serves_and_refuses_limits_that_need_them() {
    let test = "a_server_without_groups_says_so_serves_and_refuses_limits_that_need_them";
    let unshare = Command::new("unshare").args(["-m", "true"]).status();
    if !unshare.is_ok_and(|status| status.success()) {
        return kumi_skip::skip(test, "no namespace of mounts can be made");
    }
    let folder = routines(DESCRIPTIONS, SOURCE);
    let hide = "for one in unified .; do umount -l /sys/fs/cgroup/$one 2>/dev/null && break; done; \
                exec \"$@\"";
    let before = ["unshare", "-m", "/bin/sh", "-c", hide, "sh"];
    let server = Server::start(folder.path(), &before, &[]);
    let log = server.log();
    assert!(log.contains("no control groups: cgroup v2 is not mounted; a guard ends"), "{log}");
    server.call(&["breed", "3"]).ok();
    for (option, value) in [("--slot-memory", "64"), ("--slot-processes", "9")] {
        let refused = format!("{option} would not hold: cgroup v2 is not mounted");
        run(serve(folder.path(), &before, &[option, value])).fails(64, &[&refused, "Delegate=yes"]);
    }
}

/// A group of version 1 with half a processor, which goes with this.
struct HalfProcessor(PathBuf);

impl HalfProcessor {
    /// `None`: no hierarchy of version 1 has the controller.
    fn make() -> Option<HalfProcessor> {
        let mounts = fs::read_to_string("/proc/self/mounts").expect("the mounts");
        let of_cpu = |line: &str| {
            let words: Vec<&str> = line.split(' ').collect();
            let is_it = words[2] == "cgroup" && words[3].split(',').any(|option| option == "cpu");
            is_it.then(|| PathBuf::from(words[1]))
        };
        let group = mounts.lines().find_map(of_cpu)?;
        let group = HalfProcessor(group.join(format!("kumi-test-half-{}", std::process::id())));
        fs::create_dir(&group.0).ok()?;
        fs::write(group.0.join("cpu.cfs_quota_us"), "50000").ok()?;
        Some(group)
    }
}

impl Drop for HalfProcessor {
    fn drop(&mut self) {
        // Its last process may still be ending.
        let end = Instant::now() + Duration::from_secs(60);
        while self.0.exists() && fs::remove_dir(&self.0).is_err() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(std::thread::panicking() || !self.0.exists(), "{} is left", self.0.display());
    }
}

#[test]
fn a_limit_that_the_system_refuses_is_refused_at_the_start_by_its_option() {
    let test = "a_limit_that_the_system_refuses_is_refused_at_the_start_by_its_option";
    let folder = routines(DESCRIPTIONS, SOURCE);
    let few = ["--sandbox", "--slot-processes", "2"];
    run(serve(folder.path(), &[], &few)).fails(64, &["--slot-processes 2 is too few"]);
    let Some(group) = HalfProcessor::make() else {
        // Version 2 takes any number, and bounds it by the group above.
        return kumi_skip::impossible(test, "no group with a quota of version 1 can be made");
    };
    let join = format!("echo 0 >{}/cgroup.procs && exec \"$@\"", group.0.display());
    let before = ["/bin/sh", "-c", &join, "sh"];
    let options = ["--slot-memory", "64", "--slot-processors", "2"];
    let told = ["--slot-processors would not hold: the system refuses it: cpu.cfs_quota_us"];
    run(serve(folder.path(), &before, &options)).fails(64, &told);
    let server = Server::start(folder.path(), &before, &["--slot-processors", "0.25"]);
    if server.has_groups(test) {
        server.call(&["nap", "1"]).ok();
    }
}

/// Makes a server's group of a process that there cannot be, and locks it. Other tests' servers may remove it before that.
fn locked_group(above: &Path) -> (PathBuf, File) {
    let path = above.join(format!("server-{}-1", (1 << 22) + 1));
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let _there = fs::create_dir(&path);
        if let Ok(file) = File::open(&path)
            && file.try_lock().is_ok()
            && path.exists()
        {
            return (path, file);
        }
        assert!(Instant::now() < end, "{} cannot be locked", path.display());
    }
}

/// As another user could without a right to write, if the folder could be opened.
#[test]
fn who_locks_a_group_of_a_dead_server_is_told_and_holds_nobody_up() {
    let test = "who_locks_a_group_of_a_dead_server_is_told_and_holds_nobody_up";
    let folder = routines(DESCRIPTIONS, SOURCE);
    // So that the group above stays.
    let first = Server::start(folder.path(), &[], &[]);
    if !first.has_groups(test) {
        return;
    }
    let groups = first.groups();
    let above = groups.first().and_then(|group| group.parent()).expect("a group above");
    let (path, lock) = locked_group(above);
    let next = Server::start(folder.path(), &[], &[]);
    next.call(&["nap", "1"]).ok();
    let told = format!("the group {} stays: it is locked, though no process", path.display());
    assert!(next.log().contains(&told), "{}", next.log());
    assert!(path.exists(), "it is locked");
    drop(lock);
    // Another test's process that is about to start its program may still have it.
    let end = Instant::now() + Duration::from_secs(60);
    while path.exists() {
        assert!(Instant::now() < end, "nobody locks it");
        drop(Server::start(folder.path(), &[], &[]));
    }
}
