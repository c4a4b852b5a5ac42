//! Exchanges at an agent: contributions of this node and of those below are combined, sent up, and kept until nobody can miss
//! them any more.
//!
//! A node contributes to an exchange only when it has the one before. So contributions to an exchange are kept until the next
//! one of its group is over: then every node has it. Until that they are repeated to each new parent, from which a head that
//! lost them, or was restarted, has them again.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::vec::Vec;

use kumi_sched::{JobId, NodeId};

use super::{Agent, AgentAction};
use crate::exchange::{
    Contribution, ExchangeId, ExchangeReport, MOST_EXCHANGE, MOST_GROUPS, RelayReport, bytes_of,
};
use crate::message::{NodeSet, PreparedNode, Refusal, RefusalKind, Report};
use crate::tree::LinkId;

/// Exchanges kept of a group: the last that is over, the next, and one that a node began meanwhile.
const MOST_OF_GROUP: usize = 3;
/// Most bytes kept of a job.
const MOST_BYTES: usize = 3 * MOST_EXCHANGE;

/// One exchange.
#[derive(Debug)]
struct Kept {
    members: NodeSet,
    parts: BTreeMap<NodeId, Vec<u8>>,
    unsent: BTreeSet<NodeId>,
    /// This node waits for the whole.
    awaited: bool,
}

impl Kept {
    fn report(&self, id: ExchangeId, nodes: &BTreeSet<NodeId>, repeated: bool) -> Option<Report> {
        let part = |&node: &NodeId| {
            let data = self.parts.get(&node)?.clone();
            Some(Contribution { node, data })
        };
        let parts: Vec<Contribution> = nodes.iter().filter_map(part).collect();
        let members = self.members.clone();
        let report = ExchangeReport { id, members, parts, repeated };
        (!report.parts.is_empty()).then_some(Report::Exchange(report))
    }
}

/// The exchanges of all jobs, by number within each group of a job.
#[derive(Debug, Default)]
pub(super) struct Exchanges {
    jobs: BTreeMap<JobId, BTreeMap<u64, BTreeMap<u32, Kept>>>,
    /// The newest to which this node contributed, of each group.
    newest: BTreeMap<JobId, BTreeMap<u64, u32>>,
}

/// Why contributions are not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NotKept {
    /// The job exchanges more than may be.
    TooMuch,
    /// The group has as many exchanges under way as nodes that keep the order can begin.
    OutOfOrder,
}

impl Exchanges {
    fn get_mut(&mut self, id: ExchangeId) -> Option<&mut Kept> {
        self.jobs.get_mut(&id.job)?.get_mut(&id.group)?.get_mut(&id.number)
    }

    /// Notes that this node contributes. Returns false if it did so before, or to a later exchange of the group.
    fn begin(&mut self, id: ExchangeId) -> bool {
        let groups = self.newest.entry(id.job).or_default();
        let room = groups.len() < MOST_GROUPS || groups.contains_key(&id.group);
        let newer = groups.get(&id.group).is_none_or(|&newest| id.number > newest);
        if room && newer {
            groups.insert(id.group, id.number);
        }
        newer
    }

    /// Keeps contributions. What all nodes contribute to one exchange fits into a message to the parent.
    fn keep(
        &mut self,
        id: ExchangeId,
        members: NodeSet,
        parts: Vec<Contribution>,
    ) -> Result<(), NotKept> {
        if self.bytes(id.job) + bytes_of(&parts) > MOST_BYTES {
            return Err(NotKept::TooMuch);
        }
        let groups = self.jobs.entry(id.job).or_default();
        if groups.len() >= MOST_GROUPS && !groups.contains_key(&id.group) {
            return Err(NotKept::TooMuch);
        }
        let group = groups.entry(id.group).or_default();
        if group.len() >= MOST_OF_GROUP && !group.contains_key(&id.number) {
            return Err(NotKept::OutOfOrder);
        }
        let others = group.get(&id.number).into_iter().flat_map(|kept| &kept.parts);
        let others = others.filter(|(node, _)| parts.iter().all(|part| part.node != **node));
        let length = others.map(|(_, data)| data.len()).sum::<usize>()
            + parts.iter().map(|part| part.data.len()).sum::<usize>();
        if length > MOST_EXCHANGE {
            return Err(NotKept::TooMuch);
        }
        let new =
            || Kept { members, parts: BTreeMap::new(), unsent: BTreeSet::new(), awaited: false };
        let kept = group.entry(id.number).or_insert_with(new);
        for Contribution { node, data } in parts {
            kept.unsent.insert(node);
            kept.parts.insert(node, data);
        }
        Ok(())
    }

