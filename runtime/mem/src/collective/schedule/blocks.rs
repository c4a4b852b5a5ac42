//! Collectives of blocks, a different one for each member or pair of members.

use std::ops::Range;

use super::choice::Pattern;
use super::lines::pieces;
use super::node::NodeWay;
use super::plan::Counts;
use super::{Builder, Line, Place, Shape, Span, starts};

fn block(place: Place, number: usize, length: usize) -> Span {
    Span { place, start: number * length, length }
}

fn range_of(place: Place, range: Range<usize>) -> Span {
    Span { place, start: range.start, length: range.end - range.start }
}

impl<'t> Builder<'t> {
    fn members(&self) -> usize {
        self.topology.members() as usize
    }

    // ---- to and from one member ---------------------------------------------------------------

    pub(super) fn gather(&mut self, shape: Shape, root: u32, length: usize) {
        if shape.pattern != Pattern::Together {
            let counts = vec![length; if self.me == root { self.members() } else { 0 }];
            return self.gather_each(root, length, Some(&counts));
        }
        let (outer, inner) = self.lines(shape, root);
        let (held, outer_starts) = self.held(&outer, &inner, length);
        let (own_starts, _) =
            self.behind(&inner, &Counts::Equal(length).starts(inner.len() as u32));
        self.copy(Span::first(Place::Input, length), held.part(0..length));
        self.collect(&inner, &own_starts, held);
        if let Some(outer) = outer.filter(|outer| outer.contains(self.me)) {
            self.collect(&outer, &outer_starts, held);
        }
        if self.me == root {
            for (number, member) in self.tree_order(shape, root).into_iter().enumerate() {
                let from = held.part(number * length..(number + 1) * length);
                self.copy(from, block(Place::Output, member as usize, length));
            }
        }
    }

    pub(super) fn scatter(&mut self, shape: Shape, root: u32, length: usize) {
        if shape.pattern != Pattern::Together {
            let counts = vec![length; if self.me == root { self.members() } else { 0 }];
            return self.scatter_each(root, length, Some(&counts));
        }
        let (outer, inner) = self.lines(shape, root);
        let (held, outer_starts) = self.held(&outer, &inner, length);
        if self.me == root {
            for (number, member) in self.tree_order(shape, root).into_iter().enumerate() {
                let into = held.part(number * length..(number + 1) * length);
                self.copy(block(Place::Input, member as usize, length), into);
            }
        }
        if let Some(outer) = outer.filter(|outer| outer.contains(self.me)) {
            self.deal(&outer, &outer_starts, held);
        }
        let (own_starts, _) =
            self.behind(&inner, &Counts::Equal(length).starts(inner.len() as u32));
        self.deal(&inner, &own_starts, held);
        self.copy(held.part(0..length), Span::first(Place::Output, length));
    }

    /// The lines of a tree: of nodes' leaders, if it goes by nodes, and of those that this member is among.
    fn lines(&self, shape: Shape, root: u32) -> (Option<Line<'t>>, Line<'t>) {
        match shape.by_node {
            true => (Some(self.leaders(Some(root))), self.node_line(Some(root))),
            false => (None, self.all(root)),
        }
    }

    /// The members in the order in which the root of a tree has their blocks.
    fn tree_order(&self, shape: Shape, root: u32) -> Vec<u32> {
        if !shape.by_node {
            let all = self.all(root);
            return (0..self.members()).map(|place| all.at(place)).collect();
        }
        let leaders = self.leaders(Some(root));
        let nodes = (0..leaders.len()).map(|place| leaders.at(place));
        nodes
            .flat_map(|leader| {
                let node = Line::led(self.topology.beside(leader), leader);
                (0..node.len()).map(|place| node.at(place)).collect::<Vec<_>>()
            })
            .collect()
    }

