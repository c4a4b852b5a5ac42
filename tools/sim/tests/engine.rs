//! The engine on lists that can be checked by hand, and with policies that break their contract.
#![forbid(unsafe_code)]

use kumi_sched::{
    ArriveError, ClusterTime, JobId, NodeResources, Placement, Policy, ProcessorColumn,
    ProcessorId, QueueRank, Request, Sharing,
};
use kumi_sim::generate::{Gradient, Poisson, Service, Sizes, WorkloadMix};
use kumi_sim::sweep::{self, Case, JobSource};
use kumi_sim::{
    Instant, Job, Monitor, Options, Outcome, Report, SECOND, SimError, Workload, engine, policies,
};
use std::sync::Arc;

fn job(number: u64, submit: u64, service: u64, size: u32) -> Job {
    let service = service * SECOND;
    let submit = submit * SECOND;
    Job { number, submit, service, estimate: service, size, memory: 0, user: 0, priority: 1 }
}

fn run(policy: &str, workload: &Workload, options: &Options) -> Result<Outcome, SimError> {
    let mut made = policies::by_name(policy)?;
    engine::run(policy, made.as_mut(), workload, options, &Monitor::default())
}

fn seconds(outcome: &Outcome, count: usize) -> Vec<(u64, u64)> {
    let second = |at: Option<u64>| at.map_or(u64::MAX, |at| at / SECOND);
    (0..count).map(|index| (second(outcome.start(index)), second(outcome.end(index)))).collect()
}

#[test]
fn space_is_shared_first_come_first_served() {
    // The second waits for the first, the third behind it though it would fit.
    let list = Workload::given(vec![job(1, 0, 10, 3), job(2, 1, 10, 2), job(3, 2, 5, 1)]);
    let outcome = run("fcfs", &list, &Options::new(4)).unwrap();
    assert_eq!(seconds(&outcome, 3), [(0, 10), (10, 20), (10, 15)]);
    assert_eq!((outcome.time_ns, outcome.occupied), (20 * SECOND, 55 * u128::from(SECOND)));
    let outcome = run("easy", &list, &Options::new(4)).unwrap();
    assert_eq!(seconds(&outcome, 3), [(0, 10), (10, 20), (2, 7)]);
    let report = Report::new("easy", None, &list, &Options::new(4), &outcome);
    assert!((report.mean_wait_s - 3.0).abs() < 1e-12);
    assert!((report.max_wait_s - 9.0).abs() < 1e-12);
    assert!((report.utilisation - 55.0 / 80.0).abs() < 1e-12);
    assert!((report.mean_retr - (1.0 + 1.9 + 1.0) / 3.0).abs() < 1e-12);
    // The third's service counts as ten seconds.
    assert!((report.mean_bounded_slowdown - (1.0 + 1.9 + 1.0) / 3.0).abs() < 1e-12);
    assert_eq!(report.max_tqlb, None);
}

#[test]
fn time_is_shared_slot_by_slot() {
    // Two jobs on all processors alternate; the third comes within a slot and begins at its end.
    let mut list = vec![job(1, 0, 3, 4), job(2, 0, 2, 4), job(3, 0, 1, 1)];
    list[2].submit = 5 * SECOND + SECOND / 2;
    list[0].service += SECOND / 4;
    let list = Workload::given(list);
    let outcome = run("dqt", &list, &Options::new(4)).unwrap();
    let quarter = SECOND / 4;
    assert_eq!(outcome.start(0), Some(0));
    assert_eq!(outcome.end(1), Some(4 * SECOND));
    assert_eq!(outcome.end(0), Some(5 * SECOND + quarter));
    assert_eq!((outcome.start(2), outcome.end(2)), (Some(6 * SECOND), Some(7 * SECOND)));
    assert_eq!(outcome.max_tqlb, Some(2));
    assert_eq!(outcome.occupied, u128::from(21 * SECOND + 4 * quarter));
    assert_eq!(outcome.occupied, outcome.served);
}

