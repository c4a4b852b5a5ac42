//! What a daemon's own process takes of the machine.

use std::fs;

use kumi_metrics::{MetricKind, MetricsPage};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use nix::unistd::{SysconfVar, sysconf};

use crate::log;

/// Writes processor time, memory and lost log lines of this process; `daemon` begins the names of the families. What the system does not tell
/// is left out.
pub(crate) fn write(page: &mut MetricsPage, daemon: &str) {
    if let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) {
        let micros = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
        let name = format!("{daemon}_processor_seconds");
        page.family(&name, MetricKind::Counter, "Processor time of the daemon itself.");
        page.sample(&[], micros as f64 / 1e6);
    }
    let pages = fs::read_to_string("/proc/self/statm").ok().and_then(|text| resident(&text));
    if let (Some(pages), Ok(Some(size))) = (pages, sysconf(SysconfVar::PAGE_SIZE)) {
        let size = u64::try_from(size).unwrap_or(0);
        let name = format!("{daemon}_memory_bytes");
        page.family(&name, MetricKind::Gauge, "Memory of the daemon itself.");
        page.sample(&[], pages.saturating_mul(size));
    }
    let name = format!("{daemon}_log_lines_lost");
    page.family(&name, MetricKind::Counter, "Lines of the daemon's log that were not written.");
    page.sample(&[], log::lost_lines());
}

/// Pages in memory, from `/proc/self/statm`.
fn resident(statm: &str) -> Option<u64> {
    statm.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_says_what_it_takes() {
        assert_eq!(resident("1000 77 5 1 0 9 0\n"), Some(77));
        assert_eq!(resident(""), None);
        let mut page = MetricsPage::default();
        write(&mut page, "daemon");
        let page = page.finish();
        let value = |name: &str| -> f64 {
            let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.unwrap_or_else(|| panic!("{name} in {page}")).parse().unwrap()
        };
        // This program alone has more than a MiB.
        assert!(value("kumi_daemon_memory_bytes") > 1e6);
        assert!(value("kumi_daemon_processor_seconds_total") >= 0.0);
        assert!(value("kumi_daemon_log_lines_lost_total") >= 0.0);
    }
}
