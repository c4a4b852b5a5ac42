//! Inventory of a machine: its nodes, what each has, and what placed jobs have taken of it.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

use crate::demand::{Amounts, Demand, NodeResources, PartSize};
use crate::policy::ResourceFit;
use crate::{JobId, ProcessorId};

/// Nodes with their processors and amounts. Which jobs run on which processors is the policy's business: they may share
/// these in time. Amounts are shared in space only, so the inventory counts them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inventory {
    /// By first processor.
    nodes: BTreeMap<u32, NodeEntry>,
    /// How many nodes are up of each number of processors and amounts.
    sizes: BTreeMap<(u32, Amounts), u32>,
    /// What each job has taken, by its nodes' first processors.
    taken: BTreeMap<JobId, Vec<(u32, Amounts)>>,
}

#[derive(Clone, Debug)]
struct NodeEntry {
    end: u32,
    up: bool,
    total: Amounts,
    used: Amounts,
}

impl NodeEntry {
    fn free(&self) -> Amounts {
        let mut free = self.total;
        free.subtract(&self.used);
        free
    }
}

/// What of a node's amounts counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AmountBasis {
    /// All that it has.
    Total,
    /// What no placed job has taken.
    Free,
}

/// How many parts of a job fit on so many processors of a node that has these amounts. `whole`: these are all that it has.
fn parts_of(demand: &Demand, processors: u32, whole: bool, amounts: &Amounts) -> u32 {
    let parts = match demand.size {
        PartSize::Processors(each) => processors / each.max(1),
        PartSize::WholeNode { least } => u32::from(whole && processors >= least),
    };
    let most = if demand.spread { 1 } else { u32::MAX };
    parts.min(amounts.parts(&demand.amounts)).min(most)
}

/// A place for one part of a job.
struct Place {
    /// How loaded its processors are, the most loaded first.
    load: u32,
    processors: Vec<u32>,
}

impl Inventory {
    /// The node is up from now on, with these resources.
    pub(crate) fn add(&mut self, node: &NodeResources) {
        let Range { start, end } = node.processors;
        self.remove(node.first());
        let used = self.nodes.get(&start).map_or(Amounts::NONE, |old| old.used);
        self.nodes.insert(start, NodeEntry { end, up: true, total: node.amounts, used });
        *self.sizes.entry((end - start, node.amounts)).or_default() += 1;
    }

    /// The node takes no jobs from now on. Returns the numbers of its processors.
    pub(crate) fn remove(&mut self, first: ProcessorId) -> Range<u32> {
        let Some(entry) = self.nodes.get_mut(&first.0) else { return 0..0 };
        let size = (entry.end - first.0, entry.total);
        if core::mem::replace(&mut entry.up, false)
            && let Some(nodes) = self.sizes.get_mut(&size)
        {
            *nodes -= 1;
            if *nodes == 0 {
                self.sizes.remove(&size);
            }
        }
        first.0..entry.end
    }

    /// Processors that the job wants: an upper bound where nodes differ.
    pub(crate) fn count(&self, demand: &Demand) -> u32 {
        demand.count(self.sizes.last_key_value().map_or(0, |(&(largest, _), _)| largest))
    }

    /// Nodes that have processors in `range`, with their first processor.
    fn within(&self, range: Range<u32>) -> impl Iterator<Item = (u32, &NodeEntry)> {
        let before = self.nodes.range(..range.start).next_back();
        let before = before.filter(move |(_, entry)| entry.end > range.start);
        before.into_iter().chain(self.nodes.range(range)).map(|(&first, entry)| (first, entry))
    }

    /// How many parts of a job fit on the nodes in `range`, as far as these are in it, if nothing but `counting` limits them.
    pub(crate) fn parts(&self, demand: &Demand, range: Range<u32>, counting: AmountBasis) -> u32 {
        let of_node = |(first, entry): (u32, &NodeEntry)| {
            let here = range.start.max(first)..range.end.min(entry.end);
            let count = here.end.saturating_sub(here.start);
            let amounts = match counting {
                AmountBasis::Total => entry.total,
                AmountBasis::Free => entry.free(),
            };
            parts_of(demand, count, here == (first..entry.end), &amounts)
        };
        let up = self.within(range.clone()).filter(|(_, entry)| entry.up);
        up.map(of_node).fold(0, u32::saturating_add)
    }

