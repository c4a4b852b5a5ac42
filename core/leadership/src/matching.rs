//! How much of a standby's log is the leader's.
//!
//! Each leader writes at offsets that are only its term's. So what stands at an offset is the same wherever it stands, and logs
//! differ only in how much of each term they have.

use alloc::collections::{BTreeMap, BTreeSet};

/// What somebody has of a log, term by term.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TermEnds {
    /// Where the oldest begins that is kept, if there was something before it, or 0. That is gone, and says nothing.
    pub first: u64,
    /// For each term of which there is something, where that ends.
    pub ends: BTreeMap<u64, u64>,
}

/// The offset up to which a standby has what the leader has. What it has behind that is to be cut off: another leader did not
/// have it, and has gone on without it. What stands before `lenient` stays also if the leader lacks it: it has marked it as missing.
#[must_use]
pub fn common_end(leader: &TermEnds, standby: &TermEnds, lenient: u64) -> u64 {
    let terms: BTreeSet<u64> = leader.ends.keys().chain(standby.ends.keys()).copied().collect();
    let mut common = 0;
    for term in terms {
        match (leader.ends.get(&term).copied(), standby.ends.get(&term).copied()) {
            (Some(own), Some(theirs)) if own == theirs => common = own,
            (own, Some(theirs)) if theirs <= lenient && own.is_none_or(|own| own < theirs) => {
                common = theirs;
            }
            (Some(own), Some(theirs)) => return own.min(theirs),
            // The ring of one of them has gone on.
            (Some(own), None) if own <= standby.first => {}
            (None, Some(theirs)) if theirs <= leader.first => common = theirs,
            (Some(_), None) | (None, Some(_)) => return common,
            (None, None) => {}
        }
    }
    common
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(first: u64, ends: &[(u64, u64)]) -> TermEnds {
        TermEnds { first, ends: ends.iter().copied().collect() }
    }

    #[test]
    fn logs_have_the_beginning_in_common() {
        let leader = log(10, &[(1, 15), (3, 38)]);
        for (standby, common) in [
            (log(0, &[]), 0),
            (log(10, &[(1, 15)]), 15),
            (log(10, &[(1, 13)]), 13),
            // It led in term 1, and had more.
            (log(10, &[(1, 19)]), 15),
            // Another led in term 2, and the leader has nothing of that.
            (log(10, &[(1, 15), (2, 22)]), 15),
            (log(10, &[(1, 12), (3, 38)]), 12),
            (log(10, &[(1, 15), (3, 38)]), 38),
            (log(10, &[(1, 15), (3, 30)]), 30),
            // Its ring has gone on.
            (log(30, &[(3, 38)]), 38),
            // It has never had anything of term 1.
            (log(0, &[(3, 38)]), 0),
        ] {
            assert_eq!(common_end(&leader, &standby, 0), common, "{standby:?}");
        }
    }

    #[test]
    fn what_the_leader_has_dropped_or_marked_says_nothing() {
        let dropped = log(30, &[(3, 38)]);
        assert_eq!(common_end(&dropped, &log(10, &[(1, 15)]), 0), 15);
        assert_eq!(common_end(&dropped, &log(10, &[(1, 15), (3, 33)]), 0), 33);
        let lacking = log(10, &[(1, 13), (3, 38)]);
        assert_eq!(common_end(&lacking, &log(10, &[(1, 19), (2, 25)]), 30), 25);
        assert_eq!(common_end(&lacking, &log(10, &[(1, 12)]), 30), 12, "it lacks more");
        assert_eq!(common_end(&log(0, &[]), &log(10, &[(1, 15)]), 0), 0, "it has had nothing");
        let begun = log(0, &[(3, 38)]);
        assert_eq!(common_end(&begun, &log(0, &[(2, 25)]), 0), 0, "it begins in term 3");
    }
}
