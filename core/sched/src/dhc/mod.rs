//! Distributed hierarchical control (DHC): gang scheduling in partitions of a buddy system.
//!
//! Sources: Feitelson and Rudolph, "Distributed hierarchical control for parallel processing",
//! 1990; "Evaluation of design choices for gang scheduling using distributed hierarchical control",
//! 1996.
//!
//! Kumi implements them as follows:
//!
//! * *Controllers* stand for the blocks of a binary buddy system. A job of n nodes belongs to a
//!   controller of the lowest level that has n nodes, and runs on the first n of its nodes. Among
//!   these controllers it gets the one whose block is busy in the fewest slots of a round; of
//!   equals the first. Jobs stay with their controller.
//! * *A round* gives each job one slot. It is laid out from the top level down: a job gets the
//!   first slot in which its controller is enabled and has no other job. So the root's jobs come
//!   first, then those of its children side by side, and so on. Each controller uses the slots that
//!   it needs and leaves the rest of the round to lower levels.
//! * *Selective disabling*: while a job runs, it disables only the controllers whose blocks contain
//!   one of its nodes. Controllers in the rest of the job's block go on with jobs of their own.
//!   Without selective disabling, all controllers below the job's own are disabled.
//! * *Lengths of slots*: the paper gives more time to levels that use their processors well. Here
//!   all slots have one length, so more time means more slots. If part of the machine is idle in a
//!   slot, its jobs get that slot: those that keep most of it busy, and of equals those that have
//!   had the fewest slots. These jobs may belong to a controller itself or to those below it.
//! * *A change* makes a new round. It begins with the slot of the job that has waited longest, so
//!   no job starves however often jobs come and go. The sequence repeats after a round.
//!
//! Jobs wait in order of arrival when a processor has reached its limit of jobs. A job that wants more
//! nodes than are up is passed over.

mod round;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use crate::batch::pool::Pool;
use crate::buddy::{Block, BuddyAllocator};
use crate::demand::{Demand, NodeResources};
use crate::policy::{held_up_by_first, reorder_queue};
use crate::shares::QueueRank;
use crate::{
    ArriveError, ClusterTime, JobId, Obstacle, Placement, Policy, ProcessorColumn, ProcessorId,
    Request, Sharing,
};
use round::{Gang, Round};

/// Distributed hierarchical control.
#[derive(Debug)]
pub(crate) struct Dhc {
    /// Whether disabling is selective.
    selective: bool,
    jobs_per_processor: u32,
    /// Blocks of the machine, with the nodes that are up.
    nodes: BuddyAllocator,
    jobs: BTreeMap<JobId, Job>,
    queue: VecDeque<(JobId, Demand)>,
    /// The first job that could ever run finds no place, and nothing has changed since.
    stuck: bool,
    /// Jobs by node number.
    load: Vec<u32>,
    /// Slots that have passed.
    passed: u64,
    /// Round of the active jobs; `None` after a change.
    round: Option<Turns>,
}

#[derive(Debug)]
struct Job {
    gang: Gang,
    active: bool,
    /// The slot in which it last ran, or the slot in which it came.
    ran: u64,
}

/// A round in progress.
#[derive(Debug)]
struct Turns {
    slots: Vec<Vec<JobId>>,
    next: usize,
}

impl Dhc {
    pub(crate) fn new(jobs_per_processor: u32, selective: bool) -> Self {
        Self {
            selective,
            jobs_per_processor: jobs_per_processor.max(1),
            nodes: BuddyAllocator::default(),
            jobs: BTreeMap::new(),
            queue: VecDeque::new(),
            stuck: false,
            load: Vec::new(),
            passed: 0,
            round: None,
        }
    }

    fn known(&self, job: JobId) -> bool {
        self.jobs.contains_key(&job) || self.queue.iter().any(|&(queued, _)| queued == job)
    }

    fn load_of(&self, node: ProcessorId) -> u32 {
        self.load.get(node.0 as usize).copied().unwrap_or(0)
    }

    fn put(&mut self, job: JobId, block: Block, nodes: &[ProcessorId]) {
        for node in nodes {
            let index = node.0 as usize;
            if self.load.len() <= index {
                self.load.resize(index + 1, 0);
            }
            self.load[index] += 1;
        }
        let gang = Gang::new(job, block, nodes, self.selective);
        self.jobs.insert(job, Job { gang, active: false, ran: self.passed });
    }

