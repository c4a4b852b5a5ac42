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
mod shape;
mod shortened;
mod view;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::policy::held_up_by_first;
use crate::{
    ArriveError, ClusterTime, JobId, Obstacle, Placement, Policy, ProcessorColumn, ProcessorId,
    Request, Round, Sharing,
};
pub use config::{AllocationPolicy, DqtConfig, DqtNameError};
pub use front::DqtState;
use front::Front;
use load::Loads;
use shape::Shape;
pub use view::{DqtJob, DqtNode, Fragmentation};

/// A Distributed Queue Tree.
///
/// * *Partitions* are the subtrees of a tree over the nodes by number; with arity 2 those of the
///   buddy system. A job gets the smallest partition with enough nodes that take jobs. The task
///   allocation policy ([`AllocationPolicy`]) chooses among partitions of that size. In it the job
///   gets the first nodes; the others are idle in its turns: [`Dqt::fragmentation`].
/// * *Placement* is immediate, because jobs share partitions in time. Jobs wait only because of a
///   limit of jobs per node, first come, first served. The first job without room holds up those
///   behind it; only a job that wants more nodes than are up is passed over.
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
/// * *Cost*: an arrival, an end or a suspension costs about the height of the tree. A node that
///   joins or leaves costs the square of the height. A slot costs as much as the jobs that run in
///   it and the paths to them. Memory is proportional to the highest node number.
#[derive(Clone, Debug)]
pub struct Dqt {
    config: DqtConfig,
    front: Front,
    loads: Loads,
    /// Placed jobs, each with its member number in the rings.
    jobs: BTreeMap<JobId, u32>,
    /// Nodes of each member, by member number.
    held: Vec<Nodes>,
    /// Waiting jobs and the nodes they want, in order of arrival.
    waiting: BTreeMap<u64, Request>,
    /// Times at which the waiting jobs came.
    came: BTreeMap<JobId, u64>,
    arrivals: u64,
}

/// Some nodes, ascending.
#[derive(Clone, Debug)]
enum Nodes {
    /// This many nodes from the given one on.
    Run(u32, u32),
    List(Vec<ProcessorId>),
}

impl Nodes {
    fn count(&self) -> u32 {
        match self {
            Self::Run(_, count) => *count,
            Self::List(nodes) => nodes.len() as u32,
        }
    }

    fn iter(&self) -> impl Iterator<Item = ProcessorId> + '_ {
        let (run, list) = match self {
            Self::Run(first, count) => (*first..first + count, &[][..]),
            Self::List(nodes) => (0..0, &nodes[..]),
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
            jobs: BTreeMap::new(),
            held: Vec::new(),
            waiting: BTreeMap::new(),
            came: BTreeMap::new(),
            arrivals: 0,
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

    /// Makes the tree large enough for the node.
    fn reach(&mut self, node: ProcessorId) {
        if node.0 >= self.front.shape.width() {
            let shape = Shape::over(self.front.shape.arity, node.0.saturating_add(1));
            self.front.grow(shape);
            self.loads.grow(shape);
        }
    }

    /// The first nodes of a partition that take jobs.
    fn nodes_in(&self, partition: u32, wanted: u32) -> Nodes {
        let shape = &self.front.shape;
        let leaves = shape.leaves(partition);
        if self.loads.nodes[partition as usize].up == leaves.end - leaves.start {
            return Nodes::Run(leaves.start, wanted);
        }
        let up = |leaf: &u32| self.loads.nodes[shape.leaf(*leaf) as usize].up > 0;
        Nodes::List(leaves.filter(up).take(wanted as usize).map(ProcessorId).collect())
    }

    fn put(&mut self, request: &Request, partition: u32, nodes: Nodes) {
        let turns = request.priority.min(self.config.max_turns).max(1);
        let member = self.front.add_task(request.job, request.user, turns, partition);
        let jobs = self.loads.nodes[partition as usize].jobs;
        self.loads.set_jobs(partition, jobs + 1);
        self.jobs.insert(request.job, member);
        match self.held.get_mut(member as usize) {
            Some(place) => *place = nodes,
            None => self.held.push(nodes),
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

    fn add_node(&mut self, node: ProcessorId) {
        self.reach(node);
        self.loads.set_up(self.front.shape.leaf(node.0), true);
    }

    fn remove_node(&mut self, node: ProcessorId) {
        if node.0 < self.front.shape.width() {
            self.loads.set_up(self.front.shape.leaf(node.0), false);
        }
    }

    fn arrive(&mut self, request: &Request, _now: ClusterTime) -> Result<(), ArriveError> {
        self.check(request.job, request.nodes as usize)?;
        self.waiting.insert(self.arrivals, *request);
        self.came.insert(request.job, self.arrivals);
        self.arrivals += 1;
        Ok(())
    }

    fn restore(
        &mut self,
        request: &Request,
        nodes: &[ProcessorId],
        _now: ClusterTime,
    ) -> Result<(), ArriveError> {
        self.check(request.job, nodes.len())?;
        let mut nodes = nodes.to_vec();
        nodes.sort_unstable();
        nodes.dedup();
        let (first, last) = (nodes[0], nodes[nodes.len() - 1]);
        self.reach(last);
        self.put(request, self.partition_of(first, last), Nodes::List(nodes));
        Ok(())
    }

    fn leave(&mut self, job: JobId, _now: ClusterTime) {
        if let Some(came) = self.came.remove(&job) {
            self.waiting.remove(&came);
        }
        self.set_active(job, false);
        let Some(member) = self.jobs.remove(&job) else { return };
        let node = self.front.rings.members[member as usize].node;
        self.loads.set_jobs(node, self.loads.nodes[node as usize].jobs - 1);
        self.front.rings.remove(member);
        self.held[member as usize] = Nodes::Run(0, 0);
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
        let up = self.loads.nodes[0].up;
        let (&came, &request) = self.waiting.iter().find(|(_, request)| request.nodes <= up)?;
        let Request { job, nodes: wanted, .. } = request;
        let height = self.loads.height_for(wanted)?;
        let limit = self.config.max_jobs_per_node.max(1);
        let partition = self.loads.choose(self.config.allocation, height, wanted, limit)?;
        self.waiting.remove(&came);
        self.came.remove(&job);
        let nodes = self.nodes_in(partition, wanted);
        let placement = Placement { job, nodes: nodes.iter().collect() };
        self.put(&request, partition, nodes);
        Some(placement)
    }

    fn next_migration(&mut self, _now: ClusterTime) -> Option<Placement> {
        if self.config.migrate { self.even_out() } else { None }
    }

    fn queued(&self) -> Vec<JobId> {
        self.waiting.values().map(|request| request.job).collect()
    }

    fn obstacles(&self) -> Vec<(JobId, Obstacle)> {
        let up = self.loads.nodes[0].up;
        held_up_by_first(self.waiting.values().map(|request| (request.job, request.nodes <= up)))
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
