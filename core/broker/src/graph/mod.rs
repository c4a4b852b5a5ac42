//! Transactions (Ninf paper, section 5.1): graphs of recorded calls with the dependencies that follow from their arguments.
//!
//! - A data dependency: a call reads bytes that an earlier one wrote. They stay at the earlier call's server until then.
//! - An order dependency: a call writes bytes that an earlier one read or wrote.
//! - If a call fails, the calls that would read its results are skipped. [`Graph::failure_path`] tells why.

mod access_history;
mod recovery;
mod svg;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::model::{HeldInput, ServerId};
use access_history::AccessHistory;

/// A call of a graph, numbered in the order of recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Node(pub u32);

/// An array of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BufferId(pub u64);

/// Bytes of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Access {
    /// The array.
    pub buffer: BufferId,
    /// The first byte.
    pub start: u64,
    /// The end: the byte after the last.
    pub end: u64,
}

/// A call to record. An inout argument is in both lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordedCall {
    /// The routine's name, for reports and pictures.
    pub name: String,
    /// The bytes that it reads.
    pub reads: Vec<Access>,
    /// The bytes that it writes.
    pub writes: Vec<Access>,
}

/// The kind of a dependency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DependencyKind {
    /// The call reads bytes that the other wrote.
    Data,
    /// The call writes bytes that the other read or wrote.
    Order,
}

/// The state of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It waits for other calls.
    Waiting,
    /// It can be started.
    Ready,
    /// It runs.
    Running,
    /// It has ended, and this server has its results.
    Done(ServerId),
    /// It failed.
    Failed(String),
    /// It was skipped because this call, which it would read, failed or was skipped ([`Graph::failure_path`]).
    Skipped(Node),
    /// It was cancelled before it started.
    Cancelled,
}

/// A part of the inputs of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeInput {
    /// The bytes.
    pub bytes: Access,
    /// The call that writes them; `None`: the client has them.
    pub from: Option<Node>,
}

/// Why a call cannot be recorded, or a state change is not possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GraphError {
    /// A range ends before it begins.
    Backwards(Access),
    /// The graph would have too many calls, accesses or dependencies.
    TooLarge,
    /// There is no such call, or its state does not allow this.
    NotNow(Node),
}

impl fmt::Display for GraphError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Backwards(access) => write!(
                f,
                "bytes {} to {} of array {} are no range; give the first byte and the one behind the last",
                access.start, access.end, access.buffer.0
            ),
            Self::TooLarge => f.write_str(
                "the transaction has too many calls, arguments or dependencies; cut it into several",
            ),
            Self::NotNow(node) => {
                write!(f, "call {} of the transaction is not in a state for this", node.0)
            }
        }
    }
}

impl core::error::Error for GraphError {}

/// Most calls of a graph.
const MOST_CALLS: usize = 65_536;
/// Most ranges that a call reads or writes.
const MOST_ACCESSES: usize = 1024;
/// Most dependencies.
const MOST_EDGES: usize = 1 << 20;

#[derive(Debug)]
struct Vertex {
    name: String,
    after: BTreeMap<Node, DependencyKind>,
    before: Vec<Node>,
    inputs: Vec<NodeInput>,
    /// Number of open calls before it. A skipped call also stays open until they are over, because calls after it may not depend
    /// on them directly.
    open: usize,
    state: State,
    /// Length of the longest chain of calls before it.
    level: u32,
}

impl Vertex {
    /// Whether calls after it wait for it.
    fn is_open(&self) -> bool {
        match self.state {
            State::Waiting | State::Ready | State::Running => true,
            State::Skipped(_) => self.open > 0,
            State::Done(_) | State::Failed(_) | State::Cancelled => false,
        }
    }
}

/// A transaction.
#[derive(Debug, Default)]
pub struct Graph {
    vertices: Vec<Vertex>,
    buffers: BTreeMap<BufferId, AccessHistory>,
    dropped: BTreeSet<BufferId>,
    edges: usize,
}

