//! Windows of elements: by index the same as by bytes.

mod common;

use common::run;
use kumi_mem::{AtomicElement, Error, OnPlacement, Piece, Rights, Strided, TypedWindow};
use zerocopy::{FromBytes, Immutable, IntoBytes};

const LAYOUTS: &[&[u32]] = &[&[1], &[2], &[1, 1]];

#[derive(Debug, Clone, Copy, PartialEq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Particle {
    place: [f64; 3],
    number: u32,
    colour: [u8; 4],
}

fn particle(number: u32) -> Particle {
    let x = f64::from(number);
    Particle { place: [x, x + 0.25, -x], number, colour: [1, 2, 3, number as u8] }
}

#[test]
fn elements_go_where_their_index_says() {
    run("elements_go_where_their_index_says", LAYOUTS, |context| {
        let (me, ranks) = (context.rank(), context.ranks());
        let (next, before) = ((me + 1) % ranks, (me + ranks - 1) % ranks);
        // Not as many at each rank.
        let window = context.typed_window::<Particle>(40 + me as usize).expect("window");
        assert_eq!(window.len(), 40 + me as usize);
        assert_eq!(window.bytes().len(), window.len() * 32);
        assert_eq!(window.size_at(next).expect("size"), 40 + u64::from(next));
        window.put_notify(next, 3, &[particle(me), particle(100 + me)], 5).expect("put");
        assert_eq!(window.wait_notify(5, 1).expect("wait"), 1);
        assert_eq!(window.notified(5).expect("count"), 1);
        let mut three = [particle(7); 3];
        window.read(2, &mut three).expect("read");
        assert_eq!(three[1..], [particle(before), particle(100 + before)]);
        assert_eq!(three[0].place, [0.0; 3]);
        assert_eq!(window.load(4).expect("load"), particle(100 + before));
        assert_eq!(window.get_one(next, 4).expect("get"), particle(100 + me));
        window.store(39, particle(9)).expect("store");
        window.write(37, &[particle(8)]).expect("write");
        context.barrier().expect("barrier");
        let mut last = [particle(0); 3];
        window.get(next, 37, &mut last).expect("get");
        assert_eq!((last[0], last[2]), (particle(8), particle(9)));
        // The owner's number of elements counts, not the caller's.
        let end = 40 + next as usize;
        for at in [end, end + 1, usize::MAX / 32, usize::MAX / 31, usize::MAX] {
            let outside = window.get_one(next, at);
            assert!(matches!(outside, Err(Error::OutOfBounds { .. })), "{at}: {outside:?}");
            let outside = window.load(at.saturating_add(2));
            assert!(matches!(outside, Err(Error::OutOfBounds { .. })), "{at}: {outside:?}");
        }
        assert!(matches!(window.size_at(ranks), Err(Error::BadRank { .. })));
        context.barrier().expect("barrier");
    });
}

#[test]
fn shapes_and_lists_count_elements() {
    run("shapes_and_lists_count_elements", LAYOUTS, |context| {
        let (me, ranks) = (context.rank(), context.ranks() as usize);
        let next = (me + 1) % context.ranks();
        let window = context.typed_window::<i32>(20 * ranks).expect("window");
        let completion = context.completion().expect("completion");
        let after = OnPlacement { notify: Some(1), completion: Some(&completion) };
        // A column of a matrix for each rank.
        let column: Vec<i32> = (0..20).map(|row| 100 * me as i32 + row).collect();
        let shape = Strided { offset: me as usize, stride: ranks, block: 1, count: 20 };
        for to in 0..context.ranks() {
            window.put_strided(to, shape, &column, after).expect("put");
        }
        window.wait_notify(1, ranks as u64).expect("wait");
        completion.wait_all().expect("all");
        let mut all = vec![0; 20 * ranks];
        window.read(0, &mut all).expect("read");
        for (at, value) in all.iter().enumerate() {
            assert_eq!(*value, (100 * (at % ranks) + at / ranks) as i32);
        }
        let mut back = vec![0; 20];
        window.get_strided(next, shape, &mut back).expect("get");
        assert_eq!(back, column);
        context.barrier().expect("barrier");
        // Own columns only: others use the rest.
        let piece = |row: usize| Piece { offset: row * ranks + me as usize, length: 1 };
        let pieces = [piece(7), piece(0), piece(19)];
        window.put_list(next, &pieces, &[-1, -2, -3], OnPlacement::default()).expect("put");
        let mut three = [0; 3];
        window.get_list(next, &pieces, &mut three).expect("get");
        assert_eq!(three, [-1, -2, -3]);
        assert_eq!(window.get_one(next, 7 * ranks + me as usize).expect("get"), -1);
        let far = [Piece { offset: usize::MAX / 2, length: 1 }];
        let outside = window.put_list(next, &far, &[0], OnPlacement::default());
        assert!(matches!(outside, Err(Error::OutOfBounds { .. })), "{outside:?}");
        context.barrier().expect("barrier");
        if me == 0 {
            let ranks: Vec<u32> = (0..context.ranks()).collect();
            window.multicast(&ranks, 2, &[77, 78], Some(9)).expect("multicast");
        }
        window.wait_notify(9, 1).expect("wait");
        assert_eq!(window.load(3).expect("load"), 78);
        context.barrier().expect("barrier");
    });
}

