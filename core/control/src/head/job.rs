//! One job of the head: its record, and what is left of it on each of its nodes.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use kumi_sched::{ClusterTime, Demand, JobId, NodeId, Request, UserId};

use super::quota::request_bytes;
use super::time::HeadTime;
use crate::message::{
    Command, ContentHash, JobRecord, JobRequest, JobSpec, JobState, Nanos, NodeRanks, NodeSet,
    Outcome, PartUse, PreparedRanks, RankAddress,
};

/// A job that is not over, or was over a short time ago.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) record: JobRecord,
    /// What the quota has for the request. It stays until the end, whatever the record loses meanwhile.
    pub(super) charged: usize,
    pub(super) parts: BTreeMap<NodeId, JobPart>,
    /// The policy knows of it.
    pub(super) scheduled: bool,
    /// It may not start yet, for a reason of its own.
    pub(super) held: bool,
    /// When what held it was over, in milliseconds since the epoch.
    pub(super) released_ms: Option<u64>,
    /// What the policy was asked for.
    pub(super) demand: Demand,
    /// Taken over from an earlier head: its ranks' addresses come with the nodes.
    pub(super) restored: bool,
    /// A signal that asks programs to end was sent to its ranks.
    pub(super) asked_to_end: bool,
    /// How it ends, and when the head kills what is left of it: ranks that were asked to end have
    /// a little time after the first of them has ended.
    pub(super) delayed_end: Option<(Outcome, Nanos)>,
    /// Standard input that came before there was a rank to read it.
    pub(super) input: Vec<Vec<u8>>,
    /// Output that earlier heads did not keep, in bytes.
    pub(super) not_kept_before: u64,
    /// What the table has of output that is not kept.
    pub(super) not_kept_recorded: u64,
    /// Its followers know that not all is kept.
    pub(super) not_kept_told: bool,
    /// What it has used on its nodes, as they said last.
    pub(super) used: BTreeMap<NodeId, PartUse>,
}

/// A node's share of a job.
#[derive(Debug, Default)]
pub(super) struct JobPart {
    pub(super) prepared: Option<PreparedRanks>,
    /// The program that the node lacks.
    pub(super) wanted: Option<ContentHash>,
    pub(super) state: PartState,
}

/// Whether anything of the job may be left on a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum PartState {
    #[default]
    Live,
    /// The node has reported that nothing is left.
    Freed,
    /// The node is lost, and something may run there until then, on the head's clock. If it comes back with the job, the job
    /// is killed there.
    Lost { until: Nanos },
}

/// Nanoseconds since that time, which is in milliseconds since the epoch.
fn since(ms: u64, time: &HeadTime) -> Nanos {
    time.wall_ms().saturating_sub(ms).saturating_mul(1_000_000)
}

impl Job {
    pub(super) fn new(record: JobRecord) -> Self {
        let parts = record.spec.layout.iter().map(|part| (part.node, JobPart::default())).collect();
        let not_kept = record.output_not_kept;
        Self {
            charged: request_bytes(&record.spec.request),
            record,
            parts,
            scheduled: false,
            held: false,
            released_ms: None,
            demand: Demand::processors(0),
            restored: false,
            asked_to_end: false,
            delayed_end: None,
            input: Vec::new(),
            not_kept_before: not_kept,
            not_kept_recorded: not_kept,
            not_kept_told: false,
            used: BTreeMap::new(),
        }
    }

    /// What nodes get of it. The program is not part of that: who lacks it asks for it.
    pub(super) fn spec_for_nodes(&self) -> Box<JobSpec> {
        let mut spec = Box::new(self.record.spec.clone());
        spec.request.batch.content = None;
        spec
    }

    pub(super) fn id(&self) -> JobId {
        self.record.spec.job
    }

    /// The user it belongs to.
    pub(super) fn uid(&self) -> u32 {
        self.record.spec.user.uid
    }

    /// Whether it has this rank on that node.
    pub(super) fn has_rank(&self, rank: u32, node: NodeId) -> bool {
        let has = |part: &NodeRanks| {
            part.node == node && rank >= part.first && rank - part.first < part.count
        };
        self.record.spec.layout.iter().any(has)
    }

    pub(super) fn part(&self, node: NodeId) -> Option<&JobPart> {
        self.parts.get(&node)
    }

    /// The job as the policy is asked for it.
    pub(super) fn scheduling_request(&self) -> Request {
        let JobRequest { priority, estimate_ns, .. } = self.record.spec.request;
        let user = UserId(self.uid());
        Request { job: self.id(), demand: self.demand, user, priority, estimate_ns }
    }

