//! What came of the papers' statements when somebody last looked: a line for each in a file beside this one, with its
//! verdict, its name and its numbers.
//!
//! Seeds are fixed, so the same code gives the same numbers. A flipped verdict fails in either direction, and so does a
//! number that is off by more than a twentieth. After a change that is meant:
//!
//! ```text
//! KUMI_WRITE_EXPECTED=1 cargo test -p kumi-sim --test figures --test calls
//! ```
//!
//! This writes the files anew and fails all the same, so nothing passes that was only just written. Look at the
//! difference, then run the tests without the variable. Where `CI` is set nothing is written.

use kumi_sim::figures::{Statement, Verdict};
use std::collections::BTreeMap;
use std::path::Path;

/// How far a number may be off; a unit of its last digit is permitted, too.
const TOLERANCE: f64 = 0.05;

/// Holds the statements to the file of that name.
///
/// # Panics
/// If one is not as expected, or the file is to be written.
pub fn check(name: &str, found: &[Statement]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/expected").join(name);
    if std::env::var_os("KUMI_WRITE_EXPECTED").is_some_and(|value| value == "1") {
        assert!(std::env::var_os("CI").is_none(), "expectations are not written where CI is set");
        std::fs::write(&path, text(found)).unwrap();
        panic!(
            "{} was written; look at it, then run this without KUMI_WRITE_EXPECTED",
            path.display()
        );
    }
    let expected = std::fs::read_to_string(&path).unwrap();
    let problems = problems(&expected, found);
    assert!(problems.is_empty(), "{}:\n{}", path.display(), problems.join("\n"));
}

/// The file's text.
pub fn text(statements: &[Statement]) -> String {
    let line = |s: &Statement| format!("{}\t{}\t{}\n", word(s.verdict), s.what, s.numbers);
    statements.iter().map(line).collect()
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Holds => "holds",
        Verdict::Fails => "fails",
        Verdict::Open => "open",
    }
}

/// A sentence for each statement that is not as the text says.
pub fn problems(expected: &str, found: &[Statement]) -> Vec<String> {
    let mut left: BTreeMap<&str, (&str, &str)> = BTreeMap::new();
    for line in expected.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let [verdict, what, numbers] = fields[..] else { panic!("no three fields: {line}") };
        let twice = left.insert(what, (verdict, numbers));
        assert!(twice.is_none(), "\"{what}\" is expected twice");
    }
    let mut problems = Vec::new();
    for Statement { what, verdict, numbers } in found {
        let Some((before, old)) = left.remove(&**what) else {
            problems.push(format!("\"{what}\" is not expected at all"));
            continue;
        };
        let now = word(*verdict);
        if now != before {
            problems
                .push(format!("\"{what}\" was \"{before}\" ({old}) and is \"{now}\" ({numbers})"));
        } else if !near(old, numbers) {
            problems.push(format!("\"{what}\" had the numbers \"{old}\" and has \"{numbers}\""));
        }
    }
    problems.extend(left.keys().map(|what| format!("\"{what}\" is judged no longer")));
    problems
}

/// Whether both have as many numbers, each near the other's.
fn near(old: &str, new: &str) -> bool {
    let (old, new) = (numbers(old), numbers(new));
    let close = |((old, unit), (new, _)): (&(f64, f64), &(f64, f64))| {
        (old - new).abs() <= f64::max(TOLERANCE * old.abs(), 1.001 * unit)
    };
    old.len() == new.len() && old.iter().zip(&new).all(close)
}

/// Numbers of a text, each with the unit of its last digit.
fn numbers(text: &str) -> Vec<(f64, f64)> {
    let word = |word: &str| {
        let word = word.trim_end_matches(['.', '-']);
        let decimals = word.split_once('.').map_or(0, |(_, after)| after.len());
        Some((word.parse().ok()?, 0.1f64.powi(i32::try_from(decimals).ok()?)))
    };
    text.split(|c: char| !(c.is_ascii_digit() || c == '.' || c == '-')).filter_map(word).collect()
}
