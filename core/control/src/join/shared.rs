//! The tokens of heads that share their state.
//!
//! One head leads, and its writes count only while it does. It has the tokens in memory, with changes that are on their way to
//! the state. Whoever waits for a change hears of it when the state has it. A head that leads no more writes nothing, so nobody
//! hears of its changes. So a token certifies one key, however many heads there are.

use alloc::collections::VecDeque;

use kumi_sched::NodeId;

use super::{IssuedToken, JoinRefusal, JoinSecret, JoinTokens, TokenChanges};

/// Most clients and machines that wait for the state. More are to be refused.
pub const MOST_WAITING: usize = 64;

/// Somebody who waits for a write, and the token as it has to be then.
#[derive(Debug)]
struct Waiting<A> {
    write: u64,
    answer: A,
    /// The node, and the token that a machine has used.
    used: Option<(NodeId, IssuedToken)>,
}

/// The state has what somebody waited for.
#[derive(Debug, PartialEq, Eq)]
pub struct TokenSettled<A> {
    /// Who.
    pub answer: A,
    /// Whether it still counts: a revocation may have come, or a newer token.
    pub counts: Result<(), JoinRefusal>,
}

/// The tokens that a leading head knows, and who waits for the state. `A` is how to answer them.
#[derive(Debug)]
pub struct SharedTokens<A> {
    tokens: JoinTokens,
    /// The write with the last change.
    last: u64,
    waiting: VecDeque<Waiting<A>>,
}

impl<A> SharedTokens<A> {
    /// Those that the state has when the head begins to lead.
    #[must_use]
    pub fn new(known: JoinTokens) -> Self {
        Self { tokens: known, last: 0, waiting: VecDeque::new() }
    }

    /// The tokens, with changes that are on their way.
    #[must_use]
    pub fn tokens(&self) -> &JoinTokens {
        &self.tokens
    }

