//! Random identities from the kernel's generator. The seed of hash tables promises nothing of the kind.

use super::EtcdError;

/// A number that no other process has.
pub fn identity() -> Result<u64, EtcdError> {
    getrandom::u64().map_err(|error| EtcdError::Random(error.to_string()))
}
