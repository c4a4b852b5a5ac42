//! Heads that wait: they come and go, and mend what is damaged of their copies.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use kumi_control::batch::ArrayRange;
use kumi_control::message::{ClientReply, ClientRequest, JobRecord, JobState, Outcome};
use kumi_node::config::ClusterConfig;
use kumi_node::paths;
use kumi_sched::JobId;

use super::common::request;
use super::etcd::Members;
use super::output::{IN_SYNC, count, exists, says};
use super::{Heads, TAKEOVER};

/// More jobs than those whose logs a head remembers.
const JOBS: u32 = 270;
/// What the head that leads says of one that has connected.
const CONNECTED: &str = "copies output head=";
/// Lines of a round: more bytes than a node keeps that are not acknowledged.
const LINES: u64 = 700_000;
const ROUNDS: u64 = 2;

/// Short ones, which are over when this returns.
async fn many_jobs(heads: &Heads) -> Vec<JobId> {
    let script = "echo hello; echo world";
    let mut request = Box::new(request(&["/bin/sh", "-c", script], 1));
    // Each task has the next token.
    request.token += u128::from(u32::MAX);
    let array = Some(ArrayRange { first: 1, last: JOBS, most: None });
    let reply = heads.ask(&ClientRequest::SubmitBatch { request, array }).await;
    let ClientReply::Accepted { first, .. } = reply else { panic!("{reply:?}") };
    let jobs: Vec<JobId> = (first.0..).take(JOBS as usize).map(JobId).collect();
    let done = |job: &JobRecord| job.state == JobState::Ended(Outcome::Success);
    let all_done = |all: &std::collections::BTreeMap<JobId, JobRecord>| {
        jobs.iter().all(|job| all.get(job).is_some_and(done))
    };
    heads.until("all are done", all_done).await;
    jobs
}

/// In each round the head that waits comes and goes, and comes back. A job that prints more than its node keeps goes on all the time.
#[tokio::test(flavor = "current_thread")]
async fn a_head_that_comes_and_goes_holds_up_no_output_of_many_jobs() {
    let Some(etcd) = Members::start(1) else { return };
    let patient = |config: &mut ClusterConfig| config.etcd.standby_patience_ms = Some(1_000);
    let mut heads = Heads::with(&etcd, 1, 2, patient).await;
    let folder = tempfile::tempdir().unwrap();
    let first = heads.leader(&[]).await;
    let other = 1 - first;
    says(&heads, first, IN_SYNC, 1).await;
    let jobs = many_jobs(&heads).await;
    let script = format!(
        "cd {}; for round in $(seq {ROUNDS}); do until [ -e go.$round ]; do sleep 0.02; done; seq {LINES}; echo >> written.$round; done; until [ -e end ]; do sleep 0.02; done; echo end",
        folder.path().display()
    );
    let job = heads.submit(request(&["/bin/sh", "-c", &script], 1)).await;
    for round in 1..=ROUNDS {
        let file = |name: &str| folder.path().join(format!("{name}.{round}"));
        heads.kill_head(other);
        std::fs::write(file("go"), "").unwrap();
        for _ in 0..3 {
            let times = count(&heads, first, CONNECTED);
            heads.start_head(other);
            says(&heads, first, CONNECTED, times + 1).await;
            heads.kill_head(other);
        }
        heads.start_head(other);
        // Only if most of it is acknowledged.
        exists(&heads, &file("written")).await;
    }
    in_sync(&heads, other).await;
    std::fs::write(folder.path().join("end"), "").unwrap();
    let whole = |(text, missing): (String, u64), logs: String| {
        let mut lines = text.lines();
        for _ in 0..ROUNDS {
            let numbers = lines.by_ref().take(LINES as usize);
            assert!(numbers.eq((1..=LINES).map(|line| line.to_string())), "{logs}");
        }
        assert_eq!((lines.next(), lines.next(), missing), (Some("end"), None, 0), "{logs}");
    };
    whole(heads.output(job).await, heads.logs());
    in_sync(&heads, other).await;
    // It has all of it, alone.
    heads.kill_head(first);
    std::fs::remove_dir_all(paths::spool(heads.dir(first))).unwrap();
    assert_eq!(heads.leader(&[first]).await, other);
    heads.attached(1).await;
    whole(heads.output(job).await, heads.logs());
    for job in &jobs {
        assert_eq!(heads.output(*job).await, ("hello\nworld\n".to_owned(), 0), "{job}");
    }
    let records = heads.records().await;
    assert_eq!(records.len(), jobs.len() + 1);
    assert!(records.values().all(|record| record.output_not_kept == 0), "{}", heads.logs());
}

