//! A node's daemon ends and is started again under running jobs. As root (control groups) and as anybody else (signals).

mod common;

use std::path::Path;
use std::time::{Duration, Instant};

use common::{Cluster, ModeName, PATIENCE, request, start};
use kumi_control::message::{ClientReply, ClientRequest, Outcome, RankStatus, Stream, WindowSize};
use kumi_node::client::Client;
use nix::sys::signal::Signal;

/// A cluster in which daemons may be away for a while.
async fn cluster(nodes: u8) -> Cluster {
    cluster_that_keeps(nodes, 60_000).await
}

async fn cluster_that_keeps(nodes: u8, keep_ms: u64) -> Cluster {
    configured(nodes, keep_ms).start().await
}

fn configured(nodes: u8, keep_ms: u64) -> Cluster {
    let mut cluster = Cluster::configured(nodes, ModeName::Gang);
    cluster.config.keep_ms = Some(keep_ms);
    cluster.config.grace_ms = Some(60_000);
    cluster.config.lease_ms = Some(120_000);
    cluster.config.save(cluster.path()).unwrap();
    cluster
}

impl Ended {
    fn lines_of(&self, rank: &str) -> Vec<u64> {
        let lines = self.out.lines().filter_map(|line| line.split_once(' '));
        let lines = lines.filter(|(who, _)| *who == rank);
        lines.map(|(_, number)| number.parse().unwrap()).collect()
    }
}

#[derive(Debug)]
struct Ended {
    outcome: Outcome,
    out: String,
    err: String,
}

/// A job that is watched.
struct Watched {
    client: Client,
    out: Vec<u8>,
    err: Vec<u8>,
    outcome: Option<Outcome>,
}

impl Watched {
    fn new(client: Client) -> Self {
        Self { client, out: Vec::new(), err: Vec::new(), outcome: None }
    }

    /// Hears until this holds or the job is over.
    async fn until(&mut self, cluster: &Cluster, done: impl Fn(&Self) -> bool) {
        while !done(self) && self.outcome.is_none() {
            let next = tokio::time::timeout(2 * PATIENCE, self.client.next()).await;
            let reply = next.unwrap_or_else(|_| {
                let said = String::from_utf8_lossy(&self.out).into_owned();
                panic!("nothing comes: {said}\n{}", cluster.logs())
            });
            match reply.unwrap().expect("the head closed the connection") {
                ClientReply::Output { stream: Stream::Out, data, .. } => self.out.extend(data),
                ClientReply::Output { stream: Stream::Err, data, .. } => self.err.extend(data),
                ClientReply::OutputLost { .. } => panic!("output is lost\n{}", cluster.logs()),
                ClientReply::Ended { outcome, .. } => self.outcome = Some(outcome),
                _ => {}
            }
        }
    }

    async fn end(mut self, cluster: &Cluster) -> Ended {
        self.until(cluster, |_| false).await;
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Ended { outcome: self.outcome.unwrap(), out: text(self.out), err: text(self.err) }
    }
}

/// Ends the daemon of a node, and waits for that.
fn end_daemon(cluster: &mut Cluster, node: usize, signal: Signal) {
    let mut daemon = cluster.nodes[node].take().unwrap();
    Cluster::signal(&daemon, signal);
    let end = Instant::now() + PATIENCE;
    while daemon.try_wait().unwrap().is_none() {
        assert!(Instant::now() < end, "it does not end\n{}", cluster.logs());
        std::thread::sleep(Duration::from_millis(2));
    }
}

async fn restart(cluster: &mut Cluster, node: usize, signal: Signal) {
    end_daemon(cluster, node, signal);
    cluster.start_node(node);
    cluster.wait_attached(cluster.nodes.len()).await;
}

/// The same of the only node. The head knows of both: input that is sent now goes to the new daemon.
async fn restart_before_input(cluster: &mut Cluster, signal: Signal) {
    end_daemon(cluster, 0, signal);
    cluster.wait_attached(0).await;
    cluster.start_node(0);
    cluster.wait_attached(1).await;
}

