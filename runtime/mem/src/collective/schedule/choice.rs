//! The choice of the algorithm: by operation, bytes, members and nodes. It is the same at all members, which all know these.

use super::Topology;
use super::node::SHARED_BYTES;

/// From this many bytes on pieces go round; below, their log2(n) rounds of everything are faster than n rounds of
/// little.
const RING_BYTES: usize = 32 * 1024;
/// Longest block that travels with others: it is copied log2(n) times, which must cost less than a message of its own.
const TOGETHER_BYTES: usize = 256;
/// Most bytes of all blocks of an allgather that are copied once more for fewer rounds.
const BRUCK_BYTES: usize = 64 * 1024;
/// Fewest members: with fewer there are hardly fewer messages.
const TOGETHER_MEMBERS: u32 = 4;

/// What a member knows beside the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Bytes of an element.
    pub(crate) element: usize,
    /// The members of this node share memory. (Others need not.)
    pub(crate) shares: bool,
    /// The reduction may take its operands in any order.
    pub(crate) commutative: bool,
}

impl Limits {
    /// Elements that the memory shared by a member has room for.
    pub(crate) fn capacity(&self) -> usize {
        SHARED_BYTES / self.element.max(1)
    }

    fn bytes(&self, elements: usize) -> usize {
        elements.saturating_mul(self.element)
    }
}

/// The collectives, as far as the choice goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Barrier,
    Broadcast,
    Reduce,
    Allreduce,
    /// Blocks to or from one member, all of one length.
    Blocks,
    Allgather,
    Alltoall,
    ReduceScatter,
}

/// How the data travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pattern {
    /// Everything along a tree, or by doubling where all get the result: log2(n) rounds.
    Tree,
    /// Pieces around a ring: each byte about twice, whatever the number of members.
    Ring,
    /// Blocks that travel together, in log2(n) rounds.
    Together,
    /// Each block by a message of its own.
    Each,
}

/// The algorithm of a collective.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    /// How the data travels, inside of nodes and between them.
    pub(crate) pattern: Pattern,
    /// Inside of each node first (or last), and between nodes by few members of each.
    pub(crate) by_node: bool,
}

impl Shape {
    /// The algorithm for so many elements: those of the whole vector where all members have the same, those of one
    /// block of [`Kind::Blocks`] and [`Kind::Alltoall`], those of all blocks of the others.
    pub(crate) fn choose(
        kind: Kind,
        elements: usize,
        topology: &Topology,
        limits: Limits,
    ) -> Shape {
        let (members, bytes) = (topology.members(), limits.bytes(elements));
        let rings = members > 2 && bytes >= RING_BYTES && elements >= members as usize;
        let together = members >= TOGETHER_MEMBERS && bytes <= TOGETHER_BYTES;
        let mixed = topology.is_mixed();
        // What is combined node by node must be what comes node by node.
        let in_order = limits.commutative || topology.is_ordered();
        let pattern = match kind {
            Kind::Barrier => Pattern::Tree,
            Kind::Broadcast if rings => Pattern::Ring,
            Kind::Reduce | Kind::Allreduce | Kind::ReduceScatter if rings && limits.commutative => {
                Pattern::Ring
            }
            Kind::Broadcast | Kind::Reduce | Kind::Allreduce | Kind::ReduceScatter => Pattern::Tree,
            Kind::Blocks | Kind::Alltoall if together => Pattern::Together,
            Kind::Blocks | Kind::Alltoall => Pattern::Each,
            Kind::Allgather if bytes <= BRUCK_BYTES => Pattern::Together,
            Kind::Allgather => Pattern::Ring,
        };
        let by_node = match kind {
            Kind::Barrier | Kind::Broadcast => mixed,
            Kind::Reduce | Kind::Allreduce => mixed && in_order,
            Kind::ReduceScatter => mixed && in_order && pattern == Pattern::Tree,
            Kind::Allgather => {
                mixed && (pattern == Pattern::Together || topology.per_node().is_some())
            }
            Kind::Blocks => mixed && pattern == Pattern::Together,
            Kind::Alltoall => false,
        };
        Shape { pattern, by_node }
    }
}
