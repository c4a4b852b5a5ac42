//! Report that a job is idle on nodes, or is not any more.

use kumi_sched::JobId;
use serde::{Deserialize, Serialize};

use crate::message::NodeSet;

/// Nodes on which a job has become idle, or busy again. On a node that has reported neither since it
/// attached, the job counts as busy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdleReport {
    /// The job.
    pub job: JobId,
    /// The nodes.
    pub nodes: NodeSet,
    /// `true`: its ranks there have only waited for a while, and they know of no message that is unread or
    /// on its way. An agent passes this on when it holds for all of the job's nodes below it: the head
    /// cannot do anything sooner. `false`: the job is busy again on these nodes; passed on at once.
    pub idle: bool,
}
