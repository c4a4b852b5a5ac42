//! Output of jobs over the death of the head that has it.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use kumi_control::message::{ClientReply, ClientRequest, JobRecord, JobRequest, JobState, Outcome};
use kumi_node::config::ClusterConfig;
use kumi_node::paths;
use kumi_sched::JobId;
use nix::sys::signal::Signal;

use super::common::{PATIENCE, request};
use super::etcd::Members;
use super::{Heads, TAKEOVER};

/// More than nodes keep that is not acknowledged.
const LINES: u64 = 1_000_000;

/// Writes that many lines, and one more when a file appears.
fn writing(folder: &Path, end: &str) -> JobRequest {
    let script = format!(
        "cd {}; seq 1 {LINES}; echo >> written; until [ -e {end} ]; do sleep 0.02; done; echo end",
        folder.display()
    );
    request(&["/bin/sh", "-c", &script], 1)
}

/// What that job has written: too much to be shown if it is something else.
fn assert_is_whole((text, missing): &(String, u64), heads: &Heads) {
    let lines: Vec<&str> = text.lines().collect();
    let count = lines.len() as u64;
    assert_eq!((count, *missing), (LINES + 1, 0), "{}", heads.logs());
    let in_order = lines.iter().zip(1..=LINES).all(|(line, number)| **line == number.to_string());
    assert!(in_order && lines.last() == Some(&"end"));
}

