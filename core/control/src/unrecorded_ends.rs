//! Ends of jobs that the head's table does not have yet, as its disk is full.
//!
//! Nodes keep what they said of a job until the head says `Forget`, and repeat it to a head that starts. So that word waits here
//! until the table has the end: a head that reads an earlier record of the job hears once more how it ended.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use kumi_sched::JobId;

use crate::message::{JobRecord, JobState, NodeSet, Outcome};
use crate::tree::LinkId;

/// Whether the nodes of the job, which say again all that they said, would have a head that knows it to run end it with the outcome
/// of this record. Of one that was to end they say only that nothing of it is left: taken for its end, that would be a success.
#[must_use]
pub fn nodes_can_repeat(record: &JobRecord) -> bool {
    match &record.state {
        JobState::Ended(outcome) => match outcome {
            Outcome::Success
            | Outcome::RankFailed { .. }
            | Outcome::NodeLost(_)
            | Outcome::HeadAway(_) => true,
            Outcome::Refused(_) | Outcome::Killed | Outcome::Deadlocked | Outcome::TimeLimit(_) => {
                false
            }
        },
        JobState::Queued | JobState::Preparing | JobState::Running | JobState::Ending(_) => false,
    }
}

/// The nodes that do not hear yet that they may forget a job, by link and by the job's name at nodes.
#[derive(Debug, Default)]
pub struct UnrecordedEnds(BTreeMap<(LinkId, JobId), NodeSet>);

impl UnrecordedEnds {
    /// These nodes, which `link` reaches, are to forget the job once its end is recorded.
    pub fn hold(&mut self, link: LinkId, job: JobId, nodes: &NodeSet) {
        let waiting = self.0.entry((link, job)).or_default();
        *waiting = NodeSet::from_nodes(waiting.iter().chain(nodes.iter()));
    }

    /// The link is gone. Its nodes say the end again when they attach.
    pub fn link_gone(&mut self, link: LinkId) {
        self.0.retain(|(waiting, _), _| *waiting != link);
    }

    /// The jobs that need not wait any more, with the nodes that are to forget them.
    pub fn take_recorded(
        &mut self,
        is_recorded: impl Fn(JobId) -> bool,
    ) -> Vec<(LinkId, NodeSet, JobId)> {
        let mut recorded = Vec::new();
        self.0.retain(|&(link, job), nodes| {
            let stays = !is_recorded(job);
            if !stays {
                recorded.push((link, core::mem::take(nodes), job));
            }
            stays
        });
        recorded
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use kumi_sched::NodeId;

    fn nodes(numbers: &[u32]) -> NodeSet {
        NodeSet::from_nodes(numbers.iter().copied().map(NodeId))
    }

    #[test]
    fn nodes_hear_once_that_they_may_forget_a_job() {
        let mut ends = UnrecordedEnds::default();
        let (first, second) = (JobId(1), JobId(2));
        ends.hold(LinkId(1), first, &nodes(&[1, 3]));
        ends.hold(LinkId(1), first, &nodes(&[2]));
        ends.hold(LinkId(2), first, &nodes(&[7]));
        ends.hold(LinkId(1), second, &nodes(&[1]));
        assert_eq!(ends.take_recorded(|_| false), []);
        ends.link_gone(LinkId(2));
        let told = ends.take_recorded(|job| job == first);
        assert_eq!(told, vec![(LinkId(1), nodes(&[1, 2, 3]), first)]);
        assert_eq!(ends.take_recorded(|job| job == first), []);
        assert_eq!(ends.take_recorded(|_| true), vec![(LinkId(1), nodes(&[1]), second)]);
    }
}
