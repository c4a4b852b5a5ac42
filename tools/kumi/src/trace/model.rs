//! A job's trace as the nodes tell it, checked: ranks can have written anything.

use kumi_control::message::{TraceAllocation, TraceEvent, TraceKind, TraceSample};
use std::collections::BTreeMap;

/// Latest time that counts, in nanoseconds from the begin of the trace: 104 days. Programs that read JSON have 53 bits.
const LATEST: u64 = 1 << 53;
/// Most pages of one event that count.
const MOST_PAGES: u32 = 1 << 20;

/// What is known of a rank before its trace is looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankPlace {
    /// The rank.
    pub rank: u32,
    /// Its node.
    pub node: u32,
    /// Nanoseconds to add to its times, so that those of all nodes are on one clock.
    pub offset: i64,
}

/// A rank's trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RankTrace {
    /// The rank.
    pub rank: u32,
    /// Its node.
    pub node: u32,
    /// Events by the time of their begin, in nanoseconds from the begin of the trace.
    pub events: Vec<TraceEvent>,
    /// Events that the ring had no room for, or that could not be read.
    pub lost: u64,
    /// Events that cannot be, which are left out.
    pub implausible: u64,
}

/// A job's trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// The job.
    pub job: u64,
    /// Its name.
    pub name: String,
    /// By rank. Ranks that were not traced are missing.
    pub ranks: Vec<RankTrace>,
    /// Bytes of a page of shared memory; 0 if there is none.
    pub page_bytes: u32,
    /// Allocations by first page, without overlap.
    pub allocations: Vec<TraceAllocation>,
    /// Allocations without a name.
    pub allocations_left_out: u32,
    /// Nanoseconds from the first begin to the last end.
    pub length: u64,
}

impl Trace {
    /// Puts together what the ranks of a job, so many in all, have told.
    pub fn new(
        (job, name): (u64, String),
        ranks: u32,
        told: Vec<(RankPlace, Vec<TraceSample>)>,
    ) -> Trace {
        let mut trace = Trace { job, name, ..Trace::default() };
        for (place, samples) in told {
            trace.take_allocations(&samples);
            trace.ranks.push(rank_trace(&place, samples, ranks));
        }
        trace.ranks.sort_by_key(|rank| rank.rank);
        trace.start_at_zero();
        trace
    }

    /// Allocations of the first rank that tells some: all ranks make the same ones.
    fn take_allocations(&mut self, samples: &[TraceSample]) {
        for sample in samples.iter().filter(|_| self.allocations.is_empty()) {
            self.page_bytes = self.page_bytes.max(sample.page_bytes);
            self.allocations_left_out = sample.allocations_left_out;
            let mut sorted = sample.allocations.clone();
            sorted.retain(|one| one.pages > 0 && one.first.checked_add(one.pages).is_some());
            sorted.sort_by_key(|one| one.first);
            let mut end = 0;
            sorted.retain(|one| {
                let after = one.first >= end;
                if after {
                    end = one.first + one.pages;
                }
                after
            });
            if !sorted.is_empty() {
                self.allocations = sorted;
                return;
            }
        }
    }

    fn start_at_zero(&mut self) {
        let all = || self.ranks.iter().flat_map(|rank| &rank.events);
        let begin = all().map(|event| event.time).min().unwrap_or(0);
        for rank in &mut self.ranks {
            let before = rank.events.len();
            for event in &mut rank.events {
                event.time -= begin;
            }
            rank.events.retain(|event| event.time.saturating_add(event.duration) < LATEST);
            rank.implausible += (before - rank.events.len()) as u64;
        }
        let all = self.ranks.iter().flat_map(|rank| &rank.events);
        self.length = all.map(|event| event.time + event.duration).max().unwrap_or(0);
    }

    /// The node of a rank, if the rank was traced.
    pub fn node_of(&self, rank: u32) -> Option<u32> {
        let at = self.ranks.binary_search_by_key(&rank, |one| one.rank).ok()?;
        Some(self.ranks[at].node)
    }

    /// The allocation that a page is of.
    pub fn allocation_of(&self, page: u32) -> Option<&TraceAllocation> {
        let after = self.allocations.partition_point(|one| one.first <= page);
        let one = self.allocations.get(after.checked_sub(1)?)?;
        (page - one.first < one.pages).then_some(one)
    }

