//! Means of rows: history at a lower resolution.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::{JobRow, NodeCell, Row, UNKNOWN};

/// Sum and number of values.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    sum: u64,
    count: u32,
}

impl Mean {
    fn add(&mut self, value: impl Into<u64>) {
        self.sum = self.sum.saturating_add(value.into());
        self.count = self.count.saturating_add(1);
    }

    fn value(self) -> Option<u64> {
        let count = u64::from(self.count);
        self.sum.saturating_add(count / 2).checked_div(count)
    }
}

#[derive(Debug, Default)]
struct NodeMeans {
    busy: Mean,
    memory: Mean,
    switching: Mean,
    network_kib: Mean,
}

#[derive(Debug)]
struct JobMeans {
    ranks: u32,
    loads: Vec<Mean>,
}

/// Rows of one stretch of time, which are to become one.
#[derive(Debug, Default)]
pub struct Fold {
    at_s: Option<u64>,
    nodes: BTreeMap<u32, NodeMeans>,
    jobs: BTreeMap<u64, JobMeans>,
}

impl Fold {
    /// Adds a row. The first one gives the time.
    pub fn add(&mut self, row: &Row) {
        self.at_s.get_or_insert(row.at_s);
        for cell in &row.nodes {
            let means = self.nodes.entry(cell.node).or_default();
            means.busy.add(cell.busy);
            means.memory.add(cell.memory);
            means.switching.add(cell.switching);
            means.network_kib.add(cell.network_kib);
        }
        for job in &row.jobs {
            let fresh = || JobMeans { ranks: job.ranks, loads: Vec::new() };
            let means = self.jobs.entry(job.job).or_insert_with(fresh);
            if means.loads.len() != job.loads.len() {
                means.loads = alloc::vec![Mean::default(); job.loads.len()];
            }
            for (mean, &load) in means.loads.iter_mut().zip(&job.loads) {
                if load != UNKNOWN {
                    mean.add(load);
                }
            }
        }
    }

    /// When the first row was, if there is one.
    #[must_use]
    pub fn begin(&self) -> Option<u64> {
        self.at_s
    }

    /// The mean of all rows since the last time; none without rows.
    pub fn take(&mut self) -> Option<Row> {
        let Self { at_s, nodes, jobs } = core::mem::take(self);
        let byte =
            |mean: Mean| mean.value().map_or(UNKNOWN, |it| u8::try_from(it).unwrap_or(UNKNOWN));
        let node = |(node, means): (u32, NodeMeans)| NodeCell {
            node,
            busy: byte(means.busy),
            memory: byte(means.memory),
            switching: u16::try_from(means.switching.value().unwrap_or(0)).unwrap_or(u16::MAX),
            network_kib: u32::try_from(means.network_kib.value().unwrap_or(0)).unwrap_or(u32::MAX),
        };
        let job = |(job, means): (u64, JobMeans)| JobRow {
            job,
            ranks: means.ranks,
            loads: means.loads.into_iter().map(byte).collect(),
        };
        Some(Row {
            at_s: at_s?,
            nodes: nodes.into_iter().map(node).collect(),
            jobs: jobs.into_iter().map(job).collect(),
        })
    }
}
