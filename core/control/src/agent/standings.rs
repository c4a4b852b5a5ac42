//! Standings of jobs on this node and below: what holds for all of them goes up together, a change at once.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use kumi_sched::{JobId, NodeId};
use kumi_verdict::{FINAL_ROUND, Standing, Summary};

use super::local_jobs::LocalPhase;
use super::retained_reports::MOST_JOBS;
use super::{Agent, AgentAction};
use crate::message::{NodeSet, Report, StandingReport};
use crate::tree::LinkId;

/// Standings of one job. Groups of nodes that have told something together share no node.
#[derive(Debug, Default)]
struct JobStandings {
    groups: Vec<(BTreeSet<NodeId>, Summary)>,
    /// What the parent was told: of which nodes, and their round.
    sent: Option<(BTreeSet<NodeId>, u64)>,
}

impl JobStandings {
    fn drop_nodes(&mut self, gone: &BTreeSet<NodeId>) {
        self.groups.retain(|(nodes, _)| nodes.is_disjoint(gone));
    }

    /// Forgets what the parent was told, if some of it was of these nodes.
    fn take_sent(&mut self, of: &BTreeSet<NodeId>) -> Option<BTreeSet<NodeId>> {
        let (sent, _) = self.sent.take_if(|(sent, _)| !sent.is_disjoint(of))?;
        Some(sent)
    }

    fn nodes(&self) -> BTreeSet<NodeId> {
        self.groups.iter().flat_map(|(nodes, _)| nodes.iter().copied()).collect()
    }

    /// What the parent does not know of nodes that have all told something.
    fn take_unsent(&mut self) -> Option<(BTreeSet<NodeId>, Summary)> {
        let groups = self.groups.iter();
        let total = groups.fold(Summary::EMPTY, |sum, (_, summary)| sum.combine(summary));
        if self.sent.as_ref().is_some_and(|(_, round)| *round >= total.round) {
            return None;
        }
        let nodes = self.nodes();
        self.sent = Some((nodes.clone(), total.round));
        Some((nodes, total))
    }
}

/// Standings of all jobs.
#[derive(Debug, Default)]
pub(super) struct Standings {
    jobs: BTreeMap<JobId, JobStandings>,
}

impl Standings {
    pub(super) fn forget(&mut self, job: JobId) {
        self.jobs.remove(&job);
    }

    /// These nodes left or are anew. Their parent forgets all that it was told together with them.
    pub(super) fn drop_nodes(&mut self, gone: &[NodeId]) {
        let gone = gone.iter().copied().collect();
        for standings in self.jobs.values_mut() {
            standings.drop_nodes(&gone);
            standings.take_sent(&gone);
        }
        self.jobs.retain(|_, standings| !standings.groups.is_empty());
    }

    /// A new parent knows nothing.
    pub(super) fn forget_sent(&mut self) -> Vec<JobId> {
        self.jobs.values_mut().for_each(|standings| standings.sent = None);
        self.jobs.keys().copied().collect()
    }
}

impl Agent {
    /// The driver has read the ranks of a job here.
    pub(super) fn standing(&mut self, job: JobId, standing: Standing) {
        if matches!(self.jobs.phase(job), Some(LocalPhase::Started)) {
            let node = self.node();
            self.keep_standing(job, BTreeSet::from([node]), standing);
        }
    }

    pub(super) fn child_standing(&mut self, link: LinkId, report: StandingReport) {
        let told = report.nodes.len();
        let nodes = self.subtree.routes().among(link, &report.nodes);
        let sound = match &report.standing {
            Standing::Changed => true,
            Standing::Settled(summary) => summary.is_sound() && nodes.len() as u64 == told,
        };
        if sound && !nodes.is_empty() {
            self.keep_standing(report.job, nodes.into_iter().collect(), report.standing);
        }
    }

    fn keep_standing(&mut self, job: JobId, nodes: BTreeSet<NodeId>, standing: Standing) {
        if !self.standings.jobs.contains_key(&job) && self.standings.jobs.len() >= MOST_JOBS {
            return;
        }
        let kept = self.standings.jobs.entry(job).or_default();
        let answers = matches!(&standing, Standing::Settled(summary) if (1..FINAL_ROUND).contains(&summary.round));
        let known = kept.nodes().is_superset(&nodes);
        kept.drop_nodes(&nodes);
        let outdated = if answers && known { None } else { kept.take_sent(&nodes) };
        if let Standing::Settled(summary) = standing {
            kept.groups.push((nodes, summary));
        }
        if let Some(nodes) = outdated {
            self.report_standing(job, nodes, Standing::Changed);
        }
        self.send_standing_if_complete(job);
    }

    fn report_standing(&mut self, job: JobId, nodes: BTreeSet<NodeId>, standing: Standing) {
        if self.parent_up {
            let nodes = NodeSet::from_nodes(nodes);
            let report = Report::Standing(StandingReport { job, nodes, standing });
            self.push(AgentAction::ToParent(report));
        }
    }

    /// Tells what all nodes of the job here and below have told, once they all have.
    pub(super) fn send_standing_if_complete(&mut self, job: JobId) {
        if !self.parent_up {
            return;
        }
        let Some(kept) = self.standings.jobs.get(&job) else { return };
        let told = kept.nodes();
        let below = self.all_below(job, |node| told.contains(&node));
        let here = self.jobs.phase(job).is_none() || told.contains(&self.node());
        if !below || !here || told.is_empty() {
            return;
        }
        let unsent = self.standings.jobs.get_mut(&job).and_then(JobStandings::take_unsent);
        if let Some((nodes, total)) = unsent {
            self.report_standing(job, nodes, Standing::Settled(total));
        }
    }
}
