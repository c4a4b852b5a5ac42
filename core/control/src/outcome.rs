//! How ranks and jobs end.

use kumi_sched::NodeId;
use serde::{Deserialize, Serialize};

use crate::message::{Nanos, Refusal};

/// How one rank ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RankStatus {
    /// By itself, with this code.
    Exited(u8),
    /// By this signal.
    Signalled(u8),
    /// The kernel killed it because its job had used up this many bytes of memory on its node.
    OutOfMemory(u64),
    /// It ended with code 0 after it had begun to use MPI and without finishing that: others may wait for it.
    NotFinalized,
}

impl RankStatus {
    /// Whether the rank ended as a successful program does.
    pub fn success(self) -> bool {
        self == Self::Exited(0)
    }
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// Every rank exited with 0.
    Success,
    /// The first rank that failed, on which node, and how.
    RankFailed {
        /// The rank.
        rank: u32,
        /// Its node.
        node: NodeId,
        /// How it ended.
        status: RankStatus,
    },
    /// It could not be started.
    Refused(Refusal),
    /// A node was lost while the job ran.
    NodeLost(NodeId),
    /// `kumi kill`, or the cluster going down.
    Killed,
    /// Its ranks waited for each other for ever, and it was to be ended then.
    Deadlocked,
    /// It had run for as long as it might, in nanoseconds.
    TimeLimit(Nanos),
    /// The head was away for longer than a lease, and this node ended the job.
    HeadAway(NodeId),
}

/// Ranks of a job were asked to end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndRequest {
    /// How the job ends.
    pub outcome: Outcome,
    /// What is left of it is killed then, in milliseconds since the epoch.
    pub at_ms: u64,
    /// How long that was when it was asked for: nobody has to wait for longer, whatever the wall clock says later.
    pub grace_ms: u64,
}

/// Why a node gave a job up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum AbandonCause {
    /// Its lease was over: the head had not been heard of for so long.
    LeaseOver,
    /// The job was gone there, with ranks that had not ended.
    Vanished,
}

impl AbandonCause {
    /// How the job ends when this node gives it up.
    pub(crate) fn outcome(self, node: NodeId) -> Outcome {
        match self {
            Self::LeaseOver => Outcome::HeadAway(node),
            Self::Vanished => Outcome::NodeLost(node),
        }
    }
}
