//! Whether a node is in order, as its daemon finds out by programs of the administrator.

use alloc::string::String;

use kumi_sched::NodeId;
use serde::{Deserialize, Serialize};

/// What a daemon has found out of its node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeCondition {
    /// The health check has passed.
    Healthy,
    /// The health check has failed as often as it may.
    Unhealthy {
        /// How, for people.
        reason: String,
    },
    /// A program that runs before or after jobs has failed.
    HookFailed {
        /// Which, and how, for people.
        reason: String,
    },
}

/// A daemon tells of its node. It says a failed hook once, and repeats what the health check found to each new parent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConditionReport {
    /// The node.
    pub node: NodeId,
    /// What it has found out.
    pub condition: NodeCondition,
}
