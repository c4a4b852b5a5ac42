//! Traffic of pages, and pages that several nodes write.

use super::model::Trace;
use kumi_control::message::{TraceEvent, TraceKind};
use std::collections::{BTreeMap, BTreeSet};

/// Most pages of events that are looked at one by one, so that a rank that lies costs seconds at most.
const MOST_STEPS: u64 = 1 << 23;

/// What happened to a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageUse {
    /// How often each node fetched it.
    pub fetches: BTreeMap<u32, u64>,
    /// In how many intervals each node wrote it.
    pub writes: BTreeMap<u32, u64>,
    /// Diffs that went home, and their bytes.
    pub diffs: [u64; 2],
    /// The last rank that it was fetched from, or that its diffs went to.
    pub home: Option<u32>,
    /// Intervals between barriers in which several nodes wrote it, not all of them under the same lock.
    pub shared_writes: u64,
}

impl PageUse {
    /// Fetches by all nodes.
    pub fn fetched(&self) -> u64 {
        self.fetches.values().sum()
    }

    /// Fetches and diffs.
    pub fn traffic(&self) -> u64 {
        self.fetched() + self.diffs[0]
    }

    /// Nodes that read or wrote it.
    pub fn users(&self) -> BTreeSet<u32> {
        self.fetches.keys().chain(self.writes.keys()).copied().collect()
    }
}

/// All pages of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pages {
    /// By number; only pages of which something is known.
    pub by_number: BTreeMap<u32, PageUse>,
    /// There was too much to count all.
    pub partly: bool,
}

/// The nodes that wrote a page between two barriers, each under these locks, or under none.
type WritingNodes = BTreeMap<u32, BTreeSet<Option<u32>>>;
/// By page and interval.
type Writers = BTreeMap<(u32, u64), WritingNodes>;

/// Counts what happened to each page.
pub fn pages(trace: &Trace) -> Pages {
    pages_in_steps(trace, MOST_STEPS)
}

fn pages_in_steps(trace: &Trace, mut steps: u64) -> Pages {
    let mut pages = Pages::default();
    let mut writers = Writers::new();
    for rank in &trace.ranks {
        let mut interval = 0;
        let locks = locks_of_writes(&rank.events);
        for (at, event) in rank.events.iter().enumerate() {
            let count = u64::from(event.amount);
            let of_pages = matches!(event.kind, TraceKind::Fetch | TraceKind::Written);
            if of_pages && count > steps {
                pages.partly = true;
                continue;
            }
            match event.kind {
                TraceKind::Fetch => {
                    steps -= count;
                    for page in event.object..event.object + event.amount {
                        let entry = pages.by_number.entry(page).or_default();
                        *entry.fetches.entry(rank.node).or_default() += 1;
                        entry.home = event.peer;
                    }
                }
                TraceKind::Written => {
                    steps -= count;
                    for page in event.object..event.object + event.amount {
                        let entry = pages.by_number.entry(page).or_default();
                        *entry.writes.entry(rank.node).or_default() += 1;
                        let all = writers.entry((page, interval)).or_default();
                        all.entry(rank.node).or_default().insert(locks[at]);
                    }
                }
                TraceKind::Diff => {
                    let entry = pages.by_number.entry(event.object).or_default();
                    entry.diffs[0] += 1;
                    entry.diffs[1] += count;
                    entry.home = event.peer;
                }
                TraceKind::Barrier => interval = u64::from(event.object) + 1,
                _ => {}
            }
        }
    }
    for ((page, _), nodes) in writers {
        if nodes.len() > 1
            && !have_a_common_lock(&nodes)
            && let Some(entry) = pages.by_number.get_mut(&page)
        {
            entry.shared_writes += 1;
        }
    }
    pages
}

/// Whether one lock protects the writes of all nodes: then they share what they write, and not only the page.
fn have_a_common_lock(nodes: &WritingNodes) -> bool {
    let mut all = nodes.values().flatten();
    let first = all.next().copied().flatten();
    first.is_some() && all.all(|lock| *lock == first)
}

/// By event: the lock that the thread gave back after it. Writes are recorded just before the release that makes them known.
fn locks_of_writes(events: &[TraceEvent]) -> Vec<Option<u32>> {
    let mut locks = vec![None; events.len()];
    // By thread: what it releases next.
    let mut next: BTreeMap<u8, Option<u32>> = BTreeMap::new();
    for (at, event) in events.iter().enumerate().rev() {
        match event.kind {
            TraceKind::Unlock => {
                next.insert(event.thread, Some(event.object));
            }
            TraceKind::Barrier | TraceKind::SetCondition => {
                next.insert(event.thread, None);
            }
            TraceKind::Written => locks[at] = next.get(&event.thread).copied().flatten(),
            _ => {}
        }
    }
    locks
}

#[cfg(test)]
mod tests {
    use super::super::model::tests::{event, trace};
    use super::*;

    fn written(time: u64, page: u32) -> TraceEvent {
        event(TraceKind::Written, (time, 0), page)
    }

    fn barrier(time: u64, number: u32) -> TraceEvent {
        event(TraceKind::Barrier, (time, 1), number)
    }

    #[test]
    fn fetches_and_diffs_are_counted_by_page_and_node() {
        let fetch = TraceEvent { peer: Some(0), amount: 3, ..event(TraceKind::Fetch, (1, 5), 10) };
        let again = TraceEvent { time: 20, amount: 1, ..fetch };
        let diff = TraceEvent { peer: Some(0), amount: 64, ..event(TraceKind::Diff, (30, 0), 11) };
        let pages = pages(&trace(vec![vec![], vec![fetch, again, diff]]));
        let fetched: Vec<_> =
            pages.by_number.iter().map(|(page, one)| (*page, one.fetched())).collect();
        assert_eq!(fetched, [(10, 2), (11, 1), (12, 1)]);
        assert_eq!(pages.by_number[&11].diffs, [1, 64]);
        assert_eq!((pages.by_number[&11].home, pages.by_number[&11].traffic()), (Some(0), 2));
    }

    #[test]
    fn a_page_that_nodes_write_in_the_same_interval_is_shared() {
        let first = vec![written(1, 5), barrier(2, 0), written(5, 6), barrier(6, 1)];
        let second = vec![written(1, 5), barrier(2, 0), barrier(6, 1), written(7, 6)];
        let pages = pages(&trace(vec![first, second]));
        assert_eq!(pages.by_number[&5].shared_writes, 1);
        assert_eq!(pages.by_number[&6].shared_writes, 0, "written in different intervals");
    }

    #[test]
    fn what_one_lock_protects_is_not_shared_falsely() {
        let under =
            |lock, time| vec![written(time, 5), event(TraceKind::Unlock, (time + 1, 0), lock)];
        let shared = |traces| pages(&trace(traces)).by_number[&5].shared_writes;
        assert_eq!(shared(vec![under(1, 10), under(1, 20)]), 0);
        assert_eq!(shared(vec![under(1, 10), under(2, 20)]), 1);
        let mixed = [under(1, 10), vec![written(30, 5), barrier(31, 0)]].concat();
        assert_eq!(shared(vec![mixed, under(1, 20)]), 1);
    }

    #[test]
    fn a_rank_that_lies_costs_bounded_time() {
        let huge = TraceEvent { amount: 1 << 10, ..written(1, 0) };
        let events = (0..200).map(|time| TraceEvent { time, ..huge }).collect();
        let pages = pages_in_steps(&trace(vec![events]), 10 << 10);
        assert!(pages.partly && pages.by_number.len() == 1 << 10);
        assert_eq!(pages.by_number[&0].writes, BTreeMap::from([(0, 10)]));
    }
}
