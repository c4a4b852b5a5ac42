//! Records of control version 8, which had no limits of ranks and of waiting.

use kumi_control::message::{JobRecord, JobState, Program, SealKey};
use kumi_sched::JobId;
use serde::Deserialize;

use super::version_9::{self, NodeRanks, User};

/// Version that is read here.
pub(super) const VERSION: u32 = 8;

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

/// The record in `bytes` as it is now. Its ranks get the limits that every process has, and it waits for ever.
///
/// # Errors
/// When these are no record.
pub(super) fn read(bytes: &[u8]) -> Result<JobRecord, postcard::Error> {
    let Record { spec, state, submitted_ms, started_ms, ended_ms } = postcard::from_bytes(bytes)?;
    let Spec { job, user, request, layout, channel_key, seal_key } = spec;
    let Request { token, name, program, args, env, cwd, ranks, nodes, encrypt, priority, .. } =
        request;
    let estimate_ns = request.estimate_ns;
    let request = version_9::Request {
        token,
        name,
        program,
        args,
        env,
        cwd,
        ranks,
        nodes,
        encrypt,
        priority,
        estimate_ns,
        wait: None,
        limits: None,
    };
    let spec = version_9::Spec { job, user, request, layout, channel_key, seal_key };
    Ok(version_9::Record { spec, state, submitted_ms, started_ms, ended_ms }.into())
}