    /// The controller for a job, and its nodes there. Laying out a round is by far the most work, and only matters where several
    /// controllers have room.
    fn find(&self, demand: &Demand) -> Option<(Block, Vec<ProcessorId>)> {
        let level = self.nodes.level_for(demand)?;
        let place = |block| Some((block, self.with_room(block, demand)?));
        let mut places: Vec<_> = self.nodes.of_level(level).filter_map(place).collect();
        if places.len() > 1 {
            // Where a gang is in a round depends on gangs of blocks around its own, so others are left out.
            let near = |gang: &&Gang| {
                let range = gang.block().range();
                let first = places.partition_point(|(block, _)| block.range().end <= range.start);
                places.get(first).is_some_and(|(block, _)| block.range().start < range.end)
            };
            let round = Round::of(self.jobs.values().map(|job| &job.gang).filter(near));
            // The first of those that are equally busy.
            let least = (0..places.len()).min_by_key(|&index| round.busy(places[index].0))?;
            return Some(places.swap_remove(least));
        }
        places.pop()
    }

    /// The first processors of a block for such a job, if none of them has as many jobs as it may.
    fn with_room(&self, block: Block, demand: &Demand) -> Option<Vec<ProcessorId>> {
        let room = |&node: &ProcessorId| self.load_of(node) < self.jobs_per_processor;
        if demand.is_plain() {
            let mut up = block.range().map(ProcessorId).filter(|&node| self.nodes.is_up(node));
            // Most blocks of a busy machine end here, at their first processor.
            return (0..demand.parts).map(|_| up.next().filter(room)).collect();
        }
        let able = self.nodes.is_able(block, demand);
        let nodes = able.then(|| self.nodes.first_of(block, demand)).flatten()?;
        nodes.iter().all(room).then_some(nodes)
    }

    /// The round of the active jobs, beginning with the job that has waited longest.
    fn laid_out(&self) -> Vec<Vec<JobId>> {
        let active = || self.jobs.values().filter(|job| job.active);
        let mut round = Round::of(active().map(|job| &job.gang));
        round.fill(self.nodes.whole());
        let mut slots = round.into_jobs();
        let longest = active().min_by_key(|job| (job.ran, job.gang.job()));
        let first = longest
            .and_then(|longest| slots.iter().position(|slot| slot.contains(&longest.gang.job())));
        slots.rotate_left(first.unwrap_or(0));
        slots
    }

    /// Makes a round if there is none since the last change.
    fn lay_out(&mut self) {
        if self.round.is_none() {
            self.round = Some(Turns { slots: self.laid_out(), next: 0 });
        }
    }

    /// The remaining part of the round, then the part that has passed.
    fn slots(&self) -> Vec<Vec<JobId>> {
        match &self.round {
            None => self.laid_out(),
            Some(Turns { slots, next }) => {
                let mut slots = slots.clone();
                slots.rotate_left(*next);
                slots
            }
        }
    }
}

impl Policy for Dhc {
    fn sharing(&self) -> Sharing {
        Sharing::SpaceAndTime
    }

    fn add_node(&mut self, node: &NodeResources) {
        self.stuck = false;
        self.nodes.add_node(node);
    }

    fn remove_node(&mut self, first: ProcessorId) {
        self.stuck = false;
        self.nodes.remove_node(first);
    }

    fn arrive(&mut self, request: &Request, _now: ClusterTime) -> Result<(), ArriveError> {
        let &Request { job, demand, .. } = request;
        ArriveError::check(job, demand.parts as usize, self.known(job))?;
        self.queue.push_back((job, demand));
        Ok(())
    }

    fn restore(
        &mut self,
        request: &Request,
        processors: &[ProcessorId],
        _now: ClusterTime,
    ) -> Result<(), ArriveError> {
        let job = request.job;
        let nodes: BTreeSet<ProcessorId> = processors.iter().copied().collect();
        let (Some(&first), Some(&last)) = (nodes.first(), nodes.last()) else {
            return Err(ArriveError::NoProcessors(job));
        };
        ArriveError::check(job, nodes.len(), self.known(job))?;
        self.nodes.reach(last);
        let nodes: Vec<ProcessorId> = nodes.into_iter().collect();
        self.nodes.take_amounts(job, &request.demand, &nodes);
        self.put(job, Block::around(first, last), &nodes);
        Ok(())
    }

