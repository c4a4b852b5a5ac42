//! Frames of the links of the control tree.
//!
//! Their version is that of [`crate::message`].

use alloc::vec::Vec;

use kumi_sched::ClusterTime;
use serde::{Deserialize, Serialize};

use crate::message::{Command, Nanos, NodeFacts, NodeSet, Report};

/// Frames from a parent to a child on the control tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Down {
    /// A command for some nodes of the child's subtree.
    Command(NodeSet, Command),
    /// Answer to `Up::ClockProbe`: the probe's own stamp and the cluster time at the parent.
    Clock {
        /// Stamp of the probe.
        stamp: Nanos,
        /// The parent's cluster time.
        time: ClusterTime,
    },
    /// Facts of nodes, see [`crate::disclosure`].
    Disclosed(Vec<NodeFacts>),
}

/// Frames from a child to its parent on the control tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Up {
    /// A report of the child's subtree.
    Report(Report),
    /// Asks for the parent's cluster time; `stamp` is the child's clock and comes back. Doubles as
    /// the heartbeat of the link.
    ClockProbe {
        /// The child's clock.
        stamp: Nanos,
    },
    /// Facts of nodes, see [`crate::disclosure`].
    Disclosed(Vec<NodeFacts>),
}