fn wait_for(cluster: &Cluster, what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < end, "{what}: never\n{}", cluster.logs());
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Nothing is left of jobs and keepers.
fn wait_for_nothing(cluster: &Cluster) {
    let keepers = cluster.path().join("keep");
    wait_for(cluster, "all keepers end", || {
        let nodes = std::fs::read_dir(&keepers).into_iter().flatten().flatten();
        nodes.flat_map(|node| std::fs::read_dir(node.path()).unwrap()).count() == 0
    });
    let Some(groups) = cluster.groups() else { return };
    for node in 0..cluster.nodes.len() {
        let folder = groups.join(format!("node-{node}"));
        wait_for(cluster, "all groups of jobs go", || {
            let groups = std::fs::read_dir(&folder).into_iter().flatten().flatten();
            !groups.into_iter().any(|one| one.file_name().to_string_lossy().starts_with("job-"))
        });
    }
}

const WRITES: &str = "i=0; while [ $i -lt 4000 ]; do echo $KUMI_RANK $i; i=$((i+1)); \
    [ $((i % 20)) = 0 ] && sleep 0.01; done; echo done >&2";

#[tokio::test(flavor = "current_thread")]
async fn no_byte_of_output_is_lost_or_doubled_however_the_daemon_ends() {
    let mut cluster = cluster(2).await;
    let (_, client) = start(&cluster, request(&["/bin/sh", "-c", WRITES], 4)).await;
    let mut watched = Watched::new(client);
    for (number, signal) in
        [Signal::SIGTERM, Signal::SIGKILL, Signal::SIGKILL, Signal::SIGTERM].iter().enumerate()
    {
        let seen = 10_000 * (number + 1);
        watched.until(&cluster, |watched| watched.out.len() >= seen).await;
        assert_eq!(watched.outcome, None, "{}", cluster.logs());
        restart(&mut cluster, number % 2, *signal).await;
    }
    let ended = watched.end(&cluster).await;
    assert_eq!(ended.outcome, Outcome::Success, "{}", cluster.logs());
    for rank in ["0", "1", "2", "3"] {
        assert_eq!(ended.lines_of(rank), (0..4000).collect::<Vec<_>>(), "rank {rank}");
    }
    assert_eq!(ended.err, "done\n".repeat(4));
    wait_for_nothing(&cluster);
}

/// A job of one rank with a folder for its files.
fn in_folder(folder: &Path, script: &str) -> kumi_control::message::JobRequest {
    let mut job = request(&["/bin/sh", "-c", script], 1);
    job.cwd = folder.to_str().unwrap().to_owned();
    job
}

#[tokio::test(flavor = "current_thread")]
async fn how_ranks_end_meanwhile_is_known_later() {
    let mut cluster = cluster(1).await;
    for (signal, script, wanted) in [
        (Signal::SIGTERM, "exit 7", Some(RankStatus::Exited(7))),
        (Signal::SIGKILL, "kill -10 $$; sleep 9", Some(RankStatus::Signalled(10))),
        (Signal::SIGKILL, "exit 0", None),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let script =
            format!("echo up; until [ -e go ]; do sleep 0.01; done; echo last; : >over; {script}");
        let (_, client) = start(&cluster, in_folder(folder.path(), &script)).await;
        let mut watched = Watched::new(client);
        watched.until(&cluster, |watched| !watched.out.is_empty()).await;
        end_daemon(&mut cluster, 0, signal);
        std::fs::write(folder.path().join("go"), "").unwrap();
        wait_for(&cluster, "the rank ends", || folder.path().join("over").exists());
        cluster.start_node(0);
        let ended = watched.end(&cluster).await;
        match (wanted, &ended.outcome) {
            (None, Outcome::Success) => {}
            (Some(wanted), Outcome::RankFailed { rank: 0, status, .. }) if *status == wanted => {}
            _ => panic!("{ended:?} after {script}\n{}", cluster.logs()),
        }
        assert_eq!(ended.out, "up\nlast\n");
        wait_for_nothing(&cluster);
    }
}

