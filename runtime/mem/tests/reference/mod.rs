//! A reference for one-sided operations: a copy of what they must have written, and the errors
//! that they must have.

use kumi_mem::{Context, Error, Source, Tag, Window};

use crate::common::Numbers;

/// Bytes of the part of a window that one rank uses.
const PART: usize = 4000;

/// A window, and what this rank's part of every rank's piece must hold.
pub struct Reference<'c> {
    context: &'c Context,
    window: Window<'c>,
    /// Start of this rank's parts.
    base: usize,
    parts: Vec<Vec<u8>>,
}

/// The number that these bytes are.
fn word(bytes: &[u8]) -> u64 {
    let mut full = [0; 8];
    full[..bytes.len()].copy_from_slice(bytes);
    u64::from_ne_bytes(full)
}

impl<'c> Reference<'c> {
    /// Makes the window: all ranks call this.
    pub fn new(context: &'c Context) -> Reference<'c> {
        let ranks = context.ranks() as usize;
        let window = context.window(PART * ranks).expect("window");
        let parts = vec![vec![0; PART]; ranks];
        Reference { context, window, base: PART * context.rank() as usize, parts }
    }

    /// One random operation on the part at this rank.
    pub fn step(&mut self, to: u32, numbers: &mut Numbers) {
        match numbers.below(4) {
            0 => self.put(to, numbers),
            1 => self.get(to, numbers),
            2 => self.atomic(to, numbers),
            _ => self.wild(to, numbers),
        }
    }

    fn range(numbers: &mut Numbers) -> (usize, usize) {
        let most = if numbers.below(4) == 0 { PART } else { 40 };
        let length = numbers.below(most as u64 + 1) as usize;
        (numbers.below((PART - length) as u64 + 1) as usize, length)
    }

    fn put(&mut self, to: u32, numbers: &mut Numbers) {
        let (offset, length) = Self::range(numbers);
        let data: Vec<u8> = (0..length).map(|_| numbers.next() as u8).collect();
        self.window.put(to, self.base + offset, &data).expect("put");
        self.parts[to as usize][offset..offset + length].copy_from_slice(&data);
    }

    fn get(&mut self, from: u32, numbers: &mut Numbers) {
        let (offset, length) = Self::range(numbers);
        let mut got = vec![0; length];
        self.window.get(from, self.base + offset, &mut got).expect("get");
        assert!(got == self.parts[from as usize][offset..offset + length], "{from}: {offset}");
    }

    /// Any atomic operation of any width, on a few places so that comparisons match at times.
    fn atomic(&mut self, to: u32, numbers: &mut Numbers) {
        let bytes = if numbers.below(2) == 0 { 8 } else { 4 };
        let offset = 8 * numbers.below(4) as usize + 8 - bytes;
        let at = self.base + offset;
        let place = &mut self.parts[to as usize][offset..offset + bytes];
        let before = word(place);
        let operand = if numbers.below(2) == 0 { before } else { numbers.next() };
        let (a, b) = (operand, numbers.next());
        let (small, other) = (a as u32, b as u32);
        let window = &self.window;
        let wide = bytes == 8;
        let (got, after) = match (numbers.below(6), wide) {
            (0, true) => (window.fetch_add(to, at, a), before.wrapping_add(a)),
            (1, true) => (window.fetch_and(to, at, a), before & a),
            (2, true) => (window.fetch_or(to, at, a), before | a),
            (3, true) => (window.fetch_xor(to, at, a), before ^ a),
            (4, true) => (window.swap(to, at, a), a),
            (_, true) => (window.compare_swap(to, at, a, b), if before == a { b } else { before }),
            (operation, false) => {
                let old = before as u32;
                let (got, after) = match operation {
                    0 => (window.fetch_add_u32(to, at, small), old.wrapping_add(small)),
                    1 => (window.fetch_and_u32(to, at, small), old & small),
                    2 => (window.fetch_or_u32(to, at, small), old | small),
                    3 => (window.fetch_xor_u32(to, at, small), old ^ small),
                    4 => (window.swap_u32(to, at, small), small),
                    _ => (
                        window.compare_swap_u32(to, at, small, other),
                        if old == small { other } else { old },
                    ),
                };
                (got.map(u64::from), u64::from(after))
            }
        };
        assert_eq!(got.expect("atomic"), before, "{to}: {offset}, {bytes} bytes");
        place.copy_from_slice(&after.to_ne_bytes()[..bytes]);
    }

    /// Something outside of the window: an error, and nothing is written.
    fn wild(&mut self, to: u32, numbers: &mut Numbers) {
        let end = PART * self.parts.len();
        let offset = match numbers.below(3) {
            0 => end - numbers.below(3) as usize,
            1 => usize::MAX - numbers.below(4) as usize,
            _ => end + numbers.next() as usize % (usize::MAX / 2),
        };
        let result = match numbers.below(3) {
            0 => self.window.get(to, offset, &mut [0; 9]),
            1 => self.window.fetch_add(to, end + offset % 4096 * 8, 1).map(drop),
            _ => self.window.swap_u32(to, end + offset % 4096 * 4, 7).map(drop),
        };
        assert!(matches!(result, Err(Error::OutOfBounds { .. })), "{offset}: {result:?}");
    }

    /// Waits until all is in place, and compares with what the owners see. All ranks call this.
    pub fn finish(self) {
        let context = self.context;
        context.flush_all().expect("flush");
        context.barrier().expect("barrier");
        for to in 0..context.ranks() {
            context.send(to, 1, &self.parts[to as usize]).expect("send");
        }
        for from in 0..context.ranks() {
            let (_, expected) = context.recv_vec(Source::Rank(from), Tag::Is(1)).expect("recv");
            let mut found = vec![0; PART];
            self.window.read(PART * from as usize, &mut found).expect("read");
            assert!(found == expected, "what rank {from} wrote");
        }
        context.barrier().expect("barrier");
    }
}
