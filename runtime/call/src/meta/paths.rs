//! The network between sites, as calls measured it.

use std::collections::HashMap;

use kumi_broker::{Link, SiteId};
use kumi_rpc::{Moved, Over};

/// Fewer bytes say nothing about a path's rate.
const FEW: u64 = 64 << 10;
/// More bytes say nothing about its latency.
const SMALL: u64 = 4 << 10;
/// How much the latest measurement counts.
const NEW: f64 = 0.3;
/// Most paths that are kept.
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

/// All paths.
#[derive(Debug, Default)]
pub struct Paths {
    known: HashMap<(SiteId, SiteId), Estimate>,
    sending: HashMap<(SiteId, SiteId), u32>,
}

/// By how much a measurement may differ from what is known, at most: clients measure, and one that is wrong or lies is
/// forgotten after some others.
const LEAP: f64 = 8.0;
/// No path carries more bytes a second.
const FASTEST: f64 = 1e12;

fn mix(old: f64, new: f64) -> f64 {
    if old > 0.0 { old + NEW * (new.clamp(old / LEAP, old * LEAP) - old) } else { new }
}

fn rate(moved: Moved, sharers: f64) -> Option<f64> {
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
    /// A call begins to send its arguments; how many do, with it.
    pub fn begin(&mut self, from: SiteId, to: SiteId) -> u32 {
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
        over: &Over,
        sharers: f64,
    ) -> Option<Estimate> {
        if self.known.len() >= MOST && !self.known.contains_key(&(from, to)) {
            return None;
        }
        let (out, back) = (rate(over.out, sharers), rate(over.back, sharers));
        let small = over.out.bytes <= SMALL && over.out.ns > 0;
        if out.is_none() && back.is_none() && !small {
            return None;
        }
        let known = self.known.entry((from, to)).or_default();
        known.calls += 1;
        if let Some(out) = out {
            known.out = mix(known.out, out);
        }
        if let Some(back) = back {
            known.back = mix(known.back, back);
        }
        if small {
            // There and back.
            known.latency = mix(known.latency, over.out.ns as f64 / 2e9);
        }
        Some(*known)
    }

    /// What was known before.
    pub fn restore(&mut self, from: SiteId, to: SiteId, estimate: Estimate) {
        if self.known.len() < MOST {
            self.known.insert((from, to), estimate);
        }
    }

    /// Both ends of all that are known or in use.
    pub fn sites(&self) -> impl Iterator<Item = SiteId> {
        self.known.keys().chain(self.sending.keys()).flat_map(|&(from, to)| [from, to])
    }

    /// All that are known.
    pub fn all(&self) -> impl Iterator<Item = (SiteId, SiteId, &Estimate)> {
        self.known.iter().map(|(&(from, to), estimate)| (from, to, estimate))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kumi_rpc::{Ended, Ticket};

    fn over(out: u64, ns: u64) -> Over {
        Over {
            ticket: Ticket { call: 1, attempt: 1 },
            ended: Ended::Done,
            out: Moved { bytes: out, ns },
            back: Moved::default(),
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
        let one = paths.observe(a, b, &over(1_000_000, 1_000_000_000), 2.0).expect("enough bytes");
        assert_eq!((one.out, one.back), (2e6, 0.0));
        let link = one.link().expect("a rate");
        assert_eq!((link.out, link.back), (2e6, 2e6));
        assert_eq!(paths.observe(a, b, &over(30_000, 5), 1.0), None, "neither large nor small");
        let small = paths.observe(a, b, &over(8, 2_000_000), 1.0).expect("small");
        assert!((small.latency - 1e-3).abs() < 1e-9 && small.out == 2e6, "{small:?}");
        // One that lies is soon forgotten.
        let lie = paths.observe(a, b, &over(1 << 60, 1), 1.0).expect("enough bytes");
        assert!(lie.out > 2e6 && lie.out < 7e6, "{lie:?}");
        let mut last = lie.out;
        for _ in 0..8 {
            let honest = over(2_000_000, 1_000_000_000);
            last = paths.observe(a, b, &honest, 1.0).expect("enough bytes").out;
        }
        assert!((2e6..2.4e6).contains(&last), "{last}");
        assert_eq!(paths.all().count(), 1);
        assert_eq!(Estimate::default().link(), None);
    }
}
