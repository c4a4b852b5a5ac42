//! Times on the command line: so long ago, or a date in UTC. And dates for people.

use kumi_node::durations;
use std::time::Duration;
use time::{Date, Month, OffsetDateTime, Time};

/// A time that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeriodBound {
    /// So long ago.
    Ago(Duration),
    /// Milliseconds since the epoch.
    At(u64),
}

impl PeriodBound {
    /// In milliseconds since the epoch.
    pub fn at(self, now_ms: u64) -> u64 {
        match self {
            Self::Ago(time) => {
                now_ms.saturating_sub(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
            }
            Self::At(ms) => ms,
        }
    }
}

/// Reads a time.
pub fn moment(text: &str) -> Result<PeriodBound, String> {
    let ago = durations::estimate(text).map(PeriodBound::Ago);
    let read = ago.or_else(|| calendar(text).map(PeriodBound::At));
    read.ok_or_else(|| {
        "write how long ago, as 12h or 30d, or a time in UTC, as 2026-01-31 or 2026-01-31T12:00"
            .to_owned()
    })
}

/// `YYYY-MM-DD`, perhaps with `THH:MM` or `THH:MM:SS`, in milliseconds since the epoch.
fn calendar(text: &str) -> Option<u64> {
    let (date, clock) = text.split_once('T').unwrap_or((text, "00:00"));
    let mut parts = date.splitn(3, '-');
    let (year, month, day) = (parts.next()?, number(parts.next()?)?, number(parts.next()?)?);
    let year = (year.len() == 4 && digits(year)).then(|| year.parse().ok())??;
    let date = Date::from_calendar_date(year, Month::try_from(month).ok()?, day).ok()?;
    let parts: Option<Vec<u8>> = clock.split(':').map(number).collect();
    let clock = match parts?[..] {
        [hour, minute] => Time::from_hms(hour, minute, 0),
        [hour, minute, second] => Time::from_hms(hour, minute, second),
        _ => return None,
    };
    let seconds = date.with_time(clock.ok()?).assume_utc().unix_timestamp();
    u64::try_from(seconds).ok().map(|seconds| seconds * 1_000)
}

fn digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Two digits.
fn number(text: &str) -> Option<u8> {
    (text.len() == 2 && digits(text)).then(|| text.parse().ok())?
}

/// `YYYY-MM-DD` of a day since the epoch; its number if that is no date.
pub fn date(day: u64) -> String {
    let seconds = i64::try_from(day).ok().and_then(|day| day.checked_mul(86_400));
    let date = seconds.and_then(|seconds| OffsetDateTime::from_unix_timestamp(seconds).ok());
    date.map_or_else(
        || day.to_string(),
        |at| format!("{:04}-{:02}-{:02}", at.year(), u8::from(at.month()), at.day()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read() {
        assert_eq!(moment("1970-01-01").unwrap(), PeriodBound::At(0));
        assert_eq!(moment("2026-11-26").unwrap(), PeriodBound::At(1_795_651_200_000));
        assert_eq!(moment("2026-11-26T10:20").unwrap(), PeriodBound::At(1_795_688_400_000));
        assert_eq!(moment("2026-11-26T10:20:30").unwrap(), PeriodBound::At(1_795_688_430_000));
        assert_eq!(moment("90m").unwrap().at(6_000_000), 600_000);
        assert_eq!(moment("90m").unwrap().at(5), 0);
        for wrong in [
            "",
            "x",
            "2026-13-01",
            "2026-02-29",
            "26-01-01",
            "2026-1-1",
            "2026-01-01T1:00",
            "1969-12-31",
        ] {
            assert!(moment(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn days_have_dates() {
        assert_eq!(date(0), "1970-01-01");
        assert_eq!(date(1_795_651_200_000 / 86_400_000), "2026-11-26");
        assert_eq!(date(u64::MAX), u64::MAX.to_string());
    }
}
