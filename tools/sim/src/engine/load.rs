//! Number of jobs on each processor, with minimum and maximum.

use kumi_sched::ProcessorId;

use crate::machine::Machine;

/// A tree of sums over the processors. Adding to a range costs the logarithm of the machine's size.
pub(super) struct Load {
    leaves: usize,
    procs: usize,
    /// Node `i` has the children `2i` and `2i + 1`; node 1 is the root.
    parts: Vec<Part>,
}

#[derive(Clone, Copy, Default)]
struct Part {
    /// Jobs that hold this whole part (and not its parent).
    own: u32,
    /// Most jobs on a processor of this part, not counting those of the parts above.
    most: u32,
    /// Fewest jobs, counted in the same way.
    least: u32,
}

impl Load {
    pub(super) fn new(machine: &Machine) -> Self {
        let procs = machine.end() as usize;
        let leaves = procs.next_power_of_two();
        let mut load = Self { leaves, procs, parts: vec![Part::default(); 2 * leaves] };
        // Leaves without a processor never have the minimum.
        let gaps = machine.gaps().flat_map(|gap| gap.start as usize..gap.end as usize);
        for leaf in gaps.chain(procs..leaves) {
            load.parts[leaves + leaf].least = u32::MAX / 2;
        }
        (1..leaves).rev().for_each(|part| load.renew(part));
        load
    }

    /// Fewest and most jobs on a processor.
    pub(super) fn range(&self) -> (u32, u32) {
        (self.parts[1].least, self.parts[1].most)
    }

    /// Most jobs on a processor.
    pub(super) fn most(&self) -> u32 {
        self.parts[1].most
    }

    pub(super) fn add(&mut self, runs: &Runs) {
        runs.each(|from, to| self.change(from, to, |count| count + 1));
    }

    pub(super) fn remove(&mut self, runs: &Runs) {
        runs.each(|from, to| self.change(from, to, |count| count - 1));
    }

    /// Changes the processors from `from` up to but not including `to`.
    fn change(&mut self, from: usize, to: usize, by: impl Fn(u32) -> u32) {
        let (mut low, mut high) =
            (from.min(self.procs) + self.leaves, to.min(self.procs) + self.leaves);
        if low >= high {
            return;
        }
        let (first, last) = (low, high - 1);
        while low < high {
            if low & 1 == 1 {
                self.own(low, &by);
                low += 1;
            }
            if high & 1 == 1 {
                high -= 1;
                self.own(high, &by);
            }
            low /= 2;
            high /= 2;
        }
        self.renew_above(first);
        self.renew_above(last);
    }

    fn own(&mut self, part: usize, by: &impl Fn(u32) -> u32) {
        let Part { own, most, least } = &mut self.parts[part];
        (*own, *most, *least) = (by(*own), by(*most), by(*least));
    }

    fn renew_above(&mut self, leaf: usize) {
        let mut part = leaf / 2;
        while part > 0 {
            self.renew(part);
            part /= 2;
        }
    }

    fn renew(&mut self, part: usize) {
        let (left, right) = (self.parts[2 * part], self.parts[2 * part + 1]);
        let own = self.parts[part].own;
        let (most, least) = (left.most.max(right.most), left.least.min(right.least));
        self.parts[part] = Part { own, most: own + most, least: own + least };
    }
}

/// A job's processors as contiguous ranges: nearly always one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Runs {
    #[default]
    None,
    One(u32, u32),
    Many(Box<[(u32, u32)]>),
}

impl Runs {
    /// Of nodes in ascending order.
    pub(super) fn of(nodes: &[ProcessorId]) -> Self {
        let (Some(first), Some(last)) = (nodes.first(), nodes.last()) else { return Self::None };
        if (last.0 - first.0) as usize + 1 == nodes.len() {
            return Self::One(first.0, last.0 + 1);
        }
        let runs = nodes.chunk_by(|a, b| a.0 + 1 == b.0);
        Self::Many(runs.map(|run| (run[0].0, run[run.len() - 1].0 + 1)).collect())
    }

    fn each(&self, mut run: impl FnMut(usize, usize)) {
        match self {
            Self::None => {}
            Self::One(from, to) => run(*from as usize, *to as usize),
            Self::Many(runs) => {
                runs.iter().for_each(|&(from, to)| run(from as usize, to as usize));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Options;
    use crate::random::RandomStream;

    #[test]
    fn the_tree_agrees_with_counting() {
        for procs in [1u32, 2, 7, 64, 100] {
            let mut load = Load::new(&Machine::new(&Options::new(procs), 2));
            let mut counts = vec![0u32; procs as usize];
            let mut placed: Vec<Vec<ProcessorId>> = Vec::new();
            let mut draws = RandomStream::new(u64::from(procs), 0);
            for _ in 0..500 {
                if draws.below(2) == 0 || placed.is_empty() {
                    let chosen = (0..procs).filter(|_| draws.below(3) > 0);
                    let nodes: Vec<ProcessorId> = chosen.map(ProcessorId).collect();
                    load.add(&Runs::of(&nodes));
                    nodes.iter().for_each(|node| counts[node.0 as usize] += 1);
                    placed.push(nodes);
                } else {
                    let nodes = placed.swap_remove(draws.below(placed.len() as u64) as usize);
                    load.remove(&Runs::of(&nodes));
                    nodes.iter().for_each(|node| counts[node.0 as usize] -= 1);
                }
                let expected = (*counts.iter().min().unwrap(), *counts.iter().max().unwrap());
                assert_eq!(load.range(), expected);
            }
        }
    }
}
