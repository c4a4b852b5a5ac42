//! Ranks, daemons and the head killed with -9: what had to do with them ends, the rest goes on.
#![forbid(unsafe_code)]

use kumi_tests::cluster::TestCluster;
use kumi_tests::command::{self, RunningCommand};
use kumi_tests::machine;
use kumi_tests::terminal::TestTerminal;
use nix::sys::signal::Signal;
use serde_json::Value;
use std::time::{Duration, Instant};

/// Whether a failure is noticed is what is tested here; how soon hangs on what else the machine does.
const SOON: Duration = Duration::from_secs(60);

/// A job that says its process numbers and then waits to be ended.
struct Job<'c> {
    cluster: &'c TestCluster,
    run: RunningCommand,
    record: Value,
    ranks: Vec<u32>,
}

impl<'c> Job<'c> {
    fn start(cluster: &'c TestCluster, name: &str, ranks: usize, nodes: usize) -> Self {
        let (n, nodes) = (ranks.to_string(), nodes.to_string());
        let script = "echo $$; exec sleep 600";
        let args = ["run", "-n", &n, "--nodes", &nodes, "--name", name, "sh", "-c", script];
        let run = cluster.start(&args);
        let record = cluster.wait_state(name, "running");
        let lines = cluster.wait_lines(&record, ranks);
        let ranks = lines.iter().map(|line| line.parse().expect("a process number")).collect();
        Self { cluster, run, record, ranks }
    }

    fn nodes(&self) -> Vec<u64> {
        let nodes = self.record["nodes"].as_array().into_iter().flatten();
        nodes.filter_map(Value::as_u64).collect()
    }

    #[track_caller]
    fn must_run(&mut self) {
        assert!(self.run.runs(), "its command has ended");
        assert!(self.ranks.iter().all(|&rank| machine::lives(rank)), "a rank is gone");
    }

    /// Its end, which must come soon after `since`, with nothing of it left.
    #[track_caller]
    fn must_fail(self, since: Instant, code: i32, words: &[&str]) {
        self.run.finish().fails(code, words);
        let told = since.elapsed();
        assert!(told < SOON, "noticed only after {told:?}");
        // First they end, then the user is told.
        let living: Vec<u32> =
            self.ranks.iter().copied().filter(|&rank| machine::lives(rank)).collect();
        assert!(living.is_empty(), "ranks {living:?} live");
        println!("told {} ms after the failure: {words:?}", told.as_millis());
        let jobs = self.cluster.json(&["ps", "--json"]);
        let jobs = jobs.as_array().expect("an array");
        assert!(jobs.iter().all(|job| job["job"] != self.record["job"]), "{jobs:?}");
    }

    /// Ends it.
    fn end(self) {
        self.cluster.kumi(&["kill", &self.record["job"].to_string()]).ok();
        self.run.finish();
    }
}

#[test]
fn a_killed_rank_ends_its_job_and_no_other() {
    // No lease runs out and no node is away while this test waits: whoever tells it has seen the rank's end.
    let cluster = TestCluster::up_with(2, &["--lease", "600s"]);
    let doomed = Job::start(&cluster, "doomed", 4, 2);
    let mut other = Job::start(&cluster, "other", 4, 2);
    let since = Instant::now();
    // Whichever rank it was is named.
    machine::signal(doomed.ranks[2], Signal::SIGKILL);
    doomed.must_fail(since, 137, &["rank ", " on node", "9 (SIGKILL)"]);
    other.must_run();
    other.end();
    cluster.kumi(&["run", "-n", "4", "--nodes", "2", "true"]).ok();
}

#[test]
fn a_killed_daemon_ends_the_jobs_of_its_node_and_no_others() {
    let mut cluster = TestCluster::up(3);
    let doomed = Job::start(&cluster, "doomed", 3, 3);
    let mut other = Job::start(&cluster, "other", 1, 1);
    // Not the node of the other job.
    let node = (0..3).rev().find(|node| !other.nodes().contains(&u64::from(*node)));
    let node = node.expect("three nodes, one used");
    let since = Instant::now();
    machine::signal(cluster.pid(&format!("node-{node}")), Signal::SIGKILL);
    doomed.must_fail(since, 75, &[&format!("node{node}"), "lost"]);
    other.must_run();
    command::wait_for("loss of the node", || (cluster.nodes_up() == 2).then_some(()));
    cluster.kumi(&["run", "--wait", "no", "-n", "3", "--nodes", "3", "true"]).fails(75, &[]);
    cluster.kumi(&["run", "-n", "2", "--nodes", "2", "true"]).ok();

    let number = node.to_string();
    let daemon = cluster.start_daemon(node, &["node", "--node", &number]);
    command::wait_for("return of the node", || (cluster.nodes_up() == 3).then_some(()));
    cluster.kumi(&["run", "-n", "3", "--nodes", "3", "true"]).ok();
    other.must_run();
    other.end();
    cluster.down().ok();
    daemon.finish();
}