#[test]
fn costs_are_paid_out_of_slots_and_are_no_service() {
    let list = Workload::given(vec![job(1, 0, 2, 2), job(2, 0, 2, 2)]);
    let tenth = SECOND / 10;
    let costs = Options { switch_ns: tenth, launch_ns: 2 * tenth, ..Options::new(2) };
    let outcome = run("dqt", &list, &costs).unwrap();
    // Each needs 2.2 s in turns of 0.9 s: three turns, of which the last has 0.4 s. The second is
    // alone then, and would have its last turn without a switch if it had not just got it back.
    assert_eq!(outcome.end(0), Some(4 * SECOND + 5 * tenth));
    assert_eq!(outcome.end(1), Some(5 * SECOND + 5 * tenth));
    assert_eq!(outcome.switches, 6);
    assert_eq!(outcome.occupied - outcome.served, u128::from(2 * (6 * tenth + 4 * tenth)));
    let outcome = run("fcfs", &list, &costs).unwrap();
    assert_eq!(outcome.end(1), Some(4 * SECOND + 4 * tenth));
    assert_eq!(outcome.occupied - outcome.served, u128::from(2 * 4 * tenth));
}

#[test]
fn a_horizon_cuts() {
    let list = || vec![job(1, 0, 100, 2), job(2, 5, 100, 2), job(3, 50, 1, 1)];
    for policy in ["fcfs", "dqt"] {
        let list = Workload { horizon: Some(20 * SECOND), ..Workload::given(list()) };
        let outcome = run(policy, &list, &Options::new(2)).unwrap();
        let report = Report::new(policy, None, &list, &Options::new(2), &outcome);
        assert_eq!((report.jobs, report.jobs_ended), (2, 0), "{policy}");
        assert!((report.utilisation - 1.0).abs() < 1e-12, "{policy}");
        assert!((report.actual_load - 10.0).abs() < 1e-12, "{policy}");
        assert_eq!(outcome.occupied, outcome.served, "{policy}");
    }
}

#[test]
fn samples_cover_the_time_line() {
    let list = Workload::given(vec![job(1, 3, 4, 2), job(2, 20, 4, 4)]);
    for policy in ["fcfs", "dqt"] {
        let options = Options { sample_ns: Some(5 * SECOND), ..Options::new(4) };
        let outcome = run(policy, &list, &options).unwrap();
        let found: Vec<f64> = outcome.samples.iter().map(|sample| sample.utilisation).collect();
        let expected = [0.4, 0.0, 0.0, 0.6];
        assert_eq!(found.len(), expected.len(), "{policy}: {found:?}");
        let same = found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-12);
        assert!(same, "{policy}: {found:?}");
    }
}

/// A last slice that is cut, samples shorter than a slice: nobody gets more than there is.
#[test]
fn slices_need_not_divide_the_time() {
    let mut list = Workload::given(vec![job(1, 0, 5000, 4), job(2, 0, 5000, 4)]);
    list.horizon = Some(1000 * SECOND);
    let slice_ns = 600 * SECOND;
    let options = Options { slice_ns, sample_ns: Some(SECOND), ..Options::new(4) };
    for policy in ["dqt", "matrix"] {
        let outcome = run(policy, &list, &options).unwrap();
        assert_eq!(outcome.occupied, 4000 * u128::from(SECOND), "{policy}");
        let report = Report::new(policy, None, &list, &options, &outcome);
        assert!((report.utilisation - 1.0).abs() < 1e-12, "{policy}: {}", report.utilisation);
        assert!(report.overhead.abs() < 1e-12, "{policy}: {}", report.overhead);
        let samples: Vec<_> = outcome.samples.iter().map(|s| (s.at, s.utilisation)).collect();
        assert_eq!(samples, [(slice_ns, 1.0)], "{policy}");
    }
}

