//! Status of the cluster as the head describes it to a client.

use alloc::string::String;
use alloc::vec::Vec;
use core::net::SocketAddr;
use core::ops::Range;

use kumi_sched::{DqtNode, JobId, Mode, NodeId, SliceLength, Timetable};
use serde::{Deserialize, Serialize};

use crate::message::{DeviceCount, Drain, NodeDescription};

/// The cluster as the head sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterStatus {
    /// Its name.
    pub name: String,
    /// All configured nodes, ascending.
    pub nodes: Vec<NodeStatus>,
    /// How processors are shared.
    pub mode: Mode,
    /// How long slices are to be; the timetable has the length of those now.
    pub slice: SliceLength,
    /// The timetable in force.
    pub timetable: Timetable,
    /// Milliseconds since the epoch at which the head started.
    pub since_ms: u64,
    /// Control messages the head sent and received since its start.
    pub control_messages: u64,
    /// Name of the scheduling policy.
    pub policy: String,
    /// Its tree of queues as it is now, breadth first, if it has one and jobs take turns.
    pub tree: Option<Vec<DqtNode>>,
}

/// One configured node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// Its number.
    pub node: NodeId,
    /// Whether it is attached.
    pub up: bool,
    /// Its description of itself, from its last attachment.
    pub description: Option<NodeDescription>,
    /// Jobs placed on it.
    pub jobs: Vec<JobId>,
    /// Numbers of its processors, as the tree of queues has them.
    pub numbers: Range<u32>,
    /// What placed jobs have of it.
    pub taken: NodeUse,
    /// Its name in the configuration.
    pub name: String,
    /// Why it gets no new jobs, if so.
    pub drain: Option<Drain>,
}

/// One of several heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeadStatus {
    /// Where it listens when it leads.
    pub address: SocketAddr,
    /// Whether it leads.
    pub leads: bool,
    /// Whether it has all output that is acknowledged, so that nothing is missing if it leads next.
    pub in_sync: bool,
}

/// What a head cannot write now, if there is something.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeadTroubles {
    /// Why output of jobs is not kept, or would not be.
    pub output: Option<String>,
    /// Why no new job is taken.
    pub jobs: Option<String>,
}

/// What placed jobs have of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeUse {
    /// Processors that a job has at least. Jobs may share them in time.
    pub processors: u32,
    /// Bytes of memory that are reserved.
    pub memory: u64,
    /// Devices, by name.
    pub devices: Vec<DeviceCount>,
}
