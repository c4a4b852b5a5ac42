//! Matrix gang scheduling (Ousterhout, "Scheduling techniques for concurrent systems", 1982):
//! rows are slots, columns are nodes, and a job stands in one row on all of its nodes.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec;
use alloc::vec::Vec;

use crate::bits::Bits;
use crate::demand::{Demand, NodeResources};
use crate::inventory::Inventory;
use crate::policy::{held_up_by_first, reorder_queue};
use crate::shares::QueueRank;
use crate::{
    ArriveError, ClusterTime, JobId, Obstacle, Placement, Policy, ProcessorColumn, ProcessorId,
    Request, Round, Sharing,
};

/// The matrix, served round robin by rows.
///
/// * *Packing*: a job goes into the first row with enough free nodes, on those with the fewest
///   jobs. If no row has room, it gets a new row, up to the limit of rows (which is also the limit
///   of jobs per processor).
/// * *Queueing* is first come, first served. The first job that does not fit holds up those behind
///   it, so that small jobs cannot keep a large one waiting for ever. Only a job that wants more
///   nodes than are up is passed over: no free row would help it.
/// * *Unification*: when a job leaves, jobs move to earlier rows in which their nodes are free.
///   Empty rows are removed, so that the others get their turn more often.
/// * *Alternation*: a job also runs in other rows in which all of its nodes are idle; jobs with the
///   fewest slots first. So a job that shares no node with another has every slot, and its nodes
///   never switch.
///   slot, and its nodes never switch.
#[derive(Clone, Debug)]
pub struct MatrixGang {
    max_rows: usize,
    inventory: Inventory,
    up: Bits,
    /// Jobs by node number.
    load: Vec<u32>,
    jobs: BTreeMap<JobId, Job>,
    rows: Vec<Row>,
    queue: VecDeque<(JobId, Demand)>,
    /// The first job that could ever run finds no place, and nothing has changed since.
    stuck: bool,
    /// The row after the one that ran last. The next is the first with an active job from here on.
    turn: usize,
    /// The layout of the cycle, unless something has changed.
    cycle: Option<Cycle>,
}

/// The laid-out slots of the cycle.
#[derive(Clone, Debug)]
struct Cycle {
    /// The row of each slot, and the jobs that run in it.
    slots: Vec<(usize, Vec<JobId>)>,
    /// The next slot.
    next: usize,
}

#[derive(Clone, Debug)]
struct Job {
    nodes: Bits,
    row: usize,
    active: bool,
}

#[derive(Clone, Debug, Default)]
struct Row {
    used: Bits,
    jobs: Vec<JobId>,
}

impl MatrixGang {
    /// An empty matrix of at most `max_rows` rows (taken as 1 if it is 0) and no node.
    pub fn new(max_rows: u32) -> Self {
        Self {
            max_rows: usize::try_from(max_rows).unwrap_or(usize::MAX).max(1),
            inventory: Inventory::default(),
            up: Bits::default(),
            load: Vec::new(),
            jobs: BTreeMap::new(),
            rows: Vec::new(),
            queue: VecDeque::new(),
            stuck: false,
            turn: 0,
            cycle: None,
        }
    }

    /// Rows in use.
    pub fn rows(&self) -> usize {
        self.rows.len()
    }

    fn known(&self, job: JobId) -> bool {
        self.jobs.contains_key(&job) || self.queue.iter().any(|&(queued, _)| queued == job)
    }

    fn load_of(&self, node: ProcessorId) -> u32 {
        self.load.get(node.0 as usize).copied().unwrap_or(0)
    }

    /// The row and the processors for such a job; the row may be a new one.
    fn find(&self, demand: &Demand) -> Option<(usize, Vec<ProcessorId>)> {
        let enough = |row: &Row| {
            !demand.is_plain() || self.up.count_without(&row.used) >= demand.parts as usize
        };
        let rows = self.rows.iter().enumerate().filter(|(_, row)| enough(row));
        let mut places = rows.map(|(index, row)| (index, self.find_in(demand, Some(row))));
        if let Some((index, Some(processors))) = places.find(|(_, place)| place.is_some()) {
            return Some((index, processors));
        }
        let index = self.rows.len();
        let room = index < self.max_rows;
        room.then(|| self.find_in(demand, None)).flatten().map(|processors| (index, processors))
    }

    /// Processors for such a job that are free in a row, or in a new one.
    fn find_in(&self, demand: &Demand, row: Option<&Row>) -> Option<Vec<ProcessorId>> {
        if demand.is_plain() {
            return self.any_in(demand.parts as usize, row);
        }
        let free = |processor| {
            self.up.contains(processor) && !row.is_some_and(|row| row.used.contains(processor))
        };
        self.inventory.choose(demand, 0..u32::MAX, free, |processor| self.load_of(processor))
    }