/// `kumi run` of a job on three nodes.
fn on_three_nodes<'a>(options: &[&'a str]) -> Vec<&'a str> {
    [&["run"][..], options, &["-n", "3", "--nodes", "3", "true"]].concat()
}

#[test]
fn a_job_waits_for_a_node_that_is_down_unless_it_may_not() {
    let mut cluster = TestCluster::up(3);
    machine::signal(cluster.pid("node-2"), Signal::SIGKILL);
    command::wait_for("loss of the node", || (cluster.nodes_up() == 2).then_some(()));
    let down = "it wants 3 processors, and the nodes that are up, 2 of 3, have 2";
    cluster.kumi(&on_three_nodes(&["--wait", "no"])).fails(75, &["cannot start at once", down]);
    let late = cluster.kumi(&on_three_nodes(&["--wait=1s", "--name", "late"]));
    late.fails(75, &["(late): it did not start within 1s", down]);
    let job = cluster.job("late").expect("it was accepted");
    assert_eq!(job["outcome"]["kind"], "withdrawn", "{job}");

    // Nobody ends the one that may wait. Whoever looks sees why it does.
    let mut patient = cluster.start(&on_three_nodes(&["--name", "patient"]));
    let line = patient.error_line();
    assert!(line.contains("(patient) waits: ") && line.contains(down), "{line}");
    let job = cluster.wait_state("patient", "queued");
    let reason = &job["waits_for"];
    assert_eq!((&reason["kind"], &reason["up"]), (&"nodes_down".into(), &2.into()), "{job}");
    let table = cluster.kumi(&["ps"]).ok().out;
    assert!(table.contains("3 processors, 2 of 3 nodes up"), "{table}");
    assert!(patient.runs(), "its command has given up");
    let follower = cluster.start(&["attach", &job["job"].to_string()]);
    assert!(follower.error_line().contains(down), "{}", follower.error_line());

    let daemon = cluster.start_daemon(2, &["node", "--node", "2"]);
    let done = patient.finish().ok();
    assert_eq!(done.err.matches(" waits: ").count(), 1, "{done:?}");
    follower.finish().ok();
    cluster.kumi(&on_three_nodes(&["--wait", "no"])).ok();
    cluster.down().ok();
    daemon.finish();
}

#[test]
fn a_killed_head_takes_no_job_with_it() {
    // However long a starved machine takes to start the head again, the lease holds.
    let mut cluster = TestCluster::up_with(2, &["--lease", "100s"]);
    cluster.kumi(&["run", "--name", "before", "true"]).ok();
    // Long enough to be there before, while and after the head is away.
    let script = "i=0; while test $i -lt 80; do echo $KUMI_RANK $i; sleep 0.1; i=$((i+1)); done";
    let args = ["run", "-n", "2", "--nodes", "2", "--name", "steady", "sh", "-c", script];
    let job = cluster.start(&args);
    let record = cluster.wait_state("steady", "running");
    cluster.wait_lines(&record, 10);
    machine::signal(cluster.pid("head"), Signal::SIGKILL);
    // Daemons and ranks go on while there is no head.
    std::thread::sleep(Duration::from_millis(700));
    let head = cluster.start_daemon(0, &["head"]);
    let done = job.finish().ok();
    for rank in 0..2 {
        let prefix = format!("{rank} ");
        let of_rank = done.out.lines().filter_map(|line| line.strip_prefix(&prefix));
        let expected = (0..80).map(|number| number.to_string());
        assert!(of_rank.eq(expected), "rank {rank}: lines are missing or doubled: {done:?}");
    }
    // The table has each job once, and new ones get new numbers.
    cluster.kumi(&["run", "--name", "after", "true"]).ok();
    let jobs = cluster.json(&["ps", "--all", "--json"]);
    let jobs = jobs.as_array().expect("an array");
    let mut names: Vec<&str> = jobs.iter().filter_map(|job| job["name"].as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["after", "before", "steady"]);
    let mut numbers: Vec<u64> = jobs.iter().filter_map(|job| job["job"].as_u64()).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), 3);
    cluster.down().ok();
    head.finish();
}

