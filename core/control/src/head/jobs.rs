//! The life of a job, from its placement to its end.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use kumi_sched::{ClusterTime, JobId, NodeId, Placement, Request, UserId};

use super::quota::{MOST_ENDED_BYTES, input_bytes, request_bytes};
use super::{ClientId, Head, HeadAction};
use crate::message::{
    ClientReply, Command, ContentHash, JobRecord, JobRequest, JobState, Nanos, NodeSet, Outcome,
    PreparedRanks, RankAddress, Refusal, RefusalKind,
};

/// Ended jobs that are remembered, for `kumi ps --all` and repeated submissions; fewer if they take much room.
const ENDED_KEPT: usize = 4096;
/// How long the other ranks have, after one has failed, when all were asked to end by a signal.
const ENDING_GRACE: Nanos = 1_000_000_000;

/// A job as the head follows it.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) record: JobRecord,
    /// Its share of each of its nodes; empty while queued and when over.
    pub(super) parts: BTreeMap<NodeId, JobPart>,
    /// Whether the policy knows it.
    pub(super) scheduled: bool,
    /// How many nodes it waits for, once the policy knows it.
    pub(super) wanted: u32,
    /// Taken over from an earlier head: its ranks' addresses come with the nodes.
    pub(super) restored: bool,
    pub(super) submitter: Option<ClientId>,
    /// Submitted to an earlier head: its client may not have come to this one yet.
    pub(super) awaits_client: bool,
    pub(super) followers: BTreeSet<ClientId>,
    pub(super) killers: BTreeSet<ClientId>,
    /// A signal that asks programs to end was sent to its ranks.
    pub(super) asked_to_end: bool,
    /// How it ends, and when what is left of it is killed: ranks that were asked to end may finish
    /// what they do about it after the first of them has.
    pub(super) ends: Option<(Outcome, Nanos)>,
    /// Standard input that came before there was a rank to read it.
    pub(super) input: Vec<Vec<u8>>,
    pub(super) spool_end: u64,
    pub(super) spool_failed: bool,
    /// Outside the rotation, as long as it runs: it is idle on all its nodes.
    pub(super) idle: bool,
}

/// A node's share of a job.
#[derive(Debug, Default)]
pub(super) struct JobPart {
    pub(super) prepared: Option<PreparedRanks>,
    /// It lacks the program.
    pub(super) wanted: Option<ContentHash>,
    pub(super) state: PartState,
    /// Its node has said that the job has nothing to do there.
    pub(super) idle: bool,
}

/// Whether anything of the job may be left on a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum PartState {
    #[default]
    Live,
    /// The node said so.
    Freed,
    /// The node is lost. Should it come back with the job, the job is killed there.
    Lost,
}

impl Job {
    pub(super) fn new(record: JobRecord) -> Self {
        let parts = record.spec.layout.iter().map(|part| (part.node, JobPart::default())).collect();
        Self {
            record,
            parts,
            scheduled: false,
            wanted: 0,
            restored: false,
            submitter: None,
            awaits_client: false,
            followers: BTreeSet::new(),
            killers: BTreeSet::new(),
            asked_to_end: false,
            ends: None,
            input: Vec::new(),
            spool_end: 0,
            spool_failed: false,
            idle: false,
        }
    }

    pub(super) fn id(&self) -> JobId {
        self.record.spec.job
    }

    /// What the policy is asked for.
    pub(super) fn asked(&self) -> Request {
        let JobRequest { priority, estimate_ns, .. } = self.record.spec.request;
        let user = UserId(self.record.spec.user.uid);
        Request { user, priority, estimate_ns, ..Request::new(self.id(), self.wanted) }
    }

    /// When it was submitted: also what a job that queues again says, so that whoever came later does not overtake it.
    pub(super) fn came(&self, (now, wall_ms): (Nanos, u64)) -> ClusterTime {
        let ago = wall_ms.saturating_sub(self.record.submitted_ms).saturating_mul(1_000_000);
        ClusterTime(now.saturating_sub(ago))
    }

    /// The same, when it has its nodes: what it has run already is taken off its estimate, which is
    /// doubled first if it ran longer, as policies do with those that they see overrun.
    pub(super) fn asked_on(&self, wall_ms: u64) -> Request {
        let run_ms = wall_ms.saturating_sub(self.record.started_ms.unwrap_or(wall_ms));
        let run = run_ms.saturating_mul(1_000_000).min(u64::MAX / 2);
        let rest = |estimate: u64| {
            let mut whole = estimate.max(1);
            while whole <= run {
                whole = whole.saturating_mul(2);
            }
            whole - run
        };
        let asked = self.asked();
        Request { estimate_ns: asked.estimate_ns.map(rest), ..asked }
    }

    /// Whether it takes part in the rotation.
    pub(super) fn takes_turns(&self) -> bool {
        self.record.state == JobState::Running && !self.idle
    }