/// A job without service waits and ends, and has no ratio that would drown the others'.
#[test]
fn jobs_without_service_have_no_ratio() {
    let list = Workload::given(vec![job(1, 0, 10, 4), job(2, 0, 0, 4), job(3, 100, 10, 4)]);
    let outcome = run("fcfs", &list, &Options::new(4)).unwrap();
    let report = Report::new("fcfs", None, &list, &Options::new(4), &outcome);
    assert_eq!(report.jobs_ended, 3);
    assert!((report.mean_retr - 1.0).abs() < 1e-12 && (report.max_retr - 1.0).abs() < 1e-12);
    assert!((report.sizes[0].mean_retr - 1.0).abs() < 1e-12);
    assert!((report.max_wait_s - 10.0).abs() < 1e-12);
}

#[test]
fn impossible_lists_are_refused() {
    let one = |job| Workload::given(vec![job]);
    let error = |list: &Workload| run("dqt", list, &Options::new(4)).unwrap_err();
    assert!(matches!(error(&Workload::given(vec![])), SimError::Empty));
    assert!(matches!(
        error(&one(job(3, 0, 1, 5))),
        SimError::TooLarge { job: 3, size: 5, procs: 4 }
    ));
    assert!(matches!(error(&one(job(3, 0, 1, 0))), SimError::NoProcessors { job: 3 }));
    assert!(matches!(
        run("dqtt", &one(job(3, 0, 1, 1)), &Options::new(4)),
        Err(SimError::UnknownPolicy(_))
    ));
    let switch = Options { switch_ns: SECOND, ..Options::new(4) };
    assert!(matches!(run("dqt", &one(job(3, 0, 1, 1)), &switch), Err(SimError::Parameter { .. })));
}

#[test]
fn impossible_workloads_are_refused() {
    let mix = WorkloadMix {
        procs: 8,
        sizes: Sizes::Uniform,
        largest: None,
        service: Service::Exponential { mean: 1000.0 },
        seed: 1,
    };
    let poisson = Poisson { mix, load: 0.5, arrivals: 1000, units: Some(1000) };
    assert!(poisson.workload().is_ok());
    let largest = WorkloadMix { largest: Some(16), ..mix };
    let backwards = WorkloadMix { service: Service::Uniform { low: 2, high: 1 }, ..mix };
    let wrong = [
        Poisson { load: 0.0, ..poisson },
        Poisson { load: -1.0, ..poisson },
        Poisson { load: f64::NAN, ..poisson },
        Poisson { arrivals: 0, ..poisson },
        Poisson { arrivals: 1001, ..poisson },
        Poisson { mix: largest, ..poisson },
        Poisson { mix: backwards, ..poisson },
        Poisson {
            arrivals: 1_000_000_000,
            units: None,
            mix: WorkloadMix { procs: 1 << 24, largest: Some(1), ..mix },
            ..poisson
        },
    ];
    for poisson in wrong {
        assert!(matches!(poisson.workload(), Err(SimError::Parameter { .. })), "{poisson:?}");
    }
}

#[test]
fn the_load_of_a_gradient_rises_in_equal_steps() {
    let service = Service::Uniform { low: 1, high: 31 };
    let mix = WorkloadMix { procs: 64, sizes: Sizes::Uniform, largest: Some(64), service, seed: 5 };
    let gradient = Gradient { mix, load: 1.33, arrivals: 100_000, units: None };
    let jobs = gradient.workload().unwrap().jobs;
    let half = jobs.iter().filter(|job| job.submit < 50_000 * SECOND).count();
    // 55 of 210 parts.
    let share = half as f64 / jobs.len() as f64;
    assert!((share - 55.0 / 210.0).abs() < 0.02, "{share}");
    assert!((gradient.load_at(0) - 0.0665).abs() < 1e-9);
    assert!((gradient.load_at(99_999) - 1.33).abs() < 1e-9);
    assert!(gradient.load_at(100_000) == 0.0);
}

