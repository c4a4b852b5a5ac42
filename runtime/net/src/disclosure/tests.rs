use std::io::{Read, Seek, Write};
use std::os::fd::OwnedFd;

use super::*;

fn pages(ranks: u32) -> (NodePage, JobPage, DisclosedPages) {
    let node = NodePage::create(1, 3, 2).unwrap();
    let job = JobPage::create(7, ranks, [(1, 0..2), (2, 2..ranks)]).unwrap();
    let disclosed = open(&node, &job);
    (node, job, disclosed)
}

fn open(node: &NodePage, job: &JobPage) -> DisclosedPages {
    let [node, job] = [node.as_fd(), job.as_fd()].map(|fd| fd.try_clone_to_owned().unwrap());
    DisclosedPages::open(&node, &job).unwrap()
}

fn slot(job: u64, runnable: &[usize]) -> JobSlot {
    JobSlot { job, ranks: 4, runnable: runnable.to_vec() }
}

fn bytes(fd: std::os::fd::BorrowedFd<'_>) -> Vec<u8> {
    let mut file = std::fs::File::from(fd.try_clone_to_owned().unwrap());
    let mut all = Vec::new();
    file.rewind().unwrap();
    file.read_to_end(&mut all).unwrap();
    all
}

const LOAD: NodeLoad = NodeLoad {
    processors: 2,
    runnable: 3,
    jobs: 1,
    busy_permille: 750,
    memory_used: 0x0102,
    memory_total: 0x0304,
    network_bytes: 0x0506,
    age_us: 0,
};