/// All operations on element 1 of rank 0's piece.
fn atomics<T: AtomicElement + PartialEq + std::fmt::Debug>(
    window: &TypedWindow<'_, T>,
    number: impl Fn(i8) -> T,
) {
    let is = |result: Result<T, Error>, expected| {
        assert_eq!(result.expect("atomic"), number(expected));
    };
    is(window.swap(0, 1, number(12)), 0);
    is(window.fetch_and(0, 1, number(10)), 12);
    is(window.fetch_or(0, 1, number(3)), 8);
    is(window.fetch_xor(0, 1, number(-1)), 11);
    is(window.fetch_add(0, 1, number(12)), -12);
    is(window.compare_swap(0, 1, number(5), number(6)), 0);
    is(window.compare_swap(0, 1, number(0), number(-6)), 0);
    is(window.get_one(0, 1), -6);
    is(window.get_one(0, 0), 0);
    is(window.get_one(0, 2), 0);
    for at in [3, usize::MAX / 8, usize::MAX] {
        let outside = window.swap(0, at, number(1));
        assert!(matches!(outside, Err(Error::OutOfBounds { .. })), "{outside:?}");
    }
}

#[test]
fn atomics_have_their_elements_width_and_sign() {
    run("atomics_have_their_elements_width_and_sign", &[&[1], &[2], &[1, 1]], |context| {
        let i32s = context.typed_window::<i32>(3).expect("window");
        let u32s = context.typed_window::<u32>(3).expect("window");
        let i64s = context.typed_window::<i64>(3).expect("window");
        let u64s = context.typed_window::<u64>(3).expect("window");
        if context.rank() + 1 == context.ranks() {
            atomics(&i32s, i32::from);
            atomics(&u32s, |number| i32::from(number) as u32);
            atomics(&i64s, i64::from);
            atomics(&u64s, |number| i64::from(number) as u64);
        }
        context.barrier().expect("barrier");
    });
}

#[test]
fn windows_of_the_programs_own_elements_keep_them() {
    run("windows_of_the_programs_own_elements_keep_them", LAYOUTS, |context| {
        let next = (context.rank() + 1) % context.ranks();
        let mut table = [1.0f64, 2.0, 3.0];
        let done = context.with_typed_window_on(&mut table, Rights::ALL, |window| {
            assert_eq!(window.get_one(next, 2)?, 3.0);
            window.put(next, 1, &[-2.5])?;
            context.flush_all()?;
            context.barrier()
        });
        done.expect("window").expect("operations");
        assert_eq!(table, [1.0, -2.5, 3.0]);
        // From bytes and back: a tail that is no element is left alone.
        let window = context.window(20).expect("window").typed::<u64>();
        assert_eq!((window.len(), window.size_at(next).expect("size")), (2, 2));
        assert!(matches!(window.store(2, 1), Err(Error::OutOfBounds { .. })));
        assert_eq!(window.into_bytes().len(), 20);
        context.barrier().expect("barrier");
    });
}
