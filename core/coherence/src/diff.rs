//! Differences between an image of a page and its twin, exact to the byte (JIAJIA; TreadMarks).
//!
//! A diff says which bytes of a page changed and what they are now. It is a list of runs of 8-byte words. A run is *whole* if
//! every byte of its words changed, otherwise each word has a mask of the bytes that did. So two ranks that write neighbouring bytes of a
//! page lose nothing of each other, and an array of numbers is still one run:
//!
//! ```text
//! run    first word u16 | words u16, highest bit set if whole | masks, one byte for each word, unless whole | words
//! ```

use alloc::vec::Vec;

use crate::error::BadMessage;

/// Bytes of a word, the unit of runs.
pub const WORD: usize = 8;
const WHOLE: u16 = 1 << 15;
const RUN_HEADER: usize = 4;

fn word(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; WORD];
    word.copy_from_slice(&bytes[at * WORD..(at + 1) * WORD]);
    u64::from_le_bytes(word)
}

/// The mask of bytes in which two words differ: bit *i* for byte *i*.
fn changed_bytes(now: u64, before: u64) -> u8 {
    let mut differs = now ^ before;
    // Each byte's bits are gathered in its lowest.
    differs |= differs >> 4;
    differs |= differs >> 2;
    differs |= differs >> 1;
    differs &= 0x0101_0101_0101_0101;
    // The multiplication gathers the eight lowest bits in the highest byte, the first byte's in its lowest bit.
    (differs.wrapping_mul(0x0102_0408_1020_4080) >> 56) as u8
}

/// Appends the diff of `now` against `twin` to `diff`; returns whether anything differs.
///
/// # Panics
/// If the two are not equally long, or not a multiple of [`WORD`] of at most 256 KiB.
pub fn encode(now: &[u8], twin: &[u8], diff: &mut Vec<u8>) -> bool {
    let words = now.len() / WORD;
    assert!(
        now.len() == twin.len() && now.len().is_multiple_of(WORD) && words < usize::from(WHOLE)
    );
    let before = diff.len();
    let mut at = 0;
    while let Some(first) = first_difference(now, twin, at) {
        let whole = changed_bytes(word(now, first), word(twin, first)) == u8::MAX;
        let mut end = first + 1;
        while end < words {
            let mask = changed_bytes(word(now, end), word(twin, end));
            if mask == 0 || (mask == u8::MAX) != whole {
                break;
            }
            end += 1;
        }
        let count = (end - first) as u16;
        diff.extend_from_slice(&(first as u16).to_le_bytes());
        diff.extend_from_slice(&(if whole { count | WHOLE } else { count }).to_le_bytes());
        if !whole {
            diff.extend((first..end).map(|at| changed_bytes(word(now, at), word(twin, at))));
        }
        diff.extend_from_slice(&now[first * WORD..end * WORD]);
        at = end;
    }
    diff.len() > before
}

/// The first word from `at` in which the two differ. Blocks that are equal are passed by fast: a comparison of slices is.
fn first_difference(now: &[u8], twin: &[u8], mut at: usize) -> Option<usize> {
    const BLOCK: usize = 256;
    let words = now.len() / WORD;
    while at < words {
        let (start, end) = (at * WORD, (at * WORD + BLOCK).min(now.len()));
        if now[start..end] != twin[start..end] {
            return (at..words).find(|at| word(now, *at) != word(twin, *at));
        }
        at = end / WORD;
    }
    None
}

/// A change of a page. Whoever writes it writes each word at once: others may read the page meanwhile, and a word that they
/// read is then one that somebody wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageChange<'d> {
    /// These words, from byte `offset` of the page on.
    Words {
        /// A multiple of eight.
        offset: usize,
        /// Whole words.
        bytes: &'d [u8],
    },
    /// Some bytes of the word at byte `offset` of the page.
    Bytes {
        /// A multiple of eight.
        offset: usize,
        /// The word; bytes that did not change have any value.
        word: [u8; WORD],
        /// Bit *i* says that byte *i* changed.
        mask: u8,
    },
}

impl<'d> PageChange<'d> {
    /// The bytes of a word that a mask names.
    fn masked(offset: usize, word: &[u8], mask: u8) -> Self {
        let mut bytes = [0; WORD];
        bytes.copy_from_slice(word);
        Self::Bytes { offset, word: bytes, mask }
    }

    /// Each byte that changed, with its offset in the page.
    pub fn bytes(&self) -> impl Iterator<Item = (usize, u8)> + '_ {
        let (offset, bytes, mask) = match self {
            Self::Words { offset, bytes } => (*offset, *bytes, u8::MAX),
            Self::Bytes { offset, word, mask } => (*offset, &word[..], *mask),
        };
        let all = (offset..).zip(bytes.iter().copied()).enumerate();
        all.filter(move |(at, _)| mask >> (at % WORD) & 1 != 0).map(|(_, byte)| byte)
    }

    /// Writes it to a page that nobody else reads meanwhile.
    pub fn write_to(&self, page: &mut [u8]) {
        self.bytes().for_each(|(at, byte)| page[at] = byte);
    }
}

