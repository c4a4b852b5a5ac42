//! Shared memory between real processes, on one node and on several: what one rank writes, the others read.

mod support;

use std::sync::Arc;

use kumi_dsm::{Config, Count, Placement, SharedMemory, Sharing};
use kumi_mem::Context;
use support::{Job, is_rank, launch, start};

const LAYOUTS: &[&[u32]] = &[&[1], &[2], &[1, 1], &[2, 2], &[1, 1, 1, 1], &[3, 1]];

/// Runs a body on all layouts, by both mechanisms, under both protocols, with pages that move and pages that stay.
fn run(name: &str, body: impl Fn(&SharedMemory)) {
    let settings: [&[(&str, &str)]; 6] = [
        &[],
        &[("KUMI_DSM_FAULTS", "mprotect"), ("KUMI_DSM_HOMES", "stay")],
        &[("KUMI_DSM_PROTOCOL", "lazy"), ("KUMI_DSM_PAGE", "16K")],
        &[("KUMI_DSM_HOMES", "stay"), ("KUMI_FAULTS", "loss=20")],
        &[("KUMI_DSM_TWINS", "lazy"), ("KUMI_FAULTS", "loss=20")],
        &[("KUMI_DSM_TWINS", "lazy"), ("KUMI_DSM_FAULTS", "mprotect"), ("KUMI_DSM_HOMES", "stay")],
    ];
    for (at, layout) in LAYOUTS.iter().enumerate() {
        for (way, env) in settings.iter().enumerate() {
            // The larger ones in one way each.
            if at < 3 || at % settings.len() == way {
                start(name, &Job { layout, env, ..Job::default() }, &body).finish();
            }
        }
    }
}

#[test]
fn what_was_written_before_a_barrier_is_read_after_it() {
    run("what_was_written_before_a_barrier_is_read_after_it", |memory| {
        let (me, ranks) = (memory.context().rank() as usize, memory.context().ranks() as usize);
        let length = 5000;
        for placement in [Placement::Blocks, Placement::FirstTouch, Placement::At(0)] {
            let array = memory.array::<u32>(length, placement).expect("room");
            for round in 0..6u32 {
                // Elements alternate between the ranks, so all write all pages.
                for at in (0..length).filter(|at| (at + round as usize) % ranks == me) {
                    array.set(at, at as u32 ^ round).expect("inside");
                }
                memory.barrier().expect("barrier");
                for at in 0..length {
                    assert_eq!(
                        array.get(at).expect("inside"),
                        at as u32 ^ round,
                        "{at} in {round}"
                    );
                }
                memory.barrier().expect("barrier");
            }
        }
    });
}

/// Releases bring copies up to date: after its first fetch of a page a node fetches it never again.
#[test]
fn copies_that_are_updated_are_fetched_once() {
    run("copies_that_are_updated_are_fetched_once", |memory| {
        let (me, ranks) = (memory.context().rank() as usize, memory.context().ranks() as usize);
        let length = 5000;
        for placement in [Placement::Blocks, Placement::FirstTouch, Placement::At(0)] {
            let array = memory.array_shared::<u32>(length, placement, Sharing::Update);
            let array = array.expect("room");
            let mut fetched = 0;
            for round in 0..8u32 {
                for at in (0..length).filter(|at| (at + round as usize) % ranks == me) {
                    array.set(at, at as u32 ^ round).expect("inside");
                }
                // Written again, and as before: nobody may have seen what was there in between.
                let own = (me + ranks - round as usize % ranks) % ranks;
                array.set(own, u32::MAX).expect("inside");
                array.set(own, own as u32 ^ round).expect("inside");
                memory.barrier().expect("barrier");
                for at in 0..length {
                    let found = array.get(at).expect("inside");
                    assert_eq!(found, at as u32 ^ round, "{at} in {round}, {placement:?}");
                }
                memory.barrier().expect("barrier");
                let now = memory.statistics().get(Count::PagesFetched);
                assert!(round == 0 || now == fetched, "round {round}: {fetched} pages, then {now}");
                fetched = now;
            }
        }
    });
}