fn sweep_of(seed: u64) -> Vec<Case> {
    let service = Service::Exponential { mean: 100.0 };
    let mix = WorkloadMix { procs: 32, sizes: Sizes::Inverse, largest: None, service, seed };
    let poisson = Poisson { mix, load: 0.8, arrivals: 20_000, units: Some(20_000) };
    let names = ["dqt", "fair-dqt:apa", "matrix", "easy", "fcfs-bb", "scan-up"];
    let case = |name: &&str| Case {
        policy: (*name).to_owned(),
        load: Some(0.8),
        seed: Some(seed),
        jobs: JobSource::Poisson(poisson),
        options: Options::new(32),
    };
    names.iter().map(case).collect()
}

#[test]
fn the_same_seed_gives_the_same_results() {
    let reports = |seed| {
        let monitor = Monitor::default();
        let found = sweep::run(&sweep_of(seed), &monitor, |_, _, done| Ok(done.report)).unwrap();
        assert_eq!(monitor.permille(), 6000);
        found
    };
    let first = reports(1);
    assert_eq!(first, reports(1));
    assert_ne!(first[0].mean_retr.to_bits(), reports(2)[0].mean_retr.to_bits());
    // All policies had the same jobs.
    assert!(first.iter().all(|report| report.actual_load == first[0].actual_load));
}

#[test]
fn a_cancelled_sweep_ends() {
    let monitor = Monitor::default();
    monitor.cancel();
    let result = sweep::run(&sweep_of(1), &monitor, |_, _, done| Ok(done.report));
    assert!(matches!(result, Err(SimError::Cancelled)));
}

#[test]
fn the_error_of_a_sweep_is_that_of_its_first_case_that_has_one() {
    // The second fails at once, the first only when it is over.
    let mut cases = sweep_of(1);
    cases[1].jobs = JobSource::Made(Arc::new(Workload::given(vec![job(1, 0, 5, 1)])));
    cases[1].options.slice_ns = 0;
    for _ in 0..10 {
        let found = sweep::run(&cases, &Monitor::default(), |place, _, _| match place {
            0 => Err(SimError::Endless),
            _ => Ok(()),
        });
        assert!(matches!(found, Err(SimError::Endless)), "{found:?}");
        let found = sweep::run(&cases, &Monitor::default(), |_, _, _| Ok(()));
        assert!(matches!(found, Err(SimError::Parameter { name: "--slice", .. })), "{found:?}");
    }
}

#[test]
fn a_stop_is_seen_before_the_next_slot() {
    /// Says stop in its third slot.
    struct Slow<'a>(Wrong, &'a Monitor, u32);
    impl Policy for Slow<'_> {
        fn sharing(&self) -> Sharing {
            self.0.sharing()
        }
        fn add_node(&mut self, _: &NodeResources) {}
        fn remove_node(&mut self, _: ProcessorId) {}
        fn arrive(&mut self, request: &Request, now: ClusterTime) -> Result<(), ArriveError> {
            self.0.arrive(request, now)
        }
        fn restore(
            &mut self,
            _: &Request,
            _: &[ProcessorId],
            _: ClusterTime,
        ) -> Result<(), ArriveError> {
            Ok(())
        }
        fn leave(&mut self, _: JobId, _: ClusterTime) {}
        fn set_active(&mut self, _: JobId, _: bool) {}
        fn next_placement(&mut self, now: ClusterTime) -> Option<Placement> {
            self.0.next_placement(now)
        }
        fn queued(&self) -> Vec<JobId> {
            self.0.queued()
        }
        fn reorder(&mut self, _: &mut dyn FnMut(JobId) -> QueueRank) {}
        fn run_slot(&mut self, run: &mut dyn FnMut(JobId)) {
            self.2 += 1;
            if self.2 == 3 {
                self.1.cancel();
            }
            run(JobId(0));
        }
        fn columns(&self) -> Vec<ProcessorColumn> {
            Vec::new()
        }
    }
    let monitor = Monitor::default();
    let list = Workload::given(vec![job(1, 0, 1_000_000, 1)]);
    let inner =
        Wrong { sharing: Sharing::SpaceAndTime, fault: Fault::RunsNothing, queue: Vec::new() };
    let mut policy = Slow(inner, &monitor, 0);
    let found = engine::run("slow", &mut policy, &list, &Options::new(4), &monitor);
    assert!(matches!(found, Err(SimError::Cancelled)));
    assert_eq!(policy.2, 3);
}

