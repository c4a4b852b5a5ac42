//! Tests of spools: what followers get, what stays on disk, and what is marked as missing.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;

use kumi_control::message::JobState;

use super::segment::{MAX_PIECE, frame};
use super::*;
use crate::config::Quotas;
use crate::head::reserve;

mod full_disk;
mod hanging_disk;
mod terms;

const JOB: JobId = JobId(4);

fn held_reserve() -> ReserveHeld {
    let reserve = reserve::ReserveState::missing_because("not made yet");
    reserve.set_held();
    Rc::new(reserve)
}

fn owners() -> (Rc<HeadCounters>, ReserveHeld) {
    (Rc::default(), held_reserve())
}

fn open(dir: &Path, quota: SpoolQuota) -> Spools {
    Spools::open(dir.to_owned(), |_| true, quota, owners()).unwrap()
}

fn quota() -> SpoolQuota {
    SpoolQuota::new(Quotas::default(), 1_000)
}

fn quota_of(mib_per_job: u64, mib_per_user: u64) -> SpoolQuota {
    let quotas = Quotas {
        spool_mib_per_job: mib_per_job,
        spool_mib_per_user: mib_per_user,
        ..Quotas::default()
    };
    let mut quota = SpoolQuota::new(quotas, 1_000);
    for job in 4..7 {
        quota.know(JobId(job), 1000, false);
    }
    quota
}

/// Puts what a rank writes next to its standard output.
fn put_of(spools: &mut Spools, job: JobId, rank: u32, data: &[u8]) -> Vec<HeadEvent> {
    let streams = spools.streams(job);
    let at = streams.into_iter().find(|&(of, ..)| of == rank).map_or(0, |(.., next)| next);
    spools.keep(job, (rank, Stream::Out), at, data)
}

fn put(spools: &mut Spools, rank: u32, data: &[u8]) -> Vec<HeadEvent> {
    put_of(spools, JOB, rank, data)
}

fn news(events: Vec<HeadEvent>) -> Option<(u64, String)> {
    events.into_iter().find_map(|event| match event {
        HeadEvent::NotKept { bytes, reason, .. } => Some((bytes, reason)),
        _ => None,
    })
}

fn not_kept(events: Vec<HeadEvent>) -> (u64, String) {
    news(events).expect("some is not kept")
}

async fn all(spools: &mut Spools, offset: u64, wait: bool) -> Vec<ClientReply> {
    let (client, mut replies) = mpsc::channel(1);
    let follower = tokio::spawn(spools.follow(JOB, offset, (wait, false), client));
    let mut got = Vec::new();
    while let Some(reply) = replies.recv().await {
        got.push(reply);
    }
    follower.await.unwrap();
    got
}

/// Bytes of output, and those that are marked as missing.
fn sums(replies: &[ClientReply]) -> (u64, u64) {
    replies.iter().fold((0, 0), |(shown, lost), reply| match reply {
        ClientReply::Output { data, .. } => (shown + data.len() as u64, lost),
        ClientReply::OutputLost { bytes, .. } => (shown, lost + bytes),
        _ => (shown, lost),
    })
}

fn output(rank: u32, data: &[u8], offset: u64) -> ClientReply {
    ClientReply::Output { job: JOB, rank, stream: Stream::Out, data: data.to_vec(), offset }
}

/// Files that take nothing, and the kernel's reason: a full disk, and one that fails.
const BAD_DISKS: [(&str, &str); 2] =
    [("/dev/full", "No space left"), ("/proc/self/mem", "Input/output error")];

