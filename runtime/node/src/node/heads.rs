//! Addresses of the heads, as a node knows them: the one that leads is most likely where it was last.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The addresses, and the one that most likely leads.
#[derive(Clone, Debug)]
pub(super) struct Heads {
    addresses: Arc<[SocketAddr]>,
    likely: Arc<AtomicUsize>,
}

impl Heads {
    /// There is at least one.
    pub(super) fn new(addresses: Vec<SocketAddr>) -> Self {
        Self { addresses: addresses.into(), likely: Arc::default() }
    }

    pub(super) fn count(&self) -> usize {
        self.addresses.len()
    }

    fn at(&self) -> usize {
        self.likely.load(Ordering::Relaxed) % self.count().max(1)
    }

    /// The head to be called first.
    pub(super) fn likely(&self) -> SocketAddr {
        self.addresses[self.at()]
    }

    /// All of them, that one first.
    pub(super) fn in_turn(&self) -> impl Iterator<Item = SocketAddr> {
        let (addresses, at) = (Arc::clone(&self.addresses), self.at());
        (0..addresses.len()).map(move |step| addresses[(at + step) % addresses.len()])
    }

    /// That one does not answer, or leads no more: the next one is more likely.
    pub(super) fn leave(&self) {
        self.likely.store((self.at() + 1) % self.count().max(1), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_that_is_left_comes_last() {
        let addresses = [1, 2, 3].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let heads = Heads::new(addresses.to_vec());
        assert_eq!(heads.likely(), addresses[0]);
        let other = heads.clone();
        heads.leave();
        assert_eq!(other.likely(), addresses[1]);
        let turns: Vec<_> = other.in_turn().collect();
        assert_eq!(turns, [addresses[1], addresses[2], addresses[0]]);
        heads.leave();
        heads.leave();
        assert_eq!(heads.likely(), addresses[0]);
    }
}