    fn bytes(&self, job: JobId) -> usize {
        let groups = self.jobs.get(&job).into_iter().flat_map(BTreeMap::values);
        let parts = groups.flat_map(BTreeMap::values).flat_map(|kept| kept.parts.values());
        parts.map(Vec::len).sum()
    }

    /// What is not sent yet, once all that `here` says can contribute have.
    fn take_complete(&mut self, id: ExchangeId, here: impl Fn(NodeId) -> bool) -> Option<Report> {
        let kept = self.get_mut(id)?;
        let complete =
            kept.members.iter().all(|node| !here(node) || kept.parts.contains_key(&node));
        if !complete {
            return None;
        }
        let unsent = core::mem::take(&mut kept.unsent);
        kept.report(id, &unsent, false)
    }

    /// These contributions again.
    fn take_repeated(&mut self, id: ExchangeId, nodes: &BTreeSet<NodeId>) -> Option<Report> {
        let kept = self.get_mut(id)?;
        kept.unsent.retain(|node| !nodes.contains(node));
        kept.report(id, nodes, true)
    }

    /// All that is kept, for a new parent.
    fn repeat_all(&mut self) -> Vec<Report> {
        self.ids().into_iter().filter_map(|id| self.repeat(id)).collect()
    }

    fn repeat(&mut self, id: ExchangeId) -> Option<Report> {
        let kept = self.get_mut(id)?;
        kept.unsent.clear();
        let nodes = kept.parts.keys().copied().collect();
        kept.report(id, &nodes, true)
    }

    fn ids(&self) -> Vec<ExchangeId> {
        let group = |(&job, groups): (&JobId, &BTreeMap<u64, BTreeMap<u32, Kept>>)| {
            let ids = groups.iter().flat_map(move |(&group, exchanges)| {
                exchanges.keys().map(move |&number| ExchangeId { job, group, number })
            });
            ids.collect::<Vec<_>>()
        };
        self.jobs.iter().flat_map(group).collect()
    }

    /// The exchange is over: the ones before it are not needed any more. Returns whether this node waited for it.
    fn complete(&mut self, id: ExchangeId) -> bool {
        let Some(group) = self.jobs.get_mut(&id.job).and_then(|groups| groups.get_mut(&id.group))
        else {
            return false;
        };
        group.retain(|&number, _| number >= id.number);
        let kept = group.get_mut(&id.number);
        kept.is_some_and(|kept| core::mem::take(&mut kept.awaited))
    }

    /// These nodes are not below any more, or say again what they have.
    fn drop_nodes(&mut self, nodes: &[NodeId]) {
        for kept in self.jobs.values_mut().flat_map(BTreeMap::values_mut) {
            for exchange in kept.values_mut() {
                exchange.parts.retain(|node, _| !nodes.contains(node));
                exchange.unsent.retain(|node| !nodes.contains(node));
            }
            kept.retain(|_, exchange| !exchange.parts.is_empty());
        }
        for groups in self.jobs.values_mut() {
            groups.retain(|_, exchanges| !exchanges.is_empty());
        }
        self.jobs.retain(|_, groups| !groups.is_empty());
    }

    /// The job is over.
    pub(super) fn forget(&mut self, job: JobId) {
        self.newest.remove(&job);
        self.jobs.remove(&job);
    }
}

fn too_much(job: JobId) -> Refusal {
    let most = MOST_EXCHANGE >> 20;
    let message = format!(
        "job {job} cannot go on: its ranks exchange more than {most} MiB when they start; run it with fewer ranks"
    );
    Refusal { kind: RefusalKind::TooLarge, message }
}

impl Agent {
    /// This node contributes. An exchange of this node alone is over with that.
    pub(super) fn contribute(&mut self, id: ExchangeId, members: NodeSet, data: Vec<u8>) {
        let node = self.node();
        let parts = Vec::from([Contribution { node, data }]);
        if members.len() == 1 && members.contains(node) {
            return self.push(AgentAction::Exchanged { id, parts });
        }
        if !self.jobs.has_ranks(id.job) {
            return;
        }
        if !self.exchanges.begin(id) {
            let message = format!(
                "the ranks of job {} on node {node} contribute twice to exchange {} of their start; see what they wrote",
                id.job, id.number
            );
            let refusal = Refusal { kind: RefusalKind::BadRequest, message };
            return self.answer(id.job, Err(refusal));
        }
        if self.exchanges.keep(id, members, parts).is_err() {
            return self.answer(id.job, Err(too_much(id.job)));
        }
        if let Some(kept) = self.exchanges.get_mut(id) {
            kept.awaited = true;
        }
        self.send_exchange_if_complete(id);
    }

