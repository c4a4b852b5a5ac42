//! Small programs whose results only a memory in order can have, many times, on up to 16 nodes, over a wire that loses 2 % of
//! all packets.

mod support;

use kumi_dsm::{Placement, SharedArray, SharedMemory, Sharing};
use support::{Job, Numbers, start};

const LAYOUTS: &[&[u32]] = &[&[1, 1], &[2, 1], &[1, 1, 1, 1], &[1; 16]];

/// How many rounds a job does: ranks that share few processors are slow.
fn rounds(memory: &SharedMemory) -> u32 {
    match memory.context().ranks() {
        ..=2 => 1500,
        3 => 600,
        4 => 200,
        _ => 12,
    }
}

/// Runs a body, which gets how many rounds to do.
fn run(name: &str, body: impl Fn(&SharedMemory, u32)) {
    let settings: [&[(&str, &str)]; 5] = [
        &[("KUMI_FAULTS", "loss=20")],
        &[("KUMI_FAULTS", "loss=20"), ("KUMI_DSM_PROTOCOL", "lazy")],
        &[("KUMI_DSM_FAULTS", "mprotect"), ("KUMI_DSM_HOMES", "stay")],
        &[("KUMI_FAULTS", "loss=20"), (UPDATED, "1")],
        &[("KUMI_FAULTS", "loss=20"), ("KUMI_DSM_TWINS", "lazy")],
    ];
    for (at, layout) in LAYOUTS.iter().enumerate() {
        for (way, env) in settings.iter().enumerate() {
            // The large ones in one way each.
            if at < 2 || at % settings.len() == way {
                let job = Job { layout, env, ..Job::default() };
                start(name, &job, |memory| body(memory, rounds(memory))).finish();
            }
        }
    }
}

fn get(array: &SharedArray<'_, u64>, at: usize) -> u64 {
    array.get(at).expect("inside")
}

fn set(array: &SharedArray<'_, u64>, at: usize, value: u64) {
    array.set(at, value).expect("inside");
}

/// The variable that says that copies are updated.
const UPDATED: &str = "KUMI_TEST_UPDATED";

/// Numbers in pages of their own, with their homes in turn.
fn cells(memory: &SharedMemory) -> SharedArray<'_, u64> {
    let placement = Placement::RoundRobin { block: 1, first: 0 };
    let updated = std::env::var_os(UPDATED).is_some();
    let sharing = if updated { Sharing::Update } else { Sharing::Invalidate };
    memory.array_shared(4 * memory.page_bytes() as usize, placement, sharing).expect("room")
}

/// The cell of a number: pages apart.
fn cell(memory: &SharedMemory, number: usize) -> usize {
    number * memory.page_bytes() as usize / 8
}

/// Whoever sees the flag sees the message.
#[test]
fn a_flag_comes_after_its_message() {
    run("a_flag_comes_after_its_message", |memory, rounds| {
        let (cells, me) = (cells(memory), memory.context().rank());
        let (message, flag) = (cell(memory, 0), cell(memory, 1));
        let mut seen = 0;
        for round in 1..=u64::from(rounds) {
            let held = memory.lock(1).expect("lock");
            if me == 0 {
                set(&cells, message, round * 10);
                set(&cells, flag, round);
            } else {
                let (found, told) = (get(&cells, flag), get(&cells, message));
                assert_eq!(told, found * 10);
                assert!(found >= seen, "time goes back from {seen} to {found}");
                seen = found;
            }
            held.unlock().expect("unlock");
        }
        memory.barrier().expect("barrier");
        assert_eq!(get(&cells, message), u64::from(rounds) * 10);
    });
}

/// Of two ranks that write and then look at the other one's cell, at least one sees the other's write.
#[test]
fn of_two_writers_one_sees_the_other() {
    run("of_two_writers_one_sees_the_other", |memory, rounds| {
        let (cells, me) = (cells(memory), memory.context().rank() as usize);
        let (place, result) = (|rank| cell(memory, rank), |rank| cell(memory, 2 + rank));
        for round in 1..=u64::from(rounds / 4) {
            if me < 2 {
                let held = memory.lock(9).expect("lock");
                set(&cells, place(me), round);
                held.unlock().expect("unlock");
                let held = memory.lock(9).expect("lock");
                let saw = u64::from(get(&cells, place(1 - me)) == round);
                held.unlock().expect("unlock");
                set(&cells, result(me), saw);
            }
            memory.barrier().expect("barrier");
            assert!(get(&cells, result(0)) + get(&cells, result(1)) > 0, "round {round}");
            memory.barrier().expect("barrier");
        }
    });
}

