//! Connection options from environment variables.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use super::{CallError, Options};

impl Options {
    /// Options with the token of `KUMI_CALL_TOKEN`, the authorities of `KUMI_CALL_CA`, and the limits of
    /// `KUMI_CALL_FILE_BYTES` ([`Options::file_bytes`]) and `KUMI_CALL_RETRY_TIME` ([`Options::retry_time`], in
    /// seconds), where these are set.
    ///
    /// # Errors
    /// [`CallError::Environment`]: a variable has an impossible value.
    pub fn from_env() -> Result<Options, CallError> {
        Options::of(|name| std::env::var_os(name))
    }

    fn of(variable: impl Fn(&str) -> Option<OsString>) -> Result<Options, CallError> {
        let set = |name| variable(name).filter(|value| !value.is_empty());
        let wrong = |name, text| CallError::Environment { name, text };
        let mut options =
            Options { ca: set("KUMI_CALL_CA").map(PathBuf::from), ..Options::default() };
        if let Some(token) = set("KUMI_CALL_TOKEN") {
            // The message does not repeat the value: it may be a secret.
            let text = "is not UTF-8".to_owned();
            options.token = token.into_string().map_err(|_| wrong("KUMI_CALL_TOKEN", text))?;
        }
        if let Some(bytes) = set("KUMI_CALL_FILE_BYTES") {
            let number = bytes.to_str().and_then(|bytes| bytes.parse().ok());
            options.file_bytes = number.ok_or_else(|| {
                let text = format!("is a number of bytes, not `{}`", bytes.display());
                wrong("KUMI_CALL_FILE_BYTES", text)
            })?;
        }
        if let Some(time) = set("KUMI_CALL_RETRY_TIME") {
            let number = time.to_str().and_then(|time| time.parse().ok());
            options.retry_time = Some(number.map(Duration::from_secs).ok_or_else(|| {
                let text = format!("is a number of seconds, not `{}`", time.display());
                wrong("KUMI_CALL_RETRY_TIME", text)
            })?);
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    fn of(name: &str, value: &[u8]) -> Result<Options, CallError> {
        Options::of(|asked| (asked == name).then(|| OsString::from_vec(value.to_vec())))
    }

    #[test]
    fn variables_that_are_set_and_right_count() {
        let usual = Options::of(|_| None).expect("nothing is set");
        assert_eq!((usual.token.as_str(), usual.ca, usual.file_bytes), ("", None, 16 << 30));
        assert_eq!(of("KUMI_CALL_TOKEN", b"secret").expect("a token").token, "secret");
        let ca = of("KUMI_CALL_CA", b"\xff.pem").expect("any name").ca.expect("it is set");
        assert_eq!(ca.into_os_string().into_vec(), b"\xff.pem");
        assert_eq!(of("KUMI_CALL_FILE_BYTES", b"8").expect("a number").file_bytes, 8);
        assert_eq!(of("KUMI_CALL_FILE_BYTES", b"").expect("as if unset").file_bytes, 16 << 30);
        assert_eq!(usual.retry_time, None);
        let time = of("KUMI_CALL_RETRY_TIME", b"90").expect("a number").retry_time;
        assert_eq!(time, Some(Duration::from_secs(90)));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for wrong in [&b"16 GiB"[..], b"-1", b"1e9", b"18446744073709551616", b"8\xff"] {
            let error = of("KUMI_CALL_FILE_BYTES", wrong).expect_err("no number");
            assert!(error.has_not_run(), "{error:?}");
            let said = error.to_string();
            let shown = String::from_utf8_lossy(wrong);
            let start = format!("KUMI_CALL_FILE_BYTES is a number of bytes, not `{shown}`");
            assert!(said.starts_with(&start) && said.ends_with("correct or unset it"), "{said}");
        }
        let said = of("KUMI_CALL_RETRY_TIME", b"1h").expect_err("no number").to_string();
        assert!(
            said.starts_with("KUMI_CALL_RETRY_TIME is a number of seconds, not `1h`"),
            "{said}"
        );
        let said = of("KUMI_CALL_TOKEN", b"secret\xff").expect_err("no text").to_string();
        assert!(
            said.starts_with("KUMI_CALL_TOKEN is not UTF-8") && !said.contains("secret"),
            "{said}"
        );
    }
}
