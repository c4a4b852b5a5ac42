//! Encryption key of a job's packets.

use serde::{Deserialize, Serialize};

/// The random key with which a job's packets are encrypted.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealKey(pub [u8; 16]);

impl core::fmt::Debug for SealKey {
    /// Does not show the key: it must not end up in logs.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("SealKey(..)")
    }
}
