//! The processors on which each rank of a job may run.

use std::collections::BTreeSet;
use std::fs;

use kumi_control::message::{Binding, NodeRanks, Resources};
use serde::{Deserialize, Serialize};

/// The processors of a job's ranks on one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankProcessors {
    /// Numbers of the job's processors, those of its lowest rank first.
    list: Vec<usize>,
    /// The NUMA place of each.
    places: Vec<u32>,
    /// All processors of the node.
    node: Vec<usize>,
    /// Processors of each rank.
    each: usize,
    /// Ranks on the node.
    ranks: usize,
    binding: Binding,
}

impl RankProcessors {
    /// Of a part of a job, on a node with these processors. `place` tells the NUMA place of a processor.
    ///
    /// # Errors
    /// The place in the node's list that does not exist.
    pub fn new(
        part: &NodeRanks,
        resources: &Resources,
        node: &[usize],
        place: impl Fn(usize) -> u32,
    ) -> Result<Self, u32> {
        let number = |&at: &u32| {
            let found = usize::try_from(at).ok().and_then(|at| node.get(at));
            found.copied().ok_or(at)
        };
        let list: Vec<usize> = match part.processors.is_empty() {
            true => node.to_vec(),
            false => part.processors.iter().map(number).collect::<Result<_, _>>()?,
        };
        let count = |number: u32| usize::try_from(number).unwrap_or(usize::MAX).max(1);
        Ok(Self {
            places: list.iter().map(|&processor| place(processor)).collect(),
            list,
            node: node.to_vec(),
            each: count(resources.processors_per_rank.unwrap_or(1)),
            ranks: count(part.count),
            binding: resources.binding.unwrap_or_default(),
        })
    }

    /// Those of the job on this node, whatever its binding.
    pub fn of_job(&self) -> &[usize] {
        match self.binding {
            Binding::None => &self.node,
            Binding::Core | Binding::Numa | Binding::Cpuset => &self.list,
        }
    }

    /// Those on which a local rank may run; none: it is not bound.
    pub fn of_rank(&self, local: usize) -> Vec<usize> {
        let own = || {
            let first = local.saturating_mul(self.each);
            let length = self.list.len().max(1);
            (0..self.each.min(self.list.len())).map(move |next| (first + next) % length)
        };
        match self.binding {
            Binding::None | Binding::Cpuset => self.of_job().to_vec(),
            Binding::Core => own().map(|at| self.list[at]).collect(),
            Binding::Numa => {
                let places: BTreeSet<u32> = own().map(|at| self.places[at]).collect();
                let all = self.list.iter().zip(&self.places);
                all.filter(|(_, place)| places.contains(place)).map(|(one, _)| *one).collect()
            }
        }
    }

    /// How many processors the ranks of the job on this node have together.
    pub fn shared(&self) -> usize {
        match self.binding {
            Binding::None | Binding::Cpuset => self.of_job().len(),
            Binding::Core => self.list.len().min(self.each.saturating_mul(self.ranks)),
            Binding::Numa => {
                let all: BTreeSet<usize> = (0..self.ranks.min(self.list.len()))
                    .flat_map(|rank| self.of_rank(rank))
                    .collect();
                all.len()
            }
        }
    }

    /// How many of them are each rank's.
    pub fn each(&self) -> usize {
        self.each.min(self.of_job().len()).max(1)
    }
}

/// NUMA places of processors, as the kernel lists them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NumaPlaces(Vec<(u32, Vec<usize>)>);

impl NumaPlaces {
    /// Of this machine.
    pub fn read() -> Self {
        let entries = fs::read_dir("/sys/devices/system/node").into_iter().flatten().flatten();
        let place = |entry: fs::DirEntry| {
            let name = entry.file_name();
            let number = name.to_str()?.strip_prefix("node")?.parse().ok()?;
            let list = fs::read_to_string(entry.path().join("cpulist")).ok()?;
            Some((number, list_of(&list)))
        };
        Self(entries.filter_map(place).collect())
    }

