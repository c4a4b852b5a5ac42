//! Pages that are fetched before the program touches them, and messages by purpose.

mod support;

use kumi_dsm::{Count, Placement, SharedArray, SharedMemory, Sharing};
use support::{Job, start};

/// Numbers in a page of 4 KB.
const PAGE: usize = 512;

fn two_nodes(name: &str, body: impl Fn(&SharedMemory)) {
    let bad_wire = [("KUMI_DSM_FAULTS", "mprotect"), ("KUMI_FAULTS", "loss=20")];
    for env in [&[][..], &bad_wire, &[("KUMI_DSM_TWINS", "lazy")]] {
        let env = [env, &[("KUMI_DSM_HOMES", "stay")]].concat();
        start(name, &Job { layout: &[1, 1], env: &env, ..Job::default() }, &body).finish();
    }
}

fn write(array: &SharedArray<'_, u64>, pages: impl Iterator<Item = usize>, round: u64) {
    for page in pages {
        array.set(page * PAGE + 7, page as u64 + round).expect("inside");
    }
}

fn read(array: &SharedArray<'_, u64>, pages: impl Iterator<Item = usize>, round: u64) {
    for page in pages {
        let found = array.get(page * PAGE + 7).expect("inside");
        assert_eq!(found, page as u64 + round, "page {page} in round {round}");
    }
}

#[test]
fn a_sequence_comes_before_it_is_read() {
    two_nodes("a_sequence_comes_before_it_is_read", |memory| {
        let array = memory.array::<u64>(1000 * PAGE, Placement::At(1)).expect("room");
        let me = memory.context().rank();
        if me == 1 {
            write(&array, 0..1000, 0);
        }
        memory.barrier().expect("barrier");
        if me == 0 {
            read(&array, 0..1000, 0);
            let count = |what| memory.statistics().get(what);
            assert_eq!(count(Count::PagesFetched), 1000, "each page once, none behind the end");
            assert_eq!(count(Count::AheadUsed), 1000 - 7, "all but the first 1, 2 and 4");
            assert!(count(Count::Fetches) < 50, "{} requests", count(Count::Fetches));
        }
        memory.barrier().expect("barrier");
    });
}

#[test]
fn pages_at_equal_distances_come_before_they_are_read() {
    two_nodes("pages_at_equal_distances_come_before_they_are_read", |memory| {
        let array = memory.array::<u64>(1000 * PAGE, Placement::At(1)).expect("room");
        let me = memory.context().rank();
        let column = || (0..1000).rev().step_by(13);
        if me == 1 {
            write(&array, column(), 0);
        }
        memory.barrier().expect("barrier");
        if me == 0 {
            read(&array, column(), 0);
            let used = memory.statistics().get(Count::AheadUsed);
            assert_eq!(used, column().count() as u64 - 4, "all but the first four");
        }
        memory.barrier().expect("barrier");
    });
}

/// Pages apart in no pattern.
fn scattered() -> impl Iterator<Item = usize> {
    (1..=20).map(|at| at * at * 2 + at % 3)
}

#[test]
fn what_was_in_use_comes_again_at_the_barrier_until_nobody_uses_it() {
    let name = "what_was_in_use_comes_again_at_the_barrier_until_nobody_uses_it";
    two_nodes(name, |memory| {
        let array = memory.array::<u64>(1000 * PAGE, Placement::At(1)).expect("room");
        let me = memory.context().rank();
        for round in 0..10 {
            if me == 1 {
                write(&array, scattered(), round);
            }
            memory.barrier().expect("barrier");
            if me == 0 && round < 6 {
                read(&array, scattered(), round);
            }
            memory.barrier().expect("barrier");
        }
        if me == 0 {
            let count = |what| memory.statistics().get(what);
            assert_eq!(count(Count::AheadUsed), 5 * 20, "all rounds of reading but the first");
            assert_eq!(count(Count::AheadUnused), 20, "the first round without reading");
            assert_eq!(count(Count::PagesFetched), 7 * 20);
        }
        memory.barrier().expect("barrier");
    });
}

