//! Scheduling policies that clusters can use, by name.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};

use kumi_sched::registry::{self, Limits, UnknownPolicy};
use kumi_sched::{ArriveError, Policy};

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
    by_name(name, Limits::default()).map(drop)
}

pub(super) fn by_name(name: &str, limits: Limits) -> Result<Box<dyn Policy + Send>, PolicyError> {
    let policy = registry::by_name(name, limits)?;
    if policy.migrates() {
        return Err(PolicyError::Migrates(name.to_string()));
    }
    Ok(policy)
}

/// Refusal of a job that the policy does not take.
pub(super) fn arrive_refusal(error: &ArriveError) -> Refusal {
    let kind = match error {
        ArriveError::NoEstimate(_) => RefusalKind::BadRequest,
        _ => RefusalKind::Internal,
    };
    refusal(kind, format!("the scheduler refused: {error}"))
}
