//! Rounds that policies predict, compared with the slots that run.

use std::collections::BTreeSet;

use kumi_sched::registry::{Limits, by_name};
use kumi_sched::{ClusterTime, JobId, NodeResources, Policy, ProcessorId, Request, Round, UserId};
use proptest::prelude::*;

const NOW: ClusterTime = ClusterTime(0);

#[derive(Clone, Debug)]
enum Step {
    Arrive(u32, u16, u32),
    Leave(usize),
    Toggle(usize),
    Slots(u64),
    Advance(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let sizes = prop_oneof![Just(1u32), 1..6u32, 1..20u32];
    let slots = prop_oneof![1..4u64, 1..40u64, 1..300u64];
    prop_oneof![
        6 => (sizes, prop_oneof![5 => Just(1u16), 1 => 1..4u16], 0..3u32)
            .prop_map(|(size, turns, user)| Step::Arrive(size, turns, user)),
        3 => any::<usize>().prop_map(Step::Leave),
        2 => any::<usize>().prop_map(Step::Toggle),
        4 => (1..6u64).prop_map(Step::Slots),
        3 => slots.prop_map(Step::Advance),
    ]
}

fn name() -> impl Strategy<Value = &'static str> {
    prop_oneof![
        4 => Just("dqt"),
        2 => Just("fair-dqt"),
        2 => Just("dqt3:apa"),
        1 => Just("fair-dqt4:max"),
        1 => Just("dqt+shares"),
        1 => Just("dqt+migrate"),
        1 => Just("matrix"),
        1 => Just("dhc"),
    ]
}

fn slot(policy: &mut dyn Policy) -> BTreeSet<JobId> {
    let mut ran = BTreeSet::new();
    policy.run_slot(&mut |job| assert!(ran.insert(job), "twice in a slot"));
    ran
}

/// The jobs of these slots, by the round.
fn told(round: &Round, from: u64, count: u64) -> Vec<BTreeSet<JobId>> {
    let mut slots = vec![BTreeSet::new(); count as usize];
    let length = round.length();
    for line in round.lines() {
        let [first, end] = [from, from + count].map(|slots| line.turns(slots, length));
        for turn in first..end {
            let job = line.jobs[(turn % line.jobs.len() as u64) as usize];
            let at = line.slot_of(turn, length) - from;
            assert!(slots[at as usize].insert(job), "in two lines");
        }
        assert!(line.slot_of(end, length) >= from + count);
    }
    slots
}

/// Three policies that are told the same: one runs slot by slot, one is asked for rounds, and one
/// goes many slots at once.
struct Three {
    policies: [Box<dyn Policy + Send>; 3],
    jobs: Vec<(JobId, bool)>,
    next: u64,
    /// Whether any round was told.
    asked: bool,
}

impl Three {
    fn new(name: &str, nodes: u32) -> Self {
        let policies = [(); 3].map(|()| by_name(name, Limits::default()).unwrap());
        let mut three = Self { policies, jobs: Vec::new(), next: 0, asked: false };
        three.each(|policy| {
            (0..nodes).for_each(|node| policy.add_node(&NodeResources::single(ProcessorId(node))));
        });
        three
    }

    fn each(&mut self, what: impl Fn(&mut dyn Policy)) {
        self.policies.iter_mut().for_each(|policy| what(policy.as_mut()));
    }