/// A page that this rank writes while it is under way keeps both ranks' bytes, and one of an old round is not used.
#[test]
fn what_came_before_is_merged_or_dropped() {
    two_nodes("what_came_before_is_merged_or_dropped", |memory| {
        let array = memory.array::<u64>(64 * PAGE, Placement::At(1)).expect("room");
        let me = memory.context().rank() as usize;
        for round in 0..50u64 {
            // Neighbours in all pages, in turn under a lock.
            for page in 0..64 {
                let held = memory.lock(1).expect("lock");
                let at = page * PAGE + me;
                array.set(at, array.get(at).expect("inside") + 1).expect("inside");
                held.unlock().expect("unlock");
                if page % 8 == me {
                    assert_eq!(array.get(at).expect("inside"), round + 1);
                }
            }
            if round % 10 == 9 {
                memory.barrier().expect("barrier");
                for at in 0..64 {
                    let both = [0, 1].map(|rank| array.get(at * PAGE + rank).expect("inside"));
                    assert_eq!(both, [round + 1; 2], "page {at}");
                }
                memory.barrier().expect("barrier");
            }
        }
    });
}

/// Each kind of message has a counter of its own.
#[test]
fn messages_are_counted_by_purpose() {
    two_nodes("messages_are_counted_by_purpose", |memory| {
        let count = |what| memory.statistics().get(what);
        let me = memory.context().rank();
        let plain = memory.array::<u64>(PAGE, Placement::At(1)).expect("room");
        let touched = memory.array::<u64>(4 * PAGE, Placement::FirstTouch).expect("room");
        let updated = memory.array_shared::<u64>(PAGE, Placement::At(1), Sharing::Update);
        let updated = updated.expect("room");
        memory.barrier().expect("barrier");
        if me == 0 {
            assert_eq!(count(Count::BarrierMessages), 1, "the departure");
            // Lock 1 has its manager at rank 1.
            memory.lock(1).and_then(|held| held.unlock()).expect("lock");
            assert_eq!(count(Count::LockMessages), 1, "the request");
            memory.set_condition(1).expect("set");
            assert_eq!(count(Count::ConditionMessages), 1);
            plain.set(0, 1).expect("inside");
            let held = memory.lock(1).expect("lock");
            held.unlock().expect("unlock");
            assert_eq!(count(Count::DiffMessages), 1);
            assert_eq!(count(Count::LockMessages), 1, "a lock that is kept takes none");
            touched.set(0, 1).expect("inside");
            touched.set(PAGE, 1).expect("inside");
            assert_eq!(count(Count::HomeMessages), 1, "one of the two is its own directory");
            updated.get(0).expect("inside");
            assert_eq!(count(Count::UpdateMessages), 1, "the copy");
        }
        memory.wait().expect("wait");
    });
}

/// Pages of memory that this node's twins take.
fn twin_pages() -> u64 {
    use std::os::unix::fs::MetadataExt;
    let files = std::fs::read_dir("/proc/self/fd").expect("/proc").map(|file| file.expect("file"));
    let is_twin = |path: &std::path::PathBuf| {
        std::fs::read_link(path).is_ok_and(|to| to.to_string_lossy().contains("kumi-dsm-twin"))
    };
    let twin = files.map(|file| file.path()).find(is_twin).expect("the twins' file");
    // Blocks of 512 bytes.
    std::fs::metadata(twin).expect("stat").blocks() / 8
}

#[test]
fn late_twins_are_those_of_written_pages() {
    let name = "late_twins_are_those_of_written_pages";
    for twins in ["eager", "lazy"] {
        let env = [("KUMI_DSM_TWINS", twins), ("KUMI_DSM_HOMES", "stay")];
        let job = Job { layout: &[1, 1], env: &env, ..Job::default() };
        start(name, &job, |memory| {
            let array = memory.array::<u64>(500 * PAGE, Placement::At(1)).expect("room");
            let me = memory.context().rank();
            let late = std::env::var("KUMI_DSM_TWINS").is_ok_and(|twins| twins == "lazy");
            if me == 1 {
                write(&array, 0..500, 0);
            }
            memory.barrier().expect("barrier");
            if me == 0 {
                read(&array, 0..500, 0);
                assert_eq!(twin_pages(), if late { 0 } else { 500 });
                write(&array, (0..500).step_by(50), 1);
                assert_eq!(twin_pages(), if late { 10 } else { 500 });
            }
            memory.barrier().expect("barrier");
            read(&array, (0..500).step_by(50), 1);
            read(&array, (1..500).step_by(50), 0);
            memory.barrier().expect("barrier");
        })
        .finish();
    }
}
