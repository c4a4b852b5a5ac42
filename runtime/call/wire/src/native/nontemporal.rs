//! Non-temporal copies, for bytes that another process reads next on another processor.
//!
//! An ordinary copy first fetches each cache line that it overwrites from the cache of its last user. That
//! takes longer than the copy.

/// Smallest copy done in this way. Shorter ones may stay in a cache that both processors share.
const LEAST: usize = 256 << 10;
/// Bytes written together: a cache line.
#[cfg(target_arch = "x86_64")]
const LINE: usize = 64;

/// Copies `length` bytes.
///
/// # Safety
/// So many bytes can be read and written there, and the two do not overlap.
pub(super) unsafe fn copy(from: *const u8, to: *mut u8, length: usize) {
    if length < LEAST {
        // SAFETY: the caller's promise.
        unsafe { std::ptr::copy_nonoverlapping(from, to, length) };
        return;
    }
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller's promise.
    unsafe {
        let head = to.align_offset(LINE).min(length);
        std::ptr::copy_nonoverlapping(from, to, head);
        let lines = (length - head) / LINE;
        copy_lines(from.add(head), to.add(head), lines);
        let done = head + lines * LINE;
        std::ptr::copy_nonoverlapping(from.add(done), to.add(done), length - done);
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: the caller's promise.
    unsafe {
        std::ptr::copy_nonoverlapping(from, to, length);
    }
}

/// Copies whole lines, and orders them before all later writes.
///
/// # Safety
/// As [`copy`]; `to` is aligned as a line is.
#[cfg(target_arch = "x86_64")]
unsafe fn copy_lines(from: *const u8, to: *mut u8, lines: usize) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};

    for line in 0..lines {
        // SAFETY: inside of what the caller has promised. Every processor of this architecture has these instructions; the first
        // wants no alignment, and the second that of a line or less.
        unsafe {
            let from = from.add(line * LINE).cast::<__m128i>();
            let to = to.add(line * LINE).cast::<__m128i>();
            let (a, b) = (_mm_loadu_si128(from), _mm_loadu_si128(from.add(1)));
            let (c, d) = (_mm_loadu_si128(from.add(2)), _mm_loadu_si128(from.add(3)));
            _mm_stream_si128(to, a);
            _mm_stream_si128(to.add(1), b);
            _mm_stream_si128(to.add(2), c);
            _mm_stream_si128(to.add(3), d);
        }
    }
    // SAFETY: every processor of this architecture has it.
    unsafe { _mm_sfence() };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_is_copied_and_nothing_else_however_it_lies() {
        let from: Vec<u8> = (0..LEAST + 1000).map(|at| (at * 7 + at / 251) as u8).collect();
        for (begin, skip, length) in [
            (0, 0, LEAST),
            (1, 3, LEAST + 1),
            (63, 1, LEAST + 63),
            (5, 64, LEAST + 900),
            (9, 9, 100),
        ] {
            let mut to = vec![0_u8; LEAST + 2000];
            // SAFETY: both are inside of their vectors.
            unsafe { copy(from[skip..].as_ptr(), to[begin..].as_mut_ptr(), length) };
            assert!(to[begin..begin + length] == from[skip..skip + length]);
            let untouched = to[..begin].iter().chain(&to[begin + length..]).all(|byte| *byte == 0);
            assert!(untouched, "{begin} {length}");
        }
    }
}