#[test]
fn top_stays_while_the_head_is_away() {
    let mut cluster = TestCluster::up_with(1, &["--lease", "100s"]);
    let mut top = TestTerminal::start(&cluster.command(&["top"]));
    top.wait_text("1 of 1 nodes up");
    machine::signal(cluster.pid("head"), Signal::SIGKILL);
    top.wait_text("no head for ");
    // The node's daemon answers in its place, that there is none. A window of another size is drawn anew, not only what changed.
    let mut rows = (31..40).cycle();
    command::wait_for("what the node's daemon says", || {
        top.resize(rows.next().expect("it goes on"), 200);
        top.screen().contains("cannot be reached").then_some(())
    });
    let head = cluster.start_daemon(0, &["head"]);
    top.wait_text("nodes up, gang scheduling");
    machine::signal(head.pid(), Signal::SIGKILL);
    head.finish();
    top.wait_text("no head for ");
    top.type_keys("q");
    assert_eq!(top.finish().code(), Some(0));
    let head = cluster.start_daemon(0, &["head"]);
    command::wait_for("the head to answer", || {
        (cluster.kumi(&["cluster", "status"]).code() == 0).then_some(())
    });
    cluster.kumi(&["run", "true"]).ok();
    cluster.down().ok();
    head.finish();
}

#[test]
fn who_asks_a_head_that_stands_still_reads_what_is_waited_for() {
    let cluster = TestCluster::up_with(2, &["--lease", "600s"]);
    let mut job = Job::start(&cluster, "steady", 2, 2);
    let head = cluster.pid("head");
    machine::signal(head, Signal::SIGSTOP);
    let asked: [&[&str]; 3] = [&["ps"], &["cluster", "status"], &["run", "-n", "2", "true"]];
    let asking = asked.map(|args| cluster.start(args));
    for command in &asking {
        let line = command.error_line();
        assert!(line.contains("the head does not answer"), "{line}");
    }
    // Until the nodes have given their links up, and a little longer.
    command::wait_for("end of the links", || {
        let log = std::fs::read_to_string(cluster.path().join("node-1.log")).ok()?;
        log.contains("the link to the parent is gone").then_some(())
    });
    job.must_run();
    machine::signal(head, Signal::SIGCONT);
    for command in asking {
        command.finish().ok();
    }
    job.must_run();
    cluster.kumi(&["kill", &job.record["job"].to_string()]).ok();
    job.run.finish();
}

#[test]
fn without_a_head_for_longer_than_the_lease_jobs_end() {
    let cluster = TestCluster::up_with(2, &["--lease", "2s"]);
    let job = Job::start(&cluster, "leased", 2, 2);
    machine::signal(cluster.pid("head"), Signal::SIGKILL);
    let ranks = job.ranks.clone();
    command::wait_for("end of the ranks", || {
        ranks.iter().all(|&rank| !machine::lives(rank)).then_some(())
    });
    assert!(machine::lives(cluster.pid("node-0")), "the daemons wait for a head");
    let head = cluster.start_daemon(0, &["head"]);
    let done = job.run.finish();
    // Whose fault it was: no node's.
    done.fails(75, &["the head was away", "lease"]);
    command::wait_for("return of the nodes", || {
        let status = cluster.kumi(&["cluster", "status"]);
        (status.code() == 0 && cluster.nodes_up() == 2).then_some(())
    });
    cluster.kumi(&["run", "-n", "2", "--nodes", "2", "true"]).ok();
    drop(cluster);
    head.finish();
}

#[test]
fn an_inner_daemon_of_the_tree_is_survived() {
    // Fan-out 2: nodes 0 and 1 attach to the head, the others below them.
    let cluster = TestCluster::up_with(6, &["--fan-out", "2"]);
    let status = cluster.json(&["cluster", "status", "--json"]);
    assert_eq!(status["nodes"].as_array().map(Vec::len), Some(6));
    let doomed = Job::start(&cluster, "doomed", 6, 6);
    let since = Instant::now();
    machine::signal(cluster.pid("node-0"), Signal::SIGKILL);
    doomed.must_fail(since, 75, &["node0", "lost"]);
    command::wait_for("its children elsewhere", || (cluster.nodes_up() == 5).then_some(()));
    cluster.kumi(&["run", "-n", "5", "--nodes", "5", "true"]).ok();
}
