//! Suggestions of similar names for unknown ones.

use alloc::vec::Vec;

/// Names that are compared: a suggestion is a courtesy.
const MOST_NAMES: usize = 512;
/// Longer names are compared by their beginnings.
const LONGEST: usize = 64;

/// Up to three of the names, the nearest first, those that are as near in their order; none that has hardly a letter in
/// common with what was written.
#[must_use]
pub fn nearest<'a>(written: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let most = (written.chars().take(LONGEST).count() / 2).clamp(1, 4);
    let near = near(written, names, most).into_iter();
    near.take(3).map(|(_, name)| name).collect()
}

/// The names at most so far away, with their distances, the nearest first.
fn near<'a>(
    written: &str,
    names: impl IntoIterator<Item = &'a str>,
    most: usize,
) -> Vec<(usize, &'a str)> {
    let long = written.len();
    let written: Vec<char> = written.chars().take(LONGEST).collect();
    let mut found: Vec<(usize, &str)> = names
        .into_iter()
        // A character has up to four bytes; this costs nothing, the distance does.
        .filter(|name| name.len().abs_diff(long) <= 4 * most)
        .take(MOST_NAMES)
        .map(|name| (distance(&written, name), name))
        .filter(|(distance, _)| *distance <= most)
        .collect();
    found.sort_by_key(|(distance, _)| *distance);
    found
}

/// Letters to change, add, take away or swap with the next, whether capital or small.
fn distance(written: &[char], name: &str) -> usize {
    let name: Vec<char> = name.chars().take(LONGEST).collect();
    let other = |a: char, b: char| usize::from(!a.eq_ignore_ascii_case(&b));
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=name.len()).collect();
    for (i, a) in written.iter().enumerate() {
        let mut row = Vec::with_capacity(last.len());
        row.push(i + 1);
        for (j, b) in name.iter().enumerate() {
            let mut least = (last[j] + other(*a, *b)).min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *a == name[j - 1] && written[i - 1] == *b {
                least = least.min(before[j - 1] + 1);
            }
            row.push(least);
        }
        before = core::mem::replace(&mut last, row);
    }
    last.last().copied().unwrap_or(0)
}

/// `; did you mean …?`, or nothing.
#[cfg(feature = "text")]
pub(crate) fn suggestion<'a>(
    written: &str,
    names: impl IntoIterator<Item = &'a str>,
) -> alloc::string::String {
    let length = written.chars().take(LONGEST).count();
    match near(written, names, 1 + length / 4).first() {
        Some((distance, name)) if *distance < length => alloc::format!("; did you mean `{name}`?"),
        _ => alloc::string::String::new(),
    }
}

#[cfg(all(test, feature = "text"))]
mod tests {
    use super::{nearest, suggestion};
    use alloc::vec::Vec;

    #[test]
    fn names_that_are_nearly_right_are_found() {
        let names = ["dgemm", "dgesv", "dmmul", "ep", "zgesv"];
        let near = |name| nearest(name, names);
        assert_eq!(near("dgsev"), ["dgesv", "zgesv"], "letters are swapped");
        assert_eq!(near("dgesvv"), ["dgesv", "zgesv", "dgemm"]);
        assert_eq!(near("DGEMM"), ["dgemm", "dgesv"]);
        assert!(near("unheard-of").is_empty() && near("").is_empty());
        assert_eq!(suggestion("dmul", names), "; did you mean `dmmul`?");
        assert_eq!(suggestion("x", names), "");
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes")]
    fn names_of_any_number_and_length() {
        let long = "x".repeat(1 << 20);
        let names: Vec<&str> =
            core::iter::repeat_n(long.as_str(), 100_000).chain(["dgesv"]).collect();
        assert_eq!(nearest("dgesw", names.iter().copied()), ["dgesv"], "others are not compared");
        assert_eq!(nearest(&long, names.iter().copied()).len(), 3);
    }
}
