//! Report on whether the ranks of a job wait for each other on nodes.

use kumi_sched::JobId;
use kumi_verdict::Standing;
use serde::{Deserialize, Serialize};

use crate::message::NodeSet;

/// What nodes say of a job, by [`kumi_verdict`]. What holds for all of a subtree's nodes of the job is told together, a change
/// at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StandingReport {
    /// The job.
    pub job: JobId,
    /// The nodes.
    pub nodes: NodeSet,
    /// What they say.
    pub standing: Standing,
}
