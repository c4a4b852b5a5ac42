//! A head that stands still, and one whose disk does: jobs run on by the last timetable.

mod common;

use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use common::{Cluster, ModeName, PATIENCE, collect, request, start};
use kumi_control::message::{
    ClientReply, ClientRequest, JobRecord, JobRequest, JobState, JobsQuery, Outcome,
};
use kumi_node::paths;
use kumi_sched::{JobId, NodeId};
use nix::sys::signal::Signal;

/// A cluster whose links bear some silence, as a slow machine may cause. Disks hang for longer here, and leases stay short: whoever
/// holds them up ends jobs.
async fn up(nodes: u8) -> Cluster {
    let mut cluster = Cluster::configured(nodes, ModeName::Gang);
    cluster.config.silence_ms = Some(9_000);
    cluster.config.save(cluster.path()).unwrap();
    cluster.start().await
}

async fn until(cluster: &Cluster, what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < end, "{what}: never\n{}", cluster.logs());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A job with a rank on each of two nodes. Each adds a line to a file every hundredth of a second or so.
fn counting(folder: &Path) -> JobRequest {
    let script =
        format!("cd {} && while :; do echo >> $KUMI_RANK; sleep 0.01; done", folder.display());
    JobRequest { nodes: Some(2), ..request(&["/bin/sh", "-c", &script], 2) }
}

/// How far the slower rank has counted.
fn counted(files: &[PathBuf; 2]) -> u64 {
    let length = |file: &PathBuf| std::fs::metadata(file).map_or(0, |it| it.len());
    files.iter().map(length).min().unwrap_or(0)
}

/// Both ranks count on.
async fn counts_on(cluster: &Cluster, files: &[PathBuf; 2], by: u64) {
    let from = counted(files);
    until(cluster, "the job goes on", || counted(files) >= from + by).await;
}

fn log_of(cluster: &Cluster, node: u32) -> String {
    std::fs::read_to_string(paths::node_log(cluster.path(), NodeId(node))).unwrap_or_default()
}

async fn state_of(cluster: &Cluster, job: JobId) -> JobState {
    record_of(cluster, job).await.state
}

async fn nodes_of(cluster: &Cluster, job: JobId) -> Vec<NodeId> {
    record_of(cluster, job).await.spec.layout.iter().map(|part| part.node).collect()
}

async fn record_of(cluster: &Cluster, job: JobId) -> JobRecord {
    let mut client = cluster.client().await;
    let jobs = ClientRequest::Jobs(JobsQuery::first_page(false));
    let ClientReply::Jobs(page) = client.ask(&jobs).await.unwrap() else { panic!("no list") };
    let found = page.list.records.into_iter().find(|record| record.spec.job == job);
    found.expect("the job is known")
}

/// It is killed in the end: nothing else has ended it.
async fn kill(cluster: &Cluster, job: JobId, mut follower: kumi_node::client::Client) {
    assert_eq!(state_of(cluster, job).await, JobState::Running, "{}", cluster.logs());
    let mut client = cluster.client().await;
    assert_eq!(
        client.ask(&ClientRequest::Kill { job, grace_ns: 0 }).await.unwrap(),
        ClientReply::Done
    );
    assert_eq!(collect(cluster, &mut follower, |_| {}).await.outcome, Outcome::Killed);
}

#[tokio::test(flavor = "current_thread")]
async fn a_head_that_stands_still_ends_no_job() {
    let mut cluster = Cluster::configured(2, ModeName::Gang);
    // Links are given up soon, and nodes have hardly any time to be away: it is not they who were.
    (cluster.config.silence_ms, cluster.config.grace_ms) = (Some(1_000), Some(100));
    cluster.config.lease_ms = Some(600_000);
    cluster.config.save(cluster.path()).unwrap();
    let cluster = cluster.start().await;
    let folder = tempfile::tempdir().unwrap();
    let files = ["0", "1"].map(|rank| folder.path().join(rank));
    let (job, follower) = start(&cluster, counting(folder.path())).await;
    counts_on(&cluster, &files, 1).await;
    let head = cluster.head.as_ref().unwrap();
    Cluster::signal(head, Signal::SIGSTOP);
    for node in 0..2 {
        let gone = || log_of(&cluster, node).contains("the link to the parent is gone");
        until(&cluster, "the node gives its link up", gone).await;
    }
    counts_on(&cluster, &files, 300).await;
    Cluster::signal(head, Signal::SIGCONT);
    for node in 0..2 {
        let back = || log_of(&cluster, node).matches("attached parent").count() >= 2;
        until(&cluster, "the node is back", back).await;
    }
    cluster.wait_attached(2).await;
    counts_on(&cluster, &files, 100).await;
    kill(&cluster, job, follower).await;
}

