//! The daemon of a node is killed and started again while users' jobs run: they go on, take turns, and end well.
#![forbid(unsafe_code)]

use kumi_tests::cluster::TestCluster;
use kumi_tests::command::{self, RunningCommand};
use kumi_tests::{binaries, machine};
use nix::sys::signal::Signal;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// A cluster of one node whose jobs outlive its daemon.
fn cluster() -> TestCluster {
    let mut cluster = TestCluster::prepare();
    cluster.kumi(&["cluster", "init", "--local", "1", "--cpus", "per-node"]).ok();
    let path = cluster.path().join("cluster.toml");
    let text = std::fs::read_to_string(&path).expect("cluster.toml");
    let mut table: toml::Table = text.parse().expect("TOML");
    let times = [("keep_ms", 60_000), ("grace_ms", 60_000), ("lease_ms", 120_000)];
    table.extend(times.map(|(key, value)| (key.to_owned(), value.into())));
    std::fs::write(&path, table.to_string()).expect("our file");
    cluster.try_up_as_it_is().ok();
    cluster
}

/// Ends the daemon, and starts another one when the kernel has let go of it.
fn start_again(cluster: &TestCluster, signal: Signal) -> RunningCommand {
    let daemon = cluster.pid("node-0");
    machine::signal(daemon, signal);
    command::wait_for("the daemon's end", || (!machine::lives(daemon)).then_some(()));
    let next = cluster.start_daemon(0, &["node", "--node", "0"]);
    command::wait_for("the node", || (cluster.nodes_up() == 1).then_some(()));
    next
}

#[test]
fn jobs_that_take_turns_go_on_under_the_next_daemon() {
    let mut cluster = cluster();
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
