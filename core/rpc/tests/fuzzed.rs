//! The fuzz targets' harness with inputs from a seed: a bounded run that needs no fuzzer.

#[path = "../../../fuzz/calls.rs"]
mod calls;
use crate::samples;

use calls::input::Numbers;

/// What each target gets.
const INPUTS: usize = if cfg!(miri) { 50 } else { 20_000 };

/// Runs a target with many inputs; the sum of what it counts.
fn all(seed: u64, target: impl Fn(&[u8]) -> usize) -> usize {
    let mut numbers = Numbers(seed);
    let mut input = Vec::new();
    (0..INPUTS)
        .map(|_| {
            input.clear();
            // The first byte leaves the hello as it is, mostly.
            input.push(numbers.next() as u8);
            let length = numbers.next() % 160;
            input.extend((0..length).map(|_| numbers.next() as u8));
            target(&input)
        })
        .sum()
}

#[test]
fn clients_of_a_server() {
    let taken = all(1, calls::server);
    assert!(taken > INPUTS * 2 / 5, "only {taken} calls were taken in");
}

#[test]
fn servers_of_a_client() {
    let over = all(2, calls::client);
    assert!(over > INPUTS / 4, "only {over} streams ended");
}

#[test]
fn clients_and_servers_of_a_metaserver() {
    let events = all(3, calls::metaserver);
    assert!(events > INPUTS * 5 / 2, "only {events} events");
}

#[test]
fn metaservers_of_a_server() {
    let events = all(4, calls::member);
    assert!(events > INPUTS, "only {events} events");
}
