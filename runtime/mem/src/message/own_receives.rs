//! Receives of requests that wait for messages of collectives, by sender and call: so that a message of another collective
//! with the same call's number finds them.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use crate::group::tag::{call_bits, other_call};
use crate::message::match_lists::{KeyHasher, MatchKey};

/// Waiting receives of one call from one sender.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    /// A call has one tag at a member.
    tag: i32,
    receives: u32,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct OwnReceives(HashMap<MatchKey, Waiting, BuildHasherDefault<KeyHasher>>);

impl OwnReceives {
    /// A receive waits.
    pub(crate) fn add(&mut self, (from, tag): MatchKey) {
        let waiting = self.0.entry((from, call_bits(tag)));
        waiting.or_insert(Waiting { tag, receives: 0 }).receives += 1;
    }

    /// One waits no more.
    pub(crate) fn remove(&mut self, (from, tag): MatchKey) {
        let key = (from, call_bits(tag));
        if let Some(waiting) = self.0.get_mut(&key) {
            waiting.receives -= 1;
            if waiting.receives == 0 {
                self.0.remove(&key);
            }
        }
    }

    /// The key of receives of the same call as this message, but of another collective; with the names of theirs and ours.
    pub(crate) fn other(
        &self,
        (from, tag): MatchKey,
    ) -> Option<(MatchKey, &'static str, &'static str)> {
        if self.0.is_empty() {
            return None;
        }
        let waiting = self.0.get(&(from, call_bits(tag)))?;
        let (ours, theirs) = other_call(waiting.tag, tag)?;
        Some(((from, waiting.tag), theirs, ours))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::tag::{Collective, tag};

    #[test]
    fn receives_are_found_until_the_last_has_its_message() {
        let mut receives = OwnReceives::default();
        let (barrier, scan) = (tag(3, 5, Collective::Barrier, 0), tag(3, 5, Collective::Scan, 0));
        assert!(receives.other((1, scan)).is_none());
        receives.add((1, barrier));
        receives.add((1, barrier));
        receives.remove((1, barrier));
        assert_eq!(receives.other((1, scan)), Some(((1, barrier), "scan", "barrier")));
        assert!(receives.other((1, barrier)).is_none(), "the same");
        assert!(receives.other((2, scan)).is_none(), "another rank's");
        assert!(receives.other((1, tag(3, 6, Collective::Scan, 0))).is_none(), "the next call");
        assert!(receives.other((1, tag(4, 5, Collective::Scan, 0))).is_none(), "another group");
        receives.remove((1, barrier));
        assert!(receives.other((1, scan)).is_none() && receives.0.is_empty());
    }
}
