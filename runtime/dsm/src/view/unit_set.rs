//! Sets of units: two levels of bits, so that looking for members costs little where there are none.

use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

const BITS: u64 = u64::BITS as u64;

/// A set of units below a limit. Insertions and questions may run at the same time; removals exclude both, by the caller's
/// [`super::gate::Gate`].
///
/// Ordering is relaxed: the gate orders what happens under it, and a program that uses memory before another thread's
/// mapping of it is known only asks once more.
#[derive(Debug)]
pub(super) struct UnitSet {
    units: u64,
    /// A bit for each unit.
    members: Box<[AtomicU64]>,
    /// A bit for each word of `members`: set if a bit of it may be.
    summary: Box<[AtomicU64]>,
}

/// Zeros for so many bits. The allocator gives them as they come from the kernel, so parts that nobody uses take no memory.
fn words(bits: u64) -> Box<[AtomicU64]> {
    const { assert!(align_of::<u64>() == align_of::<AtomicU64>(), "kumi-dsm needs a 64-bit machine") };
    let count = usize::try_from(bits.div_ceil(BITS)).expect("words for units of the address space");
    let zeros = Box::into_raw(vec![0u64; count].into_boxed_slice());
    // SAFETY: the box that was just taken apart. An atomic has the size and the values of its number, and the same alignment
    // by the assertion above.
    unsafe { Box::from_raw(zeros as *mut [AtomicU64]) }
}

/// The bits of word `word` that are inside of a range.
fn mask(word: u64, range: &Range<u64>) -> u64 {
    let (first, end) = (word * BITS, (word + 1) * BITS);
    let low = range.start.clamp(first, end) - first;
    let high = range.end.clamp(first, end) - first;
    if low >= high { 0 } else { u64::MAX >> (BITS - (high - low)) << low }
}

impl UnitSet {
    pub(super) fn new(units: u64) -> UnitSet {
        let members = words(units);
        let summary = words(members.len() as u64);
        UnitSet { units, members, summary }
    }

    pub(super) fn contains(&self, unit: u64) -> bool {
        let word = self.members.get((unit / BITS) as usize);
        word.is_some_and(|word| word.load(Relaxed) & 1 << (unit % BITS) != 0)
    }

    pub(super) fn insert(&self, units: &Range<u64>) {
        if units.is_empty() {
            return;
        }
        for word in units.start / BITS..=(units.end - 1) / BITS {
            self.members[word as usize].fetch_or(mask(word, units), Relaxed);
            self.summary[(word / BITS) as usize].fetch_or(1 << (word % BITS), Relaxed);
        }
    }

    /// Nobody else may use the set meanwhile.
    pub(super) fn remove(&self, units: &Range<u64>) {
        let mut at = units.start;
        while let Some(first) = self.next_member(at, units.end) {
            let word = first / BITS;
            let left = self.members[word as usize].fetch_and(!mask(word, units), Relaxed);
            if left & !mask(word, units) == 0 {
                self.summary[(word / BITS) as usize].fetch_and(!(1 << (word % BITS)), Relaxed);
            }
            at = (word + 1) * BITS;
        }
    }

    /// The first member from `from` on below `end`.
    fn next_member(&self, from: u64, end: u64) -> Option<u64> {
        let mut at = from;
        while at < end {
            let word = at / BITS;
            let found = self.members[word as usize].load(Relaxed) & mask(word, &(at..end));
            if found != 0 {
                return Some(word * BITS + u64::from(found.trailing_zeros()));
            }
            at = self.next_word(word + 1)? * BITS;
        }
        None
    }

    /// The first word from `from` on that may have members.
    fn next_word(&self, from: u64) -> Option<u64> {
        let mut inside = u64::MAX << (from % BITS);
        for group in from / BITS..self.summary.len() as u64 {
            let found = self.summary[group as usize].load(Relaxed) & inside;
            if found != 0 {
                return Some(group * BITS + u64::from(found.trailing_zeros()));
            }
            inside = u64::MAX;
        }
        None
    }

    /// The first unit from `from` on that is no member, or `end`.
    fn next_absent(&self, from: u64, end: u64) -> u64 {
        let mut at = from;
        while at < end {
            let word = at / BITS;
            let absent = !self.members[word as usize].load(Relaxed) & mask(word, &(at..end));
            if absent != 0 {
                return word * BITS + u64::from(absent.trailing_zeros());
            }
            at = (word + 1) * BITS;
        }
        end
    }

    /// The members in a range as ranges that do not touch, in order.
    pub(super) fn runs(&self, within: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let (mut at, end) = (within.start, within.end.min(self.units));
        std::iter::from_fn(move || {
            let start = self.next_member(at, end)?;
            at = self.next_absent(start, end);
            Some(start..at)
        })
    }

