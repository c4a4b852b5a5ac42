//! Gossip of the nodes' resources over the links of the control tree (the information disclosure
//! mechanism, IDM, of the SSS-CORE paper, §3.2).
//!
//! A node numbers what it says of itself. At each exchange of heartbeats a link carries what the other end
//! does not know yet, what was sent longest ago first, within a bound in bytes. So a change reaches
//! every node after at most (links on the way) × (nodes ÷ entries that fit a message) exchanges, what
//! a link carries does not grow with the cluster, and what is late never replaces what is newer.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use kumi_sched::{JobId, NodeId};
use serde::{Deserialize, Serialize};

use crate::message::Nanos;
use crate::tree::LinkId;

/// Time between two exchanges on a link: that of its heartbeats.
pub const EXCHANGE: Nanos = 250_000_000;
/// Most bytes of a message's entries. Four messages a second make 64 KiB a second, each way.
pub const MESSAGE_BYTES: usize = 16 << 10;
/// Most jobs in a node's facts, and most ranks in all of them.
pub const MOST_JOBS: usize = 8;
/// See [`MOST_JOBS`].
pub const MOST_RANKS: usize = 1024;

/// State of a rank, as its node last observed it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RankState {
    /// It computes, or is ready to.
    Running,
    /// It waits for its peers.
    Idle,
    /// It has left its job, for good.
    Over,
    /// Nothing is known; perhaps it has not joined its job yet.
    #[default]
    Unknown,
}

impl RankState {
    fn bits(self) -> u8 {
        match self {
            Self::Running => 0,
            Self::Idle => 1,
            Self::Over => 2,
            Self::Unknown => 3,
        }
    }

    fn from_bits(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::Running,
            1 => Self::Idle,
            2 => Self::Over,
            _ => Self::Unknown,
        }
    }
}

/// A job's ranks on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobFacts {
    /// The job.
    pub job: JobId,
    /// Whether it had the node's processors.
    pub scheduled: bool,
    /// Lowest rank there.
    pub first: u32,
    /// Ranks there.
    pub count: u32,
    /// Two bits a rank, the first lowest.
    states: Vec<u8>,
}

impl JobFacts {
    /// A job whose ranks `first..` are in these states.
    pub fn new(job: JobId, scheduled: bool, first: u32, ranks: &[RankState]) -> Self {
        let mut states = alloc::vec![0; ranks.len().div_ceil(4)];
        for (index, state) in ranks.iter().enumerate() {
            states[index / 4] |= state.bits() << (2 * (index % 4));
        }
        let count = u32::try_from(ranks.len()).unwrap_or(u32::MAX);
        Self { job, scheduled, first, count, states }
    }

    /// The ranks with their states.
    pub fn ranks(&self) -> impl Iterator<Item = (u32, RankState)> + '_ {
        (self.first..self.first.saturating_add(self.count)).enumerate().map(|(index, rank)| {
            let byte = self.states.get(index / 4).copied().unwrap_or(u8::MAX);
            (rank, RankState::from_bits(byte >> (2 * (index % 4))))
        })
    }

    fn is_valid(&self) -> bool {
        let count = usize::try_from(self.count).unwrap_or(usize::MAX);
        count <= MOST_RANKS
            && self.states.len() == count.div_ceil(4)
            && self.first.checked_add(self.count).is_some()
    }
}

/// Facts that a node publishes about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeFacts {
    /// The node.
    pub node: NodeId,
    /// Of its daemon; rises with each start.
    pub incarnation: u64,
    /// How often that daemon has published new facts.
    pub count: u64,
    /// Milliseconds since it was so, without what the network took.
    pub age_ms: u32,
    /// Processors that ranks may use.
    pub processors: u32,
    /// Ranks of all jobs that compute, or could.
    pub runnable: u32,
    /// Share of its processors' time that was used, by whatever: 0 to 1000.
    pub busy_permille: u16,
    /// Memory in use, and in all, in KiB.
    pub memory_kib: [u64; 2],
    /// Bytes that its network interfaces sent and received in a second.
    pub network_bytes: u64,
    /// Some of its jobs: at most [`MOST_JOBS`].
    pub jobs: Vec<JobFacts>,
}

impl NodeFacts {
    /// Most bytes that it takes in a message.
    fn most_bytes(&self) -> usize {
        let job = |job: &JobFacts| 24 + job.states.len();
        80 + self.jobs.iter().map(job).sum::<usize>()
    }

    fn version(&self) -> Version {
        (self.incarnation, self.count)
    }

    /// Whether it keeps to the bounds.
    fn is_valid(&self) -> bool {
        let ranks: usize = self.jobs.iter().map(|job| job.states.len()).sum();
        self.jobs.len() <= MOST_JOBS
            && ranks <= MOST_RANKS / 4 + MOST_JOBS
            && self.jobs.iter().all(JobFacts::is_valid)
    }

    /// Cuts it down to the bounds: jobs that are too many, or too large together, are left out.
    pub fn bound(&mut self) {
        let mut ranks = 0usize;
        self.jobs.retain(|job| {
            let with = ranks.saturating_add(usize::try_from(job.count).unwrap_or(usize::MAX));
            let fits = with <= MOST_RANKS;
            if fits {
                ranks = with;
            }
            fits
        });
        self.jobs.truncate(MOST_JOBS);
    }
}

/// Incarnation and count.
type Version = (u64, u64);

/// The other end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LinkPeer {
    /// The parent.
    Parent,
    /// A child.
    Child(LinkId),
}

#[derive(Debug)]
struct StoredFacts {
    facts: NodeFacts,
    /// When it was so, on the local clock.
    stamp: Nanos,
}

