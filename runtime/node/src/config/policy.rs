//! The scheduling policy, as the file names it.

use kumi_control::head::check_policy;
use kumi_sched::Mode;

use super::{ClusterConfig, ConfigError, defaults, invalid};

/// The word for no policy at all: processors are shared as the operating systems like.
pub const OS: &str = "os";
/// The key that said so in earlier files.
const EARLIER_KEY: &str = "mode";

/// Checks the name of a policy.
///
/// # Errors
/// There is no such policy.
pub(super) fn check(name: &str) -> Result<(), ConfigError> {
    match name {
        OS => Ok(()),
        "gang" => invalid(
            "gang is what most policies do, and none of them: write policy = \"dqt\" for the default one",
        ),
        name => check_policy(name).map_err(|error| ConfigError::Invalid(error.to_string())),
    }
}

/// What to write in place of the key of earlier files, if the text has it.
pub(super) fn in_place_of_mode(text: &str) -> Option<String> {
    let file: toml::Table = text.parse().ok()?;
    let mode = file.get(EARLIER_KEY)?;
    let policy = match (mode.as_str(), file.get("policy").and_then(toml::Value::as_str)) {
        (Some(OS), _) => OS.to_owned(),
        (_, Some(policy)) => policy.to_owned(),
        (_, None) => defaults::policy(),
    };
    Some(format!(
        "{EARLIER_KEY} is a word of earlier files: write policy = \"{policy}\" in place of {EARLIER_KEY} = {mode}"
    ))
}

impl ClusterConfig {
    /// The mode as the scheduler says it.
    pub fn mode(&self) -> Mode {
        match self.policy.as_str() {
            OS => Mode::OperatingSystem,
            _ => Mode::Gang { force_switch: self.force_switch, fill: self.fill },
        }
    }

    /// The policy that schedules, or that will when processors are not shared by the operating systems any more.
    pub fn scheduling_policy(&self) -> String {
        match self.policy.as_str() {
            OS => defaults::policy(),
            name => name.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{GOOD, parse};
    use super::*;

    #[test]
    fn one_word_says_how_processors_are_shared() {
        let config = parse(GOOD).unwrap();
        assert_eq!((config.mode(), &*config.scheduling_policy()), (Mode::OperatingSystem, "dqt"));
        let config = parse(&GOOD.replace("\"os\"", "\"dqt:ff\"")).unwrap();
        assert_eq!(config.mode(), Mode::Gang { force_switch: false, fill: true });
        assert_eq!(config.scheduling_policy(), "dqt:ff");
        let error = parse(&GOOD.replace("\"os\"", "\"gang\"")).unwrap_err().to_string();
        assert!(error.contains("write policy = \"dqt\""), "{error}");
    }

    #[test]
    fn the_earlier_word_is_refused_with_the_new_one() {
        let earlier = |mode: &str, policy: &str| {
            let lines = format!("mode = \"{mode}\"\n{policy}");
            parse(&GOOD.replace("policy = \"os\"\n", &lines)).unwrap_err().to_string()
        };
        for (mode, policy, write) in [
            ("gang", "", "write policy = \"dqt\" in place of mode = \"gang\""),
            ("os", "policy = \"easy\"\n", "write policy = \"os\" in place of mode = \"os\""),
            ("gang", "policy = \"easy\"\n", "write policy = \"easy\" in place of"),
        ] {
            let error = earlier(mode, policy);
            assert!(error.contains(write), "{error}");
        }
    }
}
