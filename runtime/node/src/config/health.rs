//! A program of the administrator that looks whether a node is in order: table `[health]` of cluster.toml.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::hooks::check_path;
use super::{ConfigError, invalid};

/// The check that the daemon of each node runs as its own user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Health {
    /// Absolute path of the program; a node is in order while it ends with 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<PathBuf>,
    /// Seconds from the end of a check to the next, 1 to 86,400.
    #[serde(default = "defaults::interval_s")]
    pub interval_s: u32,
    /// Seconds after which it is killed and has failed, 1 to 3,600.
    #[serde(default = "defaults::timeout_s")]
    pub timeout_s: u32,
    /// The node is drained when the check has failed so often in a row, 1 to 100.
    #[serde(default = "defaults::failures")]
    pub failures: u32,
}

/// Values of keys that the file leaves out.
mod defaults {
    pub(super) fn interval_s() -> u32 {
        60
    }
    pub(super) fn timeout_s() -> u32 {
        30
    }
    pub(super) fn failures() -> u32 {
        3
    }
}

impl Default for Health {
    fn default() -> Self {
        Self {
            program: None,
            interval_s: defaults::interval_s(),
            timeout_s: defaults::timeout_s(),
            failures: defaults::failures(),
        }
    }
}

impl Health {
    pub(super) fn says_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// Time between checks.
    #[must_use]
    pub fn interval(&self) -> Duration {
        Duration::from_secs(self.interval_s.into())
    }

    /// How long a check may take.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout_s.into())
    }

    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        check_path("program under [health]", self.program.as_deref())?;
        for (key, value, most) in [
            ("interval_s", self.interval_s, 86_400),
            ("timeout_s", self.timeout_s, 3_600),
            ("failures", self.failures, 100),
        ] {
            if !(1..=most).contains(&value) {
                return invalid(format!(
                    "{key} under [health] is {value}, which is not between 1 and {most}"
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{GOOD, parse};
    use super::*;

    #[test]
    fn the_check_is_read_and_checked() {
        assert_eq!(parse(GOOD).unwrap().health, Health::default());
        let some = parse(&format!("{GOOD}[health]\nprogram = \"/bin/true\"\ninterval_s = 5\n"));
        let expected =
            Health { program: Some("/bin/true".into()), interval_s: 5, ..Health::default() };
        assert_eq!(some.unwrap().health, expected);
        for (wrong, says) in [
            ("program = \"true\"", "program under [health]"),
            ("interval_s = 0", "interval_s under [health] is 0"),
            ("failures = 101", "failures under [health] is 101"),
            ("check = \"/x\"", "unknown field"),
        ] {
            let error = parse(&format!("{GOOD}[health]\n{wrong}\n")).unwrap_err().to_string();
            assert!(error.contains(says), "{wrong}: {error}");
        }
    }
}
