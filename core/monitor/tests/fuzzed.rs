//! The fuzz target's harness with inputs from a seed: a bounded run that needs no fuzzer.

#[path = "../../../fuzz/history.rs"]
mod history;
#[path = "../../../fuzz/input.rs"]
mod input;

use input::Numbers;

/// The body of a slot with so many nodes and jobs, of which some bytes are others.
fn body(numbers: &mut Numbers) -> Vec<u8> {
    let (nodes, jobs) = (numbers.below(4) as u32, numbers.below(4) as u32);
    let mut body = numbers.next().to_le_bytes().to_vec();
    body.extend(nodes.to_le_bytes());
    body.extend(jobs.to_le_bytes());
    body.extend((0..nodes * 12).map(|_| numbers.next() as u8));
    for _ in 0..jobs {
        let loads = numbers.below(300) as u32;
        body.extend((0..12).map(|_| numbers.next() as u8));
        body.extend(loads.to_le_bytes());
        body.extend((0..loads).map(|_| numbers.next() as u8));
    }
    for _ in 0..numbers.below(3) {
        let at = numbers.below(body.len() as u64) as usize;
        match numbers.below(3) {
            0 => body[at] = numbers.next() as u8,
            1 => body.truncate(at),
            _ => body.insert(at, numbers.next() as u8),
        }
        if body.is_empty() {
            break;
        }
    }
    body
}

#[test]
fn whatever_stands_in_a_slot() {
    let mut numbers = Numbers(1);
    let inputs = if cfg!(miri) { 30 } else { 3_000 };
    let rows = (0..inputs).filter(|_| history::slot(&body(&mut numbers))).count();
    assert!(rows > inputs / 4 && rows < inputs, "{rows} were rows");
}
