//! Policies by name, and what the simulator must know of a policy besides.

use kumi_sched::Policy;
use kumi_sched::registry::{self, Limits};

use crate::engine::Outcome;
use crate::error::SimError;
use crate::job::Workload;

/// A new policy without nodes or jobs, and without a limit of jobs for each processor.
///
/// # Errors
/// No policy is called that; the error names the nearest.
pub fn by_name(name: &str) -> Result<Box<dyn Policy + Send>, SimError> {
    Ok(registry::by_name(name, Limits::default())?)
}

/// Every name with a line of help.
pub fn names() -> impl Iterator<Item = (&'static str, &'static str)> {
    registry::names()
}

/// Share of the processor time given that went to processors which jobs did not ask for.
pub(crate) fn fragmentation(policy: &str, workload: &Workload, outcome: &Outcome) -> Option<f64> {
    let family = policy.split([':', '+']).next().unwrap_or_default();
    let buddies = ["dqt", "fair-dqt", "fcfs-bb", "scan", "scan-up", "scan-down", "dhc"];
    buddies.contains(&family).then_some(())?;
    let (mut wanted, mut given) = (0u128, 0u128);
    for (index, job) in workload.jobs.iter().enumerate() {
        if outcome.end(index).is_some() {
            let service = u128::from(job.service);
            wanted += service * u128::from(job.size);
            given += service * u128::from(job.size.next_power_of_two());
        }
    }
    #[allow(clippy::cast_precision_loss)]
    Some(if given == 0 { 0.0 } else { 1.0 - wanted as f64 / given as f64 })
}
