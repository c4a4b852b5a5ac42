//! One-sided operations against a reference memory, mapped and by frames, allowed and refused.

mod common;
mod reference;

use common::{Job, Numbers, fewer, run, start};
use kumi_mem::{Context, Error, OnPlacement, Refusal, Rights, Strided};
use reference::Reference;

/// One node, one rank per node, both.
const LAYOUTS: &[&[u32]] = &[&[1], &[2], &[1, 1], &[2, 1, 2]];

/// Every rank does random operations on a part of every rank's window that nobody else uses, and
/// keeps a copy of what these parts must hold.
#[test]
fn operations_do_what_a_reference_memory_does() {
    run("operations_do_what_a_reference_memory_does", LAYOUTS, |context| {
        let completion = context.completion().expect("completion");
        let mut reference = Reference::new(context, &completion);
        reference.steps(600, 77);
        reference.finish();
    });
}

/// The same while ranks are stopped and continued at any moment.
#[test]
#[cfg_attr(miri, ignore = "ranks are no processes here")]
fn operations_do_what_they_must_though_ranks_are_stopped() {
    let body = |context: &Context| {
        let completion = context.completion().expect("completion");
        let mut reference = Reference::new(context, &completion);
        reference.steps(2000, 770);
        reference.finish();
    };
    let name = "operations_do_what_they_must_though_ranks_are_stopped";
    let layout = &[1, 2, 1];
    let job = start(name, &Job { layout, ..Job::default() }, body);
    job.finish_while_stopped(40, 5);
}

/// All ranks on the same words, the owner by its own window too.
#[test]
fn atomics_are_atomic_near_and_far() {
    const TOKENS: usize = fewer(20, 3);
    run("atomics_are_atomic_near_and_far", LAYOUTS, |context| {
        let (me, ranks) = (context.rank(), context.ranks());
        let window = context.window(64).expect("window");
        let rounds = if cfg!(miri) { 4 } else { 100 };
        let bit = 1u64 << me;
        for _ in 0..rounds {
            window.fetch_add(0, 0, 1).expect("add");
            window.fetch_add_u32(0, 12, 1).expect("add");
            let before = window.fetch_or(0, 16, bit).expect("or");
            assert_eq!(before & bit, 0, "nobody else changes this bit");
            let before = window.fetch_and(0, 16, !bit).expect("and");
            assert_eq!(before & bit, bit);
            window.fetch_xor_u32(0, 24, bit as u32).expect("xor");
            // Adds by compare-and-swap: an interfering update shows in the old value.
            let mut seen = window.fetch_add_u32(0, 28, 0).expect("read");
            loop {
                let before = window.compare_swap_u32(0, 28, seen, seen + 1).expect("compare");
                if before == seen {
                    break;
                }
                seen = before;
            }
        }
        // A token that only one has at a time, with a count that only its holder changes.
        context.barrier().expect("barrier");
        for _ in 0..TOKENS {
            while window.swap(0, 40, 1).expect("take") != 0 {}
            let mut count = [0; 8];
            window.get(0, 48, &mut count).expect("get");
            let next = u64::from_ne_bytes(count) + 1;
            window.put(0, 48, &next.to_ne_bytes()).expect("put");
            context.flush(0).expect("flush");
            assert_eq!(window.swap(0, 40, 0).expect("give"), 1);
        }
        context.barrier().expect("barrier");
        if me == 0 {
            let all = u64::from(ranks);
            assert_eq!(window.load_u64(0).expect("load"), rounds * all);
            assert_eq!(window.load_u32(8).expect("load"), 0, "beside the word");
            assert_eq!(u64::from(window.load_u32(12).expect("load")), rounds * all);
            assert_eq!(window.load_u64(16).expect("load"), 0);
            assert_eq!(window.load_u32(24).expect("load"), 0, "an even number of times");
            assert_eq!(u64::from(window.load_u32(28).expect("load")), rounds * all);
            assert_eq!(window.load_u64(48).expect("load"), TOKENS as u64 * all);
        }
        context.barrier().expect("barrier");
    });
}

