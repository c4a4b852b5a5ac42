//! Which pages to fetch at an acquire, before the program touches them.
//!
//! A page that a rank used since its last fetch, and that others have written now, is likely to be used again. How many such pages are
//! fetched follows what became of the ones before.

use alloc::vec::Vec;
use core::ops::Range;

use crate::PageSet;
use crate::read_ahead::MOST_PAGES;

/// Pages in the beginning, and the least: with these it is found out whether it pays again.
const LEAST: u32 = 8;
/// The most: 4 MB of pages of 4 KB.
const MOST: u32 = 1024;

/// How many pages are fetched at an acquire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FetchBudget {
    pages: u32,
}

impl Default for FetchBudget {
    fn default() -> FetchBudget {
        FetchBudget { pages: 4 * LEAST }
    }
}

impl FetchBudget {
    /// The program used so many pages that were fetched beforehand.
    pub fn useful(&mut self, pages: u32) {
        self.pages = self.pages.saturating_add(pages).min(MOST);
    }

    /// So many were fetched for nothing. One of these counts as two of the others, so what helps in a third of all cases fades.
    pub fn useless(&mut self, pages: u32) {
        self.pages = self.pages.saturating_sub(pages.saturating_mul(2)).max(LEAST);
    }

    /// The runs of pages to fetch of those that were in use, each of at most [`MOST_PAGES`].
    #[must_use]
    pub fn runs(&self, used: &PageSet) -> Vec<Range<u32>> {
        let mut left = self.pages;
        let mut runs = Vec::new();
        for range in used.ranges() {
            let mut start = range.start;
            while start < range.end && left > 0 {
                let count = (range.end - start).min(MOST_PAGES).min(left);
                runs.push(start..start + count);
                (start, left) = (start + count, left - count);
            }
        }
        runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn the_budget_follows_what_was_of_use() {
        let many: PageSet = core::iter::once(0..5000).collect();
        let pages = |budget: &FetchBudget| {
            budget.runs(&many).iter().map(|run| run.end - run.start).sum::<u32>()
        };
        let mut budget = FetchBudget::default();
        assert_eq!(pages(&budget), 32);
        budget.useful(32);
        assert_eq!(pages(&budget), 64);
        for _ in 0..100 {
            budget.useful(64);
        }
        assert_eq!(pages(&budget), MOST);
        for _ in 0..100 {
            budget.useless(64);
        }
        assert_eq!(pages(&budget), LEAST);
    }

    #[test]
    fn runs_are_those_of_the_pages_in_use() {
        let used: PageSet = [3..5, 10..11, 20..60].into_iter().collect();
        let budget = FetchBudget { pages: 40 };
        assert_eq!(budget.runs(&used), vec![3..5, 10..11, 20..52, 52..57]);
        assert_eq!(budget.runs(&PageSet::new()), vec![]);
    }
}
