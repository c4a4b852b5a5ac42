//! The daemon of a node is killed and started again while users' jobs run: they go on, take turns, and end well.
#![forbid(unsafe_code)]

use kumi_tests::cluster::TestCluster;
use kumi_tests::command::{self, RunningCommand};
use kumi_tests::{binaries, keeping, machine};
use nix::sys::signal::Signal;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// Ends the daemon, and starts another one when the kernel has let go of it.
fn start_again(cluster: &TestCluster, signal: Signal) -> RunningCommand {
    keeping::end(cluster, 0, signal);
    keeping::start(cluster, 0, 1)
}

#[test]
fn jobs_that_take_turns_go_on_under_the_next_daemon() {
    let mut cluster = keeping::up(1);
    let script = "i=0; while [ $i -lt 300 ]; do echo line $i; i=$((i+1)); sleep 0.02; done";
    let names = ["first", "second"];
    let jobs =
        names.map(|name| cluster.start(&["run", "-n", "1", "--name", name, "sh", "-c", script]));
    let records = names.map(|name| cluster.wait_state(name, "running"));
    let mut daemons = Vec::new();
    for (number, signal) in [Signal::SIGKILL, Signal::SIGTERM].into_iter().enumerate() {
        for record in &records {
            cluster.wait_lines(record, 40 * (number + 1));
        }
        daemons.push(start_again(&cluster, signal));
    }
    let expected: String = (0..300).map(|number| format!("line {number}\n")).collect();
    for job in jobs {
        let done = job.finish().ok();
        let lines: String = done
            .out
            .lines()
            .map(|line| {
                let line = line.split_once("] ").map_or(line, |(_, line)| line);
                format!("{line}\n")
            })
            .collect();
        assert!(lines == expected, "{}{}", done.out, done.err);
    }
    cluster.down().ok();
    for daemon in daemons {
        daemon.finish();
    }
    command::wait_for("the end of all", || cluster.traces().is_empty().then_some(()));
}

/// A rank that waits for a file, whatever becomes of its daemon, and goes on as the script says.
fn waits_for(file: &Path, then: &str) -> [String; 3] {
    let script =
        format!("echo waits; while [ ! -e {} ]; do sleep 0.02; done; {then}", file.display());
    ["sh".to_owned(), "-c".to_owned(), script]
}

#[test]
fn an_epilog_follows_a_job_that_the_next_daemon_goes_on_with() {
    let mut cluster = keeping::up_with(1, |cluster| {
        let (hook, log) = (cluster.state().join("hook"), cluster.state().join("log"));
        let text = format!("#!/bin/sh\necho $KUMI_HOOK $KUMI_JOB >> {}\n", log.display());
        std::fs::write(&hook, text).expect("our own folder");
        let everybody = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&hook, everybody).expect("our own file");
        let hooks = format!("[hooks]\nprolog = {hook:?}\nepilog = {hook:?}\n");
        hooks.parse().expect("TOML")
    });
    let (go, log) = (cluster.state().join("go"), cluster.state().join("log"));
    let rank = waits_for(&go, &format!("echo rank >> {}", log.display()));
    let words: Vec<&str> = rank.iter().map(String::as_str).collect();
    let job = cluster.start(&[&["run", "--name", "waits"][..], &words].concat());
    let record = cluster.wait_state("waits", "running");
    cluster.wait_lines(&record, 1);
    let daemon = start_again(&cluster, Signal::SIGKILL);
    let read = || std::fs::read_to_string(&log).expect("the log");
    assert_eq!(read(), "prolog 1\n", "nothing of the job has ended");
    std::fs::write(&go, "").expect("our own folder");
    job.finish().ok();
    assert_eq!(read(), "prolog 1\nrank\nepilog 1\n");
    cluster.down().ok();
    daemon.finish();
}

/// The next daemon finds the control group with its limit, and says why a rank ended that went over it: with the daemon there,
/// and without one.
#[test]
fn a_limit_of_memory_outlives_the_daemon() {
    let test = "a_limit_of_memory_outlives_the_daemon";
    let mut cluster = keeping::up(1);
    let limited = ["run", "--mem-per-rank", "64M", "--name"];
    let tried = cluster.kumi(&[&limited[..], &["tried", "true"]].concat());
    if machine::cgroup_mount().is_none() || tried.code() == 78 {
        return kumi_skip::skip(test, "memory cannot be limited here");
    }
    tried.ok();
    let mut daemons = Vec::new();
    for is_there in [true, false] {
        let name = format!("eats-{is_there}");
        let go = cluster.state().join(&name);
        // The kernel ends the process with so many bytes, which is the rank itself.
        let eats = format!("b'x' * {}", (1_u64 << 30) + u64::from(std::process::id()));
        let rank = waits_for(&go, &format!("exec python3 -c \"{eats}\""));
        let words: Vec<&str> = rank.iter().map(String::as_str).collect();
        let job = cluster.start(&[&limited[..], &[&name], &words].concat());
        let record = cluster.wait_state(&name, "running");
        cluster.wait_lines(&record, 1);
        keeping::end(&cluster, 0, Signal::SIGKILL);
        if !is_there {
            std::fs::write(&go, "").expect("our own folder");
            // The rank as it waits, and as it eats; `kumi run` has the same words behind others.
            let runs = |line: &String| {
                let program = line.split_once(' ').map_or("", |(_, words)| words);
                program.starts_with("sh ") || program.starts_with("python3 ")
            };
            command::wait_for("its end", || {
                let found = machine::processes(&eats);
                (!found.iter().any(runs)).then_some(())
            });
        }
        daemons.push(keeping::start(&cluster, 0, 1));
        if is_there {
            std::fs::write(&go, "").expect("our own folder");
        }
        job.finish().fails(137, &["rank 0 on node0", "memory"]);
    }
    cluster.down().ok();
    daemons.into_iter().for_each(|daemon| drop(daemon.finish()));
}

/// A keeper ends its ranks. The numbers of others may be those of strangers by the time at which no daemon has come.
#[test]
fn a_watcher_ends_ranks_without_a_keeper_before_it_waits_for_a_daemon() {
    let folder = std::env::temp_dir().join(format!("kumi-watch-{}", std::process::id()));
    let mut rank = Command::new("sleep").arg("600").process_group(0).spawn().expect("sleep");
    let mut watcher = Command::new(binaries::path("kumid"));
    watcher.args(["watch", "--await", "600000", "1"]).arg(folder.join("node-0.life"));
    let mut watcher = watcher.stdin(Stdio::piped()).spawn().expect("a watcher");
    let mut pipe = watcher.stdin.take().expect("a pipe");
    writeln!(pipe, "+{}", rank.id()).expect("a watcher that reads");
    drop(pipe);
    command::wait_for("the rank's end", || rank.try_wait().expect("our child"));
    assert!(watcher.try_wait().expect("our child").is_none(), "it waits for a daemon");
    watcher.kill().expect("our child");
    watcher.wait().expect("our child");
}
