//! The fuzz targets' harness with inputs from a seed: a bounded run that needs no fuzzer.

#[path = "../../../fuzz/coherence.rs"]
mod coherence;

use coherence::input::Numbers;

/// What each target gets.
const INPUTS: usize = if cfg!(miri) { 50 } else { 20_000 };

/// Runs a target with many inputs of less than so many bytes; the sum of what it counts.
fn all(seed: u64, most: u64, target: impl Fn(&[u8]) -> usize) -> usize {
    let mut numbers = Numbers(seed);
    let input = |numbers: &mut Numbers| {
        let length = numbers.below(most);
        (0..length).map(|_| numbers.next() as u8).collect::<Vec<u8>>()
    };
    (0..INPUTS).map(|_| target(&input(&mut numbers))).sum()
}

/// Bytes as they may be, and mostly small ones behind the number of a kind.
#[test]
fn messages() {
    let any = all(1, 60, |input| coherence::message(input).into());
    let likely = all(2, 12, |input| {
        let small: Vec<u8> = input.iter().map(|byte| byte % 14).collect();
        coherence::message(&small).into()
    });
    assert!(any > 0 && likely > INPUTS / 20, "only {any} and {likely} messages");
}

#[test]
fn diffs_of_pages() {
    let any = all(3, 60, |input| coherence::page_diff(input).into());
    let likely = all(4, 10, |input| {
        let small: Vec<u8> = input.iter().map(|byte| byte % 4).collect();
        coherence::page_diff(&small).into()
    });
    assert!(any > 0 && likely > INPUTS / 100, "only {any} and {likely} diffs");
}

#[test]
fn ranks_that_say_anything() {
    let taken = all(5, 400, coherence::protocol);
    assert!(taken > 2 * INPUTS, "only {taken} messages were taken");
}
