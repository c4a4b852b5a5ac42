//! A reference for one-sided operations: expected memory and expected errors.
#![allow(dead_code, reason = "each test file uses a part of it")]

use kumi_mem::{Completion, Context, Error, OnPlacement, Piece, Source, Strided, Tag, Window};

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
    completion: &'c Completion<'c>,
    /// Puts that were given the completion.
    counted: u64,
    /// Notifications raised, by target.
    raised: Vec<u64>,
}

/// The number that these bytes are.
fn word(bytes: &[u8]) -> u64 {
    let mut full = [0; 8];
    full[..bytes.len()].copy_from_slice(bytes);
    u64::from_ne_bytes(full)
}

impl<'c> Reference<'c> {
    /// Makes the window: all ranks call this.
    pub fn new(context: &'c Context, completion: &'c Completion<'c>) -> Reference<'c> {
        let window = context.window(Self::bytes(context)).expect("window");
        Reference::of(context, completion, window)
    }

    /// Bytes of the window's pieces.
    pub fn bytes(context: &Context) -> usize {
        PART * context.ranks() as usize
    }

    /// Takes a window whose pieces have so many bytes and are zeros.
    pub fn of(
        context: &'c Context,
        completion: &'c Completion<'c>,
        window: Window<'c>,
    ) -> Reference<'c> {
        let ranks = context.ranks() as usize;
        let parts = vec![vec![0; PART]; ranks];
        let (base, raised) = (PART * context.rank() as usize, vec![0; ranks]);
        Reference { context, window, base, parts, completion, counted: 0, raised }
    }

    /// Random operations on this rank's parts at random ranks; under Miri few of them.
    pub fn steps(&mut self, count: u32, seed: u64) {
        let mut numbers = Numbers(seed + u64::from(self.context.rank()));
        for _ in 0..if cfg!(miri) { count / 30 } else { count } {
            let to = numbers.below(u64::from(self.context.ranks())) as u32;
            self.step(to, &mut numbers);
        }
    }

    /// One random operation on the part at this rank.
    fn step(&mut self, to: u32, numbers: &mut Numbers) {
        match numbers.below(16) {
            0 | 6 => self.put(to, numbers),
            1 | 7 => self.get(to, numbers),
            2 | 8 => self.atomic(to, numbers),
            3 | 9 => self.put_strided(to, numbers),
            4 | 10 => self.get_strided(to, numbers),
            5 | 11 => self.wild(to, numbers),
            12 => self.put_list(to, numbers),
            13 => self.get_list(to, numbers),
            14 => self.wild_list(to, numbers),
            _ => self.multicast(numbers),
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
        let after = self.after(to, numbers);
        self.window.put_with(to, self.base + offset, &data, after).expect("put");
        self.parts[to as usize][offset..offset + length].copy_from_slice(&data);
    }

    fn get(&mut self, from: u32, numbers: &mut Numbers) {
        let (offset, length) = Self::range(numbers);
        let mut got = vec![0; length];
        self.window.get(from, self.base + offset, &mut got).expect("get");
        assert!(got == self.parts[from as usize][offset..offset + length], "{from}: {offset}");
    }

    /// Sometimes a notification, sometimes the completion, both counted.
    fn after(&mut self, to: u32, numbers: &mut Numbers) -> OnPlacement<'c> {
        let notify = (numbers.below(2) == 0).then_some(self.context.rank() % 64);
        self.raised[to as usize] += u64::from(notify.is_some());
        let completion = (numbers.below(2) == 0).then_some(self.completion);
        self.counted += u64::from(completion.is_some());
        if numbers.below(32) == 0 {
            let done = self.completion.done().expect("done");
            assert!(done <= self.counted);
        }
        OnPlacement { notify, completion }
    }

    /// Blocks inside of the part; mostly several, sometimes large ones.
    fn shape(numbers: &mut Numbers) -> Strided {
        let count = [0, 1, 2, 3, 40][numbers.below(5) as usize];
        let room = PART / count.max(1);
        let stride = numbers.below(room as u64 + 1) as usize;
        let block = match numbers.below(3) {
            0 => stride,
            1 => stride.min(8),
            _ => numbers.below(stride as u64 + 1) as usize,
        };
        let offset = numbers.below((PART - stride * count) as u64 + 1) as usize;
        Strided { offset, stride, block, count }
    }

    /// Where the bytes of the blocks lie, one after the other.
    fn places(shape: Strided) -> impl Iterator<Item = usize> {
        let Strided { offset, stride, block, count } = shape;
        (0..count).flat_map(move |index| (0..block).map(move |byte| offset + index * stride + byte))
    }