    fn apply(&mut self, step: &Step, nodes: u32) {
        match *step {
            Step::Arrive(size, priority, user) => {
                let size = (size - 1) % nodes + 1;
                let job = JobId(self.next);
                self.next += 1;
                let request = Request { priority, user: UserId(user), ..Request::new(job, size) };
                self.each(|policy| policy.arrive(&request, NOW).unwrap());
                self.jobs.push((job, true));
                self.each(|policy| {
                    let placement = policy.next_placement(NOW).unwrap();
                    policy.set_active(placement.job, true);
                });
            }
            Step::Leave(index) if !self.jobs.is_empty() => {
                let (job, _) = self.jobs.swap_remove(index % self.jobs.len());
                self.each(|policy| policy.leave(job, NOW));
            }
            Step::Toggle(index) if !self.jobs.is_empty() => {
                let index = index % self.jobs.len();
                let (job, active) = self.jobs[index];
                self.each(|policy| policy.set_active(job, !active));
                self.jobs[index].1 = !active;
            }
            Step::Slots(count) => self.slots(count),
            Step::Advance(count) => {
                let [one, two, three] = &mut self.policies;
                (0..count).for_each(|_| one.run_slot(&mut |_| {}));
                two.advance(count);
                three.advance(count / 2);
                three.advance(count - count / 2);
            }
            _ => {}
        }
    }

    fn slots(&mut self, count: u64) {
        for _ in 0..count {
            self.ask();
            let ran = self.policies.each_mut().map(|policy| slot(policy.as_mut()));
            assert_eq!(ran[0], ran[1]);
            assert_eq!(ran[0], ran[2]);
        }
    }

    /// Asks for the round, and sees whether that and what comes a long time after is what runs.
    fn ask(&mut self) {
        let mut round = Round::default();
        if !self.policies[1].next_round(u64::MAX, &mut round) {
            return;
        }
        self.asked = true;
        let length = round.length();
        assert!(!self.policies[1].next_round(length - 1, &mut Round::default()));
        let (near, far, few) = ((2 * length + 1).min(200), 1_000_000_007, 20);
        let ran: Vec<_> = (0..near).map(|_| slot(self.policies[0].as_mut())).collect();
        assert_eq!(ran, told(&round, 0, near));
        self.policies[1].advance(near + far);
        self.policies[2].advance(near + far);
        self.policies[0].advance(far);
        for ran in told(&round, near + far, few) {
            self.policies.iter_mut().for_each(|policy| assert_eq!(slot(policy.as_mut()), ran));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    /// A round says what runs slot by slot, and to go on by many slots is to run each, whatever
    /// came, went and slept before.
    #[test]
    fn rounds_say_what_runs(
        name in name(), nodes in 1..20u32, steps in prop::collection::vec(step(), 1..50),
    ) {
        let mut three = Three::new(name, nodes);
        for step in &steps {
            three.apply(step, nodes);
        }
        three.slots(60);
        let active = three.jobs.iter().any(|job| job.1);
        let plain = |step: &Step| !matches!(step, Step::Arrive(_, 2.., _));
        if active && name != "dqt+shares" && steps.iter().all(plain) {
            prop_assert!(three.asked);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// Many slots that pass at once leave everybody where the same slots, run one by one, would: jobs with several turns
    /// in the middle of these, too.
    #[test]
    fn what_passes_at_once_passes_exactly(
        name in prop_oneof![Just("dqt"), Just("fair-dqt"), Just("dqt3:max"), Just("dqt+shares")],
        jobs in prop::collection::vec((1..9u32, 1..8u16, 0..3u32), 1..9),
        passes in prop::collection::vec(1..400u64, 1..4),
    ) {
        let mut both = [0, 1].map(|_| by_name(name, Limits::default()).expect("a policy"));
        for policy in &mut both {
            (0..8).for_each(|node| policy.add_node(&NodeResources::single(ProcessorId(node))));
            for (job, &(nodes, priority, user)) in (0..).zip(&jobs) {
                let user = UserId(user);
                let request = Request { priority, user, ..Request::new(JobId(job), nodes) };
                policy.arrive(&request, NOW).expect("a job");
                policy.next_placement(NOW).expect("room");
                policy.set_active(JobId(job), true);
            }
        }
        let [fast, slow] = &mut both;
        for slots in passes {
            fast.advance(slots);
            (0..slots).for_each(|_| slow.run_slot(&mut |_| {}));
            prop_assert_eq!(fast.tree(0), slow.tree(0));
        }
        for _ in 0..60 {
            prop_assert_eq!(slot(&mut **fast), slot(&mut **slow));
        }
    }
}
