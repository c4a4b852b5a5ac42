//! The head's part: from what nodes tell of a job to a verdict, by rounds.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use crate::node_watch::Standing;
use crate::reading::{FINAL_ROUND, Summary};

/// What to do after nodes have told something.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Ruling {
    /// All nodes are to read again: this round.
    Confirm(u64),
    /// The job is stopped; its ranks as they stood.
    Stopped(Summary),
    /// The job is not stopped any more.
    Withdrawn,
}

/// Nodes that told one thing together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Group<N: Ord> {
    nodes: BTreeSet<N>,
    summary: Summary,
}

/// Verdict on a job.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Judge<N: Ord> {
    groups: Vec<Group<N>>,
    /// The latest round.
    round: u64,
    /// It began when all that is known now was known, but for answers to it.
    open: bool,
    stopped: bool,
}

impl<N: Ord> Default for Judge<N> {
    fn default() -> Self {
        Self { groups: Vec::new(), round: 0, open: false, stopped: false }
    }
}

impl<N: Ord + Copy> Judge<N> {
    /// Whether the job is stopped.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// These nodes left or attached anew: nothing is known of them.
    pub fn forget(&mut self, nodes: &[N]) -> Option<Ruling> {
        let known = self.groups.len();
        self.groups.retain(|group| !nodes.iter().any(|node| group.nodes.contains(node)));
        if self.groups.len() == known {
            return None;
        }
        self.open = false;
        core::mem::take(&mut self.stopped).then_some(Ruling::Withdrawn)
    }

    /// These nodes tell a standing of a job that has all of `members`. What to do, in order.
    pub fn tell(&mut self, nodes: &[N], standing: Standing, members: &[N]) -> Vec<Ruling> {
        let mut rulings = Vec::new();
        let Standing::Settled(summary) = standing else {
            rulings.extend(self.forget(nodes));
            return rulings;
        };
        // What a node answers is what it told before. If that did not get here, the answer is news.
        let known = |node: &N| self.groups.iter().any(|group| group.nodes.contains(node));
        let answers = (1..FINAL_ROUND).contains(&summary.round) && nodes.iter().all(known);
        if !answers {
            rulings.extend(self.forget(nodes));
            self.open = false;
        }
        let nodes: BTreeSet<N> = nodes.iter().copied().collect();
        self.groups.retain(|group| group.nodes.is_disjoint(&nodes));
        self.groups.push(Group { nodes, summary });
        rulings.extend(self.rule(members));
        rulings
    }

    fn rule(&mut self, members: &[N]) -> Option<Ruling> {
        let known = |node: &N| self.groups.iter().any(|group| group.nodes.contains(node));
        if self.stopped || !members.iter().all(known) {
            return None;
        }
        let all = self.groups.iter();
        let total = all.fold(Summary::EMPTY, |sum, group| sum.combine(&group.summary));
        if !total.is_stopped() {
            return None;
        }
        if !self.open {
            self.round += 1;
            self.open = true;
            return Some(Ruling::Confirm(self.round));
        }
        self.stopped = total.round >= self.round;
        self.stopped.then_some(Ruling::Stopped(total))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn settled(round: u64, sent: u64, delivered: u64) -> Standing {
        let waiting = u32::from(round < FINAL_ROUND);
        Standing::Settled(Summary { round, ranks: 1, waiting, sent, delivered, ..Summary::EMPTY })
    }

    fn tell(judge: &mut Judge<u32>, node: u32, standing: Standing) -> Vec<Ruling> {
        judge.tell(&[node], standing, &[0, 1])
    }

    #[test]
    fn all_nodes_confirm_before_a_job_is_stopped() {
        let mut judge = Judge::default();
        assert_eq!(tell(&mut judge, 0, settled(0, 5, 2)), []);
        assert_eq!(tell(&mut judge, 1, settled(0, 1, 4)), [Ruling::Confirm(1)]);
        assert_eq!(tell(&mut judge, 1, settled(1, 1, 4)), []);
        assert!(!judge.is_stopped());
        let rulings = tell(&mut judge, 0, settled(1, 5, 2));
        assert!(matches!(&rulings[..], [Ruling::Stopped(_)]) && judge.is_stopped());
        assert_eq!(tell(&mut judge, 0, Standing::Changed), [Ruling::Withdrawn]);
    }

    #[test]
    fn what_is_on_its_way_keeps_a_job_running() {
        let mut judge = Judge::default();
        tell(&mut judge, 0, settled(0, 5, 2));
        assert_eq!(tell(&mut judge, 1, settled(0, 1, 3)), []);
    }

    #[test]
    fn a_change_between_the_readings_begins_anew() {
        let mut judge = Judge::default();
        tell(&mut judge, 0, settled(0, 1, 0));
        tell(&mut judge, 1, settled(0, 0, 1));
        tell(&mut judge, 1, settled(1, 0, 1));
        assert_eq!(tell(&mut judge, 0, Standing::Changed), []);
        assert_eq!(tell(&mut judge, 0, settled(0, 1, 0)), [Ruling::Confirm(2)]);
        assert_eq!(tell(&mut judge, 0, settled(2, 1, 0)), [], "the other has answered round 1");
    }

    #[test]
    fn a_node_that_ends_after_the_others_have_answered_begins_anew() {
        let mut judge = Judge::default();
        tell(&mut judge, 0, settled(0, 1, 0));
        tell(&mut judge, 1, settled(0, 0, 1));
        tell(&mut judge, 0, settled(1, 1, 0));
        let rulings = tell(&mut judge, 1, settled(FINAL_ROUND, 0, 1));
        assert_eq!(rulings, [Ruling::Confirm(2)]);
        assert_eq!(tell(&mut judge, 0, settled(1, 1, 0)), [], "late");
        assert!(matches!(tell(&mut judge, 0, settled(2, 1, 0))[..], [Ruling::Stopped(_)]));
    }

    #[test]
    fn a_node_that_attaches_anew_is_asked_again() {
        let mut judge = Judge::default();
        tell(&mut judge, 0, settled(0, 0, 0));
        tell(&mut judge, 1, settled(0, 0, 0));
        assert_eq!(judge.forget(&[1]), None);
        assert_eq!(tell(&mut judge, 1, settled(1, 0, 0)), [Ruling::Confirm(2)]);
        tell(&mut judge, 0, settled(2, 0, 0));
        tell(&mut judge, 1, settled(2, 0, 0));
        assert_eq!(judge.forget(&[0]), Some(Ruling::Withdrawn));
        assert_eq!(judge.forget(&[0]), None);
    }

    #[test]
    fn a_job_whose_ranks_are_all_over_is_not_stopped() {
        let mut judge = Judge::default();
        tell(&mut judge, 0, settled(FINAL_ROUND, 0, 0));
        assert_eq!(tell(&mut judge, 1, settled(FINAL_ROUND, 0, 0)), vec![]);
    }
}
