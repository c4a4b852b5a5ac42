//! Copies of every length and alignment, and copies of what changes meanwhile.

use super::*;
use std::sync::atomic::AtomicBool;

const GUARD: u8 = 0xa5;
/// Under Miri, whose steps are slow, a few.
const LENGTHS: &[usize] = if cfg!(miri) {
    &[0, 1, 7, 8, 9, 23, 64]
} else {
    &[
        0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 31, 63, 64, 65, 200, 256,
        257, 600,
    ]
};
/// Every place relative to a word, or some.
const STEP: usize = if cfg!(miri) { 3 } else { 1 };

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 7 + 1) as u8).collect()
}

/// Checks that the bytes are between guards.
fn check(memory: &[u8], start: usize, expected: &[u8]) {
    let end = start + expected.len();
    assert_eq!(&memory[start..end], expected);
    let around = memory[..start].iter().chain(&memory[end..]);
    assert!(around.into_iter().all(|byte| *byte == GUARD), "written beside the place");
}

#[test]
fn every_byte_is_copied_and_none_beside() {
    for &length in LENGTHS {
        let bytes = pattern(length);
        for from in (0..9).step_by(STEP) {
            let mut source = [&vec![GUARD; from], &bytes[..], &[GUARD; 9]].concat();
            let shared = SharedBytesMut::from(&mut source[..]).slice(from, length).shared();
            assert_eq!(shared.to_vec(), bytes);
            let mut private = vec![GUARD; length + 9];
            shared.copy_to(&mut private[5..5 + length]);
            check(&private, 5, &bytes);
            for to in (0..9).step_by(STEP) {
                let mut place = vec![GUARD; length + 20];
                SharedBytesMut::from(&mut place[..]).slice(to, length).copy_from(shared);
                check(&place, to, &bytes);
                let mut place = vec![GUARD; length + 20];
                SharedBytesMut::from(&mut place[..]).slice(to, length).copy_from(&bytes[..]);
                check(&place, to, &bytes);
                SharedBytesMut::from(&mut place[..]).slice(to, length).clear();
                check(&place, to, &vec![0; length]);
            }
        }
    }
}

#[test]
fn overlapping_copies_are_as_if_read_before() {
    for &length in LENGTHS {
        for (from, to) in [(0, 3), (3, 0), (8, 16), (16, 8), (5, 5)] {
            let mut memory = pattern(length + 40);
            let mut expected = memory.clone();
            expected.copy_within(from..from + length, to);
            let shared = SharedBytesMut::from(&mut memory[..]);
            shared.slice(to, length).copy_from(shared.slice(from, length).shared());
            assert_eq!(memory, expected, "{length} bytes from {from} to {to}");
        }
    }
}

#[test]
fn nothing_outside_is_a_part() {
    let mut memory = [0; 16];
    let shared = SharedBytesMut::from(&mut memory[..]);
    for (start, length) in [(17, 0), (16, 1), (0, 17), (1, usize::MAX), (usize::MAX, 1)] {
        assert!(shared.get(start, length).is_none());
        assert!(std::panic::catch_unwind(|| shared.slice(start, length)).is_err());
    }
    assert_eq!(shared.get(16, 0).map(SharedBytesMut::len), Some(0));
    assert!(std::panic::catch_unwind(|| shared.copy_from(&[0; 15][..])).is_err());
    assert!(std::panic::catch_unwind(|| shared.shared().copy_to(&mut [0; 17])).is_err());
    assert!(std::panic::catch_unwind(|| shared.shared().load_u64(9)).is_err());
    let odd = usize::from(shared.as_ptr().addr() % 8 == 0);
    assert!(std::panic::catch_unwind(|| shared.store_u64(odd, 1)).is_err());
    assert!(shared.slice(odd, 15).atomic_u64().is_none());
}

/// Runs `write` again and again in a thread of its own while `look` runs.
fn beside(write: impl Fn() + Sync, look: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                write();
            }
        });
        look();
        stop.store(true, Relaxed);
    });
}

const LOOKS: usize = if cfg!(miri) { 30 } else { 200_000 };

/// By every way of writing eight bytes and of reading them.
#[test]
fn eight_aligned_bytes_are_never_torn() {
    let mut words = [0u64; 2];
    // SAFETY: the bytes of the words, which are used through this value only until it is no longer used.
    let shared = unsafe { SharedBytesMut::new(NonNull::from(&mut words).cast(), 8) };
    let mut other = [u64::MAX; 1];
    // SAFETY: as above.
    let full = unsafe { SharedBytes::new(NonNull::from(&mut other).cast(), 8) };
    let write = || {
        shared.copy_from(&[0x11; 8][..]);
        shared.store_u64(0, 0);
        shared.copy_from(full);
    };
    beside(write, || {
        for _ in 0..LOOKS {
            let mut read = [0; 8];
            shared.shared().copy_to(&mut read);
            let seen = [u64::from_ne_bytes(read), shared.shared().load_u64(0)];
            assert!(
                seen.iter().all(|seen| [0, 0x1111_1111_1111_1111, u64::MAX].contains(seen)),
                "{seen:x?}"
            );
        }
    });
}

/// What is copied while it changes has old bytes and new ones and no others, and nothing beside it is touched.
#[test]
fn a_copy_of_what_changes_has_only_what_was_written() {
    const WORDS: usize = if cfg!(miri) { 16 } else { 80 };
    let mut words = [0u64; WORDS];
    // SAFETY: the bytes of the words, which are used through this value only until it is no longer used.
    let shared = unsafe { SharedBytesMut::new(NonNull::from(&mut words).cast(), 8 * WORDS) };
    let write = || {
        shared.copy_from(&[0xff; 8 * WORDS][..]);
        shared.clear();
    };
    beside(write, || {
        let mut place = [GUARD; 8 * WORDS + 16];
        for _ in 0..LOOKS / 10 {
            shared.shared().copy_to(&mut place[8..8 + 8 * WORDS]);
            assert!(place[8..8 + 8 * WORDS].iter().all(|byte| [0, 0xff].contains(byte)));
            let (before, after) = (&place[..8], &place[8 + 8 * WORDS..]);
            assert_eq!((before, after), (&[GUARD; 8][..], &[GUARD; 8][..]));
        }
    });
}
