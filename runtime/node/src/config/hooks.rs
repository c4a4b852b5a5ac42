//! Programs of the administrator that a node runs before and after jobs: table `[hooks]` of cluster.toml.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{ConfigError, invalid};

/// Longest time that a hook may be given, in seconds.
const LONGEST_S: u32 = 3_600;

/// Programs that the daemon of each node runs as its own user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hooks {
    /// Absolute path of what runs at a node before the first rank of a job starts there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prolog: Option<PathBuf>,
    /// Absolute path of what runs at a node after the last rank of a job has ended there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epilog: Option<PathBuf>,
    /// Seconds after which either is killed and has failed, 1 to 3,600.
    #[serde(default = "defaults::timeout_s")]
    pub timeout_s: u32,
}

/// Values of keys that the file leaves out.
mod defaults {
    pub(super) fn timeout_s() -> u32 {
        60
    }
}

impl Default for Hooks {
    fn default() -> Self {
        Self { prolog: None, epilog: None, timeout_s: defaults::timeout_s() }
    }
}

impl Hooks {
    pub(super) fn says_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// How long a hook may take.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout_s.into())
    }

    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        check_path("prolog under [hooks]", self.prolog.as_deref())?;
        check_path("epilog under [hooks]", self.epilog.as_deref())?;
        if !(1..=LONGEST_S).contains(&self.timeout_s) {
            return invalid(format!(
                "timeout_s under [hooks] is {}, which is not between 1 and {LONGEST_S}",
                self.timeout_s
            ));
        }
        Ok(())
    }
}

/// Checks the path of a program of the administrator. Whether it is there, and who may write it, only its node can say.
pub(super) fn check_path(key: &str, path: Option<&Path>) -> Result<(), ConfigError> {
    match path {
        Some(path) if !path.is_absolute() => invalid(format!(
            "{key} is {:?}, which is not an absolute path; write it from / on",
            path.display().to_string()
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{GOOD, parse};
    use super::*;

    #[test]
    fn hooks_are_read_and_checked() {
        assert_eq!(parse(GOOD).unwrap().hooks, Hooks::default());
        let some = parse(&format!("{GOOD}[hooks]\nprolog = \"/etc/kumi/prolog\"\ntimeout_s = 5\n"));
        let expected =
            Hooks { prolog: Some("/etc/kumi/prolog".into()), epilog: None, timeout_s: 5 };
        assert_eq!(some.unwrap().hooks, expected);
        for (wrong, says) in [
            ("prolog = \"bin/prolog\"", "prolog under [hooks]"),
            ("epilog = \"\"", "not an absolute path"),
            ("timeout_s = 0", "timeout_s under [hooks] is 0"),
            ("prologue = \"/x\"", "unknown field"),
        ] {
            let error = parse(&format!("{GOOD}[hooks]\n{wrong}\n")).unwrap_err().to_string();
            assert!(error.contains(says), "{wrong}: {error}");
        }
    }
}
