//! What is durable of a job.

use serde::{Deserialize, Serialize};

use crate::message::{EndRequest, JobSpec, JobState, JobUse};

/// A job as the durable table keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRecord {
    /// Number, user, request, layout (empty while queued) and key.
    pub spec: JobSpec,
    /// State.
    pub state: JobState,
    /// Milliseconds since the epoch: when submitted, started and ended.
    pub submitted_ms: u64,
    /// When its ranks were started.
    pub started_ms: Option<u64>,
    /// When it was over.
    pub ended_ms: Option<u64>,
    /// Bytes of its output that are not kept.
    pub output_not_kept: u64,
    /// How often it was started again.
    pub restarts: u32,
    /// Its ranks were asked to end, and have until then.
    pub end_request: Option<EndRequest>,
    /// What it holds, and once it is over what it has used.
    pub used: JobUse,
}