#[test]
fn a_lock_guards_a_counter_that_is_updated() {
    run("a_lock_guards_a_counter_that_is_updated", |memory| {
        let ranks = memory.context().ranks();
        let counters = memory.array_shared::<u64>(4, Placement::At(ranks - 1), Sharing::Update);
        let counters = counters.expect("room");
        for turn in 0..100 {
            let held = memory.lock(turn % 3).expect("lock");
            let at = (turn % 3) as usize;
            counters.set(at, counters.get(at).expect("inside") + 1).expect("inside");
            held.unlock().expect("unlock");
        }
        memory.barrier().expect("barrier");
        let sums: Vec<u64> = (0..3).map(|at| counters.get(at).expect("inside")).collect();
        assert_eq!(sums, [34, 33, 33].map(|turns| turns * u64::from(ranks)));
    });
}

#[test]
fn a_lock_guards_a_counter() {
    run("a_lock_guards_a_counter", |memory| {
        let ranks = memory.context().ranks();
        let counters = memory.array::<u64>(4, Placement::At(ranks - 1)).expect("room");
        for turn in 0..200 {
            let held = memory.lock(turn % 3).expect("lock");
            let at = (turn % 3) as usize;
            counters.set(at, counters.get(at).expect("inside") + 1).expect("inside");
            held.unlock().expect("unlock");
        }
        memory.barrier().expect("barrier");
        let sums: Vec<u64> = (0..3).map(|at| counters.get(at).expect("inside")).collect();
        assert_eq!(sums, [67, 67, 66].map(|turns| turns * u64::from(ranks)));
    });
}

/// Bytes, in turn by rank: no two writers share a byte, but all share words.
#[test]
fn neighbouring_bytes_of_several_writers_all_stay() {
    run("neighbouring_bytes_of_several_writers_all_stay", |memory| {
        let (me, ranks) = (memory.context().rank() as usize, memory.context().ranks() as usize);
        let bytes = memory.array::<u8>(10_000, Placement::Blocks).expect("room");
        for round in 1..8u8 {
            for at in (me..bytes.len()).step_by(ranks) {
                bytes.set(at, round.wrapping_mul(at as u8)).expect("inside");
            }
            memory.barrier().expect("barrier");
            let all = (0..bytes.len()).map(|at| bytes.get(at).expect("inside"));
            assert!(all.zip(0u64..).all(|(byte, at)| byte == round.wrapping_mul(at as u8)));
            memory.barrier().expect("barrier");
        }
    });
}

/// What was written before a condition is set is seen by who waits for it.
#[test]
fn a_condition_carries_what_was_written() {
    run("a_condition_carries_what_was_written", |memory| {
        let (me, ranks) = (memory.context().rank(), memory.context().ranks());
        let cells = memory.array::<u64>(ranks as usize * 600, Placement::Blocks).expect("room");
        let cell = |rank: u32| rank as usize * 600;
        for round in 1..20u64 {
            let number = round as u32 * ranks;
            if me > 0 {
                memory.wait_condition(number + me - 1).expect("wait");
                let before = cells.get(cell(me - 1)).expect("inside");
                assert_eq!(before, round + u64::from(me) - 1);
            }
            cells.set(cell(me), round + u64::from(me)).expect("inside");
            memory.set_condition(number + me).expect("set");
            memory.barrier().expect("barrier");
        }
    });
}

/// The end leaves the context to its owner, and the addresses to whoever keeps them.
#[test]
fn the_end_lets_the_context_go_and_keeps_addresses() {
    let name = "the_end_lets_the_context_go_and_keeps_addresses";
    let job = Job { layout: &[1, 1], ..Job::default() };
    if is_rank() {
        let context = Arc::new(Context::init().expect("init"));
        let config = Config::from_environment().expect("settings");
        let memory = SharedMemory::new(Arc::clone(&context), config).expect("shared memory");
        let array = memory.array::<u64>(5000, Placement::At(0)).expect("room");
        array.set(context.rank() as usize, 7).expect("inside");
        memory.barrier().expect("barrier");
        assert_eq!([0, 1].map(|at| array.get(at).expect("inside")), [7, 7]);
        let (addresses, start) = (memory.addresses(), array.as_ptr());
        assert!(addresses.range().contains(&start.addr()));
        memory.bring_for_writing(start.cast(), 5000 * 8).expect("pages");
        memory.end(true).expect("end");
        let context = Arc::into_inner(context).expect("nobody else has it");
        context.finalize().expect("finalize");
        // SAFETY: the addresses are kept, and these pages were visible.
        assert_eq!(unsafe { start.read_volatile() }, 7);
        drop(addresses);
        std::process::exit(0);
    }
    launch(&[name, "--exact", "--nocapture", "--test-threads=1"], &job).finish();
}
