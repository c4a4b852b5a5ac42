//! All starts of processes on this node: those that stand still keep it from starting more.
//!
//! The kernel that does not answer one start will not answer the next. So the node says that it is not in order, and the head
//! gives it no jobs. It is in order again when the last such start has ended, unless its health check says otherwise.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::time::Duration;

use kumi_control::agent::AgentEvent;
use kumi_control::message::{NodeCondition, Refusal, RefusalKind};
use kumi_sched::{JobId, NodeId};
use tokio::sync::mpsc;

use super::JobEvent;
use crate::client::refusal;

/// How long one step of a start may take: control groups, or a process. Where many others change control groups, each takes a
/// second or more.
pub(crate) const STEP: Duration = Duration::from_secs(60);

/// Starts that stand still, and what else is known of the node's condition.
#[derive(Debug)]
pub struct StalledStarts {
    node: NodeId,
    step: Duration,
    standing: RefCell<BTreeSet<JobId>>,
    /// What the health check found last, if there is one.
    check: RefCell<Option<NodeCondition>>,
    events: mpsc::Sender<JobEvent>,
}

impl StalledStarts {
    /// None so far. One step of each may take so long.
    pub fn new(node: NodeId, step: Duration, events: mpsc::Sender<JobEvent>) -> Self {
        Self { node, step, standing: RefCell::default(), check: RefCell::default(), events }
    }

    /// How long one step may take.
    pub(super) fn step(&self) -> Duration {
        self.step
    }

    /// Whether some stand still: nothing more is to be started.
    pub(super) fn stand_still(&self) -> bool {
        !self.standing.borrow().is_empty()
    }

    /// Why a job is not started here.
    pub(super) fn refusal(&self) -> Refusal {
        let (node, seconds) = (self.node, self.step.as_secs());
        let message = format!(
            "node {node} could not start the job's processes: its kernel did not answer for {seconds} s; see what else the machine does, and submit the job again"
        );
        refusal(RefusalKind::NoResources, message)
    }

    /// Why a job is not started whose start has panicked.
    pub(super) fn fault(&self) -> Refusal {
        let node = self.node;
        let message = format!(
            "node {node} could not start the job's processes, by a fault of its daemon; see the node's log, and report it"
        );
        refusal(RefusalKind::Internal, message)
    }

    /// The start of this job stands still.
    pub(super) async fn stands_still(&self, job: JobId) {
        let is_first = !self.stand_still();
        self.standing.borrow_mut().insert(job);
        tracing::error!(%job, "its start stands still: the kernel does not answer");
        if is_first {
            let (job, seconds) = (job.number(), self.step.as_secs());
            let reason =
                format!("the kernel did not answer the start of job {job} for {seconds} s");
            self.tell(NodeCondition::Unhealthy { reason }).await;
        }
    }

    /// The start of this job is over. It may have stood still.
    pub(super) async fn goes_on(&self, job: JobId) {
        if !self.standing.borrow_mut().remove(&job) {
            return;
        }
        tracing::warn!(%job, "its start has ended at last");
        if !self.stand_still() {
            let check = self.check.borrow().clone();
            self.tell(check.unwrap_or(NodeCondition::Healthy)).await;
        }
    }

    /// The health check has found something new. It is told, or waits for starts that stand still. Returns whether the main loop
    /// is there.
    pub(crate) async fn checked(&self, condition: NodeCondition) -> bool {
        *self.check.borrow_mut() = Some(condition.clone());
        self.stand_still() || self.tell(condition).await
    }

    async fn tell(&self, condition: NodeCondition) -> bool {
        let event = JobEvent::Agent(Box::new(AgentEvent::Condition(condition)));
        self.events.send(event).await.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn the_health_check_counts_when_no_start_stands_still() {
        let (events, mut inbox) = mpsc::channel(8);
        let starts = StalledStarts::new(NodeId(3), Duration::from_secs(60), events);
        let mut told = move || match inbox.try_recv() {
            Ok(JobEvent::Agent(event)) => match *event {
                AgentEvent::Condition(condition) => Some(condition),
                event => panic!("{event:?}"),
            },
            Ok(event) => panic!("{event:?}"),
            Err(_) => None,
        };
        let unhealthy = |reason: &str| NodeCondition::Unhealthy { reason: reason.to_owned() };
        assert!(starts.checked(NodeCondition::Healthy).await);
        assert_eq!(told(), Some(NodeCondition::Healthy));
        starts.stands_still(JobId(7)).await;
        let reason = "the kernel did not answer the start of job 7 for 60 s";
        assert_eq!(told(), Some(unhealthy(reason)));
        starts.stands_still(JobId(8)).await;
        assert!(starts.checked(unhealthy("disk")).await);
        starts.goes_on(JobId(7)).await;
        starts.goes_on(JobId(9)).await;
        assert_eq!((told(), starts.stand_still()), (None, true));
        starts.goes_on(JobId(8)).await;
        assert_eq!((told(), starts.stand_still()), (Some(unhealthy("disk")), false));
        assert!(starts.checked(NodeCondition::Healthy).await);
        assert_eq!(told(), Some(NodeCondition::Healthy));
    }
}
