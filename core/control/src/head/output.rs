//! Output of jobs as it comes: each byte of a stream is taken once, in order, and acknowledged.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use kumi_sched::{JobId, NodeId};

use super::job::Job;
use super::{Head, HeadAction};
use crate::message::{Command, JobState, KeptOutput, Nanos, NodeSet, Stream};

/// How far each stream of some ranks has come.
type Streams = BTreeMap<(u32, Stream), u64>;

/// Between acknowledgements. Those that come meanwhile go together; the first one after a pause goes at once.
const PACE: Nanos = 2_000_000;

/// Where bytes stand in the output of a rank.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin {
    pub(super) rank: u32,
    pub(super) node: NodeId,
    pub(super) stream: Stream,
    /// Nothing before this can come again.
    pub(super) base: u64,
    pub(super) at: u64,
}

/// How far each stream has come, and what is to be acknowledged.
#[derive(Debug, Default)]
pub(super) struct OutputPositions {
    jobs: BTreeMap<JobId, Streams>,
    /// Acknowledgements of what the spool has not taken yet.
    held: BTreeMap<JobId, BTreeMap<NodeId, Streams>>,
    unsent: BTreeMap<(JobId, NodeId), Streams>,
    /// When the last acknowledgements went.
    sent: Option<Nanos>,
}

impl OutputPositions {
    fn next(&self, job: JobId, rank: u32, stream: Stream) -> u64 {
        self.jobs.get(&job).and_then(|job| job.get(&(rank, stream))).copied().unwrap_or(0)
    }

    /// The part of `data` that is to be taken, and where it begins; none if it is known, or if what is missing before it will
    /// come.
    fn take(&mut self, job: JobId, origin: Origin, mut data: Vec<u8>) -> Option<(u64, Vec<u8>)> {
        let next = self.next(job, origin.rank, origin.stream);
        let end = origin.at.checked_add(data.len() as u64)?;
        if end <= next || (origin.at > next && origin.base <= next) {
            return None;
        }
        let known = usize::try_from(next.saturating_sub(origin.at)).ok()?;
        data.drain(..known);
        self.jobs.entry(job).or_default().insert((origin.rank, origin.stream), end);
        Some((origin.at.max(next), data))
    }

    /// The same as soon as the spool has taken what was handed in.
    fn hold(&mut self, job: JobId, origin: Origin, next: u64) {
        let held = self.held.entry(job).or_default().entry(origin.node).or_default();
        held.insert((origin.rank, origin.stream), next);
    }

    /// Nothing more will come of this node: it has to know at once what has.
    fn release(&mut self, job: JobId, node: NodeId) {
        if let Some(streams) = self.held.get_mut(&job).and_then(|nodes| nodes.remove(&node)) {
            self.unsent.entry((job, node)).or_default().extend(streams);
        }
    }

    /// The spool has taken what was handed in of a job.
    fn spooled(&mut self, job: JobId) {
        for (node, streams) in self.held.remove(&job).unwrap_or_default() {
            self.unsent.entry((job, node)).or_default().extend(streams);
        }
    }

    /// The node is to know that it needs the bytes before `next` no longer.
    fn acknowledge(&mut self, job: JobId, origin: Origin, next: u64) {
        let unsent = self.unsent.entry((job, origin.node)).or_default();
        unsent.insert((origin.rank, origin.stream), next);
    }

    /// When acknowledgements go at the latest.
    pub(super) fn next_deadline(&self) -> Option<Nanos> {
        let sent = self.sent.filter(|_| !self.unsent.is_empty())?;
        Some(sent.saturating_add(PACE))
    }

    /// The job is over.
    pub(super) fn forget_job(&mut self, job: JobId) {
        self.spooled(job);
        self.jobs.remove(&job);
    }

    /// The job will be started again: its streams begin anew. Returns the nodes that were to hear of the last ones yet.
    pub(super) fn begin_anew(&mut self, job: JobId) -> Vec<NodeId> {
        self.spooled(job);
        let untold = self.unsent.keys().filter(|(other, _)| *other == job);
        let untold = untold.map(|&(_, node)| node).collect();
        self.unsent.retain(|&(other, _), _| other != job);
        self.jobs.remove(&job);
        untold
    }

