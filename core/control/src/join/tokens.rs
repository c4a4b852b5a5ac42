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
    /// Its end, in milliseconds since the epoch.
    pub until_ms: u64,
    /// BLAKE3 of the public key that was certified with it.
    pub used_by: Option<[u8; 32]>,
}

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

    /// Notes a new token of a node, instead of an older one. Returns its end.
    pub fn issue(&mut self, node: NodeId, secret: &JoinSecret, now_ms: u64, valid_ms: u64) -> u64 {
        self.0.retain(|_, token| now_ms < token.until_ms.saturating_add(REMEMBERED_MS));
        let until_ms = now_ms.saturating_add(valid_ms);
        self.0.insert(node, IssuedToken { hash: secret.hash(), until_ms, used_by: None });
        until_ms
    }

    /// The tokens of removed nodes count no more.
    pub fn forget(&mut self, node: NodeId) -> bool {
        self.0.remove(&node).is_some()
    }

    /// The node that a machine with this secret and this public key may be. Whoever was certified may ask again with the same
    /// key, since the answer may not have arrived.
    ///
    /// # Errors
    /// There is no such token, its time is over, or another key was certified with it.
    pub fn check(
        &self,
        secret: &JoinSecret,
        public_key: &[u8],
        now_ms: u64,
    ) -> Result<NodeId, JoinRefusal> {
        // Hashes of secrets are compared: how long that takes tells nobody a secret.
        let hash = secret.hash();
        let known = self.0.iter().find(|(_, token)| token.hash == hash);
        let (&node, token) = known.ok_or(JoinRefusal::Unknown)?;
        match token.used_by {
            Some(key) if key != key_hash(public_key) => Err(JoinRefusal::Used),
            _ if now_ms >= token.until_ms => Err(JoinRefusal::Expired),
            _ => Ok(node),
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

    #[test]
    fn a_token_counts_once_and_for_its_time() {
        let (mut tokens, secret) = issued();
        assert_eq!(tokens.check(&secret, b"key", NOW + DAY - 1), Ok(NodeId(3)));
        assert_eq!(tokens.check(&secret, b"key", NOW + DAY), Err(JoinRefusal::Expired));
        assert_eq!(tokens.check(&JoinSecret([2; 16]), b"key", NOW), Err(JoinRefusal::Unknown));
        tokens.set_used(NodeId(3), b"key");
        // The answer got lost: the same machine asks again.
        assert_eq!(tokens.check(&secret, b"key", NOW), Ok(NodeId(3)));
        assert_eq!(tokens.check(&secret, b"other", NOW), Err(JoinRefusal::Used));
        assert_eq!(tokens.check(&secret, b"other", NOW + DAY), Err(JoinRefusal::Used));
    }

    #[test]
    fn a_newer_token_replaces_an_older_one_and_a_removed_node_has_none() {
        let (mut tokens, secret) = issued();
        let newer = JoinSecret([2; 16]);
        tokens.issue(NodeId(3), &newer, NOW, DAY);
        assert_eq!(tokens.check(&secret, b"key", NOW), Err(JoinRefusal::Unknown));
        assert_eq!(tokens.check(&newer, b"key", NOW), Ok(NodeId(3)));
        assert!(tokens.forget(NodeId(3)) && !tokens.forget(NodeId(3)));
        assert_eq!(tokens.check(&newer, b"key", NOW), Err(JoinRefusal::Unknown));
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