    /// The same for a job that has its nodes: the time that it has run is taken off its estimate.
    /// An estimate that was too short is doubled first, as policies do when a job overruns.
    pub(super) fn remaining_request(&self, wall_ms: u64) -> Request {
        let run_ms = wall_ms.saturating_sub(self.record.started_ms.unwrap_or(wall_ms));
        let run = run_ms.saturating_mul(1_000_000).min(u64::MAX / 2);
        let rest = |estimate: u64| {
            let mut whole = estimate.max(1);
            while whole <= run {
                whole = whole.saturating_mul(2);
            }
            whole - run
        };
        let request = self.scheduling_request();
        Request { estimate_ns: request.estimate_ns.map(rest), ..request }
    }

    /// When it was submitted, or when what held it was over: until then nobody overtook it. A job that queues again gives the
    /// same time, so that no later job overtakes it.
    pub(super) fn arrival(&self, time: &HeadTime) -> ClusterTime {
        let came_ms = self.record.submitted_ms.max(self.released_ms.unwrap_or(0));
        ClusterTime(time.now().saturating_sub(since(came_ms, time)))
    }

    /// Nanoseconds since it was submitted.
    pub(super) fn age(&self, time: &HeadTime) -> Nanos {
        since(self.record.submitted_ms, time)
    }

    /// A job that held this one was over then. The last of them counts.
    pub(super) fn released(&mut self, ms: u64) {
        self.released_ms = self.released_ms.max(Some(ms));
    }

    /// Whether it has nodes, and the policy knows of it. One of which something is left only on lost nodes has none.
    pub(super) fn is_placed(&self) -> bool {
        !self.is_over()
            && self.record.state != JobState::Queued
            && self.live_parts().next().is_some()
    }

    /// Whether something of it may be left anywhere, on lost nodes too.
    pub(super) fn has_remains(&self) -> bool {
        self.parts.values().any(|part| part.state != PartState::Freed)
    }

    pub(super) fn nodes(&self) -> NodeSet {
        NodeSet::from_nodes(self.parts.keys().copied())
    }

    /// Nodes that may have something of it, ascending.
    pub(super) fn live_parts(&self) -> impl Iterator<Item = NodeId> + '_ {
        let live = self.parts.iter().filter(|(_, part)| part.state == PartState::Live);
        live.map(|(&node, _)| node)
    }

    /// The same as a set.
    pub(super) fn live_nodes(&self) -> NodeSet {
        NodeSet::from_nodes(self.live_parts())
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(self.record.state, JobState::Ended(_))
    }

    /// Bytes of input that wait for its first rank.
    pub(super) fn input_bytes(&self) -> usize {
        self.input.iter().map(|data| data.len() + 64).sum()
    }

    /// `Start` with the addresses of all ranks, once all nodes have sent theirs.
    pub(super) fn start_command(&self) -> Option<Command> {
        let mut addresses: Vec<RankAddress> = Vec::new();
        let mut max_datagram = u16::MAX;
        for part in &self.record.spec.layout {
            let prepared = self.parts.get(&part.node)?.prepared.as_ref()?;
            addresses.extend(&prepared.addresses);
            max_datagram = max_datagram.min(prepared.max_datagram);
        }
        Some(Command::Start { job: self.id(), addresses, max_datagram })
    }

    /// A node whose ranks have IPv4 addresses and one whose ranks have IPv6 addresses, if it has both.
    pub(super) fn nodes_of_two_families(&self) -> Option<[NodeId; 2]> {
        let node_of = |v4: bool| {
            let has = |prepared: &PreparedRanks| {
                prepared.addresses.iter().any(|address| address.ip.is_ipv4() == v4)
            };
            let part = self.parts.iter().find(|(_, part)| part.prepared.as_ref().is_some_and(has));
            part.map(|(node, _)| *node)
        };
        Some([node_of(true)?, node_of(false)?])
    }

    /// Whether a transfer of its program may begin: every node has answered or lacks the program,
    /// and some lack it.
    pub(super) fn awaits_program(&self) -> bool {
        let decided = self.parts.values().all(|part| {
            part.prepared.is_some() || part.wanted.is_some() || part.state != PartState::Live
        });
        self.record.state == JobState::Preparing
            && decided
            && self.parts.values().any(|part| part.wanted.is_some())
    }

    /// Nodes that lack the program with this content.
    pub(super) fn nodes_without(&self, hash: ContentHash) -> impl Iterator<Item = NodeId> + '_ {
        let wanting = self.parts.iter().filter(move |(_, part)| part.wanted == Some(hash));
        wanting.map(|(&node, _)| node)
    }

    /// The program's content.
    pub(super) fn program(&self) -> ContentHash {
        self.record.spec.request.program.hash
    }
}
