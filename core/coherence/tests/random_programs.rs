//! Programs without data races read what was written last, whatever the order of steps and messages.

use kumi_coherence::{Migration, Placement, Protocol};
use proptest::prelude::*;

use crate::machine::World;
use crate::script::{Script, scripts};

/// A generator of numbers (SplitMix64), so that a case is the same wherever it runs.
pub struct Numbers(pub u64);

impl Numbers {
    /// A number below the bound.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((word ^ (word >> 31)) % bound as u64) as usize
    }
}

fn run(
    script: &Script,
    protocol: Protocol,
    migration: Migration,
    placement: Placement,
    extra: (u32, u32, bool),
) {
    let mut world = World::new(script, protocol, migration, placement, extra);
    let mut numbers = Numbers(script.seed);
    while !world.is_over(script) {
        let steps = world.steps(script);
        assert!(!steps.is_empty(), "nothing can happen any more: {}", world.waits());
        world.step(script, steps[numbers.below(steps.len())]);
    }
}

/// As many cases as `PROPTEST_CASES` says, or few enough for a test run.
pub fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(4000)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn reads_see_the_last_write(
        script in scripts(),
        lazy: bool,
        moves: bool,
        ahead in prop_oneof![Just(0u32), 1..20u32],
        updated in prop_oneof![Just(0u32), 1..5u32],
        lazy_twins: bool,
        placement in prop_oneof![
            Just(Placement::Blocks),
            Just(Placement::FirstTouch),
            Just(Placement::At(0)),
            Just(Placement::RoundRobin { block: 1, first: 0 }),
        ],
    ) {
        let protocol = if lazy { Protocol::Lazy } else { Protocol::Scope };
        let migration = if moves { Migration::SingleWriter } else { Migration::Never };
        run(&script, protocol, migration, placement, (ahead, updated.min(script.pages), lazy_twins));
    }
}