#[tokio::test(flavor = "current_thread")]
async fn a_disk_that_does_not_answer_ends_no_job() {
    let cluster = up(2).await;
    let folder = tempfile::tempdir().unwrap();
    let files = ["0", "1"].map(|rank| folder.path().join(rank));
    let (job, follower) = start(&cluster, counting(folder.path())).await;
    counts_on(&cluster, &files, 1).await;
    // Whoever writes the table now waits, as for a disk.
    let table = rusqlite::Connection::open(paths::head_db(cluster.path())).unwrap();
    table.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut submits = cluster.client().await;
    let next = request(&["/bin/true"], 1);
    submits.send(&ClientRequest::Submit(Box::new(next))).await.unwrap();
    // Several leases long.
    for _ in 0..10 {
        counts_on(&cluster, &files, 100).await;
        assert_eq!(state_of(&cluster, job).await, JobState::Running, "who looks is answered");
    }
    table.execute_batch("COMMIT").unwrap();
    drop(table);
    let ran = collect(&cluster, &mut submits, |_| {}).await;
    assert_eq!(ran.outcome, Outcome::Success, "{}", cluster.logs());
    assert!(!cluster.logs().contains("the link to the parent is gone"), "{}", cluster.logs());
    kill(&cluster, job, follower).await;
}

/// A file that the head writes, on a disk that hangs: whoever opens it waits for somebody who reads.
struct HungFile(PathBuf);

impl HungFile {
    /// The file is written under this name first.
    fn new(draft: PathBuf) -> Self {
        nix::unistd::mkfifo(&draft, nix::sys::stat::Mode::S_IRUSR | nix::sys::stat::Mode::S_IWUSR)
            .unwrap();
        Self(draft)
    }

    /// The disk goes on, and takes nothing: a pipe is no file.
    fn answer(self) -> std::thread::JoinHandle<Vec<u8>> {
        std::thread::spawn(move || {
            let mut content = Vec::new();
            std::fs::File::open(&self.0).unwrap().read_to_end(&mut content).unwrap();
            content
        })
    }
}

/// The head writes a small file on a disk that hangs, for several leases, because of a request that concerns a node without
/// jobs. Returns what was written, and the answer.
async fn writes_while_jobs_go_on(
    draft: &str,
    request: impl FnOnce(NodeId) -> ClientRequest,
) -> (String, ClientReply) {
    let cluster = up(3).await;
    let folder = tempfile::tempdir().unwrap();
    let files = ["0", "1"].map(|rank| folder.path().join(rank));
    let (job, follower) = start(&cluster, counting(folder.path())).await;
    counts_on(&cluster, &files, 1).await;
    let busy = nodes_of(&cluster, job).await;
    let free = (0..3).map(NodeId).find(|node| !busy.contains(node)).expect("a node without it");
    let request = request(free);
    let file = HungFile::new(cluster.path().join(draft));
    let mut changes = cluster.client().await;
    changes.send(&request).await.unwrap();
    let (answered, mut answer) = tokio::sync::oneshot::channel();
    let waits = tokio::spawn(async move {
        let _ = answered.send(changes.next().await.unwrap().expect("an answer"));
    });
    for round in 0..10 {
        counts_on(&cluster, &files, 100).await;
        assert_eq!(state_of(&cluster, job).await, JobState::Running, "who looks is answered");
        if round == 5 && !matches!(request, ClientRequest::Revoke { .. }) {
            // Timetables and records go their ways.
            let (_, mut other) = start(&cluster, common::request(&["/bin/true"], 1)).await;
            assert_eq!(collect(&cluster, &mut other, |_| {}).await.outcome, Outcome::Success);
        }
    }
    assert!(answer.try_recv().is_err(), "answered before it was written");
    let content = file.answer();
    let reply = answer.await.unwrap();
    waits.await.unwrap();
    for node in busy {
        let log = log_of(&cluster, node.0);
        assert!(!log.contains("the link to the parent is gone"), "{log}");
    }
    kill(&cluster, job, follower).await;
    (String::from_utf8(content.join().unwrap()).unwrap(), reply)
}

fn refused(reply: ClientReply) -> String {
    let ClientReply::Refused(refusal) = reply else { panic!("{reply:?}") };
    refusal.message
}

