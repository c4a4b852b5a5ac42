//! Places of the heads, as a node knows them: the head that leads is most likely the one that led last.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::config::Place;

/// The places of each head, and the head that most likely leads.
#[derive(Clone, Debug)]
pub(super) struct Heads {
    places: Arc<[Vec<Place>]>,
    likely: Arc<AtomicUsize>,
}

impl Heads {
    /// There is at least one.
    pub(super) fn new(places: Vec<Vec<Place>>) -> Self {
        Self { places: places.into(), likely: Arc::default() }
    }

    pub(super) fn count(&self) -> usize {
        self.places.len()
    }

    fn at(&self) -> usize {
        self.likely.load(Ordering::Relaxed) % self.count().max(1)
    }

    /// The head to be called first.
    pub(super) fn likely(&self) -> &[Place] {
        &self.places[self.at()]
    }

    /// All of them, that one first.
    pub(super) fn in_turn(&self) -> impl Iterator<Item = &[Place]> {
        let (earlier, later) = self.places.split_at(self.at());
        later.iter().chain(earlier).map(Vec::as_slice)
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
        let place = |port| Place { host: "alpha".to_owned(), port };
        let places = [vec![place(1), place(9)], vec![place(2)], vec![place(3)]];
        let heads = Heads::new(places.to_vec());
        assert_eq!(heads.likely(), places[0]);
        let other = heads.clone();
        heads.leave();
        assert_eq!(other.likely(), places[1]);
        let turns: Vec<_> = other.in_turn().collect();
        assert_eq!(turns, [&places[1][..], &places[2], &places[0]]);
        heads.leave();
        heads.leave();
        assert_eq!(heads.likely(), places[0]);
    }
}
