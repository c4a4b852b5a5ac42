//! Simulated calls against results of queueing theory.
//!
//! The rule: over twelve replications the mean is within 5 % of the closed form, and within one and a half times its own
//! 95 % interval, which is at most 5 % wide itself. Seeds are fixed, so a test either always passes or never.
#![forbid(unsafe_code)]

use kumi_sim::Monitor;
use kumi_sim::calls::{
    Clients, Discipline, Law, Link, Model, Options, Report, Routine, Server, Site, Source, run,
};
use kumi_sim::stats::Estimate;

/// One site, one routine of a second, one server, calls without bytes.
fn model(source: Source, count: u32, law: Law, processors: u32) -> Model {
    let routine =
        Routine { name: "f".to_owned(), bytes_out: 0, bytes_back: 0, operations: 1.0, law };
    Model {
        sites: vec![Site { name: "here".to_owned(), links: Vec::new() }],
        servers: vec![Server {
            name: "s".to_owned(),
            processors,
            speed: 1.0,
            discipline: Discipline::Fcfs,
            limit: Some(processors),
            overhead_s: 0.0,
            routines: Vec::new(),
        }],
        routines: vec![routine],
        clients: vec![Clients {
            site: "here".to_owned(),
            count,
            user: 0,
            routines: vec!["f".to_owned()],
            source,
        }],
        policy: "least-load".to_owned(),
        metaserver_s: 0.0,
        most_waiting: None,
    }
}

fn simulate(model: &Model, time_s: f64) -> Report {
    let warm_up_s = time_s / 10.0;
    let options = Options { time_s: Some(time_s), warm_up_s, replications: 12, seed: 1 };
    run(model, &options, &Monitor::default()).unwrap()
}

/// Most that a simulated mean, and half of its 95 % interval, may be off a closed form.
const TOLERANCE: f64 = 0.05;

fn agrees(what: &str, found: Estimate, theory: f64) {
    let off = (found.mean - theory).abs();
    assert!(off <= TOLERANCE * theory, "{what}: {found:?}, in theory {theory}");
    assert!(off <= 1.5 * found.half_width, "{what}: {found:?}, in theory {theory}");
    let width = found.half_width;
    assert!(width <= TOLERANCE * theory, "{what}: {found:?} says little about {theory}");
}

#[test]
fn one_processor_in_turn() {
    // M/M/1: time in system 1 / (1 - load).
    for (load, theory, time) in [(0.5, 2.0, 10_000.0), (0.8, 5.0, 50_000.0), (0.9, 10.0, 200_000.0)]
    {
        let report = simulate(&model(Source::Poisson(load), 1, Law::Exponential, 1), time);
        let row = &report.rows[0];
        agrees(&format!("M/M/1 at {load}"), row.response_s.mean, theory);
        agrees("its rate", row.calls_per_s, load);
        agrees("its utilisation", report.servers[0].utilisation, load);
        let waits = row.response_s.mean.mean - row.waiting_s.mean.mean;
        assert!((waits - 1.0).abs() < 0.02, "response is waiting and service: {waits}");
    }
}

#[test]
fn several_processors_in_turn() {
    // M/M/c at load 0.8, waiting at the broker.
    for (processors, theory) in [(2, 1.777_778), (4, 0.745_541), (8, 0.286_028), (16, 0.095_276)] {
        let rate = 0.8 * f64::from(processors);
        let model = model(Source::Poisson(rate), 1, Law::Exponential, processors);
        let report = simulate(&model, 100_000.0 / f64::from(processors).sqrt());
        agrees(&format!("M/M/{processors}"), report.rows[0].waiting_s.mean, theory);
    }
}

#[test]
fn no_room_to_wait() {
    // Erlang's B.
    for (processors, load, theory) in [(4, 3.2, 0.228_145), (16, 12.8, 0.080_647)] {
        let mut model = model(Source::Poisson(load), 1, Law::Exponential, processors);
        model.most_waiting = Some(0);
        let report = simulate(&model, 30_000.0 / f64::from(processors));
        agrees(&format!("B({processors}, {load})"), report.rows[0].turned_away, theory);
    }
}

#[test]
fn service_that_is_always_the_same() {
    // M/D/1 at load 0.8.
    let report = simulate(&model(Source::Poisson(0.8), 1, Law::Constant, 1), 50_000.0);
    agrees("M/D/1", report.rows[0].waiting_s.mean, 2.0);
}

#[test]
fn sharing_a_processor_knows_no_law() {
    // Processor sharing: x / (1 - load), whatever the law of service.
    for law in [Law::Constant, Law::Exponential, Law::Hyper(2.0)] {
        let mut model = model(Source::Poisson(0.5), 1, law, 1);
        model.servers[0].discipline = Discipline::Ps;
        model.servers[0].limit = None;
        let report = simulate(&model, 40_000.0);
        agrees(&format!("PS, {law:?}"), report.rows[0].response_s.mean, 2.0);
    }
}

#[test]
fn clients_who_wait_for_their_results() {
    // Think 3 s, network 0.5 s, one processor of 1 s: the paper's clients.
    for (clients, theory) in
        [(1, 0.222_222), (2, 0.418_605), (4, 0.718_826), (8, 0.965_485), (16, 0.999_847)]
    {
        let mut model = model(Source::Think(3.0), clients, Law::Exponential, 1);
        model.routines[0].bytes_out = 500;
        model.sites[0].links.push(Link {
            servers: Vec::new(),
            bandwidth: 1000.0,
            latency_s: 0.0,
            discipline: Discipline::Fcfs,
            law: Law::Exponential,
            background: 0.0,
            background_bytes: 1.0,
        });
        model.servers[0].limit = None;
        let report = simulate(&model, 3_000.0);
        agrees(&format!("{clients} clients"), report.rows[0].calls_per_s, theory);
    }
}

#[test]
fn a_path_that_others_use_too() {
    // An M/M/1 path at load 0.3 + 0.4, of which the calls are 0.3: the mean time there is that of all.
    let mut model = model(Source::Poisson(0.3), 1, Law::Constant, 1000);
    model.routines[0].bytes_out = 1000;
    model.routines[0].operations = 0.0;
    model.sites[0].links.push(Link {
        servers: vec!["s".to_owned()],
        bandwidth: 1000.0,
        latency_s: 0.25,
        discipline: Discipline::Fcfs,
        law: Law::Exponential,
        background: 0.4,
        background_bytes: 1000.0,
    });
    let report = simulate(&model, 50_000.0);
    let theory = 1.0 / (1.0 - 0.7) + 2.0 * 0.25;
    agrees("background", report.rows[0].communication_s.mean, theory);
    agrees("its load", report.links[0].out, 0.7);
}

#[test]
fn the_same_seed_gives_the_same() {
    for policy in ["round-robin", "least-load", "min-completion"] {
        let mut model =
            model(Source::Step { every_s: 3.0, probability: 0.5 }, 7, Law::Hyper(1.5), 2);
        model.policy = policy.to_owned();
        model.servers.push(Server { name: "t".to_owned(), speed: 0.2, ..model.servers[0].clone() });
        let reports = [simulate(&model, 200.0), simulate(&model, 200.0)];
        assert_eq!(reports[0], reports[1]);
        assert!(reports[0].rows[0].calls > 500, "{policy}: {:?}", reports[0].rows);
    }
}
