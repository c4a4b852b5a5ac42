//! Names that look like a wrong one.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;

/// Most names that are suggested.
const SUGGESTIONS: usize = 3;
/// Longer names are not compared: who is that far off does not mean them.
const LONGEST: usize = 64;
/// Most names looked at, so that a wrong name costs no more than that.
const MOST_COMPARED: usize = 512;

/// The names nearest to `wanted`, the nearest first; none if none is near.
pub(crate) fn nearest<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> Vec<String> {
    if wanted.len() > LONGEST {
        return Vec::new();
    }
    let most = (wanted.len() / 3).max(1);
    let mut near: Vec<(usize, &str)> = names
        .take(MOST_COMPARED)
        .filter(|name| name.len().abs_diff(wanted.len()) <= most)
        .map(|name| (edits(wanted.as_bytes(), name.as_bytes()), name))
        .filter(|&(edits, _)| edits <= most)
        .collect();
    near.sort_unstable();
    near.into_iter().take(SUGGESTIONS).map(|(_, name)| name.to_owned()).collect()
}

/// Bytes to insert, remove or replace to make one of the other, whatever their case.
fn edits(one: &[u8], other: &[u8]) -> usize {
    let mut above: Vec<usize> = (0..=other.len()).collect();
    let mut below = Vec::with_capacity(above.len());
    for (i, a) in one.iter().enumerate() {
        below.clear();
        below.push(i + 1);
        for (j, b) in other.iter().enumerate() {
            let kept = above[j] + usize::from(!a.eq_ignore_ascii_case(b));
            below.push(kept.min(above[j + 1] + 1).min(below[j] + 1));
        }
        core::mem::swap(&mut above, &mut below);
    }
    above[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_come_first() {
        let names = ["dgemm", "dgesv", "sgesv", "zgesv", "ep"];
        assert_eq!(nearest("dgesb", names.into_iter()), ["dgesv"]);
        assert_eq!(nearest("DGESV", names.into_iter())[0], "dgesv");
        assert_eq!(nearest("fft", names.into_iter()), [""; 0]);
        assert_eq!(nearest("", ["a"].into_iter()), ["a"]);
        assert_eq!(edits(b"kitten", b"sitting"), 3);
    }
}
