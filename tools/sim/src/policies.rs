//! Scheduling policies by name, with their properties that the simulator needs.

use kumi_sched::registry::{self, Limits};
use kumi_sched::{DqtConfig, Policy};

use crate::engine::Outcome;
use crate::error::SimError;
use crate::job::Workload;

/// A new policy without nodes or jobs, and without a limit of jobs for each processor.
///
/// # Errors
/// The name is unknown; the error names similar ones.
pub fn by_name(name: &str) -> Result<Box<dyn Policy + Send>, SimError> {
    Ok(registry::by_name(name, Limits::default())?)
}

/// Every name with a line of help.
pub fn names() -> impl Iterator<Item = (&'static str, &'static str)> {
    registry::names()
}

/// The base of partition sizes, if the policy gives whole partitions. `None` if it gives any number of
/// processors, or gives the rest of a partition to other jobs, as DHC with selective disabling does.
pub fn partitions(policy: &str) -> Option<u32> {
    if let Ok(config) = policy.parse::<DqtConfig>() {
        return Some(config.arity);
    }
    ["fcfs-bb", "scan", "scan-up", "scan-down", "dhc:no-disabling"].contains(&policy).then_some(2)
}

/// The least power of `arity` (at least 2) that is not less than `size`.
pub fn partition_of(arity: u32, size: u32) -> u32 {
    let arity = arity.max(2);
    let mut partition = 1u32;
    while partition < size {
        partition = partition.saturating_mul(arity);
    }
    partition
}

/// Share of the allocated processor time on processors that jobs did not ask for.
pub(crate) fn fragmentation(policy: &str, workload: &Workload, outcome: &Outcome) -> Option<f64> {
    partitions(policy)?;
    let (mut wanted, mut given) = (0u128, 0u128);
    for (index, job) in workload.jobs.iter().enumerate() {
        if let (Some(_), Some(had)) = (outcome.end(index), outcome.given(index)) {
            let service = u128::from(job.service);
            wanted += service * u128::from(job.size);
            given += service * u128::from(had);
        }
    }
    #[allow(clippy::cast_precision_loss)]
    Some(if given == 0 { 0.0 } else { 1.0 - wanted as f64 / given as f64 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_powers() {
        assert_eq!([1, 2, 3, 64, 65].map(|size| partition_of(2, size)), [1, 2, 4, 64, 128]);
        assert_eq!([1, 2, 4, 5, 64].map(|size| partition_of(4, size)), [1, 4, 4, 16, 64]);
        assert_eq!(partitions("dqt4:apa"), Some(4));
        assert_eq!(partitions("fair-dqt+migrate"), Some(2));
        assert_eq!(partitions("dhc:no-disabling"), Some(2));
        assert_eq!(partitions("dhc"), None);
        assert_eq!(partitions("easy"), None);
    }

    #[test]
    fn unknown_names_are_answered_with_near_ones() {
        let Err(error) = by_name("matirx") else { panic!("there is no such policy") };
        assert!(error.to_string().contains("matrix"), "{error}");
    }
}