#[test]
#[cfg_attr(miri, ignore = "files cannot be read there")]
fn the_bytes_are_those_of_the_protocol() {
    let (node, job, _) = pages(3);
    node.set_turns([7, 0x0102].into_iter(), false);
    job.set_turn(Turn::Filled);
    node.set_jobs(&[slot(7, &[0, 65])]);
    node.set_node(2, 0xabcd, &LOAD);
    assert!(job.set_rank(2, 2, RankState::Idle, 5_000));
    let all = bytes(node.as_fd());
    assert_eq!(all.len(), 64 + 8_192 + 64 * 192 + 3 * 64);
    assert_eq!(&all[..12], b"KUMINOD\x01\x02\0\0\0");
    assert_eq!(
        &all[12..40],
        [1, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
    );
    assert_eq!(
        all[64..88],
        [8, 0, 0, 0, 0, 0, 0, 0, 3, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
    );
    let slots = 64 + 8_192;
    assert_eq!(
        &all[slots..slots + 32],
        [
            8, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0,
            0, 0, 0
        ]
    );
    let entry = &all[slots + 64 * 192 + 2 * 64..];
    let words: Vec<u64> =
        entry.chunks(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap())).collect();
    assert_eq!(words, [2, 0xabcd, 2 << 32 | 3, 1 << 32 | 750, 0x0102, 0x0304, 0x0506, 0]);
    let all = bytes(job.as_fd());
    assert_eq!(&all[..24], b"KUMIJOB\x01\x02\0\0\0\x03\0\0\0\x07\0\0\0\0\0\0\0");
    assert_eq!(all[24..40], [0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(
        &all[64..],
        [0x10, 0, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0, 0, 0x22, 0, 0, 5, 0, 0, 0, 0]
    );
}

#[test]
fn what_was_written_is_read() {
    let (node, job, seen) = pages(5);
    assert_eq!((seen.nodes(), seen.own(), seen.job()), (3, 1, 7));
    assert!(!seen.scheduled());
    assert_eq!((seen.node(2), seen.node(3)), (None, None));
    node.set_node(2, sys_now(), &LOAD);
    node.set_node(3, 1, &LOAD);
    let load = seen.node(2).unwrap();
    assert!(load.age_us < 60_000_000);
    assert_eq!(NodeLoad { age_us: 0, ..load }, LOAD);
    assert_eq!(seen.rank(4), Some(RankReport { node: 2, state: RankState::Unknown, age_us: None }));
    assert_eq!(seen.rank(5), None);
    // Only a rank's own node says what it does.
    assert!(!job.set_rank(4, 1, RankState::Idle, 5));
    assert!(!job.set_rank(5, 2, RankState::Idle, 5));
    assert!(job.set_rank(4, 2, RankState::Stopped, sys_now()));
    let known = seen.rank(4).unwrap();
    assert_eq!((known.node, known.state), (2, RankState::Stopped));
    assert!(known.age_us.is_some());
}

fn sys_now() -> u64 {
    crate::sys::now()
}

#[test]
fn jobs_keep_their_slots_and_those_without_one_are_added_up() {
    let (node, _job, seen) = pages(2);
    node.set_turns([8, 6].into_iter(), false);
    node.set_jobs(&[slot(7, &[0]), slot(8, &[1, 2])]);
    node.set_jobs(&[slot(8, &[]), slot(9, &[3])]);
    let jobs = seen.jobs();
    assert_eq!(jobs.len(), 2);
    let nine = JobLoad { job: Some(9), ranks: 4, runnable: 1, scheduled: false };
    let eight = JobLoad { job: Some(8), ranks: 4, runnable: 0, scheduled: true };
    assert_eq!(jobs, [nine, eight]);
    let many: Vec<_> = (0..70).map(|job| slot(job, &[5])).collect();
    node.set_jobs(&many);
    let jobs = seen.jobs();
    assert_eq!(jobs.len(), JOB_SLOTS);
    let rest = JobLoad { job: None, ranks: 28, runnable: 7, scheduled: false };
    assert_eq!(jobs.last(), Some(&rest));
    assert!(jobs.iter().all(|load| load.scheduled == [Some(8), Some(6)].contains(&load.job)));
    node.set_turns([].into_iter(), true);
    assert!(node.is_shared() && seen.jobs().iter().all(|load| load.scheduled));
    node.set_jobs(&[]);
    assert_eq!(seen.jobs(), []);
}

#[test]
fn advice_follows_turns_others_and_peers() {
    let (node, job, seen) = pages(4);
    // No turn: nobody that is waited for runs.
    assert_eq!(seen.advice(0, None), PollingAdvice::Unscheduled);
    node.set_turns([8].into_iter(), false);
    assert_eq!(seen.advice(0, None), PollingAdvice::Unscheduled);
    // In its own slot the others are stopped, whatever they could do, or have what it leaves.
    node.set_jobs(&[slot(7, &[0, 1]), slot(8, &[0])]);
    job.set_turn(Turn::Filled);
    assert_eq!(seen.advice(0, Some(2)), PollingAdvice::SpinBriefly);
    job.set_turn(Turn::Own);
    assert_eq!(seen.advice(0, Some(2)), PollingAdvice::Spin);
    // Shared: others on this processor, but not the own job and not on another processor.
    job.set_turn(Turn::Shared);
    assert_eq!(seen.advice(0, None), PollingAdvice::Others);
    assert_eq!(seen.advice(1, None), PollingAdvice::Spin);
    node.set_jobs(&[slot(7, &[0, 1]), slot(8, &[])]);
    assert_eq!(seen.advice(0, Some(2)), PollingAdvice::Spin);
    // The node of who is waited for has more to do than processors.
    node.set_node(2, sys_now(), &LOAD);
    assert_eq!(seen.advice(0, Some(2)), PollingAdvice::Unscheduled);
    assert_eq!(
        (seen.advice(0, Some(1)), seen.advice(0, None)),
        (PollingAdvice::Spin, PollingAdvice::Spin)
    );
    // Under Miri the clock is slow: nothing is old yet.
    if !cfg!(miri) {
        node.set_node(2, 1, &LOAD);
        assert_eq!(seen.advice(0, Some(2)), PollingAdvice::Spin, "too old to say anything");
    }
    // A rank that has left never answers.
    job.set_turn(Turn::Own);
    job.set_rank(2, 2, RankState::Over, 1);
    assert_eq!(seen.advice(0, Some(2)), PollingAdvice::Unscheduled);
    assert_eq!(seen.advice(0, Some(99)), PollingAdvice::Spin);
}

#[test]
#[cfg_attr(miri, ignore = "files cannot be read there")]
fn ranks_cannot_write_pages() {
    use std::os::fd::AsRawFd;
    let (node, job, seen) = pages(2);
    for fd in [node.as_fd(), job.as_fd()] {
        let mut file = std::fs::File::from(fd.try_clone_to_owned().unwrap());
        assert!(file.write(b"x").is_err());
        assert!(file.set_len(0).is_err());
        let reopened = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let mut again = std::fs::File::options().read(true).write(true).open(reopened).unwrap();
        assert!(again.write(b"x").is_err());
        assert!(crate::shm::mapping::Mapping::new(fd, 64).is_err());
        let map = crate::shm::mapping::Mapping::read_only(fd, 64).unwrap();
        let write = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a page of a mapping of our own; were it permitted, nothing would be written.
        assert!(unsafe { libc::mprotect(map.at(0, 64).as_ptr().cast(), 64, write) } != 0);
    }
    // The daemon still can.
    assert_eq!((job.turn(), seen.turn()), (Turn::None, Turn::None));
    job.set_turn(Turn::Shared);
    assert!(seen.scheduled() && job.turn() == Turn::Shared);
}

#[test]
#[cfg_attr(miri, ignore = "files cannot be read there")]
fn what_is_no_page_is_refused() {
    let (node, job, _) = pages(2);
    let [good_node, good_job] =
        [node.as_fd(), job.as_fd()].map(|fd| fd.try_clone_to_owned().unwrap());
    assert!(matches!(DisclosedPages::open(&good_job, &good_node), Err(AttachError::BadPages(_))));
    let null = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
    assert!(matches!(DisclosedPages::open(&null, &good_job), Err(AttachError::BadPages(_))));
    assert!(NodePage::create(3, 3, 1).is_err() && JobPage::create(1, 2, [(0, 0..3)]).is_err());
    assert!(JobPage::create(1, MOST_RANKS + 1, []).is_err());
}

use crate::segment::attachment::AttachError;

#[test]
fn readers_never_see_half_of_a_change() {
    let (node, _job, seen) = pages(2);
    let uniform = |value: u32| NodeLoad {
        processors: value,
        runnable: value,
        jobs: value,
        busy_permille: value,
        memory_used: value.into(),
        memory_total: value.into(),
        network_bytes: value.into(),
        age_us: 0,
    };
    const CHANGES: u32 = if cfg!(miri) { 20 } else { 20_000 };
    std::thread::scope(|scope| {
        scope.spawn(|| (1..CHANGES).for_each(|value| node.set_node(0, 1, &uniform(value))));
        let mut last = 0;
        while last < CHANGES - 1 {
            let Some(load) = seen.node(0) else { continue };
            assert_eq!(NodeLoad { age_us: 0, ..load }, uniform(load.jobs));
            assert!(load.jobs >= last);
            last = load.jobs;
        }
    });
}
