//! Records of control versions 10 and 11, which had no terminals.

use kumi_control::message::{
    CONTROL_VERSION, JobRecord, JobRequest, JobSpec, JobState, NodeRanks, ProcessLimits, Program,
    Resources, SealKey, User, WaitLimit,
};
use kumi_sched::JobId;
use serde::Deserialize;

/// Last version that is read here.
pub(super) const VERSION: u32 = 11;

// Version 13 adds only a way how jobs end. What changes again needs a step of its own.
const _: () = assert!(CONTROL_VERSION == VERSION + 2);

#[derive(Deserialize)]
struct Request {
    token: u128,
    name: String,
    program: Program,
    args: Vec<String>,
    env: Vec<(String, String)>,
    cwd: String,
    ranks: u32,
    nodes: Option<u32>,
    encrypt: Option<bool>,
    priority: u16,
    estimate_ns: Option<u64>,
    wait: Option<WaitLimit>,
    limits: Option<ProcessLimits>,
    resources: Resources,
}

#[derive(Deserialize)]
struct Spec {
    job: JobId,
    user: User,
    request: Request,
    layout: Vec<NodeRanks>,
    channel_key: u64,
    seal_key: Option<SealKey>,
}

#[derive(Deserialize)]
struct Record {
    spec: Spec,
    state: JobState,
    submitted_ms: u64,
    started_ms: Option<u64>,
    ended_ms: Option<u64>,
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
            resources: old.resources,
            terminal: None,
        }
    }
}

/// The record in `bytes` as it is now.
///
/// # Errors
/// When these are no record.
pub(super) fn read(bytes: &[u8]) -> Result<JobRecord, postcard::Error> {
    let Record { spec, state, submitted_ms, started_ms, ended_ms } = postcard::from_bytes(bytes)?;
    let Spec { job, user, request, layout, channel_key, seal_key } = spec;
    let request = request.into();
    let spec = JobSpec { job, user, request, layout, channel_key, seal_key };
    Ok(JobRecord { spec, state, submitted_ms, started_ms, ended_ms })
}
