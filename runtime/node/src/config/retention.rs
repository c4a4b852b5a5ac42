//! What the head keeps of jobs that are over: table `[retention]` of cluster.toml.

use std::time::Duration;

use kumi_control::head;
use serde::{Deserialize, Serialize};

use super::{ConfigError, Quotas, invalid};
use crate::durations;

/// Most jobs that are over and stay known.
const MOST_JOBS: u32 = 65_536;

/// What the head keeps of jobs that are over. The rest goes while it runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Retention {
    /// Jobs that are over and stay known, 1 to 65,536. Records and output of those that ended first go.
    #[serde(default = "defaults::jobs")]
    pub jobs: u32,
    /// How long after its end a job stays known, as `12h` or `30d`, at most `365d`.
    #[serde(default = "defaults::age")]
    pub age: String,
    /// MiB of output of jobs that are over, of all users together. Output of the oldest of them goes.
    #[serde(default = "defaults::spool_mib")]
    pub spool_mib: u64,
}

/// Values of keys that the file leaves out.
mod defaults {
    pub(super) fn jobs() -> u32 {
        4_096
    }
    /// A month.
    pub(super) fn age() -> String {
        "30d".to_owned()
    }
    /// 64 GiB.
    pub(super) fn spool_mib() -> u64 {
        65_536
    }
}

impl Default for Retention {
    fn default() -> Self {
        Self { jobs: defaults::jobs(), age: defaults::age(), spool_mib: defaults::spool_mib() }
    }
}

impl Retention {
    pub(super) fn says_nothing(&self) -> bool {
        *self == Self::default()
    }

    fn longest(&self) -> Option<Duration> {
        durations::estimate(&self.age)
    }

    /// As the head's state machine takes it.
    pub fn of_jobs(&self) -> head::Retention {
        let age = self.longest().unwrap_or(Duration::MAX).as_millis();
        head::Retention {
            jobs: usize::try_from(self.jobs).unwrap_or(usize::MAX),
            age_ms: u64::try_from(age).unwrap_or(u64::MAX),
        }
    }

    pub(super) fn validate(&self, quotas: &Quotas) -> Result<(), ConfigError> {
        if !(1..=MOST_JOBS).contains(&self.jobs) {
            return invalid(format!(
                "jobs under [retention] is {}, which is not between 1 and {MOST_JOBS}",
                self.jobs
            ));
        }
        if self.longest().is_none() {
            return invalid(format!(
                "age under [retention] is {:?}, which is not a time; write a number with a unit, for example 12h or \
                 30d, at most 365d",
                self.age
            ));
        }
        // Otherwise output of one job could go before anybody has read it.
        if self.spool_mib < quotas.spool_mib_per_job {
            return invalid(format!(
                "spool_mib under [retention] is {}, which is less than spool_mib_per_job, {}",
                self.spool_mib, quotas.spool_mib_per_job
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{GOOD, parse};
    use super::*;

    #[test]
    fn what_is_kept_is_read_and_checked() {
        let config = parse(GOOD).unwrap();
        assert_eq!(config.retention, Retention::default());
        let month = head::Retention { jobs: 4_096, age_ms: 30 * 86_400_000 };
        assert_eq!(config.retention.of_jobs(), month);
        let some = parse(&format!("{GOOD}[retention]\njobs = 5\nage = \"36h\"\n")).unwrap();
        let expected = head::Retention { jobs: 5, age_ms: 36 * 3_600_000 };
        assert_eq!(some.retention.of_jobs(), expected);
        for (wrong, says) in [
            ("jobs = 0", "not between 1 and 65536"),
            ("jobs = 65537", "not between 1 and 65536"),
            ("age = \"0s\"", "not a time"),
            ("age = \"366d\"", "at most 365d"),
            ("age = \"forever\"", "not a time"),
            ("spool_mib = 4095", "less than spool_mib_per_job, 4096"),
            ("days = 3", "unknown field"),
        ] {
            let error = parse(&format!("{GOOD}[retention]\n{wrong}\n")).unwrap_err().to_string();
            assert!(error.contains(says), "{wrong}: {error}");
        }
    }
}