    /// The units of a range that are no members, likewise.
    pub(super) fn gaps(&self, within: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let (mut at, end) = (within.start, within.end.min(self.units));
        std::iter::from_fn(move || {
            let start = self.next_absent(at, end);
            if start >= end {
                return None;
            }
            at = self.next_member(start, end).unwrap_or(end);
            Some(start..at)
        })
    }

    /// Ranges that contain all members of a range: members with fewer than `apart` others between them are in one of them.
    pub(super) fn clusters(
        &self,
        within: Range<u64>,
        apart: u64,
    ) -> impl Iterator<Item = Range<u64>> {
        let mut runs = self.runs(within);
        let mut next = runs.next();
        std::iter::from_fn(move || {
            let mut cluster = next.take()?;
            for run in runs.by_ref() {
                if run.start - cluster.end >= apart {
                    next = Some(run);
                    break;
                }
                cluster.end = run.end;
            }
            Some(cluster)
        })
    }

    /// From the first member of a range to behind the last one, for the price of looking from both ends.
    pub(super) fn span(&self, within: Range<u64>) -> Range<u64> {
        let Some(first) = self.next_member(within.start, within.end) else { return 0..0 };
        let mut end = within.end;
        while end > first {
            let word = (end - 1) / BITS;
            let found = self.members[word as usize].load(Relaxed) & mask(word, &(first..end));
            if found != 0 {
                return first..(word + 1) * BITS - u64::from(found.leading_zeros());
            }
            end = self.last_word(word).map_or(first, |word| (word + 1) * BITS).min(word * BITS);
        }
        first..first + 1
    }

    /// The last word before `before` that may have members.
    fn last_word(&self, before: u64) -> Option<u64> {
        let mut inside = !(u64::MAX << (before % BITS));
        for group in (0..=before / BITS).rev() {
            let word = self.summary.get(group as usize).map_or(0, |word| word.load(Relaxed));
            if word & inside != 0 {
                return Some((group + 1) * BITS - 1 - u64::from((word & inside).leading_zeros()));
            }
            inside = u64::MAX;
        }
        None
    }
}

/// Adds a range to `ranges`, of which those from `first` on are in order: one that touches or overlaps the last becomes
/// part of it.
pub(super) fn push(ranges: &mut Vec<Range<u64>>, first: usize, range: Range<u64>) {
    match ranges[first..].last_mut() {
        Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
        _ => ranges.push(range),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn runs_of(
        model: &BTreeSet<u64>,
        wanted: impl Fn(bool) -> bool,
        within: &Range<u64>,
    ) -> Vec<Range<u64>> {
        let mut runs = Vec::new();
        for unit in within.clone().filter(|unit| wanted(model.contains(unit))) {
            push(&mut runs, 0, unit..unit + 1);
        }
        runs
    }

    proptest! {
        #[test]
        fn it_is_the_set_that_a_tree_is(
            steps in prop::collection::vec((any::<bool>(), 0u64..9000, 0u64..300), 1..30),
            from in 0u64..9000,
            length in 0u64..9000,
        ) {
            const UNITS: u64 = 9000;
            let (set, mut model) = (UnitSet::new(UNITS), BTreeSet::new());
            for (add, start, length) in steps {
                let range = start..(start + length).min(UNITS);
                if add {
                    set.insert(&range);
                    model.extend(range);
                } else {
                    set.remove(&range);
                    model.retain(|unit| !range.contains(unit));
                }
            }
            let within = from..(from + length).min(UNITS);
            prop_assert_eq!(set.runs(within.clone()).collect::<Vec<_>>(), runs_of(&model, |is| is, &within));
            prop_assert_eq!(set.gaps(within.clone()).collect::<Vec<_>>(), runs_of(&model, |is| !is, &within));
            let mut inside = model.range(within.clone()).copied();
            let span = inside.next().map_or(0..0, |first| first..inside.next_back().unwrap_or(first) + 1);
            prop_assert_eq!(set.span(within.clone()), span);
            let mut clusters: Vec<Range<u64>> = Vec::new();
            for run in runs_of(&model, |is| is, &within) {
                match clusters.last_mut() {
                    Some(last) if run.start - last.end < 50 => last.end = run.end,
                    _ => clusters.push(run),
                }
            }
            prop_assert_eq!(set.clusters(within, 50).collect::<Vec<_>>(), clusters);
            prop_assert!((0..UNITS + 70).all(|unit| set.contains(unit) == model.contains(&unit)));
        }
    }
}
