//! Rates of the nodes: differences between two answers.

use kumi_control::message::{LoadSample, NodeSample};
use kumi_sched::NodeId;
use std::collections::BTreeMap;
use std::time::Instant;

/// A node's figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeRates {
    /// Use of its processors, 0 to 1000.
    pub busy_permille: u16,
    /// Memory in use, and in all, in KiB; 0 in all if it is not known.
    pub memory_kib: [u64; 2],
    /// Bytes a second of its network interfaces.
    pub network_bytes: u64,
    /// Switches a second; none before the second answer.
    pub switches: Option<u64>,
    /// Time that they took, in hundredths of a per cent.
    pub switching: Option<u64>,
}

/// What is remembered of the last answers.
#[derive(Debug, Default)]
pub struct RateMeter {
    before: BTreeMap<NodeId, (Instant, u64, u64)>,
}

impl RateMeter {
    /// The rates between the last answers and these.
    pub fn take(&mut self, samples: &[NodeSample], now: Instant) -> BTreeMap<NodeId, NodeRates> {
        let loads = samples.iter().filter_map(|sample| Some((sample.node, sample.load.as_ref()?)));
        loads.map(|(node, load)| (node, self.rates(node, load, now))).collect()
    }

    fn rates(&mut self, node: NodeId, load: &LoadSample, now: Instant) -> NodeRates {
        let machine = load.machine;
        let mut rates = NodeRates {
            busy_permille: machine.busy_permille.min(1000),
            memory_kib: machine.memory_kib,
            network_bytes: machine.network_bytes,
            switches: None,
            switching: None,
        };
        let before = self.before.insert(node, (now, load.switches, load.switch_ns));
        if let Some((at, switches, nanos)) = before {
            let passed = now.saturating_duration_since(at).as_nanos().max(1);
            let rate = |more: u64, per: u128| {
                u64::try_from(u128::from(more) * per / passed).unwrap_or(u64::MAX)
            };
            rates.switches = Some(rate(load.switches.saturating_sub(switches), 1_000_000_000));
            rates.switching = Some(rate(load.switch_ns.saturating_sub(nanos), 10_000));
        }
        rates
    }
}

#[cfg(test)]
mod tests {
    use super::super::snapshot::tests::snapshot;
    use super::*;
    use std::time::Duration;

    #[test]
    fn switches_are_differences() {
        let sample = |switches, switch_ns| {
            let load = LoadSample { switches, switch_ns, ..LoadSample::default() };
            NodeSample { load: Some(load), ..snapshot().samples[0].clone() }
        };
        let (mut meter, begin) = (RateMeter::default(), Instant::now());
        let first = meter.take(&[sample(100, 1_000)], begin)[&NodeId(0)];
        assert_eq!((first.switches, first.switching), (None, None));
        let later = begin + Duration::from_secs(2);
        let second = meter.take(&[sample(300, 4_001_000)], later)[&NodeId(0)];
        assert_eq!((second.switches, second.switching), (Some(100), Some(20)));
        // A daemon that was started again counts anew.
        let third = meter.take(&[sample(5, 10)], later + Duration::from_secs(1))[&NodeId(0)];
        assert_eq!((third.switches, third.switching), (Some(0), Some(0)));
    }
}
