//! Records on their way to the table.

use super::*;
use kumi_control::message::{JobState, Outcome};
use kumi_small_disk::on_a_small_disk;
use rusqlite::ffi;

use crate::head::job_table::JobTable;
use crate::head::job_table::tests::record;

fn error(code: std::ffi::c_int) -> TableError {
    rusqlite::Error::SqliteFailure(ffi::Error::new(code), None).into()
}

/// What comes while a write is under way is in the next one, which nobody has to ask for.
#[tokio::test(flavor = "current_thread")]
async fn a_count_that_comes_during_a_write_is_written_after_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("head.db");
    let reserve = path.with_extension("reserve");
    let keep = UsageRetention { age_ms: 1, jobs: 1 };
    let place = StatePlace::File(path);
    let opened = JobRecords::open(place, (keep, None), reserve, Rc::default()).await;
    let (mut records, _) = opened.unwrap();
    let count = |end| (JobId(1), WrittenOutput { end, bytes: end });
    records.note_written(vec![count(1)]);
    records.note_written(vec![count(2)]);
    for _ in 0..2 {
        assert!(!records.all_written());
        let written = records.written().await;
        records.take(written);
    }
    assert!(records.all_written());
}

#[tokio::test(flavor = "current_thread")]
async fn a_refusal_of_the_state_is_told_with_its_reason() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("head.db");
    let (reserve, counts) = (path.with_extension("reserve"), Rc::new(HeadCounters::default()));
    let keep = UsageRetention { age_ms: 1, jobs: 1 };
    let opened =
        JobRecords::open(StatePlace::File(path), (keep, None), reserve, Rc::clone(&counts));
    let (records, _) = opened.await.unwrap();
    assert_eq!(records.trouble(), None);
    assert!(counts.state_refusal.set(Some("etcd has no space".to_owned())));
    let told = records.trouble().expect("jobs are refused");
    assert!(told.contains("etcd has no space") && told.contains("administrator"), "{told}");
    counts.state_refusal.set(None);
    assert_eq!(records.trouble(), None);
}

#[tokio::test(flavor = "current_thread")]
async fn only_a_full_disk_takes_the_reserve() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("head.db");
    let reserve = path.with_extension("reserve");
    let place = StatePlace::File(path.clone());
    let keep = UsageRetention { age_ms: 1, jobs: 1 };
    let opened = JobRecords::open(place, (keep, None), reserve, Rc::default()).await;
    let (mut records, _) = opened.unwrap();
    let is_held = || path.with_extension("reserve").exists();
    for code in [ffi::SQLITE_BUSY, ffi::SQLITE_IOERR_FSYNC] {
        records.take(Written::Records(1, Err(error(code))));
        assert!(is_held() && records.has_failed(), "{code}");
    }
    records.take(Written::Records(2, Ok(())));
    records.take(Written::Records(3, Err(error(ffi::SQLITE_FULL))));
    assert!(!is_held() && !records.has_failed(), "it is tried again at once");
    records.take(Written::Records(3, Err(error(ffi::SQLITE_FULL))));
    assert!(records.has_failed());
}

async fn open(path: PathBuf) -> JobRecords {
    let keep = UsageRetention { age_ms: 1, jobs: 1 };
    let reserve = path.with_extension("reserve");
    JobRecords::open(StatePlace::File(path), (keep, None), reserve, Rc::default()).await.unwrap().0
}

async fn written(records: &mut JobRecords) -> bool {
    let written = records.written().await;
    let is_written = matches!(&written, Written::Records(_, Ok(())));
    records.take(written);
    is_written
}

/// Nodes keep what they know of the end of a job until the table has it.
#[tokio::test(flavor = "current_thread")]
async fn nodes_forget_a_job_when_the_table_has_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let mut records = open(dir.path().join("head.db")).await;
    let full = || Err(error(ffi::SQLITE_FULL));
    records.reserve.release();
    let (job, link) = (JobId(7), LinkId(1));
    let nodes = NodeSet::from_nodes([kumi_sched::NodeId(3)]);
    let start = job.of_start(2);
    for (outcome, holds) in [(Outcome::Success, true), (Outcome::Killed, false)] {
        records.add(record(7, JobState::Ended(outcome)));
        records.take(Written::Records(records.next, full()));
        assert!(records.has_failed());
        assert_eq!(records.holds_forget(link, start, &nodes), holds);
        assert_eq!(records.take_forgets(), []);
        records.write_again();
        assert!(written(&mut records).await && records.all_written());
        let told = holds.then(|| (link, nodes.clone(), start));
        assert_eq!(records.take_forgets(), Vec::from_iter(told));
        assert!(!records.holds_forget(link, start, &nodes));
    }
}

/// A request that is long keeps no end out of the table.
#[test]
fn a_full_disk_takes_ends_before_new_jobs() {
    on_a_small_disk(2 << 20, |disk| {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let path = disk.join("head.db");
            let mut records = open(path.clone()).await;
            records.reserve.release();
            records.add(record(1, JobState::Running));
            records.write();
            assert!(written(&mut records).await);
            let mut long = record(2, JobState::Queued);
            long.spec.request.args = vec!["x".repeat(4 << 20)];
            records.add(long);
            records.add(record(1, JobState::Ended(Outcome::Success)));
            records.write();
            assert!(!written(&mut records).await && records.has_failed());
            records.write_again();
            assert!(written(&mut records).await, "the end alone");
            assert!(records.has_failed() && !records.all_written(), "more is to be written");
            let waiting: Vec<u64> = records.unwritten.keys().map(|job| job.0).collect();
            assert_eq!(waiting, [2]);
            assert!(!written(&mut records).await, "all at once");
            let known = JobTable::open(&path).unwrap().load().unwrap();
            assert_eq!(known, [record(1, JobState::Ended(Outcome::Success))]);
        });
    });
}
