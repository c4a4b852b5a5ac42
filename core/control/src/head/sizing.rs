//! How much of the cluster a job takes: its demand, and its ranks on the processors that it got.

use alloc::format;
use alloc::vec::Vec;

use kumi_sched::{Amounts, Demand, NodeId, PartSize};

use super::capacity::{Capacity, MOST_DEVICE_NAMES, SizeGroup};
use super::refusal;
use crate::message::{JobRequest, NodeRanks, Refusal, RefusalKind};

/// What a job is, beside its nodes.
struct RankNeeds {
    ranks: u32,
    /// Processors of each rank.
    each: u32,
    /// Whether that is more than one. Ranks with several processors do not share them.
    strict: bool,
    /// What else each rank takes.
    amounts: Amounts,
    exclusive: bool,
}

impl RankNeeds {
    fn of(request: &JobRequest, capacity: &Capacity<'_>) -> Self {
        let resources = &request.resources;
        let memory = resources.memory_per_rank.unwrap_or(0);
        let each = resources.processors_per_rank.unwrap_or(1).max(1);
        Self {
            ranks: request.ranks,
            each,
            strict: each > 1,
            amounts: capacity.kinds.amounts(memory, &resources.devices),
            exclusive: resources.exclusive,
        }
    }

    /// Ranks of this job that fit on a node of that size.
    fn places(&self, group: &SizeGroup) -> u32 {
        group.size.places(self.each, &self.amounts)
    }

    /// The same if ranks may share processors.
    fn shared_places(&self, group: &SizeGroup) -> u32 {
        group.size.shared_places(&self.amounts)
    }

    fn amounts_of(&self, ranks: u32) -> Amounts {
        Amounts(self.amounts.0.map(|each| each.saturating_mul(ranks.into())))
    }

    /// Parts on nodes of their own, with so many ranks each.
    fn parts(&self, parts: u32, ranks: u32, size: PartSize) -> Demand {
        Demand { parts, size, spread: true, amounts: self.amounts_of(ranks) }
    }
}

fn too_large<T>(message: alloc::string::String) -> Result<T, Refusal> {
    Err(refusal(RefusalKind::TooLarge, message))
}

/// What a job demands. It is on as many nodes as it asks for, or wherever there is a processor for each rank. If there are
/// fewer processors, its ranks share all of the nodes that are attached. Just after the start of the head its nodes are still
/// attaching; a job that leaves their number open waits for them.
///
/// # Errors
/// `Ok(None)` while it cannot be said. An error when the job can never fit.
pub(super) fn demand(
    request: &JobRequest,
    capacity: &Capacity<'_>,
) -> Result<Option<Demand>, Refusal> {
    if capacity.groups.is_empty() {
        return Ok(None);
    }
    if !has_devices(request, capacity)? {
        return Ok(None);
    }
    let needs = RankNeeds::of(request, capacity);
    let nodes = match (request.nodes, request.resources.ranks_per_node) {
        (nodes, Some(per_node)) => {
            let needed = needs.ranks.div_ceil(per_node.max(1));
            if nodes.is_some_and(|nodes| nodes != needed) {
                let message = format!(
                    "{} ranks, {per_node} on each node, take {needed} nodes; ask for as many, or leave one of the \
                     numbers open",
                    needs.ranks
                );
                return Err(refusal(RefusalKind::BadRequest, message));
            }
            Some((needed, per_node.min(needs.ranks)))
        }
        (Some(nodes), None) => Some((nodes, needs.ranks.div_ceil(nodes.max(1)))),
        (None, None) => None,
    };
    match nodes {
        Some((nodes, ranks)) => on_nodes(&needs, nodes, ranks, capacity).map(Some),
        None if capacity.attached == 0 || capacity.growing => {
            check_ever(&needs, capacity).map(|()| None)
        }
        None => anywhere(&needs, capacity).map(Some),
    }
}

/// Whether the nodes that are known have devices of all names that the job asks for. Those that have not attached yet may
/// have the others.
///
/// # Errors
/// No node has them, or they are not counted.
fn has_devices(request: &JobRequest, capacity: &Capacity<'_>) -> Result<bool, Refusal> {
    let (names, mut all) = (capacity.kinds.devices(), true);
    for name in request.resources.devices.iter().map(|device| &device.name) {
        if names.contains(name) {
            continue;
        }
        if capacity.kinds.is_uncounted(name) {
            return too_large(format!(
                "devices called {name} are not counted, since nodes have more than {MOST_DEVICE_NAMES} names of \
                 devices; use fewer names in the host file"
            ));
        }
        if capacity.known() == capacity.nodes {
            let known = match names {
                [] => "and none has any devices".into(),
                names => format!("they have {}", names.join(", ")),
            };
            return too_large(format!(
                "no node of the cluster has devices called {name}, {known}; name them in the host file"
            ));
        }
        all = false;
    }
    Ok(all)
}