#[test]
fn what_a_partition_wastes_is_counted_on_machines_of_any_size() {
    // 70 of 100: the whole machine. 33 twice: the left 64, and the 36 that are left.
    let wasted = |policy: &str, jobs: &[(u64, u32)]| {
        let list =
            jobs.iter().enumerate().map(|(n, &(at, size))| job(n as u64, at, 10, size)).collect();
        let list = Workload::given(list);
        let options = Options::new(100);
        let outcome = run(policy, &list, &options).unwrap();
        Report::new(policy, None, &list, &options, &outcome).internal_fragmentation
    };
    for policy in ["dqt", "fair-dqt:apa", "fcfs-bb", "scan-up", "dhc:no-disabling"] {
        let near = |found: Option<f64>, expected: f64| {
            let found = found.unwrap();
            assert!((found - expected).abs() < 1e-12, "{policy}: {found} {expected}");
        };
        near(wasted(policy, &[(0, 70)]), 0.3);
        near(wasted(policy, &[(0, 33), (0, 33)]), 0.34);
        near(wasted(policy, &[(0, 64), (0, 36)]), 0.0);
    }
    // What a job leaves goes to others here.
    assert_eq!(wasted("dhc", &[(0, 70)]), None);
    assert_eq!(wasted("easy", &[(0, 70)]), None);
}

#[test]
fn the_json_has_what_is_promised() {
    let cases = sweep_of(3);
    let report = cases[0].run(&Monitor::default()).unwrap().report;
    let value = serde_json::to_value(&report).unwrap();
    for key in [
        "schema",
        "version",
        "policy",
        "seed",
        "procs",
        "workload",
        "options",
        "time_s",
        "jobs",
        "jobs_ended",
        "actual_load",
        "utilisation",
        "overhead",
        "internal_fragmentation",
        "mean_wait_s",
        "max_wait_s",
        "wait_s",
        "mean_response_s",
        "mean_bounded_slowdown",
        "bounded_slowdown",
        "mean_retr",
        "max_retr",
        "retr",
        "correlation_log2_size_retr",
        "max_tqlb",
        "slots",
        "switches",
        "migrations",
        "sizes",
    ] {
        assert!(value.get(key).is_some(), "{key}");
    }
    assert_eq!(value.as_object().unwrap().len(), 29);
    assert_eq!(value["schema"], 1);
    assert_eq!(value["workload"]["kind"], "poisson");
    assert_eq!(value["workload"]["sizes"], "inverse");
    assert!(value["wait_s"]["p99"].is_number() && value["sizes"][0]["mean_retr"].is_number());
}

#[test]
fn the_order_of_events_can_be_that_of_a_list_of_events() {
    // At second 10 a job ends, and a large and a small one come. One after the other, the small one is told before the end:
    // it gets the processor that was free already, and the large one finds four of five. With all told, the large one is first.
    let list = Workload::given(vec![job(1, 0, 10, 4), job(2, 10, 5, 5), job(3, 10, 5, 1)]);
    let outcome = |instant| {
        let options = Options { instant, ..Options::new(5) };
        seconds(&run("first-fit", &list, &options).unwrap(), 3)
    };
    assert_eq!(outcome(Instant::Batched), [(0, 10), (10, 15), (15, 20)]);
    assert_eq!(outcome(Instant::Single), [(0, 10), (15, 20), (10, 15)]);
}

