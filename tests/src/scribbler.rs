//! A rank that goes around its library. It changes words of its job's segment wherever it has them mapped, by the memory of
//! its process: the kernel then decides by that process's mappings.

use std::fs::{File, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use crate::cluster::Wire;
use crate::command::wait_for;
use crate::machine;

/// Bytes of a rank's lines in the shared file, see `docs/reference/segment.md`.
const LINES: u64 = 1_056_768;
/// Bytes of each open arena in which windows of small programs lie.
const WINDOWS: u64 = 64 << 10;

/// Mappings of a rank that has AF_XDP: rings, frames and the table of next hops.
const AF_XDP_PARTS: usize = 4 + 1 + 1;

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

/// A part of the segment that a rank may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Region {
    /// Flags of sleep, marks of rings and notification counters of all ranks of the node.
    Lines,
    /// Windows that other ranks may write.
    OpenArenas,
    /// The own flags, counters, window table and rings.
    RankFile,
    /// The own state of the channel to other nodes.
    Channel,
    /// The rings that a rank with AF_XDP shares with the kernel.
    Rings,
    /// The memory of the frames of a rank with AF_XDP.
    Frames,
}

/// A mapping of a process.
#[derive(Debug)]
struct Mapped {
    /// Last word of the memory file's name; that of a ring is "ring".
    name: String,
    place: Range<u64>,
    writable: bool,
    /// The kernel lets it become writable.
    may_write: bool,
    /// Where in the file it begins.
    offset: u64,
}

/// A process that is a rank, seen from outside.
#[derive(Debug)]
pub struct Scribbler {
    pid: u32,
    memory: File,
    segment: Vec<Mapped>,
    local_ranks: u64,
}

impl Scribbler {
    /// For the process `pid`, once it has joined its job on this wire.
    ///
    /// # Panics
    /// When it does not, or has not mapped the segment as the layout says.
    pub fn new(pid: u32, wire: Wire) -> Self {
        let parts = if wire == Wire::Xdp { AF_XDP_PARTS } else { 0 };
        let segment = wait_for("a rank that has joined", || {
            let segment = segment_of(pid);
            let count = |name| segment.iter().filter(|map| map.name == name).count();
            // Its channel is what it maps last of its segment.
            let joined = segment.iter().any(|map| map.name == "rank" && map.offset > 0);
            let xdp = count("ring") + count("frames") + count("hops");
            (joined && xdp == parts).then_some(segment)
        });
        let path = format!("/proc/{pid}/mem");
        let memory = OpenOptions::new().read(true).write(true).open(&path);
        let memory = memory.unwrap_or_else(|error| panic!("{path}: {error}"));
        let fronts = segment.iter().filter(|map| map.name == "rank" && map.offset == 0);
        let local_ranks = fronts.count() as u64;
        let found = Self { pid, memory, segment, local_ranks };
        let writable = |name| found.maps(name).filter(|map| map.writable).count();
        assert!(found.maps("shared").all(|map| map.may_write), "flags of mappings: {found:?}");
        assert_eq!(writable("job"), 0, "{found:?}");
        assert_eq!(writable("shared"), 1, "{found:?}");
        assert_eq!(writable("rank"), 2, "its front and its channel: {found:?}");
        assert_eq!(writable("arena"), 1, "{found:?}");
        assert_eq!(found.maps("arena").count() as u64, local_ranks, "{found:?}");
        if wire == Wire::Xdp {
            let writable = ["ring", "frames", "hops"].map(writable);
            assert_eq!(writable, [4, 1, 0], "{found:?}");
        }
        found
    }

    fn maps(&self, name: &str) -> impl Iterator<Item = &Mapped> {
        self.segment.iter().filter(move |map| map.name == name)
    }

    /// Tries to change words wherever the rank may only read; how many, while the process was there. The kernel refuses
    /// each, also to root. This way it would refuse in any mapping that is not writable now, so such a mapping must also be
    /// one that can never become writable.
    ///
    /// # Panics
    /// When one can, or a word is written.
    pub fn try_what_is_refused(&self, seed: u64) -> u64 {
        let mut numbers = Numbers(seed);
        let mut count = 0;
        for map in self.segment.iter().filter(|map| !map.writable) {
            assert!(!map.may_write, "it could be made writable: {map:?}");
            for _ in 0..100 {
                let at = map.place.start + 8 * numbers.below((map.place.end - map.place.start) / 8);
                let refused = self.memory.write_at(&numbers.next().to_ne_bytes(), at).is_err();
                if !machine::lives(self.pid) {
                    return count;
                }
                assert!(refused, "{map:?} was written at {at:x}");
                count += 1;
            }
        }
        count
    }

