//! A whole cluster in virtual time: the real head and agents over simulated links, with jobs that
//! come and fail, daemons and heads that die, links that break and partitions that heal.
//!
//! Every run is a function of its seed. `KUMI_SIM_FACTOR=20 cargo test -p kumi-control` makes
//! twenty times as many runs, `KUMI_SIM_SEED=7` those of one seed, and `KUMI_SIM_TRACE=1` tells all.

mod administrator;
mod check;
mod clients;
mod exchanges;
mod head;
mod keepers;
mod links;
mod naps;
mod nodes;
mod random;
mod storage;
mod world;
mod writer;

use world::{Faults, Scenario, World};

/// Runs of each test; `KUMI_SIM_FACTOR` multiplies them. Under Miri the first one, of two nodes, takes long enough.
const RUNS: u64 = if cfg!(miri) { 1 } else { 400 };

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

fn run(runs: u64, scenario: impl Fn(u64) -> Scenario) {
    let seeds = match number("KUMI_SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..runs * number("KUMI_SIM_FACTOR").unwrap_or(1),
    };
    for seed in seeds {
        let _guard = SeedGuard(seed);
        World::new(scenario(seed)).run();
    }
}

fn small(seed: u64, faults: Faults) -> Scenario {
    let nodes = [2, 5, 9, 16][(seed % 4) as usize];
    let fan_out = [2, 3, 4][(seed / 4 % 3) as usize];
    Scenario { seed, nodes, fan_out, jobs: if cfg!(miri) { 2 } else { 8 }, faults }
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn jobs_come_and_ranks_fail() {
    run(RUNS, |seed| small(seed, Faults { ranks: true, ..Faults::default() }));
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn daemons_die() {
    run(RUNS, |seed| small(seed, Faults { daemons: true, ..Faults::default() }));
}

/// Their jobs run on, and nothing of what these wrote is lost or doubled.
#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn daemons_are_started_again_under_their_jobs() {
    run(RUNS, |seed| small(seed, Faults { ranks: true, restarts: true, ..Faults::default() }));
}

#[test]
fn heads_die() {
    run(RUNS, |seed| small(seed, Faults { ranks: true, head: true, ..Faults::default() }));
}

#[test]
fn links_break() {
    run(RUNS, |seed| small(seed, Faults { links: true, partitions: true, ..Faults::default() }));
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn a_head_that_stalls_for_seconds() {
    run(RUNS, |seed| small(seed, Faults { ranks: true, stalls: true, ..Faults::default() }));
}

/// Leases last longer: every job goes on.
#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn a_head_that_stalls_for_minutes() {
    run(RUNS, |seed| small(seed, Faults { ranks: true, long_stalls: true, ..Faults::default() }));
}

/// A grant that waits in the socket of a node that sleeps is none when it wakes.
#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn nodes_that_sleep() {
    run(RUNS, |seed| small(seed, Faults { ranks: true, naps: true, ..Faults::default() }));
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn a_full_and_a_slow_disk() {
    let faults = Faults { ranks: true, full_disk: true, slow_disk: true, ..Faults::default() };
    run(RUNS, |seed| small(seed, faults));
}

/// It holds up its writer only: no lease runs out, and nobody takes the head for one that is away.
#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn a_disk_that_hangs_for_several_leases() {
    run(RUNS, |seed| small(seed, Faults { ranks: true, slow_disk: true, ..Faults::default() }));
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn a_wall_clock_that_jumps() {
    let faults = Faults { ranks: true, daemons: true, wall_clock: true, ..Faults::default() };
    run(RUNS, |seed| small(seed, faults));
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn nodes_are_drained() {
    run(RUNS, |seed| small(seed, Faults { ranks: true, drains: true, ..Faults::default() }));
}

/// Jobs keep their places, and those that wait get what the new nodes have.
#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn nodes_are_added() {
    run(RUNS, |seed| small(seed, Faults { ranks: true, additions: true, ..Faults::default() }));
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn everything_at_once() {
    run(RUNS, |seed| small(seed, Faults::all()));
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn sixty_four_nodes() {
    run(RUNS / 8, |seed| Scenario {
        seed,
        nodes: 64,
        fan_out: if seed % 2 == 0 { 4 } else { 16 },
        jobs: 20,
        faults: if seed % 4 < 2 {
            Faults::all()
        } else {
            Faults { daemons: true, ..Faults::default() }
        },
    });
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn a_thousand_nodes() {
    let scenario =
        Scenario { seed: 1, nodes: 1024, fan_out: 16, jobs: 0, faults: Faults::default() };
    World::new(scenario).run_large_jobs();
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn a_thousand_nodes_and_a_head_that_stalls_for_minutes() {
    run(2, |seed| Scenario {
        seed,
        nodes: 1024,
        fan_out: 16,
        jobs: 8,
        faults: Faults { long_stalls: true, ..Faults::default() },
    });
}