#[tokio::test(flavor = "current_thread")]
async fn followers_get_everything_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let mut spools = open(&dir.path().join("spool"), quota());
    assert_eq!(all(&mut spools, 0, false).await, [ClientReply::Done]);
    let (client, mut live) = mpsc::channel(1);
    tokio::spawn(spools.follow(JOB, 0, (true, false), client));
    assert!(news(put(&mut spools, 0, b"one")).is_none());
    assert_eq!(live.recv().await, Some(output(0, b"one", 12)));
    assert_eq!(live.recv().await, Some(ClientReply::Current { job: JOB }));
    assert!(news(put(&mut spools, 1, b"two")).is_none());
    assert_eq!(live.recv().await, Some(output(1, b"two", 24)));
    let late = all(&mut spools, 12, false).await;
    assert_eq!(late, [output(1, b"two", 24), ClientReply::Done]);
    spools.finish(JOB, Outcome::Success, 5);
    let ended = ClientReply::Ended { job: JOB, outcome: Outcome::Success, not_kept: 5 };
    let lost = ClientReply::OutputLost { job: JOB, bytes: 5, offset: 25 };
    assert_eq!([live.recv().await, live.recv().await], [Some(lost.clone()), Some(ended.clone())]);
    assert_eq!(all(&mut spools, 24, true).await, [lost, ended]);
    // An offset inside a frame.
    assert!(matches!(all(&mut spools, 5, true).await[..], [ClientReply::Refused(_)]));
}

/// Also what a head of an earlier version wrote.
#[tokio::test(flavor = "current_thread")]
async fn the_next_head_leaves_out_what_was_cut_off() {
    for earlier in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let whole = frame(0, Stream::Out, b"whole").unwrap();
        let cut = frame(0, Stream::Out, b"cut off").unwrap();
        if earlier {
            fs::write(dir.path().join("4"), &whole).unwrap();
        } else {
            put(&mut open(dir.path(), quota()), 0, b"whole");
        }
        fs::write(dir.path().join("5.0"), &whole).unwrap();
        let name = if earlier { "4" } else { "4.0" };
        let mut file = OpenOptions::new().append(true).open(dir.path().join(name)).unwrap();
        file.write_all(&cut[..12]).unwrap();
        let known = |job| job == JOB;
        let mut spools = Spools::open(dir.path().to_owned(), known, quota(), owners()).unwrap();
        assert!(!dir.path().join("5.0").exists());
        let first = all(&mut spools, 0, false).await;
        assert_eq!(first, [output(0, b"whole", 14), ClientReply::Done]);
        let position = spools.spool(JOB).writer.accepted()[&(0, Stream::Out)];
        assert_eq!(position, 5);
        // Who has come further with the head before gets all the same what comes now.
        for offset in [14, 33] {
            put(&mut spools, 0, b"next");
            let next = all(&mut spools, offset, false).await;
            assert!(matches!(&next[0], ClientReply::Output { data, .. } if data == b"next"));
            assert_eq!(sums(&next).1, 0, "{next:?}");
        }
        let mut spools = open(dir.path(), quota());
        assert_eq!(sums(&all(&mut spools, 0, false).await), (13, 0));
        assert_eq!(spools.spool(JOB).writer.accepted()[&(0, Stream::Out)], 13);
    }
}

#[tokio::test(flavor = "current_thread")]
async fn long_output_comes_in_pieces_of_several_segments() {
    let dir = tempfile::tempdir().unwrap();
    let mut spools = open(dir.path(), quota_of(4, 100));
    let piece = vec![b'x'; 60_000];
    for rank in 0..40 {
        put(&mut spools, rank, &piece);
    }
    let files = fs::read_dir(dir.path()).unwrap().count();
    assert!(files > 3, "{files}");
    let got = all(&mut spools, 0, false).await;
    assert_eq!(got.len(), 41);
    assert_eq!(got[39], output(39, &piece, 40 * 60_009));
    let part = spools.part(JOB, None)().unwrap();
    assert_eq!((part.next, part.pieces.len()), (40 * 60_009, 1));
    assert_eq!(part.begin, 39 * 60_009);
    let part = spools.part(JOB, Some(60_009))().unwrap();
    assert_eq!((part.begin, part.next, part.pieces[0].rank), (60_009, 3 * 60_009, 1));
    assert!(spools.part(JOB, Some(3))().is_err());
}

