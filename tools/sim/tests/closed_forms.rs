//! Simulations against results of queueing theory. The intervals are those of 95 % over ten or more
//! replications; seeds are fixed, so a test either always passes or never.
#![forbid(unsafe_code)]

use kumi_sim::generate::{Poisson, Service, Sizes, WorkloadMix};
use kumi_sim::stats::Estimate;
use kumi_sim::sweep::{self, Case, JobSource};
use kumi_sim::{Monitor, Options, Report};

const REPLICATIONS: u64 = 12;

/// Jobs of one processor on `procs` of them, until all are over, once for each seed.
fn reports(policy: &str, procs: u32, load: f64, service: Service, arrivals: u64) -> Vec<Report> {
    let case = |seed| {
        let mix = WorkloadMix { procs, sizes: Sizes::Uniform, largest: Some(1), service, seed };
        let jobs = JobSource::Poisson(Poisson { mix, load, arrivals, units: None });
        let options = Options::new(procs);
        Case { policy: policy.to_owned(), load: Some(load), seed: Some(seed), jobs, options }
    };
    let cases: Vec<Case> = (101..=100 + REPLICATIONS).map(case).collect();
    sweep::run(&cases, &Monitor::default(), |_, _, done| Ok(done.report)).unwrap()
}

fn estimate(reports: &[Report], of: impl Fn(&Report) -> f64) -> Estimate {
    Estimate::of(&reports.iter().map(of).collect::<Vec<f64>>())
}

fn agrees(what: &str, estimate: Estimate, theory: f64, most: f64) {
    assert!(estimate.holds(theory), "{what}: {estimate:?}, in theory {theory}");
    assert!(estimate.half_width < most * theory, "{what}: {estimate:?} says little");
}

#[test]
fn one_processor_shared_in_time_is_a_processor_sharing_queue() {
    // The mean response is that of the mean service x: x / (1 - load), whatever the law of x.
    let exponential = Service::Exponential { mean: 100.0 };
    for (policy, load, service, arrivals) in [
        ("dqt", 0.5, exponential, 400_000),
        ("dqt", 0.8, exponential, 3_000_000),
        ("dqt", 0.5, Service::Uniform { low: 1, high: 199 }, 400_000),
        ("matrix", 0.5, exponential, 200_000),
    ] {
        let found = reports(policy, 1, load, service, arrivals);
        let response = estimate(&found, |report| report.mean_response_s);
        agrees(&format!("{policy} {load} {service:?}"), response, 100.0 / (1.0 - load), 0.15);
    }
}

#[test]
fn waiting_for_one_of_several_processors() {
    // M/M/c at load 0.8, in mean services.
    for (procs, theory) in [(2, 1.777_778), (4, 0.745_541), (8, 0.286_028), (16, 0.095_276)] {
        let arrivals = 24_000_000 / u64::from(procs);
        let found = reports("fcfs", procs, 0.8, Service::Exponential { mean: 1000.0 }, arrivals);
        let wait = estimate(&found, |report| report.mean_wait_s / 1000.0);
        agrees(&format!("{procs} processors"), wait, theory, 0.2);
    }
}

#[test]
fn waiting_where_service_is_always_the_same() {
    // M/D/1 at load 0.8.
    let always = Service::Uniform { low: 1000, high: 1000 };
    let found = reports("fcfs", 1, 0.8, always, 40_000_000);
    agrees("M/D/1", estimate(&found, |report| report.mean_wait_s / 1000.0), 2.0, 0.1);
}

#[test]
fn the_load_is_the_one_asked_for() {
    for sizes in [Sizes::Uniform, Sizes::Proportional, Sizes::Inverse] {
        let service = Service::Exponential { mean: 1000.0 };
        let loads = (1..=REPLICATIONS).map(|seed| {
            let mix = WorkloadMix { procs: 128, sizes, largest: None, service, seed };
            let poisson = Poisson { mix, load: 0.7, arrivals: 500_000, units: None };
            let jobs = poisson.workload().unwrap().jobs;
            let work: u64 = jobs.iter().map(|job| job.service * u64::from(job.size)).sum();
            work as f64 / 1e9 / (128.0 * 500_000.0)
        });
        agrees(&format!("{sizes:?}"), Estimate::of(&loads.collect::<Vec<_>>()), 0.7, 0.04);
    }
}
