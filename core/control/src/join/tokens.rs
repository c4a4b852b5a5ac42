//! The tokens that a head has issued. Of each it knows a hash only.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;

use kumi_sched::NodeId;

use super::{JoinRefusal, JoinSecret};

/// The shortest and the longest time for which a token can count, in milliseconds: a minute, thirty days.
const VALIDITY: core::ops::RangeInclusive<u64> = 60_000..=30 * 86_400_000;
/// How long the head remembers a token whose time is over, so that it can say so.
const REMEMBERED_MS: u64 = 7 * 86_400_000;

/// Checks for how long a token is to count.
///
/// # Errors
/// It is less than a minute or more than thirty days, as a sentence.
pub fn check_validity(valid_ms: u64) -> Result<(), String> {
    if VALIDITY.contains(&valid_ms) {
        return Ok(());
    }
    let seconds = valid_ms / 1_000;
    Err(format!("a token counts for one minute to thirty days, not for {seconds} s"))
}

/// What is kept of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuedToken {
    /// [`JoinSecret::hash`].
    pub hash: [u8; 32],
    /// When it was issued, in milliseconds since the epoch; 0 if that is not known.
    pub issued_ms: u64,
    /// Its end, in milliseconds since the epoch.
    pub until_ms: u64,
    /// BLAKE3 of the public key that was certified with it.
    pub used_by: Option<[u8; 32]>,
}

impl IssuedToken {
    /// When it was issued, as revocations count: in microseconds since the epoch.
    fn issued_us(&self) -> u64 {
        self.issued_ms.saturating_mul(1_000)
    }
}

/// A token that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GoodToken {
    /// The node that its holder may be.
    pub node: NodeId,
    /// When it was issued, in microseconds since the epoch. A revocation of the node up to then or later ends it.
    pub issued_us: u64,
}

/// What has changed of tokens: the new one of a node, or that it has none any more.
pub type TokenChanges = BTreeMap<NodeId, Option<IssuedToken>>;

/// The tokens, one for each node at most.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JoinTokens(BTreeMap<NodeId, IssuedToken>);

impl FromIterator<(NodeId, IssuedToken)> for JoinTokens {
    fn from_iter<I: IntoIterator<Item = (NodeId, IssuedToken)>>(tokens: I) -> Self {
        Self(tokens.into_iter().collect())
    }
}

impl JoinTokens {
    /// All of them, by node.
    pub fn iter(&self) -> impl Iterator<Item = (NodeId, &IssuedToken)> + '_ {
        self.0.iter().map(|(&node, token)| (node, token))
    }

    /// The token of a node.
    #[must_use]
    pub fn get(&self, node: NodeId) -> Option<&IssuedToken> {
        self.0.get(&node)
    }

    /// What has changed since the tokens were these.
    #[must_use]
    pub fn changes_since(&self, before: &Self) -> TokenChanges {
        let gone = before.0.keys().filter(|node| !self.0.contains_key(node));
        let gone = gone.map(|&node| (node, None));
        let other = self.0.iter().filter(|&(node, token)| before.0.get(node) != Some(token));
        gone.chain(other.map(|(&node, token)| (node, Some(token.clone())))).collect()
    }

    /// The node has no token any more.
    pub fn remove(&mut self, node: NodeId) {
        self.0.remove(&node);
    }

    /// Notes a new token of a node, instead of an older one. Returns its end.
    pub fn issue(&mut self, node: NodeId, secret: &JoinSecret, now_ms: u64, valid_ms: u64) -> u64 {
        self.0.retain(|_, token| now_ms < token.until_ms.saturating_add(REMEMBERED_MS));
        let until_ms = now_ms.saturating_add(valid_ms);
        let token = IssuedToken { hash: secret.hash(), issued_ms: now_ms, until_ms, used_by: None };
        self.0.insert(node, token);
        until_ms
    }

    /// Tokens count no more that were issued before their node was revoked: `is_revoked` says that of a node and a time in
    /// microseconds since the epoch. Returns whether there were any.
    pub fn forget_revoked(&mut self, is_revoked: impl Fn(NodeId, u64) -> bool) -> bool {
        let before = self.0.len();
        self.0.retain(|&node, token| !is_revoked(node, token.issued_us()));
        self.0.len() != before
    }

    /// The node that a machine with this secret and this public key may be. Whoever was certified may ask again with the same
    /// key, since the answer may not have arrived. For `is_revoked` see [`JoinTokens::forget_revoked`].
    ///
    /// # Errors
    /// There is no such token, its node was revoked, its time is over, or another key was certified with it.
    pub fn check(
        &self,
        (secret, public_key): (&JoinSecret, &[u8]),
        now_ms: u64,
        is_revoked: impl Fn(NodeId, u64) -> bool,
    ) -> Result<GoodToken, JoinRefusal> {
        // Hashes of secrets are compared: how long that takes tells nobody a secret.
        let hash = secret.hash();
        let known = self.0.iter().find(|(_, token)| token.hash == hash);
        let (&node, token) = known.ok_or(JoinRefusal::Unknown)?;
        let issued_us = token.issued_us();
        match token.used_by {
            _ if is_revoked(node, issued_us) => Err(JoinRefusal::Unknown),
            Some(key) if key != key_hash(public_key) => Err(JoinRefusal::Used),
            _ if now_ms >= token.until_ms => Err(JoinRefusal::Expired),
            _ => Ok(GoodToken { node, issued_us }),
        }
    }

    /// The token of a node has been used for this key.
    pub fn set_used(&mut self, node: NodeId, public_key: &[u8]) {
        if let Some(token) = self.0.get_mut(&node) {
            token.used_by = Some(key_hash(public_key));
        }
    }
}

