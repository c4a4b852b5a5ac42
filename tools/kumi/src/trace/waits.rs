//! Waiting for locks and barriers.

use super::model::Trace;
use kumi_control::message::TraceKind;
use std::collections::{BTreeMap, BTreeSet};

/// A lock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockUse {
    /// How often it was taken.
    pub taken: u64,
    /// Nanoseconds that ranks waited for it, together.
    pub waited: u64,
    /// The longest wait.
    pub longest: u64,
    /// Nanoseconds that it was held.
    pub held: u64,
    /// Ranks that took it.
    pub ranks: BTreeSet<u32>,
    /// How often it went from one rank to another.
    pub handed_over: u64,
}

/// A lock that goes from one rank to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandOver {
    /// The lock.
    pub lock: u32,
    /// Who gave it back, and when.
    pub from: (u32, u64),
    /// Who got it, and when.
    pub to: (u32, u64),
}

/// Barriers together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BarrierUse {
    /// Barriers that all ranks passed, as far as is known.
    pub passed: u64,
    /// Nanoseconds that ranks waited, together.
    pub waited: u64,
    /// How much of it is due to ranks that came later than the first: what an even load would save.
    pub imbalance: u64,
    /// How often each rank came last.
    pub last: BTreeMap<u32, u64>,
    /// By rank: nanoseconds waited.
    pub by_rank: BTreeMap<u32, u64>,
}

/// Looks at all locks: their use by number, and the hand-overs by time.
pub fn locks(trace: &Trace) -> (BTreeMap<u32, LockUse>, Vec<HandOver>) {
    let mut locks: BTreeMap<u32, LockUse> = BTreeMap::new();
    // By lock: (time, whether it was taken, rank).
    let mut changes: BTreeMap<u32, Vec<(u64, bool, u32)>> = BTreeMap::new();
    for rank in &trace.ranks {
        for event in &rank.events {
            match event.kind {
                TraceKind::Lock => {
                    let lock = locks.entry(event.object).or_default();
                    lock.taken += 1;
                    lock.waited = lock.waited.saturating_add(event.duration);
                    lock.longest = lock.longest.max(event.duration);
                    lock.ranks.insert(rank.rank);
                    let end = event.time + event.duration;
                    changes.entry(event.object).or_default().push((end, true, rank.rank));
                }
                TraceKind::Unlock => {
                    let change = (event.time, false, rank.rank);
                    changes.entry(event.object).or_default().push(change);
                }
                _ => {}
            }
        }
    }
    let mut all = Vec::new();
    for (number, mut changes) in changes {
        // At the same time the one who gives it back goes first.
        changes.sort_unstable();
        let (held, handed) = follow(number, &changes);
        if let Some(lock) = locks.get_mut(&number) {
            (lock.held, lock.handed_over) = (held, handed.len() as u64);
        }
        all.extend(handed);
    }
    all.sort_by_key(|one| one.from.1);
    (locks, all)
}

/// Follows a lock through the ranks: how long it was held, and its hand-overs.
fn follow(lock: u32, changes: &[(u64, bool, u32)]) -> (u64, Vec<HandOver>) {
    let mut held: u64 = 0;
    let mut handed = Vec::new();
    let mut holder: Option<(u32, u64)> = None;
    let mut free: Option<(u32, u64)> = None;
    for &(time, taken, rank) in changes {
        if taken {
            if let Some(from) = free.filter(|(from, _)| *from != rank) {
                handed.push(HandOver { lock, from, to: (rank, time) });
            }
            (holder, free) = (Some((rank, time)), None);
        } else {
            if let Some((_, since)) = holder.filter(|(holder, _)| *holder == rank) {
                held = held.saturating_add(time - since);
            }
            (holder, free) = (None, Some((rank, time)));
        }
    }
    (held, handed)
}

/// Begin and wait of a rank at a barrier, and the rank.
type Passing = (u64, u64, u32);

/// Looks at all barriers with effect on memory and without.
pub fn barriers(trace: &Trace) -> BarrierUse {
    let mut passed: BTreeMap<(TraceKind, u32), Vec<Passing>> = BTreeMap::new();
    let mut result = BarrierUse::default();
    for rank in &trace.ranks {
        for event in &rank.events {
            if matches!(event.kind, TraceKind::Barrier | TraceKind::Wait) {
                let one = (event.time, event.duration, rank.rank);
                passed.entry((event.kind, event.object)).or_default().push(one);
                result.waited = result.waited.saturating_add(event.duration);
                let waited = result.by_rank.entry(rank.rank).or_default();
                *waited = waited.saturating_add(event.duration);
            }
        }
    }
    for ranks in passed.values().filter(|ranks| ranks.len() == trace.ranks.len()) {
        result.passed += 1;
        let Some(&(last, _, rank)) = ranks.iter().max() else { continue };
        if ranks.len() > 1 {
            *result.last.entry(rank).or_default() += 1;
        }
        let early = ranks.iter().map(|(begin, waited, _)| (last - begin).min(*waited));
        result.imbalance = early.fold(result.imbalance, u64::saturating_add);
    }
    result
}

#[cfg(test)]
mod tests {
    use super::super::model::tests::{event, trace};
    use super::*;

    #[test]
    fn a_lock_goes_from_rank_to_rank() {
        let take = |begin, waited| event(TraceKind::Lock, (begin, waited), 3);
        let give = |time| event(TraceKind::Unlock, (time, 0), 3);
        let first = vec![take(0, 0), give(10), take(11, 0), give(12)];
        let second = vec![take(5, 15), give(40)];
        let (locks, handed) = locks(&trace(vec![first, second]));
        let lock = &locks[&3];
        assert_eq!((lock.taken, lock.waited, lock.longest), (3, 15, 15));
        assert_eq!((lock.held, lock.handed_over, lock.ranks.len()), (10 + 1 + 20, 1, 2));
        assert_eq!(handed, [HandOver { lock: 3, from: (0, 12), to: (1, 20) }]);
    }

    #[test]
    fn locks_that_were_never_taken_or_taken_twice_do_no_harm() {
        let lost = vec![event(TraceKind::Unlock, (0, 0), 1), event(TraceKind::Unlock, (1, 0), 1)];
        let twice = vec![event(TraceKind::Lock, (0, 5), 1), event(TraceKind::Lock, (6, 5), 1)];
        let (locks, handed) = locks(&trace(vec![lost, twice]));
        assert_eq!((locks[&1].taken, locks[&1].held, handed.len()), (2, 0, 1));
    }

    #[test]
    fn who_comes_last_makes_the_others_wait() {
        let pass = |begin, waited, number| event(TraceKind::Barrier, (begin, waited), number);
        let first = vec![pass(0, 100, 0), pass(200, 10, 1)];
        let second = vec![pass(95, 6, 0), pass(150, 60, 1), pass(300, 5, 2)];
        let barriers = barriers(&trace(vec![first, second]));
        assert_eq!((barriers.passed, barriers.waited), (2, 100 + 10 + 6 + 60 + 5));
        assert_eq!(barriers.last, BTreeMap::from([(0, 1), (1, 1)]));
        assert_eq!(barriers.imbalance, 95 + 50, "the rest is the cost of the barrier itself");
        assert_eq!(barriers.by_rank, BTreeMap::from([(0, 110), (1, 71)]));
    }
}
