//! Jobs and the cluster as JSON.

use kumi_control::message::{
    ClusterStatus, JobList, JobRecord, JobState, NodeStatus, Outcome, RankStatus, WaitReason,
};
use kumi_sched::{DqtNode, DqtState, Mode, SliceLength};
use serde::Serialize;

/// A job in a list.
#[derive(Serialize)]
pub(crate) struct JobView<'a> {
    job: u64,
    name: &'a str,
    user: &'a str,
    uid: u32,
    state: &'static str,
    /// How it ended, in words.
    outcome: Option<String>,
    /// Whether it ended as it should.
    success: Option<bool>,
    waits_for: Option<String>,
    ranks: u32,
    nodes: Vec<u32>,
    submitted_ms: u64,
    started_ms: Option<u64>,
    ended_ms: Option<u64>,
    command: &'a [String],
    folder: &'a str,
    priority: u16,
}

/// The jobs of a list, newest first.
pub(crate) fn jobs(list: &JobList) -> Vec<JobView<'_>> {
    list.records.iter().rev().map(|record| job(record, list)).collect()
}

fn job<'a>(record: &'a JobRecord, list: &JobList) -> JobView<'a> {
    let (spec, request) = (&record.spec, &record.spec.request);
    let (state, outcome) = match &record.state {
        JobState::Queued => ("queued", None),
        JobState::Preparing => ("starting", None),
        JobState::Running => (list.verdict(spec.job).name(), None),
        JobState::Ending(outcome) => ("ending", Some(outcome)),
        JobState::Ended(outcome) => ("ended", Some(outcome)),
    };
    JobView {
        job: spec.job.0,
        name: &request.name,
        user: &spec.user.name,
        uid: spec.user.uid,
        state,
        outcome: outcome.map(words),
        success: outcome.map(|outcome| *outcome == Outcome::Success),
        waits_for: list.waits_for(spec.job).map(WaitReason::to_string),
        ranks: request.ranks,
        nodes: spec.layout.iter().map(|part| part.node.0).collect(),
        submitted_ms: record.submitted_ms,
        started_ms: record.started_ms,
        ended_ms: record.ended_ms,
        command: &request.args,
        folder: &request.cwd,
        priority: request.priority,
    }
}

fn words(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Success => "done".to_owned(),
        Outcome::RankFailed { rank, node, status } => {
            let how = match status {
                RankStatus::Exited(code) => format!("exited with code {code}"),
                RankStatus::Signalled(number) => format!("was killed by signal {number}"),
                RankStatus::OutOfMemory(_) => "used up its job's memory".to_owned(),
                RankStatus::NotFinalized => "ended before MPI_Finalize".to_owned(),
            };
            format!("rank {rank} on node {node} {how}")
        }
        Outcome::Refused(refusal) => refusal.message.clone(),
        Outcome::NodeLost(node) => format!("node {node} was lost"),
        Outcome::Killed => "killed".to_owned(),
        Outcome::HeadAway(node) => {
            format!("ended by node {node}, because the head was away for longer than a lease")
        }
        Outcome::Deadlocked => "ended, because its ranks waited for each other".to_owned(),
        Outcome::TimeLimit(_) => "ended, because its time limit was over".to_owned(),
    }
}

/// The cluster.
#[derive(Serialize)]
pub(crate) struct ClusterView<'a> {
    name: &'a str,
    policy: &'a str,
    gang: bool,
    /// Length of a slice as it is set, in nanoseconds; null if the head chooses it.
    slice_set_ns: Option<u64>,
    slice_ns: u64,
    cycle: usize,
    since_ms: u64,
    nodes: Vec<NodeView<'a>>,
    tree: Vec<PartitionView>,
}

#[derive(Serialize)]
struct NodeView<'a> {
    node: u32,
    name: &'a str,
    up: bool,
    processors: u32,
    taken: u32,
    memory: u64,
    reserved: u64,
    /// What the machine lacks, a sentence each.
    limits: &'a [String],
    jobs: Vec<u64>,
    /// The jobs of each slot.
    slots: Vec<Vec<u64>>,
}

/// A partition of the tree of queues.
#[derive(Serialize)]
struct PartitionView {
    number: u32,
    parent: Option<u32>,
    first: u32,
    size: u32,
    up: u32,
    /// Whether its queue has its turns now.
    front: bool,
    queue: Vec<[u64; 2]>,
}

/// The cluster as JSON.
pub(crate) fn cluster(status: &ClusterStatus) -> ClusterView<'_> {
    ClusterView {
        name: &status.name,
        policy: &status.policy,
        gang: matches!(status.mode, Mode::Gang { .. }),
        slice_set_ns: match status.slice {
            SliceLength::Auto => None,
            SliceLength::Fixed(nanos) => Some(nanos),
        },
        slice_ns: status.timetable.slice_ns,
        cycle: status.timetable.cycle(),
        since_ms: status.since_ms,
        nodes: status.nodes.iter().map(|one| node(one, status)).collect(),
        tree: status.tree.iter().flatten().map(partition).collect(),
    }
}

fn node<'a>(node: &'a NodeStatus, status: &ClusterStatus) -> NodeView<'a> {
    let said = node.description.as_ref();
    let numbers = |slot: &[kumi_sched::JobId]| slot.iter().map(|job| job.0).collect();
    NodeView {
        node: node.node.0,
        name: said.map_or("", |said| &said.name),
        up: node.up,
        processors: said.map_or(0, |said| said.processors),
        taken: node.taken.processors,
        memory: said.map_or(0, |said| said.memory),
        reserved: node.taken.memory,
        limits: said.map_or(&[], |said| &said.limits),
        jobs: node.jobs.iter().map(|job| job.0).collect(),
        slots: status.timetable.slots_of(node.node).into_iter().map(numbers).collect(),
    }
}

fn partition(node: &DqtNode) -> PartitionView {
    PartitionView {
        number: node.number,
        parent: node.parent,
        first: node.first.0,
        size: node.size,
        up: node.up,
        front: node.state == DqtState::Rounding,
        queue: node.queue.iter().map(|job| [job.job.0, u64::from(job.processors)]).collect(),
    }
}
