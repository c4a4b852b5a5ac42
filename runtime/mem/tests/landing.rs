//! A wire that lays data where it belongs, before it is known whether a packet is right. `KUMI_FAULTS` stands for it: it lays the
//! packets that come, whichever they are. Memory is as with any other wire, also when packets are lost, doubled and late.
#![cfg(not(miri))] // Ranks have one environment there.

use kumi_mem::{Context, Source, Tag};

mod common;
use common::{Job, Numbers, start};

/// Bytes of a window that are read; as many behind them are written.
const BYTES: usize = 100_000;
const ROUNDS: u64 = 150;

fn content(rank: u32, at: usize) -> u8 {
    (at as u32).wrapping_mul(rank + 3).wrapping_mul(0x9e37_79b9).to_be_bytes()[0]
}

/// Each rank reads from the others, while they read from it, put bytes beside and send messages.
fn reads(context: &Context) {
    let window = context.window(2 * BYTES).expect("window");
    let (me, ranks) = (context.rank(), context.ranks());
    let own: Vec<u8> = (0..BYTES).map(|at| content(me, at)).collect();
    window.write(0, &own).expect("inside");
    context.barrier().expect("barrier");
    let mut numbers = Numbers(u64::from(me) + 77);
    for round in 0..ROUNDS {
        let mut below = |bound: usize| numbers.below(bound as u64) as usize;
        let from = (me + 1 + below(ranks as usize - 1) as u32) % ranks;
        let offset = below(BYTES);
        let length = below(BYTES - offset);
        let noise = vec![round as u8; below(9_000)];
        window.put(from, BYTES + below(BYTES - noise.len()), &noise).expect("put");
        let mut got = vec![0xaa; length + 16];
        window.get(from, offset, &mut got[8..length + 8]).expect("get");
        let right = |(at, byte): (usize, &u8)| *byte == content(from, offset + at);
        assert!(got[8..length + 8].iter().enumerate().all(right), "round {round}");
        assert!(got[..8] == [0xaa; 8] && got[length + 8..] == [0xaa; 8], "round {round}: beside");
        let (next, before) = ((me + 1) % ranks, (me + ranks - 1) % ranks);
        context.send(next, 7, &noise).expect("send");
        context.recv(Source::Rank(before), Tag::Is(7), &mut [0; 9_000]).expect("recv");
    }
    context.barrier().expect("barrier");
    let mut unchanged = vec![0; BYTES];
    window.read(0, &mut unchanged).expect("inside");
    assert!(unchanged == own, "what others read has changed");
}

fn lands(test: &str, faults: &str, checksum: &str) -> u64 {
    let env = &[("KUMI_FAULTS", faults), ("KUMI_CHECKSUM", checksum)];
    let job = Job { layout: &[1, 2, 1], env, ..Job::default() };
    let mut job = start(test, &job, reads);
    job.wait();
    let landed = job.total("landed");
    job.finish();
    landed
}

#[test]
fn what_lands_is_right() {
    assert!(lands("what_lands_is_right", "land=1000", "headers") > 1_000);
}

#[test]
fn what_lands_is_right_on_a_bad_wire() {
    let faults = "loss=30,double=20,late=30,land=800,seed=5";
    assert!(lands("what_lands_is_right_on_a_bad_wire", faults, "headers") > 100);
}

#[test]
fn nothing_lands_whose_bytes_are_all_checked() {
    let faults = "loss=30,double=20,late=30,land=800,seed=6";
    assert_eq!(lands("nothing_lands_whose_bytes_are_all_checked", faults, "all"), 0);
}
