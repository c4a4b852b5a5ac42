//! Records of control version 9, which had no resources of ranks and no names of users.

use kumi_control::message::{
    self, JobRecord, JobRequest, JobSpec, JobState, ProcessLimits, Program, Resources, SealKey,
    WaitLimit,
};
use kumi_sched::{JobId, NodeId};
use serde::Deserialize;

/// Version that is read here.
pub(super) const VERSION: u32 = 9;

#[derive(Deserialize)]
pub(super) struct User {
    pub(super) uid: u32,
    pub(super) gid: u32,
}

#[derive(Deserialize)]
pub(super) struct NodeRanks {
    pub(super) node: NodeId,
    pub(super) first: u32,
    pub(super) count: u32,
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

#[derive(Deserialize)]
pub(super) struct Spec {
    pub(super) job: JobId,
    pub(super) user: User,
    pub(super) request: Request,
    pub(super) layout: Vec<NodeRanks>,
    pub(super) channel_key: u64,
    pub(super) seal_key: Option<SealKey>,
}

#[derive(Deserialize)]
pub(super) struct Record {
    pub(super) spec: Spec,
    pub(super) state: JobState,
    pub(super) submitted_ms: u64,
    pub(super) started_ms: Option<u64>,
    pub(super) ended_ms: Option<u64>,
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
        }
    }
}

impl From<Record> for JobRecord {
    fn from(old: Record) -> Self {
        let Spec { job, user, request, layout, channel_key, seal_key } = old.spec;
        let part = |NodeRanks { node, first, count }| message::NodeRanks {
            node,
            first,
            count,
            processors: Vec::new(),
        };
        let spec = JobSpec {
            job,
            user: message::User { uid: user.uid, gid: user.gid, name: name_of(user.uid) },
            request: request.into(),
            layout: layout.into_iter().map(part).collect(),
            channel_key,
            seal_key,
        };
        let Record { state, submitted_ms, started_ms, ended_ms, .. } = old;
        Self { spec, state, submitted_ms, started_ms, ended_ms }
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
    postcard::from_bytes::<Record>(bytes).map(Into::into)
}
