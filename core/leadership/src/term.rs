//! A term of a leader, as the leader knows it.

use crate::Nanos;

/// The leader is sure of this part of its lease. The rest is for clocks that differ.
const SURE: (Nanos, Nanos) = (4, 5);
/// The lease is renewed after this part of it.
const RENEWAL: Nanos = 3;
/// After so many leases without an answer the leader gives up.
const PATIENCE: Nanos = 2;

/// How long a leader leads: from renewal to renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Term {
    lease: Nanos,
    /// When it asked for the latest renewal that the store granted.
    asked: Nanos,
}

impl Term {
    /// A term with a lease of this length, which was asked for at `asked`.
    #[must_use]
    pub fn new(lease: Nanos, asked: Nanos) -> Self {
        Self { lease, asked }
    }

    /// The store has granted the renewal that was asked for at `asked`. An answer that was overtaken changes nothing.
    pub fn renewed(&mut self, asked: Nanos) {
        self.asked = self.asked.max(asked);
    }

    /// Until when it certainly leads.
    #[must_use]
    pub fn sure_until(&self) -> Nanos {
        self.asked.saturating_add(self.lease / SURE.1 * SURE.0)
    }

    /// Whether it certainly leads now. Whoever is about to act asks right before.
    #[must_use]
    pub fn leads(&self, now: Nanos) -> bool {
        now < self.sure_until()
    }

    /// When to ask for the next renewal.
    #[must_use]
    pub fn renewal(&self) -> Nanos {
        self.asked.saturating_add(self.lease / RENEWAL)
    }

    /// When to wait for the store no longer. Whoever reaches it leads by then.
    #[must_use]
    pub fn given_up(&self) -> Nanos {
        self.asked.saturating_add(self.lease.saturating_mul(PATIENCE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_leads_for_four_fifths_from_the_question() {
        let mut term = Term::new(1_000, 50);
        assert!(term.leads(849) && !term.leads(850));
        assert_eq!((term.renewal(), term.given_up()), (383, 2_050));
        term.renewed(400);
        term.renewed(300);
        assert_eq!((term.sure_until(), term.given_up()), (1_200, 2_400));
    }

    #[test]
    fn no_time_overflows() {
        let term = Term::new(Nanos::MAX, Nanos::MAX);
        assert_eq!((term.sure_until(), term.given_up()), (Nanos::MAX, Nanos::MAX));
        assert!(!term.leads(Nanos::MAX));
    }
}
