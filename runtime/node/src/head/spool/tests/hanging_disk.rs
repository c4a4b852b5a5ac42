//! Tests of spools on a disk that does not answer.

use super::*;

/// What stands for a disk that hangs: whoever opens it for writing waits for a reader.
fn hang(dir: &Path) {
    nix::unistd::mkfifo(&dir.join("4.0"), nix::sys::stat::Mode::S_IRWXU).unwrap();
}

/// Until the disk hangs in the first segment: what comes before that may take more than a moment, too.
fn reach_the_hang(spools: &mut Spools) {
    let segment = spools.folder.join("4.0");
    let end = std::time::Instant::now() + std::time::Duration::from_secs(120);
    while !spools.disk.may_begin(&segment) {
        assert!(std::time::Instant::now() < end, "the segment is not begun");
        assert!(spools.write_again().is_empty(), "neither taken nor lost");
    }
}

/// Until everything of all jobs is on the disk.
async fn settle(spools: &mut Spools) -> Vec<HeadEvent> {
    let mut events = Vec::new();
    let end = std::time::Instant::now() + std::time::Duration::from_secs(120);
    while spools.spools.values().any(|spool| spool.writer.needs().is_some()) {
        assert!(std::time::Instant::now() < end, "the disk does not go on");
        let _ = tokio::time::timeout(std::time::Duration::from_millis(20), spools.progress()).await;
        events.extend(spools.write_again());
    }
    events
}

/// The job waits for the disk, and nobody else does: followers get what has come, and nothing is lost.
#[tokio::test(flavor = "current_thread")]
async fn a_disk_that_does_not_answer_holds_up_its_job_only() {
    let dir = tempfile::tempdir().unwrap();
    let mut spools = open(dir.path(), quota());
    spools.disk.set_moment(std::time::Duration::from_millis(1));
    hang(dir.path());
    let (client, mut live) = mpsc::channel(1);
    tokio::spawn(spools.follow(JOB, 0, (true, false), client));
    assert!(put(&mut spools, 0, b"one").is_empty(), "neither taken nor lost");
    reach_the_hang(&mut spools);
    assert!(put_of(&mut spools, JobId(5), 0, b"another").is_empty());
    assert_eq!(live.recv().await, Some(output(0, b"one", 12)));
    assert!(spools.release().is_empty());
    // It goes on. A pipe cannot be written at a place, so a file is made then.
    let pipe = dir.path().join("4.0");
    let other_end = OpenOptions::new().read(true).write(true).open(pipe).unwrap();
    let events = settle(&mut spools).await;
    drop(other_end);
    let taken = |events: &[HeadEvent], job| {
        events.iter().any(|event| matches!(event, HeadEvent::Spooled { job: it } if *it == job))
    };
    let events = [events, spools.write_again()].concat();
    assert!(taken(&events, JOB) && taken(&events, JobId(5)), "{events:?}");
    assert_eq!(spools.spool(JOB).writer.not_kept(), 0);
    let got = all(&mut spools, 0, false).await;
    assert_eq!(got, [output(0, b"one", 12), ClientReply::Done]);
    let mut spools = open(dir.path(), quota());
    assert_eq!(all(&mut spools, 0, false).await, got, "it is on the disk");
}

/// Then the job goes on as with a disk that takes nothing.
#[tokio::test(flavor = "current_thread")]
async fn a_disk_that_does_not_answer_for_long_takes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut spools = open(dir.path(), quota());
    spools.disk.set_moment(std::time::Duration::from_millis(1));
    hang(dir.path());
    let piece = vec![b'x'; MAX_PIECE];
    for _ in 0..6 {
        assert!(put(&mut spools, 0, &piece).is_empty(), "all is in memory");
        reach_the_hang(&mut spools);
    }
    spools.disk.age();
    let events = spools.write_again();
    assert!(events.iter().any(|event| matches!(event, HeadEvent::Spooled { .. })), "{events:?}");
    let (bytes, reason) = not_kept(events);
    assert!(
        bytes == 6 * MAX_PIECE as u64 && reason.contains("does not answer"),
        "{bytes} {reason}"
    );
    // It is bounded now, and what is dropped is marked.
    put(&mut spools, 0, b"more");
    let (shown, lost) = sums(&all(&mut spools, 0, false).await);
    assert_eq!(shown + lost, 6 * MAX_PIECE as u64 + 4);
    assert!(lost > 0, "{lost}");
    let pipe = dir.path().join("4.0");
    let other_end = OpenOptions::new().read(true).write(true).open(pipe).unwrap();
    settle(&mut spools).await;
    drop(other_end);
    assert_eq!(spools.spool(JOB).writer.not_kept(), lost);
    assert_eq!(sums(&all(&mut spools, 0, false).await), (shown, lost));
    let mut spools = open(dir.path(), quota());
    assert_eq!(sums(&all(&mut spools, 0, false).await), (shown, lost), "nothing else is left");
}

