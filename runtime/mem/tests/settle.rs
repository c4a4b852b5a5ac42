//! Settling a channel between real processes, in the middle of traffic.

mod common;

use common::{fewer, run};
use kumi_mem::Context;
use std::time::Duration;

const ROUNDS: u64 = fewer(50, 3) as u64;
const BYTES: usize = fewer(20_000, 3_000);

/// Every rank puts to every other, settles its channel with the puts under way, and goes on.
fn settle_often(context: &Context) {
    let ranks = context.ranks();
    let window = context.window(BYTES * ranks as usize).expect("window");
    let own = BYTES * context.rank() as usize;
    let mut settled = 0;
    for round in 0..ROUNDS {
        for peer in (0..ranks).filter(|peer| *peer != context.rank()) {
            window.put_notify(peer, own, &vec![round as u8; BYTES], 0).expect("put");
        }
        let taken = context.quiesce(Duration::from_secs(60)).expect("quiesce");
        settled += u64::from(taken.is_some());
        // Puts that waited in the ring meanwhile, and those of the others, arrive all the same.
        window.wait_notify(0, (round + 1) * u64::from(ranks - 1)).expect("notify");
        context.barrier().expect("barrier");
        for peer in (0..ranks).filter(|peer| *peer != context.rank()) {
            let mut got = vec![0; BYTES];
            window.read(BYTES * peer as usize, &mut got).expect("read");
            assert!(got.iter().all(|byte| *byte == round as u8), "round {round}, from {peer}");
        }
        context.barrier().expect("barrier");
    }
    assert_eq!(settled, ROUNDS);
}

#[test]
fn a_channel_settles_and_goes_on() {
    run("a_channel_settles_and_goes_on", &[&[1, 1], &[2, 1], &[3]], settle_often);
}
