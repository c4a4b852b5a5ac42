//! Every order of steps and messages of small programs: 3 ranks, 2 pages, 2 locks.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use kumi_coherence::{Migration, Placement, Protocol};

use crate::machine::World;
use crate::script::{Op, Script, Variable};

/// Goes through all orders, and returns how many states there are. States are told apart by hashes of 64 bits.
fn explore(
    script: &Script,
    protocol: Protocol,
    migration: Migration,
    extra: (u32, u32, bool),
) -> usize {
    let placement = Placement::RoundRobin { block: 1, first: 0 };
    let (mut seen, mut open) =
        (HashSet::new(), vec![World::new(script, protocol, migration, placement, extra)]);
    while let Some(world) = open.pop() {
        let steps = world.steps(script);
        assert!(!steps.is_empty() || world.is_over(script), "no step is left: {}", world.waits());
        for step in steps {
            let mut next = world.clone();
            next.step(script, step);
            let mut hasher = DefaultHasher::new();
            next.hash(&mut hasher);
            if seen.insert(hasher.finish()) {
                open.push(next);
            }
        }
    }
    seen.len()
}

/// Two variables in each page, under different locks.
fn variables() -> Vec<Variable> {
    let place = |(at, lock): (usize, u32)| Variable {
        page: at as u32 / 2,
        offset: at % 2 * 3,
        bytes: 3,
        lock: Some(lock),
    };
    [(0, 0), (1, 1), (2, 1), (3, 0)].map(place).to_vec()
}

fn increment(lock: u32, variable: usize) -> [Op; 4] {
    [Op::Lock(lock), Op::Read(variable), Op::Write(variable), Op::Unlock(lock)]
}

fn script(node_of: &[u32], ops: &[Vec<Op>]) -> Script {
    Script {
        node_of: node_of.to_vec(),
        pages: 2,
        variables: variables(),
        ops: ops.to_vec(),
        seed: 0,
    }
}

/// Each rank adds to both pages under both locks, in another order.
#[test]
fn locks_in_every_order() {
    let ops = [
        [increment(0, 0), increment(1, 2)].concat(),
        [increment(1, 1), increment(0, 3)].concat(),
        [increment(0, 0), increment(0, 3)].concat(),
    ];
    for protocol in [Protocol::Scope, Protocol::Lazy] {
        for (nodes, updated, lazy_twins) in [
            ([0, 1, 2], 0, false),
            ([0, 1, 1], 0, false),
            ([0, 1, 2], 1, false),
            ([0, 1, 1], 1, true),
            ([0, 1, 1], 2, false),
            ([0, 1, 1], 0, true),
        ] {
            let states = explore(
                &script(&nodes, &ops),
                protocol,
                Migration::Never,
                (0, updated, lazy_twins),
            );
            println!(
                "{protocol:?}, nodes {nodes:?}, {updated} updated, lazy twins {lazy_twins}: {states} states"
            );
            assert!(states > 5_000, "{states} states: the orders were not gone through");
        }
    }
}

/// A barrier moves a page to its writer, another moves it on.
#[test]
fn barriers_in_every_order() {
    let ops = [
        vec![Op::Barrier, Op::Read(0), Op::Barrier, Op::Barrier, Op::Read(0)],
        vec![Op::Write(0), Op::Barrier, Op::Barrier, Op::Barrier, Op::Read(0)],
        vec![Op::Barrier, Op::Barrier, Op::Write(0), Op::Barrier, Op::Read(0)],
    ];
    for (nodes, ahead, updated) in [
        ([0, 1, 2], 0, 0),
        ([0, 1, 1], 0, 0),
        ([0, 1, 1], 1, 0),
        ([0, 1, 2], 0, 1),
        ([0, 1, 1], 0, 1),
    ] {
        let states = explore(
            &script(&nodes, &ops),
            Protocol::Scope,
            Migration::SingleWriter,
            (ahead, updated, false),
        );
        println!("nodes {nodes:?}, {ahead} asked for, {updated} updated: {states} states");
        assert!(states > 300, "{states} states: the orders were not gone through");
    }
}
