//! How long daemons do without each other: keys of cluster.toml that say when links are given up, nodes are lost and leases
//! are over.

use std::time::Duration;

use super::{ClusterConfig, ClusterKind, ConfigError, invalid};

/// Values of keys that the file leaves out, in milliseconds: on real hosts, and where all nodes are here.
struct Defaults {
    silence: u64,
    grace: u64,
    lease: u64,
    keep: u64,
}

/// A switch that starts again, a disk that hangs or a machine that is moved takes a minute or so: no reason to end a job.
/// A daemon that is upgraded is back within seconds. After the grace nothing is won by waiting: the head has failed its jobs.
const HOSTS: Defaults = Defaults { silence: 10_000, grace: 60_000, lease: 300_000, keep: 60_000 };
/// Nobody pulls a plug between daemons of one machine. The lease is time to start a head again.
/// Whoever ends a daemon here means its jobs, too.
const LOCAL: Defaults = Defaults { silence: 3_000, grace: 1_000, lease: 15_000, keep: 0 };

impl ClusterConfig {
    fn absence(&self) -> &'static Defaults {
        match self.kind {
            ClusterKind::Hosts => &HOSTS,
            ClusterKind::Local => &LOCAL,
        }
    }

    /// A link on which nothing came for this long is given up.
    pub fn silence(&self) -> Duration {
        Duration::from_millis(self.silence_ms.unwrap_or(self.absence().silence))
    }

    /// How long a node may be away before its jobs fail.
    pub fn grace(&self) -> Duration {
        Duration::from_millis(self.grace_ms.unwrap_or(self.absence().grace))
    }

    /// How long nodes go on without the head.
    pub fn lease(&self) -> Duration {
        Duration::from_millis(self.lease_ms.unwrap_or(self.absence().lease))
    }

    /// How long ranks run on without their node's daemon, if they do.
    pub fn keep(&self) -> Option<Duration> {
        let by_default = Duration::from_millis(self.absence().keep).min(self.lease());
        let keep = self.keep_ms.map_or(by_default, Duration::from_millis);
        (!keep.is_zero()).then_some(keep)
    }

    pub(super) fn check_absence(&self) -> Result<(), ConfigError> {
        let hour = 3_600_000;
        for (key, value, low, high) in [
            ("silence_ms", self.silence_ms, 1_000, 600_000),
            ("grace_ms", self.grace_ms, 100, hour),
            ("lease_ms", self.lease_ms, 500, hour),
        ] {
            if let Some(value) = value.filter(|value| !(low..=high).contains(value)) {
                return invalid(format!("{key} is {value}, which is not between {low} and {high}"));
            }
        }
        // A head that has called a node lost waits for its lease before it starts a job again.
        let lease = u64::try_from(self.lease().as_millis()).unwrap_or(u64::MAX);
        if let Some(keep) =
            self.keep_ms.filter(|&keep| keep != 0 && !(1_000..=lease).contains(&keep))
        {
            return invalid(format!(
                "keep_ms is {keep}, which is neither 0 nor between 1000 and the lease of {lease}"
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{GOOD, parse};

    #[test]
    fn real_hosts_have_minutes_and_local_nodes_seconds() {
        let times = |text: &str| {
            let config = parse(text).unwrap();
            [config.silence(), config.grace(), config.lease()].map(|time| time.as_millis())
        };
        let hosts = GOOD.replace("\"local\"", "\"hosts\"");
        assert_eq!(times(GOOD), [3_000, 1_000, 15_000]);
        assert_eq!(times(&hosts), [10_000, 60_000, 300_000]);
        let set = "silence_ms = 2000\ngrace_ms = 5000\nlease_ms = 60000\n";
        assert_eq!(times(&format!("{set}{hosts}")), [2_000, 5_000, 60_000]);
        let kept = parse(&format!("keep_ms = 15000\n{GOOD}")).unwrap();
        assert_eq!(kept.keep(), Some(std::time::Duration::from_secs(15)));
        assert_eq!(parse(GOOD).unwrap().keep(), None);
        let of_hosts = |more: &str| parse(&format!("{more}{hosts}")).unwrap().keep();
        assert_eq!(of_hosts(""), Some(std::time::Duration::from_secs(60)));
        assert_eq!(of_hosts("keep_ms = 0\n"), None);
        assert_eq!(of_hosts("lease_ms = 5000\n"), Some(std::time::Duration::from_secs(5)));
        for wrong in ["keep_ms = 999", "keep_ms = 15001"] {
            let error = parse(&format!("{wrong}\n{GOOD}")).unwrap_err().to_string();
            assert!(error.contains("neither 0 nor between"), "{error}");
        }
        for wrong in ["silence_ms = 999", "grace_ms = 99", "lease_ms = 499", "lease_ms = 3600001"] {
            let error = parse(&format!("{wrong}\n{GOOD}")).unwrap_err().to_string();
            assert!(error.contains("is not between"), "{error}");
        }
    }
}
