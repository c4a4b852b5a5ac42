//! Defaults of jobs: the table `[job]` of the configuration.

use kumi_control::deadlock::{DEADLOCK_GRACE_MS, ON_DEADLOCK, OnDeadlock};
use kumi_control::message::{Binding, MOST_PRIORITY, Resources, WaitLimit};
use kumi_net::HandlerSetting;
use serde::{Deserialize, Serialize};

use super::ConfigError;
use crate::{durations, sizes};

/// Settings of jobs that do not say otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobDefaults {
    /// How handler threads are scheduled: `KUMI_HANDLER`, see [`check_handler`].
    #[serde(
        default,
        deserialize_with = "checked::handler",
        skip_serializing_if = "Option::is_none"
    )]
    pub handler: Option<String>,
    /// How important they are, 1 to [`MOST_PRIORITY`]; 1 if not given.
    #[serde(
        default,
        deserialize_with = "checked::priority",
        skip_serializing_if = "Option::is_none"
    )]
    pub priority: Option<u16>,
    /// How long they are thought to run, as [`durations::estimate`] reads it.
    #[serde(
        default,
        deserialize_with = "checked::estimate",
        skip_serializing_if = "Option::is_none"
    )]
    pub estimate: Option<String>,
    /// How long they may run, as [`durations::estimate`] reads it; for ever if not given. A job that says it may have more.
    #[serde(
        default,
        deserialize_with = "checked::estimate",
        skip_serializing_if = "Option::is_none"
    )]
    pub time: Option<String>,
    /// Processors of each rank; 1 if not given.
    #[serde(
        default,
        deserialize_with = "checked::processors",
        skip_serializing_if = "Option::is_none"
    )]
    pub cpus_per_rank: Option<u32>,
    /// How long they may wait in the queue, as [`durations::wait`] reads it; for ever if not given.
    #[serde(default, deserialize_with = "checked::wait", skip_serializing_if = "Option::is_none")]
    pub wait: Option<String>,
    /// Memory of each rank, as `2GiB`: so much times its ranks a job may use on a node. Without it, what the node has.
    #[serde(
        default,
        deserialize_with = "checked::memory",
        skip_serializing_if = "Option::is_none"
    )]
    pub memory_per_rank: Option<String>,
    /// Processes and threads of each rank, at least 16. Without it, a job may have 4,096 and 256 for each rank on a node.
    #[serde(
        default,
        deserialize_with = "checked::processes",
        skip_serializing_if = "Option::is_none"
    )]
    pub processes_per_rank: Option<u32>,
    /// The processors on which a rank may run: all of its node, its own, or those of its job that are near or anywhere; `core`
    /// if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bind: Option<Bind>,
    /// What becomes of a job whose ranks wait for each other for ever; `report` if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_deadlock: Option<DeadlockPolicy>,
    /// How long such a job stays that is to be ended, in milliseconds, at most a week; 10,000 if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadlock_grace_ms: Option<u64>,
}

/// What becomes of a job whose ranks wait for each other for ever, as the file says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeadlockPolicy {
    /// Those who follow it get a report.
    Report,
    /// They get a report, and it is ended after the grace time.
    Kill,
    /// Nobody looks.
    Ignore,
}

impl DeadlockPolicy {
    /// As its variable has it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Report => "report",
            Self::Kill => "kill",
            Self::Ignore => "ignore",
        }
    }
}

/// The processors on which a rank may run, as the file says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Bind {
    /// All that its node gives to ranks.
    None,
    /// Its own.
    Core,
    /// Those of its job on the node that are of the same NUMA places as its own.
    Numa,
    /// All of its job on the node.
    Cpuset,
}

impl From<Bind> for Binding {
    fn from(bind: Bind) -> Self {
        match bind {
            Bind::None => Self::None,
            Bind::Core => Self::Core,
            Bind::Numa => Self::Numa,
            Bind::Cpuset => Self::Cpuset,
        }
    }
}

/// The fewest processes of a rank that may be configured: below them a rank would not get as far as its program.
const LEAST_PROCESSES: u32 = 16;
/// Processes of a job on a node, beside those of its ranks.
const PROCESSES_OF_JOB: u64 = 4_096;
/// Processes of each rank in addition.
const PROCESSES_OF_RANK: u64 = 256;

/// Checks while the file is read, so that an error says in which line.
mod checked {
    use serde::de::{Deserialize, Deserializer, Error};

    use super::{
        check_estimate, check_handler, check_memory, check_priority, check_processes,
        check_processors, check_wait,
    };

    fn checked<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
        from: D,
        check: impl Fn(&T) -> Result<(), String>,
    ) -> Result<Option<T>, D::Error> {
        let value = T::deserialize(from)?;
        check(&value).map_err(D::Error::custom)?;
        Ok(Some(value))
    }

    pub(super) fn handler<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
        checked(from, |text: &String| check_handler(text))
    }

    pub(super) fn priority<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u16>, D::Error> {
        checked(from, |number: &u16| check_priority(*number))
    }

    pub(super) fn estimate<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
        checked(from, |text: &String| check_estimate(text))
    }

    pub(super) fn processors<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
        checked(from, |number: &u32| check_processors(*number))
    }

    pub(super) fn wait<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
        checked(from, |text: &String| check_wait(text))
    }

    pub(super) fn memory<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
        checked(from, |text: &String| check_memory(text))
    }

    pub(super) fn processes<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
        checked(from, |number: &u32| check_processes(*number))
    }
}

