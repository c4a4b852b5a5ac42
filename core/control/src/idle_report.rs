//! Report that a job is idle on nodes, or is not any more.

use kumi_sched::JobId;
use serde::{Deserialize, Serialize};

use crate::message::NodeSet;

/// Nodes on which a job has nothing to do any more, or has again. Of a node that has said neither since it attached,
/// it is not known, and the job counts as having something to do there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdleReport {
    /// The job.
    pub job: JobId,
    /// The nodes.
    pub nodes: NodeSet,
    /// `true`: its ranks there have only waited for a while, and nothing is unread or on its way that they know of. This is
    /// passed on when it holds for all nodes of the job that are reached through the sender: the head cannot do anything
    /// sooner. `false`: it holds no longer for these nodes, of which it was said; passed on at once.
    pub idle: bool,
}
