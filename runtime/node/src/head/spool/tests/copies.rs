//! Copies of logs at another head.

use std::collections::BTreeMap;

use kumi_control::copying::{CopiedJob, CopyDown, LogPlace};

use super::*;
use crate::head::spool::aside;
use crate::head::spool::standby::CopyFailure;
use crate::head::state::TermOutput;

fn begin(spools: &mut Spools, number: u64, written: &[(JobId, WrittenOutput)]) {
    let written: BTreeMap<_, _> = written.iter().copied().collect();
    spools.begin_term(TermOutput { number, written });
}

/// A head that leads in this term, and one that waits.
struct Two {
    dirs: [tempfile::TempDir; 2],
    leader: Spools,
    standby: Spools,
    term: u64,
    at: CopyPosition,
}

impl Two {
    fn start() -> Self {
        let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let mut leader = open(dirs[0].path(), quota());
        begin(&mut leader, 1, &[]);
        let standby = open(dirs[1].path(), quota());
        Self { dirs, leader, standby, term: 1, at: CopyPosition::default() }
    }

    /// The standby says what it has, and what the leader has not goes.
    fn connect(&mut self) {
        for log in self.standby.copied_logs() {
            let (end, cut) = self.leader.compare(&log);
            self.at = CopyPosition::at(end);
            if cut {
                take(&mut self.standby, self.term, CopyDown::Cut { job: log.job, end }).unwrap();
            }
        }
    }

    /// The standby takes all that there is. Returns how many messages it took.
    fn copy(&mut self) -> usize {
        let mut count = 0;
        let log = self.leader.log(JOB).0;
        let mut copy = LogCopy::new(JOB, log, self.at);
        let folder = self.leader.folder.clone();
        while !copy.is_whole() {
            for message in copy.next(&folder) {
                take(&mut self.standby, self.term, message).unwrap();
                count += 1;
            }
        }
        self.at = copy.position();
        count
    }

    /// The leader's machine is gone, and the standby leads.
    fn take_over(self, written: &[(JobId, WrittenOutput)]) -> (Spools, [tempfile::TempDir; 2]) {
        drop((self.leader, self.standby));
        let mut leader = open(self.dirs[1].path(), quota());
        begin(&mut leader, self.term + 1, written);
        (leader, self.dirs)
    }
}

fn take(standby: &mut Spools, term: u64, message: CopyDown) -> Result<u64, CopyFailure> {
    let never = || false;
    match message {
        CopyDown::Place(job, place) => standby.copy_place(job, term, &place),
        CopyDown::Cut { job, end } => standby.copy_cut(job, end, &never).map(|()| end),
        CopyDown::Frames { job, offset, frames } => {
            standby.copy_frames(job, offset, &frames, &never)
        }
        other => panic!("{other:?}"),
    }
}

fn sorted(mut streams: Vec<(u32, Stream, u64)>) -> Vec<(u32, Stream, u64)> {
    streams.sort_unstable();
    streams
}

#[tokio::test(flavor = "current_thread")]
async fn a_head_that_has_copies_leads_without_a_mark() {
    let mut two = Two::start();
    put(&mut two.leader, 0, b"first");
    put(&mut two.leader, 1, b"of another");
    two.copy();
    put(&mut two.leader, 0, b"second");
    two.leader.mark_restart(JOB, 1, "a node was lost");
    put(&mut two.leader, 1, b"third");
    two.leader.keep(JOB, (0, Stream::Err), 7, b"behind a gap");
    two.leader.keep(JOB, (2, Stream::Out), 9, b"");
    two.copy();
    let written = two.leader.written(|_| true);
    let streams = sorted(two.leader.streams(JOB));
    let replies = all(&mut two.leader, 0, false).await;
    let offset = match &replies[2] {
        ClientReply::Output { data, offset, .. } if data == b"second" => *offset,
        other => panic!("{other:?}"),
    };
    let rest = all(&mut two.leader, offset, false).await;
    let (mut leader, _dirs) = two.take_over(&written);
    assert_eq!(all(&mut leader, 0, false).await[..7], replies[..7], "offsets are the same");
    assert_eq!(all(&mut leader, offset, false).await[..4], rest[..4], "followers go on");
    assert_eq!(sums(&all(&mut leader, 0, false).await).1, 16, "no more than was missing before");
    // What never came at the end stands in no segment.
    let known: Vec<_> = streams.into_iter().filter(|&(rank, ..)| rank != 2).collect();
    assert_eq!(sorted(leader.streams(JOB)), known);
    assert_eq!(leader.spool(JOB).writer.restarts(), 1);
}

