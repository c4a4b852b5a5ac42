//! Model of the network between sites: measured paths, and the transfers that use them.

use alloc::collections::BTreeMap;

use crate::model::{Link, SiteId};

/// The assumed link between two servers without a measurement.
const BETWEEN: Link = Link { out: 1e9, back: 1e9, latency: 1e-4 };
/// Most known paths; further measurements are dropped until some are forgotten.
const MOST_PATHS: usize = 65_536;

#[derive(Clone, Copy, Debug, Default)]
struct Path {
    link: Option<Link>,
    /// Number of calls that are sending arguments.
    sending: u32,
}

/// All paths.
///
/// Invariant: `measured` is the number of paths with a link; calls use every path without one.
#[derive(Debug, Default)]
pub(crate) struct Network {
    paths: BTreeMap<(SiteId, SiteId), Path>,
    measured: usize,
}

impl Network {
    pub fn measured(&mut self, from: SiteId, to: SiteId, link: Link) {
        let right = |rate: f64| rate.is_finite() && rate > 0.0;
        let sound = right(link.out) && right(link.back) && link.latency.is_finite();
        let known = self.paths.get(&(from, to)).is_some_and(|path| path.link.is_some());
        if sound && (known || self.measured < MOST_PATHS) {
            let link = Link { latency: link.latency.max(0.0), ..link };
            self.paths.entry((from, to)).or_default().link = Some(link);
            self.measured += usize::from(!known);
        }
    }

    /// Forgets the measurement of a path. Transfers on it go on.
    pub fn forget(&mut self, from: SiteId, to: SiteId) {
        let Some(path) = self.paths.get_mut(&(from, to)) else { return };
        self.measured -= usize::from(path.link.take().is_some());
        if path.sending == 0 {
            self.paths.remove(&(from, to));
        }
    }

    /// The sites at the ends of all paths.
    pub fn sites(&self) -> impl Iterator<Item = SiteId> {
        self.paths.keys().flat_map(|&(from, to)| [from, to])
    }

    pub fn begin(&mut self, from: SiteId, to: SiteId) {
        self.paths.entry((from, to)).or_default().sending += 1;
    }

    pub fn end(&mut self, from: SiteId, to: SiteId) {
        if let Some(path) = self.paths.get_mut(&(from, to)) {
            path.sending = path.sending.saturating_sub(1);
            if path.sending == 0 && path.link.is_none() {
                self.paths.remove(&(from, to));
            }
        }
    }

    /// Seconds for these bytes in both directions, if one more call uses the path. Current senders go on beside it, and as many
    /// are expected on the way back. A path without a measurement costs nothing.
    pub fn seconds(&self, from: SiteId, to: SiteId, out: u64, back: u64) -> (f64, f64) {
        let Some(path) = self.paths.get(&(from, to)) else { return (0.0, 0.0) };
        let Some(link) = path.link else { return (0.0, 0.0) };
        let sharers = f64::from(path.sending) + 1.0;
        #[allow(clippy::cast_precision_loss)]
        let time = |bytes: u64, rate: f64| bytes as f64 * sharers / rate + link.latency;
        (time(out, link.out), time(back, link.back))
    }

    /// Seconds for bytes that one server fetches from another. An unmeasured path is not free here, so that data moves only
    /// for a reason.
    #[allow(clippy::cast_precision_loss)]
    pub fn between(&self, from: SiteId, to: SiteId, bytes: u64) -> f64 {
        match self.paths.get(&(from, to)).and_then(|path| path.link) {
            Some(_) => self.seconds(from, to, bytes, 0).0,
            None => bytes as f64 / BETWEEN.out + BETWEEN.latency,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINK: Link = Link { out: 1e6, back: 1e6, latency: 0.0 };

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes")]
    fn what_is_forgotten_makes_room() {
        let mut network = Network::default();
        let most = u32::try_from(MOST_PATHS).expect("few");
        let (home, near, more) = (SiteId(0), SiteId(1), SiteId(most + 1));
        // Calls use two paths, and one of them is measured.
        network.begin(home, near);
        network.begin(more, home);
        (1..=most).for_each(|site| network.measured(home, SiteId(site), LINK));
        assert!(network.seconds(home, SiteId(most), 1_000_000, 0).0 > 0.0);
        network.measured(home, more, LINK);
        assert!(network.seconds(home, more, 1, 1) == (0.0, 0.0), "there is no room");
        network.measured(home, near, Link { out: 2e6, ..LINK });
        assert!(network.seconds(home, near, 1_000_000, 0).0 < 1.5, "what is known changes");
        network.forget(home, near);
        network.forget(home, near);
        assert!(network.seconds(home, near, 1, 1) == (0.0, 0.0));
        network.measured(home, more, LINK);
        assert!(network.seconds(home, more, 1_000_000, 0).0 > 0.0);
        assert_eq!((network.measured, network.paths.len()), (MOST_PATHS, MOST_PATHS + 2));
        network.end(home, near);
        network.end(more, home);
        assert_eq!(network.sites().filter(|site| *site == near).count(), 0);
    }
}
