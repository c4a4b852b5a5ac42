//! Bit string as a set of node numbers: a row of the matrix, or a job's nodes.

use alloc::vec::Vec;
use core::ops::Range;

use crate::ProcessorId;

const WORD: usize = 64;

/// Sets of different lengths compare and combine as if the shorter one continued with zeros.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bits(Vec<u64>);

fn place(node: ProcessorId) -> (usize, u64) {
    let number = node.0 as usize;
    (number / WORD, 1 << (number % WORD))
}

impl Bits {
    pub(crate) fn from_nodes(nodes: &[ProcessorId]) -> Self {
        let mut bits = Self::default();
        for &node in nodes {
            bits.insert(node);
        }
        bits
    }

    pub(crate) fn insert(&mut self, node: ProcessorId) {
        let (word, bit) = place(node);
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= bit;
    }

    pub(crate) fn remove(&mut self, node: ProcessorId) {
        let (word, bit) = place(node);
        if let Some(bits) = self.0.get_mut(word) {
            *bits &= !bit;
        }
    }

    pub(crate) fn contains(&self, node: ProcessorId) -> bool {
        let (word, bit) = place(node);
        self.0.get(word).is_some_and(|bits| bits & bit != 0)
    }

    /// Whether it has any node whose number is in `range`.
    pub(crate) fn any_of(&self, range: Range<u32>) -> bool {
        let (mut at, end) = (range.start as usize, range.end as usize);
        while at < end {
            let Some(&bits) = self.0.get(at / WORD) else { return false };
            let next = (at / WORD + 1) * WORD;
            let rest = bits >> (at % WORD);
            let wanted = next.min(end) - at;
            if rest != 0 && (rest.trailing_zeros() as usize) < wanted {
                return true;
            }
            at = next;
        }
        false
    }

    pub(crate) fn add_all(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine |= theirs;
        }
    }

    pub(crate) fn remove_all(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine &= !theirs;
        }
    }

    pub(crate) fn disjoint(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).all(|(mine, theirs)| mine & theirs == 0)
    }

    pub(crate) fn count(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// How many nodes are in `self` and not in `other`.
    pub(crate) fn count_without(&self, other: &Self) -> usize {
        let theirs = other.0.iter().copied().chain(core::iter::repeat(0));
        self.0.iter().zip(theirs).map(|(mine, theirs)| (mine & !theirs).count_ones() as usize).sum()
    }

    /// Ascending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = ProcessorId> + '_ {
        self.0.iter().enumerate().flat_map(|(index, &word)| {
            let mut rest = word;
            core::iter::from_fn(move || {
                let bit = (rest != 0).then(|| rest.trailing_zeros())?;
                rest &= rest - 1;
                u32::try_from(index * WORD).ok().map(|base| ProcessorId(base + bit))
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges() {
        let bits = Bits::from_nodes(&[ProcessorId(3), ProcessorId(64), ProcessorId(200)]);
        let step = if cfg!(miri) { 26 } else { 1 };
        for first in (0..260).step_by(step) {
            for end in (first..260).step_by(step) {
                let any = bits.iter().any(|node| (first..end).contains(&node.0));
                assert_eq!(bits.any_of(first..end), any, "{first}..{end}");
            }
        }
    }

    #[test]
    fn sets_of_different_lengths() {
        let mut long = Bits::from_nodes(&[ProcessorId(3), ProcessorId(64), ProcessorId(200)]);
        let short = Bits::from_nodes(&[ProcessorId(3), ProcessorId(5)]);
        assert!(!long.disjoint(&short) && !short.disjoint(&long));
        assert_eq!((long.count_without(&short), short.count_without(&long)), (2, 1));
        long.remove_all(&short);
        assert_eq!(long.iter().collect::<Vec<_>>(), [ProcessorId(64), ProcessorId(200)]);
        assert!(long.disjoint(&short) && short.disjoint(&long));
        let mut all = short;
        all.add_all(&long);
        all.remove(ProcessorId(5));
        all.remove(ProcessorId(999));
        assert_eq!(
            all.iter().collect::<Vec<_>>(),
            [ProcessorId(3), ProcessorId(64), ProcessorId(200)]
        );
        assert_eq!(all.count(), 3);
    }
}