fn key_hash(public_key: &[u8]) -> [u8; 32] {
    *blake3::hash(public_key).as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 86_400_000;
    const NOW: u64 = 1_700_000_000_000;

    fn issued() -> (JoinTokens, JoinSecret) {
        let (mut tokens, secret) = (JoinTokens::default(), JoinSecret([1; 16]));
        assert_eq!(tokens.issue(NodeId(3), &secret, NOW, DAY), NOW + DAY);
        (tokens, secret)
    }

    fn check(
        tokens: &JoinTokens,
        secret: JoinSecret,
        key: &[u8],
        now_ms: u64,
    ) -> Result<NodeId, JoinRefusal> {
        tokens.check((&secret, key), now_ms, |_, _| false).map(|good| good.node)
    }

    #[test]
    fn a_token_counts_once_and_for_its_time() {
        let (mut tokens, secret) = issued();
        assert_eq!(check(&tokens, secret, b"key", NOW + DAY - 1), Ok(NodeId(3)));
        assert_eq!(check(&tokens, secret, b"key", NOW + DAY), Err(JoinRefusal::Expired));
        let other = JoinSecret([2; 16]);
        assert_eq!(check(&tokens, other, b"key", NOW), Err(JoinRefusal::Unknown));
        tokens.set_used(NodeId(3), b"key");
        // The answer got lost: the same machine asks again.
        assert_eq!(check(&tokens, secret, b"key", NOW), Ok(NodeId(3)));
        assert_eq!(check(&tokens, secret, b"other", NOW), Err(JoinRefusal::Used));
        assert_eq!(check(&tokens, secret, b"other", NOW + DAY), Err(JoinRefusal::Used));
    }

    #[test]
    fn a_newer_token_replaces_an_older_one() {
        let (mut tokens, secret) = issued();
        let newer = JoinSecret([2; 16]);
        tokens.issue(NodeId(3), &newer, NOW, DAY);
        assert_eq!(check(&tokens, secret, b"key", NOW), Err(JoinRefusal::Unknown));
        assert_eq!(check(&tokens, newer, b"key", NOW), Ok(NodeId(3)));
    }

    #[test]
    fn a_token_from_before_a_revocation_counts_no_more_used_or_not() {
        for used in [false, true] {
            let (mut tokens, secret) = issued();
            if used {
                tokens.set_used(NodeId(3), b"key");
            }
            tokens.issue(NodeId(4), &JoinSecret([4; 16]), NOW, DAY);
            let until = |us: u64| move |node, issued_us| node == NodeId(3) && issued_us <= us;
            let asked = |until_us| tokens.check((&secret, b"key"), NOW, until(until_us));
            let issued_us = NOW * 1_000;
            assert_eq!(asked(issued_us - 1), Ok(GoodToken { node: NodeId(3), issued_us }));
            assert_eq!(asked(issued_us), Err(JoinRefusal::Unknown));
            assert!(!tokens.forget_revoked(until(issued_us - 1)));
            assert!(tokens.forget_revoked(until(issued_us)));
            assert_eq!(check(&tokens, secret, b"key", NOW), Err(JoinRefusal::Unknown));
            assert_eq!(check(&tokens, JoinSecret([4; 16]), b"key", NOW), Ok(NodeId(4)));
            // One that is made after the revocation counts.
            tokens.issue(NodeId(3), &JoinSecret([5; 16]), NOW + 1, DAY);
            assert!(!tokens.forget_revoked(until(issued_us + 999)));
        }
    }

    #[test]
    fn old_tokens_are_forgotten_and_no_secret_is_kept() {
        let (mut tokens, secret) = issued();
        let (_, kept) = tokens.iter().next().unwrap();
        assert!(!kept.hash.windows(16).any(|part| part == secret.0));
        tokens.issue(NodeId(4), &JoinSecret([9; 16]), NOW + 8 * DAY - 1, DAY);
        assert_eq!(tokens.iter().count(), 2);
        tokens.issue(NodeId(4), &JoinSecret([9; 16]), NOW + 8 * DAY, DAY);
        assert_eq!(tokens.iter().count(), 1);
    }

    #[test]
    fn a_time_has_bounds() {
        assert_eq!((check_validity(60_000), check_validity(30 * DAY)), (Ok(()), Ok(())));
        for wrong in [0, 59_999, 30 * DAY + 1, u64::MAX] {
            assert!(check_validity(wrong).unwrap_err().contains("thirty days"));
        }
    }
}
