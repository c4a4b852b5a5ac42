//! The matrix under random arrivals, ends and node losses.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Instant;

use kumi_sched::{
    ArriveError, ClusterTime, Column, JobId, MatrixGang, Mode, NodeId, NodeResources, Numbering,
    Policy, ProcessorColumn, ProcessorId, Request, Timetable,
};
use proptest::prelude::*;

const NOW: ClusterTime = ClusterTime(0);

#[derive(Clone, Debug)]
enum Step {
    Arrive(u32),
    Restore(Vec<u32>),
    /// The placed or queued job of this index (modulo their number) leaves.
    Leave(usize),
    NodeDown(u32),
    NodeUp(u32),
    Inactive(usize),
}

fn step(nodes: u32) -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (1..=nodes).prop_map(Step::Arrive),
        3 => (1..=3u32.min(nodes)).prop_map(Step::Arrive),
        1 => prop::collection::vec(0..nodes, 1..4).prop_map(Step::Restore),
        6 => any::<usize>().prop_map(Step::Leave),
        1 => (0..nodes).prop_map(Step::NodeDown),
        2 => (0..nodes).prop_map(Step::NodeUp),
        1 => any::<usize>().prop_map(Step::Inactive),
    ]
}

/// A reference for the policy.
struct Model {
    policy: MatrixGang,
    max_rows: usize,
    up: BTreeSet<ProcessorId>,
    placed: BTreeMap<JobId, Vec<ProcessorId>>,
    inactive: BTreeSet<JobId>,
    queue: VecDeque<(JobId, u32)>,
    next: u64,
    restored: bool,
}

impl Model {
    fn new(nodes: u32, max_rows: u32) -> Self {
        let mut policy = MatrixGang::new(max_rows);
        for node in 0..nodes {
            policy.add_node(&NodeResources::single(ProcessorId(node)));
        }
        Self {
            policy,
            max_rows: max_rows as usize,
            up: (0..nodes).map(ProcessorId).collect(),
            placed: BTreeMap::new(),
            inactive: BTreeSet::new(),
            queue: VecDeque::new(),
            next: 1,
            restored: false,
        }
    }

    fn new_job(&mut self) -> JobId {
        self.next += 1;
        JobId(self.next)
    }

    fn apply(&mut self, step: &Step) {
        match step {
            Step::Arrive(wanted) => {
                let job = self.new_job();
                self.policy.arrive(&Request::new(job, *wanted), NOW).unwrap();
                assert_eq!(
                    self.policy.arrive(&Request::new(job, 1), NOW),
                    Err(ArriveError::Known(job))
                );
                self.queue.push_back((job, *wanted));
            }
            Step::Restore(nodes) => {
                let job = self.new_job();
                let nodes: BTreeSet<ProcessorId> = nodes.iter().copied().map(ProcessorId).collect();
                let nodes: Vec<ProcessorId> = nodes.into_iter().collect();
                self.policy.restore(&Request::new(job, 0), &nodes, NOW).unwrap();
                self.policy.set_active(job, true);
                self.placed.insert(job, nodes);
                self.restored = true;
            }
            Step::Leave(index) => self.leave(*index),
            Step::NodeDown(node) => {
                self.policy.remove_node(ProcessorId(*node));
                self.up.remove(&ProcessorId(*node));
            }
            Step::NodeUp(node) => {
                self.policy.add_node(&NodeResources::single(ProcessorId(*node)));
                self.up.insert(ProcessorId(*node));
            }
            Step::Inactive(index) if !self.placed.is_empty() => {
                let job = *self.placed.keys().nth(index % self.placed.len()).unwrap();
                if !self.inactive.remove(&job) {
                    self.inactive.insert(job);
                }
                self.policy.set_active(job, !self.inactive.contains(&job));
            }
            Step::Inactive(_) => {}
        }
        self.policy.advance(self.next % 3);
        self.place();
    }

    fn leave(&mut self, index: usize) {
        let queued = self.queue.iter().map(|&(job, _)| job);
        let all: Vec<JobId> = self.placed.keys().copied().chain(queued).collect();
        if let Some(&job) = all.get(index % all.len().max(1)) {
            self.policy.leave(job, NOW);
            self.placed.remove(&job);
            self.inactive.remove(&job);
            self.queue.retain(|&(queued, _)| queued != job);
        }
    }