fn check_priority(number: u16) -> Result<(), String> {
    if (1..=MOST_PRIORITY).contains(&number) {
        return Ok(());
    }
    Err(format!("{number} is not a priority; give a number from 1 (ordinary) to {MOST_PRIORITY}"))
}

/// Most processors of a rank.
pub const MOST_PROCESSORS: u32 = 4096;

fn check_processors(number: u32) -> Result<(), String> {
    if (1..=MOST_PROCESSORS).contains(&number) {
        return Ok(());
    }
    Err(format!("{number} is not a number of processors; give one from 1 to {MOST_PROCESSORS}"))
}

fn check_memory(text: &str) -> Result<(), String> {
    sizes::bytes(text).map(drop).ok_or_else(|| sizes::wrong(text))
}

fn check_processes(number: u32) -> Result<(), String> {
    if number >= LEAST_PROCESSES {
        return Ok(());
    }
    Err(format!("{number} processes are too few for a rank; give at least {LEAST_PROCESSES}"))
}

fn check_estimate(text: &str) -> Result<(), String> {
    if durations::estimate(text).is_some() {
        return Ok(());
    }
    Err(format!(
        "{text:?} is not a run time; write a number with a unit, for example 30s, 10m, 2h or 1d, at most 365d"
    ))
}

fn check_wait(text: &str) -> Result<(), String> {
    if durations::wait(text).is_some() {
        return Ok(());
    }
    Err(format!(
        "{text:?} is not a waiting time; write no, forever, or a number with a unit, for example 30s, 10m or 2h, at most 365d"
    ))
}

/// A run time in nanoseconds.
fn nanos(text: Option<&str>) -> Option<u64> {
    u64::try_from(text.and_then(durations::estimate)?.as_nanos()).ok()
}

impl JobDefaults {
    pub(super) fn says_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// As environment variables.
    pub fn to_env(&self) -> Vec<(String, String)> {
        let handler = self.handler.clone().map(|value| (HANDLER.to_owned(), value));
        let policy =
            self.on_deadlock.map(|policy| (ON_DEADLOCK.to_owned(), policy.word().to_owned()));
        let grace = self.deadlock_grace_ms;
        let grace = grace.map(|grace| (DEADLOCK_GRACE_MS.to_owned(), grace.to_string()));
        handler.into_iter().chain(policy).chain(grace).collect()
    }

    /// The estimate in nanoseconds.
    pub fn estimate_ns(&self) -> Option<u64> {
        nanos(self.estimate.as_deref())
    }

    /// How long jobs may run, in nanoseconds.
    pub fn time_limit_ns(&self) -> Option<u64> {
        nanos(self.time.as_deref())
    }

    /// What ranks take.
    pub fn resources(&self) -> Resources {
        Resources {
            processors_per_rank: self.cpus_per_rank,
            memory_per_rank: self.memory_per_rank(),
            binding: self.bind.map(Binding::from),
            ..Resources::default()
        }
    }

    /// How long jobs may wait.
    pub fn wait_limit(&self) -> WaitLimit {
        self.wait.as_deref().and_then(durations::wait).unwrap_or(WaitLimit::Forever)
    }

    /// Memory of each rank in bytes.
    pub fn memory_per_rank(&self) -> Option<u64> {
        self.memory_per_rank.as_deref().and_then(sizes::bytes)
    }

    /// The most processes and threads of a job with so many ranks on a node.
    pub fn processes(&self, ranks: u32) -> u64 {
        let ranks = u64::from(ranks);
        match self.processes_per_rank {
            Some(each) => ranks.saturating_mul(each.into()),
            None => PROCESSES_OF_JOB + ranks.saturating_mul(PROCESSES_OF_RANK),
        }
    }

    pub(super) fn validate(&self, max_priority: u16) -> Result<(), ConfigError> {
        let wrong = |key: &str, why: String| {
            ConfigError::Invalid(format!("{key} under [job] is not usable: {why}"))
        };
        let handler = self.handler.as_deref().map_or(Ok(()), check_handler);
        handler.map_err(|why| wrong("handler", why))?;
        let estimate = self.estimate.as_deref().map_or(Ok(()), check_estimate);
        estimate.map_err(|why| wrong("estimate", why))?;
        let time = self.time.as_deref().map_or(Ok(()), check_estimate);
        time.map_err(|why| wrong("time", why))?;
        let wait = self.wait.as_deref().map_or(Ok(()), check_wait);
        wait.map_err(|why| wrong("wait", why))?;
        let memory = self.memory_per_rank.as_deref().map_or(Ok(()), check_memory);
        memory.map_err(|why| wrong("memory_per_rank", why))?;
        let processes = self.processes_per_rank.map_or(Ok(()), check_processes);
        processes.map_err(|why| wrong("processes_per_rank", why))?;
        OnDeadlock::from_env(&self.to_env()).map_err(|why| wrong("deadlock_grace_ms", why))?;
        let priority = self.priority.unwrap_or(1);
        check_priority(priority).map_err(|why| wrong("priority", why))?;
        if priority > max_priority {
            let why = format!("{priority} is above max_priority, which is {max_priority}");
            return Err(wrong("priority", why));
        }
        Ok(())
    }
}

