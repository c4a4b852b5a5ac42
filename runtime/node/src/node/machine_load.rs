//! Load of the machine as its kernel reports it: processors, memory, network.

use std::net::IpAddr;

use kumi_net::disclosure::NodeLoad;
use tokio::time::Instant;

/// The last measurement.
#[derive(Debug)]
pub(super) struct MachineLoad {
    cpus: Vec<usize>,
    /// The node's address is the machine's own: nodes of a cluster on one machine without namespaces.
    loopback: bool,
    /// Busy and all ticks of the processors.
    ticks: Option<(u64, u64)>,
    bytes: Option<(Instant, u64)>,
}

impl MachineLoad {
    pub(super) fn new(cpus: &[usize], address: IpAddr) -> Self {
        let loopback = address.is_loopback();
        Self { cpus: cpus.to_vec(), loopback, ticks: None, bytes: None }
    }

    /// Measures what has changed since the last time. What the system does not tell stays as it was.
    pub(super) fn measure(&mut self, load: &mut NodeLoad) {
        let read = |path: &str| match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) => {
                tracing::debug!(path, %error, "not read");
                String::new()
            }
        };
        if let Some((busy, all)) = ticks(&read("/proc/stat"), &self.cpus)
            && let Some((before, all_before)) = self.ticks.replace((busy, all))
        {
            let (busy, all) = (busy.saturating_sub(before), all.saturating_sub(all_before));
            let permille = (busy * 1000).checked_div(all).unwrap_or(0).min(1000);
            load.busy_permille = u32::try_from(permille).unwrap_or(1000);
        }
        if let Some((used, total)) = memory(&read("/proc/meminfo")) {
            (load.memory_used, load.memory_total) = (used, total);
        }
        let now = Instant::now();
        if let Some(bytes) = network(&read("/proc/net/dev"), self.loopback)
            && let Some((at, before)) = self.bytes.replace((now, bytes))
        {
            let millis = u64::try_from(now.duration_since(at).as_millis()).unwrap_or(u64::MAX);
            let passed = bytes.saturating_sub(before).saturating_mul(1000);
            load.network_bytes = passed.checked_div(millis).unwrap_or(0);
        }
    }
}

/// Busy and all ticks of these processors, from `/proc/stat`.
fn ticks(stat: &str, cpus: &[usize]) -> Option<(u64, u64)> {
    let mut sums = None;
    for line in stat.lines() {
        let mut words = line.split_ascii_whitespace();
        let number = words.next().and_then(|name| name.strip_prefix("cpu")?.parse().ok());
        if number.is_none_or(|number: usize| !cpus.contains(&number)) {
            continue;
        }
        // user nice system idle iowait irq softirq steal; guests are part of user.
        let values: Vec<u64> = words.take(8).filter_map(|word| word.parse().ok()).collect();
        let all: u64 = values.iter().sum();
        let idle: u64 = values.iter().skip(3).take(2).sum();
        let (busy, total) = sums.unwrap_or((0, 0));
        sums = Some((busy + all.saturating_sub(idle), total + all));
    }
    sums
}

/// Bytes in use and in all, from `/proc/meminfo`.
fn memory(meminfo: &str) -> Option<(u64, u64)> {
    let value = |name: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_ascii_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
    };
    let (total, available) = (value("MemTotal:")?, value("MemAvailable:")?);
    Some((total.saturating_sub(available), total))
}

/// Bytes received and sent so far by all interfaces but the loopback, or by that alone, from `/proc/net/dev`.
fn network(dev: &str, loopback: bool) -> Option<u64> {
    let mut sum = None;
    for line in dev.lines() {
        let Some((name, values)) = line.split_once(':') else { continue };
        if (name.trim() == "lo") != loopback {
            continue;
        }
        let values: Vec<u64> =
            values.split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect();
        let both = values.first()?.saturating_add(*values.get(8)?);
        sum = Some(both.saturating_add(sum.unwrap_or(0)));
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_says_is_read() {
        let stat = "cpu  9 9 9 9\ncpu0 10 1 5 100 4 0 1 0 3 0\ncpu1 1 1 1 1 1 1 1 1 0 0\ncpu12 50 0 0 50 0 0 0 0 0 0\nintr 5\n";
        assert_eq!(ticks(stat, &[0, 12]), Some((17 + 50, 121 + 100)));
        assert_eq!(ticks(stat, &[7]), None);
        let meminfo = "MemTotal:       1000 kB\nMemFree:  1 kB\nMemAvailable:    400 kB\n";
        assert_eq!(memory(meminfo), Some((600 * 1024, 1000 * 1024)));
        assert_eq!(memory("MemTotal: 1 kB\n"), None);
        let dev = "Inter-| Receive\n face |bytes\n    lo: 7 0 0 0 0 0 0 0 8 0\n  eth0: 100 1 0 0 0 0 0 0 20 1\n eth1:3 1 0 0 0 0 0 0 4 1\n";
        assert_eq!((network(dev, false), network(dev, true)), (Some(127), Some(15)));
        assert_eq!(network("", false), None);
    }

    #[test]
    fn this_machine_has_processors_memory_and_interfaces() {
        let mut machine = MachineLoad::new(&[0], IpAddr::from([127, 0, 0, 1]));
        let mut load = NodeLoad::default();
        machine.measure(&mut load);
        machine.measure(&mut load);
        assert!(load.memory_total > load.memory_used && load.memory_used > 0);
        assert!(load.busy_permille <= 1000 && machine.ticks.is_some());
    }
}