#[tokio::test(flavor = "current_thread")]
async fn input_goes_on_and_ends_once() {
    let mut cluster = cluster(1).await;
    let job = request(&["/bin/sh", "-c", "cat; echo over"], 1);

    let (number, client) = start(&cluster, job).await;
    let mut watched = Watched::new(client);
    let mut expected = String::new();
    for (round, signal) in [Signal::SIGKILL, Signal::SIGTERM, Signal::SIGKILL].iter().enumerate() {
        let line = format!("line {round} {}\n", "x".repeat(round * 1000));
        let data = line.clone().into_bytes();
        expected += &line;
        watched.client.send(&ClientRequest::Input { job: number, data }).await.unwrap();
        let length = expected.len();
        watched.until(&cluster, |watched| watched.out.len() >= length).await;
        restart_before_input(&mut cluster, *signal).await;
    }
    watched.client.send(&ClientRequest::Input { job: number, data: Vec::new() }).await.unwrap();
    let ended = watched.end(&cluster).await;
    assert_eq!(ended.outcome, Outcome::Success, "{}", cluster.logs());
    assert_eq!(ended.out, expected + "over\n");
    wait_for_nothing(&cluster);
}

#[tokio::test(flavor = "current_thread")]
async fn a_terminal_stays() {
    let mut cluster = cluster(1).await;
    let script = "stty -echo; tty; while read line; do echo \"<$line>\"; \
        [ \"$line\" = end ] && break; done; stty size";
    let mut job = request(&["/bin/sh", "-c", script], 1);
    job.terminal = Some(WindowSize { rows: 30, columns: 100 });

    let (number, client) = start(&cluster, job).await;
    let mut watched = Watched::new(client);
    watched.until(&cluster, |watched| watched.out.contains(&b'\n')).await;
    for (line, signal) in [("one", Signal::SIGKILL), ("two", Signal::SIGTERM)] {
        let data = format!("{line}\n").into_bytes();
        watched.client.send(&ClientRequest::Input { job: number, data }).await.unwrap();
        let shown = format!("<{line}>");
        watched
            .until(&cluster, |watched| String::from_utf8_lossy(&watched.out).contains(&shown))
            .await;
        restart_before_input(&mut cluster, signal).await;
    }
    let size = WindowSize { rows: 20, columns: 90 };
    watched.client.send(&ClientRequest::Resize { job: number, size, redraw: false }).await.unwrap();
    let data = b"end\n".to_vec();
    watched.client.send(&ClientRequest::Input { job: number, data }).await.unwrap();
    let ended = watched.end(&cluster).await;
    assert_eq!(ended.outcome, Outcome::Success, "{ended:?}\n{}", cluster.logs());
    let lines: Vec<&str> = ended.out.lines().collect();
    assert!(lines[0].starts_with("/dev/"), "{lines:?}");
    assert_eq!(lines[1..], ["<one>", "<two>", "<end>", "20 90"]);
    wait_for_nothing(&cluster);
}

#[tokio::test(flavor = "current_thread")]
async fn without_another_daemon_the_ranks_end() {
    let mut cluster = cluster_that_keeps(1, 1_000).await;
    let folder = tempfile::tempdir().unwrap();
    let script = "sleep 1000 & echo $$ $! >pids; wait";
    let (_, _client) = start(&cluster, in_folder(folder.path(), script)).await;
    let pids = folder.path().join("pids");
    let read = || std::fs::read_to_string(&pids).unwrap_or_default();
    wait_for(&cluster, "it runs", || read().ends_with('\n'));
    let pids: Vec<String> = read().split_whitespace().map(str::to_owned).collect();
    let runs = |pid: &String| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
    };
    end_daemon(&mut cluster, 0, Signal::SIGKILL);
    wait_for(&cluster, "the rank ends", || !runs(&pids[0]));
    if cluster.groups().is_some() {
        wait_for(&cluster, "what it started ends", || !pids.iter().any(runs));
    }
    wait_for(&cluster, "the watcher removes the groups", || cluster.groups().is_none());
}

