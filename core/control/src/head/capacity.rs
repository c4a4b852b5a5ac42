//! What the cluster's nodes have, as far as the size of a job depends on it.

use alloc::string::String;
use alloc::vec::Vec;

use kumi_sched::{Amounts, KINDS, NodeId};

use crate::message::{DeviceCount, NodeDescription};

/// The kinds of things that are counted beside processors: memory, and devices by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Kinds {
    /// Names of devices, ascending. The first has the place after memory.
    devices: Vec<String>,
    /// Names for which there is no place.
    uncounted: Vec<String>,
}

/// The place of memory.
const MEMORY: usize = 0;
/// Most names of devices in a cluster.
pub const MOST_DEVICE_NAMES: usize = KINDS - 1;

impl Kinds {
    /// The kinds that any of these nodes has. Of more names of devices than there are places, the last are not counted.
    pub(super) fn of<'a>(nodes: impl Iterator<Item = &'a NodeDescription>) -> Self {
        let names = nodes.flat_map(|node| node.devices.iter().map(|device| device.name.clone()));
        let mut devices: Vec<String> = names.collect();
        devices.sort_unstable();
        devices.dedup();
        let uncounted = devices.split_off(devices.len().min(MOST_DEVICE_NAMES));
        Self { devices, uncounted }
    }

    /// Names of devices.
    pub(super) fn devices(&self) -> &[String] {
        &self.devices
    }

    /// Whether nodes have devices of this name for which there is no place, so that no job can have them.
    pub(super) fn is_uncounted(&self, name: &String) -> bool {
        self.uncounted.contains(name)
    }

    /// So much memory, and these devices. A name without a place is left out: [`super::sizing::demand`] lets no job pass that
    /// asks for one.
    pub(super) fn amounts(&self, memory: u64, devices: &[DeviceCount]) -> Amounts {
        let mut amounts = Amounts::NONE;
        amounts.0[MEMORY] = memory;
        for device in devices {
            if let Ok(index) = self.devices.binary_search(&device.name) {
                let place = &mut amounts.0[index + 1];
                *place = place.saturating_add(device.count.into());
            }
        }
        amounts
    }

    /// Memory and devices of these amounts. Kinds of which there is nothing are left out.
    pub(super) fn describe(&self, amounts: &Amounts) -> (u64, Vec<DeviceCount>) {
        let devices = self.devices.iter().zip(&amounts.0[MEMORY + 1..]);
        let devices = devices.filter(|(_, count)| **count > 0).map(|(name, &count)| DeviceCount {
            name: name.clone(),
            count: u32::try_from(count).unwrap_or(u32::MAX),
        });
        (amounts.0[MEMORY], devices.collect())
    }

    /// What a node has. One that does not know its memory limits no job by it.
    pub(super) fn of_node(&self, node: &NodeDescription) -> Amounts {
        let memory = if node.memory == 0 { u64::MAX } else { node.memory };
        self.amounts(memory, &node.devices)
    }
}

/// What a node can give to jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NodeSize {
    pub(super) processors: u32,
    /// Most ranks of one job.
    pub(super) max_ranks: u32,
    pub(super) amounts: Amounts,
}

impl NodeSize {
    pub(super) fn of(node: &NodeDescription, kinds: &Kinds) -> Self {
        Self {
            processors: node.processors.max(1),
            max_ranks: node.max_ranks.max(1),
            amounts: kinds.of_node(node),
        }
    }

    /// Ranks that fit on such a node, each with so many processors and so much else.
    pub(super) fn places(&self, processors: u32, amounts: &Amounts) -> u32 {
        (self.processors / processors.max(1)).min(self.shared_places(amounts))
    }

    /// The same if ranks may share processors.
    pub(super) fn shared_places(&self, amounts: &Amounts) -> u32 {
        let times = |(&have, &each): (&u64, &u64)| have.checked_div(each).unwrap_or(u64::MAX);
        let others = self.amounts.0.iter().zip(&amounts.0).map(times).min().unwrap_or(u64::MAX);
        u32::try_from(others).unwrap_or(u32::MAX).min(self.max_ranks)
    }
}

/// Nodes of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SizeGroup {
    pub(super) size: NodeSize,
    /// Nodes that have ever attached.
    pub(super) known: u32,
    /// Nodes that are attached and take jobs.
    pub(super) attached: u32,
}

/// Sizes of the nodes that have ever attached, and the kinds of what they have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NodeSizes {
    groups: Vec<SizeGroup>,
    kinds: Kinds,
}

impl NodeSizes {
    /// From what nodes said of themselves, and which are attached and take jobs. The cost is that of a look at all nodes.
    pub(super) fn of(
        nodes: &[Option<NodeDescription>],
        takes_jobs: impl Fn(NodeId) -> bool,
    ) -> Self {
        let kinds = Kinds::of(nodes.iter().flatten());
        let mut groups: Vec<SizeGroup> = Vec::new();
        for node in nodes.iter().flatten() {
            let (size, attached) = (NodeSize::of(node, &kinds), u32::from(takes_jobs(node.node)));
            match groups.iter_mut().find(|group| group.size == size) {
                Some(group) => {
                    group.known += 1;
                    group.attached += attached;
                }
                None => groups.push(SizeGroup { size, known: 1, attached }),
            }
        }
        Self { groups, kinds }
    }

    /// The cluster's capacity with so many configured nodes, and drained ones among them.
    pub(super) fn capacity(&self, (nodes, drained): (u32, u32), starting: bool) -> Capacity<'_> {
        let attached: u32 = self.groups.iter().map(|group| group.attached).sum();
        let growing = starting && attached.saturating_add(drained) < nodes;
        Capacity { nodes, attached, drained, growing, groups: &self.groups, kinds: &self.kinds }
    }
}

/// How large the cluster is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Capacity<'a> {
    /// Configured nodes.
    pub(super) nodes: u32,
    /// Nodes that are attached and take jobs.
    pub(super) attached: u32,
    /// Nodes that are drained, attached or not.
    pub(super) drained: u32,
    /// More nodes are expected to attach soon, since the head has just started.
    pub(super) growing: bool,
    /// The nodes that have ever attached, by size.
    pub(super) groups: &'a [SizeGroup],
    pub(super) kinds: &'a Kinds,
}

impl Capacity<'_> {
    /// Nodes that have ever attached.
    pub(super) fn known(&self) -> u32 {
        self.groups.iter().map(|group| group.known).sum()
    }

    /// Processors of the nodes that are attached and take jobs.
    pub(super) fn processors_up(&self) -> u32 {
        let up = self.groups.iter().map(|group| group.attached * group.size.processors);
        up.fold(0, u32::saturating_add)
    }
}
