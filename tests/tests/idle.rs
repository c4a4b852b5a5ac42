//! Jobs that only wait leave their slots to others, and come back.
#![forbid(unsafe_code)]

use kumi_tests::binaries;
use kumi_tests::cluster::TestCluster;
use kumi_tests::command::{RunningCommand, wait_for};
use serde_json::Value;

/// A job of this name with a rank on each of two nodes.
fn start(cluster: &TestCluster, name: &str, program: &[&str]) -> RunningCommand {
    let args = ["run", "-n", "2", "--nodes", "2", "--name", name];
    cluster.start(&[&args[..], program].concat())
}

/// Answers questions on standard input; its ranks wait in between.
fn primes() -> String {
    binaries::path("primes").display().to_string()
}

const COMPUTES: [&str; 3] = ["sh", "-c", "while :; do :; done"];

fn number(job: &Value) -> u64 {
    job["job"].as_u64().expect("a number")
}

/// The jobs in the slots of both nodes; number of the timetable; switches of both so far.
fn turns(cluster: &TestCluster) -> (Vec<Option<u64>>, u64, u64) {
    let status = cluster.json(&["cluster", "status", "--json"]);
    let nodes = status["nodes"].as_array().expect("nodes");
    let slots = nodes.iter().flat_map(|node| node["timetable"].as_array().expect("slots"));
    // Each node has one processor, so a slot has one job at most.
    let slots = slots.map(|slot| slot[0].as_u64()).collect();
    let stats = cluster.json(&["stats", "--json"]);
    let nodes = stats["nodes"].as_array().expect("nodes");
    let switches = nodes.iter().map(|node| node["switching"]["count"].as_u64().expect("a number"));
    (slots, status["generation"].as_u64().expect("a number"), switches.sum())
}

fn wait_idle(cluster: &TestCluster, name: &str, idle: bool) -> Value {
    let what = format!("job {name} with idle {idle}");
    wait_for(&what, || cluster.job(name).filter(|job| job["idle"] == idle))
}

/// Waits until the slots of both nodes are these jobs' in some order, and no others'.
fn wait_slots(cluster: &TestCluster, jobs: &[u64]) -> (u64, u64) {
    wait_for(&format!("slots of jobs {jobs:?} alone"), || {
        let (slots, generation, switches) = turns(cluster);
        let shown = |job: &u64| slots.contains(&Some(*job));
        let alone = slots.iter().all(|slot| slot.is_some_and(|job| jobs.contains(&job)));
        (alone && jobs.iter().all(shown)).then_some((generation, switches))
    })
}

fn kill(cluster: &TestCluster, job: &Value) {
    cluster.kumi(&["kill", &number(job).to_string()]).ok();
}

#[test]
fn a_job_that_reads_leaves_its_slots_to_another_until_a_line_comes() {
    let cluster = TestCluster::up_with(2, &["--idle-after", "200ms"]);
    let mut reader = start(&cluster, "reader", &[&primes()]);
    let reads = cluster.wait_state("reader", "running");
    let other = start(&cluster, "other", &COMPUTES);
    let computes = cluster.wait_state("other", "running");
    wait_idle(&cluster, "reader", true);
    let table = cluster.kumi(&["ps"]).ok().out;
    assert!(
        table.lines().any(|line| line.contains("reader") && line.contains(" idle ")),
        "{table}"
    );
    // Who computes is alone in the rotation, and as long as that timetable is in force nobody is switched.
    wait_for("a timetable of one job by which nobody is switched", || {
        let before = wait_slots(&cluster, &[number(&computes)]);
        cluster.kumi(&["ps"]).ok();
        let (_, generation, switches) = turns(&cluster);
        ((generation, switches) == before).then_some(())
    });
    assert_eq!(cluster.job("other").expect("it runs")["idle"], false);
    // What needs no time is answered as it is; what needs much brings it back.
    reader.write("100\n");
    assert_eq!(cluster.wait_lines(&reads, 1), ["25 primes below 100"]);
    reader.write("10000000000\n");
    wait_idle(&cluster, "reader", false);
    wait_slots(&cluster, &[number(&reads), number(&computes)]);
    kill(&cluster, &reads);
    kill(&cluster, &computes);
    for job in [reader, other] {
        job.finish().fails(137, &[]);
    }
}

#[test]
fn waits_that_never_block_count_as_waiting() {
    let cluster = TestCluster::up_with(2, &["--idle-after", "200ms"]);
    let mut reader = start(&cluster, "reader", &["--env", "KUMI_SPIN=infinite", &primes()]);
    let reads = cluster.wait_state("reader", "running");
    let other = start(&cluster, "other", &COMPUTES);
    let computes = cluster.wait_state("other", "running");
    wait_idle(&cluster, "reader", true);
    wait_slots(&cluster, &[number(&computes)]);
    // Outside the rotation it does block, so as not to take the others' time.
    let sleeps = || {
        let stats = cluster.json(&["stats", "--json", &number(&reads).to_string()]);
        let nodes = stats["nodes"].as_array().expect("nodes").iter();
        let ranks = nodes.flat_map(|node| node["ranks"].as_array().expect("ranks"));
        ranks.map(|rank| rank["counters"]["sleeps"].as_u64().expect("a number")).sum::<u64>()
    };
    wait_for("a wait that blocks", || (sleeps() > 0).then_some(()));
    reader.write("1000\n");
    assert_eq!(cluster.wait_lines(&reads, 1), ["168 primes below 1000"]);
    kill(&cluster, &computes);
    reader.finish().ok();
    other.finish().fails(137, &[]);
}

#[test]
fn without_a_time_all_jobs_keep_their_slots() {
    let cluster = TestCluster::up_with(1, &["--idle-after", "0s", "--slice", "10ms"]);
    let one = cluster.start(&["run", "--name", "one", "sleep", "600"]);
    let first = cluster.wait_state("one", "running");
    let two = cluster.start(&["run", "--name", "two", "sleep", "600"]);
    let second = cluster.wait_state("two", "running");
    // The switches of many times the interval in which others would be found idle.
    let (_, generation, begin) = turns(&cluster);
    wait_for("many switches", || (turns(&cluster).2 > begin + 300).then_some(()));
    assert_eq!(turns(&cluster).1, generation);
    for job in [first, second] {
        kill(&cluster, &job);
    }
    for job in [one, two] {
        job.finish().fails(137, &[]);
    }
}
