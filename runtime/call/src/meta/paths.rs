//! The network between sites, as calls measured it.

use std::collections::{BTreeMap, HashMap};

use kumi_broker::{Link, SiteId};
use kumi_rpc::{AttemptReport, Transfer};

/// Fewer bytes say nothing about a path's rate.
const FEW: u64 = 64 << 10;
/// More bytes say nothing about its latency.
const SMALL: u64 = 4 << 10;
/// How much the latest measurement counts.
const NEW: f64 = 0.3;
/// Most paths that are known; for one more the one is forgotten that nothing used for the longest time.
const MOST: usize = 65_536;

/// What is known of a path.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Estimate {
    /// Bytes per second to the server; 0: not known.
    pub out: f64,
    /// Bytes per second back; 0: not known.
    pub back: f64,
    /// Seconds one way.
    pub latency: f64,
    /// Calls that measured something.
    pub calls: u64,
}

/// The clients' site and the servers'.
type PathEnds = (SiteId, SiteId);

/// What a call changed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PathUpdate {
    /// What is known of the path now.
    pub estimate: Estimate,
    /// What had to be forgotten for it.
    pub forgotten: Option<PathEnds>,
}

#[derive(Debug, Clone, Copy)]
struct KnownPath {
    estimate: Estimate,
    /// When a call began on it or measured it last, in uses of any.
    used: u64,
}

/// All paths.
///
/// Invariant: `order` has each that is known once, by when it was used; these are `most` at most.
#[derive(Debug)]
pub struct Paths {
    most: usize,
    known: HashMap<PathEnds, KnownPath>,
    order: BTreeMap<u64, PathEnds>,
    uses: u64,
    sending: HashMap<PathEnds, u32>,
}

impl Default for Paths {
    fn default() -> Paths {
        Paths::with_most(MOST)
    }
}

/// By how much a measurement may differ from what is known, at most: clients measure, and one that is wrong or lies is
/// forgotten after some others.
const LEAP: f64 = 8.0;
/// No path carries more bytes a second.
const FASTEST: f64 = 1e12;

fn mix(old: f64, new: f64) -> f64 {
    if old > 0.0 { old + NEW * (new.clamp(old / LEAP, old * LEAP) - old) } else { new }
}

fn rate(moved: Transfer, sharers: f64) -> Option<f64> {
    (moved.bytes >= FEW && moved.ns > 0)
        .then(|| (moved.bytes as f64 * 1e9 / moved.ns as f64 * sharers).min(FASTEST))
}

impl Estimate {
    /// What the broker reckons with, as far as something is known.
    pub fn link(&self) -> Option<Link> {
        let either = if self.out > 0.0 { self.out } else { self.back };
        if either <= 0.0 {
            return None;
        }
        let one = |rate: f64| if rate > 0.0 { rate } else { either };
        Some(Link { out: one(self.out), back: one(self.back), latency: self.latency })
    }
}

impl Paths {
    /// For so many that are known.
    pub fn with_most(most: usize) -> Paths {
        Paths {
            most,
            known: HashMap::new(),
            order: BTreeMap::new(),
            uses: 0,
            sending: HashMap::new(),
        }
    }

    /// One that is known is used; what is known of it.
    fn used(&mut self, ends: PathEnds) -> Option<&mut Estimate> {
        let known = self.known.get_mut(&ends)?;
        self.order.remove(&known.used);
        self.uses += 1;
        known.used = self.uses;
        self.order.insert(known.used, ends);
        Some(&mut known.estimate)
    }

    /// One more is known. There is room for it.
    fn insert(&mut self, ends: PathEnds, estimate: Estimate) {
        self.uses += 1;
        self.known.insert(ends, KnownPath { estimate, used: self.uses });
        self.order.insert(self.uses, ends);
    }

    /// Forgets the one that nothing used for the longest time, if there is no room for one more. What is sent there is counted as
    /// ever.
    fn make_room(&mut self) -> Option<PathEnds> {
        if self.known.len() < self.most {
            return None;
        }
        let (_, oldest) = self.order.pop_first()?;
        self.known.remove(&oldest);
        Some(oldest)
    }

    /// A call begins to send its arguments; how many do, with it.
    pub fn begin(&mut self, from: SiteId, to: SiteId) -> u32 {
        self.used((from, to));
        let count = self.sending.entry((from, to)).or_default();
        *count += 1;
        *count
    }

    /// Its arguments have arrived, or will not; how many sent, with it.
    pub fn end(&mut self, from: SiteId, to: SiteId) -> u32 {
        let Some(count) = self.sending.get_mut(&(from, to)) else { return 1 };
        let before = *count;
        *count = before.saturating_sub(1);
        if *count == 0 {
            self.sending.remove(&(from, to));
        }
        before.max(1)
    }

