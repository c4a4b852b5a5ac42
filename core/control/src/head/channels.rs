//! Which nodes have the channels of a job's ranks, and why there may be none.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::refusal;
use crate::message::{JobRecord, JobState, NodeRanks, Refusal, RefusalKind};

/// Most channels in one answer: it has to fit a frame whatever the ranks wrote.
const MOST_CHANNELS: u32 = 1_024;

/// The parts of a job whose ranks' channels answer a request: for one rank, or for all.
///
/// # Errors
/// No ranks that run, no such rank, no rank on another node, or too many of them.
pub(super) fn parts(record: &JobRecord, rank: Option<u32>) -> Result<Vec<&NodeRanks>, Refusal> {
    let (job, ranks, layout) = (record.spec.job, record.spec.request.ranks, &record.spec.layout);
    if !matches!(record.state, JobState::Running) {
        let message = format!("job {job} has no running ranks; `kumi ps` lists the jobs");
        return Err(refusal(RefusalKind::NoSuchJob, message));
    }
    if let Some(rank) = rank.filter(|&rank| rank >= ranks) {
        let range = range(ranks);
        return Err(bad(format!("job {job} has no rank {rank}; {range}")));
    }
    if let [only] = &layout[..] {
        let node = only.node;
        return Err(bad(format!(
            "all ranks of job {job} run on node {node}: they reach each other through memory, and there is no channel to show"
        )));
    }
    if rank.is_none() && ranks > MOST_CHANNELS {
        return Err(bad(format!(
            "job {job} has {ranks} ranks, too many for one answer; name one of them"
        )));
    }
    let has = |part: &NodeRanks, rank: u32| rank >= part.first && rank - part.first < part.count;
    Ok(layout.iter().filter(|part| rank.is_none_or(|rank| has(part, rank))).collect())
}

fn range(ranks: u32) -> String {
    match ranks {
        1 => "its only rank is 0".into(),
        more => format!("its ranks are 0 to {}", more - 1),
    }
}

fn bad(message: String) -> Refusal {
    refusal(RefusalKind::BadRequest, message)
}
