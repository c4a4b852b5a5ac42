//! The setting `KUMI_ACK`.

use kumi_proto::AckMode;

use crate::place::AttachError;

/// Reads `KUMI_ACK`.
pub(crate) fn from_env() -> Result<AckMode, AttachError> {
    parse(std::env::var_os("KUMI_ACK").as_deref())
}

fn parse(text: Option<&std::ffi::OsStr>) -> Result<AckMode, AttachError> {
    match text.map(|text| text.to_string_lossy()).as_deref() {
        None | Some("" | "reduced") => Ok(AckMode::Reduced),
        Some("per-message") => Ok(AckMode::PerMessage),
        Some(other) => Err(AttachError::BadSetting {
            name: "KUMI_ACK",
            found: other.to_owned(),
            expected: "reduced or per-message",
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_stand_there() {
        let parse = |text: &str| parse(Some(text.as_ref()));
        assert_eq!(super::parse(None).unwrap(), AckMode::Reduced);
        assert_eq!(parse("reduced").unwrap(), AckMode::Reduced);
        assert_eq!(parse("per-message").unwrap(), AckMode::PerMessage);
        let error = parse("always").unwrap_err().to_string();
        assert!(error.contains("KUMI_ACK") && error.contains("reduced or per-message"), "{error}");
    }
}
