//! What a candidate does next, by what it finds in the store.

use crate::Nanos;

/// The leader's key, as it is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaderKey {
    /// Random identity of the process that made it.
    pub maker: u64,
    /// The lease with which it goes.
    pub lease: i64,
}

/// A claim of which the candidate does not know what came of it: the answer may be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The lease with which the key was to be made.
    pub lease: i64,
    /// When the lease was asked for.
    pub asked: Nanos,
}

/// What a candidate does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Another leads: look again later.
    Follow,
    /// Nobody leads: ask for a lease, and make the key with it.
    Claim,
    /// The key is that of its own claim: it leads, from when it asked for the lease.
    Lead(Claim),
    /// The key is of an earlier term of its own. Nobody else waits for its end, so it ends that lease.
    EndEarlier(i64),
}

/// The next step of the process `me`, with its latest claim.
#[must_use]
pub fn next_step(me: u64, claim: Option<Claim>, found: Option<LeaderKey>) -> Step {
    match (found, claim) {
        (None, _) => Step::Claim,
        (Some(key), _) if key.maker != me => Step::Follow,
        (Some(key), Some(claim)) if key.lease == claim.lease => Step::Lead(claim),
        (Some(key), _) => Step::EndEarlier(key.lease),
    }
}

/// Others come first for this part of a lease, after nobody leads any more.
const DEFERENCE: Nanos = 3;

/// Whether a candidate may claim that found nobody to lead since `free_since`. One that is not `preferred` leaves the others time
/// for it.
#[must_use]
pub fn may_claim(preferred: bool, lease: Nanos, free_since: Nanos, now: Nanos) -> bool {
    preferred || now >= free_since.saturating_add(lease / DEFERENCE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_come_first_for_a_while() {
        assert!(may_claim(true, 3_000, 50, 50));
        assert!(!may_claim(false, 3_000, 50, 1_049) && may_claim(false, 3_000, 50, 1_050));
        assert!(!may_claim(false, 3_000, Nanos::MAX, 9) && may_claim(false, 0, 9, 9));
    }

    #[test]
    fn a_candidate_leads_only_with_its_own_claim() {
        let claim = Claim { lease: 7, asked: 1 };
        let key = |maker, lease| Some(LeaderKey { maker, lease });
        assert_eq!(next_step(1, Some(claim), None), Step::Claim);
        assert_eq!(next_step(1, Some(claim), key(2, 7)), Step::Follow);
        assert_eq!(next_step(1, Some(claim), key(1, 7)), Step::Lead(claim));
        assert_eq!(next_step(1, Some(claim), key(1, 6)), Step::EndEarlier(6));
        assert_eq!(next_step(1, None, key(1, 6)), Step::EndEarlier(6));
    }
}
