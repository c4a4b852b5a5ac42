//! Exchanges among the nodes of jobs, and messages between them, at the head.
//!
//! The head keeps the last exchange of each group that is over, since a node may have missed it. Once all nodes have
//! contributed to the next one, all have it.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use kumi_sched::{JobId, NodeId};

use super::{Head, refusal};
use crate::exchange::{
    Contribution, ExchangeId, ExchangeReport, MOST_EXCHANGE, MOST_GROUPS, MOST_RELAY, RelayReport,
    bytes_of,
};
use crate::message::{Command, JobState, NodeSet, Outcome, RefusalKind};
use crate::tree::LinkId;

/// How often a node gets the last exchange again, after a link of its way was lost. It has it long before.
const MOST_AGAIN: u32 = 32;

/// Exchanges of the same nodes.
#[derive(Debug)]
struct Group {
    members: NodeSet,
    /// Two at most: while a restarted head hears again of one that is over, nodes begin the next.
    under_way: BTreeMap<u32, BTreeMap<NodeId, Vec<u8>>>,
    /// The last that is over.
    last: Option<(u32, Vec<Contribution>)>,
    /// How often nodes got that again.
    again: BTreeMap<NodeId, u32>,
}

impl Group {
    fn bytes(&self) -> usize {
        let under_way = self.under_way.values().flat_map(BTreeMap::values);
        let last = self.last.as_ref().map_or(0, |(_, parts)| bytes_of(parts));
        under_way.map(|data| data.len() + 64).sum::<usize>() + last
    }

    /// The exchange of this number, if all have contributed to it. It is the last then.
    fn take_complete(&mut self, number: u32) -> Option<Vec<Contribution>> {
        let parts = self.under_way.get(&number)?;
        if self.members.iter().any(|node| !parts.contains_key(&node)) {
            return None;
        }
        let parts = self.under_way.remove(&number)?;
        let parts: Vec<Contribution> =
            parts.into_iter().map(|(node, data)| Contribution { node, data }).collect();
        self.under_way.retain(|&other, _| other > number);
        self.last = Some((number, parts.clone()));
        self.again.clear();
        Some(parts)
    }

    /// What follows from contributions to an exchange that is over. Only who lost a link may have missed it.
    fn repeat_last(&mut self, number: u32, repeated: bool, parts: &[Contribution]) -> Progress {
        let again = match &self.last {
            Some((last, _)) if *last == number && repeated => self.take_again(parts),
            _ => return Progress::None,
        };
        match &self.last {
            Some((_, whole)) if !again.is_empty() => Progress::Send(again, whole.clone()),
            _ => Progress::None,
        }
    }

    /// Those of the nodes that may get the last exchange again.
    fn take_again(&mut self, parts: &[Contribution]) -> NodeSet {
        let mut may = |node: &NodeId| {
            let again = self.again.entry(*node).or_default();
            *again += 1;
            *again <= MOST_AGAIN
        };
        NodeSet::from_nodes(parts.iter().map(|part| part.node).filter(|node| may(node)))
    }
}

/// What follows from contributions.
#[derive(Debug, PartialEq, Eq)]
enum Progress {
    /// Others are waited for, or these are old.
    None,
    /// These nodes get the whole.
    Send(NodeSet, Vec<Contribution>),
    /// The job cannot go on, and why.
    Refuse(String),
}

/// The exchanges of all jobs.
#[derive(Debug, Default)]
pub(super) struct Exchanges {
    jobs: BTreeMap<JobId, BTreeMap<u64, Group>>,
}

