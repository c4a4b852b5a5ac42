//! The fuzz target's harness with inputs from a seed: a bounded run that needs no fuzzer.

#[path = "../../../fuzz/input.rs"]
mod input;
#[path = "../../../fuzz/verdict.rs"]
mod verdict;

use input::Numbers;
use kumi_verdict::{CallName, RankStanding, Standing, Summary, Wait, WaitKind};

fn some(numbers: &mut Numbers) -> Option<u64> {
    (numbers.below(3) > 0).then(|| numbers.next() >> numbers.below(64))
}

fn any_wait(numbers: &mut Numbers) -> Wait {
    let mut name = [0; 32];
    name.fill_with(|| numbers.next() as u8 % 100 + 30);
    Wait {
        number: numbers.next(),
        thread: 1,
        kind: WaitKind::from_number(numbers.below(16) as u32).unwrap_or_default(),
        peer: some(numbers).map(|peer| peer as u32 % 6),
        what: some(numbers),
        further: some(numbers),
        timed: false,
        alone: false,
        call: CallName::from_bytes(name),
        address: 0,
    }
}

fn any_standing(numbers: &mut Numbers) -> Standing {
    if numbers.below(8) == 0 {
        return Standing::Changed;
    }
    let rank = |numbers: &mut Numbers| RankStanding {
        rank: numbers.below(6) as u32,
        over: numbers.below(3) == 0,
        waits: (0..numbers.below(3)).map(|_| any_wait(numbers)).collect(),
        held: (0..numbers.below(3)).map(|_| numbers.below(4)).collect(),
    };
    Standing::Settled(Summary {
        round: numbers.below(4),
        ranks: numbers.next() as u32,
        waiting: numbers.below(3) as u32,
        ending: numbers.below(2) as u32,
        sent: numbers.below(2),
        delivered: numbers.below(2),
        listed: (0..numbers.below(4)).map(|_| rank(numbers)).collect(),
    })
}

#[test]
fn whatever_nodes_tell() {
    let mut numbers = Numbers(1);
    let (mut taken, mut waits) = (0, 0);
    let inputs = if cfg!(miri) { 15 } else { 1_500 };
    for _ in 0..inputs {
        let mut input = Vec::new();
        for _ in 0..numbers.below(12) {
            let mut bytes = postcard::to_allocvec(&any_standing(&mut numbers)).expect("it encodes");
            if numbers.below(4) == 0 {
                let at = numbers.below(bytes.len() as u64) as usize;
                bytes[at] = numbers.next() as u8;
            }
            bytes.truncate(255);
            input.extend([numbers.next() as u8, bytes.len() as u8]);
            input.extend(bytes);
        }
        taken += verdict::standings(&input);
        let mut bytes = postcard::to_allocvec(&any_wait(&mut numbers)).expect("it encodes");
        let at = numbers.below(bytes.len() as u64) as usize;
        bytes[at] = numbers.next() as u8;
        waits += usize::from(verdict::wait(&bytes));
    }
    assert!(taken > inputs && waits > inputs / 2, "{taken} standings and {waits} waits were taken");
}
