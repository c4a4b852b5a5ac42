//! Pool of the machine's nodes, from which jobs take free ones.

use alloc::vec::Vec;

use crate::bits::Bits;
use crate::{JobId, ProcessorId};

/// The nodes of the machine: which are up, and which a queued job may get.
pub(crate) trait Pool: Default {
    /// Says whether it was down and no job has it.
    fn add_node(&mut self, node: ProcessorId) -> bool;

    fn remove_node(&mut self, node: ProcessorId);

    /// Whether a job of this size could run if no other did.
    fn possible(&self, wanted: u32) -> bool;

    /// Nodes for a job, ascending, if there are any for it now.
    fn take(&mut self, job: JobId, wanted: u32) -> Option<Vec<ProcessorId>>;

    /// Gives a job these nodes, even if other jobs have them.
    fn claim(&mut self, job: JobId, nodes: &[ProcessorId]);

    /// Removes a job from its nodes. Returns how many of them are free now.
    fn release(&mut self, job: JobId, nodes: &[ProcessorId]) -> u32;

    /// Idle nodes that no job can get, because they fill up the partition of another job.
    fn filling(&self) -> u32 {
        0
    }
}

/// Pool that gives any free nodes, lowest numbers first.
#[derive(Debug, Default)]
pub(crate) struct FreeNodes {
    up: Bits,
    up_count: u32,
    /// Up and without a job.
    free: Bits,
    free_count: u32,
    /// Jobs by node number.
    holders: Vec<u32>,
    /// Nodes that several jobs have, and nodes that are down and have a job.
    odd: usize,
}

impl FreeNodes {
    pub(crate) fn up(&self) -> u32 {
        self.up_count
    }

    pub(crate) fn free(&self) -> u32 {
        self.free_count
    }

    pub(crate) fn is_up(&self, node: ProcessorId) -> bool {
        self.up.contains(node)
    }

    /// Whether each job that ends makes all of its nodes free.
    pub(crate) fn regular(&self) -> bool {
        self.odd == 0
    }

    fn held(&self, node: ProcessorId) -> u32 {
        self.holders.get(node.0 as usize).copied().unwrap_or(0)
    }

    /// Updates a node's state and the counts that depend on it.
    fn change(&mut self, node: ProcessorId, up: bool, holders: u32) {
        self.odd -= usize::from(self.is_odd(node));
        let index = node.0 as usize;
        if self.holders.len() <= index {
            self.holders.resize(index + 1, 0);
        }
        self.holders[index] = holders;
        set(&mut self.up, &mut self.up_count, node, up);
        set(&mut self.free, &mut self.free_count, node, up && holders == 0);
        self.odd += usize::from(self.is_odd(node));
    }

    fn is_odd(&self, node: ProcessorId) -> bool {
        let holders = self.held(node);
        holders > 1 || holders == 1 && !self.is_up(node)
    }
}

fn set(bits: &mut Bits, count: &mut u32, node: ProcessorId, wanted: bool) {
    match (bits.contains(node), wanted) {
        (false, true) => {
            bits.insert(node);
            *count += 1;
        }
        (true, false) => {
            bits.remove(node);
            *count -= 1;
        }
        _ => {}
    }
}

impl Pool for FreeNodes {
    fn add_node(&mut self, node: ProcessorId) -> bool {
        let fresh = !self.is_up(node) && self.held(node) == 0;
        self.change(node, true, self.held(node));
        fresh
    }

    fn remove_node(&mut self, node: ProcessorId) {
        self.change(node, false, self.held(node));
    }

    fn possible(&self, wanted: u32) -> bool {
        wanted <= self.up_count
    }

    fn take(&mut self, job: JobId, wanted: u32) -> Option<Vec<ProcessorId>> {
        if wanted > self.free_count {
            return None;
        }
        let nodes: Vec<ProcessorId> = self.free.iter().take(wanted as usize).collect();
        self.claim(job, &nodes);
        Some(nodes)
    }

    fn claim(&mut self, _job: JobId, nodes: &[ProcessorId]) {
        for &node in nodes {
            self.change(node, self.is_up(node), self.held(node) + 1);
        }
    }

    fn release(&mut self, _job: JobId, nodes: &[ProcessorId]) -> u32 {
        let before = self.free_count;
        for &node in nodes {
            self.change(node, self.is_up(node), self.held(node) - 1);
        }
        self.free_count - before
    }
}