/// A head that has led comes back with what it had not acknowledged, and nodes have sent it again.
#[tokio::test(flavor = "current_thread")]
async fn what_was_not_acknowledged_is_cut_off() {
    let mut two = Two::start();
    put(&mut two.leader, 0, b"kept");
    two.copy();
    let written = two.leader.written(|_| true);
    put(&mut two.leader, 0, b" and not");
    put(&mut two.leader, 1, b"acknowledged");
    let (mut leader, dirs) = two.take_over(&written);
    put(&mut leader, 0, b" and not");
    let whole = all(&mut leader, 0, false).await;
    assert_eq!(sums(&whole), (12, 0), "{whole:?}");
    // The one that led waits.
    let mut standby = open(dirs[0].path(), quota());
    assert_eq!(standby.latest_term(), 1);
    let mut two = Two { dirs, leader, standby, term: 2, at: CopyPosition::default() };
    two.connect();
    two.copy();
    assert_eq!(all(&mut two.standby, 0, false).await, whole);
    let streams = sorted(two.leader.streams(JOB));
    assert_eq!(sorted(two.standby.streams(JOB)), streams);
    let written = two.leader.written(|_| true);
    drop((two.leader, two.standby));
    let mut again = open(two.dirs[0].path(), quota());
    begin(&mut again, 3, &written);
    assert_eq!(sums(&all(&mut again, 0, false).await), (12, 0));
    assert_eq!(sorted(again.streams(JOB)), streams);
}

/// One that led in between has logged what a third head has never heard of, which leads now: the same bytes under other offsets.
#[tokio::test(flavor = "current_thread")]
async fn what_another_leader_has_logged_meanwhile_is_cut_off() {
    let mut two = Two::start();
    put(&mut two.leader, 0, b"kept");
    two.copy();
    put(&mut two.leader, 0, b"copied late");
    let third = tempfile::tempdir().unwrap();
    for file in fs::read_dir(two.dirs[0].path()).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), third.path().join(file.file_name())).unwrap();
    }
    let (mut second, dirs) = two.take_over(&[]);
    put(&mut second, 0, b"copied late");
    put(&mut second, 0, b" and more");
    drop(second);
    let mut leader = open(third.path(), quota());
    begin(&mut leader, 3, &[]);
    put(&mut leader, 0, b" and other things");
    let whole = all(&mut leader, 0, false).await;
    assert_eq!(sums(&whole), (32, 0));
    let standby = open(dirs[1].path(), quota());
    let mut two = Two { dirs, leader, standby, term: 3, at: CopyPosition::default() };
    two.connect();
    two.copy();
    assert_eq!(all(&mut two.standby, 0, false).await, whole);
    assert_eq!(two.standby.streams(JOB), two.leader.streams(JOB));
}

/// A head that lacked output and has marked it has the one that comes back keep it.
#[tokio::test(flavor = "current_thread")]
async fn what_the_leader_lacks_and_has_marked_stays_at_the_standby() {
    let mut two = Two::start();
    put(&mut two.leader, 0, b"only there");
    let written = two.leader.written(|_| true);
    let (mut leader, dirs) = two.take_over(&written);
    leader.keep(JOB, (0, Stream::Out), 10, b" and later");
    assert_eq!(sums(&all(&mut leader, 0, false).await), (10, 10));
    let standby = open(dirs[0].path(), quota());
    let mut two = Two { dirs, leader, standby, term: 2, at: CopyPosition::default() };
    two.connect();
    two.copy();
    assert_eq!(sums(&all(&mut two.standby, 0, false).await), (20, 0));
}

/// The end of a copy is nowhere in the log if its last segment is damaged. It goes on with the next whole frame.
#[tokio::test(flavor = "current_thread")]
async fn a_copy_goes_on_with_a_whole_frame() {
    let mut two = Two::start();
    for piece in [&b"one"[..], b"two", b"three"] {
        put(&mut two.leader, 0, piece);
    }
    let begin = two.leader.log(JOB).1 - 5 - 9 - 2 * (3 + 9);
    two.at = CopyPosition::at(begin + 4);
    two.copy();
    let got = all(&mut two.standby, 0, false).await;
    assert_eq!(sums(&got), (8, 3), "{got:?}");
    assert_eq!(two.standby.streams(JOB), [(0, Stream::Out, 11)]);
}

