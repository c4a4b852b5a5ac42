//! Records of control versions 12 and 13, whose jobs had no limits of time and waited for no others.

use kumi_control::message::{
    BatchOptions, CONTROL_VERSION, JobRecord, JobRequest, NodeRanks, ProcessLimits, Program,
    Resources, User, WaitLimit, WindowSize,
};
use serde::Deserialize;

use super::earlier;

/// Last version that is read here.
pub(super) const VERSION: u32 = 13;

// What changes again needs a step of its own.
const _: () = assert!(CONTROL_VERSION == VERSION + 1);

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
    terminal: Option<WindowSize>,
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
            terminal: old.terminal,
            batch: BatchOptions::default(),
        }
    }
}

/// The record in `bytes` as it is now.
///
/// # Errors
/// When these are no record.
pub(super) fn read(bytes: &[u8]) -> Result<JobRecord, postcard::Error> {
    earlier::read::<Request, User, NodeRanks>(bytes)
}