/// Followers get it live, later ones a mark, and the next head knows how much is missing.
#[tokio::test(flavor = "current_thread")]
async fn output_is_shown_that_the_disk_does_not_take_and_what_is_dropped_is_marked() {
    for (disk, says) in BAD_DISKS {
        if Path::new(disk).exists() {
            keeps_what_a_bad_disk_does_not_take(Path::new(disk), says).await;
        } else {
            kumi_skip::skip("output that the disk does not take", &format!("no {disk}"));
        }
    }
}

async fn keeps_what_a_bad_disk_does_not_take(disk: &Path, says: &str) {
    let dir = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(disk, dir.path().join("4.0")).unwrap();
    let mut spools = open(dir.path(), quota());
    spools.found.clear();
    let (client, mut live) = mpsc::channel(1);
    tokio::spawn(spools.follow(JOB, 0, (true, false), client));
    let (bytes, reason) = not_kept(put(&mut spools, 0, b"live"));
    assert!(bytes == 4 && reason.contains(says), "{bytes} {reason}");
    assert_eq!(live.recv().await, Some(output(0, b"live", 13)));
    let piece = vec![b'x'; MAX_PIECE];
    for _ in 0..6 {
        put(&mut spools, 0, &piece);
    }
    let late = all(&mut spools, 0, false).await;
    let kept = 3 * MAX_PIECE as u64;
    assert_eq!(sums(&late), (kept, 3 * MAX_PIECE as u64 + 4));
    assert!(matches!(late[0], ClientReply::OutputLost { .. }));
    // The disk has room again: what waited is kept, and what comes.
    fs::remove_file(dir.path().join("4.0")).unwrap_or_default();
    let again = spools.write_again();
    assert_eq!(not_kept(again).0, 3 * MAX_PIECE as u64 + 4);
    assert!(news(put(&mut spools, 0, b"more")).is_none());
    let lost = 3 * MAX_PIECE as u64 + 4;
    assert_eq!(sums(&all(&mut spools, 0, false).await), (kept + 4, lost));
    let mut spools = open(dir.path(), quota());
    assert_eq!(sums(&all(&mut spools, 0, false).await), (kept + 4, lost));
    assert_eq!(spools.spool(JOB).writer.accepted()[&(0, Stream::Out)], kept + 4 + lost);
}

/// A job waits for its submitter, and for nobody else; not even the disk need take anything.
#[tokio::test(flavor = "current_thread")]
async fn a_job_is_not_far_ahead_of_who_sets_its_pace() {
    let dir = tempfile::tempdir().unwrap();
    let mut spools = open(dir.path(), quota());
    spools.reserve.set_missing("a test");
    let (client, mut live) = mpsc::channel(1);
    let follower = tokio::spawn(spools.follow(JOB, 0, (true, true), client));
    let (idle, _unread) = mpsc::channel(1);
    let watcher = tokio::spawn(spools.follow(JOB, 0, (true, false), idle));
    let piece = vec![b'x'; 60_000];
    let goes_on = |events: &[HeadEvent]| {
        events.iter().any(|event| matches!(event, HeadEvent::Spooled { .. }))
    };
    let mut written = 0;
    while goes_on(&put(&mut spools, 0, &piece)) {
        written += 1;
    }
    assert!((17..19).contains(&written), "{written}");
    // What nodes have sent meanwhile is there for it.
    for _ in 0..200 {
        assert!(!goes_on(&put(&mut spools, 0, &piece)));
    }
    assert!(spools.release().is_empty());
    let mut got = 0;
    while got < 201 + written {
        match live.recv().await {
            Some(ClientReply::Output { .. }) => got += 1,
            Some(ClientReply::Current { .. }) => {}
            other => panic!("{other:?}"),
        }
    }
    spools.progress().await;
    assert!(goes_on(&spools.release()));
    while goes_on(&put(&mut spools, 0, &piece)) {}
    // Nobody waits for who is gone.
    drop(live);
    follower.await.unwrap();
    spools.progress().await;
    assert!(goes_on(&spools.release()) && goes_on(&put(&mut spools, 0, &piece)));
    watcher.abort();
}