impl Graph {
    /// Without calls.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a call behind those that are there. It is ready if it depends on none that is not over.
    ///
    /// # Errors
    /// A range is none, or the graph would be too large; nothing is recorded then.
    pub fn record(&mut self, call: &RecordedCall) -> Result<Node, GraphError> {
        let accesses = || call.reads.iter().chain(&call.writes);
        if let Some(&access) = accesses().find(|access| access.start > access.end) {
            return Err(GraphError::Backwards(access));
        }
        if self.vertices.len() >= MOST_CALLS || accesses().count() > MOST_ACCESSES {
            return Err(GraphError::TooLarge);
        }
        let node = Node(u32::try_from(self.vertices.len()).map_err(|_| GraphError::TooLarge)?);
        let (inputs, after) = self.dependencies(call);
        if self.edges + after.len() > MOST_EDGES {
            return Err(GraphError::TooLarge);
        }
        self.edges += after.len();
        let filled = |access: &&Access| access.start < access.end;
        for access in call.reads.iter().filter(filled) {
            let buffer = self.buffers.entry(access.buffer).or_default();
            buffer.read(access.start, access.end, node);
        }
        for access in call.writes.iter().filter(filled) {
            let buffer = self.buffers.entry(access.buffer).or_default();
            buffer.write(access.start, access.end, node);
        }
        self.add(node, call.name.clone(), inputs, after);
        Ok(node)
    }

    fn dependencies(
        &self,
        call: &RecordedCall,
    ) -> (Vec<NodeInput>, BTreeMap<Node, DependencyKind>) {
        let mut inputs = Vec::new();
        let mut after = BTreeMap::new();
        for read in &call.reads {
            let none = AccessHistory::default();
            let buffer = self.buffers.get(&read.buffer).unwrap_or(&none);
            for (start, end, from) in buffer.written(read.start, read.end) {
                inputs.push(NodeInput { bytes: Access { start, end, ..*read }, from });
                after.extend(from.map(|from| (from, DependencyKind::Data)));
            }
        }
        for write in &call.writes {
            let Some(buffer) = self.buffers.get(&write.buffer) else { continue };
            let writers = buffer.written(write.start, write.end).into_iter();
            let writers = writers.filter_map(|(.., writer)| writer);
            for other in writers.chain(buffer.readers(write.start, write.end)) {
                after.entry(other).or_insert(DependencyKind::Order);
            }
        }
        (inputs, after)
    }

    fn add(
        &mut self,
        node: Node,
        name: String,
        inputs: Vec<NodeInput>,
        after: BTreeMap<Node, DependencyKind>,
    ) {
        let mut open = 0;
        let mut level = 0;
        let mut failed = None;
        for (&other, &why) in &after {
            let Some(vertex) = self.vertices.get_mut(other.0 as usize) else { continue };
            level = level.max(vertex.level + 1);
            if vertex.is_open() {
                vertex.before.push(node);
                open += 1;
            }
            let made =
                !matches!(vertex.state, State::Failed(_) | State::Cancelled | State::Skipped(_));
            if !made && why == DependencyKind::Data {
                failed = Some(other);
            }
        }
        let state = match failed {
            Some(from) => State::Skipped(from),
            None if open == 0 => State::Ready,
            None => State::Waiting,
        };
        self.vertices.push(Vertex { name, after, before: Vec::new(), inputs, open, state, level });
    }

    /// Leaves an array out of the results of the transaction.
    pub fn discard(&mut self, buffer: BufferId) {
        self.dropped.insert(buffer);
    }

    /// All calls in the order of recording.
    pub fn nodes(&self) -> impl Iterator<Item = Node> {
        (0u32..).take(self.vertices.len()).map(Node)
    }

    fn vertex(&self, node: Node) -> Option<&Vertex> {
        self.vertices.get(node.0 as usize)
    }

    /// The state of a call; `None`: there is no such call.
    #[must_use]
    pub fn state(&self, node: Node) -> Option<&State> {
        self.vertex(node).map(|vertex| &vertex.state)
    }

