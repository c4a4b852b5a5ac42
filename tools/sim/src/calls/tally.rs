//! Statistics that one replication collects.

use std::collections::BTreeMap;

use super::plan::Plan;
use super::station::Integrals;

/// A call that came back.
#[derive(Clone, Copy, Debug)]
pub(super) struct CompletedCall {
    pub site: usize,
    pub routine: usize,
    pub server: usize,
    pub operations: f64,
    pub bytes: f64,
    pub response_s: f64,
    pub waiting_s: f64,
    pub communication_s: f64,
}

/// Sum, extremes and count of a quantity.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sum {
    pub count: u64,
    pub sum: f64,
    pub least: f64,
    pub most: f64,
}

impl Default for Sum {
    fn default() -> Self {
        Self { count: 0, sum: 0.0, least: f64::INFINITY, most: f64::NEG_INFINITY }
    }
}

impl Sum {
    fn add(&mut self, value: f64) {
        self.count += 1;
        self.sum += value;
        self.least = self.least.min(value);
        self.most = self.most.max(value);
    }

    /// `None` of nothing.
    pub fn mean(&self) -> Option<f64> {
        #[allow(clippy::cast_precision_loss)]
        (self.count > 0).then(|| self.sum / self.count as f64)
    }
}

/// The calls of a site's clients of one routine.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cell {
    pub turned_away: u64,
    pub performance: Sum,
    pub throughput: Sum,
    pub communication: Sum,
    pub waiting: Sum,
    pub response: Sum,
}

#[derive(Debug, Default)]
pub(super) struct Tally {
    /// By site and routine.
    pub cells: BTreeMap<(usize, usize), Cell>,
    pub by_server: Vec<u64>,
    /// For links there, links back, servers, the metaserver.
    pub stations: Vec<Integrals>,
    /// Measured time, in seconds.
    pub measured_s: f64,
    /// When the last event was.
    pub end_s: f64,
}

impl Tally {
    pub fn new(plan: &Plan<'_>) -> Self {
        Self { by_server: vec![0; plan.model.servers.len()], ..Self::default() }
    }

    pub fn ended(&mut self, call: &CompletedCall) {
        self.by_server[call.server] += 1;
        let cell = self.cells.entry((call.site, call.routine)).or_default();
        cell.response.add(call.response_s);
        cell.waiting.add(call.waiting_s);
        cell.communication.add(call.communication_s);
        if call.response_s > 0.0 {
            cell.performance.add(call.operations / call.response_s);
        }
        if call.communication_s > 0.0 && call.bytes > 0.0 {
            cell.throughput.add(call.bytes / call.communication_s);
        }
    }

    pub fn turned_away(&mut self, site: usize, routine: usize) {
        self.cells.entry((site, routine)).or_default().turned_away += 1;
    }

    pub fn finish(&mut self, measured_s: f64, end_s: f64, stations: Vec<Integrals>) {
        (self.measured_s, self.end_s, self.stations) = (measured_s, end_s, stations);
    }
}