    /// The place of a processor; 0 if nobody knows.
    pub fn of(&self, processor: usize) -> u32 {
        let found = self.0.iter().find(|(_, list)| list.contains(&processor));
        found.map_or(0, |(place, _)| *place)
    }
}

/// The numbers in a list such as `0-3,8`.
fn list_of(text: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse::<usize>().ok()?..=last.parse::<usize>().ok()?)
    };
    text.trim().split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On a node whose processors 10 to 17 are in two NUMA places of four.
    fn of(
        processors: &[u32],
        ranks: u32,
        each: u32,
        binding: Option<Binding>,
    ) -> Result<RankProcessors, u32> {
        let node = kumi_sched::NodeId(0);
        let part = NodeRanks { node, first: 0, count: ranks, processors: processors.to_vec() };
        let resources =
            Resources { processors_per_rank: Some(each), binding, ..Resources::default() };
        let list: Vec<usize> = (10..18).collect();
        RankProcessors::new(&part, &resources, &list, |one| u32::from(one >= 14))
    }

    #[test]
    fn ranks_have_their_own_processors_in_the_order_of_the_list() {
        let two = of(&[6, 7, 0, 1], 2, 2, Some(Binding::Core)).unwrap();
        assert_eq!([two.of_rank(0), two.of_rank(1)], [[16, 17], [10, 11]]);
        assert_eq!((two.shared(), two.each()), (4, 2));
        assert_eq!(two.of_job(), [16, 17, 10, 11]);
        assert_eq!(two, of(&[6, 7, 0, 1], 2, 2, None).unwrap(), "it is the default");
    }

    #[test]
    fn more_ranks_than_the_processors_serve_share_them_in_turn() {
        let many = of(&[0, 1, 2], 4, 2, None).unwrap();
        let ranks: Vec<_> = (0..4).map(|rank| many.of_rank(rank)).collect();
        assert_eq!(ranks, [[10, 11], [12, 10], [11, 12], [10, 11]]);
        assert_eq!((many.shared(), many.each()), (3, 2));
        let wide = of(&[5], 1, 4, None).unwrap();
        assert_eq!((wide.of_rank(0), wide.shared(), wide.each()), (vec![15], 1, 1));
    }

    #[test]
    fn without_a_list_a_job_has_all_of_the_node() {
        let all = of(&[], 9, 1, None).unwrap();
        assert_eq!([all.of_rank(0), all.of_rank(7), all.of_rank(8)], [[10], [17], [10]]);
        assert_eq!((all.shared(), all.of_job().len()), (8, 8));
        assert_eq!(of(&[], 2, 1, None).unwrap().shared(), 2);
    }

    #[test]
    fn bindings_choose_between_the_ranks_own_and_all() {
        let with = |binding| of(&[0, 1, 4, 5], 2, 1, Some(binding)).unwrap();
        let (none, numa, set) = (with(Binding::None), with(Binding::Numa), with(Binding::Cpuset));
        assert_eq!(none.of_rank(1), (10..18).collect::<Vec<_>>());
        assert_eq!((none.of_job().len(), none.shared(), none.each()), (8, 8, 1));
        assert_eq!(numa.of_rank(1), [10, 11]);
        assert_eq!((numa.of_rank(2), numa.shared()), (vec![14, 15], 2));
        assert_eq!((set.of_rank(1), set.shared()), (vec![10, 11, 14, 15], 4));
        assert_eq!(set.of_job(), [10, 11, 14, 15]);
    }

    #[test]
    fn a_place_that_the_node_has_not_is_told() {
        assert_eq!(of(&[7, 8], 1, 1, None), Err(8));
    }

    #[test]
    fn numa_places_are_read() {
        assert_eq!(list_of("0-2,7\n"), [0, 1, 2, 7]);
        assert_eq!(list_of("\n"), Vec::<usize>::new());
        let places = NumaPlaces(vec![(0, vec![0, 1]), (3, vec![2])]);
        assert_eq!([places.of(1), places.of(2), places.of(9)], [0, 3, 0]);
        assert!(!NumaPlaces::read().0.is_empty(), "the kernel lists at least one");
    }
}