/// The variable that tells a rank how its handler thread is scheduled.
pub const HANDLER: &str = "KUMI_HANDLER";

/// Checks a value of [`HANDLER`].
///
/// # Errors
/// A sentence that gives the permitted values.
pub fn check_handler(text: &str) -> Result<(), String> {
    HandlerSetting::parse(text).map(drop).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::super::ClusterConfig;
    use super::super::tests::{GOOD, parse};
    use super::*;
    use crate::exit::ExitCode;

    #[test]
    fn jobs_get_what_the_file_says() {
        let with = |text: &str| parse(&format!("{GOOD}[job]\n{text}\n"));
        let config = with("handler = \"fifo:high\"").unwrap();
        assert_eq!(config.job.to_env(), [("KUMI_HANDLER".to_owned(), "fifo:high".to_owned())]);
        let dir = tempfile::tempdir().unwrap();
        config.save(dir.path()).unwrap();
        assert_eq!(ClusterConfig::load(dir.path()).unwrap(), config);
        assert_eq!(with("").unwrap().job, JobDefaults::default());
        let error = with("handler = \"fast\"").unwrap_err();
        assert!(error.to_string().contains("other, rr or fifo"), "{error}");
        assert_eq!(error.exit_code(), ExitCode::BadConfig);
        assert!(with("handlers = \"rr\"").is_err());
        let config = with("time = \"2h\"").unwrap();
        assert_eq!(config.job.time_limit_ns(), Some(7_200_000_000_000));
        let config = with("priority = 3\nestimate = \"1.5h\"").unwrap();
        assert_eq!(config.job.time_limit_ns(), None);
        assert_eq!(
            (config.job.priority, config.job.estimate_ns()),
            (Some(3), Some(5_400_000_000_000))
        );
        config.save(dir.path()).unwrap();
        assert_eq!(ClusterConfig::load(dir.path()).unwrap(), config);
        assert_eq!(config.job.wait_limit(), WaitLimit::Forever);
        let config = with("cpus_per_rank = 2\nbind = \"numa\"").unwrap();
        let resources = config.job.resources();
        assert_eq!(
            (resources.processors_per_rank, resources.binding),
            (Some(2), Some(Binding::Numa))
        );
        config.save(dir.path()).unwrap();
        assert_eq!(ClusterConfig::load(dir.path()).unwrap(), config);
        let config = with("wait = \"90s\"").unwrap();
        assert_eq!(config.job.wait_limit(), WaitLimit::AtMost(90_000_000_000));
        config.save(dir.path()).unwrap();
        assert_eq!(ClusterConfig::load(dir.path()).unwrap(), config);
        assert_eq!((config.job.memory_per_rank(), config.job.processes(2)), (None, 4_608));
        let config = with("memory_per_rank = \"1.5GiB\"\nprocesses_per_rank = 100").unwrap();
        assert_eq!(config.job.memory_per_rank(), Some(3 << 29));
        assert_eq!(config.job.processes(3), 300);
        config.save(dir.path()).unwrap();
        assert_eq!(ClusterConfig::load(dir.path()).unwrap(), config);
    }

    #[test]
    fn wrong_settings_of_jobs_are_told_with_their_line() {
        for (text, says) in [
            ("priority = 0", "0 is not a priority"),
            ("priority = 101", "from 1 (ordinary) to 100"),
            ("priority = -1", "line 20"),
            ("priority = \"high\"", "line 20"),
            ("estimate = \"10\"", "\"10\" is not a run time"),
            ("estimate = \"0s\"", "at most 365d"),
            ("time = \"long\"", "\"long\" is not a run time"),
            ("estimate = 600", "line 20"),
            ("wait = \"yes\"", "\"yes\" is not a waiting time"),
            ("wait = \"0s\"", "at most 365d"),
            ("handler = \"fast\"", "other, rr or fifo"),
            ("cpus_per_rank = 0", "0 is not a number of processors"),
            ("bind = \"socket\"", "unknown variant `socket`, expected one of `none`, `core`"),
            ("memory_per_rank = \"2GB\"", "\"2GB\" is not a size"),
            ("processes_per_rank = 15", "at least 16"),
        ] {
            let error = parse(&format!("{GOOD}[job]\n\n{text}\n")).unwrap_err();
            let message = error.to_string();
            assert!(message.contains(says) && message.contains("line 20"), "{text}: {message}");
            assert_eq!(error.exit_code(), ExitCode::BadConfig);
        }
        let error = parse(&format!("{GOOD}[job]\npriority = 5\n")).unwrap_err().to_string();
        assert!(error.contains("5 is above max_priority, which is 4"), "{error}");
        assert!(parse(&format!("max_priority = 5{GOOD}[job]\npriority = 5\n")).is_ok());
    }
}
