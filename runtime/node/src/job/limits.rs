//! Limits of a job on this node: of its control groups and of its ranks.

use kumi_control::message::{JobSpec, NodeRanks, ProcessLimits, Resource};
use kumi_net::HandlerSetting;

use super::devices::JobDevices;
use super::processors::RankProcessors;
use super::{JobShare, NodeServices};
use crate::cgroup::{Controller, JobLimits};
use crate::config::handler_of;
use crate::process_limits;

/// Limits of the job's ranks. The log says once what this daemon cannot give.
pub(super) fn of_ranks(spec: &JobSpec) -> ProcessLimits {
    let limits = spec.request.limits.unwrap_or_default();
    let less = process_limits::out_of_reach(&limits);
    if !less.is_empty() {
        let less = less.join(", ");
        tracing::info!(job = %spec.job, less, "ranks have less than their user's limits, since the daemon may not raise its own");
    }
    limits
}

/// What the job has of this node.
pub(super) fn share_of(services: &NodeServices, spec: &JobSpec, part: &NodeRanks) -> JobShare {
    let processors = match part.processors.len() {
        0 => services.cpus.len(),
        some => some,
    };
    let each = spec.request.resources.memory_per_rank.unwrap_or(0);
    JobShare { processors: processors as u64, memory: each.saturating_mul(part.count.into()) }
}

/// Limits of the job's control groups.
pub(super) fn of_groups(
    services: &NodeServices,
    spec: &JobSpec,
    part: &NodeRanks,
    (processors, devices): (&RankProcessors, &JobDevices),
) -> JobLimits {
    let request = &spec.request;
    // The head has put in the cluster's default.
    let JobShare { memory, .. } = share_of(services, spec, part);
    let limits = request.limits.unwrap_or_default();
    let setting = handler_of(&request.env, None).and_then(|text| HandlerSetting::parse(text).ok());
    let needs = setting.map(HandlerSetting::needs).unwrap_or_default();
    JobLimits {
        memory: (memory > 0).then_some(memory),
        processes: Some(services.job_defaults.processes(part.count)),
        weight: request.priority.into(),
        processors: processors.of_job().to_vec(),
        hidden: devices.hidden().to_vec(),
        processor_time: None,
        realtime: needs.rtprio > 0 || limits.get(Resource::Rtprio).hard > 0,
    }
}

/// A sentence for the user of a job that asks for a limit of memory where nobody can enforce one.
pub(super) fn not_enforced(services: &NodeServices, spec: &JobSpec) -> Option<String> {
    let wants = spec.request.resources.memory_per_rank.filter(|&bytes| bytes > 0);
    let asked = wants.is_some() && wants != services.job_defaults.memory_per_rank();
    let can = services.groups.as_ref().is_some_and(|groups| groups.has(Controller::Memory));
    (asked && !can).then(|| {
        format!(
            "kumi: node {} reserves the job's memory and cannot limit it; see `kumi doctor` there\n",
            services.node
        )
    })
}
