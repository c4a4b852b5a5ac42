//! The network between the sites of clients and servers, as it was measured, and who uses it now.

use alloc::collections::BTreeMap;

use crate::model::{Link, SiteId};

/// What is taken for a path between two servers that nobody has measured.
const BETWEEN: Link = Link { out: 1e9, back: 1e9, latency: 1e-4 };
/// Most paths that are known; more are not kept.
const MOST_PATHS: usize = 65_536;

#[derive(Clone, Copy, Debug, Default)]
struct Path {
    link: Option<Link>,
    /// Calls whose arguments are under way.
    sending: u32,
}

/// All paths.
#[derive(Debug, Default)]
pub(crate) struct Network {
    paths: BTreeMap<(SiteId, SiteId), Path>,
}

impl Network {
    pub fn measured(&mut self, from: SiteId, to: SiteId, link: Link) {
        let right = |rate: f64| rate.is_finite() && rate > 0.0;
        let sound = right(link.out) && right(link.back) && link.latency.is_finite();
        if sound && (self.paths.len() < MOST_PATHS || self.paths.contains_key(&(from, to))) {
            let link = Link { latency: link.latency.max(0.0), ..link };
            self.paths.entry((from, to)).or_default().link = Some(link);
        }
    }

    /// Both ends of all paths.
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

    /// Seconds for these bytes there and back, if one more call uses the path. Who sends now will go on beside
    /// it, and as many are expected on the way back. A path that was not measured costs nothing.
    pub fn seconds(&self, from: SiteId, to: SiteId, out: u64, back: u64) -> (f64, f64) {
        let Some(path) = self.paths.get(&(from, to)) else { return (0.0, 0.0) };
        let Some(link) = path.link else { return (0.0, 0.0) };
        let sharers = f64::from(path.sending) + 1.0;
        #[allow(clippy::cast_precision_loss)]
        let time = |bytes: u64, rate: f64| bytes as f64 * sharers / rate + link.latency;
        (time(out, link.out), time(back, link.back))
    }

    /// Seconds for bytes that one server fetches from another. Nothing is free here: what lies at a server stays there unless
    /// there is a reason.
    #[allow(clippy::cast_precision_loss)]
    pub fn between(&self, from: SiteId, to: SiteId, bytes: u64) -> f64 {
        match self.paths.get(&(from, to)).and_then(|path| path.link) {
            Some(_) => self.seconds(from, to, bytes, 0).0,
            None => bytes as f64 / BETWEEN.out + BETWEEN.latency,
        }
    }
}
