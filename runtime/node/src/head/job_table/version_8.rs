//! Records of control version 8, which had no limits of ranks and of waiting.

use kumi_control::message::{JobRecord, JobRequest, Program};
use serde::Deserialize;

use super::earlier;
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

impl From<Request> for JobRequest {
    fn from(old: Request) -> Self {
        let Request { token, name, program, args, env, cwd, ranks, nodes, encrypt, .. } = old;
        let (priority, estimate_ns) = (old.priority, old.estimate_ns);
        version_9::Request {
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
        }
        .into()
    }
}

/// The record in `bytes` as it is now. Its ranks get the limits that every process has, and it waits for ever.
///
/// # Errors
/// When these are no record.
pub(super) fn read(bytes: &[u8]) -> Result<JobRecord, postcard::Error> {
    earlier::read::<Request, User, NodeRanks>(bytes)
}
