//! Parsers of values on the command line.

use crate::cli::Policy;
use kumi_control::batch::{After, ArrayIndices, MOST_TASKS};
use kumi_control::head::{PolicyError, check_policy};
use kumi_control::message::{DeviceCount, LONGEST_GRACE, MOST_PRIORITY, WaitLimit};
use kumi_node::config::{MAX_SLICE_US, MIN_SLICE_US, check_handler, check_name};
use kumi_node::{durations, sizes};
use kumi_sched::{JobId, SliceLength};
use std::collections::BTreeSet;
use std::time::Duration;

/// Shortest permitted slice.
pub const SHORTEST_SLICE: Duration = Duration::from_micros(MIN_SLICE_US);
/// Longest permitted slice.
pub const LONGEST_SLICE: Duration = Duration::from_micros(MAX_SLICE_US);

/// Why a value on the command line was refused.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum ParseError {
    /// The text is not a number with a unit.
    #[error(
        "'{0}' is not a time; write a number with one of the units us, ms and s, for example 250us, 10ms or 1s"
    )]
    Duration(String),
    /// A slice outside of the permitted range.
    #[error(
        "a slice of {0} is not possible; choose auto, or one from 250us to 10s in whole microseconds"
    )]
    SliceRange(String),
    /// `--env` without a name or without `=`.
    #[error("'{0}' is not an environment setting; write NAME=VALUE")]
    Env(String),
    /// Not a possible run time of a job.
    #[error(
        "'{0}' is not a run time; write a number with a unit, for example 30s, 10m, 2h or 1d, at most 365d"
    )]
    Estimate(String),
    /// Not the number of a job.
    #[error("'{0}' is not a job; give its number, or FIRST-LAST for at most {MOST_TASKS} jobs")]
    Jobs(String),
    /// Not a job after which another one runs.
    #[error(
        "'{0}' is not a job; give its number or FIRST-LAST, with :any behind it if it does not matter how it ends"
    )]
    After(String),
    /// Not the indices of an array.
    #[error(
        "'{0}' is not an array; give at most {MOST_TASKS} indices, as 1-100 or 1,3,5-9 or 0-20:5, with %N behind them for at most N jobs at a time"
    )]
    Array(String),
    /// Not a time for ranks to end by themselves.
    #[error(
        "'{0}' is not such a time; write a number with a unit, for example 10s or 2m, at most 1h; 0s: none"
    )]
    Grace(String),
    /// Not a time for which a job may wait.
    #[error(
        "'{0}' is not a waiting time; write no, forever, or a number with a unit, for example 30s, 10m or 2h, at most 365d"
    )]
    Wait(String),
    /// Not a size of memory.
    #[error("{}", sizes::wrong(.0))]
    Size(String),
    /// Not a number of devices.
    #[error(
        "'{0}' is not a number of devices; write NAME=N with the nodes' name for them and 1 or more, for example gpu=1"
    )]
    Device(String),
    /// Not a priority.
    #[error("'{0}' is not a priority; give a number from 1 (ordinary) to {MOST_PRIORITY}")]
    Priority(String),
    /// An earlier word for the default policy.
    #[error("gang is what most policies do, and none of them; write dqt for the default one")]
    Gang,
    /// An earlier name of `--policy`.
    #[error("the option has another name; write --policy {0}")]
    Mode(String),
    /// An earlier way to remove a cluster.
    #[error("a cluster is removed with `kumi cluster destroy`")]
    Purge,
    /// No scheduling policy has this name, or clusters cannot use it.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// No such scheduling of handler threads.
    #[error(
        "'{0}' is not a scheduling of handler threads; write other, rr or fifo, optionally followed by :low, :even or :high"
    )]
    Handler(String),
    /// A cluster's name that could not be part of a file name.
    #[error(
        "'{0}' is not a cluster name; use 1 to 24 of the characters a-z, 0-9 and '-', and neither begin nor end with '-'"
    )]
    ClusterName(String),
}