/// A policy that does one thing wrong.
struct Wrong {
    sharing: Sharing,
    fault: Fault,
    queue: Vec<Request>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    NeverPlaces,
    TooFewNodes,
    Overlaps,
    RunsStrangers,
    RunsNothing,
}

impl Policy for Wrong {
    fn sharing(&self) -> Sharing {
        self.sharing
    }
    fn add_node(&mut self, _: &NodeResources) {}
    fn remove_node(&mut self, _: ProcessorId) {}
    fn arrive(&mut self, request: &Request, _: ClusterTime) -> Result<(), ArriveError> {
        self.queue.push(*request);
        Ok(())
    }
    fn restore(
        &mut self,
        _: &Request,
        _: &[ProcessorId],
        _: ClusterTime,
    ) -> Result<(), ArriveError> {
        Ok(())
    }
    fn leave(&mut self, _: JobId, _: ClusterTime) {}
    fn set_active(&mut self, _: JobId, _: bool) {}
    fn next_placement(&mut self, _: ClusterTime) -> Option<Placement> {
        if self.fault == Fault::NeverPlaces {
            return None;
        }
        let Request { job, demand, .. } = self.queue.pop()?;
        let wanted = demand.parts;
        let nodes = if self.fault == Fault::TooFewNodes { wanted - 1 } else { wanted };
        Some(Placement { job, processors: (0..nodes).map(ProcessorId).collect() })
    }
    fn queued(&self) -> Vec<JobId> {
        self.queue.iter().map(|request| request.job).collect()
    }
    fn reorder(&mut self, _: &mut dyn FnMut(JobId) -> QueueRank) {}
    fn run_slot(&mut self, run: &mut dyn FnMut(JobId)) {
        match self.fault {
            Fault::RunsStrangers => run(JobId(99)),
            Fault::Overlaps => (0..2).for_each(|number| run(JobId(number))),
            _ => {}
        }
    }
    fn columns(&self) -> Vec<ProcessorColumn> {
        Vec::new()
    }
}

#[test]
fn wrong_policies_are_found_out() {
    let list = Workload::given(vec![job(1, 0, 5, 3), job(2, 0, 5, 3)]);
    let both = [Sharing::Space, Sharing::SpaceAndTime];
    let cases = [
        (Fault::NeverPlaces, &both[..]),
        (Fault::TooFewNodes, &both),
        (Fault::Overlaps, &both),
        (Fault::RunsStrangers, &both[1..]),
        (Fault::RunsNothing, &both[1..]),
    ];
    for (fault, sharings) in cases {
        for &sharing in sharings {
            let mut policy = Wrong { sharing, fault, queue: Vec::new() };
            let options = Options::new(4);
            let error = engine::run("wrong", &mut policy, &list, &options, &Monitor::default());
            let right = match (&error, fault) {
                (Err(SimError::Stuck { jobs: 2, first: 1, size: 3, .. }), Fault::NeverPlaces) => {
                    true
                }
                (Err(SimError::Policy { .. }), fault) => fault != Fault::NeverPlaces,
                _ => false,
            };
            assert!(right, "{fault:?} {sharing:?}: {error:?}");
        }
    }
}

#[test]
fn a_list_may_be_shared_by_many_cases() {
    let list = Arc::new(Workload::given(vec![job(1, 0, 5, 3), job(2, 0, 5, 1)]));
    let case = |policy: &str| Case {
        policy: policy.to_owned(),
        load: None,
        seed: None,
        jobs: JobSource::Made(Arc::clone(&list)),
        options: Options::new(4),
    };
    let cases: Vec<Case> = ["fcfs", "dqt", "matrix"].into_iter().map(case).collect();
    let ends =
        sweep::run(&cases, &Monitor::default(), |_, _, done| Ok(done.outcome.end(1))).unwrap();
    // The first takes the whole of the tree's partition of four.
    assert_eq!(ends, [5, 10, 5].map(|second| Some(second * SECOND)));
}