    /// Whether it has nodes, and the policy knows of it.
    pub(super) fn is_placed(&self) -> bool {
        !self.is_over() && self.record.state != JobState::Queued
    }

    pub(super) fn nodes(&self) -> NodeSet {
        NodeSet::from_nodes(self.parts.keys().copied())
    }

    /// Nodes that may have something of it.
    pub(super) fn live_nodes(&self) -> NodeSet {
        let live = self.parts.iter().filter(|(_, part)| part.state == PartState::Live);
        NodeSet::from_nodes(live.map(|(&node, _)| node))
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(self.record.state, JobState::Ended(_))
    }

    /// `Start` with the addresses of all ranks, once all nodes have told theirs.
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
}

impl Head {
    /// Takes over the jobs of an earlier head. The policy hears of them when the time is known.
    pub(super) fn restore(&mut self, records: Vec<JobRecord>) {
        let mut records = records;
        records.sort_by_key(|record| record.spec.job);
        for record in records {
            let id = record.spec.job;
            self.next_job = self.next_job.max(id.0.saturating_add(1));
            self.tokens.insert(record.spec.request.token, id);
            let mut job = Job::new(record);
            job.awaits_client = true;
            if !job.is_over() {
                self.hold(job.record.spec.user.uid, 1, request_bytes(&job.record.spec.request));
            }
            match job.record.state {
                JobState::Ended(_) => {
                    job.parts.clear();
                    self.jobs.insert(id, job);
                    self.remember_ended(id);
                    continue;
                }
                JobState::Queued => {
                    self.undecided.insert(id);
                    self.nodes_changed = true;
                }
                JobState::Preparing | JobState::Running | JobState::Ending(_) => {
                    let nodes = job.parts.keys().copied().filter(|&node| self.is_configured(node));
                    let nodes: Vec<NodeId> = nodes.collect();
                    job.restored = true;
                    job.scheduled = true;
                    for node in nodes {
                        if let Some(node) = self.node_mut(node) {
                            node.jobs.insert(id);
                        }
                    }
                }
            }
            self.jobs.insert(id, job);
        }
    }

    pub(super) fn persist(&mut self, id: JobId) {
        if let Some(job) = self.jobs.get(&id) {
            let record = Box::new(job.record.clone());
            self.push(HeadAction::Persist(record));
        }
    }