/// A duration such as `250us`, `1.5ms`, `10ms` or `2s`.
pub fn duration(text: &str) -> Result<Duration, ParseError> {
    durations::duration(text).ok_or_else(|| ParseError::Duration(text.to_owned()))
}

/// Nanoseconds, as the head counts time.
pub fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Time for ranks to end by themselves: a duration up to an hour, or minutes.
pub fn grace(text: &str) -> Result<Duration, ParseError> {
    let time = durations::duration(text).or_else(|| durations::estimate(text));
    let time = time.filter(|&time| nanos(time) <= LONGEST_GRACE);
    time.ok_or_else(|| ParseError::Grace(text.to_owned()))
}

/// Numbers of jobs that follow one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobRange {
    first: u64,
    last: u64,
}

impl JobRange {
    /// Each of them.
    pub fn numbers(self) -> impl Iterator<Item = u64> {
        self.first..=self.last
    }
}

/// Jobs after which another one runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AfterJobs {
    jobs: JobRange,
    /// However they end.
    however: bool,
}

impl AfterJobs {
    /// Each of them.
    pub fn each(&self) -> impl Iterator<Item = After> + use<> {
        let however = self.however;
        self.jobs.numbers().map(move |job| After { job: JobId(job), however })
    }
}

/// A job's number, or FIRST-LAST.
pub fn jobs(text: &str) -> Result<JobRange, ParseError> {
    let wrong = || ParseError::Jobs(text.to_owned());
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let number = |word: &str| word.parse::<u64>().map_err(|_| wrong());
    let range = JobRange { first: number(first)?, last: number(last)? };
    let count = range.last.checked_sub(range.first).ok_or_else(wrong)?;
    if count < u64::from(MOST_TASKS) { Ok(range) } else { Err(wrong()) }
}

/// Jobs after which another one runs: as [`jobs`], with `:any` behind them if it does not matter how they end.
pub fn after(text: &str) -> Result<AfterJobs, ParseError> {
    let plain = text.strip_suffix(":any");
    let jobs = jobs(plain.unwrap_or(text)).map_err(|_| ParseError::After(text.to_owned()))?;
    Ok(AfterJobs { jobs, however: plain.is_some() })
}

/// Indices of an array: `1-100`, `1,3,5-9`, `0-20:5`, with `%10` behind them for ten at a time.
pub fn array(text: &str) -> Result<ArrayIndices, ParseError> {
    let wrong = || ParseError::Array(text.to_owned());
    let number = |word: &str| word.parse::<u32>().map_err(|_| wrong());
    let (list, most) = match text.split_once('%') {
        Some((list, most)) => (list, Some(number(most)?)),
        None => (text, None),
    };
    let mut indices = BTreeSet::new();
    for part in list.split(',') {
        let (range, step) = part.split_once(':').unwrap_or((part, "1"));
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last, step) = (number(first)?, number(last)?, number(step)?);
        // No slip such as 1-99999999 fills the memory.
        if first > last || step == 0 || (last - first) / step >= MOST_TASKS {
            return Err(wrong());
        }
        indices.extend((first..=last).step_by(step as usize));
        if indices.len() > MOST_TASKS as usize {
            return Err(wrong());
        }
    }
    if most == Some(0) {
        return Err(wrong());
    }
    Ok(ArrayIndices { indices: indices.into_iter().collect(), most })
}

/// Estimated run time of a job: a duration, or minutes, hours or days, such as `10m` or `2h`.
pub fn estimate(text: &str) -> Result<Duration, ParseError> {
    durations::estimate(text).ok_or_else(|| ParseError::Estimate(text.to_owned()))
}

/// The same time, in the user's notation.
pub fn estimate_text(text: &str) -> Result<String, ParseError> {
    estimate(text).map(|_| text.to_owned())
}

/// How long a job may wait in the queue: `no`, `forever`, or a time as of [`estimate`].
pub fn wait(text: &str) -> Result<WaitLimit, ParseError> {
    durations::wait(text).ok_or_else(|| ParseError::Wait(text.to_owned()))
}

