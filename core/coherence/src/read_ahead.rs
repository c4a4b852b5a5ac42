//! Which pages a thread will want next, from those that it wanted last.
//!
//! Two patterns are known: pages one after another, and pages at the same distance from one to the next. All else brings one page at a
//! time.

use alloc::vec::Vec;
use core::ops::Range;

/// Most pages of one request.
pub const MOST_PAGES: u32 = 32;
/// A sequence of so many pages at once is long enough to ask for its next ones before they are wanted.
const SEQUENCE: u32 = 4;
/// Runs that are asked for before they are wanted.
const RUNS: u32 = 2;
/// After so many equal distances the next pages at that distance are asked for.
const REPEATS: u32 = 3;
/// Most pages at a distance that are asked for before they are wanted.
const MOST_APART: u32 = 8;

/// What one thread touched last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ReadAhead {
    /// The page that was touched last, and how many came with it.
    last: u32,
    came: u32,
    /// The distance to the one before, and how often it was the same.
    stride: i64,
    repeats: u32,
    /// What is asked for: pages before this one in a sequence; so many pages at a distance.
    asked_to: u32,
    asked_apart: u32,
}

impl Default for ReadAhead {
    fn default() -> ReadAhead {
        ReadAhead::new()
    }
}

impl ReadAhead {
    /// Nothing was touched yet.
    #[must_use]
    pub const fn new() -> ReadAhead {
        ReadAhead { last: u32::MAX, came: 0, stride: 0, repeats: 0, asked_to: 0, asked_apart: 0 }
    }

    /// Whether the page follows those that came last.
    fn follows(&self, page: u32) -> bool {
        self.came > 0 && self.last.checked_add(self.came) == Some(page)
    }

    /// A page is wanted that is not visible. Returns how many to bring, from this one on: twice as many as the last time in a
    /// sequence, one otherwise.
    #[must_use]
    pub fn wanted(&self, page: u32) -> u32 {
        if self.follows(page) { (2 * self.came).min(MOST_PAGES) } else { 1 }
    }

    /// These pages come now, the first of which was wanted. Returns the runs of pages to ask for beforehand, each of at most [`MOST_PAGES`].
    /// They count as asked for.
    #[must_use]
    pub fn comes(&mut self, page: u32, count: u32) -> Vec<Range<u32>> {
        let distance = i64::from(page) - i64::from(self.last);
        let sequence = self.follows(page);
        if distance == self.stride {
            self.repeats += 1;
            self.asked_apart = self.asked_apart.saturating_sub(1);
        } else {
            (self.stride, self.repeats, self.asked_apart) = (distance, 1, 0);
        }
        if !sequence {
            self.asked_to = 0;
        }
        (self.last, self.came) = (page, count);
        match (sequence, self.repeats >= REPEATS) {
            (true, _) if count >= SEQUENCE => self.next_runs(),
            (false, true) => self.pages_apart(),
            _ => Vec::new(),
        }
    }

    fn next_runs(&mut self) -> Vec<Range<u32>> {
        let (end, length) = (self.last.saturating_add(self.came), (2 * self.came).min(MOST_PAGES));
        let mut start = self.asked_to.max(end);
        self.asked_to = start.max(end.saturating_add(RUNS * length));
        let mut runs = Vec::new();
        while start < self.asked_to {
            // Whole runs: the rest comes with the next ones.
            let stop = start.saturating_add(length).min(self.asked_to);
            if stop - start < length && !runs.is_empty() {
                self.asked_to = start;
                break;
            }
            runs.push(start..stop);
            start = stop;
        }
        runs
    }

    fn pages_apart(&mut self) -> Vec<Range<u32>> {
        let count = (self.repeats - REPEATS + 2).min(MOST_APART);
        let asked = self.asked_apart;
        self.asked_apart = asked.max(count);
        let pages = (asked + 1..=count).filter_map(|step| {
            u32::try_from(i64::from(self.last) + self.stride * i64::from(step)).ok()
        });
        pages.filter_map(|page| Some(page..page.checked_add(1)?)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use alloc::vec;

    /// Touches pages as a program does that has whatever came before; returns the requests for wanted pages, and the pages that
    /// were asked for beforehand.
    fn run(pages: impl Iterator<Item = u32>) -> (u32, BTreeSet<u32>) {
        let (mut ahead, mut visible) = (ReadAhead::new(), BTreeSet::new());
        let (mut asked, mut requests) = (BTreeSet::new(), 0);
        for page in pages {
            if visible.contains(&page) {
                continue;
            }
            let mut count = ahead.wanted(page);
            if asked.contains(&page) {
                count = (page..page + count).take_while(|page| asked.contains(page)).count() as u32;
            } else {
                requests += 1;
            }
            visible.extend(page..page + count);
            for run in ahead.comes(page, count) {
                assert!(!run.is_empty() && run.end - run.start <= MOST_PAGES, "{run:?}");
                for page in run {
                    assert!(asked.insert(page), "page {page} is asked for twice");
                }
            }
        }
        (requests, asked)
    }

    #[test]
    fn a_sequence_is_asked_for_before_it_is_wanted() {
        let (requests, asked) = run(0..10_000);
        assert_eq!(requests, 3, "pages 0, 1 and 3 begin what was not asked for");
        let behind = asked.range(10_000..).count();
        assert!(behind <= (RUNS * MOST_PAGES) as usize + 31, "{behind} pages behind the end");
    }

    #[test]
    fn equal_distances_are_followed_in_both_directions() {
        for stride in [7i64, -7, 1000, -1, 2] {
            let pages = (0..100).map(|at| (200_000 + at * stride) as u32);
            let (requests, asked) = run(pages);
            assert_eq!(requests, 4, "stride {stride}: the third equal distance shows it");
            assert!(asked.len() <= 96 + MOST_APART as usize, "{} pages asked for", asked.len());
        }
    }

    #[test]
    fn other_pages_come_alone() {
        // Distances grow, so none is as the one before.
        let (requests, asked) = run((0..200u32).map(|at| at * at + at));
        assert_eq!((requests, asked), (200, BTreeSet::new()));
        // Short sequences far apart ask for little.
        let (_, asked) =
            run((0..50u32).flat_map(|at| (0..3).map(move |page| at * at * 100 + page)));
        assert_eq!(asked, BTreeSet::new());
    }

    #[test]
    fn the_ends_of_the_numbers_are_no_trouble() {
        let mut ahead = ReadAhead::new();
        for page in
            [u32::MAX - 40, u32::MAX - 39, u32::MAX - 38, u32::MAX - 2, u32::MAX - 1, u32::MAX]
        {
            let count = ahead.wanted(page).min(u32::MAX - page).max(1);
            let _ = ahead.comes(page, count);
        }
        let mut down = ReadAhead::new();
        let runs: Vec<_> = [50, 40, 30, 20, 10].map(|page| down.comes(page, 1)).concat();
        assert_eq!(runs, vec![10..11, 0..1]);
    }
}