    /// The acknowledgements that go now.
    fn take_due(&mut self, now: Nanos) -> Vec<(NodeId, Command)> {
        let waits = self.sent.is_some_and(|sent| now < sent.saturating_add(PACE));
        if waits || self.unsent.is_empty() {
            return Vec::new();
        }
        self.sent = Some(now);
        let unsent = core::mem::take(&mut self.unsent).into_iter();
        let command = |((job, node), streams): (_, Streams)| {
            (node, Command::OutputKept { job, kept: list(streams), again: false })
        };
        unsent.map(command).collect()
    }
}

fn list(streams: impl IntoIterator<Item = ((u32, Stream), u64)>) -> Vec<KeptOutput> {
    let kept = |((rank, stream), next)| KeptOutput { rank, stream, next };
    streams.into_iter().map(kept).collect()
}

impl Head {
    /// Says how far a job's streams had come when an earlier head ended: before any event.
    pub fn restore_output(
        &mut self,
        job: JobId,
        streams: impl IntoIterator<Item = (u32, Stream, u64)>,
    ) {
        let streams = streams.into_iter().map(|(rank, stream, next)| ((rank, stream), next));
        self.output.jobs.insert(job, streams.collect());
    }

    /// Each link lets only output of nodes pass that are below it, so a node writes for its own ranks only. What nobody wants is
    /// acknowledged, so that the node can drop it. A piece without bytes says that nothing more comes of the job there, or, before
    /// `base`, how far a stream had come that was acknowledged as a whole.
    pub(super) fn take_output(&mut self, id: JobId, origin: Origin, data: Vec<u8>) {
        let end = origin.at.saturating_add(data.len() as u64);
        let job = self.jobs.get(id).filter(|job| !job.is_over());
        if !job.is_some_and(|job| job.has_rank(origin.rank, origin.node)) {
            return self.output.acknowledge(id, origin, end);
        }
        let (rank, stream) = (origin.rank, origin.stream);
        if data.is_empty() {
            if origin.at >= origin.base {
                return self.output.release(id, origin.node);
            }
            // What an earlier head had, and this one has not: the spool marks it. Output of other streams may be on its way there.
            let origin = Origin { at: origin.base, ..origin };
            if let Some((at, data)) = self.output.take(id, origin, data) {
                self.actions.push(HeadAction::Spool { job: id, rank, stream, at, data });
            }
            return;
        }
        let taken = self.output.take(id, origin, data);
        let next = self.output.next(id, rank, stream);
        let runs = self.jobs.get(id).is_some_and(|job| job.record.state == JobState::Running);
        if runs && (taken.is_some() || self.output.held.contains_key(&id)) {
            self.output.hold(id, origin, next);
        } else {
            self.output.acknowledge(id, origin, next);
        }
        if let Some((at, data)) = taken {
            self.actions.push(HeadAction::Spool { job: id, rank, stream, at, data });
        }
    }

    /// The spool takes more output of the job.
    pub(super) fn spooled(&mut self, id: JobId) {
        self.output.spooled(id);
    }

    /// Acknowledges what has come since the last time.
    pub(super) fn acknowledge_output(&mut self) {
        for (node, command) in self.output.take_due(self.time.now()) {
            self.send(&NodeSet::from_nodes([node]), &command);
        }
    }

    /// Has nodes that attached send again what did not come of a job. Of one that is over they drop what they have.
    pub(super) fn ask_for_output(&mut self, id: JobId, nodes: &[NodeId]) {
        if self.jobs.get(id).is_none_or(Job::is_over) {
            let nodes = NodeSet::from_nodes(nodes.iter().copied());
            return self.send(&nodes, &Command::DropOutput { job: id });
        }
        for &node in nodes {
            let job = self.jobs.get(id);
            let streams = self.output.jobs.get(&id).into_iter().flatten();
            let here =
                streams.filter(|((rank, _), _)| job.is_some_and(|job| job.has_rank(*rank, node)));
            let kept = list(here.map(|(&stream, &next)| (stream, next)));
            let command = Command::OutputKept { job: id, kept, again: true };
            self.send(&NodeSet::from_nodes([node]), &command);
        }
    }
}