/// Without its reserve the job table has the disk to itself.
#[tokio::test(flavor = "current_thread")]
async fn output_leaves_the_disk_to_the_job_table() {
    let dir = tempfile::tempdir().unwrap();
    let mut spools = open(dir.path(), quota());
    spools.reserve.set_missing("a test");
    let (bytes, reason) = not_kept(put(&mut spools, 0, b"one"));
    assert!(bytes == 3 && reason.contains("reserve for the job table"), "{bytes} {reason}");
    assert!(reason.ends_with(": a test"), "{reason}");
    assert_eq!(sums(&all(&mut spools, 0, false).await), (3, 0));
    spools.reserve.set_held();
    assert_eq!(not_kept(spools.write_again()).0, 0);
}

/// An earlier head acknowledged what its disk then lost.
#[tokio::test(flavor = "current_thread")]
async fn what_no_node_can_send_again_is_marked() {
    let dir = tempfile::tempdir().unwrap();
    let mut spools = open(dir.path(), quota());
    put(&mut spools, 0, b"one");
    put(&mut spools, 1, b"two");
    let (bytes, _) = not_kept(spools.keep(JOB, (0, Stream::Out), 10, b"three"));
    assert_eq!(bytes, 7);
    let got = all(&mut spools, 0, false).await;
    assert_eq!(sums(&got), (11, 7));
    assert!(matches!(got[2], ClientReply::OutputLost { bytes: 7, .. }), "{got:?}");
    let mut spools = open(dir.path(), quota());
    assert_eq!(all(&mut spools, 0, false).await, got);
    assert_eq!(spools.streams(JOB), [(0, Stream::Out, 15), (1, Stream::Out, 3)]);
}

/// Of a job the last output is kept, of a user that of jobs that are not over.
#[tokio::test(flavor = "current_thread")]
async fn output_is_bounded_for_each_job_and_user() {
    let dir = tempfile::tempdir().unwrap();
    let mut spools = open(dir.path(), quota_of(2, 3));
    let piece = vec![b'x'; 100_000];
    let told: Vec<_> = (0..40).filter_map(|_| news(put(&mut spools, 0, &piece))).collect();
    let (bytes, reason) = told.last().cloned().expect("more than a job may have");
    assert!(reason.contains("last 2 MiB are kept, spool_mib_per_job"), "{reason}");
    let (shown, lost) = sums(&all(&mut spools, 0, false).await);
    assert_eq!((shown + lost, lost), (4_000_000, bytes));
    assert!((1_500_000..2 << 20).contains(&shown), "{shown}");
    // Another one of the user has room for one MiB, and then for its own last output.
    for _ in 0..20 {
        put_of(&mut spools, JobId(5), 0, &piece);
    }
    let (first, kept) = (spools.quota.bytes(JOB), spools.quota.bytes(JobId(5)));
    assert!(kept > 700_000 && first + kept <= 3 << 20, "{first} {kept}");
    // The first is over and makes room.
    spools.quota.know(JOB, 1000, true);
    spools.finish(JOB, Outcome::Success, 0);
    for _ in 0..20 {
        put_of(&mut spools, JobId(5), 0, &piece);
    }
    assert!(spools.quota.bytes(JobId(5)) > 1_500_000);
    assert_eq!(spools.quota.bytes(JOB), 0);
    assert_eq!(sums(&all(&mut spools, 0, false).await).0, 0);
}