    /// A page in words: what it is of, and where in that it begins.
    pub fn page_name(&self, page: u32) -> String {
        match self.allocation_of(page) {
            Some(one) => {
                let offset = u64::from(page - one.first) * u64::from(self.page_bytes);
                format!("`{}` + {offset}", allocation_name(one))
            }
            None => format!("page {page}"),
        }
    }
}

/// An allocation in words.
pub fn allocation_name(one: &TraceAllocation) -> String {
    match one.name.trim() {
        "" => format!("allocation at page {}", one.first),
        // Names come from the job's program.
        name => name.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect(),
    }
}

fn rank_trace(place: &RankPlace, samples: Vec<TraceSample>, ranks: u32) -> RankTrace {
    let mut rank = RankTrace { rank: place.rank, node: place.node, ..RankTrace::default() };
    let mut expected = 0;
    // By thread: the end of the last event. Threads record when something ends, so ends only grow.
    let mut ends: BTreeMap<u8, u64> = BTreeMap::new();
    for sample in samples {
        rank.lost = rank.lost.saturating_add(sample.first.saturating_sub(expected));
        rank.lost = rank.lost.saturating_add(sample.unreadable);
        expected = sample.next.max(expected);
        for mut event in sample.events {
            let end = event.time.checked_add(event.duration);
            let last = ends.entry(event.thread).or_insert(0);
            match end.filter(|end| end >= last && is_possible(&event, ranks)) {
                Some(end) => {
                    *last = end;
                    event.time = event.time.saturating_add_signed(place.offset);
                    rank.events.push(event);
                }
                None => rank.implausible += 1,
            }
        }
    }
    rank.events.sort_by_key(|event| event.time);
    rank
}

fn is_possible(event: &TraceEvent, ranks: u32) -> bool {
    let of_pages = matches!(event.kind, TraceKind::Fetch | TraceKind::Found | TraceKind::Written);
    let pages = if of_pages { event.amount } else { 0 };
    event.peer.is_none_or(|peer| peer < ranks)
        && pages <= MOST_PAGES
        && event.object.checked_add(pages).is_some()
}

/// A kind in a word or two.
pub fn kind_name(kind: TraceKind) -> &'static str {
    match kind {
        TraceKind::Fetch => "fetch",
        TraceKind::Found => "copy found",
        TraceKind::Written => "written",
        TraceKind::Diff => "diff",
        TraceKind::Flush => "wait for diffs",
        TraceKind::Lock => "lock",
        TraceKind::Unlock => "unlock",
        TraceKind::Barrier => "barrier",
        TraceKind::Wait => "wait",
        TraceKind::SetCondition => "set condition",
        TraceKind::WaitCondition => "wait for condition",
        TraceKind::Stale => "pages stale",
        TraceKind::Send => "protocol message sent",
        TraceKind::Receive => "protocol message received",
        TraceKind::ProgramSend => "send",
        TraceKind::ProgramReceive => "receive",
    }
}

