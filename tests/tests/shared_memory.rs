//! Jobs with shared memory on a cluster: killed ranks, turns, and what `kumi stats` shows.
#![forbid(unsafe_code)]

use kumi_tests::binaries;
use kumi_tests::cluster::TestCluster;
use kumi_tests::command::wait_for;
use kumi_tests::machine;
use nix::sys::signal::Signal;

/// `examples/rust/src/bin/shared.rs`, behind a shell that says its process number first.
fn program(rounds: u32) -> String {
    let shared = binaries::path("shared");
    format!("echo $$; exec {} --block 2048 --rounds {rounds}", shared.display())
}

/// Ranks take a lock in every round. Killed at any moment, holding it or not, a rank ends its job with its name, and the ranks
/// that wait for it end, too.
#[test]
fn a_killed_rank_ends_a_job_whose_ranks_wait_for_it() {
    let cluster = TestCluster::up(2);
    for turn in 0..4 {
        let name = format!("doomed-{turn}");
        let words = ["run", "-n", "4", "--nodes", "2", "--name", &name, "sh", "-c", &program(0)];
        let run = cluster.start(&words);
        let record = cluster.wait_state(&name, "running");
        let lines = cluster.wait_lines(&record, 4);
        let ranks: Vec<u32> = lines.iter().map(|line| line.parse().expect("a number")).collect();
        let job = record["job"].to_string();
        wait_for("a lock that was taken", || {
            (counter(&cluster, &job, "shared_locks") > 4).then_some(())
        });
        machine::signal(ranks[turn], Signal::SIGKILL);
        run.finish().fails(137, &["rank ", " on node", "9 (SIGKILL)"]);
        assert!(ranks.iter().all(|rank| !machine::lives(*rank)), "a rank lives");
    }
}

/// The sum of a counter over all ranks of a job.
fn counter(cluster: &TestCluster, job: &str, name: &str) -> u64 {
    let shown = cluster.kumi(&["stats", job, "--json"]);
    let Ok(stats) = serde_json::from_str::<serde_json::Value>(&shown.out) else { return 0 };
    let nodes = stats["nodes"].as_array().into_iter().flatten();
    let ranks = nodes.flat_map(|node| node["ranks"].as_array().into_iter().flatten());
    ranks.filter_map(|rank| rank["counters"][name].as_u64()).sum()
}

/// Jobs that take turns are stopped at any moment, also in the middle of a page fault or a release. Nothing is lost.
#[test]
fn jobs_that_take_turns_count_right() {
    let cluster = TestCluster::up_with(2, &["--slice", "1ms"]);
    let program = program(60);
    let names = ["one", "two", "three"];
    let jobs = names.map(|name| {
        let words = ["run", "-n", "4", "--nodes", "2", "--name", name, "sh", "-c", &program];
        cluster.start(&words)
    });
    for job in jobs {
        let out = job.finish().ok().out;
        assert!(out.lines().any(|line| line == "240 rounds of all ranks"), "{out}");
    }
}

#[test]
fn stats_show_what_shared_memory_does() {
    let cluster = TestCluster::up(2);
    let program = program(0);
    let words = ["run", "-n", "2", "--nodes", "2", "--name", "busy", "sh", "-c", &program];
    let run = cluster.start(&words);
    let job = cluster.wait_state("busy", "running")["job"].to_string();
    for name in
        ["shared_faults", "shared_fetches", "shared_pages", "shared_barriers", "shared_stale"]
    {
        wait_for(name, || (counter(&cluster, &job, name) > 0).then_some(()));
    }
    let table = cluster.kumi(&["stats", &job]).ok().out;
    assert!(table.contains("shared_faults"), "{table}");
    cluster.kumi(&["kill", &job]).ok();
    drop(run.finish());
}
