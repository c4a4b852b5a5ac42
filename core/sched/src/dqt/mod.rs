//! Distributed Queue Tree (SCore-D paper, chapter 7): nested partitions, each with a queue of its
//! own, and one round robin over all of them.

mod advance;
mod columns;
mod config;
mod front;
mod load;
mod migrate;
mod plan;
mod ring;
mod room;
mod shape;
mod shortened;
mod view;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use crate::demand::{Amounts, Demand, NodeResources};
use crate::inventory::Inventory;
use crate::policy::{held_up_by_first, reorder_queue};
use crate::shares::QueueRank;
use crate::{
    ArriveError, ClusterTime, JobId, Obstacle, Placement, Policy, ProcessorColumn, ProcessorId,
    Request, Round, Sharing,
};
pub use config::{AllocationPolicy, DqtConfig, DqtNameError};
pub use front::DqtState;
use front::Front;
use load::Loads;
use room::Room;
use shape::Shape;
pub use view::{DqtJob, DqtNode, Fragmentation};

/// A Distributed Queue Tree.
///
/// * *Partitions* are the subtrees of a tree over the processors by number; with arity 2 those of the
///   buddy system. A job gets the smallest partition with enough processors of nodes that take jobs. The task
///   allocation policy ([`AllocationPolicy`]) chooses among partitions of that size. In it the job
///   gets the first processors; the others are idle in its turns: [`Dqt::fragmentation`]. A job that takes memory or
///   devices may get a larger partition, where these are free.
/// * *Nodes*: a partition is a part of a node or consists of whole nodes ([`crate::Numbering`]).
/// * *Placement* is immediate, because jobs share partitions in time. Jobs wait only because of a
///   limit of jobs per processor or because memory and devices are taken, first come, first served.
///   The first job without room holds up those
///   behind it; only a job that wants more than the nodes that are up have is passed over.
/// * *Turns*: a tree node gives its jobs their turns, then its children do, all at the same time. A
///   child that finishes early goes round again until the last one has finished (in a Fair-DQT it
///   waits). So without priorities every active job runs at least once in as many slots as the
///   largest TQLB. Where all TQLBs are equal no node is ever idle (§7.1.2).
/// * *Priority*: a job has as many consecutive turns in a round of its queue as it asks for. It has
///   more if its part of the tree goes round more often (§8.2).
/// * *Fair shares*: the users of a queue have its turns in rotation. A round has as many rotations
///   as the user with the most turns needs. So all users have equally many turns in it, and every
///   job at least those it asks for. A round takes the number of users times that largest number of
///   turns.
/// * *Changes* never begin a round anew. A new job has its first turn in its queue's next round, or
///   at once where nothing was to run. A job that ends takes no other job's turn away. The other
///   parts of the tree go on unchanged.
/// * *Cost*: an arrival, an end or a suspension costs about the height of the tree. So does the placement of a job that
///   takes any processors; that of others costs a look at all nodes. A processor that
///   joins or leaves costs the square of the height. A slot costs as much as the jobs that run in
///   it and the paths to them. Memory is proportional to the highest number of a processor.
#[derive(Clone, Debug)]
pub struct Dqt {
    config: DqtConfig,
    front: Front,
    loads: Loads,
    inventory: Inventory,
    /// Placed jobs, each with its member number in the rings.
    jobs: BTreeMap<JobId, u32>,
    /// Placed jobs whose processors cannot be chosen one by one.
    bound: BTreeSet<JobId>,
    /// Processors of each member, by member number.
    held: Vec<Processors>,
    /// Waiting jobs, in order: that of arrival, unless they were put into another.
    waiting: BTreeMap<u64, Request>,
    /// Places of the waiting jobs there.
    came: BTreeMap<JobId, u64>,
    arrivals: u64,
    /// The first job that could ever run finds no place, and nothing has changed since.
    stuck: bool,
}

/// Some processors, ascending.
#[derive(Clone, Debug)]
enum Processors {
    /// This many from the given one on.
    Run(u32, u32),
    List(Vec<ProcessorId>),
}

impl Processors {
    fn count(&self) -> u32 {
        match self {
            Self::Run(_, count) => *count,
            Self::List(list) => list.len() as u32,
        }
    }

    fn iter(&self) -> impl Iterator<Item = ProcessorId> + '_ {
        let (run, list) = match self {
            Self::Run(first, count) => (*first..first + count, &[][..]),
            Self::List(list) => (0..0, &list[..]),
        };
        run.map(ProcessorId).chain(list.iter().copied())
    }
}

impl Dqt {
    /// An empty tree without nodes. An arity out of bounds is replaced by the nearest valid one.
    pub fn new(config: DqtConfig) -> Self {
        let shape = Shape::of(config.arity.clamp(2, DqtConfig::MAX_ARITY), 0, 1);
        Self {
            config,
            front: Front::new(shape, config.fair, config.shares),
            loads: Loads::new(shape),
            inventory: Inventory::default(),
            jobs: BTreeMap::new(),
            bound: BTreeSet::new(),
            held: Vec::new(),
            waiting: BTreeMap::new(),
            came: BTreeMap::new(),
            arrivals: 0,
            stuck: false,
        }
    }