    /// Whether the job could be placed if there were no other.
    pub(crate) fn possible(&self, demand: &Demand) -> bool {
        let fit = |(&(size, amounts), &nodes): (&(u32, Amounts), &u32)| {
            parts_of(demand, size, true, &amounts).saturating_mul(nodes)
        };
        self.sizes.iter().map(fit).fold(0, u32::saturating_add) >= demand.parts
    }

    /// Whether the nodes have what the job wants; `possible` says whether they would without other jobs.
    pub(crate) fn fit(&self, demand: &Demand, possible: bool) -> ResourceFit {
        let free = |demand| self.parts(demand, 0..u32::MAX, AmountBasis::Free) >= demand.parts;
        match possible {
            false => ResourceFit::TooLittle,
            true if demand.amounts == Amounts::NONE || free(demand) => ResourceFit::Free,
            true => ResourceFit::AmountsTaken,
        }
    }

    /// Processors for a job among those in `range` that are `free`, ascending: the least loaded ones, of equals the first. Its
    /// nodes also have free what else it takes.
    pub(crate) fn choose(
        &self,
        demand: &Demand,
        range: Range<u32>,
        free: impl Fn(ProcessorId) -> bool,
        load: impl Fn(ProcessorId) -> u32,
    ) -> Option<Vec<ProcessorId>> {
        let mut places: Vec<Place> = Vec::new();
        for (first, entry) in self.within(range.clone()).filter(|(_, entry)| entry.up) {
            let here = range.start.max(first)..range.end.min(entry.end);
            let mut open: Vec<(u32, u32)> = here
                .filter(|&number| free(ProcessorId(number)))
                .map(|number| (load(ProcessorId(number)), number))
                .collect();
            open.sort_unstable();
            let each = match demand.size {
                PartSize::Processors(each) => each.max(1),
                PartSize::WholeNode { least } => least.max(entry.end - first),
            };
            let most = entry.free().parts(&demand.amounts);
            let most = if demand.spread { most.min(1) } else { most };
            let parts = open.chunks_exact(each as usize).take(most as usize);
            places.extend(parts.map(|part| Place {
                load: part.last().map_or(0, |&(load, _)| load),
                processors: part.iter().map(|&(_, number)| number).collect(),
            }));
        }
        if places.len() < demand.parts as usize {
            return None;
        }
        places.sort_by_key(|place| (place.load, place.processors.first().copied()));
        let chosen = places.into_iter().take(demand.parts as usize);
        let mut chosen: Vec<ProcessorId> =
            chosen.flat_map(|place| place.processors).map(ProcessorId).collect();
        chosen.sort_unstable();
        Some(chosen)
    }

    /// The job has its parts on these processors, which ascend, and takes what else it needs of their nodes.
    pub(crate) fn take(&mut self, job: JobId, demand: &Demand, processors: &[ProcessorId]) {
        if demand.amounts == Amounts::NONE {
            return;
        }
        let mut taken: Vec<(u32, Amounts)> = Vec::new();
        let mut rest = processors;
        while let Some(processor) = rest.first() {
            let Some((&first, entry)) = self.nodes.range_mut(..=processor.0).next_back() else {
                // A job that was taken over from a node that is not known any more.
                rest = &rest[1..];
                continue;
            };
            let here = rest.iter().take_while(|processor| processor.0 < entry.end).count().max(1);
            let parts = match demand.size {
                PartSize::Processors(each) => here.div_ceil(each.max(1) as usize),
                PartSize::WholeNode { .. } => 1,
            };
            let parts = u32::try_from(parts).unwrap_or(u32::MAX).min(demand.parts);
            let amounts = demand.amounts.times(parts);
            entry.used.add(&amounts);
            taken.push((first, amounts));
            rest = &rest[here..];
        }
        self.taken.insert(job, taken);
    }

