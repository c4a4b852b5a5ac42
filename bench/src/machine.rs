//! What the whole machine does: its context switches, and how much of its processors is in use.

use crate::error::BenchError;
use std::path::PathBuf;
use std::time::Instant;

/// Counters of the machine at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Activity {
    at: Instant,
    switches: f64,
    busy: f64,
    all: f64,
}

/// What happened between two moments.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Passed {
    /// Context switches per second of all processors.
    pub switches_per_second: f64,
    /// Part of all processors' time that was used.
    pub busy: f64,
}

/// Context switches, ticks in use and all ticks, of `/proc/stat`.
fn read(text: &str) -> Option<(f64, f64, f64)> {
    let line = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
    let ticks: Vec<f64> =
        line("cpu ")?.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
    // User, nice, system, idle, waiting for devices, interrupts twice, stolen; guests are in the first two.
    let all: f64 = ticks.iter().take(8).sum();
    let idle = ticks.get(3)? + ticks.get(4)?;
    Some((line("ctxt ")?.trim().parse().ok()?, all - idle, all))
}

impl Activity {
    /// The counters now.
    ///
    /// # Errors
    /// `/proc/stat` cannot be read.
    pub fn now() -> Result<Self, BenchError> {
        let path = PathBuf::from("/proc/stat");
        let text = std::fs::read_to_string(&path);
        let text = text.map_err(|source| BenchError::File { path, source })?;
        let (switches, busy, all) = read(&text).ok_or_else(|| BenchError::Output {
            wanted: "counters of processors and context switches".to_owned(),
            what: "/proc/stat".to_owned(),
            output: text.clone(),
        })?;
        Ok(Self { at: Instant::now(), switches, busy, all })
    }

    /// What happened from this moment to a later one.
    pub fn until(&self, later: &Self) -> Passed {
        let seconds = later.at.saturating_duration_since(self.at).as_secs_f64().max(1e-9);
        let ticks = (later.all - self.all).max(1.0);
        Passed {
            switches_per_second: (later.switches - self.switches) / seconds,
            busy: (later.busy - self.busy) / ticks,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read() {
        let text = "cpu  100 20 30 400 50 6 7 8 9 10\ncpu0 1 2 3 4\nintr 5\nctxt 12345\nbtime 6\n";
        assert_eq!(read(text), Some((12345.0, 171.0, 621.0)));
        assert_eq!(read("cpu  1 2 3\nctxt 5\n"), None);
        assert_eq!(read("cpu  1 2 3 4 5\n"), None);
    }

    #[test]
    fn what_passed_is_a_rate_and_a_part() {
        let at = Instant::now();
        let early = Activity { at, switches: 100.0, busy: 10.0, all: 20.0 };
        let later = at + std::time::Duration::from_secs(2);
        let late = Activity { at: later, switches: 700.0, busy: 40.0, all: 60.0 };
        assert_eq!(early.until(&late), Passed { switches_per_second: 300.0, busy: 0.75 });
        assert_eq!(early.until(&early).busy, 0.0);
    }
}
