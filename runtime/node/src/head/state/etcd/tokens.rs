//! Tokens of machines that join, in etcd: a key for each node, and one that says that tokens are there.
//!
//! A value begins with the version of its layout. What a later version has written is passed over and stays.

use kumi_control::join::{IssuedToken, JoinTokens, TokenChanges};
use kumi_etcd::EtcdError;
use kumi_etcd::api::{Change, Pair};
use kumi_sched::NodeId;

use super::Records;
use crate::head::job_table::TableError;

/// Version of the layout.
const VERSION: u32 = 1;

/// Times of issue and end, hash, and hash of the key that it was used for.
type Value = (u64, u64, [u8; 32], Option<[u8; 32]>);

fn encode(token: &IssuedToken) -> Result<Vec<u8>, TableError> {
    let IssuedToken { hash, issued_ms, until_ms, used_by } = token;
    Ok(postcard::to_allocvec(&(VERSION, (issued_ms, until_ms, hash, used_by)))?)
}

/// The token in a value, unless a later version has written it; nothing if it is another value.
fn decode(value: &[u8]) -> Option<Option<IssuedToken>> {
    let (version, rest) = postcard::take_from_bytes::<u32>(value).ok()?;
    if version > VERSION {
        return Some(None);
    }
    let ((issued_ms, until_ms, hash, used_by), rest): (Value, &[u8]) =
        postcard::take_from_bytes(rest).ok()?;
    rest.is_empty().then_some(Some(IssuedToken { hash, issued_ms, until_ms, used_by }))
}

impl Records {
    fn tokens_key(&self) -> String {
        format!("{}/tokens", self.prefix)
    }

    fn node_of(&self, key: &str) -> Option<NodeId> {
        let number = key.strip_prefix(&self.tokens_key())?.strip_prefix('/')?;
        u32::from_str_radix(number, 16).ok().map(NodeId)
    }

    /// Changes of keys for changes of tokens. That there are tokens is said each time.
    pub(super) fn token_changes(&self, tokens: &TokenChanges) -> Result<Vec<Change>, TableError> {
        let folder = self.tokens_key();
        let mut changes = Vec::new();
        for (node, token) in tokens {
            let value = token.as_ref().map(encode).transpose()?;
            changes.push((format!("{folder}/{:08x}", node.0), value));
        }
        changes.push((folder, Some(b"1".to_vec())));
        Ok(changes)
    }

    /// All tokens; none if no head has said that they are here.
    pub(super) async fn tokens(&mut self) -> Result<Option<JoinTokens>, TableError> {
        let folder = self.tokens_key();
        let (mut are_here, mut tokens) = (false, Vec::new());
        for Pair { key, value, .. } in self.all(&folder).await? {
            if key == folder {
                are_here = true;
                continue;
            }
            // Another key may begin with the same letters.
            if !key.starts_with(&format!("{folder}/")) {
                continue;
            }
            let wrong = || EtcdError::Content(key.clone());
            let node = self.node_of(&key).ok_or_else(wrong)?;
            match decode(&value).ok_or_else(wrong)? {
                Some(token) => tokens.push((node, token)),
                None => {
                    tracing::warn!(%node, "a token of a later version is passed over");
                }
            }
        }
        Ok(are_here.then(|| tokens.into_iter().collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_comes_back_and_other_values_are_told_apart() {
        let token = IssuedToken { hash: [7; 32], issued_ms: 5, until_ms: 1 << 50, used_by: None };
        let used = IssuedToken { used_by: Some([9; 32]), ..token.clone() };
        for token in [token, used] {
            let value = encode(&token).unwrap();
            assert_eq!(decode(&value), Some(Some(token)));
            assert_eq!(decode(&value[..value.len() - 1]), None);
            assert_eq!(decode(&[&value[..], &[0]].concat()), None);
            let mut later = value;
            later[0] = 2;
            assert_eq!(decode(&later), Some(None));
        }
        assert_eq!(decode(&[]), None);
    }
}