    fn put_strided(&mut self, to: u32, numbers: &mut Numbers) {
        let shape = Self::shape(numbers);
        let data: Vec<u8> = (0..shape.block * shape.count).map(|_| numbers.next() as u8).collect();
        let there = Strided { offset: self.base + shape.offset, ..shape };
        let after = self.after(to, numbers);
        self.window.put_strided(to, there, &data, after).expect("put");
        for (byte, attachment) in data.iter().zip(Self::places(shape)) {
            self.parts[to as usize][attachment] = *byte;
        }
    }

    fn get_strided(&mut self, from: u32, numbers: &mut Numbers) {
        let shape = Self::shape(numbers);
        let mut got = vec![0; shape.block * shape.count];
        let there = Strided { offset: self.base + shape.offset, ..shape };
        self.window.get_strided(from, there, &mut got).expect("get");
        let part = &self.parts[from as usize];
        let expected: Vec<u8> = Self::places(shape).map(|attachment| part[attachment]).collect();
        assert!(got == expected, "{from}: {shape:?}");
    }

    /// Pieces of the part: mostly few and short ones, at times more than all requests in flight
    /// together take. They may overlap, be empty, and be in any order.
    fn pieces(numbers: &mut Numbers) -> Vec<Piece> {
        let count = [0, 1, 2, 9, 300, 5000][numbers.below(6) as usize];
        let most = match numbers.below(3) {
            0 => 8,
            1 => 70,
            _ => PART / (count / 4 + 1),
        };
        let piece = |_| {
            let length = numbers.below(most as u64 + 1) as usize;
            let offset = numbers.below((PART - length) as u64 + 1) as usize;
            Piece { offset, length }
        };
        (0..count).map(piece).collect()
    }

    fn there(&self, pieces: &[Piece]) -> Vec<Piece> {
        let there = |piece: &Piece| Piece { offset: self.base + piece.offset, ..*piece };
        pieces.iter().map(there).collect()
    }

    /// Lengths of buffers that have so many bytes together.
    fn cuts(mut bytes: usize, numbers: &mut Numbers) -> Vec<usize> {
        let mut cuts = Vec::new();
        while bytes > 0 {
            cuts.push(numbers.below(bytes.min(3000) as u64 + 1) as usize);
            bytes -= cuts[cuts.len() - 1];
        }
        cuts
    }

    fn put_list(&mut self, to: u32, numbers: &mut Numbers) {
        let pieces = Self::pieces(numbers);
        let bytes: usize = pieces.iter().map(|piece| piece.length).sum();
        let data: Vec<u8> = (0..bytes).map(|_| numbers.next() as u8).collect();
        let (there, after) = (self.there(&pieces), self.after(to, numbers));
        if numbers.below(2) == 0 {
            self.window.put_list(to, &there, &data, after).expect("put");
        } else {
            let mut rest = &data[..];
            let cut = |length| rest.split_off(..length).expect("so many bytes");
            let buffers: Vec<&[u8]> = Self::cuts(bytes, numbers).into_iter().map(cut).collect();
            self.window.put_lists(to, &there, &buffers, after).expect("put");
        }
        let mut rest = &data[..];
        for Piece { offset, length } in pieces {
            let part = rest.split_off(..length).expect("so many bytes");
            self.parts[to as usize][offset..offset + length].copy_from_slice(part);
        }
    }

    fn get_list(&mut self, from: u32, numbers: &mut Numbers) {
        let pieces = Self::pieces(numbers);
        let part = &self.parts[from as usize];
        let of = |piece: &Piece| &part[piece.offset..piece.offset + piece.length];
        let expected = pieces.iter().map(of).collect::<Vec<_>>().concat();
        let mut got = vec![0; expected.len()];
        let there = self.there(&pieces);
        if numbers.below(2) == 0 {
            self.window.get_list(from, &there, &mut got).expect("get");
        } else {
            let mut rest = &mut got[..];
            let cut = |length| rest.split_off_mut(..length).expect("so many bytes");
            let mut buffers: Vec<&mut [u8]> =
                Self::cuts(expected.len(), numbers).into_iter().map(cut).collect();
            self.window.get_lists(from, &there, &mut buffers).expect("get");
        }
        assert!(got == expected, "{from}: {pieces:?}");
    }

