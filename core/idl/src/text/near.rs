//! Names that somebody may have meant.

use alloc::string::String;
use alloc::vec::Vec;

/// The name nearest to what was written, when it is near enough to have been meant.
pub(crate) fn nearest<'a>(
    written: &str,
    names: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let written: Vec<char> = written.chars().take(LONGEST).collect();
    let most = 1 + written.len() / 4;
    let distances = names.into_iter().take(MOST_NAMES).map(|name| (distance(&written, name), name));
    let near = distances.min_by_key(|(distance, _)| *distance);
    near.filter(|(distance, _)| *distance <= most && *distance < written.len())
        .map(|(_, name)| name)
}

/// Names that are looked at: a suggestion is a courtesy.
const MOST_NAMES: usize = 512;
/// Longer names are compared by their beginnings.
const LONGEST: usize = 64;

/// Letters to change, add, take away or swap with the next.
fn distance(written: &[char], name: &str) -> usize {
    let name: Vec<char> = name.chars().take(LONGEST).collect();
    let same = |a: char, b: char| usize::from(!a.eq_ignore_ascii_case(&b));
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=name.len()).collect();
    for (i, a) in written.iter().enumerate() {
        let mut row = Vec::with_capacity(last.len());
        row.push(i + 1);
        for (j, b) in name.iter().enumerate() {
            let mut least = (last[j] + same(*a, *b)).min(last[j + 1] + 1).min(row[j] + 1);
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
pub(crate) fn suggestion<'a>(written: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    match nearest(written, names) {
        Some(name) => alloc::format!("; did you mean `{name}`?"),
        None => String::new(),
    }
}