/// Output of jobs that are over goes while the head runs: of the oldest when it is too much, and of jobs that are not known
/// any more.
#[tokio::test(flavor = "current_thread")]
async fn output_of_jobs_that_are_over_goes() {
    let dir = tempfile::tempdir().unwrap();
    let mut spools = open(dir.path(), SpoolQuota::new(Quotas::default(), 2));
    let piece = vec![b'x'; MAX_PIECE - 100];
    let record = |job, state| super::super::job_table::tests::record(job, state);
    let ended = || JobState::Ended(Outcome::Success);
    let is_there = |job: u64| dir.path().join(format!("{job}.0")).exists();
    for number in 4..7 {
        spools.know(&record(number, JobState::Running));
        put_of(&mut spools, JobId(number), 0, &piece);
    }
    for number in 4..7 {
        assert!(is_there(4) && is_there(number));
        spools.know(&record(number, ended()));
        spools.finish(JobId(number), Outcome::Success, 0);
    }
    assert!(!is_there(4) && is_there(5) && is_there(6));
    let one = fs::metadata(dir.path().join("5.0")).unwrap().len();
    assert_eq!(spools.counts.spool_bytes.get(), 2 * one);
    spools.discard(JobId(5));
    spools.discard(JobId(9));
    assert!(!is_there(5) && is_there(6));
    assert_eq!(spools.counts.spool_bytes.get(), one);
    // A head that may keep less begins with that.
    drop(spools);
    let mut spools = open(dir.path(), SpoolQuota::new(Quotas::default(), 0));
    assert!(is_there(6));
    spools.know_all(&[record(6, ended())]);
    assert!(!is_there(6) && spools.counts.spool_bytes.get() == 0);
}

fn ended() -> JobState {
    JobState::Ended(Outcome::Success)
}

fn record(job: JobId, state: JobState) -> JobRecord {
    super::super::job_table::tests::record(job.0, state)
}

/// Between the record of a job's end and the end of its log, all output of the job may go.
#[tokio::test(flavor = "current_thread")]
async fn followers_learn_how_a_job_ended_whose_output_made_room() {
    let dir = tempfile::tempdir().unwrap();
    let mut spools = open(dir.path(), SpoolQuota::new(Quotas::default(), 0));
    spools.know(&record(JOB, JobState::Running));
    put(&mut spools, 0, b"one");
    let (client, mut live) = mpsc::channel(1);
    tokio::spawn(spools.follow(JOB, 0, (true, false), client));
    assert_eq!(live.recv().await, Some(output(0, b"one", 12)));
    assert_eq!(live.recv().await, Some(ClientReply::Current { job: JOB }));
    spools.know(&record(JOB, ended()));
    assert!(!dir.path().join("4.0").exists());
    assert_eq!((spools.counts.spool_bytes.get(), spools.quota.bytes(JOB)), (0, 0));
    assert!(spools.write_again().is_empty(), "nothing is told of what made room");
    spools.finish(JOB, Outcome::Success, 0);
    let end = ClientReply::Ended { job: JOB, outcome: Outcome::Success, not_kept: 0 };
    assert_eq!(live.recv().await, Some(end.clone()));
    assert_eq!(all(&mut spools, 12, true).await, [end]);
}

