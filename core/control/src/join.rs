//! How a machine becomes a node: with a token, which the head has issued and which counts once.
//!
//! The machine makes its key itself. It connects to the head's port over TLS, with the protocol name [`PROTOCOL`] and without
//! a certificate of its own, and knows the head by the authority's fingerprint in the token. Then it sends a [`JoinHello`] and
//! gets a [`JoinAnswer`]. The version in the hello comes first in every version, so that any head can refuse any other.

use alloc::string::String;
use alloc::vec::Vec;

use kumi_sched::NodeId;
use serde::{Deserialize, Serialize};

use crate::compat::Versions;

mod shared;
mod token;
mod tokens;
pub use shared::{MOST_WAITING, SharedTokens, TokenSettled};
pub use token::{JoinToken, LONGEST_TOKEN, MOST_ADDRESSES, TokenError};
pub use tokens::{GoodToken, IssuedToken, JoinTokens, TokenChanges, check_validity};

/// Version of [`JoinHello`] and [`JoinAnswer`].
pub const JOIN_VERSION: u32 = 1;
/// Name of the protocol in the TLS handshake (ALPN). Who does not name it is a daemon and needs a certificate.
pub const PROTOCOL: &[u8] = b"kumi-join";
/// Most bytes of a [`JoinHello`]: strangers can send one.
pub const HELLO_LIMIT: usize = 512;
/// Bytes of a public key: a point of the curve P-256, uncompressed.
pub const KEY_BYTES: usize = 65;

/// The secret of a token.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinSecret(pub [u8; 16]);

impl core::fmt::Debug for JoinSecret {
    /// Does not show the secret: it must not end up in logs.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("JoinSecret(..)")
    }
}

impl JoinSecret {
    /// What is kept of it.
    #[must_use]
    pub fn hash(&self) -> [u8; 32] {
        blake3::derive_key("kumi 2026 hash of the secret of a join token", &self.0)
    }
}

/// What the machine says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinHello {
    /// [`JOIN_VERSION`].
    pub version: u32,
    /// The version of the control protocol that its daemon is to speak. A head that does not speak it says its own, and a machine
    /// that knows that one asks again with it.
    pub control: u32,
    /// Of the token.
    pub secret: JoinSecret,
    /// The public key that the certificate is to be for: [`KEY_BYTES`].
    #[serde(with = "crate::bytes")]
    pub public_key: Vec<u8>,
    /// Signature of [`JoinHello::signed`] with the key, in DER: the machine has the key, and no other's.
    #[serde(with = "crate::bytes")]
    pub proof: Vec<u8>,
}

impl JoinHello {
    /// What is signed.
    #[must_use]
    pub fn signed(secret: &JoinSecret, public_key: &[u8]) -> Vec<u8> {
        let mut text = Vec::from(*b"kumi join: the key of a node\0");
        text.extend_from_slice(&secret.hash());
        text.extend_from_slice(public_key);
        text
    }
}

/// What the head answers.
pub type JoinAnswer = Result<Joined, JoinRefusal>;

/// All that the machine needs besides its own key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Joined {
    /// Its number.
    pub node: NodeId,
    /// The cluster's configuration: the content of cluster.toml.
    pub configuration: String,
    /// Its certificate, PEM.
    pub certificate: String,
    /// The certificate of the authority, PEM.
    pub authority: String,
}

/// Why a machine may not join.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum JoinRefusal {
    /// Another version of Kumi.
    #[error(
        "the newest version of the control protocol that the head speaks is {head}, and this machine {}; install the head's version here",
        Versions::OURS
    )]
    Version {
        /// The head's control version.
        head: u32,
    },
    /// No such token.
    #[error(
        "the head does not know this token: a newer one has replaced it, or its node was removed or revoked; make another with `kumi cluster token NODE`"
    )]
    Unknown,
    /// Its time is over.
    #[error("the time of this token is over; make another with `kumi cluster token NODE`")]
    Expired,
    /// Another key was certified with it.
    #[error(
        "this token has been used, by another machine or another folder; if that was not you, run `kumi cluster revoke NODE` first, which ends the certificate and this token; then make another with `kumi cluster token NODE`"
    )]
    Used,
    /// The machine does not prove that it has the key.
    #[error("the key of this machine is not proven; use the `kumi` that belongs to the cluster")]
    NoProof,
    /// The key that signs certificates is elsewhere.
    #[error(
        "the head cannot sign certificates: tls/ca.key is not in its folder; copy that file to the head's machine (of several heads, to each one's) and repeat the command, or copy this node's files from where the cluster was made"
    )]
    NoAuthority,
    /// The head failed at it. The token still counts.
    #[error("the head could not do it: {0}; repeat the command when that is mended")]
    Failed(String),
    /// The head is busy. The token still counts.
    #[error("the head is busy; repeat the command")]
    NotNow,
    /// Only one of several heads would know that the token is used: heads of earlier versions say so.
    #[error(
        "the head is of an earlier version, where no machine joins with a token if there are several heads; upgrade the heads and repeat the command, or copy this node's files from where the cluster was made"
    )]
    SeveralHeads,
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    fn hello() -> JoinHello {
        JoinHello {
            version: JOIN_VERSION,
            control: 15,
            secret: JoinSecret([7; 16]),
            public_key: Vec::from([4; KEY_BYTES]),
            proof: Vec::from([9; 72]),
        }
    }

    #[test]
    fn the_version_is_the_first_number_and_a_hello_is_short() {
        let bytes = postcard::to_allocvec(&hello()).unwrap();
        assert_eq!(bytes[..2], [1, 15]);
        assert!(bytes.len() < HELLO_LIMIT, "{}", bytes.len());
        assert_eq!(postcard::from_bytes::<JoinHello>(&bytes).unwrap(), hello());
        assert_eq!(postcard::to_allocvec(&JoinAnswer::Err(JoinRefusal::Unknown)).unwrap(), [1, 1]);
    }

    #[test]
    fn secrets_are_not_shown() {
        let shown = format!("{:?}", hello());
        assert!(shown.contains("JoinSecret(..)") && !shown.contains("[7, 7"), "{shown}");
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_a_hello_or_an_error(bytes: Vec<u8>) {
            if let Ok(hello) = postcard::from_bytes::<JoinHello>(&bytes) {
                proptest::prop_assert!(hello.public_key.len() + hello.proof.len() <= bytes.len());
            }
        }
    }
}
