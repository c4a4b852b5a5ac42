//! A peer that changes what a job's ranks on one node share: header, contexts, rings; not the memory of their windows.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// Where the header of a segment has the numbers that tell where the windows' memory begins.
const LOCAL_RANKS: u64 = 32;
const ARENA_BYTES: u64 = 48;
const TOTAL_BYTES: u64 = 56;

/// Numbers that look random, the same in every run (splitmix64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// Writes to a segment that a rank has open.
#[derive(Debug)]
pub struct Scribbler {
    file: File,
    /// Bytes before the memory of windows.
    shared: u64,
}

impl Scribbler {
    /// For the segment that process `pid` has open as `descriptor`.
    ///
    /// # Panics
    /// When it has not, or what is there is no segment.
    pub fn new(pid: u32, descriptor: u32) -> Self {
        let path = format!("/proc/{pid}/fd/{descriptor}");
        let file = OpenOptions::new().read(true).write(true).open(&path);
        let file = file.unwrap_or_else(|error| panic!("{path}: {error}"));
        let word = |at| read(&file, at);
        let arenas = (word(LOCAL_RANKS) & 0xffff_ffff) * word(ARENA_BYTES);
        let shared = word(TOTAL_BYTES) - arenas;
        assert!((1 << 20..1 << 30).contains(&shared), "{shared} bytes before the windows");
        Self { file, shared }
    }

    /// Bytes that may be changed.
    pub fn shared_bytes(&self) -> u64 {
        self.shared
    }

    /// Changes words as the seed says, one each `pause`, until `done` says so; how many. Every other one is any word,
    /// the rest are words that are in use, so that the large unused parts do not draw all of it.
    pub fn scribble(&self, seed: u64, pause: Duration, mut done: impl FnMut() -> bool) -> u64 {
        let mut numbers = Numbers(seed);
        let mut count = 0;
        let mut used = Vec::new();
        while !done() {
            if count % 500 == 0 {
                used = self.words_in_use();
            }
            for _ in 0..20 {
                let any = 8 * numbers.below(self.shared / 8);
                let at = match used.len() as u64 {
                    0 => any,
                    length if numbers.below(2) == 0 => used[numbers.below(length) as usize],
                    _ => any,
                };
                let old = read(&self.file, at);
                let new = match numbers.below(7) {
                    0 => numbers.next(),
                    1 => numbers.below(1 << 20),
                    2 => old ^ 1 << numbers.below(64),
                    3 => old.wrapping_add(1),
                    4 => old.wrapping_sub(8),
                    5 => u64::MAX - numbers.below(64),
                    _ => 0,
                };
                self.file.write_all_at(&new.to_ne_bytes(), at).expect("the segment stays");
                count += 1;
                std::thread::sleep(pause);
            }
        }
        count
    }

    /// Where something other than 0 lies.
    fn words_in_use(&self) -> Vec<u64> {
        let mut bytes = vec![0; self.shared as usize];
        self.file.read_exact_at(&mut bytes, 0).expect("the segment stays");
        let words = bytes.chunks_exact(8).enumerate();
        words.filter(|(_, word)| *word != [0; 8]).map(|(index, _)| 8 * index as u64).collect()
    }
}

fn read(file: &File, at: u64) -> u64 {
    let mut word = [0; 8];
    file.read_exact_at(&mut word, at).expect("the segment stays");
    u64::from_ne_bytes(word)
}
