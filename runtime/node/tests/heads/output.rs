//! Output of jobs over the death of the head that has it.

use std::collections::BTreeMap;
use std::time::Duration;

use kumi_control::message::{ClientReply, ClientRequest, JobRecord, JobState, Outcome};
use kumi_sched::JobId;

use super::Heads;
use super::common::{PATIENCE, request};
use super::etcd::Members;

/// Output is on the disk of the head that led then: another one says how much is missing.
#[tokio::test(flavor = "current_thread")]
async fn output_of_a_head_that_is_gone_is_marked() {
    let Some(etcd) = Members::start(1) else { return };
    let mut heads = Heads::start(&etcd, 1, 2).await;
    let job = heads.submit(request(&["/bin/sh", "-c", "echo hello; echo world"], 1)).await;
    let ended = |records: &BTreeMap<JobId, JobRecord>| {
        records[&job].state == JobState::Ended(Outcome::Success)
    };
    assert_eq!(heads.output(job).await, ("hello\nworld\n".to_owned(), 0));
    // Who has read the end can rely on the count, however soon after that the head dies.
    let first = heads.leader(&[]).await;
    heads.kill_head(first);
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