/// Waits until the head that leads has that one in its list.
async fn in_sync(heads: &Heads, head: usize) {
    let address = heads.cluster.config.heads[head];
    let end = Instant::now() + TAKEOVER;
    loop {
        let reply = heads.ask(&ClientRequest::Heads).await;
        let ClientReply::Heads(shown) = &reply else { panic!("{reply:?}") };
        if shown.iter().any(|it| it.address == address && it.in_sync) {
            return;
        }
        assert!(Instant::now() < end, "{shown:?}\n{}", heads.logs());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The segments of a job at a head, in order.
fn segments(heads: &Heads, head: usize, job: JobId) -> Vec<PathBuf> {
    let start = |path: &Path| -> Option<u64> {
        let name = path.file_name()?.to_str()?.strip_prefix(&format!("{job}."))?;
        name.parse().ok()
    };
    let entries = std::fs::read_dir(paths::spool(heads.dir(head))).unwrap();
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    found.retain(|path| start(path).is_some());
    found.sort_by_key(|path| start(path));
    found
}

async fn has_segments(heads: &Heads, head: usize, job: JobId, times: usize) {
    let end = Instant::now() + TAKEOVER;
    while segments(heads, head, job).len() < times {
        assert!(Instant::now() < end, "{times} segments: never\n{}", heads.logs());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Segments that a head cannot read come again from the one that leads: nobody has to remove anything.
#[tokio::test(flavor = "current_thread")]
async fn a_head_that_waits_copies_again_what_is_damaged() {
    let Some(etcd) = Members::start(1) else { return };
    let mut heads = Heads::start(&etcd, 1, 2).await;
    let folder = tempfile::tempdir().unwrap();
    let first = heads.leader(&[]).await;
    let other = 1 - first;
    says(&heads, first, IN_SYNC, 1).await;
    let over = heads.submit(request(&["/bin/sh", "-c", "echo hello; echo world"], 1)).await;
    assert_eq!(heads.output(over).await, ("hello\nworld\n".to_owned(), 0));
    let script = format!(
        "cd {}; for n in 1 2 3 4; do until [ -e $n ]; do sleep 0.02; done; echo $n; done",
        folder.path().display()
    );
    let job = heads.submit(request(&["/bin/sh", "-c", &script], 1)).await;
    for piece in 1..=3 {
        std::fs::write(folder.path().join(piece.to_string()), "").unwrap();
        has_segments(&heads, other, job, piece).await;
        in_sync(&heads, other).await;
        let times = count(&heads, first, CONNECTED);
        heads.kill_head(other);
        if piece == 3 {
            let damaged = [&segments(&heads, other, job)[1], &segments(&heads, other, over)[0]];
            for path in damaged {
                let mut bytes = std::fs::read(path).unwrap();
                bytes[8] ^= 1;
                std::fs::write(path, bytes).unwrap();
            }
        }
        heads.start_head(other);
        says(&heads, first, CONNECTED, times + 1).await;
    }
    says(&heads, other, "from a damaged segment on", 1).await;
    in_sync(&heads, other).await;
    std::fs::write(folder.path().join("4"), "").unwrap();
    assert_eq!(heads.output(job).await, ("1\n2\n3\n4\n".to_owned(), 0));
    in_sync(&heads, other).await;
    heads.kill_head(first);
    std::fs::remove_dir_all(paths::spool(heads.dir(first))).unwrap();
    assert_eq!(heads.leader(&[first]).await, other);
    heads.attached(1).await;
    assert_eq!(heads.output(job).await, ("1\n2\n3\n4\n".to_owned(), 0));
    assert_eq!(heads.output(over).await, ("hello\nworld\n".to_owned(), 0));
    assert!(heads.records().await.values().all(|record| record.output_not_kept == 0));
}