    /// The dependencies of a call.
    pub fn after(&self, node: Node) -> impl Iterator<Item = (Node, DependencyKind)> {
        let vertex = self.vertex(node).into_iter();
        vertex.flat_map(|vertex| vertex.after.iter().map(|(&other, &why)| (other, why)))
    }

    /// The inputs of a call, in parts with their writers.
    #[must_use]
    pub fn inputs(&self, node: Node) -> &[NodeInput] {
        self.vertex(node).map_or(&[], |vertex| &vertex.inputs)
    }

    /// The calls that can be started.
    pub fn ready(&self) -> impl Iterator<Item = Node> {
        self.nodes().filter(|&node| self.state(node) == Some(&State::Ready))
    }

    /// Whether all calls are over.
    #[must_use]
    pub fn is_over(&self) -> bool {
        let open = |state: &State| matches!(state, State::Waiting | State::Ready | State::Running);
        !self.vertices.iter().any(|vertex| open(&vertex.state))
    }

    /// The input bytes of a call at each server, for [`crate::Request::held`]. A policy that counts communication then prefers
    /// these servers.
    #[must_use]
    pub fn held(&self, node: Node) -> Vec<HeldInput> {
        let mut held: BTreeMap<ServerId, u64> = BTreeMap::new();
        for input in self.inputs(node) {
            if let Some(State::Done(server)) = input.from.and_then(|from| self.state(from)) {
                let bytes = held.entry(*server).or_default();
                *bytes = bytes.saturating_add(input.bytes.end - input.bytes.start);
            }
        }
        held.into_iter().map(|(server, bytes)| HeldInput { server, bytes }).collect()
    }

    /// The results for the client when all is over: the last written version of each byte, and its server. Missing results are
    /// left out.
    #[must_use]
    pub fn results(&self) -> Vec<(Access, Node, ServerId)> {
        let mut found = Vec::new();
        for (&buffer, ranges) in self.buffers.iter().filter(|(id, _)| !self.dropped.contains(id)) {
            for (start, end, node) in ranges.results() {
                if let Some(State::Done(server)) = self.state(node) {
                    found.push((Access { buffer, start, end }, node, *server));
                }
            }
        }
        found
    }

    fn turn(&mut self, node: Node, from: &State, to: State) -> Result<(), GraphError> {
        let vertex = self.vertices.get_mut(node.0 as usize).filter(|v| v.state == *from);
        vertex.ok_or(GraphError::NotNow(node))?.state = to;
        Ok(())
    }

    /// Marks a call as running.
    ///
    /// # Errors
    /// The call is not ready.
    pub fn start(&mut self, node: Node) -> Result<(), GraphError> {
        self.turn(node, &State::Ready, State::Running)
    }

    /// Marks a call as ended at a server. Returns the calls that are ready now.
    ///
    /// # Errors
    /// The call does not run.
    pub fn finish(&mut self, node: Node, server: ServerId) -> Result<Vec<Node>, GraphError> {
        self.turn(node, &State::Running, State::Done(server))?;
        Ok(self.release(node))
    }

    /// Marks a call as failed, and skips the calls that would read its results. Returns the calls that are ready now.
    ///
    /// # Errors
    /// The call does not run.
    pub fn fail(&mut self, node: Node, why: String) -> Result<Vec<Node>, GraphError> {
        self.turn(node, &State::Running, State::Failed(why))?;
        Ok(self.skip(node))
    }

    /// Handles the loss of a server and its results: skips the calls that would read them. Returns the calls that are ready now.
    /// Calls that run there stay unchanged.
    pub fn server_lost(&mut self, server: ServerId, why: &str) -> Vec<Node> {
        let there = |node: &Node| self.state(*node) == Some(&State::Done(server));
        let lost: Vec<Node> = self.nodes().filter(there).collect();
        let mut ready = Vec::new();
        for node in lost {
            if let Some(vertex) = self.vertices.get_mut(node.0 as usize) {
                vertex.state = State::Failed(String::from(why));
            }
            ready.extend(self.skip_readers(node));
        }
        ready.retain(|&node| self.state(node) == Some(&State::Ready));
        ready
    }

