//! Measured network paths between sites.

use std::collections::HashMap;

use kumi_broker::{Link, SiteId};
use kumi_rpc::{AttemptReport, Transfer};
use lru::LruCache;
use serde::{Deserialize, Serialize};

/// Transfers of fewer bytes do not measure a rate.
const FEW: u64 = 64 << 10;
/// Transfers of more bytes do not measure a latency.
const SMALL: u64 = 4 << 10;
/// Weight of the latest measurement.
const NEW: f64 = 0.3;
/// Most known paths; a further one replaces the least recently used.
const MOST: usize = 65_536;

/// Estimate of a path.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// Bytes per second to the server; 0: not known.
    pub out: f64,
    /// Bytes per second back; 0: not known.
    pub back: f64,
    /// Seconds one way.
    pub latency: f64,
    /// Number of calls that measured it.
    pub calls: u64,
}

/// The clients' site and the servers' site.
type PathEnds = (SiteId, SiteId);

/// The effect of a measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PathUpdate {
    /// The new estimate.
    pub estimate: Estimate,
    /// The path that was forgotten to make room.
    pub forgotten: Option<PathEnds>,
}

/// All paths.
#[derive(Debug)]
pub struct Paths {
    most: usize,
    /// At most `most`, in the order in which calls last used or measured them.
    known: LruCache<PathEnds, Estimate>,
    sending: HashMap<PathEnds, u32>,
}

impl Default for Paths {
    fn default() -> Paths {
        Paths::with_most(MOST)
    }
}

/// Largest factor by which a measurement may change an estimate. Clients measure, so a wrong or false value
/// must lose its effect after some others.
const LEAP: f64 = 8.0;
/// Upper bound of a rate in bytes per second.
const FASTEST: f64 = 1e12;

fn mix(old: f64, new: f64) -> f64 {
    if old > 0.0 { old + NEW * (new.clamp(old / LEAP, old * LEAP) - old) } else { new }
}

fn rate(moved: Transfer, sharers: f64) -> Option<f64> {
    (moved.bytes >= FEW && moved.ns > 0)
        .then(|| (moved.bytes as f64 * 1e9 / moved.ns as f64 * sharers).min(FASTEST))
}

impl Estimate {
    /// Whether it has only numbers that JSON has.
    #[cfg(feature = "etcd")]
    pub fn is_finite(&self) -> bool {
        [self.out, self.back, self.latency].iter().all(|number| number.is_finite())
    }

    /// The link for the broker, if anything is known.
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
    /// Room for this many paths.
    pub fn with_most(most: usize) -> Paths {
        Paths { most, known: LruCache::unbounded(), sending: HashMap::new() }
    }

    /// A call begins to send its arguments. Returns how many calls send now, including it.
    pub fn begin(&mut self, from: SiteId, to: SiteId) -> u32 {
        self.known.promote(&(from, to));
        let count = self.sending.entry((from, to)).or_default();
        *count += 1;
        *count
    }

    /// A call has sent its arguments or given up. Returns how many calls sent, including it.
    pub fn end(&mut self, from: SiteId, to: SiteId) -> u32 {
        let Some(count) = self.sending.get_mut(&(from, to)) else { return 1 };
        let before = *count;
        *count = before.saturating_sub(1);
        if *count == 0 {
            self.sending.remove(&(from, to));
        }
        before.max(1)
    }

    /// Adds the measurement of a call that shared the path with `sharers` calls, including itself. Returns
    /// the path if it changed.
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
        let before = self.known.get(&(from, to)).copied();
        let mut estimate = before.unwrap_or_default();
        estimate.calls += 1;
        if let Some(out) = out {
            estimate.out = mix(estimate.out, out);
        }
        if let Some(back) = back {
            estimate.back = mix(estimate.back, back);
        }
        if small {
            // Round trip.
            estimate.latency = mix(estimate.latency, over.out.ns as f64 / 2e9);
        }
        self.known.put((from, to), estimate);
        // Calls that still send on the path that makes room are counted on.
        let full = self.known.len() > self.most;
        let forgotten = full.then(|| self.known.pop_lru()).flatten().map(|(ends, _)| ends);
        Some(PathUpdate { estimate, forgotten })
    }

    /// Restores an estimate; the latest must come last.
    pub fn restore(&mut self, from: SiteId, to: SiteId, estimate: Estimate) {
        // Forgotten paths are not stored, so there is room.
        if self.known.len() < self.most && !self.known.contains(&(from, to)) {
            self.known.put((from, to), estimate);
        }
    }

    /// Both ends of all known or used paths.
    pub fn sites(&self) -> impl Iterator<Item = SiteId> {
        let known = self.known.iter().map(|(ends, _)| ends);
        known.chain(self.sending.keys()).flat_map(|&(from, to)| [from, to])
    }

    /// All known paths.
    pub fn all(&self) -> impl Iterator<Item = (SiteId, SiteId, &Estimate)> {
        self.known.iter().map(|(&(from, to), estimate)| (from, to, estimate))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

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
        // A false value soon loses its effect.
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
        // A forgotten path on which a call still sends is learned anew from it.
        assert_eq!(observe(&mut paths, b, a), Some((a, b)));
        assert_eq!(observe(&mut paths, a, b), Some((a, c)));
        assert_eq!(paths.end(a, b), 1);
        let known: BTreeMap<PathEnds, u64> =
            paths.all().map(|(from, to, it)| ((from, to), it.calls)).collect();
        assert_eq!(known, BTreeMap::from([((a, b), 1), ((a, d), 1), ((b, a), 1)]));
        // An empty measurement displaces nothing, and neither does a restored path.
        assert_eq!(paths.observe(c, d, &over(30_000, 5), 1.0), None);
        paths.restore(c, d, Estimate::default());
        assert_eq!(paths.all().count(), 3);
        assert!(paths.sites().all(|site| site != c), "its number is free for another");
    }
}
