//! Processor times of a job's threads, from the system's tables.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use super::detector::{Activity, IdleAllowance};
use crate::process_table::{MOST_THREADS, stat, threads_of};

/// The threads of a job and the processor time that each had used at the last look, in nanoseconds.
#[derive(Debug, Default)]
pub(super) struct ThreadTimes {
    used: BTreeMap<i32, u64>,
    /// All were looked at last time.
    known: bool,
    /// The one that had used too much, with its process: looked at first, and if it goes on then alone.
    busy: Option<(i32, i32)>,
    /// Nanoseconds that all threads used in intervals that were skipped.
    skipped: u64,
}

/// How much may be skipped, as a multiple of what one thread may use.
const MOST_SKIPPED: u64 = 4;

impl ThreadTimes {
    /// Whether this look need not go to them, because all that there are and were have used so little; now and then it does
    /// all the same.
    pub(super) fn may_skip(&mut self, allowance: &IdleAllowance, grown: u64) -> bool {
        let skipped = self.skipped.saturating_add(grown);
        let may = self.known
            && grown <= allowance.each
            && skipped <= allowance.each.saturating_mul(MOST_SKIPPED);
        if may {
            self.skipped = skipped;
        }
        may
    }

    /// What they have done since the last look, those in `exempt` aside; something, if that cannot be said yet. `grown`: what
    /// all processes there are and were have used, if it is known.
    pub(super) fn look(
        &mut self,
        allowance: &IdleAllowance,
        exempt: &BTreeSet<i32>,
        grown: Option<u64>,
        processes: &dyn Fn() -> BTreeSet<i32>,
    ) -> Activity {
        if let Some((process, thread)) = self.busy.filter(|(_, thread)| !exempt.contains(thread))
            && let Some(now) = processor_time(process, thread)
        {
            let before = self.used.insert(thread, now);
            let more = before.map_or(0, |before| now.saturating_sub(before));
            let doing = allowance.detector(more, more, 0);
            if doing != Activity::None {
                self.known = false;
                return doing;
            }
        }
        let mut used = BTreeMap::new();
        let (mut one, mut all, mut unexempt) = (0, 0_u64, 0_u64);
        self.busy = None;
        for process in processes() {
            let thread_times = threads_of(process);
            if used.len() + thread_times.len() > MOST_THREADS {
                (self.known, self.busy) = (false, None);
                self.used.clear();
                return Activity::Busy;
            }
            for thread in thread_times {
                let Some(now) = processor_time(process, thread) else { continue };
                used.insert(thread, now);
                let more = now.saturating_sub(self.used.get(&thread).copied().unwrap_or(0));
                all = all.saturating_add(more);
                if exempt.contains(&thread) {
                    continue;
                }
                unexempt = unexempt.saturating_add(more);
                if more > one {
                    one = more;
                    self.busy = Some((process, thread));
                }
            }
        }
        self.used = used;
        // What nobody who is there has used was used by somebody who has ended.
        let ended = grown.map_or(0, |grown| grown.saturating_sub(all));
        let (one, unexempt) = (one.max(ended), unexempt.saturating_add(ended));
        let doing = allowance.detector(one, unexempt, std::mem::take(&mut self.skipped));
        if doing == Activity::None {
            self.busy = None;
        }
        if std::mem::replace(&mut self.known, true) { doing } else { Activity::Busy }
    }
}

/// Nanoseconds that a thread has used; `None` if it has ended.
fn processor_time(process: i32, thread: i32) -> Option<u64> {
    match fs::read_to_string(format!("/proc/{process}/task/{thread}/schedstat")) {
        Ok(text) => text.split(' ').next()?.parse().ok(),
        // Not in every kernel.
        Err(_) => stat(process, thread).map(|stat| stat.used()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process_table::test::{Process, until};

    const LITTLE: IdleAllowance =
        IdleAllowance { each: 1_000_000, all: 10_000_000, little: 2_000_000 };

    #[test]
    fn a_process_that_reads_is_told_from_one_that_computes() {
        let (reads, computes) = (Process::shell("read x"), Process::shell("while :; do :; done"));
        for (process, busy) in [(&reads, false), (&computes, true)] {
            let mut thread_times = ThreadTimes::default();
            let mut look = |exempt: &BTreeSet<i32>| {
                thread_times.look(&LITTLE, exempt, None, &|| process.set()) == Activity::Busy
            };
            assert!(look(&BTreeSet::new()), "nothing is known yet");
            until(busy, || look(&BTreeSet::new()));
            until(false, || look(&process.set()));
        }
    }

    #[test]
    fn what_has_ended_is_missed() {
        let reads = Process::shell("read x");
        let mut thread_times = ThreadTimes::default();
        let mut look = |grown| {
            thread_times.look(&LITTLE, &BTreeSet::new(), Some(grown), &|| reads.set())
                != Activity::None
        };
        look(0);
        until(false, || look(0));
        assert!(look(50_000_000), "nobody who is there has used so much");
        assert!(!look(1_000));
    }

    #[test]
    fn little_is_skipped_until_it_is_much() {
        let mut thread_times = ThreadTimes::default();
        assert!(!thread_times.may_skip(&LITTLE, 0), "nothing is known yet");
        thread_times.look(&LITTLE, &BTreeSet::new(), None, &BTreeSet::new);
        assert!(!thread_times.may_skip(&LITTLE, LITTLE.each + 1));
        for _ in 0..MOST_SKIPPED {
            assert!(thread_times.may_skip(&LITTLE, LITTLE.each));
        }
        assert!(!thread_times.may_skip(&LITTLE, LITTLE.each));
        thread_times.look(&LITTLE, &BTreeSet::new(), None, &BTreeSet::new);
        assert!(thread_times.may_skip(&LITTLE, LITTLE.each));
    }

    #[test]
    fn times_of_threads_that_are_there_are_known() {
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(processor_time(own, own).is_some());
        assert!(processor_time(own, i32::MAX).is_none());
    }
}