    /// The job has left.
    pub(crate) fn give_back(&mut self, job: JobId) {
        for (first, amounts) in self.taken.remove(&job).unwrap_or_default() {
            if let Some(entry) = self.nodes.get_mut(&first) {
                entry.used.subtract(&amounts);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    /// Nodes of 4 processors; all but the second have 8 of the first kind, it has 16.
    fn inventory(nodes: u32) -> Inventory {
        let mut inventory = Inventory::default();
        for node in 0..nodes {
            let amounts = Amounts([if node == 1 { 16 } else { 8 }, 0, 0, 0, 0, 0, 0, 0]);
            inventory.add(&NodeResources { processors: 4 * node..4 * node + 4, amounts });
        }
        inventory
    }

    fn demand(parts: u32, each: u32, amount: u64) -> Demand {
        let amounts = Amounts([amount, 0, 0, 0, 0, 0, 0, 0]);
        Demand { parts, size: PartSize::Processors(each), spread: false, amounts }
    }

    fn chosen(inventory: &Inventory, demand: &Demand) -> Option<Vec<u32>> {
        let all = inventory.choose(demand, 0..64, |_| true, |_| 0)?;
        Some(all.into_iter().map(|processor| processor.0).collect())
    }

    #[test]
    fn parts_stay_on_one_node() {
        let inventory = inventory(2);
        assert_eq!(chosen(&inventory, &demand(2, 3, 0)), Some(vec![0, 1, 2, 4, 5, 6]));
        assert_eq!(chosen(&inventory, &demand(3, 3, 0)), None, "a third would be on two nodes");
        assert!(!inventory.possible(&demand(3, 3, 0)) && inventory.possible(&demand(8, 1, 0)));
        let spread = Demand { spread: true, ..demand(2, 1, 0) };
        assert_eq!(chosen(&inventory, &spread), Some(vec![0, 4]));
        let whole = Demand { size: PartSize::WholeNode { least: 4 }, ..demand(1, 1, 0) };
        assert_eq!(chosen(&inventory, &whole), Some(vec![0, 1, 2, 3]));
        let larger = Demand { size: PartSize::WholeNode { least: 5 }, ..whole };
        assert!(chosen(&inventory, &larger).is_none() && !inventory.possible(&larger));
        let free = |processor: ProcessorId| processor.0 != 2;
        let second = inventory.choose(&whole, 0..64, free, |_| 0).unwrap();
        assert_eq!(second.first(), Some(&ProcessorId(4)), "the first has a processor less");
    }

    #[test]
    fn the_least_loaded_come_first() {
        let inventory = inventory(2);
        let load = |processor: ProcessorId| u32::from(processor.0 < 3);
        let two = inventory.choose(&demand(1, 2, 0), 0..64, |_| true, load);
        assert_eq!(two, Some(vec![ProcessorId(4), ProcessorId(5)]));
        let five = inventory.choose(&demand(5, 1, 0), 0..64, |_| true, load);
        assert_eq!(five, Some((3..8).map(ProcessorId).collect()));
    }

    #[test]
    fn amounts_are_shared_in_space() {
        let mut inventory = inventory(2);
        let six = demand(3, 1, 6);
        let first = chosen(&inventory, &six);
        assert_eq!(first, Some(vec![0, 4, 5]), "once on the first node, twice on the second");
        let all = |range| inventory.parts(&six, range, AmountBasis::Free);
        assert_eq!((all(0..4), all(4..8), all(0..8), all(5..6)), (1, 2, 3, 1));
        inventory.take(JobId(1), &six, &[0, 4, 5].map(ProcessorId));
        assert_eq!(chosen(&inventory, &demand(1, 1, 6)), None);
        assert_eq!(chosen(&inventory, &demand(2, 1, 2)), Some(vec![0, 4]));
        assert!(inventory.possible(&six), "if the first job were not there");
        assert_eq!(inventory.fit(&six, true), ResourceFit::AmountsTaken);
        assert_eq!(inventory.fit(&demand(2, 1, 2), true), ResourceFit::Free);
        inventory.give_back(JobId(1));
        assert_eq!(chosen(&inventory, &six), first);
    }

    #[test]
    fn a_node_that_comes_back_keeps_what_its_jobs_have() {
        let mut inventory = inventory(1);
        inventory.take(JobId(1), &demand(1, 1, 6), &[ProcessorId(0)]);
        assert_eq!(inventory.remove(ProcessorId(0)), 0..4);
        assert_eq!(chosen(&inventory, &demand(1, 1, 0)), None);
        let amounts = Amounts([10, 0, 0, 0, 0, 0, 0, 0]);
        inventory.add(&NodeResources { processors: 0..4, amounts });
        assert_eq!(inventory.parts(&demand(9, 1, 2), 0..4, AmountBasis::Free), 2);
        inventory.give_back(JobId(1));
        assert_eq!(inventory.parts(&demand(9, 1, 2), 0..4, AmountBasis::Free), 4);
    }
}