    /// Its configuration.
    pub fn config(&self) -> &DqtConfig {
        &self.config
    }

    fn check(&self, job: JobId, nodes: usize) -> Result<(), ArriveError> {
        let known = self.jobs.contains_key(&job) || self.came.contains_key(&job);
        ArriveError::check(job, nodes, known)
    }

    /// Makes the tree large enough for the processor.
    fn reach(&mut self, processor: ProcessorId) {
        if processor.0 >= self.front.shape.width() {
            let shape = Shape::over(self.front.shape.arity, processor.0.saturating_add(1));
            self.front.grow(shape);
            self.loads.grow(shape);
        }
    }

    /// The first processors of a partition that take jobs.
    fn first_in(&self, partition: u32, wanted: u32) -> Processors {
        let shape = &self.front.shape;
        let leaves = shape.leaves(partition);
        if self.loads.nodes[partition as usize].up == leaves.end - leaves.start {
            return Processors::Run(leaves.start, wanted);
        }
        let up = |leaf: &u32| self.takes_jobs(*leaf);
        Processors::List(leaves.filter(up).take(wanted as usize).map(ProcessorId).collect())
    }

    fn takes_jobs(&self, leaf: u32) -> bool {
        self.loads.nodes[self.front.shape.leaf(leaf) as usize].up > 0
    }

    /// Whether such a job could run if there were no other.
    fn possible(&self, demand: &Demand) -> bool {
        if demand.is_plain() {
            return demand.parts <= self.loads.nodes[0].up;
        }
        self.inventory.possible(demand)
    }

    /// The partition for such a job, and its processors there.
    fn find(&self, demand: &Demand) -> Option<(u32, Processors)> {
        let limit = self.config.max_jobs_per_processor.max(1);
        let choose =
            |room: &Room, height| self.loads.choose(self.config.allocation, height, room, limit);
        if demand.is_plain() {
            let room = Room::Processors(demand.parts);
            let partition = choose(&room, self.loads.height_for(demand.parts)?)?;
            return Some((partition, self.first_in(partition, demand.parts)));
        }
        let (shape, inventory) = (&self.front.shape, &self.inventory);
        let first = room::height_for(shape, inventory, demand)?;
        // Where processors are enough, what else it takes may be taken; then it may be free in a larger partition.
        let last = if demand.amounts == Amounts::NONE { first } else { shape.height };
        (first..=last).find_map(|height| {
            let room = Room::of(shape, inventory, demand, height);
            let partition = choose(&room, height)?;
            let up = |processor: ProcessorId| self.takes_jobs(processor.0);
            let on = inventory.choose(demand, shape.leaves(partition), up, |_| 0)?;
            Some((partition, Processors::List(on)))
        })
    }

    fn put(&mut self, request: &Request, partition: u32, on: Processors) {
        let turns = request.priority.min(self.config.max_turns).max(1);
        let member = self.front.add_task(request.job, request.user, turns, partition);
        let jobs = self.loads.nodes[partition as usize].jobs;
        self.loads.set_jobs(partition, jobs + 1);
        self.jobs.insert(request.job, member);
        if !request.demand.is_plain() {
            self.bound.insert(request.job);
        }
        match self.held.get_mut(member as usize) {
            Some(place) => *place = on,
            None => self.held.push(on),
        }
    }

    /// The smallest partition that has all these leaves.
    fn partition_of(&self, first: ProcessorId, last: ProcessorId) -> u32 {
        let mut at = self.front.shape.leaf(first.0);
        while !self.front.shape.leaves(at).contains(&last.0) {
            at = self.front.shape.parent(at).unwrap_or(0);
        }
        at
    }
}

impl Policy for Dqt {
    fn sharing(&self) -> Sharing {
        Sharing::SpaceAndTime
    }

    fn add_node(&mut self, node: &NodeResources) {
        self.stuck = false;
        self.inventory.add(node);
        for number in node.processors.clone() {
            self.reach(ProcessorId(number));
            self.loads.set_up(self.front.shape.leaf(number), true);
        }
    }

    fn remove_node(&mut self, first: ProcessorId) {
        self.stuck = false;
        for number in self.inventory.remove(first) {
            self.loads.set_up(self.front.shape.leaf(number), false);
        }
    }

    fn arrive(&mut self, request: &Request, _now: ClusterTime) -> Result<(), ArriveError> {
        self.check(request.job, request.demand.parts as usize)?;
        self.waiting.insert(self.arrivals, *request);
        self.came.insert(request.job, self.arrivals);
        self.arrivals += 1;
        Ok(())
    }

