//! The same jobs simulated and run on a cluster.
#![forbid(unsafe_code)]

use kumi_tests::cluster::TestCluster;
use kumi_tests::command::{self, RunningCommand, wait_for};
use kumi_tests::{binaries, machine};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::process::Command;

/// Ends so far apart stay in order on however slow a machine: a node that is silent for so long would be lost.
const APART_NS: u64 = 2_000_000_000;

fn reality(args: &[&str]) -> Command {
    let mut command = Command::new(binaries::path("kumi-bench-reality"));
    command.args(args);
    command
}

fn number(job: &Value, name: &str) -> u64 {
    job[name].as_u64().unwrap_or_else(|| panic!("{name} of {job}"))
}

#[test]
fn a_cluster_does_what_is_simulated() {
    // Clusters of tests come one after the other.
    let turn = TestCluster::prepare();
    let file = turn.state().join("reality.json");
    let json = file.display().to_string();
    let size = ["--nodes", "4", "--units", "100", "--unit-ms", "100", "--seed", "1"];
    let out = command::run(reality(&[&size[..], &["--json", &json]].concat())).ok().out;
    assert!(out.contains("RETR, all jobs (table 7.2)"), "{out}");
    let report: Value =
        serde_json::from_str(&std::fs::read_to_string(&file).expect("a report")).expect("JSON");
    let jobs = report["jobs"].as_array().expect("jobs");
    assert!(jobs.len() >= 5, "{out}");
    let mut compared = 0;
    for job in jobs {
        let nodes = job["nodes"].as_array().expect("nodes").len() as u64;
        assert_eq!(nodes, number(job, "size"), "{job}");
        assert!(job["turns"].as_array().is_some_and(|turns| !turns.is_empty()), "{job}");
        let retrs = job["retr"].as_array().expect("RETR").iter();
        let retrs: Vec<f64> = retrs.filter_map(Value::as_f64).collect();
        assert_eq!(retrs.len(), 6, "{job}");
        // Services are rounded to whole slots in the fourth and fifth column, and may become shorter.
        for (column, &retr) in retrs.iter().enumerate() {
            assert!(retr >= if [3, 4].contains(&column) { 0.5 } else { 1.0 }, "{column}: {job}");
        }
        // A rank works while its time passes, never longer.
        let times: Vec<u64> = job["measured_ns"]
            .as_array()
            .expect("times")
            .iter()
            .filter_map(Value::as_u64)
            .collect();
        let &[submitted, running, begin, done, over] = &times[..] else { panic!("{job}") };
        assert!([submitted, begin, done, over].is_sorted(), "{job}");
        // A rank may begin before the news that it runs has come here.
        assert!((submitted..=over).contains(&running), "{job}");
        assert!(over - submitted >= number(job, "service_ns"), "{job}");
        let ended = |job: &Value| job["measured_ns"][4].as_u64().expect("an end");
        for other in jobs {
            let (end, later) = (number(job, "simulated_end_ns"), number(other, "simulated_end_ns"));
            if later > end + APART_NS {
                assert!(ended(other) > ended(job), "{job} before {other}");
                compared += 1;
            }
        }
    }
    assert!(compared > 0, "no two jobs end far enough apart: {out}");
    let all = &report["tables"][0]["rows"].as_array().expect("rows");
    let all = all.last().expect("a row of all jobs");
    assert_eq!((number(all, "size"), number(all, "jobs")), (0, jobs.len() as u64));
    assert!(report["switching"]["count"].as_u64().is_some_and(|count| count > 0), "{out}");
}

#[test]
fn interrupted_it_leaves_nothing() {
    let turn = TestCluster::prepare();
    let mut command = reality(&["--nodes", "2", "--units", "5000", "--peak", "8"]);
    command.env("TMPDIR", turn.state());
    let running = RunningCommand::start(command);
    let name = format!("b{}-0", running.pid());
    let daemons = || machine::processes(&format!("/{name}"));
    wait_for("ranks", || machine::processes("kumi-bench-turns").pop());
    machine::signal(running.pid(), Signal::SIGINT);
    running.finish().fails(130, &[]);
    assert_eq!(daemons(), [] as [String; 0]);
    assert_eq!(machine::namespaces(&format!("kumi-{name}-")), [] as [String; 0]);
    assert_eq!(machine::cgroups(&format!("kumi-{name}")), [] as [String; 0]);
    let left = std::fs::read_dir(turn.state()).expect("the test's directory").count();
    assert_eq!(left, 0, "files are left");
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_starts() {
    let run = |args: &[&str]| command::run(reality(args));
    run(&["--policy", "esy"]).fails(1, &["did you mean easy?"]);
    run(&["--nodes", "4", "--units", "1", "--peak", "0.001"]).fails(1, &["no job"]);
    run(&["--peak=-1"]).fails(1, &["--load"]);
    run(&["--nodes", "0"]).fails(2, &["--nodes"]);
}
