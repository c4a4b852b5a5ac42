//! Search for names similar to an unknown one, for error messages.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;

/// Most suggestions.
const SUGGESTIONS: usize = 3;
/// Longest name that is compared.
const LONGEST: usize = 64;
/// Most names that are compared, to bound the cost of an unknown name.
const MOST_COMPARED: usize = 512;

/// The names similar to `wanted`, the most similar first.
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

/// The edit distance in bytes, ignoring case.
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