    /// So many processors, wherever they are.
    fn any_in(&self, wanted: usize, row: Option<&Row>) -> Option<Vec<ProcessorId>> {
        let mut free = self.up.clone();
        if let Some(row) = row {
            free.remove_all(&row.used);
        }
        let mut processors: Vec<ProcessorId> = free.iter().collect();
        if processors.len() < wanted {
            return None;
        }
        processors.sort_unstable_by_key(|&processor| (self.load_of(processor), processor));
        processors.truncate(wanted);
        processors.sort_unstable();
        Some(processors)
    }

    /// Whether such a job could run if there were no other.
    fn possible(&self, demand: &Demand) -> bool {
        if demand.is_plain() {
            return demand.parts as usize <= self.up.count();
        }
        self.inventory.possible(demand)
    }

    fn put(&mut self, job: JobId, row: usize, nodes: &[ProcessorId]) {
        if row >= self.rows.len() {
            self.rows.resize_with(row + 1, Row::default);
        }
        let bits = Bits::from_nodes(nodes);
        self.rows[row].used.add_all(&bits);
        self.rows[row].jobs.push(job);
        for node in bits.iter() {
            let index = node.0 as usize;
            if self.load.len() <= index {
                self.load.resize(index + 1, 0);
            }
            self.load[index] += 1;
        }
        self.jobs.insert(job, Job { nodes: bits, row, active: false });
        self.cycle = None;
    }

    /// Moves jobs to earlier rows while any can move, then drops the empty rows. Every move lowers
    /// a job's row, so it ends.
    fn unify(&mut self) {
        let next = self.next_job();
        let mut moved = true;
        while moved {
            moved = false;
            for from in 1..self.rows.len() {
                for job in self.rows[from].jobs.clone() {
                    moved |= self.move_up(job, from);
                }
            }
        }
        self.rows.retain(|row| !row.jobs.is_empty());
        for (index, row) in self.rows.iter().enumerate() {
            for job in &row.jobs {
                if let Some(job) = self.jobs.get_mut(job) {
                    job.row = index;
                }
            }
        }
        self.turn = next.map_or(0, |job| self.jobs[&job].row);
    }

    /// A job whose turn is next.
    fn next_job(&self) -> Option<JobId> {
        let (before, after) = self.rows.split_at(self.turn.min(self.rows.len()));
        let mut jobs = after.iter().chain(before).flat_map(|row| &row.jobs);
        jobs.find(|job| self.jobs[job].active).copied()
    }

    fn move_up(&mut self, job: JobId, from: usize) -> bool {
        let Some(entry) = self.jobs.get_mut(&job) else { return false };
        let free = |row: &Row| row.used.disjoint(&entry.nodes);
        let Some(to) = self.rows[..from].iter().position(free) else { return false };
        self.rows[from].jobs.retain(|&other| other != job);
        self.rows[from].used.remove_all(&entry.nodes);
        self.rows[to].jobs.push(job);
        self.rows[to].used.add_all(&entry.nodes);
        entry.row = to;
        true
    }

    /// The active jobs of each row that has any, and those that run beside them; the next row is
    /// first.
    fn slots(&self) -> Vec<Row> {
        let mut slots = self.active_rows();
        self.alternate(&mut slots);
        let next = self.next_of(slots.len());
        slots.rotate_left(next);
        slots
    }

    /// Index of the next row among `count` rows with active jobs.
    fn next_of(&self, rows: usize) -> usize {
        let passed = self.rows.iter().take(self.turn).filter(|row| self.has_active(row)).count();
        passed % rows.max(1)
    }

    /// The layout of the cycle, made if there is none.
    fn cycle(&mut self) -> &mut Cycle {
        let cycle = match self.cycle.take() {
            Some(cycle) => cycle,
            None => self.laid_out(),
        };
        self.cycle.insert(cycle)
    }

    fn laid_out(&self) -> Cycle {
        let mut slots = self.active_rows();
        self.alternate(&mut slots);
        let active = |&row: &usize| self.has_active(&self.rows[row]);
        let rows = (0..self.rows.len()).filter(active);
        let slots: Vec<(usize, Vec<JobId>)> =
            rows.zip(slots.into_iter().map(|slot| slot.jobs)).collect();
        let next = self.next_of(slots.len());
        Cycle { slots, next }
    }

    fn has_active(&self, row: &Row) -> bool {
        row.jobs.iter().any(|job| self.jobs[job].active)
    }

    fn active_rows(&self) -> Vec<Row> {
        let mut slots = vec![Row::default(); self.rows.len()];
        for (&job, entry) in self.jobs.iter().filter(|(_, entry)| entry.active) {
            slots[entry.row].used.add_all(&entry.nodes);
            slots[entry.row].jobs.push(job);
        }
        slots.retain(|slot| !slot.jobs.is_empty());
        slots
    }