/// All readers agree on the order of two writes under locks of their own.
#[test]
fn all_readers_agree_on_an_order() {
    run("all_readers_agree_on_an_order", |memory, rounds| {
        let (cells, me) = (cells(memory), memory.context().rank() as usize);
        let order = memory.array::<u64>(64, Placement::Blocks).expect("room");
        for round in 1..=u64::from(rounds / 4) {
            let own = |which: usize| {
                let held = memory.lock(which as u32).expect("lock");
                let value = get(&cells, cell(memory, which));
                held.unlock().expect("unlock");
                value == round
            };
            match me {
                0 | 1 => {
                    let held = memory.lock(me as u32).expect("lock");
                    set(&cells, cell(memory, me), round);
                    held.unlock().expect("unlock");
                }
                // Bit 0: saw the first write without the second; bit 1: the other way round.
                _ if me % 2 == 0 => set(&order, me, u64::from(own(0) && !own(1))),
                _ => set(&order, me, 2 * u64::from(own(1) && !own(0))),
            }
            memory.barrier().expect("barrier");
            let seen =
                (2..memory.context().ranks() as usize).fold(0, |all, at| all | get(&order, at));
            assert_ne!(seen, 3, "two readers saw the writes in different orders");
            memory.barrier().expect("barrier");
        }
    });
}

/// Without locks nothing is promised but this: a word is one that somebody wrote, and after a barrier it is the last one.
#[test]
fn races_read_what_somebody_wrote() {
    run("races_read_what_somebody_wrote", |memory, rounds| {
        let (cells, ranks) = (cells(memory), u64::from(memory.context().ranks()));
        let me = u64::from(memory.context().rank());
        let pattern = |number: u64| number * 0x0001_0001_0001_0001;
        for round in 0..u64::from(rounds) {
            let at = (round % 40) as usize;
            if round % ranks == me {
                set(&cells, at, pattern(round % 1000 + 1));
            }
            let found = get(&cells, at);
            assert_eq!(found, pattern(found & 0xffff), "a torn word");
            if round % 40 == 39 {
                memory.barrier().expect("barrier");
                let wrote = round - 39 + 7;
                assert_eq!(get(&cells, 7), pattern(wrote % 1000 + 1));
                memory.barrier().expect("barrier");
            }
        }
    });
}

/// Counters of one byte to eight, side by side in the same words, each under a lock of its own.
#[test]
fn neighbours_under_different_locks_count_right() {
    run("neighbours_under_different_locks_count_right", |memory, rounds| {
        let bytes = memory.array::<u8>(6000, Placement::Blocks).expect("room");
        let counters: Vec<(usize, usize)> = (0..24).map(|at| (4060 + at * 3, 1 + at % 3)).collect();
        let mut numbers = Numbers(u64::from(memory.context().rank()) + 1);
        let mut own = vec![0u64; counters.len()];
        for _ in 0..rounds / 2 {
            let which = numbers.below(counters.len() as u64) as usize;
            let (start, length) = counters[which];
            let held = memory.lock(which as u32).expect("lock");
            // Little-endian, byte by byte.
            let mut carry = 1u16;
            for at in start..start + length {
                let sum = u16::from(bytes.get(at).expect("inside")) + carry;
                bytes.set(at, sum as u8).expect("inside");
                carry = sum >> 8;
            }
            held.unlock().expect("unlock");
            own[which] += 1;
        }
        memory.context().allreduce(kumi_mem::Op::Sum, &mut own).expect("allreduce");
        memory.barrier().expect("barrier");
        for ((start, length), wanted) in counters.into_iter().zip(own) {
            let places = (start..start + length).rev();
            let found =
                places.fold(0, |sum, at| sum << 8 | u64::from(bytes.get(at).expect("inside")));
            assert_eq!(found, wanted % (1 << (8 * length)), "the counter at {start}");
        }
    });
}

/// Threads of several ranks fault, lock and write at once.
#[test]
fn threads_of_a_rank_share_it() {
    run("threads_of_a_rank_share_it", |memory, rounds| {
        const THREADS: usize = 3;
        let (me, ranks) = (memory.context().rank() as usize, memory.context().ranks() as usize);
        let sums = memory.array::<u64>(8, Placement::At(0)).expect("room");
        let pages = memory.array::<u64>(512 * 60, Placement::Blocks).expect("room");
        for at in (0..60).filter(|at| at % ranks == me) {
            set(&pages, at * 512, at as u64);
        }
        memory.barrier().expect("barrier");
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (sums, pages) = (&sums, &pages);
                scope.spawn(move || {
                    let mut numbers = Numbers((me * THREADS + thread) as u64 + 1);
                    for _ in 0..rounds / 12 {
                        let page = numbers.below(60) as usize;
                        assert_eq!(get(pages, page * 512), page as u64);
                        let held = memory.lock(2).expect("lock");
                        set(sums, 3, get(sums, 3) + 1);
                        held.unlock().expect("unlock");
                    }
                });
            }
        });
        memory.barrier().expect("barrier");
        assert_eq!(get(&sums, 3), (THREADS * ranks) as u64 * u64::from(rounds / 12));
    });
}