    /// Whether so many wait that no more may.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.waiting.len() >= MOST_WAITING
    }

    /// Nobody waits any more who does not fulfil this.
    pub fn retain_waiting(&mut self, mut is_there: impl FnMut(&A) -> bool) {
        self.waiting.retain(|waiting| is_there(&waiting.answer));
    }

    /// Somebody waits for the write with this number, in which are changes that the head begins with.
    pub fn wait(&mut self, write: u64, answer: A) {
        self.waiting.push_back(Waiting { write, answer, used: None });
    }

    /// A new token of a node, until this time in milliseconds since the epoch. Returns what the write with this number has to
    /// change. `answer` says who waits for that, when it knows the end of the token in milliseconds since the epoch.
    pub fn issue(
        &mut self,
        write: u64,
        (node, secret): (NodeId, &JoinSecret),
        (now_ms, valid_ms): (u64, u64),
        answer: impl FnOnce(u64) -> A,
    ) -> TokenChanges {
        let before = self.tokens.clone();
        let until_ms = self.tokens.issue(node, secret, now_ms, valid_ms);
        self.last = write;
        self.wait(write, answer(until_ms));
        self.tokens.changes_since(&before)
    }

    /// A machine wants to use a token for its key. Returns what the write with this number has to change: nothing if it was used
    /// for that key before. For the other arguments see [`JoinTokens::check`].
    ///
    /// # Errors
    /// As [`JoinTokens::check`]; then nobody waits.
    pub fn spend(
        &mut self,
        write: u64,
        shown: (&JoinSecret, &[u8]),
        (now_ms, is_revoked): (u64, impl Fn(NodeId, u64) -> bool),
        answer: A,
    ) -> Result<TokenChanges, (JoinRefusal, A)> {
        let node = match self.tokens.check(shown, now_ms, is_revoked) {
            Ok(good) => good.node,
            Err(refusal) => return Err((refusal, answer)),
        };
        let before = self.tokens.get(node).cloned();
        self.tokens.set_used(node, shown.1);
        let after = self.tokens.get(node).cloned();
        let mut changes = TokenChanges::new();
        if after != before {
            changes.insert(node, after.clone());
            self.last = write;
        }
        // The first use may be on its way yet.
        let used = after.map(|token| (node, token));
        self.waiting.push_back(Waiting { write: self.last, answer, used });
        Ok(changes)
    }

    /// The node was revoked: its token counts no more, whatever clocks say of which came first. Returns what the write with the
    /// revocation has to change, too.
    pub fn revoke(&mut self, write: u64, node: NodeId) -> TokenChanges {
        if self.tokens.get(node).is_some() {
            self.tokens.remove(node);
            self.last = write;
        }
        // Also one that only a later version reads.
        TokenChanges::from([(node, None)])
    }

    /// The next one who waited for a write that is settled, in the order in which they came. Only a head that is sure to lead may
    /// ask for that.
    pub fn settle(&mut self, is_settled: impl Fn(u64) -> bool) -> Option<TokenSettled<A>> {
        self.waiting.front().filter(|first| is_settled(first.write))?;
        let Waiting { answer, used, .. } = self.waiting.pop_front()?;
        let still = |(node, token): &(NodeId, IssuedToken)| self.tokens.get(*node) == Some(token);
        let counts = used.as_ref().is_none_or(still);
        let counts = if counts { Ok(()) } else { Err(JoinRefusal::Unknown) };
        Some(TokenSettled { answer, counts })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: NodeId = NodeId(3);
    const TIMES: (u64, u64) = (1_000, 86_400_000);
    const SECRET: JoinSecret = JoinSecret([1; 16]);

    fn never(_: NodeId, _: u64) -> bool {
        false
    }

    fn issued() -> SharedTokens<&'static str> {
        let mut shared = SharedTokens::new(JoinTokens::default());
        let changes = shared.issue(1, (NODE, &SECRET), TIMES, |until| {
            assert_eq!(until, TIMES.0 + TIMES.1);
            "client"
        });
        assert_eq!(changes.keys().collect::<alloc::vec::Vec<_>>(), [&NODE]);
        shared
    }

    fn told(shared: &mut SharedTokens<&'static str>, settled: u64) -> Option<&'static str> {
        let one = shared.settle(|write| write <= settled)?;
        assert_eq!(one.counts, Ok(()));
        Some(one.answer)
    }

    #[test]
    fn nobody_is_answered_before_the_state_has_it() {
        let mut shared = issued();
        assert_eq!(told(&mut shared, 0), None);
        let changes = shared.spend(2, (&SECRET, b"key"), (2_000, never), "machine").unwrap();
        assert!(changes[&NODE].as_ref().unwrap().used_by.is_some());
        // The same machine again: nothing changes, and it waits for the first use.
        let again = shared.spend(5, (&SECRET, b"key"), (2_000, never), "again").unwrap();
        assert!(again.is_empty());
        let other = shared.spend(5, (&SECRET, b"other"), (2_000, never), "thief");
        assert_eq!(other, Err((JoinRefusal::Used, "thief")));
        assert_eq!((told(&mut shared, 1), told(&mut shared, 1)), (Some("client"), None));
        assert_eq!((told(&mut shared, 2), told(&mut shared, 2)), (Some("machine"), Some("again")));
        assert_eq!(told(&mut shared, 9), None);
    }

    #[test]
    fn a_revocation_or_a_newer_token_comes_before_the_answer() {
        for revoked in [true, false] {
            let mut shared = issued();
            shared.spend(2, (&SECRET, b"key"), (2_000, never), "machine").unwrap();
            if revoked {
                for node in [NODE, NODE, NodeId(9)] {
                    // Also of a token that this version does not know.
                    assert_eq!(shared.revoke(3, node), TokenChanges::from([(node, None)]));
                }
            } else {
                shared.issue(3, (NODE, &JoinSecret([2; 16])), TIMES, |_| "client");
            }
            assert_eq!(told(&mut shared, 2), Some("client"));
            let machine = shared.settle(|write| write <= 2).unwrap();
            assert_eq!((machine.answer, machine.counts), ("machine", Err(JoinRefusal::Unknown)));
            let again = shared.spend(4, (&SECRET, b"key"), (2_000, never), "machine");
            assert_eq!(again, Err((JoinRefusal::Unknown, "machine")));
        }
    }

    #[test]
    fn what_waits_is_bounded_and_those_who_are_gone_make_room() {
        let mut shared = issued();
        for _ in 1..MOST_WAITING {
            assert!(!shared.is_full());
            shared.spend(2, (&SECRET, b"key"), (2_000, never), "machine").unwrap();
        }
        assert!(shared.is_full());
        shared.retain_waiting(|&answer| answer == "client");
        assert!(!shared.is_full());
        assert_eq!((told(&mut shared, 2), told(&mut shared, 2)), (Some("client"), None));
    }
}