/// An event in words.
pub fn describe(trace: &Trace, event: &TraceEvent) -> String {
    let TraceEvent { kind, object, amount, .. } = *event;
    let kind = kind_name(kind);
    let peer = event.peer.map_or_else(String::new, |peer| format!(", rank {peer}"));
    match event.kind {
        TraceKind::Fetch | TraceKind::Written => {
            format!("{kind} {}, {amount} pages{peer}", trace.page_name(object))
        }
        TraceKind::Found => format!("{kind} {}", trace.page_name(object)),
        TraceKind::Diff => format!("{kind} {}, {amount} bytes{peer}", trace.page_name(object)),
        TraceKind::Flush => format!("{kind}, {amount}"),
        TraceKind::Stale => format!("{kind}, {amount}"),
        TraceKind::Send | TraceKind::Receive => format!("{kind} {object}, {amount} bytes{peer}"),
        TraceKind::ProgramSend | TraceKind::ProgramReceive => {
            format!("{kind}, tag {}, {amount} bytes{peer}", object.cast_signed())
        }
        _ => format!("{kind} {object}"),
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// An event of the first thread.
    pub fn event(kind: TraceKind, (time, duration): (u64, u64), object: u32) -> TraceEvent {
        TraceEvent { time, duration, kind, thread: 0, peer: None, object, amount: 1 }
    }

    /// A trace of ranks on nodes of their own, with pages of 4,096 bytes and an allocation `a` of pages 0 to 99.
    pub fn trace(ranks: Vec<Vec<TraceEvent>>) -> Trace {
        let count = u32::try_from(ranks.len()).unwrap();
        let a = TraceAllocation { first: 0, pages: 100, name: "a".to_owned() };
        let told = (0..).zip(ranks).map(|(rank, events)| {
            let sample = TraceSample {
                rank,
                next: events.len() as u64,
                events,
                page_bytes: 4_096,
                allocations: vec![a.clone()],
                ..TraceSample::default()
            };
            (RankPlace { rank, node: rank, offset: 0 }, vec![sample])
        });
        Trace::new((7, "test".to_owned()), count, told.collect())
    }

    #[test]
    fn times_begin_at_zero_and_events_are_in_order() {
        let far = event(TraceKind::Lock, (900, 200), 1);
        let near = event(TraceKind::Unlock, (1_200, 0), 1);
        let trace = trace(vec![vec![far, near], vec![event(TraceKind::Lock, (1_000, 5), 1)]]);
        let times: Vec<_> = trace.ranks[0].events.iter().map(|event| event.time).collect();
        assert_eq!((times, trace.ranks[1].events[0].time, trace.length), (vec![0, 300], 100, 300));
        assert_eq!((trace.node_of(1), trace.node_of(2)), (Some(1), None));
    }

    #[test]
    fn what_cannot_be_is_left_out_and_counted() {
        let good = event(TraceKind::Lock, (1_000, 10), 1);
        let hostile = [
            event(TraceKind::Lock, (500, 10), 1),
            event(TraceKind::Lock, (u64::MAX, 10), 1),
            TraceEvent { peer: Some(2), ..event(TraceKind::Fetch, (2_000, 1), 1) },
            TraceEvent { amount: u32::MAX, ..event(TraceKind::Written, (2_000, 1), 1) },
            event(TraceKind::Fetch, (2_000, 1), u32::MAX),
            event(TraceKind::Lock, (1_000, 1 << 60), 1),
        ];
        let mut events = vec![good];
        events.extend(hostile);
        let trace = trace(vec![events, vec![]]);
        assert_eq!(trace.ranks[0].events.len(), 1, "{:?}", trace.ranks[0].events);
        assert_eq!((trace.ranks[0].implausible, trace.length), (hostile.len() as u64, 10));
    }

    #[test]
    fn lost_events_and_nodes_clocks_count() {
        let place = RankPlace { rank: 0, node: 3, offset: -50 };
        let part = |first, next, unreadable| TraceSample {
            first,
            next,
            unreadable,
            events: vec![event(TraceKind::Lock, (first + 100, 1), 0)],
            ..TraceSample::default()
        };
        let other = (RankPlace { rank: 1, node: 4, offset: 0 }, vec![part(0, 1, 0)]);
        let told = vec![(place, vec![part(10, 20, 2), part(25, 30, 0)]), other];
        let trace = Trace::new((1, String::new()), 2, told);
        assert_eq!((trace.ranks[0].lost, trace.ranks[1].lost), (10 + 2 + 5, 0));
        assert_eq!((trace.ranks[0].events[0].time, trace.ranks[1].events[0].time), (0, 40));
    }

    #[test]
    fn pages_are_named_by_their_allocation() {
        let mut trace = trace(vec![vec![]]);
        assert_eq!(trace.page_name(2), "`a` + 8192");
        assert_eq!(trace.page_name(100), "page 100");
        trace.allocations[0].name = "\u{1b}[2J".to_owned();
        assert_eq!(trace.page_name(0), "`\u{fffd}[2J` + 0");
    }

    #[test]
    fn allocations_that_overlap_are_left_out() {
        let one = |first, pages| TraceAllocation { first, pages, name: String::new() };
        let allocations = vec![one(5, 5), one(0, 6), one(3, 2), one(u32::MAX, 2), one(9, 0)];
        let sample = TraceSample { allocations, ..TraceSample::default() };
        let place = RankPlace { rank: 0, node: 0, offset: 0 };
        let trace = Trace::new((1, String::new()), 1, vec![(place, vec![sample])]);
        assert_eq!(trace.allocations, [one(0, 6)]);
    }
}