#[tokio::test(flavor = "current_thread")]
async fn a_list_of_drained_nodes_on_a_disk_that_hangs_holds_up_nobody() {
    let drain = |node| ClientRequest::Drain { nodes: vec![node], reason: "a test".to_owned() };
    let (content, reply) = writes_while_jobs_go_on("head.drained.new", drain).await;
    assert!(content.contains("reason = \"a test\""), "{content}");
    let message = refused(reply);
    assert!(message.contains("the change is in force, but"), "{message}");
}

#[tokio::test(flavor = "current_thread")]
async fn a_configuration_on_a_disk_that_hangs_holds_up_nobody() {
    let definition = "name = \"more\"\naddress = \"127.200.3.9\"\nport = 7701\n".to_owned();
    let add = |_| ClientRequest::AddNode { definition };
    let (content, reply) = writes_while_jobs_go_on("cluster.toml.new", add).await;
    assert!(content.contains("name = \"more\""), "{content}");
    let message = refused(reply);
    assert!(message.contains("cluster.toml"), "{message}");
}

#[tokio::test(flavor = "current_thread")]
async fn revoked_certificates_on_a_disk_that_hangs_hold_up_nobody() {
    let revoke = |node| ClientRequest::Revoke { node };
    let (content, reply) = writes_while_jobs_go_on("tls/head.revoked.new", revoke).await;
    assert!(content.starts_with("# Revoked certificates"), "{content}");
    let message = refused(reply);
    assert!(message.contains("the certificates are revoked, but"), "{message}");
}

/// A file of the head's that takes its time, as on a disk that hangs.
struct SlowFile {
    path: PathBuf,
    content: Vec<u8>,
}

impl SlowFile {
    fn new(path: PathBuf) -> Self {
        let content = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRUSR | nix::sys::stat::Mode::S_IWUSR)
            .unwrap();
        Self { path, content }
    }

    /// Somebody reads it now, and gets nothing until this is written to and closed.
    async fn read_by(&self, cluster: &Cluster) -> std::fs::File {
        let mut options = std::fs::OpenOptions::new();
        options.write(true).custom_flags(nix::fcntl::OFlag::O_NONBLOCK.bits());
        let mut opened = None;
        until(cluster, "the file is read", || {
            opened = options.open(&self.path).ok();
            opened.is_some()
        })
        .await;
        opened.expect("opened")
    }
}

/// Certificates that are read anew hold up nobody, either.
#[tokio::test(flavor = "current_thread")]
async fn certificates_on_a_disk_that_hangs_end_no_job_and_no_link() {
    let cluster = up(2).await;
    let folder = tempfile::tempdir().unwrap();
    let files = ["0", "1"].map(|rank| folder.path().join(rank));
    let (job, follower) = start(&cluster, counting(folder.path())).await;
    counts_on(&cluster, &files, 1).await;
    // The head reads its certificate anew, and the disk takes its time.
    let slow = SlowFile::new(paths::tls(cluster.path()).join("head.pem"));
    Cluster::signal(cluster.head.as_ref().unwrap(), Signal::SIGHUP);
    let mut file = slow.read_by(&cluster).await;
    // Several leases of three seconds.
    for _ in 0..10 {
        counts_on(&cluster, &files, 100).await;
        assert_eq!(state_of(&cluster, job).await, JobState::Running, "who looks is answered");
    }
    file.write_all(&slow.content).unwrap();
    drop(file);
    kill(&cluster, job, follower).await;
    assert!(!cluster.logs().contains("the link to the parent is gone"), "{}", cluster.logs());
}

/// Processes that no signal ends: the freezer of the first version of control groups holds them.
struct Icebox(PathBuf);

impl Icebox {
    fn new() -> Option<Self> {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
        let freezer =
            mounts.lines().find(|line| line.contains(" - cgroup ") && line.ends_with("freezer"))?;
        let folder = Path::new(freezer.split(' ').nth(4)?)
            .join(format!("kumi-icebox-{}", std::process::id()));
        std::fs::create_dir(&folder).ok()?;
        Some(Self(folder))
    }

    fn set(&self, state: &str) {
        std::fs::write(self.0.join("freezer.state"), state).unwrap();
    }

    fn state(&self) -> String {
        std::fs::read_to_string(self.0.join("freezer.state")).unwrap()
    }
}

