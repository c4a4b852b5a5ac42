//! Whether this machine keeps up with the cluster on it.

use crate::error::BenchError;
use serde::Serialize;
use serde_json::Value;
use std::path::PathBuf;

/// Switches of the nodes since their start; times in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Switching {
    /// Switches of all nodes.
    pub count: u64,
    /// Ticks that nodes missed.
    pub missed: u64,
    /// Freezing and thawing: median of the nodes' medians.
    pub total_p50_ns: u64,
    /// How late switches began: median of the nodes' medians.
    pub late_p50_ns: u64,
    /// How late: the worst node's 99th percentile.
    pub late_p99_ns: u64,
    /// First to last node in one tick, over the remembered ticks: median.
    pub skew_p50_ns: u64,
    /// 99th percentile.
    pub skew_p99_ns: u64,
}

impl Switching {
    /// Reads the output of `kumi stats --json`.
    pub fn of(stats: &Value) -> Self {
        let nodes: Vec<&Value> = stats["nodes"].as_array().into_iter().flatten().collect();
        let number = |value: Option<&Value>| value.and_then(Value::as_u64).unwrap_or(0);
        let all = |pointer: &str| -> Vec<u64> {
            let mut all: Vec<u64> =
                nodes.iter().map(|node| number(node.pointer(pointer))).collect();
            all.sort_unstable();
            all
        };
        let median = |pointer: &str| {
            let all = all(pointer);
            all.get(all.len() / 2).copied().unwrap_or(0)
        };
        Self {
            count: all("/switching/count").iter().sum(),
            missed: all("/switching/missed_ticks").iter().sum(),
            total_p50_ns: median("/switching/total/p50"),
            late_p50_ns: median("/switching/lateness/p50"),
            late_p99_ns: all("/switching/lateness/p99").last().copied().unwrap_or(0),
            skew_p50_ns: number(stats.pointer("/skew/p50_ns")),
            skew_p99_ns: number(stats.pointer("/skew/p99_ns")),
        }
    }
}

/// Times of the machine's processors since its start, in ticks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ProcessorTicks {
    idle: u64,
    all: u64,
}

impl ProcessorTicks {
    fn parse(text: &str) -> Option<Self> {
        let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let numbers: Option<Vec<u64>> = line.split_whitespace().map(|n| n.parse().ok()).collect();
        let numbers = numbers?;
        // user, nice, system, idle, waiting for devices, interrupts (twice), stolen by other machines; user
        // includes guests.
        let [_, _, _, idle, waits, ..] = numbers[..] else { return None };
        Some(Self { idle: idle + waits, all: numbers.iter().take(8).sum() })
    }

    /// The share used between two readings.
    pub(super) fn share_until(self, then: Self) -> f64 {
        let all = then.all.saturating_sub(self.all).max(1);
        1.0 - then.idle.saturating_sub(self.idle) as f64 / all as f64
    }
}

/// Reads `/proc/stat`.
pub(super) fn busy_times() -> Result<ProcessorTicks, BenchError> {
    let path = PathBuf::from("/proc/stat");
    match std::fs::read_to_string(&path) {
        Ok(text) => ProcessorTicks::parse(&text).ok_or_else(|| BenchError::Output {
            wanted: "the processors' times".to_owned(),
            what: path.display().to_string(),
            output: text,
        }),
        Err(source) => Err(BenchError::File { path, source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_times_are_read() {
        let before = ProcessorTicks::parse("cpu  10 0 10 70 10 0 0 0 5 0\ncpu0 1 2 3\n").unwrap();
        let after = ProcessorTicks::parse("cpu  40 0 20 110 30 0 0 0 5 0\n").unwrap();
        assert!((before.share_until(after) - 0.4).abs() < 1e-12);
        assert_eq!(ProcessorTicks::parse("cpu0 1 2 3\n"), None);
    }

    #[test]
    fn switching_of_all_nodes_is_put_together() {
        let node = |count, p50, late| {
            let lateness = serde_json::json!({"p50": p50, "p99": late});
            let total = serde_json::json!({"p50": 2 * p50});
            serde_json::json!({"switching": {"count": count, "missed_ticks": 1, "total": total, "lateness": lateness}})
        };
        let nodes = [node(5, 10, 100), node(7, 30, 90), node(0, 20, 80)];
        let stats = serde_json::json!({"skew": {"p50_ns": 3, "p99_ns": 9}, "nodes": nodes});
        let found = Switching::of(&stats);
        assert_eq!((found.count, found.missed, found.total_p50_ns), (12, 3, 40));
        assert_eq!((found.late_p50_ns, found.late_p99_ns), (20, 100));
        assert_eq!((found.skew_p50_ns, found.skew_p99_ns), (3, 9));
        assert_eq!(Switching::of(&serde_json::json!({"skew": null})), Switching::default());
    }
}