    /// Memory for the blocks that go through this member, and where those of each leader begin in it.
    fn held(
        &mut self,
        outer: &Option<Line<'_>>,
        inner: &Line<'_>,
        length: usize,
    ) -> (Span, Vec<usize>) {
        if let Some(outer) = outer
            && outer.contains(self.me)
        {
            let on_node = |place| self.topology.beside(outer.at(place)).len() * length;
            let all = starts((0..outer.len()).map(on_node));
            let (starts, total) = self.behind(outer, &all);
            return (self.scratch(total), starts);
        }
        let all = Counts::Equal(length).starts(inner.len() as u32);
        let (_, total) = self.behind(inner, &all);
        (self.scratch(total), Vec::new())
    }

    pub(super) fn gather_each(&mut self, root: u32, mine: usize, counts: Option<&[usize]>) {
        let own = Span::first(Place::Input, mine);
        let (true, Some(counts)) = (self.me == root, counts) else { return self.send(root, own) };
        let starts = starts(counts.iter().copied());
        for member in 0..self.topology.members() {
            let into =
                range_of(Place::Output, starts[member as usize]..starts[member as usize + 1]);
            match member == root {
                true => self.copy(own, into),
                false => self.receive(member, into),
            }
        }
    }

    pub(super) fn scatter_each(&mut self, root: u32, mine: usize, counts: Option<&[usize]>) {
        let own = Span::first(Place::Output, mine);
        let (true, Some(counts)) = (self.me == root, counts) else {
            return self.receive(root, own);
        };
        let starts = starts(counts.iter().copied());
        for member in 0..self.topology.members() {
            let from = range_of(Place::Input, starts[member as usize]..starts[member as usize + 1]);
            match member == root {
                true => self.copy(from, own),
                false => self.send(member, from),
            }
        }
    }

    // ---- to and from all ------------------------------------------------------------------------

    /// Where each member's block begins in the output.
    pub(super) fn allgather(&mut self, shape: Shape, way: NodeWay, starts: &[usize]) {
        let (me, total) = (self.me as usize, starts[starts.len() - 1]);
        let data = Span::first(Place::Output, total);
        let own = data.part(starts[me]..starts[me + 1]);
        self.copy(Span::first(Place::Input, own.length), own);
        match shape {
            Shape { pattern: Pattern::Ring, by_node: true } => {
                self.allgather_columns(way, &pieces(data, starts));
            }
            Shape { pattern: Pattern::Ring, .. } if self.topology.nodes().len() == 1 => {
                self.node_show_blocks(way, &self.all(0), &pieces(data, starts));
            }
            Shape { pattern: Pattern::Ring, .. } => {
                self.ring_show(&self.all(0), &pieces(data, starts));
            }
            Shape { by_node: true, .. } => self.allgather_nodes(data, starts),
            Shape { .. } => self.bruck(&self.all(0), starts, data),
        }
    }

    /// To the node's leader, among the leaders, and back, in the order of nodes.
    fn allgather_nodes(&mut self, data: Span, starts: &[usize]) {
        let (nodes, me) = (self.topology.nodes(), self.me as usize);
        let length = |member: u32| starts[member as usize + 1] - starts[member as usize];
        let sorted = self.topology.is_ordered();
        let held = if sorted { data } else { self.scratch(data.length) };
        let bounds = super::starts(nodes.iter().map(|node| node.iter().map(|m| length(*m)).sum()));
        let (node, line) = (self.topology.node_of(self.me), self.node_line(None));
        let inside = super::starts(nodes[node].iter().map(|member| length(*member)));
        let part = held.part(bounds[node]..bounds[node + 1]);
        let place = line.place(self.me);
        let own = data.part(starts[me]..starts[me + 1]);
        self.copy(own, part.part(inside[place]..inside[place + 1]));
        self.collect(&line, &inside, part);
        if place == 0 {
            self.bruck(&self.leaders(None), &bounds, held);
        }
        self.tree_down(&line, held);
        if !sorted {
            let mut at = 0;
            for member in nodes.iter().flatten() {
                let start = starts[*member as usize];
                self.copy(
                    held.part(at..at + length(*member)),
                    data.part(start..start + length(*member)),
                );
                at += length(*member);
            }
        }
    }

