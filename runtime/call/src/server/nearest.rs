//! Names that are nearly the one that was asked for.

/// The distance of two names: insertions, deletions and exchanges of letters.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let exchanged = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = exchanged.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[b.len()]
}

/// Up to three of the names, the nearest first; none that has hardly a letter in common.
pub fn nearest<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let most = (name.chars().count() / 2).clamp(1, 4);
    let mut found: Vec<(usize, &str)> = names
        .filter(|other| other.len().abs_diff(name.len()) <= 4 * most)
        .map(|other| (distance(&name.to_lowercase(), &other.to_lowercase()), other))
        .filter(|(distance, _)| *distance <= most)
        .collect();
    found.sort_unstable();
    found.into_iter().take(3).map(|(_, name)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn names_that_are_nearly_right_are_found() {
        let names = ["dgesv", "dgemm", "dmmul", "zgesv", "ep"];
        let near = |name| nearest(name, names.iter().copied());
        assert_eq!(near("dgsev"), ["dgesv"]);
        assert_eq!(near("dgesvv"), ["dgesv", "zgesv", "dgemm"]);
        assert_eq!(near("DGEMM"), ["dgemm", "dgesv"]);
        assert_eq!(near("unheard-of"), [] as [&str; 0]);
    }
}