/// Also if what waited in memory was not on the disk yet: nothing is told of the job that is over.
#[tokio::test(flavor = "current_thread")]
async fn output_that_made_room_is_not_written_again() {
    let dir = tempfile::tempdir().unwrap();
    let mut spools = open(dir.path(), SpoolQuota::new(Quotas::default(), 0));
    spools.know(&record(JOB, JobState::Running));
    put(&mut spools, 0, b"one");
    spools.reserve.set_missing("a test");
    assert_eq!(not_kept(put(&mut spools, 0, b"two")).0, 3);
    spools.know(&record(JOB, ended()));
    spools.reserve.set_held();
    assert!(spools.write_again().is_empty());
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

/// What the disk takes of a job after its end counts for its user, and among jobs that are over.
#[test]
fn a_job_that_ended_without_output_is_still_its_users() {
    let dir = tempfile::tempdir().unwrap();
    let mut spools = open(dir.path(), SpoolQuota::new(Quotas::default(), 0));
    spools.know(&record(JOB, JobState::Running));
    spools.reserve.set_missing("a test");
    put(&mut spools, 0, b"one");
    spools.know(&record(JOB, ended()));
    spools.finish(JOB, Outcome::Success, 3);
    spools.reserve.set_held();
    spools.write_again();
    assert!(spools.quota.bytes(JOB) > 0);
    assert_eq!(spools.quota.excess(), [JOB]);
    spools.know(&record(JobId(5), ended()));
    assert_eq!(spools.quota.bytes(JOB), 0);
}

/// Streams have come as far as the segments say that can be read.
#[test]
fn an_unreadable_last_segment_takes_only_its_own_output() {
    let dir = tempfile::tempdir().unwrap();
    let mut spools = open(dir.path(), quota_of(1, 100));
    let starts = || {
        let names = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
        let mut starts: Vec<_> = names.filter_map(|path| Some(name_of(&path)?.1)).collect();
        starts.sort_unstable();
        starts
    };
    let mut written = 0;
    while starts().len() < 3 {
        put(&mut spools, 0, &vec![b'x'; 60_000]);
        written += 60_000;
    }
    drop(spools);
    let last = dir.path().join(format!("4.{}", starts()[2]));
    let mut bytes = fs::read(&last).unwrap();
    bytes[8] ^= 1;
    fs::write(&last, bytes).unwrap();
    assert_eq!(open(dir.path(), quota()).streams(JOB), [(0, Stream::Out, written - 60_000)]);
}

/// Its task runs on the head's main loop, which has others to serve.
#[test]
fn who_follows_from_far_back_passes_over_little_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let mut spools = open(dir.path(), quota_of(1_000, 1_000));
    let piece = vec![b'x'; 60_000];
    for _ in 0..100 {
        put(&mut spools, 0, &piece);
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "all of it is in one segment");
    let log = spools.spool(JOB).writer.log().clone();
    let begin = log.lock().end() - 60_009;
    let mut reader = Reader::new(dir.path(), JOB, log, begin);
    let (mut last, mut steps) = (0, 0);
    while reader.next().unwrap() == reader::Step::Passed {
        assert!(reader.offset() - last < 400_000, "{}", reader.offset() - last);
        (last, steps) = (reader.offset(), steps + 1);
    }
    assert!(steps > 15 && reader.at() == begin, "{steps}");
}

/// Damages the header of a segment. Returns what it is then.
fn damage(path: &Path) -> Vec<u8> {
    let mut bytes = fs::read(path).unwrap();
    bytes[8] ^= 1;
    fs::write(path, &bytes).unwrap();
    bytes
}

/// A new head writes where the last one did not get to, which is where another head before it may have written.
#[tokio::test(flavor = "current_thread")]
async fn nothing_is_written_over_what_could_not_be_read() {
    for readable_before in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        if readable_before {
            put(&mut open(dir.path(), quota()), 0, b"first");
        }
        put(&mut open(dir.path(), quota()), 0, b"second");
        let names = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
        let last = names.max_by_key(|path| name_of(path).map(|(_, start)| start)).unwrap();
        let damaged = damage(&last);
        let aside = last.with_file_name(format!(
            "{}.unreadable",
            last.file_name().and_then(|name| name.to_str()).unwrap()
        ));
        let mut spools = open(dir.path(), quota());
        let read = if readable_before { 5 } else { 0 };
        assert_eq!(spools.streams(JOB).iter().map(|stream| stream.2).sum::<u64>(), read);
        // It is said at once, before anything more comes.
        let (bytes, reason) = not_kept(spools.write_again());
        assert!(bytes >= 6 && reason.contains("cannot be read"), "{bytes} {reason}");
        assert!(spools.write_again().is_empty(), "once");
        // The node sends again what it has: all of it was acknowledged before.
        spools.keep(JOB, (0, Stream::Out), read + 6, b"third");
        assert_eq!(fs::read(&aside).unwrap(), damaged);
        let (shown, lost) = sums(&all(&mut spools, 0, false).await);
        assert_eq!((shown, lost), (read + 5, bytes), "what is missing is counted once");
        drop(spools);
        // The next head knows of it and counts it no more.
        let mut spools = open(dir.path(), quota());
        assert!(news(put(&mut spools, 0, b"fourth")).is_none());
        assert_eq!(fs::read(&aside).unwrap(), damaged);
        assert_eq!(sums(&all(&mut spools, 0, false).await), (read + 11, bytes));
        spools.discard(JOB);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "nor is it left behind");
        // Nor that of a job that is not known any more.
        fs::write(dir.path().join("9.7.unreadable"), "x").unwrap();
        Spools::open(dir.path().to_owned(), |_| false, quota(), owners()).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}

