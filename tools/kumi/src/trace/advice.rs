//! What the figures suggest to change, in words.

use super::model::{Trace, allocation_name};
use super::pages::{PageUse, Pages};
use super::waits::{BarrierUse, LockUse};
use std::collections::BTreeMap;

/// Fetches and diffs of an allocation from which on its placement matters.
const FEWEST_TRANSFERS: u64 = 16;
/// Of the pages with traffic, the share (of 100) that one node alone must use for a placement to be advised.
const OF_ONE_NODE: u64 = 60;
/// Share of the ranks' time (of 100) that waiting for a lock or for late ranks must take.
const OF_THE_TIME: u64 = 5;

/// All figures of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Pages.
    pub pages: Pages,
    /// Locks by number.
    pub locks: BTreeMap<u32, LockUse>,
    /// Barriers.
    pub barriers: BarrierUse,
}

/// Advice, the most important kind first; each a sentence.
pub fn advice(trace: &Trace, figures: &Figures) -> Vec<String> {
    let mut all = Vec::new();
    all.extend(incomplete(trace, figures));
    for allocation in &trace.allocations {
        let range = allocation.first..allocation.first.saturating_add(allocation.pages);
        let name = allocation_name(allocation);
        let pages: Vec<_> = figures.pages.by_number.range(range).collect();
        all.extend(placement(trace, &name, &pages));
        all.extend(false_sharing(trace, &name, &pages));
    }
    all.extend(figures.locks.iter().filter_map(|(lock, used)| contention(trace, *lock, used)));
    all.extend(imbalance(trace, &figures.barriers));
    all
}

fn incomplete(trace: &Trace, figures: &Figures) -> Option<String> {
    let lost: u64 = trace.ranks.iter().map(|rank| rank.lost).fold(0, u64::saturating_add);
    if figures.pages.partly {
        return Some(
            "some ranks claim more pages than can be looked at; the figures are parts of the truth"
                .to_owned(),
        );
    }
    (lost > 0).then(|| {
        format!("{lost} events are lost, and all figures are of the rest: keep more with `kumi run --trace=EVENTS`")
    })
}

fn percent(part: u64, whole: u64) -> u64 {
    let (part, whole) = (u128::from(part), u128::from(whole.max(1)));
    u64::try_from((100 * part / whole).min(100)).unwrap_or(100)
}

/// Better homes for the pages of an allocation, if nearly all of them are used by one node each and live on another.
fn placement(trace: &Trace, name: &str, pages: &[(&u32, &PageUse)]) -> Option<String> {
    let moved: Vec<_> = pages.iter().filter(|(_, page)| page.traffic() > 0).collect();
    let transfers: u64 = moved.iter().map(|(_, page)| page.traffic()).sum();
    if transfers < FEWEST_TRANSFERS {
        return None;
    }
    // The home's own reads cost nothing and are not recorded; its writes are.
    let away = moved.iter().filter(|(_, page)| {
        let home = page.home.and_then(|rank| trace.node_of(rank));
        only_user(page).is_some_and(|only| home != Some(only))
    });
    let share = percent(away.count() as u64, moved.len() as u64);
    if share < OF_ONE_NODE {
        return None;
    }
    // Also those that are at the right place.
    let nodes: Vec<_> = pages.iter().filter_map(|(_, page)| only_user(page)).collect();
    let rising = nodes.is_sorted();
    let place = match (nodes.first(), rising, nodes.first() == nodes.last()) {
        (Some(node), true, true) => {
            let rank = trace.ranks.iter().find(|rank| rank.node == *node)?.rank;
            format!("at rank {rank}")
        }
        (_, true, false) => "by blocks".to_owned(),
        _ => "by first touch".to_owned(),
    };
    let what = if moved.iter().all(|(_, page)| page.diffs[0] == 0) { "read" } else { "used" };
    Some(format!(
        "place `{name}` {place}: {share} % of the pages that move are {what} by one node only, and their home is another"
    ))
}

/// The node that uses a page, if there is only one.
fn only_user(page: &PageUse) -> Option<u32> {
    let users = page.users();
    users.first().copied().filter(|_| users.len() == 1)
}

fn false_sharing(trace: &Trace, name: &str, pages: &[(&u32, &PageUse)]) -> Option<String> {
    let shared: Vec<_> = pages.iter().filter(|(_, page)| page.shared_writes > 0).collect();
    let transfers: u64 = shared.iter().map(|(_, page)| page.traffic()).sum();
    if shared.is_empty() || transfers < FEWEST_TRANSFERS {
        return None;
    }
    let times: u64 = shared.iter().map(|(_, page)| page.shared_writes).sum();
    Some(format!(
        "give each node whole pages of `{name}`: {} of its pages of {} bytes are written by several nodes between two barriers, {times} times, which cost {transfers} transfers",
        shared.len(),
        trace.page_bytes,
    ))
}

/// Nanoseconds of all ranks together.
fn time_of_ranks(trace: &Trace) -> u64 {
    trace.length.saturating_mul(trace.ranks.len() as u64)
}