    /// The bytes of a region, in the memory of the process.
    fn ranges(&self, region: Region) -> Vec<Range<u64>> {
        let own = |name: &str, channel: bool| {
            let own = self.maps(name).filter(|map| map.writable && (map.offset > 0) == channel);
            own.map(|map| map.place.clone()).collect()
        };
        let Some(shared) = self.maps("shared").next().map(|map| &map.place) else {
            return Vec::new();
        };
        let arenas = shared.start + self.local_ranks * LINES;
        match region {
            Region::Lines => std::iter::once(shared.start..arenas).collect(),
            Region::OpenArenas => {
                let bytes = (shared.end - arenas) / self.local_ranks;
                let starts = (0..self.local_ranks).map(|local| arenas + local * bytes);
                starts.map(|start| start..start + WINDOWS).collect()
            }
            Region::RankFile => own("rank", false),
            Region::Channel => own("rank", true),
            Region::Rings | Region::Frames => {
                let name = if region == Region::Rings { "ring" } else { "frames" };
                self.maps(name).map(|map| map.place.clone()).collect()
            }
        }
    }

    /// Changes words of a region as the seed says, one each `pause`, until `done` says so or the process has ended; how
    /// many. Every other one is any word, the rest are words that are in use, so that the large unused parts do not draw
    /// all of it.
    pub fn scribble(
        &self,
        region: Region,
        seed: u64,
        pause: Duration,
        mut done: impl FnMut() -> bool,
    ) -> u64 {
        let ranges = self.ranges(region);
        let words: u64 = ranges.iter().map(|range| (range.end - range.start) / 8).sum();
        assert!(words > 0, "{region:?} of {self:?}");
        let mut numbers = Numbers(seed);
        let mut count = 0;
        let mut used = Vec::new();
        while !done() {
            if count % 500 == 0 {
                used = ranges.iter().flat_map(|range| self.words_in_use(range)).collect();
            }
            for _ in 0..20 {
                let at = match used.len() as u64 {
                    length if length > 0 && numbers.below(2) == 0 => {
                        used[numbers.below(length) as usize]
                    }
                    _ => nth_word(&ranges, numbers.below(words)),
                };
                let Some(old) = self.read(at) else { return count };
                let new = match numbers.below(7) {
                    0 => numbers.next(),
                    1 => numbers.below(1 << 20),
                    2 => old ^ 1 << numbers.below(64),
                    3 => old.wrapping_add(1),
                    4 => old.wrapping_sub(8),
                    5 => u64::MAX - numbers.below(64),
                    _ => 0,
                };
                if self.memory.write_all_at(&new.to_ne_bytes(), at).is_err() {
                    // A rank that ends takes its mappings down first.
                    assert!(!self.has_mapped(at), "it may write there");
                    return count;
                }
                count += 1;
                std::thread::sleep(pause);
            }
        }
        count
    }

    fn has_mapped(&self, at: u64) -> bool {
        segment_of(self.pid).iter().any(|map| map.writable && map.place.contains(&at))
    }

    /// Where something other than 0 lies; nothing once the process has ended.
    fn words_in_use(&self, range: &Range<u64>) -> Vec<u64> {
        let mut bytes = vec![0; (range.end - range.start) as usize];
        if self.memory.read_exact_at(&mut bytes, range.start).is_err() {
            return Vec::new();
        }
        let words = bytes.chunks_exact(8).zip((range.start..).step_by(8));
        words.filter(|(word, _)| *word != [0; 8]).map(|(_, at)| at).collect()
    }

    fn read(&self, at: u64) -> Option<u64> {
        let mut word = [0; 8];
        self.memory.read_exact_at(&mut word, at).ok()?;
        Some(u64::from_ne_bytes(word))
    }
}

/// Address of a word, counted over all ranges.
fn nth_word(ranges: &[Range<u64>], mut number: u64) -> u64 {
    for range in ranges {
        let words = (range.end - range.start) / 8;
        if number < words {
            return range.start + 8 * number;
        }
        number -= words;
    }
    unreachable!("so many words are there")
}

/// The files of a segment, and what AF_XDP needs, that a process has mapped.
fn segment_of(pid: u32) -> Vec<Mapped> {
    // A process that has ended has none.
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap_or_default();
    let (mut found, mut flagged): (Vec<Mapped>, usize) = (Vec::new(), 0);
    for line in text.lines() {
        if let Some(flags) = line.strip_prefix("VmFlags:") {
            // They come last, of whichever mapping, and those of a segment are in `found` by then.
            let may_write = flags.split_whitespace().any(|flag| flag == "mw");
            found[flagged..].iter_mut().for_each(|map| map.may_write = may_write);
            flagged = found.len();
        } else {
            found.extend(mapped(line));
        }
    }
    found
}

/// A line such as `7f00-7f10 rw-s 00000000 00:01 4711 /memfd:kumi-segment-rank (deleted)`, of a file of a segment or of what
/// AF_XDP needs.
fn mapped(line: &str) -> Option<Mapped> {
    let mut words = line.split_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let (rights, offset) = (words.next()?, words.next()?);
    let name = match words.nth(2)? {
        ring if ring.starts_with("socket:") => "ring",
        file @ ("/memfd:kumi-frames" | "/memfd:kumi-hops") => file.strip_prefix("/memfd:kumi-")?,
        file => file.strip_prefix("/memfd:kumi-segment-")?,
    };
    let name = name.to_owned();
    let number = |text| u64::from_str_radix(text, 16).ok();
    let place = number(start)?..number(end)?;
    let writable = rights.as_bytes().get(1) == Some(&b'w');
    Some(Mapped { name, place, writable, may_write: false, offset: number(offset)? })
}