    fn place(&mut self) {
        while let Some(placement) = self.policy.next_placement(NOW) {
            let first = self.queue.iter().position(|&(_, wanted)| wanted as usize <= self.up.len());
            let (job, wanted) = self.queue.remove(first.expect("somebody fits")).unwrap();
            assert_eq!(job, placement.job, "first come, first served");
            assert_eq!(placement.processors.len(), wanted as usize);
            assert!(placement.processors.is_sorted_by(|a, b| a < b));
            assert!(placement.processors.iter().all(|node| self.up.contains(node)));
            self.policy.set_active(job, true);
            self.placed.insert(job, placement.processors);
        }
        assert!(self.policy.queued().into_iter().eq(self.queue.iter().map(|&(job, _)| job)));
    }

    /// The columns predict the slots that pass.
    fn check_turns(&self) {
        let columns = self.policy.columns();
        let mut policy = self.policy.clone();
        for slot in 0..columns.first().map_or(1, |column| column.slots.len()) {
            let mut ran = BTreeSet::new();
            policy.run_slot(&mut |job| assert!(ran.insert(job), "once"));
            let said = columns.iter().filter_map(|column| column.slots[slot]);
            assert_eq!(ran, said.collect());
        }
        assert_eq!(policy.columns(), columns);
    }

    fn check(&self) {
        self.check_turns();
        if !self.restored {
            assert!(self.policy.rows() <= self.max_rows);
        }
        let columns = self.policy.columns();
        let slots_of = check_columns(&columns);
        let active: BTreeMap<_, _> =
            self.placed.iter().filter(|(job, _)| !self.inactive.contains(job)).collect();
        assert!(slots_of.keys().eq(active.keys().copied()), "each active job has a slot");
        for (&job, nodes) in active {
            let slots = &slots_of[&job];
            assert!(slots.keys().eq(nodes.iter()), "job {job} runs on its nodes");
            assert!(slots.values().all(|other| other == &slots[&nodes[0]]), "all in one slot");
            self.check_alternation(&columns, job, nodes, &slots[&nodes[0]]);
        }
        self.check_room();
    }

    /// A job runs in every slot in which all of its nodes would be idle; so one that shares no node
    /// has them all.
    fn check_alternation(
        &self,
        columns: &[ProcessorColumn],
        job: JobId,
        nodes: &[ProcessorId],
        own: &[usize],
    ) {
        let column =
            |node: &ProcessorId| columns.iter().find(|column| column.processor == *node).unwrap();
        for slot in 0..columns[0].slots.len() {
            let idle = nodes.iter().all(|node| column(node).slots[slot].is_none());
            assert!(!idle, "slot {slot} is idle on all nodes of job {job}");
        }
        let alone = |node| {
            self.placed.iter().all(|(other, nodes)| {
                *other == job || self.inactive.contains(other) || !nodes.contains(node)
            })
        };
        if nodes.iter().all(alone) {
            assert_eq!(own.len(), columns[0].slots.len(), "nothing is switched for job {job}");
            assert!(nodes.iter().all(|node| column(node).sole_job() == Some(job)));
        }
    }

    /// Nobody waits who could run: the first that may be placed at all has no row with room.
    fn check_room(&self) {
        let first = self.queue.iter().find(|&&(_, wanted)| wanted as usize <= self.up.len());
        if first.is_some() {
            assert!(self.policy.rows() >= self.max_rows, "there is room for a row");
        }
    }
}

/// By job and node its slots. Columns are sorted, of one length, and not idle throughout.
fn check_columns(
    columns: &[ProcessorColumn],
) -> BTreeMap<JobId, BTreeMap<ProcessorId, Vec<usize>>> {
    assert!(columns.is_sorted_by(|a, b| a.processor < b.processor));
    let mut slots_of: BTreeMap<JobId, BTreeMap<ProcessorId, Vec<usize>>> = BTreeMap::new();
    for column in columns {
        assert_eq!(column.slots.len(), columns[0].slots.len());
        assert!(column.slots.iter().any(Option::is_some));
        for (slot, job) in column.slots.iter().enumerate() {
            if let Some(job) = job {
                slots_of.entry(*job).or_default().entry(column.processor).or_default().push(slot);
            }
        }
    }
    slots_of
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn invariants_hold_and_answers_repeat(
        nodes in 1..70u32,
        max_rows in 1..6u32,
        raw in prop::collection::vec(step(70), 1..80),
    ) {
        let inside = |node: u32| node % nodes;
        let steps: Vec<Step> = raw.into_iter().map(|step| match step {
            Step::Arrive(wanted) => Step::Arrive(inside(wanted - 1) + 1),
            Step::Restore(on) => Step::Restore(on.into_iter().map(inside).collect()),
            Step::NodeDown(node) => Step::NodeDown(inside(node)),
            Step::NodeUp(node) => Step::NodeUp(inside(node)),
            other => other,
        }).collect();
        let mut model = Model::new(nodes, max_rows);
        let mut twin = Model::new(nodes, max_rows);
        for step in &steps {
            model.apply(step);
            twin.apply(step);
            model.check();
            prop_assert_eq!(model.policy.columns(), twin.policy.columns());
            prop_assert_eq!(&model.placed, &twin.placed);
        }
        for node in 0..nodes {
            model.apply(&Step::NodeUp(node));
        }
        while !model.placed.is_empty() || !model.queue.is_empty() {
            prop_assert!(!model.placed.is_empty(), "queued jobs are placed when room appears");
            model.apply(&Step::Leave(0));
            model.check();
        }
        prop_assert_eq!(model.policy.rows(), 0);
    }
}

