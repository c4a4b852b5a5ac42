//! Records of control version 9, which had no resources of ranks and no names of users.

use kumi_control::message::{
    self, BatchOptions, JobRecord, JobRequest, ProcessLimits, Program, Resources, WaitLimit,
};
use kumi_sched::NodeId;
use serde::Deserialize;

use super::earlier;

/// Version that is read here.
pub(super) const VERSION: u32 = 9;

#[derive(Deserialize)]
pub(super) struct User {
    uid: u32,
    gid: u32,
}

#[derive(Deserialize)]
pub(super) struct NodeRanks {
    node: NodeId,
    first: u32,
    count: u32,
}

#[derive(Deserialize)]
pub(super) struct Request {
    pub(super) token: u128,
    pub(super) name: String,
    pub(super) program: Program,
    pub(super) args: Vec<String>,
    pub(super) env: Vec<(String, String)>,
    pub(super) cwd: String,
    pub(super) ranks: u32,
    pub(super) nodes: Option<u32>,
    pub(super) encrypt: Option<bool>,
    pub(super) priority: u16,
    pub(super) estimate_ns: Option<u64>,
    pub(super) wait: Option<WaitLimit>,
    pub(super) limits: Option<ProcessLimits>,
}

impl From<Request> for JobRequest {
    fn from(old: Request) -> Self {
        Self {
            token: old.token,
            name: old.name,
            program: old.program,
            args: old.args,
            env: old.env,
            cwd: old.cwd,
            ranks: old.ranks,
            nodes: old.nodes,
            encrypt: old.encrypt,
            priority: old.priority,
            estimate_ns: old.estimate_ns,
            wait: old.wait,
            limits: old.limits,
            // A rank had one processor, and a job its nodes to itself in its turns.
            resources: Resources { exclusive: true, ..Resources::default() },
            terminal: None,
            batch: BatchOptions::default(),
        }
    }
}

impl From<User> for message::User {
    fn from(User { uid, gid }: User) -> Self {
        Self { uid, gid, name: name_of(uid) }
    }
}

impl From<NodeRanks> for message::NodeRanks {
    fn from(NodeRanks { node, first, count }: NodeRanks) -> Self {
        Self { node, first, count, processors: Vec::new() }
    }
}

/// The name of a user on this machine, which may ask the network. It is done once, before the head serves anybody.
fn name_of(uid: u32) -> String {
    let found = nix::unistd::User::from_uid(uid.into());
    let found = found.unwrap_or_else(|error| {
        tracing::warn!(uid, %error, "a job of an earlier version has no name of its user");
        None
    });
    found.map(|user| user.name).unwrap_or_default()
}

/// The record in `bytes` as it is now.
///
/// # Errors
/// When these are no record.
pub(super) fn read(bytes: &[u8]) -> Result<JobRecord, postcard::Error> {
    earlier::read::<Request, User, NodeRanks>(bytes)
}
