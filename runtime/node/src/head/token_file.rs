//! The file of the tokens with which machines may join.

use std::io;

use kumi_control::join::{IssuedToken, JoinTokens};
use kumi_sched::NodeId;
use serde::{Deserialize, Serialize};

use crate::paths;

/// What stands above the list.
const TITLE: &str = "# Tokens with which machines may join: hashes, not the tokens. `kumi node add --token` and `kumi cluster \
                     token` write this file.\n";

/// The whole file.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    #[serde(default)]
    token: Vec<Entry>,
}

/// A token in the file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    node: u32,
    hash: String,
    /// Earlier heads did not say it: then any revocation of the node ends the token.
    #[serde(default)]
    issued_ms: u64,
    until_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    used_by: Option<String>,
}

impl Entry {
    fn new(node: NodeId, token: &IssuedToken) -> Self {
        Self {
            node: node.0,
            hash: paths::hex(&token.hash),
            issued_ms: token.issued_ms,
            until_ms: token.until_ms,
            used_by: token.used_by.as_ref().map(|key| paths::hex(key)),
        }
    }

    fn read(self) -> Option<(NodeId, IssuedToken)> {
        let used_by = match self.used_by {
            Some(key) => Some(unhex(&key)?),
            None => None,
        };
        let Self { issued_ms, until_ms, .. } = self;
        let token = IssuedToken { hash: unhex(&self.hash)?, issued_ms, until_ms, used_by };
        Some((NodeId(self.node), token))
    }
}

/// The tokens in the text of the file; none if it is another one.
pub(super) fn read(text: &str) -> Option<JoinTokens> {
    let content: Content = toml::from_str(text).ok()?;
    content.token.into_iter().map(Entry::read).collect()
}

/// The text of the file.
///
/// # Errors
/// They are no TOML, which is a fault of this program.
pub(super) fn write(tokens: &JoinTokens) -> io::Result<String> {
    let token = tokens.iter().map(|(node, token)| Entry::new(node, token)).collect();
    let text = toml::to_string_pretty(&Content { token }).map_err(io::Error::other)?;
    Ok(format!("{TITLE}{text}"))
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if text.len() != 2 * bytes.len() {
        return None;
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(bytes)
}
