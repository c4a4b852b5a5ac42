//! Placed jobs of policies that share space only.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;

use crate::{ClusterTime, JobId, MatrixGang, Policy, ProcessorColumn, ProcessorId, Request};

/// No two jobs share a node, except jobs taken over from another policy. As long as such jobs run,
/// all jobs take turns like the rows of a matrix.
#[derive(Clone, Debug, Default)]
pub(crate) struct PlacedJobs {
    jobs: BTreeMap<JobId, Vec<ProcessorId>>,
    active: BTreeSet<JobId>,
    /// Jobs by node number.
    holders: Vec<u32>,
    /// Nodes with more than one job.
    shared: usize,
    /// The next slot of the matrix, while there is one.
    turn: u64,
}

impl PlacedJobs {
    pub(crate) fn contains(&self, job: JobId) -> bool {
        self.jobs.contains_key(&job)
    }

    /// Each job's nodes.
    pub(crate) fn jobs(&self) -> &BTreeMap<JobId, Vec<ProcessorId>> {
        &self.jobs
    }

    pub(crate) fn put(&mut self, job: JobId, nodes: Vec<ProcessorId>) {
        for node in &nodes {
            let index = node.0 as usize;
            if self.holders.len() <= index {
                self.holders.resize(index + 1, 0);
            }
            self.holders[index] += 1;
            self.shared += usize::from(self.holders[index] == 2);
        }
        self.jobs.insert(job, nodes);
    }

    pub(crate) fn remove(&mut self, job: JobId) -> Option<Vec<ProcessorId>> {
        let nodes = self.jobs.remove(&job)?;
        self.active.remove(&job);
        for node in &nodes {
            let holders = &mut self.holders[node.0 as usize];
            self.shared -= usize::from(*holders == 2);
            *holders -= 1;
        }
        Some(nodes)
    }

    pub(crate) fn set_active(&mut self, job: JobId, active: bool) {
        if !active {
            self.active.remove(&job);
        } else if self.jobs.contains_key(&job) {
            self.active.insert(job);
        }
    }

    fn matrix(&self) -> MatrixGang {
        let mut matrix = MatrixGang::new(u32::MAX);
        for (&job, nodes) in self.jobs.iter().filter(|(job, _)| self.active.contains(job)) {
            // Cannot fail: each job is in the list once and has nodes.
            let _ = matrix.restore(&Request::new(job, 0), nodes, ClusterTime(0));
            matrix.set_active(job, true);
        }
        matrix.advance(self.turn);
        matrix
    }

    pub(crate) fn run_slot(&mut self, run: &mut dyn FnMut(JobId)) {
        if self.shared == 0 {
            self.active.iter().for_each(|&job| run(job));
        } else {
            self.matrix().run_slot(run);
            self.advance(1);
        }
    }

    pub(crate) fn advance(&mut self, slots: u64) {
        if self.shared == 0 {
            return;
        }
        let cycle = self.columns().first().map_or(1, |column| column.slots.len() as u64);
        self.turn = (self.turn % cycle + slots % cycle) % cycle;
    }

    pub(crate) fn columns(&self) -> Vec<ProcessorColumn> {
        if self.shared > 0 {
            return self.matrix().columns();
        }
        let column =
            |job: JobId| move |&processor| ProcessorColumn { processor, slots: vec![Some(job)] };
        let of_job = |job| self.jobs[job].iter().map(column(*job));
        let mut columns: Vec<ProcessorColumn> = self.active.iter().flat_map(of_job).collect();
        columns.sort_unstable_by_key(|column| column.processor);
        columns
    }
}