#[test]
fn atomics_that_are_not_allowed_leave_memory_alone() {
    run("atomics_that_are_not_allowed_leave_memory_alone", &[&[2], &[1, 1]], |context| {
        let other = 1 - context.rank();
        let window = context.window(64).expect("window");
        let rights = Rights { write: true, read: true, atomic: false };
        let sealed = context.window_with(64, rights).expect("window");
        for offset in [1, 2, 6, 62] {
            let result = window.swap_u32(other, offset, 7);
            assert!(
                matches!(result, Err(Error::BadAlignment { offset: at, width: 4 })
                    if at == offset as u64)
                    || offset == 62 && matches!(result, Err(Error::OutOfBounds { .. })),
                "{result:?}"
            );
        }
        for offset in [60, 64, usize::MAX - 7, usize::MAX] {
            let result = window.fetch_xor(other, offset, 7);
            assert!(matches!(result, Err(Error::OutOfBounds { length: 8, .. })), "{result:?}");
        }
        assert!(matches!(window.load_u32(2), Err(Error::BadAlignment { offset: 2, width: 4 })));
        assert!(matches!(window.store_u32(64, 1), Err(Error::OutOfBounds { .. })));
        assert!(matches!(sealed.fetch_and_u32(other, 0, 7), Err(Error::NoRight { .. })));
        assert!(matches!(sealed.compare_swap(other, 0, 0, 7), Err(Error::NoRight { .. })));
        assert!(matches!(window.fetch_or(2, 0, 1), Err(Error::BadRank { rank: 2, ranks: 2 })));
        context.barrier().expect("barrier");
        for piece in [&window, &sealed] {
            let mut memory = [9; 64];
            piece.read(0, &mut memory).expect("read");
            assert_eq!(memory, [0; 64], "untouched");
        }
        context.barrier().expect("barrier");
    });
}

/// A completion counts when the data is there, near and far, and only its own puts.
#[test]
fn a_completion_rises_when_its_puts_are_in_place() {
    const MORE: usize = fewer(50, 5);
    run("a_completion_rises_when_its_puts_are_in_place", LAYOUTS, |context| {
        let (me, ranks) = (context.rank(), context.ranks());
        let piece = fewer(30_000, 3_000);
        let window = context.window(piece * ranks as usize).expect("window");
        let completion = context.completion().expect("completion");
        let other = context.completion().expect("completion");
        assert_eq!(other.wait(0).expect("nothing to wait for"), 0);
        let data = vec![me as u8 + 1; piece];
        for (count, to) in (1..).zip(0..ranks) {
            let after = OnPlacement { notify: Some(3), completion: Some(&completion) };
            let at = piece * me as usize;
            window.put_with(to, at, &data, after).expect("put");
            window.put(to, at, &data[..8]).expect("put");
            assert_eq!(completion.wait(count).expect("wait"), count);
            let mut there = vec![0; piece];
            window.get(to, at, &mut there).expect("get");
            assert!(there == data, "in attachment at {to}");
        }
        for _ in 0..MORE {
            for to in 0..ranks {
                let after = OnPlacement { completion: Some(&other), ..OnPlacement::default() };
                window.put_with(to, piece * me as usize, &data[..16], after).expect("put");
            }
        }
        other.wait_all().expect("wait");
        assert_eq!(other.done().expect("done"), MORE as u64 * u64::from(ranks));
        assert_eq!(completion.done().expect("done"), u64::from(ranks));
        let never = completion.wait(u64::from(ranks) + 1);
        assert!(matches!(never, Err(Error::NeverDone { begun, at_least })
            if begun == u64::from(ranks) && at_least == begun + 1));
        window.wait_notify(3, u64::from(ranks)).expect("wait");
        context.barrier().expect("barrier");
    });
}

