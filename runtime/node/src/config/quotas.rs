//! What one user may have of the head: table `[quota]` of cluster.toml.

use serde::{Deserialize, Serialize};

use super::{ConfigError, invalid};

/// What one user may have. Jobs and connections of the cluster's owner and of root are not bounded by it; output is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quotas {
    /// Jobs of a user that are not over, 1 to 10,000.
    #[serde(default = "defaults::jobs_per_user")]
    pub jobs_per_user: u32,
    /// Connections of a user's clients to the head, and to each node.
    #[serde(default = "defaults::connections_per_user")]
    pub connections_per_user: u32,
    /// MiB of output that the head keeps of a job: the last. Older output makes room.
    #[serde(default = "defaults::spool_mib_per_job")]
    pub spool_mib_per_job: u64,
    /// MiB of output that the head keeps of a user's jobs. Output of the user's oldest jobs that are over makes room, then
    /// older output of the job that writes.
    #[serde(default = "defaults::spool_mib_per_user")]
    pub spool_mib_per_user: u64,
}

/// Values of keys that the file leaves out.
mod defaults {
    /// Half of all.
    pub(super) fn jobs_per_user() -> u32 {
        5_000
    }
    /// Nearly one for each job.
    pub(super) fn connections_per_user() -> u32 {
        4_096
    }
    /// 1 GiB: a disk of 20 GiB has room for a dozen such jobs.
    pub(super) fn spool_mib_per_job() -> u64 {
        1_024
    }
    /// 4 GiB.
    pub(super) fn spool_mib_per_user() -> u64 {
        4_096
    }
}

impl Default for Quotas {
    fn default() -> Self {
        Self {
            jobs_per_user: defaults::jobs_per_user(),
            connections_per_user: defaults::connections_per_user(),
            spool_mib_per_job: defaults::spool_mib_per_job(),
            spool_mib_per_user: defaults::spool_mib_per_user(),
        }
    }
}

impl Quotas {
    pub(super) fn says_nothing(&self) -> bool {
        *self == Self::default()
    }

    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        const MOST_MIB: u64 = 1 << 40;
        for (key, value, most) in [
            ("jobs_per_user", self.jobs_per_user.into(), 10_000),
            ("connections_per_user", self.connections_per_user.into(), 1 << 20),
            ("spool_mib_per_job", self.spool_mib_per_job, MOST_MIB),
            ("spool_mib_per_user", self.spool_mib_per_user, MOST_MIB),
        ] {
            if !(1..=most).contains(&value) {
                return invalid(format!(
                    "{key} under [quota] is {value}, which is not between 1 and {most}"
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
    fn quotas_are_read_and_checked() {
        assert_eq!(parse(GOOD).unwrap().quota, Quotas::default());
        let some = parse(&format!("{GOOD}[quota]\nspool_mib_per_job = 5\n")).unwrap().quota;
        assert_eq!(some, Quotas { spool_mib_per_job: 5, ..Quotas::default() });
        for wrong in ["jobs_per_user = 0", "jobs_per_user = 10001", "connections_per_user = 0"] {
            let error = parse(&format!("{GOOD}[quota]\n{wrong}\n")).unwrap_err().to_string();
            assert!(error.contains("under [quota]"), "{error}");
        }
    }
}