fn contention(trace: &Trace, lock: u32, used: &LockUse) -> Option<String> {
    let share = percent(used.waited, time_of_ranks(trace));
    if share < OF_THE_TIME || used.ranks.len() < 2 {
        return None;
    }
    let remedy = match used.held > trace.length / 2 {
        true => "hold it for a shorter time, or use several locks",
        false => "take it less often: each change of holder costs messages",
    };
    Some(format!(
        "ranks wait for lock {lock} in {share} % of their time, and it changes its holder {} times: {remedy}",
        used.handed_over
    ))
}

fn imbalance(trace: &Trace, barriers: &BarrierUse) -> Option<String> {
    let share = percent(barriers.imbalance, time_of_ranks(trace));
    if share < OF_THE_TIME {
        return None;
    }
    let (rank, times) = barriers.last.iter().max_by_key(|(_, times)| **times)?;
    let often = percent(*times, barriers.passed);
    if often > 50 && trace.ranks.len() > 2 || often > 75 {
        return Some(format!(
            "give rank {rank} less work or nearer pages: it comes last to {often} % of the barriers, and ranks wait for late ones in {share} % of their time"
        ));
    }
    Some(format!(
        "even the work out between barriers: ranks wait for late ones in {share} % of their time"
    ))
}

#[cfg(test)]
mod tests {
    use super::super::model::tests::{event, trace};
    use super::super::{pages, waits};
    use super::*;
    use kumi_control::message::{TraceEvent, TraceKind};

    fn said(trace: &Trace) -> Vec<String> {
        let figures = Figures {
            pages: pages::pages(trace),
            locks: waits::locks(trace).0,
            barriers: waits::barriers(trace),
        };
        advice(trace, &figures)
    }

    fn fetch(time: u64, page: u32, home: u32) -> TraceEvent {
        TraceEvent { peer: Some(home), ..event(TraceKind::Fetch, (time, 1), page) }
    }

    /// A rank that fetches these pages, each twice.
    fn reader(pages: std::ops::Range<u32>, home: u32) -> Vec<TraceEvent> {
        (0..2)
            .flat_map(|_| pages.clone())
            .zip(0..)
            .map(|(page, time)| fetch(time, page, home))
            .collect()
    }

    #[test]
    fn blocks_are_advised_where_each_node_reads_its_own() {
        let text = said(&trace(vec![vec![], reader(0..20, 0), reader(20..40, 0)]));
        assert_eq!(text.len(), 1, "{text:?}");
        assert!(text[0].starts_with("place `a` by blocks: 100 % of the pages"), "{text:?}");
    }

    #[test]
    fn one_rank_is_advised_where_one_node_reads_all() {
        let text = said(&trace(vec![vec![], reader(0..20, 0)]));
        assert!(text[0].starts_with("place `a` at rank 1: 100 %"), "{text:?}");
        let scattered: Vec<Vec<_>> = [0, 1]
            .map(|odd| reader(0..40, 0).into_iter().filter(|one| one.object % 2 == odd).collect())
            .into();
        let text = said(&trace([vec![vec![]], scattered].concat()));
        assert!(text[0].starts_with("place `a` by first touch"), "{text:?}");
    }

    #[test]
    fn nothing_is_advised_where_all_nodes_read_or_nothing_moves() {
        assert!(said(&trace(vec![vec![], reader(0..20, 0), reader(0..20, 0)])).is_empty());
        assert!(said(&trace(vec![vec![], reader(0..3, 0)])).is_empty());
        assert!(said(&trace(vec![])).is_empty());
    }

    #[test]
    fn false_sharing_is_told_with_its_price() {
        let write = |time| event(TraceKind::Written, (time, 0), 3);
        let barrier =
            |number: u32| event(TraceKind::Barrier, (u64::from(number) * 10 + 5, 0), number);
        let rank = |home| {
            let round = |number: u32| {
                let begin = u64::from(number) * 10;
                vec![fetch(begin, 3, home), write(begin + 2), barrier(number)]
            };
            (0..10).flat_map(round).collect::<Vec<_>>()
        };
        let text = said(&trace(vec![rank(1), rank(0)]));
        let expected = "give each node whole pages of `a`: 1 of its pages of 4096 bytes are written by several nodes between two barriers, 10 times, which cost 20 transfers";
        assert_eq!(text, [expected]);
    }

    #[test]
    fn waits_are_told_by_their_share_of_the_time() {
        let lock = |begin, waited| event(TraceKind::Lock, (begin, waited), 9);
        let give = |time| event(TraceKind::Unlock, (time, 0), 9);
        let text = said(&trace(vec![vec![lock(0, 0), give(80)], vec![lock(0, 80), give(100)]]));
        assert!(text[0].starts_with("ranks wait for lock 9 in 40 % of their time"), "{text:?}");
        assert!(text[0].ends_with("use several locks"), "{text:?}");
        let pass = |begin, waited| event(TraceKind::Barrier, (begin, waited), 0);
        let text = said(&trace(vec![vec![pass(0, 100)], vec![pass(90, 10)]]));
        assert!(
            text[0].starts_with("give rank 1 less work or nearer pages: it comes last to 100 %"),
            "{text:?}"
        );
    }

    #[test]
    fn a_trace_with_gaps_says_so_first() {
        let mut trace = trace(vec![vec![], reader(0..20, 0)]);
        trace.ranks[1].lost = 5;
        assert!(said(&trace)[0].starts_with("5 events are lost"));
    }
}
