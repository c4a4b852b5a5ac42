//! Descriptions of routines as client, server and metaserver compare them.

/// The hash by which client and server compare descriptions.
#[must_use]
pub fn hash(json: &str) -> u64 {
    twox_hash::XxHash3_64::oneshot(json.as_bytes())
}
