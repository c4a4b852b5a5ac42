//! Larger jobs on several nodes, at random. `VERDICT_RUNS` sets how many.

use crate::job::{Job, Op};

/// Small and good enough: xorshift64*.
struct Random(u64);

impl Random {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % most
    }
}

fn script(random: &mut Random, me: usize, nodes: &[usize]) -> Vec<Op> {
    let ranks = nodes.len();
    let near: Vec<usize> = (0..ranks).filter(|other| nodes[*other] == nodes[me]).collect();
    let op = |random: &mut Random| match random.below(9) {
        0..=2 => Op::Send(random.below(ranks)),
        3..=4 => Op::Receive(Some(random.below(ranks))),
        5 => Op::Receive(None),
        6 => Op::Raise(near[random.below(near.len())]),
        7 => Op::Counter,
        _ => Op::Outside,
    };
    (0..random.below(8)).map(|_| op(random)).collect()
}

fn run(seed: u64) -> bool {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let ranks = 2 + random.below(6);
    let count = 1 + random.below(ranks.min(3));
    let nodes: Vec<usize> = (0..ranks).map(|rank| rank % count).collect();
    let scripts: Vec<Vec<Op>> = (0..ranks).map(|rank| script(&mut random, rank, &nodes)).collect();
    let mut job = Job::new(&scripts, &nodes);
    // Some ranks, daemons and links are slow.
    let weights: Vec<usize> = (0..job.actors()).map(|_| 1 + random.below(12)).collect();
    let total: usize = weights.iter().sum();
    let mut calm = 0;
    while calm < 40_000 {
        let mut drawn = random.below(total);
        let actor = weights.iter().position(|weight| {
            let hit = drawn < *weight;
            drawn = drawn.wrapping_sub(*weight);
            hit
        });
        let actor = actor.expect("one is drawn");
        let moved = job.step(actor);
        calm = if actor < ranks && moved { 0 } else { calm + 1 };
        if job.is_called_stopped() {
            assert!(job.is_stopped(), "seed {seed}: called stopped, and is not: {job:?}");
            return true;
        }
        let ended = calm > 1_000 && (!job.is_stopped() || job.has_frames());
        if ended {
            return false;
        }
    }
    panic!("seed {seed}: stopped, and nobody notices: {job:?}");
}

#[test]
fn random_jobs_get_the_verdict_that_is_true() {
    let runs = std::env::var("VERDICT_RUNS").ok().and_then(|runs| runs.parse().ok());
    let runs: u64 = runs.unwrap_or(5_000);
    let stopped = (0..runs).filter(|seed| run(*seed)).count();
    assert!(stopped as u64 > runs / 20, "{stopped} of {runs} jobs stopped");
    println!("{stopped} of {runs} jobs stopped");
}