    /// Lets jobs also run in slots in which all of their nodes are idle.
    fn alternate(&self, slots: &mut [Row]) {
        let active = self.jobs.iter().filter(|(_, entry)| entry.active);
        let mut turns: Vec<(u32, JobId, &Bits)> =
            active.map(|(&job, entry)| (1, job, &entry.nodes)).collect();
        for slot in slots {
            let mut fitting: Vec<usize> =
                (0..turns.len()).filter(|&index| turns[index].2.disjoint(&slot.used)).collect();
            fitting.sort_unstable_by_key(|&index| (turns[index].0, turns[index].1));
            for index in fitting {
                let (count, job, nodes) = &mut turns[index];
                if nodes.disjoint(&slot.used) {
                    slot.used.add_all(nodes);
                    slot.jobs.push(*job);
                    *count += 1;
                }
            }
        }
    }
}

impl Policy for MatrixGang {
    fn sharing(&self) -> Sharing {
        Sharing::SpaceAndTime
    }

    fn add_node(&mut self, node: &NodeResources) {
        self.stuck = false;
        self.inventory.add(node);
        node.processors.clone().for_each(|number| self.up.insert(ProcessorId(number)));
    }

    fn remove_node(&mut self, first: ProcessorId) {
        self.stuck = false;
        for number in self.inventory.remove(first) {
            self.up.remove(ProcessorId(number));
        }
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
        ArriveError::check(job, processors.len(), self.known(job))?;
        let bits = Bits::from_nodes(processors);
        let free = |row: &Row| row.used.disjoint(&bits);
        let row = self.rows.iter().position(free).unwrap_or(self.rows.len());
        let ascending: Vec<ProcessorId> = bits.iter().collect();
        self.inventory.take(job, &request.demand, &ascending);
        self.put(job, row, processors);
        Ok(())
    }

    fn leave(&mut self, job: JobId, _now: ClusterTime) {
        self.stuck = false;
        self.queue.retain(|&(queued, _)| queued != job);
        let Some(entry) = self.jobs.remove(&job) else { return };
        self.inventory.give_back(job);
        self.cycle = None;
        let row = &mut self.rows[entry.row];
        row.jobs.retain(|&other| other != job);
        row.used.remove_all(&entry.nodes);
        for node in entry.nodes.iter() {
            self.load[node.0 as usize] -= 1;
        }
        self.unify();
    }

    fn set_active(&mut self, job: JobId, active: bool) {
        if let Some(entry) = self.jobs.get_mut(&job) {
            entry.active = active;
            self.cycle = None;
        }
    }

    fn next_placement(&mut self, _now: ClusterTime) -> Option<Placement> {
        if self.stuck {
            return None;
        }
        let index = self.queue.iter().position(|(_, demand)| self.possible(demand))?;
        let (job, demand) = self.queue[index];
        let Some((row, processors)) = self.find(&demand) else {
            self.stuck = true;
            return None;
        };
        self.queue.remove(index);
        self.inventory.take(job, &demand, &processors);
        self.put(job, row, &processors);
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
        let fit = |demand| self.inventory.fit(demand, self.possible(demand));
        held_up_by_first(self.queue.iter().map(|(job, demand)| (*job, fit(demand))))
    }

    fn run_slot(&mut self, run: &mut dyn FnMut(JobId)) {
        let Cycle { slots, next } = self.cycle();
        if let Some((_, jobs)) = slots.get(*next) {
            jobs.iter().for_each(|&job| run(job));
        }
        self.advance(1);
    }

    fn advance(&mut self, slots: u64) {
        let cycle = self.cycle();
        let count = cycle.slots.len();
        if slots == 0 || count == 0 {
            return;
        }
        let last = (cycle.next + ((slots - 1) % count as u64) as usize) % count;
        let row = cycle.slots[last].0;
        cycle.next = (last + 1) % count;
        self.turn = row + 1;
    }

    fn next_round(&mut self, most: u64, round: &mut Round) -> bool {
        let Cycle { slots, next } = self.cycle();
        if slots.is_empty() || slots.len() as u64 > most {
            return false;
        }
        let (before, after) = slots.split_at(*next);
        round.of_slots(after.iter().chain(before).map(|(_, jobs)| &jobs[..]));
        true
    }

    fn columns(&self) -> Vec<ProcessorColumn> {
        let slots = self.slots();
        let mut busy = Bits::default();
        for slot in &slots {
            busy.add_all(&slot.used);
        }
        let mut columns: Vec<ProcessorColumn> = busy
            .iter()
            .map(|processor| ProcessorColumn { processor, slots: vec![None; slots.len()] })
            .collect();
        for (index, slot) in slots.iter().enumerate() {
            for &job in &slot.jobs {
                for node in self.jobs[&job].nodes.iter() {
                    if let Ok(at) = columns.binary_search_by_key(&node, |column| column.processor) {
                        columns[at].slots[index] = Some(job);
                    }
                }
            }
        }
        columns
    }
}