/// Reads the runs of a diff of a page of `page_bytes` and gives each change to `write`.
///
/// # Errors
/// [`BadMessage`] if it is no diff of such a page; `write` may have been called before.
pub fn apply(
    mut diff: &[u8],
    page_bytes: usize,
    mut write: impl FnMut(PageChange<'_>),
) -> Result<(), BadMessage> {
    while !diff.is_empty() {
        let (header, rest) = diff.split_at_checked(RUN_HEADER).ok_or(BadMessage::Short)?;
        let first = usize::from(u16::from_le_bytes([header[0], header[1]]));
        let count = u16::from_le_bytes([header[2], header[3]]);
        let (whole, words) = (count & WHOLE != 0, usize::from(count & !WHOLE));
        if words == 0 || (first + words) * WORD > page_bytes {
            return Err(BadMessage::Range);
        }
        let masks = if whole { 0 } else { words };
        let (masks, rest) = rest.split_at_checked(masks).ok_or(BadMessage::Short)?;
        let (data, rest) = rest.split_at_checked(words * WORD).ok_or(BadMessage::Short)?;
        if whole {
            write(PageChange::Words { offset: first * WORD, bytes: data });
        } else {
            for ((at, mask), word) in (first..).zip(masks).zip(data.chunks_exact(WORD)) {
                write(PageChange::masked(at * WORD, word, *mask));
            }
        }
        diff = rest;
    }
    Ok(())
}

/// Gives each change from `twin` to `fetched` to `write`: what other nodes changed since the twin was
/// received. Bytes that only this node changed are equal in both, so they stay (two-way diffing, Cashmere-2L).
pub fn merge(fetched: &[u8], twin: &[u8], mut write: impl FnMut(PageChange<'_>)) {
    let words = fetched.len() / WORD;
    let mask = |at| changed_bytes(word(fetched, at), word(twin, at));
    let mut at = 0;
    while let Some(first) = first_difference(fetched, twin, at) {
        // Words that changed wholly come in one stretch.
        let end = (first..words).find(|at| mask(*at) != u8::MAX).unwrap_or(words);
        if end > first {
            write(PageChange::Words {
                offset: first * WORD,
                bytes: &fetched[first * WORD..end * WORD],
            });
            at = end;
        } else {
            let bytes = &fetched[first * WORD..(first + 1) * WORD];
            write(PageChange::masked(first * WORD, bytes, mask(first)));
            at = first + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use proptest::prelude::*;

    use super::*;

    fn page() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
        let change = (0..512usize, 1..40usize, any::<u8>());
        (prop::collection::vec(any::<u8>(), 512), prop::collection::vec(change, 0..12)).prop_map(
            |(twin, changes)| {
                let mut now = twin.clone();
                for (start, length, byte) in changes {
                    now[start..(start + length).min(512)].fill(byte);
                }
                (now, twin)
            },
        )
    }

    proptest! {
        /// The diff names exactly the bytes that changed, and makes the new page out of the old one.
        #[test]
        fn a_diff_is_exact((now, twin) in page()) {
            let mut diff = Vec::new();
            prop_assert_eq!(encode(&now, &twin, &mut diff), now != twin);
            let (mut made, mut named) = (twin.clone(), vec![false; 512]);
            apply(&diff, 512, |change| {
                change.write_to(&mut made);
                change.bytes().for_each(|(at, _)| named[at] = true);
            }).unwrap();
            prop_assert_eq!(&made, &now);
            for at in 0..512 {
                prop_assert_eq!(named[at], now[at] != twin[at], "byte {}", at);
            }
        }

        /// What others changed comes in, and what this node wrote elsewhere stays.
        #[test]
        fn a_merge_keeps_what_is_written_here((fetched, twin) in page(), own in 0..512usize, value: u8) {
            let mut copy = twin.clone();
            let free = fetched[own] == twin[own];
            if free { copy[own] = value; }
            merge(&fetched, &twin, |change| change.write_to(&mut copy));
            let mut wanted = fetched;
            if free { wanted[own] = value; }
            prop_assert_eq!(copy, wanted);
        }

        /// Whatever arrives, nothing is written outside of the page.
        #[test]
        fn a_broken_diff_writes_nowhere_else(diff in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut last = 0;
            let _ = apply(&diff, 512, |change| {
                // Its word is written as a whole.
                let end = match change {
                    PageChange::Words { offset, bytes } => offset + bytes.len(),
                    PageChange::Bytes { offset, .. } => offset + WORD,
                };
                last = last.max(end);
            });
            prop_assert!(last <= 512);
        }
    }

    #[test]
    fn numbers_that_change_wholly_are_one_run() {
        let mut diff = Vec::new();
        assert!(encode(&[1; 4096], &[0; 4096], &mut diff));
        assert_eq!(diff.len(), RUN_HEADER + 4096);
    }
}