/// What waits in memory is copied, too.
#[tokio::test(flavor = "current_thread")]
async fn output_that_the_disk_of_the_leader_does_not_take_is_copied() {
    let mut two = Two::start();
    put(&mut two.leader, 0, b"on the disk");
    two.leader.reserve.set_missing("for a test");
    put(&mut two.leader, 0, b" in memory");
    put(&mut two.leader, 1, b"too");
    two.copy();
    assert_eq!(sums(&all(&mut two.standby, 0, false).await), (24, 0));
    let streams = sorted(two.leader.streams(JOB));
    let (mut leader, _dirs) = two.take_over(&[]);
    assert_eq!(sums(&all(&mut leader, 0, false).await), (24, 0));
    assert_eq!(sorted(leader.streams(JOB)), streams);
}

/// Rings have the same length, and long logs go in parts.
#[tokio::test(flavor = "current_thread")]
async fn a_copy_has_the_last_of_a_long_log() {
    let mut two = Two::start();
    let quotas = || Quotas { spool_mib_per_job: 2, ..Quotas::default() };
    two.leader.quota = SpoolQuota::new(quotas(), 1_000);
    two.standby.quota = SpoolQuota::new(quotas(), 1_000);
    let piece = vec![b'x'; 100_000];
    for _ in 0..30 {
        put(&mut two.leader, 0, &piece);
    }
    assert!(two.copy() > 6, "it goes in parts");
    let (kept, lost) = sums(&all(&mut two.standby, 0, false).await);
    assert_eq!(kept + lost, 3_000_000);
    assert!(kept > 1_500_000, "{kept}");
    assert_eq!(two.standby.streams(JOB), two.leader.streams(JOB));
    assert!(two.standby.counts.spool_bytes.get() <= 2 << 20);
}

#[test]
fn a_leader_cannot_write_where_it_may_not() {
    let mut two = Two::start();
    put(&mut two.leader, 0, b"first");
    two.copy();
    let (log, end) = two.standby.log(JOB);
    let place = |offset, before| LogPlace { offset, before, restarts: None, positions: Vec::new() };
    let whole = frame(0, Stream::Out, b"more").unwrap();
    let frames =
        |offset, frames: &[u8]| CopyDown::Frames { job: JOB, offset, frames: frames.into() };
    for bad in [
        CopyDown::Place(JOB, place(end - 1, 5)),
        CopyDown::Place(JOB, place(2 << 40, 5)),
        frames(end - 1, &whole),
        frames(end + 1, &whole),
        frames(end, &whole[..whole.len() - 1]),
        frames(end, &[9; 20]),
        frames(end, &[]),
    ] {
        let refused = take(&mut two.standby, 1, bad.clone());
        let is_right = matches!(refused, Err(CopyFailure::Place(_) | CopyFailure::Frames(_)));
        assert!(is_right, "{bad:?}: {refused:?}");
        assert_eq!(log.lock().end(), end, "{bad:?}");
    }
    assert!(take(&mut two.standby, 1, frames(end, &whole)).is_ok());
}

#[test]
fn news_tell_what_standbys_are_to_know() {
    let dir = tempfile::tempdir().unwrap();
    let mut spools = open(dir.path(), quota());
    put(&mut spools, 0, b"nobody wants to know");
    assert!(spools.take_news().extended.is_empty());
    spools.begin_news();
    put(&mut spools, 0, b"somebody does");
    let known = CopiedJob { job: JOB, uid: 7, over: false };
    spools.know_job(known);
    let news = spools.take_news();
    assert_eq!((news.extended, news.known), ([JOB].into(), BTreeMap::from([(JOB, known)])));
    put(&mut spools, 0, b"more");
    spools.discard(JOB);
    let news = spools.take_news();
    assert_eq!((news.extended, news.discarded), (BTreeSet::new(), [JOB].into()));
    // A standby removes what it has of other jobs.
    put(&mut spools, 0, b"again");
    spools.retain(&[JobId(9)].into());
    assert_eq!((spools.jobs(), fs::read_dir(dir.path()).unwrap().count()), (BTreeSet::new(), 0));
}

/// A user's share is the same everywhere: what is too much is dropped here as there, and holds up nothing.
#[tokio::test(flavor = "current_thread")]
async fn a_share_that_is_full_holds_up_no_copy() {
    let mut two = Two::start();
    let mut full = quota_of(1, 1);
    full.know(JobId(9), 1000, false);
    full.set(JobId(9), 1 << 20);
    two.standby.quota = full;
    put(&mut two.leader, 0, b"too much");
    two.copy();
    assert_eq!(sums(&all(&mut two.standby, 0, false).await), (0, 8));
    assert_eq!(two.standby.streams(JOB), [(0, Stream::Out, 8)]);
}

impl Two {
    /// The standby begins again, with another segment.
    fn restart_standby(&mut self) {
        self.standby = open(self.dirs[1].path(), quota());
        self.standby.begin_copies();
        self.at = CopyPosition::default();
    }

