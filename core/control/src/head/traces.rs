//! Which node has the trace of a job's rank, and why there may be none.

use alloc::format;

use kumi_sched::NodeId;

use super::refusal;
use crate::message::{JobRecord, NodeRanks, Refusal, RefusalKind};

/// The node of a rank, also when the job is over.
///
/// # Errors
/// A job that was not placed yet, or no such rank.
pub(super) fn node_of(record: &JobRecord, rank: u32) -> Result<NodeId, Refusal> {
    let (job, ranks) = (record.spec.job, record.spec.request.ranks);
    if record.spec.layout.is_empty() {
        let message = format!("job {job} was not started, so there is no trace of it");
        return Err(refusal(RefusalKind::NoSuchJob, message));
    }
    let has = |part: &&NodeRanks| rank >= part.first && rank - part.first < part.count;
    let part = record.spec.layout.iter().find(has);
    part.map(|part| part.node).ok_or_else(|| {
        let message = format!("job {job} has {ranks} ranks, and no rank {rank}");
        refusal(RefusalKind::BadRequest, message)
    })
}