#[test]
fn a_refused_put_is_told_by_its_completion() {
    const LONG: usize = fewer(20_000, 4_000);
    run("a_refused_put_is_told_by_its_completion", &[&[2], &[1, 1]], |context| {
        let other = 1 - context.rank();
        let near = context.same_node(other);
        let window = context.window(1000).expect("window");
        let rights = Rights { write: false, read: true, atomic: true };
        let sealed = context.window_with(LONG, rights).expect("window");
        let completion = context.completion().expect("completion");
        let after = OnPlacement { notify: Some(0), completion: Some(&completion) };
        let refused = |put: Result<(), Error>, expected: Refusal, frames_wait: bool| {
            if near || frames_wait {
                assert!(put.is_err(), "at once");
            } else {
                put.expect("refused later");
                let told = completion.wait(1);
                assert!(
                    matches!(told, Err(Error::Refused { rank, count: 1, reason })
                        if rank == other && reason == expected),
                    "{told:?}"
                );
            }
        };
        refused(window.put_with(other, 990, &[1; 11], after), Refusal::Bounds, false);
        refused(window.put_with(other, 0, &[1; 1001], after), Refusal::Bounds, true);
        refused(sealed.put_with(other, 0, &[1; 1], after), Refusal::Right, false);
        // Several frames, each refused: told once.
        refused(sealed.put_with(other, 0, &[1; LONG], after), Refusal::Right, false);
        let shape = Strided { offset: 0, stride: 500, block: 10, count: 3 };
        refused(window.put_strided(other, shape, &[1; 30], after), Refusal::Bounds, false);
        let shape = Strided { offset: 8, stride: usize::MAX / 2, block: 10, count: 4 };
        refused(window.put_strided(other, shape, &[1; 40], after), Refusal::Bounds, false);
        refused(sealed.put_strided(other, shape, &[1; 40], after), Refusal::Right, false);
        let blocks = sealed.put_strided(other, shape, &[1; 41], after);
        assert!(matches!(blocks, Err(Error::BadLength { given: 41, needed: 40, .. })));
        let notify = OnPlacement { notify: Some(64), completion: Some(&completion) };
        let notify = window.put_with(other, 0, &[1], notify);
        assert!(matches!(notify, Err(Error::BadNotify { notify: 64 })));
        // And one that is right, so that the counter works on.
        window.put_with(other, 992, &[7; 8], after).expect("put");
        assert_eq!(completion.wait(1).expect("wait"), 1);
        assert_eq!(window.wait_notify(0, 1).expect("wait"), 1);
        context.barrier().expect("barrier");
        let mut memory = [9; 1000];
        window.read(0, &mut memory).expect("read");
        assert!(memory[..992] == [0; 992] && memory[992..] == [7; 8], "untouched");
        let mut memory = vec![9; LONG];
        sealed.read(0, &mut memory).expect("read");
        assert!(memory.iter().all(|byte| *byte == 0), "untouched");
        assert_eq!(sealed.notified(0).expect("notified"), 0);
        context.flush(other).expect("told already");
        context.barrier().expect("barrier");
    });
}

/// Nodes with one rank and with several; odd numbers.
const TREES: &[&[u32]] = &[&[1], &[3], &[1, 1], &[1, 1, 1, 1, 1], &[2, 3, 1, 2]];

#[test]
fn a_multicast_reaches_its_set_and_nobody_else() {
    run("a_multicast_reaches_its_set_and_nobody_else", TREES, |context| {
        let (me, ranks) = (context.rank(), context.ranks());
        let size = fewer(100_000, 10_000);
        let window = context.window(size).expect("window");
        let mut expected = vec![0; size];
        let mut notified = 0;
        // All ranks draw the same numbers, so each knows what the others send.
        let mut numbers = Numbers(9);
        for _ in 0..fewer(30, 8) {
            let root = numbers.below(u64::from(ranks)) as u32;
            let mut set: Vec<u32> = (0..ranks).filter(|_| numbers.below(3) > 0).collect();
            set.reverse();
            set.extend(set.first().copied());
            let length = [0, 1, 8, 1000, fewer(33_000, 3_300), fewer(80_000, 8_000)]
                [numbers.below(6) as usize];
            let offset = numbers.below((size - length) as u64 + 1) as usize;
            let data: Vec<u8> = (0..length).map(|_| numbers.next() as u8).collect();
            let notify = (numbers.below(2) == 0).then_some(4);
            if me == root {
                window.multicast(&set, offset, &data, notify).expect("multicast");
                for to in &set {
                    let mut there = vec![0; length];
                    window.get(*to, offset, &mut there).expect("get");
                    assert!(there == data, "in attachment at {to}");
                }
            }
            if set.contains(&me) {
                expected[offset..offset + length].copy_from_slice(&data);
                notified += u64::from(notify.is_some());
                window.wait_notify(4, notified).expect("wait");
            }
            context.barrier().expect("barrier");
        }
        let mut memory = vec![0; size];
        window.read(0, &mut memory).expect("read");
        assert!(memory == expected);
        assert_eq!(window.notified(4).expect("notified"), notified);
        context.barrier().expect("barrier");
    });
}

