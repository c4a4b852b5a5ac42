//! One-sided operations against a reference memory, near and far, allowed and refused.

mod common;
mod reference;

use common::{Numbers, run};
use kumi_mem::{Error, Rights};
use reference::Reference;

/// One node, one rank per node, both.
const LAYOUTS: &[&[u32]] = &[&[1], &[2], &[1, 1], &[2, 1, 2]];

/// Every rank does random operations on a part of every rank's window that nobody else uses, and
/// keeps a copy of what these parts must hold.
#[test]
fn operations_do_what_a_reference_memory_does() {
    run("operations_do_what_a_reference_memory_does", LAYOUTS, |context| {
        let ranks = context.ranks();
        let mut reference = Reference::new(context);
        let mut numbers = Numbers(77 + u64::from(context.rank()));
        for _ in 0..600 {
            let to = numbers.below(u64::from(ranks)) as u32;
            reference.step(to, &mut numbers);
        }
        reference.finish();
    });
}

/// All ranks on the same words, the owner by its own window too.
#[test]
fn atomics_are_atomic_near_and_far() {
    run("atomics_are_atomic_near_and_far", LAYOUTS, |context| {
        let (me, ranks) = (context.rank(), context.ranks());
        let window = context.window(64).expect("window");
        let rounds = 100;
        let bit = 1u64 << me;
        for _ in 0..rounds {
            window.fetch_add(0, 0, 1).expect("add");
            window.fetch_add_u32(0, 12, 1).expect("add");
            let before = window.fetch_or(0, 16, bit).expect("or");
            assert_eq!(before & bit, 0, "nobody else changes this bit");
            let before = window.fetch_and(0, 16, !bit).expect("and");
            assert_eq!(before & bit, bit);
            window.fetch_xor_u32(0, 24, bit as u32).expect("xor");
            // Adds by comparing: what came between shows in the value before.
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
        for _ in 0..20 {
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
            assert_eq!(window.load_u64(48).expect("load"), 20 * all);
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