    fn restore(
        &mut self,
        request: &Request,
        processors: &[ProcessorId],
        _now: ClusterTime,
    ) -> Result<(), ArriveError> {
        self.check(request.job, processors.len())?;
        let mut on = processors.to_vec();
        on.sort_unstable();
        on.dedup();
        let (first, last) = (on[0], on[on.len() - 1]);
        self.reach(last);
        self.inventory.take(request.job, &request.demand, &on);
        self.put(request, self.partition_of(first, last), Processors::List(on));
        Ok(())
    }

    fn leave(&mut self, job: JobId, _now: ClusterTime) {
        self.stuck = false;
        if let Some(came) = self.came.remove(&job) {
            self.waiting.remove(&came);
        }
        self.set_active(job, false);
        let Some(member) = self.jobs.remove(&job) else { return };
        self.inventory.give_back(job);
        self.bound.remove(&job);
        let node = self.front.rings.members[member as usize].node;
        self.loads.set_jobs(node, self.loads.nodes[node as usize].jobs - 1);
        self.front.rings.remove(member);
        self.held[member as usize] = Processors::Run(0, 0);
    }

    fn set_active(&mut self, job: JobId, active: bool) {
        let Some(&member) = self.jobs.get(&job) else { return };
        if self.front.rings.members[member as usize].active() == active {
            return;
        }
        if active {
            self.front.join(member);
        } else {
            self.front.task_done(member);
        }
    }

    fn next_placement(&mut self, _now: ClusterTime) -> Option<Placement> {
        if self.stuck {
            return None;
        }
        let could_run = |(_, request): &(&u64, &Request)| self.possible(&request.demand);
        let (&came, &request) = self.waiting.iter().find(could_run)?;
        let Request { job, demand, .. } = request;
        let Some((partition, on)) = self.find(&demand) else {
            self.stuck = true;
            return None;
        };
        self.waiting.remove(&came);
        self.came.remove(&job);
        let placement = Placement { job, processors: on.iter().collect() };
        self.inventory.take(job, &demand, &placement.processors);
        self.put(&request, partition, on);
        Some(placement)
    }

    fn next_migration(&mut self, _now: ClusterTime) -> Option<Placement> {
        if self.config.migrate { self.even_out() } else { None }
    }

    fn queued(&self) -> Vec<JobId> {
        self.waiting.values().map(|request| request.job).collect()
    }

    fn reorder(&mut self, rank: &mut dyn FnMut(JobId) -> QueueRank) {
        let (places, requests): (Vec<u64>, VecDeque<Request>) =
            self.waiting.iter().map(|(&place, &request)| (place, request)).unzip();
        let mut requests = requests;
        if reorder_queue(&mut requests, |request| request.job, rank) {
            self.stuck = false;
            self.came = places.iter().zip(&requests).map(|(&at, of)| (of.job, at)).collect();
            self.waiting = places.into_iter().zip(requests).collect();
        }
    }

    fn obstacles(&self) -> Vec<(JobId, Obstacle)> {
        let fit = |demand| self.inventory.fit(demand, self.possible(demand));
        let queued = self.waiting.values();
        held_up_by_first(queued.map(|request| (request.job, fit(&request.demand))))
    }

    fn run_slot(&mut self, run: &mut dyn FnMut(JobId)) {
        self.front.next_turn(|member, rings| run(rings.members[member as usize].id));
    }

    fn advance(&mut self, slots: u64) {
        self.pass(slots);
    }

    fn next_round(&mut self, most: u64, round: &mut Round) -> bool {
        self.front.next_round(most, round)
    }

    /// A copy of the tree runs on until its slots repeat; these are the slots to come. Positions in
    /// queues may take long to repeat, because the queues' lengths may have a large common
    /// multiple. After [`DqtConfig::horizon`] slots the copy therefore stops, and the sequence is
    /// cut after a whole number of rounds of the root. Every tree node then keeps its turns; only
    /// the next job of a queue may jump there.
    ///
    /// The sequence is also cut, after a whole number of cycles, if a change has made the present
    /// round unlike later ones. That round then comes back, at most once in sixteen rounds where
    /// the horizon allows it. The columns always hold a whole round of the root, so a turn of every
    /// job.
    ///
    /// If a round is longer than [`DqtConfig::most_slots`], the columns differ from the slots that
    /// [`Policy::run_slot`] will run. Each job then has an equal part of its turns, at least one,
    /// and a change continues from the tree's position.
    fn columns(&self) -> Vec<ProcessorColumn> {
        self.compile()
    }

    fn arity(&self) -> u32 {
        self.front.shape.arity
    }

    fn migrates(&self) -> bool {
        self.config.migrate
    }

    fn tree(&self, slots: u64) -> Option<Vec<DqtNode>> {
        if slots == 0 {
            return Some(Self::tree(self));
        }
        let mut ahead = self.clone();
        ahead.advance(slots);
        Some(Self::tree(&ahead))
    }
}