impl Drop for Icebox {
    fn drop(&mut self) {
        self.set("THAWED");
        let end = Instant::now() + PATIENCE;
        while std::fs::remove_dir(&self.0).is_err() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[tokio::test(flavor = "current_thread")]
async fn a_rank_that_cannot_be_killed_is_told_and_does_not_keep_its_job() {
    let Some(icebox) = Icebox::new() else {
        let reason = "no freezer that holds processes against signals";
        return kumi_skip::skip(
            "a_rank_that_cannot_be_killed_is_told_and_does_not_keep_its_job",
            reason,
        );
    };
    let cluster = Cluster::up(1, ModeName::Os).await;
    let script = format!("echo $$ > {}/tasks && while :; do sleep 0.01; done", icebox.0.display());
    let (job, mut follower) = start(&cluster, request(&["/bin/sh", "-c", &script], 1)).await;
    let tasks = icebox.0.join("tasks");
    let inside = || std::fs::read_to_string(&tasks).is_ok_and(|tasks| !tasks.is_empty());
    until(&cluster, "the rank is in the icebox", inside).await;
    icebox.set("FROZEN");
    until(&cluster, "the rank stands still", || icebox.state().trim() == "FROZEN").await;
    let mut client = cluster.client().await;
    client.send(&ClientRequest::Kill { job, grace_ns: 0 }).await.unwrap();
    let ended = collect(&cluster, &mut follower, |_| {}).await;
    assert_eq!(ended.outcome, Outcome::Killed, "{}", cluster.logs());
    assert!(ended.err.contains("rank 0 was killed and has not ended"), "{}", ended.err);
    assert!(inside(), "it is still there");
    drop(icebox);
}

/// Output of a job on a disk that hangs: who follows it gets it, and nobody else waits for it.
#[tokio::test(flavor = "current_thread")]
async fn output_on_a_disk_that_hangs_is_shown_and_holds_up_nobody() {
    let cluster = up(2).await;
    let folder = tempfile::tempdir().unwrap();
    let files = ["0", "1"].map(|rank| folder.path().join(rank));
    // The first segment of the first job.
    let pipe = cluster.path().join("spool/1.0");
    let _hung = HungFile::new(pipe.clone());
    let script = format!(
        "cd {} && i=0; while :; do i=$((i+1)); [ $KUMI_RANK = 1 ] || echo $i; echo >> $KUMI_RANK; sleep 0.01; done",
        folder.path().display()
    );
    let counts = JobRequest { nodes: Some(2), ..request(&["/bin/sh", "-c", &script], 2) };
    let (job, mut follower) = start(&cluster, counts).await;
    assert_eq!(job, JobId(1), "the pipe is for it");
    let mut shown = Vec::new();
    for round in 0..10 {
        counts_on(&cluster, &files, 100).await;
        assert_eq!(state_of(&cluster, job).await, JobState::Running, "who looks is answered");
        while shown.len() < 10 * (round + 1) {
            let reply = follower.next().await.unwrap().expect("output");
            if let ClientReply::Output { data, .. } = reply {
                shown.extend(data);
            }
        }
        if round == 5 {
            let (_, mut other) = start(&cluster, request(&["/bin/true"], 1)).await;
            assert_eq!(collect(&cluster, &mut other, |_| {}).await.outcome, Outcome::Success);
        }
    }
    // It goes on. A pipe cannot be written at a place, so the head makes a file.
    let released = std::fs::OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
    let spool = pipe.parent().unwrap();
    until(&cluster, "there is a file", || {
        std::fs::read_dir(spool).unwrap().any(|entry| {
            let found = entry.and_then(|entry| entry.metadata());
            found.is_ok_and(|found| found.is_file() && found.len() > 0)
        })
    })
    .await;
    drop(released);
    counts_on(&cluster, &files, 10).await;
    let mut client = cluster.client().await;
    client.send(&ClientRequest::Kill { job, grace_ns: 0 }).await.unwrap();
    let mut not_kept = None;
    let ran = collect(&cluster, &mut follower, |reply| {
        if let ClientReply::Ended { not_kept: bytes, .. } = reply {
            not_kept = Some(*bytes);
        }
    })
    .await;
    assert_eq!((ran.outcome, not_kept), (Outcome::Killed, Some(0)), "{}", cluster.logs());
    shown.extend(ran.out.into_bytes());
    let lines = String::from_utf8(shown).unwrap();
    let last = lines.lines().count();
    assert!(lines.lines().eq((1..=last).map(|line| line.to_string())), "each line once, in order");
    assert!(!cluster.logs().contains("the link to the parent is gone"), "{}", cluster.logs());
}