fn nodes(numbers: impl IntoIterator<Item = u32>) -> Vec<ProcessorId> {
    numbers.into_iter().map(ProcessorId).collect()
}

fn matrix(count: u32, rows: u32) -> MatrixGang {
    let mut policy = MatrixGang::new(rows);
    for node in 0..count {
        policy.add_node(&NodeResources::single(ProcessorId(node)));
    }
    policy
}

/// Arrives, is placed if it fits, and runs.
fn arrive(policy: &mut MatrixGang, job: u64, wanted: u32) -> Option<Vec<ProcessorId>> {
    policy.arrive(&Request::new(JobId(job), wanted), NOW).unwrap();
    let placement = policy.next_placement(NOW)?;
    policy.set_active(placement.job, true);
    Some(placement.processors)
}

fn picture(policy: &MatrixGang) -> Vec<Vec<u64>> {
    let job = |slot: &Option<JobId>| slot.map_or(0, |job| job.0);
    policy.columns().iter().map(|column| column.slots.iter().map(job).collect()).collect()
}

#[test]
fn jobs_fill_the_first_row_and_then_the_least_loaded_nodes() {
    let mut policy = matrix(4, 3);
    assert_eq!(arrive(&mut policy, 1, 2), Some(nodes([0, 1])));
    assert_eq!(arrive(&mut policy, 2, 1), Some(nodes([2])));
    assert_eq!(arrive(&mut policy, 3, 2), Some(nodes([0, 3])), "3 is idle, 0 is first of the rest");
    // Job 2 runs in both slots; node 1 and 3 are idle where their partner is busy.
    assert_eq!(picture(&policy), [[1, 3], [1, 0], [2, 2], [0, 3]]);
    policy.leave(JobId(1), NOW);
    assert_eq!(picture(&policy), [[3], [2], [3]], "rows are unified");
}

#[test]
fn one_that_waits_is_not_overtaken_unless_it_cannot_run_at_all() {
    let mut policy = matrix(4, 1);
    assert_eq!(arrive(&mut policy, 1, 3), Some(nodes([0, 1, 2])));
    assert_eq!(arrive(&mut policy, 2, 2), None);
    assert_eq!(arrive(&mut policy, 3, 1), None, "node 3 is free, and job 2 was first");
    policy.remove_node(ProcessorId(0));
    policy.remove_node(ProcessorId(1));
    policy.remove_node(ProcessorId(2));
    let placement = policy.next_placement(NOW).unwrap();
    assert_eq!(
        (placement.job, placement.processors),
        (JobId(3), nodes([3])),
        "job 2 could not anyway"
    );
    policy.add_node(&NodeResources::single(ProcessorId(2)));
    policy.leave(JobId(1), NOW);
    policy.leave(JobId(3), NOW);
    assert_eq!(policy.next_placement(NOW).unwrap().job, JobId(2));
}

#[test]
fn refusals() {
    let mut policy = matrix(2, 1);
    assert_eq!(
        policy.arrive(&Request::new(JobId(1), 0), NOW),
        Err(ArriveError::NoProcessors(JobId(1)))
    );
    assert_eq!(
        policy.restore(&Request::new(JobId(1), 0), &[], NOW),
        Err(ArriveError::NoProcessors(JobId(1)))
    );
    policy.arrive(&Request::new(JobId(1), 2), NOW).unwrap();
    assert_eq!(
        policy.restore(&Request::new(JobId(1), 0), &nodes([0]), NOW),
        Err(ArriveError::Known(JobId(1)))
    );
    policy.leave(JobId(7), NOW);
    policy.set_active(JobId(7), true);
}

/// The columns of nodes with one processor each.
fn columns(policy: &MatrixGang) -> Vec<Column> {
    single().columns(&policy.columns())
}