impl Exchanges {
    fn take(&mut self, report: ExchangeReport) -> Progress {
        let ExchangeReport { id, members, parts, repeated } = report;
        let groups = self.jobs.entry(id.job).or_default();
        if groups.len() >= MOST_GROUPS && !groups.contains_key(&id.group) {
            return Progress::Refuse(format!(
                "more than {MOST_GROUPS} groups of its ranks exchange data"
            ));
        }
        let new = || Group {
            members: members.clone(),
            under_way: BTreeMap::new(),
            last: None,
            again: BTreeMap::new(),
        };
        let group = groups.entry(id.group).or_insert_with(new);
        if group.members != members {
            return Progress::Refuse("its nodes do not agree which of them exchange data".into());
        }
        if group.last.as_ref().is_some_and(|(last, _)| *last >= id.number) {
            return group.repeat_last(id.number, repeated, &parts);
        }
        // Who contributes to one has the one before it, to which all have contributed. So all have the one before that.
        group.under_way.retain(|&other, _| other.saturating_add(1) >= id.number);
        if group.under_way.keys().any(|&other| other > id.number.saturating_add(1)) {
            return Progress::None;
        }
        let under_way = group.under_way.entry(id.number).or_default();
        under_way.extend(parts.into_iter().map(|part| (part.node, part.data)));
        if under_way.values().map(Vec::len).sum::<usize>() > MOST_EXCHANGE {
            let most = MOST_EXCHANGE >> 20;
            return Progress::Refuse(format!(
                "its ranks exchange more than {most} MiB when they start"
            ));
        }
        match group.take_complete(id.number) {
            Some(whole) => Progress::Send(group.members.clone(), whole),
            None => Progress::None,
        }
    }

    /// Bytes that are kept for a job.
    pub(super) fn bytes(&self, job: JobId) -> usize {
        self.jobs.get(&job).into_iter().flat_map(BTreeMap::values).map(Group::bytes).sum()
    }

    /// The job is over. Returns the bytes that were kept.
    pub(super) fn forget(&mut self, job: JobId) -> usize {
        let bytes = self.bytes(job);
        self.jobs.remove(&job);
        bytes
    }
}

impl Head {
    /// Contributions of nodes, of which those count that are reached through the link and have ranks of the job.
    pub(super) fn exchange(&mut self, link: LinkId, mut report: ExchangeReport) {
        let id = report.id;
        let Some(job) = self.jobs.get(id.job) else { return };
        if job.record.state != JobState::Running {
            return;
        }
        let (nodes, owner) = (job.nodes(), self.account(&job.record.spec.user));
        let routes = self.membership.tree().routes();
        report.parts.retain(|part| {
            routes.link(part.node) == Some(link) && report.members.contains(part.node)
        });
        let known = report.members.len() == nodes.intersection(&report.members).len();
        if report.parts.is_empty() || !known {
            return;
        }
        let before = self.exchanges.bytes(id.job);
        if let Err(full) = self.quota.check_bytes(owner, bytes_of(&report.parts)) {
            return self.end(id.job, Outcome::Refused(full));
        }
        let progress = self.exchanges.take(report);
        let after = self.exchanges.bytes(id.job);
        self.quota.refund(owner.uid, 0, before);
        self.quota.charge(owner.uid, 0, after);
        self.carry_on(id, progress);
    }

    fn carry_on(&mut self, id: ExchangeId, progress: Progress) {
        match progress {
            Progress::None => {}
            Progress::Send(nodes, parts) => self.send(&nodes, &Command::Exchanged { id, parts }),
            Progress::Refuse(why) => {
                let job = id.job;
                let message = format!("job {job} cannot go on: {why}; run it with fewer ranks");
                self.end(job, Outcome::Refused(refusal(RefusalKind::TooLarge, message)));
            }
        }
    }

    /// A message from one node of a running job to another.
    pub(super) fn relay(&mut self, link: LinkId, report: RelayReport) {
        let RelayReport { job: id, from, to, data } = report;
        let Some(job) = self.jobs.get(id) else { return };
        let both = job.part(from).is_some() && job.part(to).is_some();
        let through = self.membership.tree().routes().link(from) == Some(link);
        if both && through && job.record.state == JobState::Running && data.len() <= MOST_RELAY {
            let command = Command::Relayed { job: id, from, data };
            self.send(&NodeSet::from_nodes([to]), &command);
        }
    }
}
