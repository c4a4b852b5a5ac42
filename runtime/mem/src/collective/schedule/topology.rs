//! The members of a group by node.

/// Which members share a node. Nodes are numbered in the order of their first members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Topology {
    /// Node of each member.
    node_of: Vec<u32>,
    /// Members of each node, ascending.
    nodes: Vec<Vec<u32>>,
    /// The members of each node follow one another.
    ordered: bool,
}

impl Topology {
    /// From one word for each member, the same for those that share a node.
    pub(crate) fn new(words: impl IntoIterator<Item = u64>) -> Topology {
        let mut numbers = std::collections::HashMap::new();
        let (mut node_of, mut nodes) = (Vec::new(), Vec::<Vec<u32>>::new());
        for (member, word) in (0..).zip(words) {
            let node = *numbers.entry(word).or_insert(nodes.len() as u32);
            if node as usize == nodes.len() {
                nodes.push(Vec::new());
            }
            node_of.push(node);
            nodes[node as usize].push(member);
        }
        let ordered = node_of.is_sorted();
        Topology { node_of, nodes, ordered }
    }

    /// How many members there are.
    pub(crate) fn members(&self) -> u32 {
        self.node_of.len() as u32
    }

    /// The node of a member.
    pub(crate) fn node_of(&self, member: u32) -> usize {
        self.node_of[member as usize] as usize
    }

    /// The members of each node.
    pub(crate) fn nodes(&self) -> &[Vec<u32>] {
        &self.nodes
    }

    /// The members on a member's node, itself too.
    pub(crate) fn beside(&self, member: u32) -> &[u32] {
        &self.nodes[self.node_of(member)]
    }

    /// Whether the members of each node follow one another, so that what is combined node by node is combined in the
    /// members' order.
    pub(crate) fn is_ordered(&self) -> bool {
        self.ordered
    }

    /// There are several nodes, and several members on one of them.
    pub(crate) fn is_mixed(&self) -> bool {
        self.nodes.len() > 1 && self.nodes.len() < self.node_of.len()
    }

    /// The members of every node, if there are as many on each.
    pub(crate) fn per_node(&self) -> Option<usize> {
        let count = self.nodes.first()?.len();
        self.nodes.iter().all(|node| node.len() == count).then_some(count)
    }
}
