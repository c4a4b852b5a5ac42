//! The state machine of the head, made from its configuration.

use std::time::Duration;

use kumi_control::head::{Head, HeadConfig};
use kumi_control::message::{Drain, Revocation};

use super::live_config;
use super::state::KnownState;
use crate::config::ClusterConfig;
use crate::exit::{ExitCode, Failure};
use crate::random::random;

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The head that this configuration describes, with what earlier heads knew.
///
/// # Errors
/// It names no policy that clusters can use, or the system has no random numbers.
pub(super) fn make_head(
    config: &ClusterConfig,
    revoked: Vec<Revocation>,
    drains: Vec<Drain>,
    known: KnownState,
) -> Result<Head, Failure> {
    let KnownState { records, spent, .. } = known;
    let revoked = live_config::with_removed(config, revoked);
    let mut config = HeadConfig { revoked, drains, ..head_config(config) };
    if let Some(shares) = &mut config.shares {
        shares.spent = spent;
    }
    let head = Head::new(config, records, random()?);
    head.map_err(|error| Failure::new(ExitCode::BadConfig, error.to_string()))
}

fn head_config(config: &ClusterConfig) -> HeadConfig {
    HeadConfig {
        cluster_name: config.name.clone(),
        nodes: config.nodes.iter().map(|node| node.name.clone()).collect(),
        mode: config.mode(),
        slice: config.slice(),
        policy: config.scheduling_policy(),
        max_jobs_per_processor: config.max_jobs_per_processor,
        max_jobs_per_user: config.quota.jobs_per_user,
        max_priority: config.max_priority,
        priority: config.job.priority.unwrap_or(1),
        estimate_ns: config.job.estimate_ns(),
        time_limit_ns: config.job.time_limit_ns(),
        wait: config.job.wait_limit(),
        owner_uid: config.owner_uid,
        root_jobs: config.root_jobs,
        show_others: config.privacy.show_others.into(),
        lease_ns: nanos(config.lease()),
        detach_grace_ns: nanos(config.grace()),
        encrypt: config.encrypt,
        env: config.job.to_env(),
        resources: config.job.resources(),
        retention: config.retention.of_jobs(),
        revoked: Vec::new(),
        drains: Vec::new(),
        removed: config.removed(),
        shares: config.shares.of_head(),
    }
}
