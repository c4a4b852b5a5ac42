//! Scheduling policies that clusters can use, by name.

use alloc::format;
use alloc::string::{String, ToString};

use kumi_sched::ArriveError;
use kumi_sched::registry::{self, Limits, PolicyMaker, UnknownPolicy};

use super::refusal;
use crate::message::{Refusal, RefusalKind};

/// Why a cluster cannot use the policy of a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// There is none of this name.
    #[error(transparent)]
    Unknown(#[from] UnknownPolicy),
    /// It would move placed jobs to other nodes.
    #[error(
        "policy {0} moves running jobs, which needs checkpoints, and this version has none; \
         choose a policy without +migrate"
    )]
    Migrates(String),
}

/// Checks whether clusters can use the policy called `name`.
///
/// # Errors
/// No policy has this name, or clusters cannot use it.
pub fn check_policy(name: &str) -> Result<(), PolicyError> {
    find(name).map(drop)
}

/// What makes the policy called `name`.
///
/// # Errors
/// As of [`check_policy`].
pub(super) fn find(name: &str) -> Result<PolicyMaker, PolicyError> {
    let maker = registry::find(name)?;
    if maker.make(Limits::default()).migrates() {
        return Err(PolicyError::Migrates(name.to_string()));
    }
    Ok(maker)
}

/// Refusal of a job that the policy does not take.
pub(super) fn arrive_refusal(error: &ArriveError) -> Refusal {
    let kind = match error {
        ArriveError::NoEstimate(_) => RefusalKind::BadRequest,
        _ => RefusalKind::Internal,
    };
    refusal(kind, format!("the scheduler refused: {error}"))
}
