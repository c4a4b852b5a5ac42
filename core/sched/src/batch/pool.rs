//! Pool of the machine's processors, from which jobs take free ones.

use alloc::vec::Vec;

use crate::bits::Bits;
use crate::demand::{Demand, NodeResources, PartSize};
use crate::inventory::Inventory;
use crate::policy::ResourceFit;
use crate::{JobId, ProcessorId};

/// The processors of the machine: which are up, and which a queued job may get.
pub(crate) trait Pool: Default {
    /// Returns how many processors became free, if all of the node were down and no job has any.
    fn add_node(&mut self, node: &NodeResources) -> Option<u32>;

    fn remove_node(&mut self, first: ProcessorId);

    /// Processors that a job takes; an upper bound where it wants whole nodes and these differ.
    fn count(&self, demand: &Demand) -> u32;

    /// Whether such a job could run if no other did.
    fn possible(&self, demand: &Demand) -> bool;

    /// Whether the nodes have what such a job wants.
    fn fit(&self, demand: &Demand) -> ResourceFit;

    /// Whether there is all for such a job now.
    fn fits(&self, demand: &Demand) -> bool;

    /// Processors for a job, ascending, if there are any for it now.
    fn take(&mut self, job: JobId, demand: &Demand) -> Option<Vec<ProcessorId>>;

    /// Gives a job these processors, even if other jobs have them.
    fn claim(&mut self, job: JobId, demand: &Demand, processors: &[ProcessorId]);

    /// Removes a job from its processors. Returns how many of them are free now.
    fn release(&mut self, job: JobId, processors: &[ProcessorId]) -> u32;

    /// Idle processors that no job can get, because they fill up the partition of another job.
    fn filling(&self) -> u32 {
        0
    }
}

/// Pool that gives any free processors, lowest numbers first.
#[derive(Debug, Default)]
pub(crate) struct FreeProcessors {
    inventory: Inventory,
    up: Bits,
    up_count: u32,
    /// Up and without a job.
    free: Bits,
    free_count: u32,
    /// Jobs by processor number.
    holders: Vec<u32>,
    /// Processors that several jobs have, and those that are down and have a job.
    odd: usize,
}

impl FreeProcessors {
    pub(crate) fn up(&self) -> u32 {
        self.up_count
    }

    pub(crate) fn free(&self) -> u32 {
        self.free_count
    }

    pub(crate) fn is_up(&self, processor: ProcessorId) -> bool {
        self.up.contains(processor)
    }

    /// Whether each job that ends makes all of its processors free.
    pub(crate) fn regular(&self) -> bool {
        self.odd == 0
    }

    /// Free processors for such a job.
    fn choose(&self, demand: &Demand) -> Option<Vec<ProcessorId>> {
        let free = |processor| self.free.contains(processor);
        self.inventory.choose(demand, 0..u32::MAX, free, |_| 0)
    }

    fn held(&self, processor: ProcessorId) -> u32 {
        self.holders.get(processor.0 as usize).copied().unwrap_or(0)
    }

    /// Updates a processor's state and the counts that depend on it.
    fn change(&mut self, processor: ProcessorId, up: bool, holders: u32) {
        self.odd -= usize::from(self.is_odd(processor));
        let index = processor.0 as usize;
        if self.holders.len() <= index {
            self.holders.resize(index + 1, 0);
        }
        self.holders[index] = holders;
        set(&mut self.up, &mut self.up_count, processor, up);
        set(&mut self.free, &mut self.free_count, processor, up && holders == 0);
        self.odd += usize::from(self.is_odd(processor));
    }

    fn is_odd(&self, processor: ProcessorId) -> bool {
        let holders = self.held(processor);
        holders > 1 || holders == 1 && !self.is_up(processor)
    }
}

fn set(bits: &mut Bits, count: &mut u32, processor: ProcessorId, wanted: bool) {
    match (bits.contains(processor), wanted) {
        (false, true) => {
            bits.insert(processor);
            *count += 1;
        }
        (true, false) => {
            bits.remove(processor);
            *count -= 1;
        }
        _ => {}
    }
}

impl Pool for FreeProcessors {
    fn add_node(&mut self, node: &NodeResources) -> Option<u32> {
        self.inventory.add(node);
        let numbers = || node.processors.clone().map(ProcessorId);
        let fresh = numbers().all(|processor| !self.is_up(processor) && self.held(processor) == 0);
        for processor in numbers() {
            self.change(processor, true, self.held(processor));
        }
        fresh.then(|| node.processors.end - node.processors.start)
    }

    fn remove_node(&mut self, first: ProcessorId) {
        for processor in self.inventory.remove(first).map(ProcessorId) {
            self.change(processor, false, self.held(processor));
        }
    }

    fn count(&self, demand: &Demand) -> u32 {
        match demand.size {
            PartSize::Processors(_) => self.inventory.count(demand),
            PartSize::WholeNode { .. } => self.inventory.count(demand).min(self.up_count.max(1)),
        }
    }

    fn possible(&self, demand: &Demand) -> bool {
        if demand.is_plain() {
            return demand.parts <= self.up_count;
        }
        self.inventory.possible(demand)
    }

    fn fit(&self, demand: &Demand) -> ResourceFit {
        self.inventory.fit(demand, self.possible(demand))
    }

    fn fits(&self, demand: &Demand) -> bool {
        if demand.is_plain() {
            return demand.parts <= self.free_count;
        }
        self.choose(demand).is_some()
    }

    fn take(&mut self, job: JobId, demand: &Demand) -> Option<Vec<ProcessorId>> {
        let processors = if demand.is_plain() {
            let enough = demand.parts <= self.free_count;
            enough.then(|| self.free.iter().take(demand.parts as usize).collect())
        } else {
            self.choose(demand)
        }?;
        self.claim(job, demand, &processors);
        Some(processors)
    }

    fn claim(&mut self, job: JobId, demand: &Demand, processors: &[ProcessorId]) {
        self.inventory.take(job, demand, processors);
        for &processor in processors {
            self.change(processor, self.is_up(processor), self.held(processor) + 1);
        }
    }

    fn release(&mut self, job: JobId, processors: &[ProcessorId]) -> u32 {
        self.inventory.give_back(job);
        let before = self.free_count;
        for &processor in processors {
            self.change(processor, self.is_up(processor), self.held(processor) - 1);
        }
        self.free_count - before
    }
}