/// The same, in the user's notation.
pub fn wait_text(text: &str) -> Result<String, ParseError> {
    wait(text).map(|_| text.to_owned())
}

/// Bytes of memory, such as `512M` or `1.5GiB`.
pub fn size(text: &str) -> Result<u64, ParseError> {
    sizes::bytes(text).ok_or_else(|| ParseError::Size(text.to_owned()))
}

/// The same size, in the user's notation.
pub fn size_text(text: &str) -> Result<String, ParseError> {
    size(text).map(|_| text.to_owned())
}

/// Devices of a name: `gpu=1`.
pub fn device(text: &str) -> Result<DeviceCount, ParseError> {
    let (name, count) = text.split_once('=').unwrap_or((text, ""));
    match count.parse() {
        Ok(count @ 1..) if !name.is_empty() => Ok(DeviceCount { name: name.to_owned(), count }),
        _ => Err(ParseError::Device(text.to_owned())),
    }
}

/// Priority of a job.
pub fn priority(text: &str) -> Result<u16, ParseError> {
    let number = text.parse().ok().filter(|number| (1..=MOST_PRIORITY).contains(number));
    number.ok_or_else(|| ParseError::Priority(text.to_owned()))
}

/// `os` or the name of a scheduling policy that clusters can use.
pub fn policy(text: &str) -> Result<Policy, ParseError> {
    match text {
        "gang" => Err(ParseError::Gang),
        "os" => Ok(Policy::Os),
        name => Ok(check_policy(name).map(|()| Policy::Named(name.to_owned()))?),
    }
}

/// What `--mode` took: refused with what to write.
pub fn no_mode(text: &str) -> Result<String, ParseError> {
    Err(ParseError::Mode(if text == "gang" { "dqt" } else { text }.to_owned()))
}

/// `--purge`: refused with what to write.
pub fn no_purge(_: &str) -> Result<String, ParseError> {
    Err(ParseError::Purge)
}

/// A slice: `auto`, or a duration in the permitted range.
pub fn slice(text: &str) -> Result<SliceLength, ParseError> {
    if text == "auto" {
        return Ok(SliceLength::Auto);
    }
    let value = duration(text)?;
    let whole = value.subsec_nanos().is_multiple_of(1000);
    let permitted = whole && (SHORTEST_SLICE..=LONGEST_SLICE).contains(&value);
    match u64::try_from(value.as_nanos()) {
        Ok(nanos) if permitted => Ok(SliceLength::Fixed(nanos)),
        _ => Err(ParseError::SliceRange(text.to_owned())),
    }
}

/// `NAME=VALUE`; the value may be empty and may contain `=`.
pub fn env(text: &str) -> Result<(String, String), ParseError> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(ParseError::Env(text.to_owned())),
    }
}

/// Scheduling of handler threads.
pub fn handler(text: &str) -> Result<String, ParseError> {
    check_handler(text).map_err(|_| ParseError::Handler(text.to_owned()))?;
    Ok(text.to_owned())
}

/// A cluster's name.
pub fn cluster_name(text: &str) -> Result<String, ParseError> {
    match check_name(text) {
        Ok(()) => Ok(text.to_owned()),
        Err(_) => Err(ParseError::ClusterName(text.to_owned())),
    }
}