    /// A list of which one piece is outside of the window: an error, and nothing is written.
    fn wild_list(&mut self, to: u32, numbers: &mut Numbers) {
        let mut pieces = Self::pieces(numbers);
        let end = PART * self.parts.len();
        let (offset, length) = match numbers.below(4) {
            0 => (end, 1),
            1 => (end + 1, 0),
            2 => (usize::MAX - numbers.below(9) as usize, 10),
            _ => (end - 5, 6 + numbers.below(1000) as usize),
        };
        let at = numbers.below(pieces.len() as u64 + 1) as usize;
        pieces.insert(at, Piece { offset, length });
        let mut data = vec![0xee; pieces.iter().map(|piece| piece.length).sum()];
        let there: Vec<Piece> = self
            .there(&pieces[..at])
            .into_iter()
            .chain(std::iter::once(pieces[at]))
            .chain(self.there(&pieces[at + 1..]))
            .collect();
        let result = if numbers.below(2) == 0 {
            let after = OnPlacement { notify: Some(0), completion: Some(self.completion) };
            self.window.put_list(to, &there, &data, after)
        } else {
            self.window.get_list(to, &there, &mut data)
        };
        let Err(Error::OutOfBounds { rank, offset: told, length: bytes, .. }) = result else {
            panic!("{result:?}");
        };
        assert_eq!((rank, told, bytes), (to, offset as u64, length as u64));
    }

    /// The same to some ranks, while others do that too.
    fn multicast(&mut self, numbers: &mut Numbers) {
        let (offset, length) = Self::range(numbers);
        let data: Vec<u8> = (0..length).map(|_| numbers.next() as u8).collect();
        let set: Vec<u32> = (0..self.context.ranks()).filter(|_| numbers.below(2) > 0).collect();
        let notify = (numbers.below(2) == 0).then_some(self.context.rank() % 64);
        self.window.multicast(&set, self.base + offset, &data, notify).expect("multicast");
        for to in set {
            self.parts[to as usize][offset..offset + length].copy_from_slice(&data);
            self.raised[to as usize] += u64::from(notify.is_some());
        }
    }

    /// Any atomic operation of any width, on a few places so that comparisons match at times.
    fn atomic(&mut self, to: u32, numbers: &mut Numbers) {
        let bytes = if numbers.below(2) == 0 { 8 } else { 4 };
        let offset = 8 * numbers.below(4) as usize + 8 - bytes;
        let at = self.base + offset;
        let attachment = &mut self.parts[to as usize][offset..offset + bytes];
        let before = word(attachment);
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
        attachment.copy_from_slice(&after.to_ne_bytes()[..bytes]);
    }

    /// Something outside of the window: an error, and nothing is written.
    fn wild(&mut self, to: u32, numbers: &mut Numbers) {
        let end = PART * self.parts.len();
        let offset = match numbers.below(3) {
            0 => end - numbers.below(3) as usize,
            1 => usize::MAX - numbers.below(4) as usize,
            _ => end + numbers.next() as usize % (usize::MAX / 2),
        };
        let result = match numbers.below(5) {
            3 => {
                // The first block is inside, the last is not.
                let shape = Strided { offset: self.base, stride: end - 4, block: 8, count: 2 };
                self.window.get_strided(to, shape, &mut [0; 16])
            }
            4 => {
                let shape = Strided { offset: 8, stride: usize::MAX / 2, block: 8, count: 4 };
                self.window.get_strided(to, shape, &mut [0; 32])
            }
            0 => self.window.get(to, offset, &mut [0; 9]),
            1 => self.window.fetch_add(to, end + offset % 4096 * 8, 1).map(drop),
            _ => self.window.swap_u32(to, end + offset % 4096 * 4, 7).map(drop),
        };
        assert!(matches!(result, Err(Error::OutOfBounds { .. })), "{offset}: {result:?}");
    }

    /// Waits until all is in place, and compares with what the owners see. All ranks call this.
    pub fn finish(self) {
        let context = self.context;
        // All that was counted is in place before anything is flushed.
        self.completion.wait_all().expect("wait");
        assert_eq!(self.completion.done().expect("done"), self.counted);
        context.flush_all().expect("flush");
        context.barrier().expect("barrier");
        for to in 0..context.ranks() {
            context.send(to, 1, &self.parts[to as usize]).expect("send");
            context.send(to, 2, &self.raised[to as usize].to_ne_bytes()).expect("send");
        }
        for from in 0..context.ranks() {
            let (_, expected) = context.recv_vec(Source::Rank(from), Tag::Is(1)).expect("recv");
            let mut found = vec![0; PART];
            self.window.read(PART * from as usize, &mut found).expect("read");
            assert!(found == expected, "what rank {from} wrote");
            let mut raised = [0; 8];
            context.recv(Source::Rank(from), Tag::Is(2), &mut raised).expect("recv");
            let notified = self.window.notified(from % 64).expect("notified");
            assert_eq!(notified, u64::from_ne_bytes(raised));
        }
        context.barrier().expect("barrier");
    }
}