/// Output of a job that is not known any more goes when the disk goes on.
#[tokio::test(flavor = "current_thread")]
async fn what_a_disk_does_not_remove_in_time_is_removed_later() {
    let dir = tempfile::tempdir().unwrap();
    let mut spools = open(dir.path(), quota());
    put_of(&mut spools, JobId(5), 0, b"another");
    spools.finish(JobId(5), Outcome::Success, 0);
    spools.disk.set_moment(std::time::Duration::from_millis(1));
    hang(dir.path());
    put(&mut spools, 0, b"one");
    reach_the_hang(&mut spools);
    spools.discard(JobId(5));
    assert!(dir.path().join("5.0").exists());
    let other_end = OpenOptions::new().read(true).write(true).open(dir.path().join("4.0")).unwrap();
    let end = std::time::Instant::now() + std::time::Duration::from_secs(120);
    while dir.path().join("5.0").exists() || !spools.discarded.is_empty() {
        assert!(std::time::Instant::now() < end, "it is left");
        spools.write_again();
    }
    drop(other_end);
}

/// However many jobs write while the disk hangs: what does not find room is marked, and the jobs go on.
#[tokio::test(flavor = "current_thread")]
async fn the_output_of_all_jobs_together_has_a_bound_in_memory() {
    let dir = tempfile::tempdir().unwrap();
    let mut spools = open(dir.path(), quota());
    let most = 6 << 20;
    spools.memory = WaitingMemory::of(most);
    spools.disk.set_moment(std::time::Duration::from_millis(1));
    hang(dir.path());
    let piece = vec![b'x'; MAX_PIECE / 2];
    put(&mut spools, 0, &piece);
    reach_the_hang(&mut spools);
    for _ in 0..4 {
        for job in 4..10 {
            put_of(&mut spools, JobId(job), 0, &piece);
        }
    }
    let memory = spools.memory.bytes();
    let least = 6 * memory::LEAST;
    assert!(memory > most / 2 && memory <= most + least, "{memory}");
    // Nothing goes without a mark, and what there was room for stays.
    for job in 4..10 {
        let log = spools.spool(JobId(job)).writer.log().lock();
        assert_eq!(log.written().bytes, (4 + u64::from(job == 4)) * piece.len() as u64);
    }
    let (shown, lost) = sums(&all(&mut spools, 0, false).await);
    assert_eq!(shown + lost, 5 * piece.len() as u64);
    assert!(lost > 0, "it wrote when there was no more room");
    spools.disk.age();
    let told = spools.write_again();
    let of_this = told
        .iter()
        .any(|event| matches!(event, HeadEvent::NotKept { job: JOB, bytes, .. } if *bytes >= lost));
    assert!(of_this, "{told:?}");
    // It goes on, and has nothing to keep any more.
    let other_end = OpenOptions::new().read(true).write(true).open(dir.path().join("4.0")).unwrap();
    let end = std::time::Instant::now() + std::time::Duration::from_secs(120);
    while spools.memory.bytes() > 0 {
        assert!(std::time::Instant::now() < end, "{}", spools.memory.bytes());
        let moment = std::time::Duration::from_millis(20);
        let _ = tokio::time::timeout(moment, spools.progress()).await;
        spools.write_again();
    }
    drop(other_end);
}
