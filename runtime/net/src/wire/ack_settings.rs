//! The settings `KUMI_ACK` and `KUMI_CHECKSUM`: how packets are acked, and which bytes their checksums
//! cover.

use std::ffi::OsStr;

use kumi_proto::{AckMode, Checksum};

use crate::segment::attachment::AttachError;

/// Reads `KUMI_ACK`.
pub(crate) fn from_env() -> Result<AckMode, AttachError> {
    ack(std::env::var_os("KUMI_ACK").as_deref())
}

/// Reads `KUMI_CHECKSUM`.
pub(crate) fn checksum_from_env() -> Result<Checksum, AttachError> {
    checksum(std::env::var_os("KUMI_CHECKSUM").as_deref())
}

fn ack(text: Option<&OsStr>) -> Result<AckMode, AttachError> {
    let words = [("reduced", AckMode::Reduced), ("per-message", AckMode::PerMessage)];
    choose("KUMI_ACK", text, words, "reduced or per-message")
}

fn checksum(text: Option<&OsStr>) -> Result<Checksum, AttachError> {
    let words = [("headers", Checksum::Headers), ("all", Checksum::All)];
    choose("KUMI_CHECKSUM", text, words, "headers or all")
}

/// The meaning of a word; the default if there is none.
fn choose<T: Default>(
    name: &'static str,
    text: Option<&OsStr>,
    words: [(&str, T); 2],
    expected: &'static str,
) -> Result<T, AttachError> {
    let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(T::default()) };
    let meant = words.into_iter().find(|(word, _)| text == OsStr::new(word));
    meant.map(|(_, value)| value).ok_or_else(|| {
        let found = text.to_string_lossy().into_owned();
        AttachError::BadSetting { name, found, expected }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_stand_there() {
        let ack = |text: &str| ack(Some(text.as_ref()));
        assert_eq!(super::ack(None).unwrap(), AckMode::Reduced);
        assert_eq!(ack("").unwrap(), AckMode::Reduced);
        assert_eq!(ack("reduced").unwrap(), AckMode::Reduced);
        assert_eq!(ack("per-message").unwrap(), AckMode::PerMessage);
        let error = ack("always").unwrap_err().to_string();
        assert!(error.contains("KUMI_ACK") && error.contains("reduced or per-message"), "{error}");
    }

    #[test]
    fn what_a_checksum_may_cover() {
        let checksum = |text: &str| checksum(Some(text.as_ref()));
        assert_eq!(super::checksum(None).unwrap(), Checksum::Headers);
        assert_eq!(checksum("headers").unwrap(), Checksum::Headers);
        assert_eq!(checksum("all").unwrap(), Checksum::All);
        let error = checksum("none").unwrap_err().to_string();
        assert!(error.contains("KUMI_CHECKSUM") && error.contains("headers or all"), "{error}");
    }
}
