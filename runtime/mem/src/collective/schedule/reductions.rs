//! Barrier, broadcast and reductions.

use super::choice::Pattern;
use super::lines::pieces;
use super::node::{NodeWay, chunks};
use super::{Builder, Limits, Line, Place, Shape, Span, even};

impl<'t> Builder<'t> {
    /// All members, from this one on.
    pub(super) fn all(&self, first: u32) -> Line<'t> {
        Line::All { members: self.topology.members(), first }
    }

    /// The members of the own node. With a root of this node, it comes first.
    pub(super) fn node_line(&self, root: Option<u32>) -> Line<'t> {
        let beside = self.topology.beside(self.me);
        let here =
            root.filter(|root| self.topology.node_of(*root) == self.topology.node_of(self.me));
        Line::led(beside, here.unwrap_or(beside[0]))
    }

    /// One member of each node, in the order of nodes. With a root, it is its node's and comes first.
    pub(super) fn leaders(&self, root: Option<u32>) -> Line<'t> {
        let nodes = self.topology.nodes();
        let first = root.map_or(0, |root| self.topology.node_of(root));
        let leader = |at: usize| match ((first + at) % nodes.len(), root) {
            (node, Some(root)) if node == first => root,
            (node, _) => nodes[node][0],
        };
        Line::Some((0..nodes.len()).map(leader).collect())
    }

    /// The members that have the own member's place on their nodes, which all have as many.
    pub(super) fn column(&self) -> Line<'t> {
        let beside = self.topology.beside(self.me);
        let place = Line::Some(beside.into()).place(self.me);
        Line::Some(self.topology.nodes().iter().map(|node| node[place]).collect())
    }

    fn leads(&self, node: &Line<'_>) -> bool {
        node.at(0) == self.me
    }

    pub(super) fn barrier(&mut self, shape: Shape) {
        if !shape.by_node {
            return self.meet(&self.all(0));
        }
        let (node, nothing) = (self.node_line(None), Span::first(Place::Scratch, 0));
        self.tree_up(&node, nothing, nothing);
        if self.leads(&node) {
            self.meet(&self.leaders(None));
        }
        self.tree_down(&node, nothing);
    }

    /// Little along a binomial tree, much in pieces that are dealt out and then shown around (van de Geijn 1994).
    pub(super) fn broadcast(&mut self, shape: Shape, way: NodeWay, root: u32, data: Span) {
        let one_node = self.topology.nodes().len() == 1;
        match shape {
            Shape { pattern: Pattern::Ring, by_node: true } => {
                let node = self.node_line(Some(root));
                if self.leads(&node) {
                    self.broadcast_ring(&self.leaders(Some(root)), data);
                }
                self.node_down(way, &node, data);
            }
            Shape { by_node: true, .. } => {
                let node = self.node_line(Some(root));
                if self.leads(&node) {
                    self.tree_down(&self.leaders(Some(root)), data);
                }
                self.tree_down(&node, data);
            }
            Shape { pattern: Pattern::Ring, .. } if one_node && way.shares => {
                self.node_down(way, &self.all(root), data);
            }
            Shape { pattern: Pattern::Ring, .. } => self.broadcast_ring(&self.all(root), data),
            Shape { .. } => self.tree_down(&self.all(root), data),
        }
    }

    fn broadcast_ring(&mut self, line: &Line<'_>, data: Span) {
        if line.len() <= 2 {
            return self.tree_down(line, data);
        }
        let starts = even(data.length, line.len());
        self.deal(line, &starts, data);
        self.ring_show(line, &pieces(data, &starts));
    }

    /// Little along a binomial tree; of much each member combines a piece (Thakur, Rabenseifner, Gropp 2005).
    pub(super) fn reduce(
        &mut self,
        shape: Shape,
        way: NodeWay,
        limits: Limits,
        root: u32,
        data: Span,
    ) {
        // The order of a line that begins at the root is another one.
        let first = limits.commutative.then_some(root);
        match shape {
            Shape { pattern: Pattern::Ring, by_node: true } => {
                let node = self.node_line(Some(root));
                self.node_up(way, &node, data);
                if self.leads(&node) {
                    self.reduce_ring(&self.leaders(Some(root)), data);
                }
            }
            Shape { by_node: true, .. } => {
                let (node, other) = (self.node_line(first), self.scratch(data.length));
                self.tree_up(&node, data, other);
                if self.leads(&node) {
                    self.tree_up(&self.leaders(first), data, other);
                }
            }
            Shape { pattern: Pattern::Ring, .. } if self.topology.nodes().len() == 1 => {
                self.node_up(way, &self.all(root), data);
            }
            Shape { pattern: Pattern::Ring, .. } => self.reduce_ring(&self.all(root), data),
            Shape { .. } => {
                let other = self.scratch(data.length);
                self.tree_up(&self.all(first.unwrap_or(0)), data, other);
            }
        }
        if first.is_none() && root != 0 {
            match self.me {
                0 => self.send(root, data),
                me if me == root => self.receive(0, data),
                _ => {}
            }
        }
    }

    /// Each piece goes round to be combined, and then to the first member.
    fn reduce_ring(&mut self, line: &Line<'_>, data: Span) {
        let count = line.len();
        if count <= 2 {
            let other = self.scratch(data.length);
            return self.tree_up(line, data, other);
        }
        let starts = even(data.length, count);
        let other = self.scratch(data.length.div_ceil(count));
        self.ring_combine(line, &pieces(data, &starts), other);
        let piece = |place: usize| data.part(starts[place]..starts[place + 1]);
        match line.place(self.me) {
            0 => (1..count).for_each(|place| self.receive(line.at(place), piece(place))),
            place => self.send(line.at(0), piece(place)),
        }
    }

    /// The reduction of much data of a node at its first member: each combines a piece.
    fn node_up(&mut self, way: NodeWay, node: &Line<'_>, data: Span) {
        if node.len() == 1 {
            return;
        }
        let other = self.scratch(data.length.min(way.capacity).div_ceil(node.len()));
        for range in chunks(data.length, way.capacity) {
            let (part, starts) = (data.part(range.clone()), even(range.len(), node.len()));
            self.node_combine(way, node, &starts, part, other);
            self.node_collect(way, node, &starts, part);
        }
    }

    /// Recursive doubling for little data, rings for much (Thakur, Rabenseifner, Gropp 2005).
    pub(super) fn allreduce(&mut self, shape: Shape, way: NodeWay, data: Span) {
        let nodes = self.topology.nodes().len();
        match shape {
            Shape { pattern: Pattern::Ring, by_node: true } => match self.topology.per_node() {
                Some(_) => self.allreduce_columns(way, data),
                None => {
                    let node = self.node_line(None);
                    self.node_up(way, &node, data);
                    if self.leads(&node) {
                        self.allreduce_ring(&self.leaders(None), data);
                    }
                    self.node_down(way, &node, data);
                }
            },
            Shape { by_node: true, .. } => {
                let (node, other) = (self.node_line(None), self.scratch(data.length));
                self.tree_up(&node, data, other);
                if self.leads(&node) {
                    self.doubling(&self.leaders(None), data, other);
                }
                self.tree_down(&node, data);
            }
            Shape { pattern: Pattern::Ring, .. } if nodes == 1 => self.allreduce_columns(way, data),
            Shape { pattern: Pattern::Ring, .. } => self.allreduce_ring(&self.all(0), data),
            Shape { .. } => {
                let other = self.scratch(data.length);
                self.doubling(&self.all(0), data, other);
            }
        }
    }

    /// Each member of a node combines a piece there, then with those that have the same piece on the other nodes.
    fn allreduce_columns(&mut self, way: NodeWay, data: Span) {
        let (node, column) = (self.node_line(None), self.column());
        let place = node.place(self.me);
        let most = data.length.min(way.capacity).div_ceil(node.len());
        let other = self.scratch(most);
        for range in chunks(data.length, way.capacity) {
            let (part, starts) = (data.part(range.clone()), even(range.len(), node.len()));
            self.node_combine(way, &node, &starts, part, other);
            let own = part.part(starts[place]..starts[place + 1]);
            if column.len() > 1 {
                self.allreduce_ring_with(&column, own, other);
            }
            self.node_show(way, &node, &starts, part);
        }
    }

    fn allreduce_ring(&mut self, line: &Line<'_>, data: Span) {
        let other = self.scratch(if line.len() <= 2 {
            data.length
        } else {
            data.length.div_ceil(line.len())
        });
        self.allreduce_ring_with(line, data, other);
    }

    /// Two members exchange all they have.
    fn allreduce_ring_with(&mut self, line: &Line<'_>, data: Span, other: Span) {
        if line.len() <= 2 {
            return self.doubling(line, data, other.part(0..data.length));
        }
        let starts = even(data.length, line.len());
        self.ring_combine(line, &pieces(data, &starts), other);
        self.ring_show(line, &pieces(data, &starts));
    }

    /// In round k a member gets the reduction of the 2^k members up to the one 2^k before it (Hillis, Steele 1986).
    pub(super) fn scan(&mut self, data: Span, exclusive: bool) {
        let (me, members) = (self.me, self.topology.members());
        let other = self.scratch(data.length);
        let (mut sum, mut own) = (data, data);
        if exclusive {
            (sum, own) = (self.scratch(data.length), self.scratch(data.length));
            self.copy(data, sum);
            self.copy(data, own);
        }
        let mut distance = 1;
        while distance < members {
            let to = (members - me > distance).then(|| me + distance);
            let from = me.checked_sub(distance);
            match (to, from) {
                (Some(to), Some(from)) => self.exchange(to, sum, from, other),
                (Some(to), None) => self.send(to, sum),
                (None, Some(from)) => self.receive(from, other),
                (None, None) => {}
            }
            match (from, exclusive) {
                (None, _) => {}
                (Some(_), false) => self.combine(sum, other, true),
                (Some(_), true) => {
                    if distance == 1 {
                        self.copy(other, data);
                    } else {
                        self.combine(data, other, true);
                    }
                    self.copy(data, sum);
                    self.combine(sum, own, false);
                }
            }
            distance = distance.saturating_mul(2);
        }
    }
}