    /// The segments that the standby has, in order.
    fn segments(&self) -> Vec<std::path::PathBuf> {
        let entries = fs::read_dir(self.dirs[1].path()).unwrap();
        let mut found: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        found.sort_by_key(|path| aside::name_of(path).or(name_of(path)).unwrap());
        found
    }

    /// A log of three pieces, each of which the standby has in a segment of its own.
    fn with_three_segments() -> Self {
        let mut two = Self::start();
        for piece in [&b"one"[..], b"two", b"three"] {
            two.restart_standby();
            put(&mut two.leader, 0, piece);
            two.connect();
            two.copy();
        }
        assert_eq!(two.segments().len(), 3);
        two
    }
}

/// What a standby cannot read at the end of a log is copied again, and nothing else: so it need not leave the list for that.
#[tokio::test(flavor = "current_thread")]
async fn a_damaged_end_of_a_copy_is_copied_again() {
    for damaged in 0..3 {
        let mut two = Two::with_three_segments();
        let segments = two.segments();
        segments[damaged..].iter().for_each(|path| drop(damage(path)));
        for _ in 0..2 {
            two.restart_standby();
            assert_eq!(two.standby.damaged_copies(), []);
            two.connect();
            two.copy();
            assert_eq!(sums(&all(&mut two.standby, 0, false).await), (11, 0), "{damaged}");
            assert_eq!(two.standby.streams(JOB), [(0, Stream::Out, 11)]);
        }
        assert!(two.segments().iter().any(|path| aside::name_of(path).is_some()), "moved aside");
        let written = two.leader.written(|_| true);
        let (mut leader, _dirs) = two.take_over(&written);
        assert_eq!(sums(&all(&mut leader, 0, false).await), (11, 0), "{damaged}");
    }
}

/// Behind a damaged segment there may be what nobody else has. So a standby says what it has before it, and removes the rest only when it is told to.
#[tokio::test(flavor = "current_thread")]
async fn a_copy_with_a_hole_is_said_to_end_there_and_dropped_behind_it() {
    for damaged in 0..2 {
        let mut two = Two::with_three_segments();
        let whole = two.standby.copied_logs();
        let before = two.segments();
        damage(&before[damaged]);
        for _ in 0..2 {
            two.restart_standby();
            assert_eq!(two.standby.damaged_copies(), [JOB]);
            let [log] = &two.standby.copied_logs()[..] else { panic!("one log") };
            let (_, start) = name_of(&before[damaged]).unwrap();
            assert_eq!(log.ends, if damaged == 0 { vec![] } else { vec![start] });
            assert_eq!(two.segments().len(), 3, "all is still there");
        }
        two.standby.drop_damage(JOB, &|| false).unwrap();
        assert_eq!(two.segments(), before[..damaged]);
        assert_eq!(two.standby.damaged_copies(), []);
        two.connect();
        two.copy();
        assert_eq!(two.standby.copied_logs(), whole);
        assert_eq!(sums(&all(&mut two.standby, 0, false).await), (11, 0));
        two.restart_standby();
        assert_eq!((two.standby.damaged_copies(), two.standby.copied_logs()), (vec![], whole));
    }
}

/// What only the leader's disk has a quarrel with is no job for others.
#[test]
fn output_that_the_disk_of_the_leader_does_not_remove_is_removed_elsewhere() {
    let dir = tempfile::tempdir().unwrap();
    // A folder is no file that can be removed.
    let folder = dir.path().join(format!("{JOB}.7.unreadable"));
    fs::create_dir(&folder).unwrap();
    let mut spools = open(dir.path(), quota());
    spools.begin_news();
    put(&mut spools, 0, b"some output");
    assert!(spools.jobs().contains(&JOB));
    spools.take_news();
    spools.discard(JOB);
    assert!(folder.exists());
    assert_eq!(spools.jobs(), BTreeSet::new());
    let news = spools.take_news();
    assert_eq!((news.extended, news.discarded), (BTreeSet::new(), [JOB].into()));
    spools.write_again();
    assert_eq!(spools.take_news().discarded, BTreeSet::new(), "once");
    drop(spools);
    // The next head that leads finds it, and goes on.
    let mut spools = Spools::open(dir.path().to_owned(), |_| false, quota(), owners()).unwrap();
    spools.begin_news();
    assert_eq!(spools.jobs(), BTreeSet::new());
    fs::remove_dir(&folder).unwrap();
    fs::write(&folder, "a file").unwrap();
    spools.write_again();
    assert!(!folder.exists());
}