/// The demand of a job on so many nodes, with at most so many ranks each.
fn on_nodes(
    needs: &RankNeeds,
    nodes: u32,
    ranks: u32,
    capacity: &Capacity<'_>,
) -> Result<Demand, Refusal> {
    let groups = || capacity.groups.iter();
    let unknown = capacity.nodes.saturating_sub(capacity.known());
    let having = |enough: &dyn Fn(&SizeGroup) -> bool| -> u32 {
        groups().filter(|group| enough(group)).map(|group| group.known).sum()
    };
    let own = having(&|group| needs.places(group) >= ranks);
    let shared = having(&|group| needs.shared_places(group) >= ranks);
    if nodes > capacity.nodes {
        return too_large(format!(
            "the job takes {nodes} nodes, and the cluster has {}; ask for fewer",
            capacity.nodes
        ));
    }
    let least = ranks.saturating_mul(needs.each);
    if own >= nodes {
        let size = match needs.exclusive {
            true => PartSize::WholeNode { least },
            false => PartSize::Processors(least),
        };
        return Ok(needs.parts(nodes, ranks, size));
    }
    if !needs.strict && shared >= nodes {
        return Ok(needs.parts(nodes, ranks, PartSize::WholeNode { least: 1 }));
    }
    let known = if needs.strict { own } else { shared };
    if unknown > 0 && known.saturating_add(unknown) >= nodes {
        // Those that have not attached may have it.
        return Ok(needs.parts(nodes, ranks, PartSize::Processors(least)));
    }
    too_large(format!(
        "{} ranks on {nodes} nodes need {ranks} ranks on one node, and {}; ask for fewer ranks{}",
        needs.ranks,
        limit(needs, capacity),
        if nodes < capacity.nodes { " or more nodes" } else { "" }
    ))
}

/// What a node has at most, for a refusal.
fn limit(needs: &RankNeeds, capacity: &Capacity<'_>) -> alloc::string::String {
    let most = |places: fn(&RankNeeds, &SizeGroup) -> u32| {
        capacity.groups.iter().map(|group| places(needs, group)).max().unwrap_or(0)
    };
    match needs.strict || needs.amounts != Amounts::NONE {
        true => match most(if needs.strict { RankNeeds::places } else { RankNeeds::shared_places })
        {
            0 => "no node has the processors, memory and devices that one rank asks for".into(),
            places => {
                format!("a node has processors, memory and devices for at most {places} of them")
            }
        },
        false => format!("a node takes at most {}", most(RankNeeds::shared_places)),
    }
}

/// Checks whether a job that leaves its nodes open would fit if all nodes were attached.
fn check_ever(needs: &RankNeeds, capacity: &Capacity<'_>) -> Result<(), Refusal> {
    let places = if needs.strict { RankNeeds::places } else { RankNeeds::shared_places };
    let known =
        capacity.groups.iter().map(|group| group.known.saturating_mul(places(needs, group)));
    let known = known.fold(0, u32::saturating_add);
    let largest = capacity.groups.iter().map(|group| places(needs, group)).max().unwrap_or(0);
    let unknown = capacity.nodes.saturating_sub(capacity.known());
    if needs.ranks <= known.saturating_add(unknown.saturating_mul(largest.max(1))) {
        return Ok(());
    }
    let limit = limit(needs, capacity);
    too_large(match largest {
        0 => format!("{limit}; ask for less for each rank"),
        _ => format!(
            "{} ranks do not fit on the cluster, which has room for {known} of them: {limit}; ask for fewer ranks",
            needs.ranks
        ),
    })
}

