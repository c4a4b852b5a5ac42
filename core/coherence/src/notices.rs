//! Write notices: which rank wrote which pages in which interval, and who knows of it already.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use crate::{PageSet, Rank};

/// What a lock makes visible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Protocol {
    /// Scope consistency: what was written under the same lock (Iftode et al.; JIAJIA).
    #[default]
    Scope,
    /// Lazy release consistency: all that happened before, whatever lock it was written under (Keleher et al.; TreadMarks).
    Lazy,
}

/// The pages that a rank wrote between two releases.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Interval {
    /// Barriers that the writer had arrived at before.
    pub epoch: u32,
    /// Its number: among the releases of its lock (scope), or among the writer's in this epoch (lazy).
    pub number: u64,
    /// The rank that wrote.
    pub writer: Rank,
    /// What it wrote.
    pub pages: PageSet,
}

/// What a rank knows already of the intervals that a lock makes visible.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Knowledge {
    /// The epoch that the numbers belong to.
    pub epoch: u32,
    /// Scope: one number, the last release of the lock. Lazy: the last interval of each rank.
    pub numbers: Vec<u64>,
}

/// The releases of one lock, as the rank knows them that holds it, or held it last.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
struct ScopeLog {
    last: u64,
    intervals: Vec<Interval>,
}

/// What this rank knows.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct NoticeLog {
    protocol: Protocol,
    me: Rank,
    /// Barriers that this rank has arrived at.
    epoch: u32,
    scopes: BTreeMap<u32, ScopeLog>,
    /// Lazy: intervals by writer, and the last one's number in this epoch.
    intervals: Vec<Vec<Interval>>,
    times: Vec<u64>,
    /// The same of the epoch before, while this rank waits in the barrier that ends it: others' locks still tell of that one.
    before: Option<Vec<u64>>,
    /// What this rank wrote since it last arrived at a barrier, in closed intervals.
    written: PageSet,
    /// Scope: what was written while each lock has been held here, also if another release closed the interval.
    held: BTreeMap<u32, PageSet>,
}

impl NoticeLog {
    pub(crate) fn new(protocol: Protocol, me: Rank, ranks: u32) -> NoticeLog {
        let writers = if protocol == Protocol::Lazy { ranks as usize } else { 0 };
        NoticeLog {
            protocol,
            me,
            epoch: 0,
            scopes: BTreeMap::new(),
            intervals: vec![Vec::new(); writers],
            times: vec![0; writers],
            before: None,
            written: PageSet::new(),
            held: BTreeMap::new(),
        }
    }

    /// What to tell the holder of a lock when it is asked for.
    pub(crate) fn knowledge(&self, lock: u32) -> Knowledge {
        let (epoch, numbers) = match (self.protocol, &self.before) {
            (Protocol::Scope, _) => {
                (self.epoch, vec![self.scopes.get(&lock).map_or(0, |log| log.last)])
            }
            (Protocol::Lazy, Some(before)) => (self.epoch - 1, before.clone()),
            (Protocol::Lazy, None) => (self.epoch, self.times.clone()),
        };
        Knowledge { epoch, numbers }
    }

    /// Closes an interval: this rank wrote these pages, and its diffs are at their homes.
    pub(crate) fn close(&mut self, pages: PageSet) {
        self.written.union(&pages);
        match self.protocol {
            Protocol::Scope => self.held.values_mut().for_each(|held| held.union(&pages)),
            Protocol::Lazy if pages.is_empty() => {}
            Protocol::Lazy => {
                let me = self.me as usize;
                self.times[me] += 1;
                let number = self.times[me];
                let interval = Interval { epoch: self.epoch, number, writer: self.me, pages };
                supersede(&mut self.intervals[me], interval);
            }
        }
    }

    /// This rank has a lock from now on.
    pub(crate) fn acquire(&mut self, lock: u32) {
        if self.protocol == Protocol::Scope {
            self.held.insert(lock, PageSet::new());
        }
    }

    /// This rank gives a lock back, after it has closed its interval.
    pub(crate) fn release(&mut self, lock: u32) {
        if self.protocol == Protocol::Lazy {
            return;
        }
        let pages = self.held.remove(&lock).unwrap_or_default();
        let log = self.scopes.entry(lock).or_default();
        log.last += 1;
        let interval = Interval { epoch: self.epoch, number: log.last, writer: self.me, pages };
        supersede(&mut log.intervals, interval);
    }