    fn leave(&mut self, job: JobId, _now: ClusterTime) {
        self.stuck = false;
        self.queue.retain(|&(queued, _)| queued != job);
        let Some(entry) = self.jobs.remove(&job) else { return };
        self.nodes.give_back_amounts(job);
        for node in entry.gang.nodes() {
            self.load[node.0 as usize] -= 1;
        }
        self.round = None;
    }

    fn set_active(&mut self, job: JobId, active: bool) {
        let changed = |entry: &&mut Job| entry.active != active;
        if let Some(entry) = self.jobs.get_mut(&job).filter(changed) {
            entry.active = active;
            entry.ran = self.passed;
            self.round = None;
        }
    }

    fn next_placement(&mut self, _now: ClusterTime) -> Option<Placement> {
        if self.stuck {
            return None;
        }
        let index = self.queue.iter().position(|(_, demand)| self.nodes.possible(demand))?;
        let (job, demand) = self.queue[index];
        let Some((block, processors)) = self.find(&demand) else {
            self.stuck = true;
            return None;
        };
        self.queue.remove(index);
        self.nodes.take_amounts(job, &demand, &processors);
        self.put(job, block, &processors);
        Some(Placement { job, processors })
    }

    fn queued(&self) -> Vec<JobId> {
        self.queue.iter().map(|&(job, _)| job).collect()
    }

    fn reorder(&mut self, rank: &mut dyn FnMut(JobId) -> QueueRank) {
        if reorder_queue(&mut self.queue, |&(job, _)| job, rank) {
            self.stuck = false;
        }
    }

    fn obstacles(&self) -> Vec<(JobId, Obstacle)> {
        let fit = |demand| self.nodes.fit(demand);
        held_up_by_first(self.queue.iter().map(|(job, demand)| (*job, fit(demand))))
    }

    fn run_slot(&mut self, run: &mut dyn FnMut(JobId)) {
        self.lay_out();
        let Some(Turns { slots, next }) = &mut self.round else { return };
        let Some(slot) = slots.get(*next) else { return };
        for &job in slot {
            run(job);
            if let Some(entry) = self.jobs.get_mut(&job) {
                entry.ran = self.passed + 1;
            }
        }
        self.passed += 1;
        *next = (*next + 1) % slots.len();
    }

    fn advance(&mut self, slots: u64) {
        self.lay_out();
        let round = self.round.as_ref().map_or(1, |round| round.slots.len().max(1) as u64);
        // A whole round, so that each job's last slot is known; after whole rounds nothing else
        // changes.
        let beyond = slots.saturating_sub(round) / round * round;
        self.passed = self.passed.saturating_add(beyond);
        for _ in 0..slots - beyond {
            self.run_slot(&mut |_| {});
        }
    }

    fn next_round(&mut self, most: u64, round: &mut crate::Round) -> bool {
        self.lay_out();
        let Some(Turns { slots, next }) = &self.round else { return false };
        if slots.is_empty() || slots.len() as u64 > most {
            return false;
        }
        let (before, after) = slots.split_at(*next);
        round.of_slots(after.iter().chain(before).map(|jobs| &jobs[..]));
        true
    }

    fn columns(&self) -> Vec<ProcessorColumn> {
        let slots = self.slots();
        // By number of the processor; empty without a job.
        let mut columns: Vec<Vec<Option<JobId>>> = Vec::new();
        for (index, slot) in slots.iter().enumerate() {
            for &job in slot {
                for node in self.jobs[&job].gang.nodes() {
                    let number = node.0 as usize;
                    columns.resize(columns.len().max(number + 1), Vec::new());
                    columns[number].resize(slots.len(), None);
                    columns[number][index] = Some(job);
                }
            }
        }
        let busy = (0..).zip(columns).filter(|(_, slots)| !slots.is_empty());
        busy.map(|(number, slots)| ProcessorColumn { processor: ProcessorId(number), slots })
            .collect()
    }
}