    /// This node contributed under a former daemon, whose agent may have sent it. Who keeps an order of exchanges says those
    /// again that it keeps, in that order.
    pub(super) fn contribute_again(
        &mut self,
        id: ExchangeId,
        members: NodeSet,
        data: Vec<u8>,
        awaited: bool,
    ) {
        if !self.jobs.has_ranks(id.job) || !self.exchanges.begin(id) {
            return;
        }
        let node = self.node();
        let parts = Vec::from([Contribution { node, data }]);
        if self.exchanges.keep(id, members, parts).is_err() {
            return self.answer(id.job, Err(too_much(id.job)));
        }
        if let Some(kept) = self.exchanges.get_mut(id) {
            kept.awaited = awaited;
        }
        self.send_repeated(id, &BTreeSet::from([node]));
    }

    /// These contributions go up at once, and those that waited for them.
    fn send_repeated(&mut self, id: ExchangeId, nodes: &BTreeSet<NodeId>) {
        if self.parent_up {
            let again: Option<Report> = self.exchanges.take_repeated(id, nodes);
            if let Some(report) = again {
                self.report(report);
            }
        }
        self.send_exchange_if_complete(id);
    }

    fn send_exchange_if_complete(&mut self, id: ExchangeId) {
        if !self.parent_up {
            return;
        }
        let (node, routes) = (self.description.node, self.subtree.routes());
        let here = |member| member == node || routes.link(member).is_some();
        let report: Option<Report> = self.exchanges.take_complete(id, here);
        if let Some(report) = report {
            self.report(report);
        }
    }

    /// Contributions from below.
    pub(super) fn child_exchange(&mut self, link: LinkId, report: ExchangeReport) {
        let ExchangeReport { id, members, mut parts, repeated } = report;
        let routes = self.subtree.routes();
        parts.retain(|part| routes.link(part.node) == Some(link) && members.contains(part.node));
        let nodes: BTreeSet<NodeId> = parts.iter().map(|part| part.node).collect();
        let Some(&first) = nodes.first() else { return };
        match self.exchanges.keep(id, members, parts) {
            Ok(()) => {}
            Err(NotKept::OutOfOrder) => return,
            Err(NotKept::TooMuch) => return self.end_below(id.job, first),
        }
        if repeated {
            // Others may have waited for these, too, if their first message was lost.
            return self.send_repeated(id, &nodes);
        }
        self.send_exchange_if_complete(id);
    }

    /// Ends a job that exchanges too much, in the name of a node below that has a part of it.
    fn end_below(&mut self, job: JobId, node: NodeId) {
        if self.reports.has_room(job) {
            let result = Err(too_much(job));
            self.report_prepared(job, Vec::from([PreparedNode { node, result }]));
        }
    }

    /// Says to a new parent what is kept.
    pub(super) fn repeat_exchanges(&mut self) {
        for report in self.exchanges.repeat_all() {
            self.report(report);
        }
    }

    /// Nodes left or attached anew: others may have waited for them.
    pub(super) fn drop_exchanges_of(&mut self, nodes: &[NodeId]) {
        self.exchanges.drop_nodes(nodes);
        for id in self.exchanges.ids() {
            self.send_exchange_if_complete(id);
        }
    }

    /// The whole of an exchange passes, or is for this node.
    pub(super) fn exchanged(&mut self, id: ExchangeId, parts: Vec<Contribution>) {
        if self.exchanges.complete(id) {
            self.push(AgentAction::Exchanged { id, parts });
        }
    }

    /// The same, where this node has no part in it.
    pub(super) fn exchange_passes(&mut self, id: ExchangeId) {
        let node = self.node();
        let own = self.exchanges.get_mut(id).is_some_and(|kept| kept.parts.contains_key(&node));
        if !own {
            self.exchanges.complete(id);
        }
    }

    /// A message of this node's part of a job for another node.
    pub(super) fn relay(&mut self, job: JobId, to: NodeId, data: Vec<u8>) {
        let from = self.node();
        if self.jobs.has_ranks(job) {
            self.report(Report::Relay(RelayReport { job, from, to, data }));
        }
    }
}