/// Nodes with one processor each.
fn single() -> Numbering {
    Numbering::new(2, (0..8).map(|node| (NodeId(node), 1)))
}

fn timetable(policy: &MatrixGang, generation: u64, start: u64) -> Timetable {
    Timetable {
        generation,
        start: ClusterTime(start),
        slice_ns: 10,
        phase_ns: 0,
        mode: Mode::Gang { force_switch: false, fill: true },
        columns: columns(policy),
        idle: Vec::new(),
    }
}

#[test]
fn timetable_gives_turns() {
    let mut policy = matrix(2, 2);
    arrive(&mut policy, 1, 2);
    arrive(&mut policy, 2, 2);
    let timetable = timetable(&policy, 7, 1000);
    assert_eq!(timetable.cycle(), 2);
    let job_at =
        |time| timetable.jobs_at(NodeId(1), timetable.tick_at(ClusterTime(time))).first().copied();
    assert_eq!(job_at(0), Some(JobId(1)), "before the start as at the start");
    assert_eq!(job_at(1009), Some(JobId(1)));
    assert_eq!(job_at(1010), Some(JobId(2)));
    assert_eq!(job_at(1020), Some(JobId(1)));
    assert_eq!(timetable.jobs_at(NodeId(5), 0), []);
    assert_eq!(timetable.tick_start(3), ClusterTime(1030));
}

#[test]
fn a_timetable_goes_on_where_another_was() {
    let mut policy = matrix(2, 3);
    for job in 1..=3 {
        arrive(&mut policy, job, 2);
    }
    let first = timetable(&policy, 7, 1000);
    policy.advance(4);
    let changed = |columns: &[ProcessorColumn], ticks| {
        single().renew_columns(columns, first.columns.clone(), ticks).changed.len()
    };
    let columns = policy.columns();
    assert_eq!([4, 1].map(|ticks| changed(&columns, ticks)), [0, 0]);
    assert_eq!(changed(&columns, 3), 2);
    assert_eq!(changed(&columns[..1], 4), 1);
    let second = Timetable { start: ClusterTime(1043), phase_ns: 3, ..timetable(&policy, 8, 0) };
    let ticks = [1043, 1049, 1050, 1060].map(|time| second.tick_at(ClusterTime(time)));
    assert_eq!(ticks, [0, 0, 1, 2]);
    assert_eq!([0, 1, 2].map(|tick| second.tick_start(tick).0), [1043, 1050, 1060]);
    for time in 1043..1100 {
        let at = |timetable: &Timetable| {
            timetable.jobs_at(NodeId(0), timetable.tick_at(ClusterTime(time))).to_vec()
        };
        assert_eq!(at(&first), at(&second), "at {time}");
    }
}

/// The next job stays next when others end or pause.
#[test]
fn an_end_takes_nobody_s_turn() {
    let next = |policy: &mut MatrixGang| {
        let mut ran = None;
        policy.run_slot(&mut |job| ran = Some(job.0));
        ran
    };
    let mut policy = matrix(1, 4);
    for job in 1..=4 {
        arrive(&mut policy, job, 1);
    }
    assert_eq!(next(&mut policy), Some(1));
    policy.leave(JobId(1), NOW);
    assert_eq!(next(&mut policy), Some(2));
    policy.set_active(JobId(2), false);
    policy.set_active(JobId(3), false);
    assert_eq!(next(&mut policy), Some(4));
    policy.set_active(JobId(2), true);
    policy.set_active(JobId(3), true);
    assert_eq!([next(&mut policy), next(&mut policy)], [Some(2), Some(3)]);
    policy.leave(JobId(4), NOW);
    assert_eq!(next(&mut policy), Some(2));
}

/// Prints how long 64 nodes and 200 jobs take:
/// `cargo test --release -p kumi-sched -- --ignored --nocapture`.
#[test]
#[ignore = "prints a time, asserts nothing about it"]
fn speed() {
    for most in [1, 8, 64] {
        let mut policy = matrix(64, 1000);
        for job in 0..200 {
            arrive(&mut policy, job + 1, 1 + (job as u32 * 7) % most).unwrap();
        }
        let begin = Instant::now();
        let columns = policy.columns();
        let compile = begin.elapsed();
        let begin = Instant::now();
        policy.leave(JobId(1), NOW);
        arrive(&mut policy, 1000, most);
        let change = begin.elapsed();
        let slots = columns[0].slots.len();
        println!(
            "up to {most} nodes a job, {slots} slots: columns {compile:?}, end and begin {change:?}"
        );
    }
}
