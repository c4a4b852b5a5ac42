//! From a call to a schedule.

use super::choice::{Kind, Pattern};
use super::{Builder, Limits, Schedule, Shape, Span, Topology};
use super::{Place, node::NodeWay};

/// A collective, as a member calls it. Lengths and counts are of elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call<'a> {
    Barrier,
    /// The output of all members becomes the root's.
    Broadcast {
        root: u32,
        length: usize,
    },
    /// The root's output becomes the reduction of all outputs; those of others are used up.
    Reduce {
        root: u32,
        length: usize,
    },
    /// All outputs become their reduction.
    Allreduce {
        length: usize,
    },
    /// Each output becomes the reduction of those up to this member's; with `exclusive` without its own, and at the first
    /// member it stays as it is.
    Scan {
        length: usize,
        exclusive: bool,
    },
    /// Every input goes to the root's output, in the order of members.
    Gather {
        root: u32,
        block: usize,
    },
    /// The same; the root knows the length of each block, the others that of their own.
    GatherEach {
        root: u32,
        mine: usize,
        counts: Option<&'a [usize]>,
    },
    /// The parts of the root's input go to the members' outputs.
    Scatter {
        root: u32,
        block: usize,
    },
    /// The same; the root knows the length of each block, the others that of their own.
    ScatterEach {
        root: u32,
        mine: usize,
        counts: Option<&'a [usize]>,
    },
    /// Every input goes to every output.
    Allgather {
        counts: Counts<'a>,
    },
    /// The i-th block of the input goes to member i.
    Alltoall {
        block: usize,
    },
    AlltoallEach {
        send: &'a [usize],
        receive: &'a [usize],
    },
    /// The i-th block of the reduction of all inputs goes to member i.
    ReduceScatter {
        counts: Counts<'a>,
    },
}

/// Lengths of the blocks of all members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counts<'a> {
    Equal(usize),
    Each(&'a [usize]),
}

impl Counts<'_> {
    /// Elements of all blocks.
    fn total(self, members: u32) -> usize {
        match self {
            Counts::Equal(block) => block.saturating_mul(members as usize),
            Counts::Each(counts) => {
                counts.iter().fold(0, |sum: usize, count| sum.saturating_add(*count))
            }
        }
    }

    /// Where each block begins, and where the last one ends.
    pub(crate) fn starts(self, members: u32) -> Vec<usize> {
        match self {
            Counts::Equal(block) => super::starts((0..members).map(|_| block)),
            Counts::Each(counts) => super::starts(counts.iter().copied()),
        }
    }
}

impl Call<'_> {
    /// The root, if there is one; else 0.
    pub(crate) fn root(self) -> u32 {
        match self {
            Call::Broadcast { root, .. }
            | Call::Reduce { root, .. }
            | Call::Gather { root, .. }
            | Call::GatherEach { root, .. }
            | Call::Scatter { root, .. }
            | Call::ScatterEach { root, .. } => root,
            _ => 0,
        }
    }

    /// What the choice of the algorithm goes by, for the collectives that may use memory shared by a node.
    fn large(self, members: u32) -> Option<(Kind, usize)> {
        Some(match self {
            Call::Broadcast { length, .. } => (Kind::Broadcast, length),
            Call::Reduce { length, .. } => (Kind::Reduce, length),
            Call::Allreduce { length } => (Kind::Allreduce, length),
            Call::Allgather { counts } => (Kind::Allgather, counts.total(members)),
            _ => return None,
        })
    }
}

/// Whether the schedule of a member would use memory that the members of its node share.
pub(crate) fn wants_memory(call: Call<'_>, topology: &Topology, me: u32, limits: Limits) -> bool {
    topology.beside(me).len() > 1
        && call.large(topology.members()).is_some_and(|(kind, elements)| {
            let shape = Shape::choose(kind, elements, topology, limits);
            let only_node = topology.nodes().len() == 1;
            shape.pattern == Pattern::Ring && (shape.by_node || only_node)
        })
}

/// The schedule by which members of a node tell each other a word each, in their order.
pub(crate) fn share_words(topology: &Topology, me: u32) -> Schedule {
    let mut builder = Builder::new(topology, me);
    let line = builder.node_line(None);
    let output = Span::first(Place::Output, line.len());
    let place = line.place(me);
    builder.copy(Span::first(Place::Input, 1), output.part(place..place + 1));
    builder.bruck(&line, &super::starts((0..line.len()).map(|_| 1)), output);
    builder.schedule
}

/// The schedule of a member.
pub(crate) fn plan(call: Call<'_>, topology: &Topology, me: u32, limits: Limits) -> Schedule {
    let mut builder = Builder::new(topology, me);
    let way = NodeWay { shares: limits.shares, capacity: limits.capacity().max(1) };
    let shape = |kind, elements| Shape::choose(kind, elements, topology, limits);
    let output = |length| Span::first(Place::Output, length);
    match call {
        Call::Barrier => builder.barrier(shape(Kind::Barrier, 0)),
        Call::Broadcast { root, length } => {
            builder.broadcast(shape(Kind::Broadcast, length), way, root, output(length));
        }
        Call::Reduce { root, length } => {
            let shape = shape(Kind::Reduce, length);
            builder.reduce(shape, way, limits, root, output(length));
        }
        Call::Allreduce { length } => {
            builder.allreduce(shape(Kind::Allreduce, length), way, output(length));
        }
        Call::Scan { length, exclusive } => builder.scan(output(length), exclusive),
        Call::Gather { root, block } => builder.gather(shape(Kind::Blocks, block), root, block),
        Call::GatherEach { root, mine, counts } => builder.gather_each(root, mine, counts),
        Call::Scatter { root, block } => builder.scatter(shape(Kind::Blocks, block), root, block),
        Call::ScatterEach { root, mine, counts } => builder.scatter_each(root, mine, counts),
        Call::Allgather { counts } => {
            let starts = counts.starts(topology.members());
            let total = starts.last().copied().unwrap_or_default();
            builder.allgather(shape(Kind::Allgather, total), way, &starts);
        }
        Call::Alltoall { block } => builder.alltoall(shape(Kind::Alltoall, block), block),
        Call::AlltoallEach { send, receive } => builder.alltoall_each(send, receive),
        Call::ReduceScatter { counts } => {
            let starts = counts.starts(topology.members());
            let total = starts.last().copied().unwrap_or_default();
            builder.reduce_scatter(shape(Kind::ReduceScatter, total), way, &starts);
        }
    }
    builder.schedule
}
