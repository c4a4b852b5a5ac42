//! Exchanges among the nodes of a job: each contributes bytes, and each gets those of all.
//!
//! Contributions go up the tree, combined at each daemon, and the whole comes down. By them the servers of a job's nodes
//! start MPI programs. Head and agents do not look at the bytes.

use alloc::vec::Vec;
use kumi_sched::{JobId, NodeId};
use serde::{Deserialize, Serialize};

use crate::message::NodeSet;

/// Most bytes that all nodes of an exchange contribute together.
pub const MOST_EXCHANGE: usize = 8 << 20;
/// Longest message from one node of a job to another, in bytes.
pub const MOST_RELAY: usize = 1 << 20;
/// Most groups of nodes of a job that have exchanges of their own.
pub const MOST_GROUPS: usize = 64;

/// Which exchange. A node contributes to one of a group only after it has got the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ExchangeId {
    /// The job.
    pub job: JobId,
    /// The group of its ranks.
    pub group: u64,
    /// The first of a group is 0.
    pub number: u32,
}

/// What a node contributes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contribution {
    /// The node.
    pub node: NodeId,
    /// Its data.
    #[serde(with = "crate::bytes")]
    pub data: Vec<u8>,
}

/// Contributions on their way to the head.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExchangeReport {
    /// Which exchange.
    pub id: ExchangeId,
    /// All nodes that take part.
    pub members: NodeSet,
    /// Contributions of some of them.
    pub parts: Vec<Contribution>,
    /// Said again after a link was lost: others do not wait for it, and it waits for no others.
    pub repeated: bool,
}

/// A message from one node of a job to another. It may get lost; who wants an answer asks again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelayReport {
    /// The job.
    pub job: JobId,
    /// Who sends it.
    pub from: NodeId,
    /// Who gets it.
    pub to: NodeId,
    /// The message.
    #[serde(with = "crate::bytes")]
    pub data: Vec<u8>,
}

/// Bytes of contributions.
pub(crate) fn bytes_of(parts: &[Contribution]) -> usize {
    parts.iter().map(|part| part.data.len() + 64).sum()
}