    /// Records a new state, and tells followers (who learn the end after the output).
    pub(super) fn enter(&mut self, id: JobId, state: &JobState) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        job.record.state = state.clone();
        let over = job.is_over();
        if over {
            // What was recorded of its packets must not be readable by who gets the table later.
            job.record.spec.seal_key = None;
        }
        let followers = job.followers.clone();
        self.persist(id);
        for client in followers.into_iter().filter(|_| !over) {
            self.reply(client, ClientReply::State { job: id, state: state.clone() });
        }
    }

    /// The policy gave the job nodes: they prepare.
    pub(super) fn place(&mut self, placement: &Placement) {
        let id = placement.job;
        let Some(job) = self.jobs.get_mut(&id) else {
            self.leave(id);
            return;
        };
        let spec = &mut job.record.spec;
        spec.layout = super::placement::layout(spec.request.ranks, &placement.nodes);
        let spec = Box::new(spec.clone());
        job.parts = placement.nodes.iter().map(|&node| (node, JobPart::default())).collect();
        let nodes = job.nodes();
        for &node in &placement.nodes {
            if let Some(node) = self.node_mut(node) {
                node.jobs.insert(id);
            }
        }
        self.enter(id, &JobState::Preparing);
        self.send(&nodes, &Command::Prepare(spec));
    }

    /// All nodes are prepared: the timetable that has the job goes out, then `Start`.
    pub(super) fn start_if_prepared(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let Some(start) = job.start_command() else { return };
        match job.record.state {
            JobState::Preparing => {
                job.record.started_ms = Some(self.wall_ms);
                let (uid, waited) = (job.record.spec.user.uid, input_bytes(job));
                let input = core::mem::take(&mut job.input);
                let nodes = job.live_nodes();
                self.release(uid, 0, waited);
                self.enter(id, &JobState::Running);
                self.set_active(id, true);
                self.timetable_changed();
                self.publish_if_stale();
                self.send(&nodes, &start);
                for data in input {
                    self.send_input(id, data);
                }
            }
            // The head before this one may have sent it to some nodes and not to others.
            JobState::Running if job.restored => {
                job.restored = false;
                let nodes = job.live_nodes();
                self.send(&nodes, &start);
            }
            _ => {}
        }
    }

    /// The job ends with this outcome unless it is ending already: what is left of it is killed.
    pub(super) fn end(&mut self, id: JobId, outcome: Outcome) {
        let Some(job) = self.jobs.get(&id) else { return };
        match job.record.state {
            JobState::Queued => self.finish(id, outcome),
            JobState::Preparing | JobState::Running => {
                let nodes = job.live_nodes();
                self.enter(id, &JobState::Ending(outcome));
                self.set_active(id, false);
                self.timetable_changed();
                self.forget_transfers_of(id);
                self.send(&nodes, &Command::Kill { job: id });
                self.finish_if_freed(id);
            }
            JobState::Ending(_) | JobState::Ended(_) => {}
        }
    }

    /// A rank failed: the job ends, at once or, if its ranks were asked to end, a little later.
    pub(super) fn end_by_rank(&mut self, id: JobId, outcome: Outcome) {
        let now = self.now;
        match self.jobs.get_mut(&id) {
            Some(job) if job.asked_to_end && job.record.state == JobState::Running => {
                let (_, at) = job.ends.get_or_insert((outcome, now.saturating_add(ENDING_GRACE)));
                self.ends_due = Some(self.ends_due.map_or(*at, |due| due.min(*at)));
            }
            _ => self.end(id, outcome),
        }
    }

    /// Ends the jobs whose ranks have had their time to end by themselves.
    pub(super) fn check_ends(&mut self) {
        let now = self.now;
        if self.ends_due.is_none_or(|due| now < due) {
            return;
        }
        let due = |job: &Job| job.ends.clone().filter(|(_, at)| *at <= now && !job.is_over());
        let due: Vec<(JobId, Outcome)> =
            self.jobs.values().filter_map(|job| Some((job.id(), due(job)?.0))).collect();
        for (id, outcome) in due {
            if let Some(job) = self.jobs.get_mut(&id) {
                job.ends = None;
            }
            self.end(id, outcome);
        }
        let left = self.jobs.values().filter(|job| !job.is_over());
        self.ends_due = left.filter_map(|job| job.ends.as_ref().map(|(_, at)| *at)).min();
    }

    /// Ends the job's life once nothing of it is left anywhere.
    pub(super) fn finish_if_freed(&mut self, id: JobId) {
        let Some(job) = self.jobs.get(&id) else { return };
        if job.parts.values().any(|part| part.state == PartState::Live) {
            return;
        }
        match &job.record.state {
            JobState::Running => {
                let outcome = job.ends.as_ref().map_or(Outcome::Success, |(how, _)| how.clone());
                self.finish(id, outcome);
            }
            JobState::Ending(outcome) => {
                let outcome = outcome.clone();
                self.finish(id, outcome);
            }
            JobState::Queued | JobState::Preparing | JobState::Ended(_) => {}
        }
    }

    fn finish(&mut self, id: JobId, outcome: Outcome) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        job.record.ended_ms = Some(self.wall_ms);
        let uid = job.record.spec.user.uid;
        let bytes = request_bytes(&job.record.spec.request) + input_bytes(job);
        let nodes = job.nodes();
        let killers = core::mem::take(&mut job.killers);
        job.parts.clear();
        job.input.clear();
        self.release(uid, 1, bytes);
        self.enter(id, &JobState::Ended(outcome.clone()));
        self.push(HeadAction::EndSpool { job: id, outcome });
        for client in killers {
            self.reply(client, ClientReply::Done);
        }
        self.send(&nodes, &Command::Forget { job: id });
        for node in nodes.iter() {
            if let Some(node) = self.node_mut(node) {
                node.jobs.remove(&id);
            }
        }
        self.undecided.remove(&id);
        self.leave(id);
        self.timetable_changed();
        self.forget_transfers_of(id);
        self.remember_ended(id);
    }

    /// Ended jobs lose what is large; the oldest are forgotten altogether.
    fn remember_ended(&mut self, id: JobId) {
        if let Some(job) = self.jobs.get_mut(&id) {
            job.record.spec.request.env = Vec::new();
            job.followers.clear();
            job.submitter = None;
            self.ended_bytes += request_bytes(&job.record.spec.request);
        }
        self.ended.push_back(id);
        while self.ended.len() > ENDED_KEPT || self.ended_bytes > MOST_ENDED_BYTES {
            let Some(oldest) = self.ended.pop_front() else { return };
            if let Some(job) = self.jobs.remove(&oldest) {
                let bytes = request_bytes(&job.record.spec.request);
                self.ended_bytes = self.ended_bytes.saturating_sub(bytes);
                self.tokens.remove(&job.record.spec.request.token);
            }
        }
    }

    pub(super) fn send_input(&mut self, id: JobId, data: Vec<u8>) {
        let first = self.jobs.get(&id).and_then(|job| job.record.spec.layout.first());
        if let Some(first) = first.map(|part| part.node) {
            self.send(&NodeSet::from_nodes([first]), &Command::Input { job: id, data });
        }
    }
}

pub(super) fn refusal(kind: RefusalKind, message: alloc::string::String) -> Refusal {
    Refusal { kind, message }
}