    /// Among the members with this place on their nodes, then on the node.
    fn allgather_columns(&mut self, way: NodeWay, pieces: &[Span]) {
        let column = self.column();
        let of = |members: &[u32]| members.iter().map(|m| pieces[*m as usize]).collect::<Vec<_>>();
        let column_members: Vec<u32> = (0..column.len()).map(|place| column.at(place)).collect();
        self.ring_show(&column, &of(&column_members));
        let line = self.node_line(None);
        for node in self.topology.nodes() {
            self.node_show_blocks(way, &line, &of(node));
        }
    }

    /// Small blocks take log2(n) rounds (Bruck et al. 1997); larger ones go pairwise.
    pub(super) fn alltoall(&mut self, shape: Shape, length: usize) {
        if shape.pattern != Pattern::Together {
            let counts = vec![length; self.members()];
            return self.alltoall_each(&counts, &counts);
        }
        let (me, members) = (self.me as usize, self.members());
        // The i-th block of `way` has i members to go.
        let way = self.scratch(members * length);
        let turn = me * length;
        self.copy(range_of(Place::Input, turn..members * length), way.part(0..way.length - turn));
        self.copy(range_of(Place::Input, 0..turn), way.part(way.length - turn..way.length));
        let half = members.div_ceil(2) * length;
        let (out, into) = (self.scratch(half), self.scratch(half));
        let nth = |span: Span, number: usize| span.part(number * length..(number + 1) * length);
        let mut bit = 1;
        // In the round of bit b a block that has yet to go some way with that bit goes 2^b ahead.
        while bit < members {
            let moved = || (0..members).filter(move |distance| distance & bit != 0).enumerate();
            for (number, distance) in moved() {
                self.copy(nth(way, distance), nth(out, number));
            }
            let (to, from) = ((me + bit) % members, (me + members - bit) % members);
            let moves = moved().count() * length;
            self.exchange(to as u32, out.part(0..moves), from as u32, into.part(0..moves));
            for (number, distance) in moved() {
                self.copy(nth(into, number), nth(way, distance));
            }
            bit *= 2;
        }
        // A block that has gone i members comes from the i-th member before this one.
        for distance in 0..members {
            let from = (me + members - distance) % members;
            self.copy(nth(way, distance), block(Place::Output, from, length));
        }
    }

    /// In step i with the members i ahead and i behind.
    pub(super) fn alltoall_each(&mut self, send: &[usize], receive: &[usize]) {
        let (me, members) = (self.me as usize, self.members());
        let (from_here, to_here) = (starts(send.iter().copied()), starts(receive.iter().copied()));
        let out = |to: usize| range_of(Place::Input, from_here[to]..from_here[to + 1]);
        let into = |from: usize| range_of(Place::Output, to_here[from]..to_here[from + 1]);
        self.copy(out(me), into(me));
        for step in 1..members {
            let (to, from) = ((me + step) % members, (me + members - step) % members);
            self.exchange(to as u32, out(to), from as u32, into(from));
        }
    }

    pub(super) fn reduce_scatter(&mut self, shape: Shape, way: NodeWay, starts: &[usize]) {
        let (me, total) = (self.me as usize, starts[starts.len() - 1]);
        let work = self.scratch(total);
        self.copy(Span::first(Place::Input, total), work);
        let blocks = pieces(work, starts);
        if shape.pattern == Pattern::Ring {
            let longest = blocks.iter().map(|block| block.length).max().unwrap_or_default();
            let other = self.scratch(longest);
            self.ring_combine(&self.all(0), &blocks, other);
        } else {
            self.allreduce(shape, way, work);
        }
        self.copy(blocks[me], Span::first(Place::Output, blocks[me].length));
    }
}