    /// What somebody does not know yet who asks for a lock, and the number of its last release.
    pub(crate) fn unknown_to(&self, lock: u32, known: &Knowledge) -> (u64, Vec<Interval>) {
        match self.protocol {
            Protocol::Scope => {
                let Some(log) = self.scopes.get(&lock) else { return (0, Vec::new()) };
                let seen = known.numbers.first().copied().unwrap_or(0);
                let new = log.intervals.iter().filter(|interval| interval.number > seen);
                (log.last, new.cloned().collect())
            }
            Protocol::Lazy => {
                let is_new = |interval: &&Interval| {
                    interval.epoch > known.epoch
                        || (interval.epoch == known.epoch
                            && known.numbers.get(interval.writer as usize).copied().unwrap_or(0)
                                < interval.number)
                };
                (0, self.intervals.iter().flatten().filter(is_new).cloned().collect())
            }
        }
    }

    /// All that this rank knows of the epoch: what a condition makes visible.
    pub(crate) fn everything(&self) -> Vec<Interval> {
        match self.protocol {
            Protocol::Scope if self.written.is_empty() => Vec::new(),
            Protocol::Scope => {
                let pages = self.written.clone();
                vec![Interval { epoch: self.epoch, number: 0, writer: self.me, pages }]
            }
            Protocol::Lazy => self.intervals.iter().flatten().cloned().collect(),
        }
    }

    /// Learns of intervals with a lock, whose last release had the number `last`. Returns those that were not known.
    pub(crate) fn learn_lock(
        &mut self,
        lock: u32,
        last: u64,
        intervals: Vec<Interval>,
    ) -> Vec<Interval> {
        if self.protocol == Protocol::Lazy {
            return self.learn(intervals);
        }
        let log = self.scopes.entry(lock).or_default();
        let new: Vec<_> =
            intervals.into_iter().filter(|interval| interval.number > log.last).collect();
        log.last = log.last.max(last);
        for interval in &new {
            supersede(&mut log.intervals, interval.clone());
        }
        new
    }

    /// Learns of intervals that belong to no lock. Returns those that were not known.
    pub(crate) fn learn(&mut self, intervals: Vec<Interval>) -> Vec<Interval> {
        if self.protocol == Protocol::Scope {
            return intervals;
        }
        let mut new = Vec::new();
        for interval in intervals {
            let writer = interval.writer as usize;
            let time = match interval.epoch {
                epoch if epoch == self.epoch => self.times.get_mut(writer),
                epoch if epoch.checked_add(1) == Some(self.epoch) => {
                    self.before.as_mut().and_then(|before| before.get_mut(writer))
                }
                // It is told before this rank has arrived there, and once more by its number then.
                epoch if epoch > self.epoch => Some(&mut 0),
                _ => None,
            };
            let Some(time) = time.filter(|time| interval.number > **time) else { continue };
            *time = interval.number;
            supersede(&mut self.intervals[interval.writer as usize], interval.clone());
            new.push(interval);
        }
        new
    }

    /// This rank arrives at a barrier: takes what it wrote in the epoch that ends, and begins the next one.
    pub(crate) fn arrive(&mut self) -> PageSet {
        self.epoch += 1;
        let begun = vec![0; self.times.len()];
        self.before = Some(core::mem::replace(&mut self.times, begun));
        core::mem::take(&mut self.written)
    }

    /// All ranks have passed the barrier that this rank arrived at last: everybody knows what was written before.
    pub(crate) fn depart(&mut self) {
        self.before = None;
        let epoch = self.epoch;
        self.scopes.values_mut().for_each(|log| log.intervals.retain(|one| one.epoch >= epoch));
        self.intervals.iter_mut().for_each(|all| all.retain(|one| one.epoch >= epoch));
    }

    pub(crate) fn epoch(&self) -> u32 {
        self.epoch
    }
}

/// Adds an interval. What its writer wrote again is no part of its earlier ones any more, so a log is no longer than the pages of
/// each writer.
fn supersede(intervals: &mut Vec<Interval>, added: Interval) {
    for earlier in intervals.iter_mut().filter(|earlier| earlier.writer == added.writer) {
        earlier.pages.subtract(&added.pages);
    }
    intervals.retain(|interval| !interval.pages.is_empty());
    if !added.pages.is_empty() {
        intervals.push(added);
    }
}
