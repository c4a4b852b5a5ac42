//! Fences: what comes later is not there earlier.

mod common;

use common::{Aligned, run};
use kumi_mem::{Error, Rights};

/// The data goes by frames and the flag beside them, where the receiver shares memory: without the fence the flag is often
/// there first.
#[test]
fn a_flag_behind_a_fence_is_not_there_before_the_data() {
    run("a_flag_behind_a_fence_is_not_there_before_the_data", &[&[2], &[1, 1]], |context| {
        let rounds = if cfg!(miri) { 2 } else { 300 };
        let flags = context.window(16).expect("window");
        let mut memory = Aligned([0; 4096]);
        let body = |data: &kumi_mem::Window<'_>| -> Result<(), Error> {
            for round in 1..=rounds {
                if context.rank() == 0 {
                    data.put(1, 0, &[round as u8; 4096])?;
                    context.fence(1)?;
                    flags.put(1, 0, &u64::from(round as u32).to_ne_bytes())?;
                    flags.wait_notify(0, round)?;
                } else {
                    while flags.load_u64(0)? < round {
                        // The flag needs no help in shared memory, but frames do.
                        context.progress()?;
                    }
                    let mut seen = [0; 4096];
                    data.read(0, &mut seen)?;
                    assert!(seen.iter().all(|byte| *byte == round as u8), "round {round}");
                    flags.put_notify(0, 8, &[1], 0)?;
                }
            }
            context.barrier()
        };
        let done = context.with_window_on(&mut memory.0, Rights::ALL, body);
        done.expect("window").expect("rounds");
    });
}

#[test]
fn fences_refuse_ranks_that_are_not_there() {
    run("fences_refuse_ranks_that_are_not_there", &[&[1], &[2, 1]], |context| {
        let ranks = context.ranks();
        for rank in 0..ranks {
            context.fence(rank).expect("fence");
        }
        context.fence_all().expect("all");
        assert!(matches!(context.fence(ranks), Err(Error::BadRank { .. })));
        context.barrier().expect("barrier");
    });
}