#[tokio::test(flavor = "current_thread")]
async fn a_cluster_that_goes_down_leaves_nothing() {
    let mut cluster = cluster(1).await;
    let sleeper = request(&["/bin/sh", "-c", "echo up; exec sleep 1000"], 2);
    let mut watched = Watched::new(start(&cluster, sleeper).await.1);
    watched.until(&cluster, |watched| watched.out.len() == 6).await;
    restart(&mut cluster, 0, Signal::SIGKILL).await;
    assert_eq!(watched.outcome, None);
    let mut client = cluster.client().await;
    client.send(&ClientRequest::Shutdown).await.unwrap();
    let mut daemon = cluster.nodes[0].take().unwrap();
    wait_for(&cluster, "the daemon ends", || daemon.try_wait().unwrap().is_some());
    wait_for_nothing(&cluster);
    wait_for(&cluster, "the groups go", || cluster.groups().is_none());
}

#[tokio::test(flavor = "current_thread")]
async fn a_job_can_be_killed_by_the_next_daemon() {
    let mut cluster = cluster(1).await;
    let sleeper = request(&["/bin/sh", "-c", "echo up; exec sleep 1000"], 2);
    let (job, client) = start(&cluster, sleeper).await;
    let mut watched = Watched::new(client);
    watched.until(&cluster, |watched| watched.out.len() == 6).await;
    restart(&mut cluster, 0, Signal::SIGTERM).await;
    let mut other = cluster.client().await;
    other.send(&ClientRequest::Kill { job, grace_ns: 0 }).await.unwrap();
    let ended = watched.end(&cluster).await;
    assert_eq!(ended.outcome, Outcome::Killed, "{}", cluster.logs());
    wait_for_nothing(&cluster);
    let mut next =
        Watched::new(start(&cluster, request(&["/bin/sh", "-c", "echo next"], 2)).await.1);
    next.until(&cluster, |watched| watched.outcome.is_some()).await;
    assert_eq!(next.out, b"next\nnext\n");
}

/// What hooks have noted so far.
fn noted(log: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

#[tokio::test(flavor = "current_thread")]
async fn hooks_run_once_around_a_job_that_several_daemons_have() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let (log, hook) = (folder.path().join("log"), folder.path().join("hook"));
    let text = format!("#!/bin/sh\necho $KUMI_HOOK $KUMI_JOB >>{}\n", log.display());
    std::fs::write(&hook, text).unwrap();
    std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut cluster = configured(1, 60_000);
    cluster.config.hooks.prolog = Some(hook.clone());
    cluster.config.hooks.epilog = Some(hook);
    cluster.config.save(cluster.path()).unwrap();
    let mut cluster = cluster.start().await;
    let mut expected = Vec::new();
    for (signal, away) in
        [(Signal::SIGTERM, false), (Signal::SIGKILL, false), (Signal::SIGKILL, true)]
    {
        let files = tempfile::tempdir().unwrap();
        let script = "echo up; until [ -e go ]; do sleep 0.01; done; : >over";
        let (job, client) = start(&cluster, in_folder(files.path(), script)).await;
        let mut watched = Watched::new(client);
        watched.until(&cluster, |watched| !watched.out.is_empty()).await;
        expected.push(format!("prolog {job}"));
        assert_eq!(noted(&log), expected);
        if away {
            end_daemon(&mut cluster, 0, signal);
        } else {
            restart(&mut cluster, 0, signal).await;
        }
        assert_eq!(noted(&log), expected, "the job is not over");
        std::fs::write(files.path().join("go"), "").unwrap();
        wait_for(&cluster, "the rank ends", || files.path().join("over").exists());
        if away {
            cluster.start_node(0);
        }
        let ended = watched.end(&cluster).await;
        assert_eq!(ended.outcome, Outcome::Success, "{}", cluster.logs());
        wait_for_nothing(&cluster);
        expected.push(format!("epilog {job}"));
        wait_for(&cluster, "the epilog", || noted(&log).len() >= expected.len());
        assert_eq!(noted(&log), expected);
    }
}