/// A list of processors in the notation of `taskset`: `0-3,8`. `None` if it is invalid.
pub fn cpu_list(text: &str) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        // No machine has more; a slip such as 0-99999999 must not fill the memory.
        if first > last || last >= 8192 {
            return None;
        }
        cpus.extend(first..=last);
    }
    cpus.sort_unstable();
    cpus.dedup();
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_take_the_units_people_write() {
        assert_eq!(duration("250us"), Ok(Duration::from_micros(250)));
        assert_eq!(duration("250µs"), Ok(Duration::from_micros(250)));
        assert_eq!(duration("1.5ms"), Ok(Duration::from_micros(1500)));
        assert_eq!(duration("2s"), Ok(Duration::from_secs(2)));
        assert_eq!(duration(".5s"), Ok(Duration::from_millis(500)));
    }

    #[test]
    fn durations_without_sense_are_refused() {
        for text in
            ["", "10", "ms", "-1ms", "1 ms", "1e3ms", "1m", "..ms", "99999999999999s", "１ms"]
        {
            assert_eq!(duration(text), Err(ParseError::Duration(text.to_owned())), "{text:?}");
        }
    }

    #[test]
    fn waits_are_times_or_words() {
        assert_eq!(wait("no"), Ok(WaitLimit::No));
        assert_eq!(wait("forever"), Ok(WaitLimit::Forever));
        assert_eq!(wait("2m"), Ok(WaitLimit::AtMost(120_000_000_000)));
        for text in ["", "yes", "No", "0s", "10", "-1s", "366d"] {
            assert_eq!(wait(text), Err(ParseError::Wait(text.to_owned())), "{text:?}");
        }
    }

    #[test]
    fn jobs_are_numbers_or_ranges() {
        let range = |first, last| JobRange { first, last };
        assert_eq!((jobs("12"), jobs("12-14")), (Ok(range(12, 12)), Ok(range(12, 14))));
        let after_both = after("3-4:any").unwrap();
        let each: Vec<After> = after_both.each().collect();
        assert_eq!(each, [3, 4].map(|job| After { job: JobId(job), however: true }));
        assert!(!after("3").unwrap().however);
        for text in ["", "x", "2-1", "-1", "1-", "1-99999999999", ":any"] {
            assert!(jobs(text).is_err() && after(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn arrays_have_indices_and_perhaps_a_limit() {
        let all = |indices: &[u32], most| Ok(ArrayIndices { indices: indices.to_vec(), most });
        assert_eq!(array("1-4%10"), all(&[1, 2, 3, 4], Some(10)));
        assert_eq!((array("0-3"), array("7")), (all(&[0, 1, 2, 3], None), all(&[7], None)));
        assert_eq!(array("5-7,1,3%2"), all(&[1, 3, 5, 6, 7], Some(2)), "in order");
        assert_eq!(array("2,1-3,2"), all(&[1, 2, 3], None), "each once");
        assert_eq!(array("0-20:5,1"), all(&[0, 1, 5, 10, 15, 20], None));
        assert_eq!(array("4294967295"), all(&[u32::MAX], None));
        let most = array("0-9998,10000").unwrap();
        assert_eq!(most.indices.len(), 10_000);
        let wrong = [
            "",
            "1-",
            "3-1",
            "1-100%0",
            "1-100%",
            "0-10000",
            "1,",
            ",1",
            "1%2,3",
            "1-3:0",
            "1:",
            "0-9999,10000",
            "1-99999999,2",
            "-1",
            "1 2",
        ];
        for text in wrong {
            assert_eq!(array(text), Err(ParseError::Array(text.to_owned())), "{text:?}");
        }
    }

    #[test]
    fn graces_are_times_up_to_an_hour() {
        for (text, seconds) in [("0s", 0), ("10s", 10), ("2m", 120), ("1h", 3_600)] {
            assert_eq!(grace(text), Ok(Duration::from_secs(seconds)));
        }
        for text in ["", "10", "-1s", "61m", "1d"] {
            assert_eq!(grace(text), Err(ParseError::Grace(text.to_owned())), "{text:?}");
        }
    }

    #[test]
    fn estimates_may_be_minutes_hours_and_days() {
        for (text, seconds) in [("30s", 30), ("10m", 600), ("1.5h", 5_400), ("365d", 31_536_000)] {
            assert_eq!(estimate(text), Ok(Duration::from_secs(seconds)));
        }
        assert_eq!(estimate("500ms"), Ok(Duration::from_millis(500)));
        for text in ["", "m", "0s", "0m", "10", "-1h", "1e3m", "366d", "999999999999999d", "1 m"] {
            assert_eq!(estimate(text), Err(ParseError::Estimate(text.to_owned())), "{text:?}");
        }
    }

    #[test]
    fn devices_have_a_name_and_a_number() {
        let gpus = |count| Ok(DeviceCount { name: "gpu".to_owned(), count });
        assert_eq!((device("gpu=1"), device("gpu=4096")), (gpus(1), gpus(4096)));
        for text in ["", "gpu", "gpu=", "gpu=0", "=1", "gpu=-1", "gpu=1.5", "gpu=99999999999"] {
            assert_eq!(device(text), Err(ParseError::Device(text.to_owned())));
        }
        assert_eq!((size("512M"), size("2GiB")), (Ok(512 << 20), Ok(2 << 30)));
        assert_eq!(size("2GB"), Err(ParseError::Size("2GB".to_owned())));
    }

    #[test]
    fn priorities_are_1_to_100() {
        assert_eq!((priority("1"), priority("100")), (Ok(1), Ok(100)));
        for text in ["0", "101", "-1", "high", ""] {
            assert_eq!(priority(text), Err(ParseError::Priority(text.to_owned())));
        }
    }

    #[test]
    fn policies_are_those_of_a_cluster() {
        assert_eq!(policy("gang"), Err(ParseError::Gang));
        assert_eq!(policy("os"), Ok(Policy::Os));
        assert_eq!(policy("fair-dqt:apa"), Ok(Policy::Named("fair-dqt:apa".to_owned())));
        let wrong = policy("esy").unwrap_err().to_string();
        assert!(wrong.contains("did you mean easy?"), "{wrong}");
        let moving = policy("dqt+migrate").unwrap_err().to_string();
        assert!(moving.contains("needs checkpoints, and this version has none"), "{moving}");
    }

    #[test]
    fn slices_have_both_limits() {
        assert_eq!(slice("250us"), Ok(SliceLength::Fixed(250_000)));
        assert_eq!(slice("10s"), Ok(SliceLength::Fixed(10_000_000_000)));
        assert_eq!(slice("auto"), Ok(SliceLength::Auto));
        assert_eq!(slice("249us"), Err(ParseError::SliceRange("249us".to_owned())));
        assert_eq!(slice("10.001s"), Err(ParseError::SliceRange("10.001s".to_owned())));
        assert_eq!(slice("1000.5us"), Err(ParseError::SliceRange("1000.5us".to_owned())));
        assert_eq!(slice("0ms"), Err(ParseError::SliceRange("0ms".to_owned())));
    }

    #[test]
    fn environment_settings_split_at_the_first_equals_sign() {
        let pair = |name: &str, value: &str| Ok((name.to_owned(), value.to_owned()));
        assert_eq!(env("A=b"), pair("A", "b"));
        assert_eq!(env("A="), pair("A", ""));
        assert_eq!(env("A=b=c"), pair("A", "b=c"));
        assert_eq!(env("A"), Err(ParseError::Env("A".to_owned())));
        assert_eq!(env("=b"), Err(ParseError::Env("=b".to_owned())));
    }

    #[test]
    fn cluster_names_fit_into_file_and_interface_names() {
        assert_eq!(cluster_name("lab-2"), Ok("lab-2".to_owned()));
        for text in ["", "Lab", "a/b", "..", "a.b", "abcdefghijklmnopqrstuvwxy", "a b"] {
            assert_eq!(cluster_name(text), Err(ParseError::ClusterName(text.to_owned())));
        }
    }

    #[test]
    fn cpu_lists_as_taskset_writes_them() {
        assert_eq!(cpu_list("0-3"), Some(vec![0, 1, 2, 3]));
        assert_eq!(cpu_list("8,0-1,1"), Some(vec![0, 1, 8]));
        for text in ["", "a", "3-1", "0-", "0,,1", "-1", "0-99999999"] {
            assert_eq!(cpu_list(text), None, "{text:?}");
        }
    }
}
