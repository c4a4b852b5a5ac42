//! Start of MPI programs: a server for each job on the node, which tells its ranks who they are.
//!
//! The server is a process of its own, with the rights of the job's user and in the job's control group. It speaks the
//! protocols of MPI libraries. The daemon hears from it only what is in [`kumi_pmi::message`], and believes of that no more
//! than of what ranks write.

mod door;
pub mod environment;
pub mod folder;
mod kept;
mod launch;
mod link;
pub mod setting;

use std::path::{Path, PathBuf};

use kumi_sched::{JobId, NodeId};

use crate::config::ClusterConfig;

/// What servers of MPI programs need to know of a node and its cluster.
#[derive(Debug)]
pub struct MpiHost {
    /// The cluster's directory.
    cluster: PathBuf,
    /// Names of all nodes, by number.
    node_names: Vec<String>,
}

impl MpiHost {
    /// For a daemon that starts: what the one before it may have left is removed, but for jobs that go on.
    pub fn new(cluster: &Path, node: NodeId, config: &ClusterConfig, go_on: &[JobId]) -> Self {
        folder::remove_left_later(cluster, node, go_on);
        let node_names = config.nodes.iter().map(|node| node.name.clone()).collect();
        Self { cluster: cluster.to_owned(), node_names }
    }
}

pub(super) use folder::MpiFolder;
pub(super) use kept::{MpiState, Standing};
pub(super) use launch::{MpiLaunch, MpiParts, ServerProcess, ServerStart};
pub(super) use link::{MpiLink, ServerMessage};