/// Versions of facts that the other end of a link has.
#[derive(Debug, Default)]
struct PeerKnowledge {
    /// Messages made for it.
    rounds: u64,
    /// By node: the newest version that was sent to it or came from it, and in which round.
    there: BTreeMap<NodeId, (Version, u64)>,
    /// Nodes whose facts it lacks, by the round in which they were sent last: that of `there`.
    due: BTreeSet<(u64, NodeId)>,
}

impl PeerKnowledge {
    /// The other end lacks this version of a node, or has it.
    fn schedule(&mut self, node: NodeId, version: Version) {
        let (there, round) = self.there.get(&node).copied().unwrap_or_default();
        if there < version {
            self.due.insert((round, node));
        } else {
            self.due.remove(&(round, node));
        }
    }
}

/// The facts that a node, or the head, has of all nodes, and the versions that its neighbours have.
#[derive(Debug)]
pub struct Disclosure {
    own: Option<NodeId>,
    /// Least incarnation of the own node's facts: above what others remember of an earlier daemon,
    /// whose clock may have been ahead.
    least: u64,
    nodes: u32,
    known: BTreeMap<NodeId, StoredFacts>,
    links: BTreeMap<LinkPeer, PeerKnowledge>,
    changed: BTreeSet<NodeId>,
}

impl Disclosure {
    /// Empty, at node `own` (none: the head) of a cluster of `nodes` nodes.
    pub fn new(own: Option<NodeId>, nodes: u32) -> Self {
        let (known, links, changed) = Default::default();
        Self { own, least: 0, nodes, known, links, changed }
    }

    /// Publishes new facts of the own node. This sets `facts.count` and `facts.age_ms`.
    pub fn tell(&mut self, now: Nanos, mut facts: NodeFacts) {
        facts.bound();
        let last = self.known.get(&facts.node).map_or(0, |known| known.facts.count);
        facts.count = last.saturating_add(1);
        facts.age_ms = 0;
        facts.incarnation = facts.incarnation.max(self.least);
        let node = facts.node;
        self.known.insert(node, StoredFacts { facts, stamp: now });
        self.schedule(node);
    }

    /// A link is there; its other end knows nothing of what was said on an earlier one.
    pub fn link_up(&mut self, link: LinkPeer) {
        let mut fresh = PeerKnowledge::default();
        for (node, known) in &self.known {
            fresh.schedule(*node, known.facts.version());
        }
        self.links.insert(link, fresh);
    }

    /// A link is gone.
    pub fn link_down(&mut self, link: LinkPeer) {
        self.links.remove(&link);
    }

    /// Takes a message. Returns how many of its entries break the rules; they are ignored.
    pub fn receive(&mut self, now: Nanos, from: LinkPeer, message: Vec<NodeFacts>) -> u64 {
        let mut refused = 0;
        for facts in message {
            let Some(link) = self.links.get_mut(&from) else { return refused };
            if facts.node.0 >= self.nodes || !facts.is_valid() {
                refused += 1;
                continue;
            }
            let (node, version) = (facts.node, facts.version());
            let there = link.there.entry(node).or_default();
            there.0 = there.0.max(version);
            self.take(now, facts);
            if let (Some(link), Some(known)) = (self.links.get_mut(&from), self.known.get(&node)) {
                link.schedule(node, known.facts.version());
            }
        }
        refused
    }

    /// Keeps what is newer than what is known.
    fn take(&mut self, now: Nanos, facts: NodeFacts) {
        let (node, version) = (facts.node, facts.version());
        if self.known.get(&node).is_some_and(|known| known.facts.version() >= version) {
            return;
        }
        if self.own == Some(node) {
            // Of an earlier daemon. Nobody knows this node better than itself.
            self.least = version.0.saturating_add(1);
            let Some(own) = self.known.get_mut(&node) else { return };
            own.facts.incarnation = self.least;
        } else {
            let stamp = now.saturating_sub(u64::from(facts.age_ms) * 1_000_000);
            self.known.insert(node, StoredFacts { facts, stamp });
            self.changed.insert(node);
        }
        self.schedule(node);
    }

    /// A node is known in a new version: the links that lack it will carry it.
    fn schedule(&mut self, node: NodeId) {
        if let Some(known) = self.known.get(&node) {
            let version = known.facts.version();
            self.links.values_mut().for_each(|link| link.schedule(node, version));
        }
    }

    /// The facts to send on a link at this exchange; there may be none.
    pub fn message(&mut self, now: Nanos, to: LinkPeer) -> Vec<NodeFacts> {
        let Some(link) = self.links.get_mut(&to) else { return Vec::new() };
        link.rounds += 1;
        let mut room = MESSAGE_BYTES;
        let mut message = Vec::new();
        while let Some((round, node)) = link.due.pop_first() {
            let Some(known) = self.known.get(&node) else { continue };
            let Some(rest) = room.checked_sub(known.facts.most_bytes()) else {
                link.due.insert((round, node));
                break;
            };
            room = rest;
            let mut facts = known.facts.clone();
            facts.age_ms = age_ms(now, known.stamp);
            link.there.insert(node, (facts.version(), link.rounds));
            message.push(facts);
        }
        message
    }

    /// The facts of a node, and their time on the local clock.
    pub fn node(&self, node: NodeId) -> Option<(&NodeFacts, Nanos)> {
        self.known.get(&node).map(|known| (&known.facts, known.stamp))
    }

    /// The other nodes of which something new was heard since the last call.
    pub fn take_changed(&mut self) -> BTreeSet<NodeId> {
        core::mem::take(&mut self.changed)
    }
}

fn age_ms(now: Nanos, stamp: Nanos) -> u32 {
    u32::try_from(now.saturating_sub(stamp) / 1_000_000).unwrap_or(u32::MAX)
}
