//! Records of earlier versions: what is as it was, around the parts that are not.

use kumi_control::message::{JobRecord, JobRequest, JobSpec, JobState, NodeRanks, SealKey, User};
use kumi_sched::JobId;
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// A job with the request `R`, user `U` and parts of nodes `P` of its version.
#[derive(Deserialize)]
struct EarlierSpec<R, U, P> {
    job: JobId,
    user: U,
    request: R,
    layout: Vec<P>,
    channel_key: u64,
    seal_key: Option<SealKey>,
}

#[derive(Deserialize)]
struct EarlierRecord<R, U, P> {
    spec: EarlierSpec<R, U, P>,
    state: JobState,
    submitted_ms: u64,
    started_ms: Option<u64>,
    ended_ms: Option<u64>,
}

/// The record in `bytes` as it is now.
///
/// # Errors
/// When these are no record of the version whose parts these are.
pub(super) fn read<R, U, P>(bytes: &[u8]) -> Result<JobRecord, postcard::Error>
where
    R: DeserializeOwned + Into<JobRequest>,
    U: DeserializeOwned + Into<User>,
    P: DeserializeOwned + Into<NodeRanks>,
{
    let EarlierRecord { spec, state, submitted_ms, started_ms, ended_ms } =
        postcard::from_bytes::<EarlierRecord<R, U, P>>(bytes)?;
    let EarlierSpec { job, user, request, layout, channel_key, seal_key } = spec;
    let (user, request) = (user.into(), request.into());
    let layout = layout.into_iter().map(Into::into).collect();
    let spec = JobSpec { job, user, request, layout, channel_key, seal_key };
    Ok(JobRecord { spec, state, submitted_ms, started_ms, ended_ms, output_not_kept: 0 })
}
