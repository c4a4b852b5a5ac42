//! Whole-system tests of what jobs have used: measured, accounted for once, and kept.
#![forbid(unsafe_code)]

use kumi_tests::cluster::TestCluster;
use kumi_tests::command::wait_for;
use kumi_tests::machine;
use nix::sys::signal::Signal;
use serde_json::Value;

/// Something that takes a processor for much longer than a tick of the system's clock.
const COMPUTE: &str = "i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done";

/// The rows of `kumi usage`.
#[track_caller]
fn rows(cluster: &TestCluster, args: &[&str]) -> Vec<Value> {
    let usage = cluster.json(&[&["usage", "--json"], args].concat());
    usage["rows"].as_array().expect("rows").clone()
}

/// The only row.
#[track_caller]
fn row(cluster: &TestCluster, args: &[&str]) -> Value {
    let rows = rows(cluster, args);
    let [row] = &rows[..] else { panic!("{rows:?}") };
    row.clone()
}

fn float(row: &Value, name: &str) -> f64 {
    row[name].as_f64().unwrap_or_else(|| panic!("{name} of {row}"))
}

#[test]
fn what_jobs_use_is_measured_and_kept_after_the_cluster_is_down() {
    let cluster = TestCluster::up(2);
    assert!(rows(&cluster, &[]).is_empty());
    cluster.kumi(&["run", "-n", "2", "--nodes", "2", "--name", "works", "sh", "-c", COMPUTE]).ok();
    cluster.kumi(&["run", "--name", "fails", "sh", "-c", "exit 3"]).fails(3, &[]);
    let user = row(&cluster, &[]);
    let counts = ["jobs_started", "jobs_ended", "jobs_failed", "jobs_running", "jobs_unmeasured"];
    assert_eq!(counts.map(|name| user[name].as_u64()), [2, 2, 1, 0, 0].map(Some), "{user}");
    assert_eq!(user["uid"], nix::unistd::getuid().as_raw(), "{user}");
    for name in ["processor_s_held", "processor_s_turns", "processor_s_used"] {
        assert!(float(&user, name) > 0.0, "{name}: {user}");
    }
    let jobs = rows(&cluster, &["--by", "job"]);
    let names = jobs.iter().map(|job| job["name"].as_str().unwrap_or_default());
    assert!(names.eq(["works", "fails"]), "{jobs:?}");
    let outcomes = jobs.iter().map(|job| job["outcome"].as_str().unwrap_or_default());
    assert!(outcomes.eq(["success", "rank_failed"]), "{jobs:?}");
    assert_eq!((&jobs[0]["processors"], &jobs[0]["nodes"]), (&2.into(), &2.into()));
    let sum = float(&jobs[0], "processor_s_used") + float(&jobs[1], "processor_s_used");
    assert!((sum - float(&user, "processor_s_used")).abs() < 1e-6, "{jobs:?}");
    // A time before all of them, and a user who has none.
    assert!(rows(&cluster, &["--since", "2000-01-01", "--until", "2000-02-01"]).is_empty());
    assert!(rows(&cluster, &["--user", "bin"]).is_empty());
    let nobody = cluster.kumi(&["usage", "--user", "nobody-at-all"]);
    nobody.fails(64, &["no user 'nobody-at-all' is known"]);
    let table = cluster.kumi(&["usage", "--by", "job"]).ok().out;
    assert!(table.lines().nth(2).is_some_and(|line| line.contains("rank failed")), "{table}");

    cluster.kumi(&["cluster", "down"]).ok();
    cluster.kumi(&["usage"]).fails(69, &["kumi cluster up"]);
    cluster.kumi(&["cluster", "up"]).ok();
    assert_eq!(rows(&cluster, &["--by", "job"]), jobs);
    assert_eq!(row(&cluster, &[]), user);
}

#[test]
fn a_job_that_runs_counts_and_no_restart_of_the_head_counts_it_twice() {
    let cluster = TestCluster::up(2);
    let run = ["submit", "-n", "2", "--nodes", "2", "--name", "long", "sleep", "600"];
    let number = cluster.kumi(&run).ok().out;
    cluster.wait_state("long", "running");
    let so_far = row(&cluster, &[]);
    assert_eq!((&so_far["jobs_running"], &so_far["jobs_ended"]), (&1.into(), &0.into()));
    wait_for("some time that it has held processors", || {
        (float(&row(&cluster, &[]), "processor_s_held") > 0.0).then_some(())
    });
    let job = row(&cluster, &["--by", "job"]);
    assert_eq!((&job["outcome"], &job["processors"]), (&Value::Null, &2.into()));
    let mut heads = Vec::new();
    for _ in 0..2 {
        let head = cluster.pid("head");
        machine::signal(head, Signal::SIGKILL);
        wait_for("the end of the head", || (!machine::lives(head)).then_some(()));
        heads.push(cluster.start_daemon(0, &["head"]));
        wait_for("the nodes", || {
            let status = cluster.kumi(&["cluster", "status"]);
            (status.code() == 0 && cluster.nodes_up() == 2).then_some(())
        });
        assert_eq!(row(&cluster, &[])["jobs_running"], 1);
    }
    cluster.kumi(&["kill", number.trim(), "--grace", "0s"]).ok();
    let user = row(&cluster, &[]);
    let counts = ["jobs_started", "jobs_ended", "jobs_failed", "jobs_running", "jobs_unmeasured"];
    assert_eq!(counts.map(|name| user[name].as_u64()), [1, 1, 1, 0, 0].map(Some), "{user}");
    assert!(float(&user, "processor_s_held") >= float(&so_far, "processor_s_held"));
    assert!(float(&user, "processor_s_turns") > 0.0, "{user}");
    drop(cluster);
    heads.into_iter().for_each(|head| drop(head.finish()));
}
