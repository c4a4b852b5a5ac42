//! Front of a queue tree: the state machines of its nodes and the messages between them (SCore-D
//! paper, §7.1.1, figure 7.3).
//!
//! In the paper every tree node is a process on some processor of its partition. Here a message to
//! a tree node is a call of the function of that name. Answers come at the end of a slot: a node
//! whose round has ended reports it then. By the next slot the front is in its new place. No
//! message goes into parts without an active job, so a slot costs only as much as runs in it.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::plan::Plan;
use super::ring::{Queue, Rings};
use super::shape::Shape;
use crate::UserId;

/// State of a tree node (SCore-D paper, figure 7.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum DqtState {
    /// Not activated, and no job in its queue is active.
    #[default]
    Idle,
    /// Not activated: its jobs wait for the front.
    Ready,
    /// On the front: its jobs get their turns.
    Rounding,
    /// The front has gone on to its children: its jobs have had their turns, or it has no jobs.
    Rounded,
}

impl DqtState {
    /// Whether the front has reached the tree node or passed through it.
    pub fn is_activated(self) -> bool {
        matches!(self, Self::Rounding | Self::Rounded)
    }
}

/// Tree node as the front sees it. It is small, because the front mostly visits nodes with empty
/// queues.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Node {
    pub(super) state: DqtState,
    /// It has reported the end of its round since its parent last sent the front on; also set when
    /// its round was empty.
    reported: bool,
    /// It is in the list of the front; the list may also contain nodes that have left the front.
    listed: bool,
    /// Children that have not reported.
    pending: u32,
    /// Active jobs here and below, and those below.
    pub(super) live: u32,
    pub(super) below: u32,
}

impl Node {
    /// No job of its own queue is active.
    pub(super) fn is_empty(&self) -> bool {
        self.live == self.below
    }
}

/// The part of the tree that gives turns.
#[derive(Clone, Debug)]
pub(super) struct Front {
    pub(super) shape: Shape,
    pub(super) fair: bool,
    pub(super) nodes: Vec<Node>,
    /// Their queues.
    pub(super) queues: Vec<Queue>,
    pub(super) rings: Rings,
    /// All tree nodes in state Rounding, and some that have left it.
    front: Vec<u32>,
    /// Tree nodes whose turns end with this slot; empty between slots.
    over: Vec<u32>,
    /// Rounds that the root has begun.
    pub(super) rounds: u64,
    /// The latest round begins with the next slot, and nothing has changed since it was begun.
    pub(super) fresh: bool,
    /// That round, once computed.
    pub(super) plan: Plan,
}

impl Front {
    pub(super) fn new(shape: Shape, fair: bool, shares: bool) -> Self {
        Self {
            shape,
            fair,
            nodes: alloc::vec![Node::default(); shape.count()],
            queues: alloc::vec![Queue::default(); shape.count()],
            rings: Rings::new(shares),
            front: Vec::new(),
            over: Vec::new(),
            rounds: 0,
            fresh: false,
            plan: Plan::default(),
        }
    }

    fn node(&mut self, node: u32) -> &mut Node {
        &mut self.nodes[node as usize]
    }

    /// Whether anything is to run at all.
    pub(super) fn is_live(&self) -> bool {
        self.nodes[0].live > 0
    }

    fn state(&self, node: u32) -> DqtState {
        self.nodes[node as usize].state
    }

    /// The tree gets taller or wider: its old root becomes the first node of that height.
    pub(super) fn grow(&mut self, larger: Shape) {
        self.went_on();
        while self.shape.height < larger.height {
            let Shape { arity, height, .. } = self.shape;
            self.take(Shape::of(arity, height + 1, self.shape.width()));
            let nodes = &mut self.nodes;
            (nodes[0].live, nodes[0].below) = (nodes[1].live, nodes[1].live);
            if nodes[1].state.is_activated() {
                // As if the front had passed through the new root.
                (nodes[0].state, nodes[0].pending) = (DqtState::Rounded, 1);
            }
            nodes[1].reported = false;
        }
        self.take(larger);
    }

