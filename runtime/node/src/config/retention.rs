//! What is kept of jobs that are over: table `[retention]` of cluster.toml.

use std::time::Duration;

use kumi_control::head;
use serde::{Deserialize, Serialize};

use super::{ConfigError, Quotas, invalid};
use crate::durations;
use crate::head::UsageRetention;
use crate::job::CacheLimits;
use kumi_control::usage::DAY_MS;

/// Most jobs that are over and stay known.
const MOST_JOBS: u32 = 65_536;
/// Most days and jobs of which accounts are kept.
const MOST_USAGE_DAYS: u32 = 3_650;
const MOST_USAGE_JOBS: u32 = 10_000_000;

/// What the head keeps of jobs that are over, and each node of their programs. The rest goes while they run.
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
    /// MiB of programs in the cache of each node. Those used longest ago make room. A larger program is refused there.
    #[serde(default = "defaults::programs_mib")]
    pub programs_mib: u64,
    /// How long a program stays in the cache that no job uses, as `12h` or `30d`, at most `365d`.
    #[serde(default = "defaults::age")]
    pub programs_age: String,
    /// For how many days it is kept what a job has used, 1 to 3,650.
    #[serde(default = "defaults::usage_keep_days")]
    pub usage_keep_days: u32,
    /// Of how many jobs it is kept, 1 to 10,000,000. Those that ended first go.
    #[serde(default = "defaults::usage_jobs")]
    pub usage_jobs: u32,
}

/// Bytes of a MiB.
const MIB: u64 = 1 << 20;

/// Values of keys that the file leaves out.
mod defaults {
    pub(super) fn jobs() -> u32 {
        4_096
    }
    /// A month.
    pub(super) fn age() -> String {
        "30d".to_owned()
    }
    /// 16 GiB.
    pub(super) fn spool_mib() -> u64 {
        16_384
    }
    /// A year and a month: a year can be compared with the one before.
    pub(super) fn usage_keep_days() -> u32 {
        400
    }
    /// About 150 MiB.
    pub(super) fn usage_jobs() -> u32 {
        1_000_000
    }
    /// Twice the largest program.
    pub(super) fn programs_mib() -> u64 {
        8_192
    }
}

impl Default for Retention {
    fn default() -> Self {
        Self {
            jobs: defaults::jobs(),
            age: defaults::age(),
            spool_mib: defaults::spool_mib(),
            programs_mib: defaults::programs_mib(),
            programs_age: defaults::age(),
            usage_keep_days: defaults::usage_keep_days(),
            usage_jobs: defaults::usage_jobs(),
        }
    }
}

impl Retention {
    pub(super) fn says_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// As the head's state machine takes it.
    pub fn of_jobs(&self) -> head::Retention {
        let age = durations::estimate(&self.age).unwrap_or(Duration::MAX).as_millis();
        head::Retention {
            jobs: usize::try_from(self.jobs).unwrap_or(usize::MAX),
            age_ms: u64::try_from(age).unwrap_or(u64::MAX),
        }
    }

    /// Which accounts the head keeps.
    pub(crate) fn of_usage(&self) -> UsageRetention {
        let age_ms = u64::from(self.usage_keep_days).saturating_mul(DAY_MS);
        UsageRetention { age_ms, jobs: self.usage_jobs.into() }
    }

    /// What the cache of a node keeps.
    pub fn of_programs(&self) -> CacheLimits {
        let age = durations::estimate(&self.programs_age).unwrap_or(Duration::MAX);
        CacheLimits { bytes: self.programs_mib.saturating_mul(MIB), age }
    }

    pub(super) fn validate(&self, quotas: &Quotas) -> Result<(), ConfigError> {
        if !(1..=MOST_JOBS).contains(&self.jobs) {
            return invalid(format!(
                "jobs under [retention] is {}, which is not between 1 and {MOST_JOBS}",
                self.jobs
            ));
        }
        for (key, value, most) in [
            ("usage_keep_days", self.usage_keep_days, MOST_USAGE_DAYS),
            ("usage_jobs", self.usage_jobs, MOST_USAGE_JOBS),
        ] {
            if !(1..=most).contains(&value) {
                return invalid(format!(
                    "{key} under [retention] is {value}, which is not between 1 and {most}"
                ));
            }
        }
        for (key, age) in [("age", &self.age), ("programs_age", &self.programs_age)] {
            if durations::estimate(age).is_none() {
                return invalid(format!(
                    "{key} under [retention] is {age:?}, which is not a time; write a number with a unit, for example \
                     12h or 30d, at most 365d"
                ));
            }
        }
        if self.programs_mib == 0 {
            return invalid(
                "programs_mib under [retention] is 0; give a node room for at least one program",
            );
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
        let day = Duration::from_secs(86_400);
        let usual = CacheLimits { bytes: 8 << 30, age: 30 * day };
        assert_eq!(some.retention.of_programs(), usual);
        let text = "[retention]\nprograms_mib = 5\nprograms_age = \"1d\"\n";
        let keep = parse(&format!("{GOOD}[retention]\nusage_keep_days = 2\nusage_jobs = 7\n"));
        let two_days = UsageRetention { age_ms: 2 * DAY_MS, jobs: 7 };
        assert_eq!(keep.unwrap().retention.of_usage(), two_days);
        let few = parse(&format!("{GOOD}{text}")).unwrap().retention.of_programs();
        assert_eq!(few, CacheLimits { bytes: 5 << 20, age: day });
        for (wrong, says) in [
            ("jobs = 0", "not between 1 and 65536"),
            ("jobs = 65537", "not between 1 and 65536"),
            ("age = \"0s\"", "not a time"),
            ("age = \"366d\"", "at most 365d"),
            ("age = \"forever\"", "not a time"),
            (
                "programs_age = \"0s\"",
                "programs_age under [retention] is \"0s\", which is not a time",
            ),
            ("programs_mib = 0", "programs_mib under [retention] is 0"),
            ("spool_mib = 1023", "less than spool_mib_per_job, 1024"),
            ("days = 3", "unknown field"),
            (
                "usage_keep_days = 0",
                "usage_keep_days under [retention] is 0, which is not between 1 and 3650",
            ),
            ("usage_jobs = 0", "usage_jobs under [retention] is 0"),
        ] {
            let error = parse(&format!("{GOOD}[retention]\n{wrong}\n")).unwrap_err().to_string();
            assert!(error.contains(says), "{wrong}: {error}");
        }
    }
}