/// Whoever looks at very many jobs of an earlier head does not fill the memory of this one.
#[test]
fn the_state_of_jobs_of_an_earlier_head_is_forgotten() {
    let dir = tempfile::tempdir().unwrap();
    let jobs = 1..2 * REMEMBERED as u64;
    for job in jobs.clone() {
        let frame = frame(0, Stream::Out, b"whole").unwrap();
        fs::write(dir.path().join(format!("{job}.0")), frame).unwrap();
    }
    let mut spools = open(dir.path(), quota());
    let records: Vec<_> = jobs.clone().map(|job| record(JobId(job), ended())).collect();
    spools.know_all(&records);
    for _ in 0..2 {
        for job in jobs.clone() {
            assert_eq!(spools.part(JobId(job), None)().unwrap().pieces.len(), 1);
        }
        assert!(spools.spools.len() <= REMEMBERED + 1, "{}", spools.spools.len());
    }
}

/// How many files of this process have this name.
fn open_files(path: &Path) -> usize {
    let files = fs::read_dir("/proc/self/fd").unwrap().filter_map(Result::ok);
    files.filter(|file| fs::read_link(file.path()).is_ok_and(|target| target == path)).count()
}

#[test]
fn no_file_stays_open_of_a_job_that_is_over() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().canonicalize().unwrap().join("4.0");
    let mut spools = open(dir.path(), quota());
    spools.reserve.set_missing("a test");
    put(&mut spools, 0, b"one");
    spools.finish(JOB, Outcome::Success, 3);
    spools.reserve.set_held();
    spools.write_again();
    assert!(path.exists());
    // Its thread closes it before it does the next thing.
    spools.disk.perform(DiskOperation::NeedRoom(dir.path().to_owned())).unwrap();
    assert_eq!(open_files(&path), 0);
    put_of(&mut spools, JobId(5), 0, b"one");
    assert_eq!(open_files(&path.with_file_name("5.0")), 1, "of one that runs");
}

/// Output leaves so much free that the reserve comes back when others have freed the disk, also with the next head.
#[test]
fn a_disk_full_of_output_has_room_for_the_reserve() {
    kumi_small_disk::on_a_small_disk(64 << 20, |disk| {
        let path = disk.join("reserve");
        let owner = reserve::DiskReserve::open(path.clone());
        let owners = (Rc::default(), Rc::clone(owner.held()));
        let mut spools = Spools::open(disk.join("spool"), |_| true, quota(), owners).unwrap();
        let piece = vec![b'x'; 60_000];
        while news(put(&mut spools, 0, &piece)).is_none() {}
        assert!(owner.held().is_held() && owner.release());
        owner.renew();
        assert_eq!(owner.held().reason(), None);
        assert!(reserve::DiskReserve::open(path).held().is_held(), "the next head's");
    });
}

/// Both starts of a job write from the beginning of each stream, and the next head knows which it has.
#[tokio::test(flavor = "current_thread")]
async fn a_restart_is_marked_and_streams_begin_anew() {
    let dir = tempfile::tempdir().unwrap();
    let mut spools = open(dir.path(), quota());
    put(&mut spools, 0, b"first");
    assert!(spools.mark_restart(JOB, 1, "node n1 was lost").is_none());
    assert_eq!(spools.streams(JOB), []);
    spools.keep(JOB, (0, Stream::Out), 0, b"second");
    for _ in 0..2 {
        let got = all(&mut spools, 0, false).await;
        assert_eq!(sums(&got), (11, 0), "{got:?}");
        let ClientReply::StartedAgain { restarts: 1, reason, .. } = &got[1] else {
            panic!("{got:?}")
        };
        assert_eq!(reason, "node n1 was lost");
        assert_eq!(spools.streams(JOB), [(0, Stream::Out, 6)]);
        assert_eq!(spools.spool(JOB).writer.restarts(), 1);
        spools = open(dir.path(), quota());
    }
}