/// Everybody to everybody at the same time, through each other.
#[test]
#[cfg_attr(miri, ignore = "its jobs have more than three ranks")]
fn multicasts_cross() {
    run("multicasts_cross", &[&[1, 1, 1, 1], &[2, 1, 2]], |context| {
        let (me, ranks) = (context.rank(), context.ranks());
        let piece = 150_000;
        let window = context.window(piece * ranks as usize).expect("window");
        let all: Vec<u32> = (0..ranks).collect();
        for round in 1..=3u8 {
            let data = vec![round * 16 + me as u8; piece];
            window.multicast(&all, piece * me as usize, &data, Some(0)).expect("multicast");
            window.wait_notify(0, u64::from(round) * u64::from(ranks)).expect("wait");
            let mut memory = vec![0; piece];
            for from in 0..ranks {
                window.read(piece * from as usize, &mut memory).expect("read");
                assert!(memory.iter().all(|byte| *byte == round * 16 + from as u8));
            }
            context.barrier().expect("barrier");
        }
        // Notified, a member may end: it stays until those behind it have theirs.
        window.multicast(&all, 0, &[me as u8; 8], Some(1)).expect("multicast");
        window.wait_notify(1, u64::from(ranks)).expect("wait");
    });
}

#[test]
fn a_refused_multicast_names_who_refused() {
    const LONG: usize = fewer(40_000, 4_000);
    let layouts: &[&[u32]] = &[&[3], &[1, 1, 1], &[1, 2, 1, 2]];
    run("a_refused_multicast_names_who_refused", layouts, |context| {
        let (me, ranks) = (context.rank(), context.ranks());
        let last = ranks - 1;
        let all: Vec<u32> = (0..ranks).collect();
        // The last one's piece is short, and in the other window not to be written.
        let window = context.window(if me == last { 50 } else { 64 }).expect("window");
        let mut rights = Rights::ALL;
        rights.write = me != last;
        let sealed = context.window_with(LONG, rights).expect("window");
        for offset in [45, 60, usize::MAX] {
            let result = window.multicast(&all, offset, &[7; 10], Some(0));
            assert!(matches!(result, Err(Error::OutOfBounds { .. })), "{result:?}");
        }
        let result = window.multicast(&[0, ranks], 0, &[7], None);
        assert!(matches!(result, Err(Error::BadRank { rank, .. }) if rank == ranks));
        assert!(matches!(
            window.multicast(&all, 0, &[7], Some(64)),
            Err(Error::BadNotify { notify: 64 })
        ));
        context.barrier().expect("barrier");
        if me == 0 {
            let result = sealed.multicast(&all, 0, &[7; LONG], Some(0));
            assert!(matches!(result, Err(Error::NoRight { rank }) if rank == last), "{result:?}");
            window.multicast(&all, 0, &[8; 8], Some(0)).expect("another time");
        }
        window.wait_notify(0, 1).expect("wait");
        context.barrier().expect("barrier");
        let mut memory = vec![9; window.len()];
        window.read(0, &mut memory).expect("read");
        assert!(memory[..8] == [8; 8] && memory[8..].iter().all(|byte| *byte == 0));
        let mut memory = vec![9; LONG];
        sealed.read(0, &mut memory).expect("read");
        // On one node the sender sees all rights, and writes nothing.
        let near = context.same_node(0) && context.same_node(last);
        let there = if me == last || near { 0 } else { 7 };
        assert!(memory.iter().all(|byte| *byte == there), "rank {me}");
        context.barrier().expect("barrier");
    });
}

/// More members than one tree has, most of them on one node.
#[test]
#[cfg_attr(miri, ignore = "its jobs have more than three ranks")]
fn a_large_set_takes_several_trees() {
    run("a_large_set_takes_several_trees", &[&[1, 66, 1]], |context| {
        let window = context.window(3000).expect("window");
        let all: Vec<u32> = (0..context.ranks()).collect();
        if context.rank() == 0 {
            window.multicast(&all, 0, &[5; 3000], Some(0)).expect("multicast");
        }
        window.wait_notify(0, 1).expect("wait");
        let mut memory = [0; 3000];
        window.read(0, &mut memory).expect("read");
        assert!(memory == [5; 3000]);
        context.barrier().expect("barrier");
        assert_eq!(window.notified(0).expect("notified"), 1);
    });
}