    /// What a call measured that shared the path with so many, itself included; the path, if that changed something.
    pub fn observe(
        &mut self,
        from: SiteId,
        to: SiteId,
        over: &AttemptReport,
        sharers: f64,
    ) -> Option<PathUpdate> {
        let (out, back) = (rate(over.out, sharers), rate(over.back, sharers));
        let small = over.out.bytes <= SMALL && over.out.ns > 0;
        if out.is_none() && back.is_none() && !small {
            return None;
        }
        let before = self.used((from, to)).copied();
        let mut estimate = before.unwrap_or_default();
        estimate.calls += 1;
        if let Some(out) = out {
            estimate.out = mix(estimate.out, out);
        }
        if let Some(back) = back {
            estimate.back = mix(estimate.back, back);
        }
        if small {
            // There and back.
            estimate.latency = mix(estimate.latency, over.out.ns as f64 / 2e9);
        }
        let forgotten = if before.is_none() { self.make_room() } else { None };
        match self.used((from, to)) {
            Some(known) => *known = estimate,
            None => self.insert((from, to), estimate),
        }
        Some(PathUpdate { estimate, forgotten })
    }

    /// What was known before, the latest last.
    pub fn restore(&mut self, from: SiteId, to: SiteId, estimate: Estimate) {
        // None are kept that were forgotten: there is room.
        if self.known.len() < self.most && !self.known.contains_key(&(from, to)) {
            self.insert((from, to), estimate);
        }
    }

    /// Both ends of all that are known or in use.
    pub fn sites(&self) -> impl Iterator<Item = SiteId> {
        self.known.keys().chain(self.sending.keys()).flat_map(|&(from, to)| [from, to])
    }

    /// All that are known.
    pub fn all(&self) -> impl Iterator<Item = (SiteId, SiteId, &Estimate)> {
        self.known.iter().map(|(&(from, to), known)| (from, to, &known.estimate))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kumi_rpc::{AttemptOutcome, Ticket};

    fn over(out: u64, ns: u64) -> AttemptReport {
        AttemptReport {
            ticket: Ticket { call: 1, attempt: 1 },
            ended: AttemptOutcome::Done,
            out: Transfer { bytes: out, ns },
            back: Transfer::default(),
            ran_ns: 0,
            waited_ns: 0,
        }
    }

    #[test]
    fn rates_are_those_of_the_whole_path() {
        let (a, b) = (SiteId(0), SiteId(1));
        let mut paths = Paths::default();
        assert_eq!((paths.begin(a, b), paths.begin(a, b)), (1, 2));
        assert_eq!((paths.end(a, b), paths.end(a, b), paths.end(a, b)), (2, 1, 1));
        let mut observe = |over: AttemptReport, sharers| {
            paths.observe(a, b, &over, sharers).map(|measured| measured.estimate)
        };
        let one = observe(over(1_000_000, 1_000_000_000), 2.0).expect("enough bytes");
        assert_eq!((one.out, one.back), (2e6, 0.0));
        let link = one.link().expect("a rate");
        assert_eq!((link.out, link.back), (2e6, 2e6));
        assert_eq!(observe(over(30_000, 5), 1.0), None, "neither large nor small");
        let small = observe(over(8, 2_000_000), 1.0).expect("small");
        assert!((small.latency - 1e-3).abs() < 1e-9 && small.out == 2e6, "{small:?}");
        // One that lies is soon forgotten.
        let lie = observe(over(1 << 60, 1), 1.0).expect("enough bytes");
        assert!(lie.out > 2e6 && lie.out < 7e6, "{lie:?}");
        let mut last = lie.out;
        for _ in 0..8 {
            let honest = over(2_000_000, 1_000_000_000);
            last = observe(honest, 1.0).expect("enough bytes").out;
        }
        assert!((2e6..2.4e6).contains(&last), "{last}");
        assert_eq!(paths.all().count(), 1);
        assert_eq!(Estimate::default().link(), None);
    }

    #[test]
    fn what_was_not_used_for_the_longest_time_is_forgotten() {
        let [a, b, c, d] = [0, 1, 2, 3].map(SiteId);
        let mut paths = Paths::with_most(3);
        let large = over(1_000_000, 1_000_000_000);
        let observe = |paths: &mut Paths, from, to| {
            paths.observe(from, to, &large, 1.0).expect("enough bytes").forgotten
        };
        paths.restore(a, b, Estimate { out: 1.0, ..Estimate::default() });
        paths.restore(a, c, Estimate::default());
        assert_eq!(observe(&mut paths, b, a), None);
        // A call begins on the oldest, and another measures the next.
        paths.begin(a, b);
        assert_eq!(observe(&mut paths, a, c), None);
        assert_eq!(observe(&mut paths, a, d), Some((b, a)));
        // Where a call still sends is forgotten as any other, and learned anew from it.
        assert_eq!(observe(&mut paths, b, a), Some((a, b)));
        assert_eq!(observe(&mut paths, a, b), Some((a, c)));
        assert_eq!(paths.end(a, b), 1);
        let known: BTreeMap<PathEnds, u64> =
            paths.all().map(|(from, to, it)| ((from, to), it.calls)).collect();
        assert_eq!(known, BTreeMap::from([((a, b), 1), ((a, d), 1), ((b, a), 1)]));
        // One that says nothing takes nobody's place, and what was kept before does not either.
        assert_eq!(paths.observe(c, d, &over(30_000, 5), 1.0), None);
        paths.restore(c, d, Estimate::default());
        assert_eq!((paths.all().count(), paths.order.len()), (3, 3));
        assert!(paths.sites().all(|site| site != c), "its number is free for another");
    }
}
