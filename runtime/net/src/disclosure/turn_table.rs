//! Table of the jobs that have their turns, in a node's page. The switching thread writes it, ranks and the daemon read it.
//!
//! A job keeps its place as long as it has its turn. So a reader that looks while the table changes never misses a job that
//! has its turn before and after the change.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::sync::{AtomicU32, AtomicU64};

/// The word of a job: its number plus one. 0 is a free place.
pub(crate) fn word(job: u64) -> u64 {
    job.saturating_add(1)
}

/// Puts exactly these jobs into the table; `used`: places in use are before this one. Jobs beyond its last place are left
/// out. By one thread only.
pub(crate) fn set(places: &[AtomicU64], used: &AtomicU32, jobs: impl Iterator<Item = u64> + Clone) {
    let mut end = (used.load(Relaxed) as usize).min(places.len());
    for place in &places[..end] {
        let old = place.load(Relaxed);
        if old != 0 && !jobs.clone().any(|job| word(job) == old) {
            place.store(0, Release);
        }
    }
    for job in jobs.map(word) {
        let mut free = None;
        let mut here = false;
        for (index, place) in places[..end].iter().enumerate() {
            match place.load(Relaxed) {
                0 if free.is_none() => free = Some(index),
                old => here |= old == job,
            }
        }
        let index = free.unwrap_or(end);
        if here || index >= places.len() {
            continue;
        }
        places[index].store(job, Release);
        end = end.max(index + 1);
        used.store(end as u32, Release);
    }
}

/// The words of the jobs that have their turns.
pub(crate) fn words<'t>(
    places: &'t [AtomicU64],
    used: &AtomicU32,
) -> impl Iterator<Item = u64> + use<'t> {
    let end = (used.load(Acquire) as usize).min(places.len());
    places[..end].iter().map(|place| place.load(Acquire)).filter(|&word| word != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sorted(places: &[AtomicU64], used: &AtomicU32) -> Vec<u64> {
        let mut all: Vec<u64> = words(places, used).collect();
        all.sort_unstable();
        all
    }

    proptest! {
        #[test]
        fn whoever_has_a_turn_is_in_the_table_at_the_same_place(
            steps in prop::collection::vec(prop::collection::btree_set(0_u64..12, 0..8), 1..20)
        ) {
            let places: Vec<AtomicU64> = (0..8).map(|_| AtomicU64::new(0)).collect();
            let used = AtomicU32::new(0);
            let mut before: Vec<u64> = Vec::new();
            for jobs in steps {
                set(&places, &used, jobs.iter().copied());
                let wanted: Vec<u64> = jobs.iter().map(|job| job + 1).collect();
                prop_assert_eq!(sorted(&places, &used), wanted);
                let now: Vec<u64> = places.iter().map(|place| place.load(Relaxed)).collect();
                let moved = before.iter().zip(&now).any(|(old, new)| {
                    *old != 0 && now.contains(old) && old != new
                });
                prop_assert!(!moved, "{:?} {:?}", before, now);
                before = now;
            }
        }
    }

    #[test]
    fn a_full_table_leaves_the_rest_out() {
        let places: Vec<AtomicU64> = (0..2).map(|_| AtomicU64::new(0)).collect();
        let used = AtomicU32::new(0);
        set(&places, &used, [4, 5, 6].into_iter());
        assert_eq!(sorted(&places, &used), [5, 6]);
        set(&places, &used, [6].into_iter());
        assert_eq!(sorted(&places, &used), [7]);
        // What is written there by nobody who should is not believed.
        used.store(u32::MAX, Relaxed);
        assert_eq!(sorted(&places, &used), [7]);
    }
}
