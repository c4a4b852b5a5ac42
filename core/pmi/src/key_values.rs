//! Keys and values that ranks put, and exchange at barriers.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use crate::message::MOST_EXCHANGE;

/// Longest key, in bytes.
pub const LONGEST_KEY: usize = 256;
/// Longest value, in bytes.
pub const LONGEST_VALUE: usize = 16 << 10;
/// Most bytes of all pairs of a job.
const MOST_BYTES: usize = 8 * MOST_EXCHANGE;
/// What a pair takes beside its texts.
const PAIR: usize = 16;

/// Why a pair is not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PutError {
    /// Key or value is too long.
    #[error("key_or_value_too_long")]
    TooLong,
    /// There are too many.
    #[error("too_many_values")]
    TooMany,
}

/// The pairs of a job that a node knows, and those that its ranks put since the last exchange.
#[derive(Clone, Debug, Default)]
pub struct KeyValues {
    known: BTreeMap<String, String>,
    known_bytes: usize,
    fresh: Vec<(String, String)>,
    fresh_bytes: usize,
}

impl KeyValues {
    /// A rank of this node puts a pair. All ranks here know it at once, others after the next exchange.
    ///
    /// # Errors
    /// It is not kept.
    pub fn put(&mut self, key: &str, value: &str) -> Result<(), PutError> {
        if key.is_empty() || key.len() > LONGEST_KEY || value.len() > LONGEST_VALUE {
            return Err(PutError::TooLong);
        }
        let bytes = key.len() + value.len() + PAIR;
        if self.fresh_bytes + bytes > MOST_EXCHANGE / 2 || !self.learn(key.into(), value.into()) {
            return Err(PutError::TooMany);
        }
        self.fresh_bytes += bytes;
        self.fresh.push((key.into(), value.into()));
        Ok(())
    }

    /// The value of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.known.get(key).map(String::as_str)
    }

    /// What this node contributes to an exchange.
    ///
    /// # Errors
    /// It cannot be encoded.
    pub fn take_fresh(&mut self) -> Result<Vec<u8>, postcard::Error> {
        self.fresh_bytes = 0;
        postcard::to_allocvec(&core::mem::take(&mut self.fresh))
    }

    /// Takes over what nodes contributed.
    ///
    /// # Errors
    /// A sentence: it is no contribution, or too much.
    pub fn merge(&mut self, parts: &[Vec<u8>]) -> Result<(), String> {
        for part in parts {
            let pairs: Vec<(String, String)> = postcard::from_bytes(part)
                .map_err(|_| String::from("another node sent what are no keys and values"))?;
            for (key, value) in pairs {
                if !self.learn(key, value) {
                    return Err("its ranks put more keys and values than are kept".into());
                }
            }
        }
        Ok(())
    }

    fn learn(&mut self, key: String, value: String) -> bool {
        let before = self.known.get(&key).map_or(0, |old| key.len() + old.len() + PAIR);
        let bytes = self.known_bytes - before + key.len() + value.len() + PAIR;
        if bytes > MOST_BYTES {
            return false;
        }
        self.known_bytes = bytes;
        self.known.insert(key, value);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_know_each_others_pairs_after_an_exchange() {
        let (mut one, mut other) = (KeyValues::default(), KeyValues::default());
        one.put("a", "1").unwrap();
        other.put("b", "2").unwrap();
        assert_eq!((one.get("a"), one.get("b")), (Some("1"), None));
        let parts = [one.take_fresh().unwrap(), other.take_fresh().unwrap()];
        one.merge(&parts).unwrap();
        other.merge(&parts).unwrap();
        assert_eq!((one.get("b"), other.get("a")), (Some("2"), Some("1")));
        let nothing = KeyValues::default().take_fresh().unwrap();
        assert_eq!(one.take_fresh().unwrap(), nothing, "pairs are sent once");
        assert!(one.merge(&[Vec::from([9, 200])]).is_err());
    }

    #[test]
    fn pairs_are_bounded() {
        let mut values = KeyValues::default();
        let long = |length| "x".repeat(length);
        assert_eq!(values.put("", "x"), Err(PutError::TooLong));
        assert_eq!(values.put(&long(LONGEST_KEY + 1), "x"), Err(PutError::TooLong));
        assert_eq!(values.put("k", &long(LONGEST_VALUE + 1)), Err(PutError::TooLong));
        let value = long(LONGEST_VALUE);
        let mut kept = 0;
        let error = loop {
            match values.put(&alloc::format!("{kept}"), &value) {
                Ok(()) => kept += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(error, PutError::TooMany);
        assert!(kept > 200 && kept * LONGEST_VALUE <= MOST_EXCHANGE / 2);
        assert!(values.take_fresh().unwrap().len() <= MOST_EXCHANGE);
        values.put("next", &value).unwrap();
    }
}
