//! Parser of durations on the command line and in the configuration.

use std::time::Duration;

use kumi_control::message::{LONGEST_ESTIMATE, WaitLimit};

/// A duration such as `250us`, `1.5ms`, `10ms` or `2s`; `None` if the text is none.
pub fn duration(text: &str) -> Option<Duration> {
    let digits = text.trim_end_matches(|c: char| c.is_alphabetic());
    let nanos_per_unit = match &text[digits.len()..] {
        "ns" => 1.0,
        "us" | "µs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        _ => return None,
    };
    if !digits.chars().all(|c| c.is_ascii_digit() || c == '.') {
        return None;
    }
    let number: f64 = digits.parse().ok()?;
    // Above this the conversion below would no longer be exact to the nanosecond.
    if number * nanos_per_unit > 1e15 {
        return None;
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    Some(Duration::from_nanos((number * nanos_per_unit).round() as u64))
}

/// How long a job is thought to run: a duration, or minutes, hours or days, such as `10m` or `2h`;
/// more than nothing and at most 365 days, otherwise `None`.
pub fn estimate(text: &str) -> Option<Duration> {
    let long = |unit: char, seconds: u64| Some((text.strip_suffix(unit)?, seconds));
    let value = match long('m', 60).or(long('h', 3_600)).or(long('d', 86_400)) {
        Some((number, seconds)) => {
            // What `duration` takes of seconds is checked there; a longer unit only multiplies.
            let whole = duration(&format!("{number}s"))?;
            let nanos = whole.as_nanos().saturating_mul(seconds.into());
            Duration::from_nanos(u64::try_from(nanos).ok()?)
        }
        None => duration(text)?,
    };
    let most = Duration::from_nanos(LONGEST_ESTIMATE);
    (!value.is_zero() && value <= most).then_some(value)
}

/// How long a job may wait in the queue: `no`, `forever`, or a time as [`estimate`] reads it.
pub fn wait(text: &str) -> Option<WaitLimit> {
    match text {
        "no" => Some(WaitLimit::No),
        "forever" => Some(WaitLimit::Forever),
        time => u64::try_from(estimate(time)?.as_nanos()).ok().map(WaitLimit::AtMost),
    }
}