    /// Moves all nodes into a larger tree whose left corner is this one. The new part has no jobs,
    /// so no node waits for it.
    fn take(&mut self, larger: Shape) {
        let new = Node { reported: true, ..Node::default() };
        let mut nodes = alloc::vec![new; larger.count()];
        let mut queues = alloc::vec![Queue::default(); larger.count()];
        let old =
            core::mem::take(&mut self.nodes).into_iter().zip(core::mem::take(&mut self.queues));
        for (index, (node, queue)) in old.enumerate() {
            let to = self.shape.renumber(&larger, index as u32) as usize;
            (nodes[to], queues[to]) = (node, queue);
        }
        self.front.iter_mut().for_each(|node| *node = self.shape.renumber(&larger, *node));
        self.rings.renumber(|node| self.shape.renumber(&larger, node));
        (self.nodes, self.queues, self.shape) = (nodes, queues, larger);
    }

    /// Puts a job into the queue of `node`, without turns so far. Returns its number.
    pub(super) fn add_task(
        &mut self,
        id: crate::JobId,
        user: UserId,
        turns: u16,
        node: u32,
    ) -> u32 {
        self.rings.add(id, user, turns, node)
    }

    /// Gives turns to a member. In a node that has been activated it waits for the node's next
    /// round. A part of the tree that was empty when the front passed it begins a round at once. In
    /// a Fair-DQT it waits for the root's next round.
    pub(super) fn join(&mut self, member: u32) {
        self.went_on();
        let at = self.rings.members[member as usize].node;
        self.rings.join(&mut self.queues[at as usize], member);
        if self.state(at) == DqtState::Idle {
            self.node(at).state = DqtState::Ready;
        }
        let (mut node, mut idle) = (Some(at), None);
        while let Some(up) = node {
            self.node(up).live += 1;
            self.node(up).below += u32::from(up != at);
            if !self.state(up).is_activated() {
                idle = Some(up);
            }
            node = self.shape.parent(up);
        }
        let Some(idle) = idle else { return };
        match self.shape.parent(idle) {
            None => self.begin_round(0),
            Some(parent) if !self.fair && self.state(parent) == DqtState::Rounded => {
                self.activate(idle);
            }
            Some(_) => {}
        }
    }

    /// Takes a member's turns, because it has ended or is suspended (message task_done). Nodes that
    /// waited only for it go on.
    pub(super) fn task_done(&mut self, member: u32) {
        self.went_on();
        let at = self.rings.members[member as usize].node;
        self.rings.quit(&mut self.queues[at as usize], member);
        let (mut node, mut dead) = (Some(at), None);
        while let Some(up) = node {
            self.node(up).live -= 1;
            self.node(up).below -= u32::from(up != at);
            if self.nodes[up as usize].live == 0 {
                dead = Some(up);
            }
            node = self.shape.parent(up);
        }
        if let Some(dead) = dead {
            self.died(dead);
        }
        let queue = &self.queues[at as usize];
        match self.state(at) {
            DqtState::Ready if queue.is_empty() => self.node(at).state = DqtState::Idle,
            DqtState::Rounding if queue.is_over() => self.pass_on(at),
            _ => {}
        }
    }

    /// Moves a member that has turns to the queue of another node.
    pub(super) fn migrate(&mut self, member: u32, to: u32) {
        self.task_done(member);
        self.rings.members[member as usize].node = to;
        self.join(member);
    }

    /// No job is left in `node` and below: its parent need not wait for it.
    fn died(&mut self, node: u32) {
        if !self.state(node).is_activated() {
            return;
        }
        self.deactivate(node);
        let Some(parent) = self.shape.parent(node) else { return };
        if !core::mem::replace(&mut self.node(node).reported, true) {
            self.node(parent).pending -= 1;
            if self.node(parent).pending == 0 {
                self.rounded(parent);
            }
        }
    }

    /// Begins a new round of the whole tree. Only `node` has jobs, so only it gets a message.
    fn begin_round(&mut self, node: u32) {
        self.rounds += 1;
        self.fresh = true;
        self.activate(node);
    }

    /// A change happened or a slot passed: the computed round no longer holds.
    fn went_on(&mut self) {
        if self.fresh {
            self.fresh = false;
            self.plan.forget();
        }
    }

    /// Message activate: sent to a node that is not activated and has jobs to run.
    fn activate(&mut self, node: u32) {
        let entry = &mut self.nodes[node as usize];
        if entry.is_empty() {
            entry.state = DqtState::Rounded;
            self.activate_children(node);
            return;
        }
        entry.state = DqtState::Rounding;
        self.rings.start(&mut self.queues[node as usize]);
        if !core::mem::replace(&mut entry.listed, true) {
            self.front.push(node);
        }
    }

