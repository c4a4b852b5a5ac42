//! Several heads in virtual time: the real heads and agents, elections by the real terms, and a store as etcd. Heads die and
//! stand still, are cut off from the store and from nodes, their clocks differ and jump.
//!
//! Ranks write, and heads that wait copy what they write. What nodes hear that is kept is there at the end, or is marked.
//! What clients asked and heard is checked for linearizability, job by job. Every run is a function of its seed.
//! `KUMI_SIM_FACTOR=20` makes twenty times as many runs, `KUMI_SIM_SEED=7` those of one seed, and `KUMI_SIM_TRACE=1` tells all.

#[path = "../cluster/random.rs"]
mod random;

mod candidacy;
mod clients;
mod copies;
mod heads;
mod history;
mod links;
mod nodes;
mod store;
mod world;

use world::{Faults, World};

/// Runs of each test; `KUMI_SIM_FACTOR` multiplies them.
const RUNS: u64 = if cfg!(miri) { 1 } else { 200 };

struct SeedGuard(u64);

impl Drop for SeedGuard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the failing run: KUMI_SIM_SEED={}", self.0);
        }
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn run(faults: Faults) {
    let seeds = match number("KUMI_SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..RUNS * number("KUMI_SIM_FACTOR").unwrap_or(1),
    };
    let (mut terms, mut kept, mut lost_disks, mut whole) = (0, 0, 0, 0);
    for seed in seeds.clone() {
        let _guard = SeedGuard(seed);
        let mut world = World::new(seed, faults);
        terms += world.run();
        kept += world.kept.values().sum::<u64>();
        lost_disks += world.lost_disks;
        whole += u64::from(!world.forced);
    }
    let runs = seeds.end - seeds.start;
    assert!(terms > runs, "heads follow one another");
    assert!(kept > 100 * runs, "output is acknowledged");
    if runs > 1 {
        assert!(whole > runs / 8, "heads in sync lead, in {whole} runs alone");
        assert!(!faults.deaths || lost_disks > runs / 4, "{lost_disks} machines are lost");
    }
}

/// Others lead in time: no job is lost.
#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn heads_die() {
    run(Faults { deaths: true, ..Faults::default() });
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn heads_stand_still_and_clocks_jump() {
    run(Faults { pauses: true, clocks: true, ..Faults::default() });
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn heads_and_nodes_are_parted_and_the_store_is_away() {
    run(Faults { partitions: true, ..Faults::default() });
}

#[test]
fn everything_at_once() {
    run(Faults { deaths: true, pauses: true, partitions: true, clocks: true });
}
