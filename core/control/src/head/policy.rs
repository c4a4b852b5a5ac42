//! The scheduling policy: found by name, told of what there is, changed while jobs run.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use kumi_sched::registry::{self, Limits, UnknownPolicy};
use kumi_sched::{ArriveError, ClusterTime, DqtNode, Mode, NodeId, Policy};

use super::jobs::{Job, refusal};
use super::{Head, HeadConfig};
use crate::message::{
    JobRequest, LONGEST_ESTIMATE, MOST_PRIORITY, Nanos, Refusal, RefusalKind, User,
};

/// Most bytes of a policy's name that a client may ask for: it is shown to everybody.
const LONGEST_NAME: usize = 64;

/// Why a cluster does not schedule by the policy of a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// There is none of this name.
    #[error(transparent)]
    Unknown(#[from] UnknownPolicy),
    /// It would move placed jobs to other nodes.
    #[error(
        "policy {0} moves running jobs, and moving a running job needs checkpoints, which this \
         version does not have; choose one without +migrate"
    )]
    Migrates(String),
}

/// Whether clusters schedule by the policy called `name`.
///
/// # Errors
/// No policy is called that, or it is none for a cluster.
pub fn check_policy(name: &str) -> Result<(), PolicyError> {
    by_name(name, Limits::default()).map(drop)
}

pub(super) fn by_name(name: &str, limits: Limits) -> Result<Box<dyn Policy + Send>, PolicyError> {
    let policy = registry::by_name(name, limits)?;
    if policy.migrates() {
        return Err(PolicyError::Migrates(name.to_string()));
    }
    Ok(policy)
}

/// What policies of this cluster are told.
pub(super) fn limits(config: &HeadConfig) -> Limits {
    let nodes = u32::try_from(config.nodes.len()).unwrap_or(u32::MAX);
    Limits::of_cluster(nodes, config.max_jobs_per_node)
}

/// For a job that the policy does not take.
pub(super) fn arrive_refusal(error: &ArriveError) -> Refusal {
    let kind = match error {
        ArriveError::NoEstimate(_) => RefusalKind::BadRequest,
        _ => RefusalKind::Internal,
    };
    refusal(kind, format!("the scheduler refused: {error}"))
}

/// Tells a policy of a job that has nodes, of which the first so many are configured.
fn take_back(
    policy: &mut dyn Policy,
    job: &Job,
    configured: usize,
    (now, wall_ms): (Nanos, u64),
) -> Result<(), ArriveError> {
    let nodes = job.parts.keys().copied();
    let nodes: Vec<NodeId> = nodes.filter(|node| (node.0 as usize) < configured).collect();
    policy.restore(&job.asked_on(wall_ms), &nodes, ClusterTime(now))?;
    policy.set_active(job.id(), job.takes_turns());
    Ok(())
}

impl Head {
    /// Whether a job may be as important as it wants to be, and says what the policy must know.
    pub(super) fn check_demands(&self, user: &User, request: &JobRequest) -> Result<(), Refusal> {
        let (priority, most) = (request.priority, self.config.max_priority);
        if !(1..=MOST_PRIORITY).contains(&priority) {
            let message = format!(
                "{priority} is no priority; they are 1, the ordinary one, to {MOST_PRIORITY}"
            );
            return Err(refusal(RefusalKind::BadRequest, message));
        }
        if priority > most.max(1) && !self.owns_cluster(user) {
            let message = format!(
                "priority {priority} is above {}, the highest that users of this cluster may ask \
                 for; ask for less, or ask its owner",
                most.max(1)
            );
            return Err(refusal(RefusalKind::NotPermitted, message));
        }
        match request.estimate_ns {
            Some(estimate) if !(1..=LONGEST_ESTIMATE).contains(&estimate) => {
                let message = "an estimate is more than nothing and at most 365 days; give another";
                Err(refusal(RefusalKind::BadRequest, message.into()))
            }
            None if self.policy.plans() => {
                let message = format!(
                    "policy {} must know how long jobs run; say it with --estimate, for example \
                     --estimate 10m",
                    self.config.policy
                );
                Err(refusal(RefusalKind::BadRequest, message))
            }
            _ => Ok(()),
        }
    }

    /// At the first event: the policy takes back the jobs of an earlier head.
    pub(super) fn adopt(&mut self) {
        let (configured, time) = (self.nodes.len(), (self.now, self.wall_ms));
        for job in self.jobs.values_mut().filter(|job| job.is_placed()) {
            // It is not taken if none of its nodes is configured any more; then it is about to end.
            job.scheduled = take_back(&mut *self.policy, job, configured, time).is_ok();
        }
    }

    /// Another policy takes over: placed jobs stay where they are, those that wait queue again in
    /// the order in which they were submitted, all at this instant. Slices keep their rhythm.
    ///
    /// # Errors
    /// There is no such policy, it is none for a cluster, or it cannot take a job that there is;
    /// then all is as it was.
    pub(super) fn change_policy(&mut self, name: &str) -> Result<(), Refusal> {
        if name == self.config.policy {
            return Ok(());
        }
        let bad = |message: String| refusal(RefusalKind::BadRequest, message);
        if name.len() > LONGEST_NAME {
            return Err(bad(format!("no scheduling policy has a name of {} letters", name.len())));
        }
        let limits = limits(&self.config);
        let mut policy = by_name(name, limits).map_err(|error| bad(error.to_string()))?;
        self.routes.nodes().for_each(|node| policy.add_node(node));
        let configured = self.nodes.len();
        for job in self.jobs.values().filter(|job| !job.is_over()) {
            let unknown = job.record.spec.request.estimate_ns.is_none();
            let taken = match (job.is_placed(), job.scheduled) {
                (true, true) => take_back(&mut *policy, job, configured, (self.now, self.wall_ms)),
                (false, true) => policy.arrive(&job.asked(), job.came((self.now, self.wall_ms))),
                // It is not known yet how many nodes it wants.
                (false, false) if unknown && policy.plans() => {
                    Err(ArriveError::NoEstimate(job.id()))
                }
                (_, false) => Ok(()),
            };
            taken.map_err(|error| {
                bad(format!("policy {name} cannot take over: {error}; end the job first"))
            })?;
        }
        self.pass_slots();
        self.policy = policy;
        self.config.policy = name.to_string();
        Ok(())
    }

    /// The policy's tree of queues, if it has one and jobs take turns.
    pub(super) fn tree(&self) -> Option<Vec<DqtNode>> {
        if self.config.mode == Mode::OperatingSystem {
            return None;
        }
        let tick = self.timetable.tick_at(ClusterTime(self.now));
        self.policy.tree(tick.saturating_sub(self.passed))
    }
}
