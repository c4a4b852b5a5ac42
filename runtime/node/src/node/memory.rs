//! Memory that a node can give to ranks.

use std::fs;

use crate::cgroup;
use crate::config::{ClusterConfig, ClusterKind, NodeConfig};

/// Memory for ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NodeMemory {
    /// Bytes that all nodes on this machine may use together, if the system says what there is.
    pub(super) machine: Option<u64>,
    /// Bytes that this node's ranks may use; 0: not known.
    pub(super) node: u64,
}

/// The memory of the node: what the configuration says, otherwise its share of this machine's.
pub(super) fn of_node(config: &ClusterConfig, node: &NodeConfig) -> NodeMemory {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    memory(config, node, total(&meminfo), cgroup::memory_limit())
}

fn memory(
    config: &ClusterConfig,
    node: &NodeConfig,
    total: Option<u64>,
    limit: Option<u64>,
) -> NodeMemory {
    let all = total.map(|total| total.min(limit.unwrap_or(u64::MAX)));
    let machine = all.map(|all| all - config.memory_reserve_of(all)).filter(|&rest| rest > 0);
    let nodes = match config.kind {
        ClusterKind::Local => u64::from(config.node_count().max(1)),
        ClusterKind::Hosts => 1,
    };
    let share = machine.map_or(0, |machine| machine / nodes);
    NodeMemory { machine, node: node.memory().unwrap_or(share) }
}

/// Bytes of memory of the machine, from `/proc/meminfo`.
fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.split_ascii_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1_024)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_node_has_what_is_configured_or_its_share_of_the_machine() {
        let text = |kind: &str| {
            format!(
                "name = \"lab\"\nkind = \"{kind}\"\nhead = \"10.0.0.1:7700\"\nmemory_reserve = \"1KiB\"\n\
                 [[nodes]]\nname = \"a\"\naddress = \"10.0.0.1\"\nport = 7701\n\
                 [[nodes]]\nname = \"b\"\naddress = \"10.0.0.2\"\nport = 7701\nmemory = \"3KiB\"\n"
            )
        };
        let config = |kind| ClusterConfig::parse(&text(kind), Path::new("cluster.toml")).unwrap();
        let of = |config: &ClusterConfig, node: usize, total, limit| {
            let found = memory(config, &config.nodes[node], total, limit);
            (found.machine, found.node)
        };
        let (local, hosts) = (config("local"), config("hosts"));
        assert_eq!(of(&local, 0, Some(5 << 10), None), (Some(4 << 10), 2 << 10));
        assert_eq!(of(&hosts, 0, Some(5 << 10), None), (Some(4 << 10), 4 << 10));
        assert_eq!(of(&hosts, 1, Some(5 << 10), None), (Some(4 << 10), 3 << 10));
        assert_eq!(of(&hosts, 0, Some(9 << 10), Some(5 << 10)), (Some(4 << 10), 4 << 10));
        assert_eq!(of(&hosts, 0, None, Some(5)), (None, 0));
        assert_eq!(of(&hosts, 0, Some(1 << 10), None), (None, 0), "all is reserved");
    }

    #[test]
    fn this_machine_says_what_it_has() {
        let all = total(&fs::read_to_string("/proc/meminfo").unwrap()).unwrap();
        assert!(all > 1 << 20);
        assert_eq!(total("MemTotal:       1000 kB\nMemFree: 1 kB\n"), Some(1_024_000));
    }
}