/// Waits until a head says this so often.
pub async fn says(heads: &Heads, head: usize, what: &str, times: usize) {
    let end = Instant::now() + TAKEOVER;
    while count(heads, head, what) < times {
        assert!(Instant::now() < end, "{head} never says {what}\n{}", heads.logs());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub fn count(heads: &Heads, head: usize, what: &str) -> usize {
    let log = paths::head_log(heads.dir(head));
    std::fs::read_to_string(log).unwrap().matches(what).count()
}

pub async fn exists(heads: &Heads, file: &Path) {
    let end = Instant::now() + TAKEOVER;
    while !file.exists() {
        assert!(Instant::now() < end, "{} never comes\n{}", file.display(), heads.logs());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// What the head that leads says of those that wait.
pub const IN_SYNC: &str = "in sync: these heads have all output";
const ALONE: &str = "no other head is in sync";

/// The machine of the head that leads is lost for good, with a member of etcd: another one has all of the output.
#[tokio::test(flavor = "current_thread")]
async fn output_outlives_the_machine_of_the_head_that_led() {
    let Some(mut etcd) = Members::start(3) else { return };
    let mut heads = Heads::start(&etcd, 1, 3).await;
    let folder = tempfile::tempdir().unwrap();
    let first = heads.leader(&[]).await;
    says(&heads, first, IN_SYNC, 2).await;
    let over = heads.submit(request(&["/bin/sh", "-c", "echo hello; echo world"], 1)).await;
    assert_eq!(heads.output(over).await, ("hello\nworld\n".to_owned(), 0));
    let job = heads.submit(writing(folder.path(), "end")).await;
    // The rank has written more than its node keeps: the rest is acknowledged.
    exists(&heads, &folder.path().join("written")).await;
    heads.kill_head(first);
    std::fs::remove_dir_all(paths::spool(heads.dir(first))).unwrap();
    etcd.kill(0);
    let second = heads.leader(&[first]).await;
    heads.attached(1).await;
    assert_eq!(heads.output(over).await, ("hello\nworld\n".to_owned(), 0));
    // The one that is left catches up or has all, and leads when the next machine is gone.
    says(&heads, second, "copies output", 1).await;
    std::fs::write(folder.path().join("end"), "").unwrap();
    assert_is_whole(&heads.output(job).await, &heads);
    assert_eq!(heads.records().await[&job].output_not_kept, 0);
    heads.kill_head(second);
    std::fs::remove_dir_all(paths::spool(heads.dir(second))).unwrap();
    heads.leader(&[first, second]).await;
    heads.attached(1).await;
    assert_is_whole(&heads.output(job).await, &heads);
    assert_eq!(heads.output(over).await, ("hello\nworld\n".to_owned(), 0));
}

/// A head that waits and stands still holds up nothing for long. It catches up when it goes on.
#[tokio::test(flavor = "current_thread")]
async fn output_goes_on_while_the_other_head_stands_still() {
    let Some(etcd) = Members::start(1) else { return };
    let mut heads = Heads::start(&etcd, 1, 2).await;
    let folder = tempfile::tempdir().unwrap();
    let first = heads.leader(&[]).await;
    let other = 1 - first;
    says(&heads, first, IN_SYNC, 1).await;
    let (before, times) = (count(&heads, first, ALONE), count(&heads, first, IN_SYNC));
    heads.signal(other, Signal::SIGSTOP);
    let job = heads.submit(writing(folder.path(), "end")).await;
    exists(&heads, &folder.path().join("written")).await;
    says(&heads, first, ALONE, before + 1).await;
    std::fs::write(folder.path().join("end"), "").unwrap();
    assert_is_whole(&heads.output(job).await, &heads);
    heads.signal(other, Signal::SIGCONT);
    says(&heads, first, IN_SYNC, times + 1).await;
    heads.kill_head(first);
    std::fs::remove_dir_all(heads.dir(first)).unwrap();
    assert_eq!(heads.leader(&[first]).await, other);
    heads.attached(1).await;
    assert_is_whole(&heads.output(job).await, &heads);
}

/// Nothing is acknowledged that a head in sync does not have: what it lacks nodes send again, however long that takes.
#[tokio::test(flavor = "current_thread")]
async fn what_a_head_in_sync_does_not_have_is_not_acknowledged() {
    let Some(etcd) = Members::start(1) else { return };
    let for_long = |config: &mut ClusterConfig| config.etcd.standby_patience_ms = Some(60_000);
    let mut heads = Heads::with(&etcd, 1, 2, for_long).await;
    let folder = tempfile::tempdir().unwrap();
    let first = heads.leader(&[]).await;
    says(&heads, first, IN_SYNC, 1).await;
    heads.signal(1 - first, Signal::SIGSTOP);
    let job = heads.submit(writing(folder.path(), "end")).await;
    let mut client = heads.client().await;
    client.send(&ClientRequest::Follow { job, offset: 0, wait: true }).await.unwrap();
    let mut bytes = 0;
    // Who follows waits for no other head.
    while bytes < 1 << 20 {
        let next = tokio::time::timeout(PATIENCE, client.next()).await.expect("its output comes");
        if let Some(ClientReply::Output { data, .. }) = next.unwrap() {
            bytes += data.len();
        }
    }
    assert!(!folder.path().join("written").exists(), "the rank waits");
    heads.kill_head(first);
    std::fs::remove_dir_all(paths::spool(heads.dir(first))).unwrap();
    heads.signal(1 - first, Signal::SIGCONT);
    heads.leader(&[first]).await;
    heads.attached(1).await;
    std::fs::write(folder.path().join("end"), "").unwrap();
    assert_is_whole(&heads.output(job).await, &heads);
}

/// Whoever looks at the cluster sees which heads have all output.
#[tokio::test(flavor = "current_thread")]
async fn heads_are_shown_with_whether_they_are_in_sync() {
    let Some(etcd) = Members::start(1) else { return };
    let mut heads = Heads::start(&etcd, 1, 2).await;
    let first = heads.leader(&[]).await;
    let addresses = heads.cluster.config.heads.clone();
    let shows = async |heads: &Heads, in_sync| {
        let end = Instant::now() + TAKEOVER;
        loop {
            let ClientReply::Heads(shown) = heads.ask(&ClientRequest::Heads).await else {
                panic!("no heads");
            };
            assert_eq!(shown.len(), 2);
            let of = |head: usize| shown.iter().find(|it| it.address == addresses[head]).unwrap();
            assert!(of(first).leads && of(first).in_sync && !of(1 - first).leads);
            if of(1 - first).in_sync == in_sync {
                return;
            }
            assert!(Instant::now() < end, "{shown:?}\n{}", heads.logs());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    shows(&heads, true).await;
    heads.kill_head(1 - first);
    shows(&heads, false).await;
    heads.start_head(1 - first);
    shows(&heads, true).await;
}

/// Of two heads that wait, one in sync leads before one that is not.
#[tokio::test(flavor = "current_thread")]
async fn a_head_in_sync_leads_before_others() {
    let Some(etcd) = Members::start(1) else { return };
    let mut heads = Heads::start(&etcd, 1, 3).await;
    let first = heads.leader(&[]).await;
    says(&heads, first, IN_SYNC, 2).await;
    let slow = (first + 1) % 3;
    let times = count(&heads, first, IN_SYNC);
    heads.signal(slow, Signal::SIGSTOP);
    let job = heads.submit(request(&["/bin/sh", "-c", "echo hello; echo world"], 1)).await;
    assert_eq!(heads.output(job).await, ("hello\nworld\n".to_owned(), 0));
    says(&heads, first, IN_SYNC, times + 1).await;
    heads.kill_head(first);
    std::fs::remove_dir_all(paths::spool(heads.dir(first))).unwrap();
    heads.signal(slow, Signal::SIGCONT);
    assert_eq!(heads.leader(&[first]).await, (first + 2) % 3, "{}", heads.logs());
    heads.attached(1).await;
    assert_eq!(heads.output(job).await, ("hello\nworld\n".to_owned(), 0));
}

/// While no other head is in sync, output is on the disk of the head that leads: another one says how much is missing.
#[tokio::test(flavor = "current_thread")]
async fn output_that_only_a_head_has_that_is_gone_is_marked() {
    let Some(etcd) = Members::start(1) else { return };
    let mut heads = Heads::start(&etcd, 1, 2).await;
    let first = heads.leader(&[]).await;
    says(&heads, first, IN_SYNC, 1).await;
    heads.signal(1 - first, Signal::SIGSTOP);
    let job = heads.submit(request(&["/bin/sh", "-c", "echo hello; echo world"], 1)).await;
    let ended = |records: &BTreeMap<JobId, JobRecord>| {
        records[&job].state == JobState::Ended(Outcome::Success)
    };
    assert_eq!(heads.output(job).await, ("hello\nworld\n".to_owned(), 0));
    // Who has read the end can rely on the count, however soon after that the head dies.
    heads.kill_head(first);
    heads.signal(1 - first, Signal::SIGCONT);
    heads.leader(&[first]).await;
    heads.attached(1).await;
    heads.until("it is known", ended).await;
    assert_eq!(heads.output(job).await, (String::new(), 12));
}

/// The head that has it dies before others know of it, and nothing more comes of the job.
#[tokio::test(flavor = "current_thread")]
async fn output_of_the_last_moment_of_a_head_is_marked() {
    let Some(etcd) = Members::start(1) else { return };
    let mut heads = Heads::start(&etcd, 1, 2).await;
    let folder = tempfile::tempdir().unwrap();
    let script = format!(
        "cd {}; echo hello; until [ -e end ]; do sleep 0.02; done",
        folder.path().display()
    );
    let job = heads.submit(request(&["/bin/sh", "-c", &script], 1)).await;
    let mut client = heads.client().await;
    client.send(&ClientRequest::Follow { job, offset: 0, wait: true }).await.unwrap();
    loop {
        let next = tokio::time::timeout(PATIENCE, client.next()).await.expect("its output comes");
        if matches!(next.unwrap(), Some(ClientReply::Output { .. })) {
            break;
        }
    }
    // Most of the time the node has the acknowledgement by then, and etcd no count. Nothing may be lost in either case.
    tokio::time::sleep(Duration::from_millis(50)).await;
    let first = heads.leader(&[]).await;
    heads.kill_head(first);
    heads.leader(&[first]).await;
    heads.attached(1).await;
    std::fs::write(folder.path().join("end"), "").unwrap();
    let (text, missing) = heads.output(job).await;
    assert_eq!(text.len() as u64 + missing, 6, "{text:?}\n{}", heads.logs());
    assert_eq!(heads.records().await[&job].output_not_kept, missing);
}
