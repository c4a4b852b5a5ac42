//! What is to become of a job whose ranks wait for each other for ever. Its environment says it.

use alloc::format;
use alloc::string::String;

use kumi_verdict::Explanation;
use serde::{Deserialize, Serialize};

use crate::message::Nanos;

/// The variable that says what becomes of a stopped job: `report`, `kill` or `ignore`.
pub const ON_DEADLOCK: &str = "KUMI_ON_DEADLOCK";
/// The variable that says how long a stopped job stays that is to be ended, in milliseconds.
pub const DEADLOCK_GRACE_MS: &str = "KUMI_DEADLOCK_GRACE_MS";
/// The grace time if nothing is said, in milliseconds.
pub const DEFAULT_GRACE_MS: u64 = 10_000;
/// The longest grace time, in milliseconds: a week.
pub const MOST_GRACE_MS: u64 = 7 * 86_400_000;

/// What becomes of a stopped job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnDeadlock {
    /// Those who follow it get a report; it stays.
    #[default]
    Report,
    /// It is ended after so long, in nanoseconds.
    Kill(Nanos),
    /// Nobody looks.
    Ignore,
}

impl OnDeadlock {
    /// What an environment says.
    ///
    /// # Errors
    /// A sentence on the value that cannot be understood.
    pub fn from_env(env: &[(String, String)]) -> Result<Self, String> {
        let value = |name: &str| {
            let named = env.iter().rev().find(|(set, _)| set == name);
            named.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
        };
        let grace = value(DEADLOCK_GRACE_MS);
        let parsed = grace.map_or(Some(DEFAULT_GRACE_MS), |grace| grace.parse().ok());
        let Some(grace_ms) = parsed.filter(|grace| *grace <= MOST_GRACE_MS) else {
            return Err(format!(
                "{DEADLOCK_GRACE_MS} is {:?}; give milliseconds, at most {MOST_GRACE_MS}",
                grace.unwrap_or_default()
            ));
        };
        match value(ON_DEADLOCK) {
            None | Some("report") => Ok(Self::Report),
            Some("kill") => Ok(Self::Kill(grace_ms * 1_000_000)),
            Some("ignore") => Ok(Self::Ignore),
            Some(other) => Err(format!("{ON_DEADLOCK} is {other:?}; give report, kill or ignore")),
        }
    }
}

/// Whether a job that runs has something to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    /// It has, or it is not known.
    Running,
    /// It waits for something outside, and has left the rotation.
    Idle,
    /// Its ranks wait for each other for ever.
    Stopped,
}

impl Verdict {
    /// The word that people see.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Idle => "idle",
            Self::Stopped => "stopped",
        }
    }
}

/// Why a job is stopped, for those who follow it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadlockReport {
    /// The waits of its ranks, and what in them has no way out.
    pub explanation: Explanation,
    /// It is ended after so long, in nanoseconds, if nothing changes.
    pub ends_after: Option<Nanos>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::borrow::ToOwned;
    use alloc::vec::Vec;

    fn parse(set: &[(&str, &str)]) -> Result<OnDeadlock, String> {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        OnDeadlock::from_env(&set.iter().map(own).collect::<Vec<_>>())
    }

    #[test]
    fn the_environment_says_what_becomes_of_a_stopped_job() {
        assert_eq!(parse(&[]), Ok(OnDeadlock::Report));
        assert_eq!(parse(&[(ON_DEADLOCK, "ignore")]), Ok(OnDeadlock::Ignore));
        assert_eq!(parse(&[(ON_DEADLOCK, "kill")]), Ok(OnDeadlock::Kill(10_000_000_000)));
        let set = [(ON_DEADLOCK, "kill"), (DEADLOCK_GRACE_MS, "250")];
        assert_eq!(parse(&set), Ok(OnDeadlock::Kill(250_000_000)));
        assert_eq!(parse(&[(ON_DEADLOCK, "report"), (ON_DEADLOCK, "")]), Ok(OnDeadlock::Report));
    }

    #[test]
    fn other_values_are_refused() {
        let wrong = [(ON_DEADLOCK, "panic"), (DEADLOCK_GRACE_MS, "10s"), (DEADLOCK_GRACE_MS, "-1")];
        for set in wrong {
            let message = parse(&[set]).expect_err("wrong");
            assert!(message.contains(set.0) && message.contains(set.1), "{message}");
        }
        assert!(parse(&[(DEADLOCK_GRACE_MS, "604800001")]).is_err());
    }
}
