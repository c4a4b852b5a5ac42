//! Sets of pages, as ranges.

use alloc::vec::Vec;
use core::ops::Range;

/// Pages of the shared memory: sorted ranges that neither touch nor overlap.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct PageSet {
    ranges: Vec<Range<u32>>,
}

impl PageSet {
    /// No pages.
    #[must_use]
    pub const fn new() -> PageSet {
        PageSet { ranges: Vec::new() }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// How many pages there are.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.ranges.iter().map(|range| u64::from(range.end - range.start)).sum()
    }

    /// The ranges in ascending order.
    #[must_use]
    pub fn ranges(&self) -> &[Range<u32>] {
        &self.ranges
    }

    /// Whether a page belongs to it.
    #[must_use]
    pub fn contains(&self, page: u32) -> bool {
        let after = self.ranges.partition_point(|range| range.end <= page);
        self.ranges.get(after).is_some_and(|range| range.start <= page)
    }

    /// Adds the pages of a range. An empty range adds none.
    pub fn insert(&mut self, added: Range<u32>) {
        if added.is_empty() {
            return;
        }
        // Ranges that touch become one.
        let first = self.ranges.partition_point(|range| range.end < added.start);
        let last = self.ranges.partition_point(|range| range.start <= added.end);
        let (mut start, mut end) = (added.start, added.end);
        if first < last {
            start = start.min(self.ranges[first].start);
            end = end.max(self.ranges[last - 1].end);
        }
        self.ranges.splice(first..last, core::iter::once(start..end));
    }

    /// Adds all pages of another set.
    pub fn union(&mut self, other: &PageSet) {
        if self.is_empty() {
            self.ranges.clone_from(&other.ranges);
            return;
        }
        for range in &other.ranges {
            self.insert(range.clone());
        }
    }

    /// Takes out all pages of another set.
    pub fn subtract(&mut self, other: &PageSet) {
        let mut left = Vec::with_capacity(self.ranges.len());
        let mut taken = other.ranges.iter().peekable();
        for range in &self.ranges {
            let mut start = range.start;
            while let Some(hole) = taken.peek() {
                if hole.start >= range.end {
                    break;
                }
                if start < hole.start {
                    left.push(start..hole.start);
                }
                start = start.max(hole.end);
                if hole.end > range.end {
                    break;
                }
                taken.next();
            }
            if start < range.end {
                left.push(start..range.end);
            }
        }
        self.ranges = left;
    }
}

impl FromIterator<Range<u32>> for PageSet {
    fn from_iter<I: IntoIterator<Item = Range<u32>>>(ranges: I) -> PageSet {
        let mut set = PageSet::new();
        for range in ranges {
            set.insert(range);
        }
        set
    }
}
