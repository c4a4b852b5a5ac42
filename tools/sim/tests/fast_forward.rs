//! Where a policy tells what runs in the slots to come, the engine goes many slots at once. What
//! comes out is what comes out slot by slot.
#![forbid(unsafe_code)]

use kumi_sched::{
    ArriveError, ClusterTime, JobId, NodeResources, Placement, Policy, ProcessorColumn,
    ProcessorId, QueueRank, Request, Round, Sharing,
};
use kumi_sim::{Job, Monitor, Options, Outcome, SECOND, Workload, engine, policies};
use proptest::prelude::*;

/// A policy that keeps to itself what is to come, or only counts that it is asked.
struct WithoutForecast {
    policy: Box<dyn Policy + Send>,
    tells: bool,
    told: u64,
}

impl Policy for WithoutForecast {
    fn sharing(&self) -> Sharing {
        self.policy.sharing()
    }
    fn add_node(&mut self, node: &NodeResources) {
        self.policy.add_node(node);
    }
    fn remove_node(&mut self, node: ProcessorId) {
        self.policy.remove_node(node);
    }
    fn arrive(&mut self, request: &Request, now: ClusterTime) -> Result<(), ArriveError> {
        self.policy.arrive(request, now)
    }
    fn restore(
        &mut self,
        request: &Request,
        nodes: &[ProcessorId],
        now: ClusterTime,
    ) -> Result<(), ArriveError> {
        self.policy.restore(request, nodes, now)
    }
    fn leave(&mut self, job: JobId, now: ClusterTime) {
        self.policy.leave(job, now);
    }
    fn set_active(&mut self, job: JobId, active: bool) {
        self.policy.set_active(job, active);
    }
    fn next_placement(&mut self, now: ClusterTime) -> Option<Placement> {
        self.policy.next_placement(now)
    }
    fn next_migration(&mut self, now: ClusterTime) -> Option<Placement> {
        self.policy.next_migration(now)
    }
    fn queued(&self) -> Vec<JobId> {
        self.policy.queued()
    }
    fn reorder(&mut self, rank: &mut dyn FnMut(JobId) -> QueueRank) {
        self.policy.reorder(rank);
    }
    fn run_slot(&mut self, run: &mut dyn FnMut(JobId)) {
        self.policy.run_slot(run);
    }
    fn advance(&mut self, slots: u64) {
        self.told += slots;
        self.policy.advance(slots);
    }
    fn next_round(&mut self, most: u64, round: &mut Round) -> bool {
        self.tells && self.policy.next_round(most, round)
    }
    fn columns(&self) -> Vec<ProcessorColumn> {
        self.policy.columns()
    }
}

/// The outcome, and the number of slots that were not run one by one.
fn run(name: &str, tells: bool, workload: &Workload, options: &Options) -> (Outcome, u64) {
    let mut policy = WithoutForecast { policy: policies::by_name(name).unwrap(), tells, told: 0 };
    let outcome = engine::run(name, &mut policy, workload, options, &Monitor::default()).unwrap();
    (outcome, policy.told)
}

fn name() -> impl Strategy<Value = &'static str> {
    prop_oneof![
        4 => Just("dqt"),
        2 => Just("fair-dqt:min"),
        1 => Just("dqt3:apa"),
        2 => Just("dqt+migrate"),
        1 => Just("dqt+shares"),
        1 => Just("matrix"),
        1 => Just("dhc"),
    ]
}

/// Submission, service, size, priority; times in tenths of a slot or so.
fn jobs() -> impl Strategy<Value = Vec<(u64, u64, u32, u16)>> {
    let service = prop_oneof![0..40u64, 0..4000u64, (0..400u64).prop_map(|slots| slots * 10)];
    let priority = prop_oneof![12 => Just(1u16), 1 => Just(2u16)];
    prop::collection::vec((0..3000u64, service, any::<u32>(), priority), 1..30)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn leaps_change_nothing(
        name in name(), procs in 1..20u32, jobs in jobs(),
        switch in prop_oneof![3 => Just(0u64), 1 => 1..10u64], launch in 0..20u64,
        migration in 0..20u64,
        sample in prop::option::of(1..3000u64), horizon in prop::option::of(1..6000u64),
    ) {
        let unit = SECOND / 10;
        let job = |(index, &(submit, service, size, priority)): (usize, &(u64, u64, u32, u16))| Job {
            number: index as u64,
            submit: submit * unit,
            service: service * unit,
            estimate: service * unit,
            size: size % procs + 1,
            memory: 0,
            user: size % 3,
            priority,
        };
        let mut workload = Workload::given(jobs.iter().enumerate().map(job).collect());
        workload.horizon = horizon.map(|at| at * unit);
        let options = Options {
            switch_ns: switch * unit,
            launch_ns: launch * unit,
            migration_ns: migration * unit,
            sample_ns: sample.map(|at| at * unit),
            ..Options::new(procs)
        };
        let options = Options { switch_ns: options.switch_ns.min(9 * unit), ..options };
        let (leaping, _) = run(name, true, &workload, &options);
        let (stepping, told) = run(name, false, &workload, &options);
        prop_assert_eq!(told, 0);
        prop_assert_eq!(leaping, stepping);
    }
}

/// Long services: most slots are not run one by one.
#[test]
fn most_slots_are_leapt_over() {
    for name in ["dqt", "fair-dqt", "dqt4", "matrix", "dhc"] {
        let job = |number: u64| Job {
            number,
            submit: number * 100 * SECOND,
            service: (number * 7919 % 1000 + 1) * SECOND,
            estimate: 1000 * SECOND,
            size: 1 << (number % 4),
            memory: 0,
            user: 0,
            priority: 1,
        };
        let workload = Workload::given((0..50).map(job).collect());
        let (outcome, leapt) = run(name, true, &workload, &Options::new(16));
        assert!(leapt > outcome.slots / 2, "{name}: {leapt} of {}", outcome.slots);
        assert!(leapt < outcome.slots);
    }
}
