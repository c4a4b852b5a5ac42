//! Programs without data races, made at random: what each rank does, in order.

use proptest::prelude::*;

/// Bytes of a page here.
pub const PAGE: usize = 64;

/// A number in shared memory, of one byte to eight.
#[derive(Debug, Clone, Copy)]
pub struct Variable {
    pub page: u32,
    pub offset: usize,
    pub bytes: usize,
    /// The lock that guards it. Others are written by one rank between two barriers, and read by all between the next two.
    pub lock: Option<u32>,
}

/// A step of a rank's program.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Op {
    Lock(u32),
    Unlock(u32),
    Read(usize),
    Write(usize),
    Barrier,
    Wait,
    SetCondition(u32),
    WaitCondition(u32),
}

/// A program and its machine.
#[derive(Debug, Clone)]
pub struct Script {
    pub node_of: Vec<u32>,
    pub pages: u32,
    pub variables: Vec<Variable>,
    /// By rank.
    pub ops: Vec<Vec<Op>>,
    pub seed: u64,
}

fn variables(pages: u32) -> impl Strategy<Value = Vec<Variable>> {
    // Neighbours in a page, at any offset: most words belong to several.
    let lengths = prop::collection::vec((1..9usize, prop::option::of(0..3u32)), 4..20);
    lengths.prop_map(move |lengths| {
        let (mut page, mut offset, mut found) = (0, 0, Vec::new());
        for (bytes, lock) in lengths {
            if offset + bytes > PAGE {
                (page, offset) = ((page + 1) % pages, 0);
            }
            if found.iter().any(|one: &Variable| one.page == page && one.offset >= offset) {
                break;
            }
            found.push(Variable { page, offset, bytes, lock });
            // Pages are shared by variables; a page is left early now and then.
            offset += bytes;
            if found.len() % 5 == 0 {
                (page, offset) = ((page + 1) % pages, 0);
            }
        }
        found
    })
}

/// A section of a rank between two barriers: locks to take, and what it does under each.
type Section = Vec<(u32, Vec<(prop::sample::Index, bool)>)>;

fn sections(ranks: usize, phases: usize) -> impl Strategy<Value = Vec<Vec<Section>>> {
    let accesses = prop::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 0..4);
    let section = prop::collection::vec((0..3u32, accesses), 0..4);
    prop::collection::vec(prop::collection::vec(section, ranks), phases)
}

/// Accesses to what a lock guards; another lock is taken after them, within.
fn under_lock(
    variables: &[Variable],
    sections: &[(u32, Vec<(prop::sample::Index, bool)>)],
    ops: &mut Vec<Op>,
) {
    let Some(((lock, accesses), inner)) = sections.split_first() else { return };
    let guarded: Vec<usize> =
        (0..variables.len()).filter(|at| variables[*at].lock == Some(*lock)).collect();
    ops.push(Op::Lock(*lock));
    if !guarded.is_empty() {
        for (index, write) in accesses {
            let at = guarded[index.index(guarded.len())];
            ops.push(Op::Read(at));
            if *write {
                ops.push(Op::Write(at));
            }
        }
    }
    under_lock(variables, inner, ops);
    ops.push(Op::Unlock(*lock));
}

/// The program of one rank.
fn program(
    rank: usize,
    ranks: usize,
    variables: &[Variable],
    phases: &[Vec<Section>],
    owners: &[prop::sample::Index],
) -> Vec<Op> {
    let mut ops = Vec::new();
    let owner = |phase: usize, at: usize| owners[(phase * 31 + at) % owners.len()].index(ranks);
    for (phase, sections) in phases.iter().enumerate() {
        // Even phases write what belongs to a rank, odd ones read it.
        for (at, _) in variables.iter().enumerate().filter(|(_, one)| one.lock.is_none()) {
            match phase % 2 {
                0 if owner(phase, at) == rank => ops.push(Op::Write(at)),
                1 if !(rank + at + phase).is_multiple_of(3) => ops.push(Op::Read(at)),
                _ => {}
            }
        }
        // Locks are taken in ascending order, so nobody waits in a circle.
        for nested in sections[rank].chunk_by(|(outer, _), (inner, _)| outer < inner) {
            under_lock(variables, nested, &mut ops);
        }
        if phase == 0 && ranks > 1 {
            // Rank 0 goes on only when the last one says so, and sees what that one wrote.
            let told = variables.iter().position(|one| one.lock.is_none());
            let told = told.filter(|at| owner(0, *at) + 1 == ranks);
            if rank == 0 {
                ops.push(Op::WaitCondition(1));
                ops.extend(told.map(Op::Read));
            } else if rank + 1 == ranks {
                ops.push(Op::SetCondition(1));
            }
        }
        if phase % 3 == 2 {
            ops.push(Op::Wait);
        }
        ops.push(Op::Barrier);
    }
    ops.extend((0..variables.len()).map(Op::Read));
    ops.push(Op::Barrier);
    ops
}

/// Machines of 1 to 3 nodes with 1 to 3 ranks each, and programs for them.
pub fn scripts() -> impl Strategy<Value = Script> {
    let machine = (prop::collection::vec(1..4u32, 1..4), 1..5u32, 1..7usize);
    machine.prop_flat_map(|(nodes, pages, phases)| {
        let node_of: Vec<u32> =
            (0u32..).zip(&nodes).flat_map(|(node, ranks)| (0..*ranks).map(move |_| node)).collect();
        let ranks = node_of.len();
        let owners = prop::collection::vec(any::<prop::sample::Index>(), 7);
        (variables(pages), sections(ranks, phases), owners, any::<u64>()).prop_map(
            move |(variables, phases, owners, seed)| {
                let program = |rank| program(rank, ranks, &variables, &phases, &owners);
                let ops = (0..ranks).map(program).collect();
                Script { node_of: node_of.clone(), pages, variables, ops, seed }
            },
        )
    })
}
