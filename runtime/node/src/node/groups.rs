//! The node's control groups, with the limits of all that runs in them.

use std::fs;

use kumi_sched::NodeId;

use super::memory::NodeMemory;
use crate::cgroup::{Controller, NodeGroups, NodeLimits};
use crate::config::{ClusterConfig, DeviceList, NodeConfig};
use crate::exit::{ExitCode, Failure};
use crate::job::devices::DeviceLedger;
use crate::limits;

/// Makes them anew; what cannot be done, and what is done instead, is added to `notes`.
pub(super) fn make(
    config: &ClusterConfig,
    own: &NodeConfig,
    node: NodeId,
    (processors, memory): (&[usize], &NodeMemory),
    kept: &[String],
    notes: &mut Vec<String>,
) -> Option<NodeGroups> {
    let made = match kept {
        [] => NodeGroups::make_anew(&config.name, node),
        _ => NodeGroups::make_around(&config.name, node, |job| kept.iter().any(|one| one == job)),
    };
    let groups = match made {
        Ok(groups) => groups,
        Err(reason) => {
            notes.push(limits::cgroup_sentence(&reason));
            if let Err(error) = nix::sys::prctl::set_child_subreaper(true) {
                tracing::warn!(%error, "orphans of ranks will not be found");
            }
            return None;
        }
    };
    let refused = groups.bound(&NodeLimits {
        machine_memory: memory.machine,
        machine_processes: processes(),
        memory: own.memory(),
        processors: processors.to_vec(),
    });
    for error in refused {
        tracing::warn!(error, "a limit of the node cannot be set");
    }
    if let Err(why) = groups.bound_daemon(config.daemon_memory()) {
        tracing::info!(why, "the daemon's own memory is not limited");
    }
    for (controller, why) in groups.missing() {
        let files = || own.devices.values().any(|list| matches!(list, DeviceList::Files(_)));
        let matters = match controller {
            Controller::Memory | Controller::Pids => true,
            Controller::Devices => files(),
            Controller::Cpu | Controller::Cpuset => false,
        };
        if matters {
            notes.push(limits::controller_sentence(*controller, why));
        } else {
            tracing::info!(controller = controller.name(), why, "jobs are not limited by it");
        }
    }
    Some(groups)
}

/// The node's devices, and whether jobs are kept from those of others.
///
/// # Errors
/// When one is not there.
pub(super) fn devices(
    own: &NodeConfig,
    groups: Option<&NodeGroups>,
) -> Result<DeviceLedger, Failure> {
    let guarded = groups.is_some_and(|groups| groups.has(Controller::Devices));
    DeviceLedger::new(&own.devices, guarded).map_err(|why| {
        let message = format!(
            "{why}; correct `devices` of the node in cluster.toml, or load the driver first"
        );
        Failure::new(ExitCode::BadConfig, message)
    })
}

/// Processes and threads of all ranks on the machine: a quarter of what the system can have is left to everything else.
fn processes() -> Option<u64> {
    let number = |name: &str| {
        let text = fs::read_to_string(format!("/proc/sys/kernel/{name}")).ok()?;
        text.trim().parse::<u64>().ok()
    };
    let most = number("pid_max").into_iter().chain(number("threads-max")).min()?;
    Some(most - most / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn something_is_left_to_the_system() {
        let most = processes().unwrap();
        let pids: u64 =
            fs::read_to_string("/proc/sys/kernel/pid_max").unwrap().trim().parse().unwrap();
        assert!(most > 100 && most < pids, "{most}");
    }
}
