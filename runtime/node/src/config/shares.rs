//! Fair shares of users: table `[shares]` of cluster.toml.

use std::collections::BTreeMap;
use std::time::Duration;

use kumi_control::shares::ShareConfig;
use kumi_sched::ShareRules;
use serde::{Deserialize, Serialize};

use super::{ConfigError, check_users, invalid};
use crate::durations;

/// The shortest half-life: what a head that restarts does not know must be little beside what it knows.
const SHORTEST: Duration = Duration::from_secs(60);
/// Least and largest weight.
const LEAST_WEIGHT: f64 = 0.01;
const MOST_WEIGHT: f64 = 100.0;
/// Most users with weights of their own.
const MOST_WEIGHTS: usize = 10_000;

/// In which order jobs of different users wait.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shares {
    /// Whether jobs of users who have spent less go first; otherwise jobs wait in the order of the policy alone.
    #[serde(default = "defaults::enabled")]
    pub enabled: bool,
    /// In this time half of what was spent is forgotten, as `12h` or `1d`, from a minute to `365d`.
    #[serde(default = "defaults::half_life")]
    pub half_life: String,
    /// A job that has waited for so long goes before all others, as `7d`, at most `365d`.
    #[serde(default = "defaults::overtaken")]
    pub overtaken: String,
    /// Weights of users by name or number, from 0.01 to 100. Others have 1.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub weights: BTreeMap<String, f64>,
}

/// Equal as text is: weights are read and written, never computed.
impl Eq for Shares {}

/// Values of keys that the file leaves out.
mod defaults {
    /// Who shares a cluster expects that nobody's hundred jobs keep everybody else waiting. A single user notices nothing.
    pub(super) fn enabled() -> bool {
        true
    }
    /// Who computed all of yesterday gives way today. In a week nobody remembers it.
    pub(super) fn half_life() -> String {
        "1d".to_owned()
    }
    pub(super) fn overtaken() -> String {
        "7d".to_owned()
    }
}

impl Default for Shares {
    fn default() -> Self {
        Self {
            enabled: defaults::enabled(),
            half_life: defaults::half_life(),
            overtaken: defaults::overtaken(),
            weights: BTreeMap::new(),
        }
    }
}

impl Shares {
    pub(super) fn says_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// As the head's state machine takes it, without what users have spent; none if it is turned off.
    pub fn of_head(&self) -> Option<ShareConfig> {
        let nanos = |text: &str| {
            let time = durations::estimate(text).unwrap_or(Duration::MAX);
            u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
        };
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let weights = self.weights.iter().map(|(user, weight)| {
            (user.clone(), (weight.clamp(LEAST_WEIGHT, MOST_WEIGHT) * 1_000.0).round() as u32)
        });
        self.enabled.then(|| ShareConfig {
            rules: ShareRules {
                half_life_ns: nanos(&self.half_life),
                overtaken_ns: nanos(&self.overtaken),
            },
            weights: weights.collect(),
            spent: Vec::new(),
        })
    }

    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        for (key, text, least) in [
            ("half_life", &self.half_life, SHORTEST),
            ("overtaken", &self.overtaken, Duration::ZERO),
        ] {
            if durations::estimate(text).is_none_or(|time| time < least) {
                return invalid(format!(
                    "{key} under [shares] is {text:?}, which is not such a time; write a number with a unit, for \
                     example 12h or 7d, from 1m to 365d"
                ));
            }
        }
        if self.weights.len() > MOST_WEIGHTS {
            return invalid(format!(
                "[shares.weights] names {} users; it may name {MOST_WEIGHTS} at most",
                self.weights.len()
            ));
        }
        let users: Vec<String> = self.weights.keys().cloned().collect();
        check_users(&users).or_else(|why| invalid(format!("[shares.weights]: {why}")))?;
        let wrong = |weight: &f64| !(LEAST_WEIGHT..=MOST_WEIGHT).contains(weight);
        match self.weights.iter().find(|(_, weight)| wrong(weight)) {
            None => Ok(()),
            Some((user, weight)) => invalid(format!(
                "the weight of {user:?} under [shares.weights] is {weight}, which is not between {LEAST_WEIGHT} and \
                 {MOST_WEIGHT}"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{GOOD, parse};
    use super::*;

    #[test]
    fn shares_are_read_and_checked() {
        let usual = parse(GOOD).unwrap().shares;
        assert_eq!(usual, Shares::default());
        let day = 86_400_000_000_000;
        let rules = ShareRules { half_life_ns: day, overtaken_ns: 7 * day };
        assert_eq!(usual.of_head().unwrap().rules, rules);
        let text = "[shares]\nhalf_life = \"12h\"\n[shares.weights]\nada = 2\n1002 = 0.5\n";
        let some = parse(&format!("{GOOD}{text}")).unwrap().shares.of_head().unwrap();
        assert_eq!(some.rules.half_life_ns, day / 2);
        assert_eq!(some.weights, [("1002".to_owned(), 500), ("ada".to_owned(), 2_000)].into());
        let off = parse(&format!("{GOOD}[shares]\nenabled = false\n")).unwrap().shares;
        assert_eq!(off.of_head(), None);
        for (wrong, says) in [
            ("[shares]\nhalf_life = \"59s\"", "half_life under [shares]"),
            ("[shares]\novertaken = \"long\"", "overtaken under [shares]"),
            ("[shares.weights]\nada = 0", "the weight of \"ada\""),
            ("[shares.weights]\nada = nan", "the weight of \"ada\""),
            ("[shares.weights]\n\"a b\" = 1", "is not a user"),
            ("[shares]\nfair = true", "unknown field"),
        ] {
            let error = parse(&format!("{GOOD}{wrong}\n")).unwrap_err().to_string();
            assert!(error.contains(says), "{wrong}: {error}");
        }
    }
}