/// The demand of a job that leaves its nodes open.
fn anywhere(needs: &RankNeeds, capacity: &Capacity<'_>) -> Result<Demand, Refusal> {
    check_ever(needs, capacity)?;
    let groups = || capacity.groups.iter().filter(|group| group.attached > 0);
    let up = groups().map(|group| group.attached.saturating_mul(needs.places(group)));
    let up = up.fold(0, u32::saturating_add);
    if needs.strict || needs.ranks <= up {
        if needs.exclusive {
            return exclusive(needs, capacity);
        }
        let size = PartSize::Processors(needs.each);
        return Ok(Demand { parts: needs.ranks, size, spread: false, amounts: needs.amounts });
    }
    // Fewer processors than ranks: all nodes, and more of them than are attached if these do not take so many ranks.
    let fewest = groups().map(|group| needs.shared_places(group)).min().unwrap_or(1).max(1);
    let nodes = capacity.attached.max(needs.ranks.div_ceil(fewest)).min(capacity.nodes);
    let ranks = needs.ranks.div_ceil(nodes.max(1));
    Ok(needs.parts(nodes, ranks, PartSize::WholeNode { least: 1 }))
}

/// The demand of a job that leaves its nodes open and wants them for itself.
fn exclusive(needs: &RankNeeds, capacity: &Capacity<'_>) -> Result<Demand, Refusal> {
    let groups = capacity.groups.iter().filter(|group| group.attached > 0);
    let fewest = groups.map(|group| needs.places(group)).filter(|&places| places > 0).min();
    let Some(fewest) = fewest else {
        return on_nodes(needs, 1, needs.ranks, capacity);
    };
    let nodes = needs.ranks.div_ceil(fewest);
    on_nodes(needs, nodes, needs.ranks.div_ceil(nodes.max(1)), capacity)
}

/// Processors of one node that a job got, by their places in the node's list.
pub(super) struct NodeShare {
    pub(super) node: NodeId,
    pub(super) processors: Vec<u32>,
    /// All that the node has.
    pub(super) of: u32,
    /// Most ranks of one job there.
    pub(super) max_ranks: u32,
}

/// The ranks of a job on the processors that it got, ascending by node.
///
/// If it takes any processors, each node has as many ranks as it has processors for. Otherwise ranks are in blocks, equal but
/// for one; where ranks share processors, each node has them in proportion to its processors.
pub(super) fn layout(
    request: &JobRequest,
    demand: &Demand,
    shares: &[NodeShare],
) -> Vec<NodeRanks> {
    let each = request.resources.processors_per_rank.unwrap_or(1).max(1);
    let places = |share: &NodeShare| share.processors.len() as u32 / each;
    let counts: Vec<u32> = if !demand.spread {
        shares.iter().map(places).collect()
    } else if let Some(per_node) = request.resources.ranks_per_node {
        let before = |index: u32| index.saturating_mul(per_node);
        let rest = |index| request.ranks.saturating_sub(before(index));
        (0..shares.len() as u32).map(|index| rest(index).min(per_node)).collect()
    } else if shares.iter().map(places).fold(0, u32::saturating_add) < request.ranks {
        in_proportion(request.ranks, shares)
    } else {
        in_blocks(request.ranks, shares.len() as u32)
    };
    let mut first = 0;
    let mut layout = Vec::with_capacity(shares.len());
    for (share, count) in shares.iter().zip(counts) {
        let all = share.processors.len() as u32 == share.of;
        let processors = if all { Vec::new() } else { share.processors.clone() };
        layout.push(NodeRanks { node: share.node, first, count, processors });
        first += count;
    }
    layout
}

/// Equal numbers; the first ones are larger by one if it does not divide.
fn in_blocks(ranks: u32, nodes: u32) -> Vec<u32> {
    let (each, more) = (ranks / nodes.max(1), ranks % nodes.max(1));
    (0..nodes).map(|index| each + u32::from(index < more)).collect()
}

/// Numbers in proportion to the nodes' processors, at least 1 and at most what a node takes.
fn in_proportion(ranks: u32, shares: &[NodeShare]) -> Vec<u32> {
    let weight = |share: &NodeShare| (share.processors.len() as u64).max(1);
    let total: u64 = shares.iter().map(weight).sum();
    let part = |share: &NodeShare| {
        let exact = u64::from(ranks) * weight(share) / total.max(1);
        u32::try_from(exact).unwrap_or(u32::MAX).clamp(1, share.max_ranks.max(1))
    };
    let mut counts: Vec<u32> = shares.iter().map(part).collect();
    let mut sum: u32 = counts.iter().sum();
    while sum != ranks {
        let before = sum;
        for (count, share) in counts.iter_mut().zip(shares) {
            if sum < ranks && *count < share.max_ranks {
                (*count, sum) = (*count + 1, sum + 1);
            } else if sum > ranks && *count > 1 {
                (*count, sum) = (*count - 1, sum - 1);
            }
        }
        if sum == before {
            break;
        }
    }
    counts
}