    /// Activates the children that have jobs to run; the others count as having reported.
    fn activate_children(&mut self, node: u32) {
        let mut pending = 0;
        for child in self.shape.children(node) {
            let live = self.nodes[child as usize].live > 0;
            self.node(child).reported = !live;
            if live {
                pending += 1;
                self.activate(child);
            }
        }
        self.node(node).pending = pending;
    }

    /// Message deactivate. Positions in queues stay.
    fn deactivate(&mut self, node: u32) {
        let entry = &mut self.nodes[node as usize];
        entry.pending = 0;
        let now = if entry.is_empty() { DqtState::Idle } else { DqtState::Ready };
        let was = core::mem::replace(&mut entry.state, now);
        if now == DqtState::Ready {
            self.queues[node as usize].stop();
        }
        // The front is in this node or below it.
        if was == DqtState::Rounded {
            self.deactivate_children(node);
        }
    }

    fn deactivate_children(&mut self, node: u32) {
        for child in self.shape.children(node) {
            if self.state(child).is_activated() {
                self.deactivate(child);
            }
        }
    }

    /// The last turn in the round of this node's queue has ended: its children's turns follow.
    fn pass_on(&mut self, node: u32) {
        self.node(node).state = DqtState::Rounded;
        if self.nodes[node as usize].below > 0 {
            self.activate_children(node);
        } else {
            self.rounded(node);
        }
    }

    /// The highest tree node with the same active jobs below it as `node`: the nodes between only
    /// pass on its messages.
    fn top(&self, node: u32) -> u32 {
        let live = |node: u32| self.nodes[node as usize].live;
        let same = |&node: &u32| self.shape.parent(node).filter(|&up| live(up) == live(node));
        core::iter::successors(Some(node), same).last().unwrap_or(node)
    }

    /// The round of `node` and everything below it has ended, and the node reports this to its
    /// parent (message rounded). A parent that has reports from all children has ended its own
    /// round. A child that reports earlier than its siblings goes round again, except in a
    /// Fair-DQT.
    ///
    /// If all jobs below a higher node are below this one, both rounds end and begin together.
    /// Nothing changes in the nodes between, so no messages are sent there.
    fn rounded(&mut self, mut node: u32) {
        loop {
            if self.nodes[node as usize].below > 0 {
                self.deactivate_children(node);
            }
            let top = if self.fair { node } else { self.top(node) };
            let Some(parent) = self.shape.parent(top) else {
                return self.begin_round(node);
            };
            if !core::mem::replace(&mut self.node(top).reported, true) {
                self.node(parent).pending -= 1;
            }
            if self.node(parent).pending > 0 {
                if !self.fair {
                    self.activate(node);
                }
                return;
            }
            node = parent;
        }
    }

    /// One slot: every node of the front gives one job its turn. In the paper the message next_turn
    /// does this, passing through the nodes in state Rounded. `run` is called with each member.
    pub(super) fn next_turn(&mut self, mut run: impl FnMut(u32, &Rings)) {
        self.went_on();
        let mut index = 0;
        while let Some(&number) = self.front.get(index) {
            let (node, queue) =
                (&mut self.nodes[number as usize], &mut self.queues[number as usize]);
            if node.state != DqtState::Rounding {
                node.listed = false;
                self.front.swap_remove(index);
                continue;
            }
            let member = self.rings.turn(queue);
            if queue.is_over() {
                self.over.push(number);
            }
            run(member, &self.rings);
            index += 1;
        }
        let mut over = core::mem::take(&mut self.over);
        for node in over.drain(..) {
            // Another node's report may have deactivated it, or begun its next round.
            if self.state(node) == DqtState::Rounding && self.queues[node as usize].is_over() {
                self.pass_on(node);
            }
        }
        self.over = over;
    }

    /// Whether the same members run in this and all later slots.
    pub(super) fn same(&self, other: &Self) -> bool {
        let alike =
            |(one, two): (&Node, &Node)| one.state == two.state && one.progress() == two.progress();
        self.nodes.iter().zip(&other.nodes).all(alike)
            && self.queues.iter().zip(&other.queues).all(|(one, two)| one.same(two))
            && self.rings.same_lanes(&other.rings)
    }
}

impl Node {
    /// The state on which it and its parent wait: pending children, and whether it has reported; `None` if it
    /// is not activated.
    fn progress(&self) -> Option<(u32, bool)> {
        self.state.is_activated().then_some((self.pending, self.reported))
    }
}