    /// Cancels all calls that have not started. Returns the running calls, which have to be stopped.
    pub fn cancel(&mut self) -> Vec<Node> {
        for vertex in &mut self.vertices {
            if matches!(vertex.state, State::Waiting | State::Ready) {
                vertex.state = State::Cancelled;
            }
        }
        self.nodes().filter(|&node| self.state(node) == Some(&State::Running)).collect()
    }

    /// Ends the wait of calls for this call.
    fn release(&mut self, node: Node) -> Vec<Node> {
        let mut ready = Vec::new();
        let mut over = Vec::from([node]);
        while let Some(node) = over.pop() {
            let Some(vertex) = self.vertices.get_mut(node.0 as usize) else { continue };
            for next in core::mem::take(&mut vertex.before) {
                let Some(vertex) = self.vertices.get_mut(next.0 as usize) else { continue };
                vertex.open = vertex.open.saturating_sub(1);
                match vertex.state {
                    State::Waiting if vertex.open == 0 => {
                        vertex.state = State::Ready;
                        ready.push(next);
                    }
                    State::Skipped(_) if vertex.open == 0 => over.push(next),
                    _ => {}
                }
            }
        }
        ready
    }

    /// Skips the readers of a call that will not write, and their readers.
    fn skip(&mut self, node: Node) -> Vec<Node> {
        let mut ready = self.skip_readers(node);
        ready.extend(self.release(node));
        ready.retain(|&node| self.state(node) == Some(&State::Ready));
        ready
    }

    fn skip_readers(&mut self, first: Node) -> Vec<Node> {
        let mut ready = Vec::new();
        let mut unmade = BTreeSet::from([first]);
        // Calls come after their dependencies, so one pass in the order of recording reaches all.
        for node in self.nodes().skip(first.0 as usize + 1).collect::<Vec<Node>>() {
            let unread = |&(from, why): &(Node, DependencyKind)| {
                why == DependencyKind::Data && unmade.contains(&from)
            };
            let Some((from, _)) = self.after(node).find(unread) else { continue };
            let Some(vertex) = self.vertices.get_mut(node.0 as usize) else { continue };
            if !matches!(vertex.state, State::Waiting | State::Ready) {
                continue;
            }
            vertex.state = State::Skipped(from);
            let over = vertex.open == 0;
            unmade.insert(node);
            if over {
                ready.extend(self.release(node));
            }
        }
        ready
    }

    /// The calls from the failed one to a skipped one; for any other call only the call itself.
    #[must_use]
    pub fn failure_path(&self, node: Node) -> Vec<Node> {
        let mut path = Vec::from([node]);
        while let Some(State::Skipped(from)) = path.last().and_then(|&node| self.state(node)) {
            path.push(*from);
        }
        path.reverse();
        path
    }

    /// The outcome of a call, in a sentence.
    #[must_use]
    pub fn explain(&self, node: Node) -> String {
        let name = |node: Node| self.vertex(node).map_or("?", |vertex| vertex.name.as_str());
        let this = alloc::format!("call {} ({})", node.0, name(node));
        match self.state(node) {
            None => alloc::format!("there is no call {}", node.0),
            Some(State::Waiting) => this + " waits for others",
            Some(State::Ready) => this + " can be started",
            Some(State::Running) => this + " runs",
            Some(State::Done(_)) => this + " has ended",
            Some(State::Failed(why)) => alloc::format!("{this} failed: {why}"),
            Some(State::Cancelled) => this + " was cancelled",
            Some(State::Skipped(_)) => {
                let path = self.failure_path(node);
                let steps: Vec<String> = path
                    .iter()
                    .map(|&node| alloc::format!("{} ({})", node.0, name(node)))
                    .collect();
                let why = match path.first().and_then(|&first| self.state(first)) {
                    Some(State::Failed(why)) => why.as_str(),
                    _ => "it was cancelled",
                };
                alloc::format!("{this} did not run, because of {}: {why}", steps.join(" -> "))
            }
        }
    }
}
