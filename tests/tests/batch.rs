//! Whole-system tests of jobs that nobody follows: submitted, waited for, after others, in arrays, with limits of time.

use kumi_tests::cluster::TestCluster;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

/// Submits; returns what the command printed, without its newline.
#[track_caller]
fn submit(cluster: &TestCluster, args: &[&str]) -> String {
    let done = cluster.kumi(&[&["submit"], args].concat()).ok();
    done.out.trim_end().to_owned()
}

fn script(cluster: &TestCluster, name: &str, text: &str) -> PathBuf {
    let path = cluster.state().join(name);
    std::fs::write(&path, text).expect("our directory");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("our file");
    path
}

#[test]
fn a_submitted_script_has_options_in_it_and_needs_no_file_later() {
    let cluster = TestCluster::up(2);
    let text = "#!/bin/sh\n#KUMI -n 2 --nodes 2 --name scripted\necho rank $KUMI_RANK of $KUMI_RANKS $1\ncat\n";
    let path = script(&cluster, "job.sh", text);
    let gate = submit(&cluster, &["--name", "gate", "sleep", "600"]);
    let name = path.display().to_string();
    let job = submit(&cluster, &["--after", &format!("{gate}:any"), &name, "word"]);
    assert_eq!(cluster.job("scripted").expect("it waits")["waits_for"]["kind"], "after");
    // It came with the request.
    std::fs::remove_file(&path).expect("our file");
    cluster.kumi(&["kill", &gate, "--grace", "0s"]).ok();
    cluster.kumi(&["wait", &gate]).fails(137, &["it was killed"]);
    cluster.kumi(&["wait", &job]).ok();
    let out = cluster.kumi(&["logs", &job]).ok().out;
    let mut lines: Vec<&str> = out.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["rank 0 of 2 word", "rank 1 of 2 word"]);
}

#[test]
fn wait_ends_as_the_job_and_what_depends_on_a_failed_one_is_withdrawn() {
    let cluster = TestCluster::up(1);
    let fails = submit(&cluster, &["sh", "-c", "exit 3"]);
    let well = submit(&cluster, &["true"]);
    cluster.kumi(&["wait", &fails, &well]).fails(3, &["exited with code 3"]);
    cluster.kumi(&["wait", &well]).ok();
    cluster.kumi(&["wait", "77"]).fails(66, &["there is no job 77"]);
    cluster.kumi(&["submit", "--after", &fails, "true"]).fails(75, &["did not succeed", ":any"]);
    let slow = submit(&cluster, &["--name", "slow", "sh", "-c", "sleep 600; exit 1"]);
    let late = submit(&cluster, &["--after", &slow, "true"]);
    cluster.kumi(&["kill", &slow, "--grace", "0s"]).ok();
    cluster.kumi(&["wait", &late]).fails(75, &["after job"]);
}

#[test]
fn an_array_runs_so_many_at_a_time() {
    let cluster = TestCluster::up(2);
    let range = submit(&cluster, &["--array", "3-8%2", "sh", "-c", "echo index $KUMI_ARRAY_INDEX"]);
    let (first, last) = range.split_once('-').expect("two numbers");
    assert_eq!(last.parse::<u64>().expect("a number") - first.parse::<u64>().expect("a number"), 5);
    // One job after all of them.
    let after = submit(&cluster, &["--after", &range, "true"]);
    cluster.kumi(&["wait", &range, &after]).ok();
    assert_eq!(cluster.kumi(&["logs", first]).ok().out, "index 3\n");
    assert_eq!(cluster.kumi(&["logs", last]).ok().out, "index 8\n");
    cluster.kumi(&["submit", "--array", "5-1", "true"]).fails(64, &["is not an array"]);
    cluster.kumi(&["kill", &range]).ok();
}

#[test]
fn a_time_limit_ends_a_job() {
    let cluster = TestCluster::up(1);
    let endless = "trap 'echo over; exit 0' TERM; while :; do sleep 0.05; done";
    let run = cluster.start(&["run", "--time", "2s", "sh", "-c", endless]);
    let run = run.finish().fails(124, &["time limit of 2.0s", "--time"]);
    assert_eq!(run.out, "over\n", "its ranks were asked to end");
}

#[test]
fn ps_lists_what_is_asked_for() {
    let cluster = TestCluster::up(2);
    let range = submit(&cluster, &["--name", "task", "--array", "1-3", "true"]);
    let fails = submit(&cluster, &["--name", "fails", "false"]);
    cluster.kumi(&["wait", &range]).ok();
    cluster.kumi(&["wait", &fails]).fails(1, &[]);
    let waits = submit(&cluster, &["--name", "sleeps", "sleep", "600"]);
    let columns = |options: &[&str]| {
        let args = [&["ps", "--no-headings", "--format", "job,name,index,state"], options].concat();
        let out = cluster.kumi(&args).ok().out;
        out.lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect::<Vec<_>>()
    };
    let done = ["1 task 1 done", "2 task 2 done", "3 task 3 done"];
    assert_eq!(columns(&["--all", "--filter", "name=TASK"]), done);
    assert_eq!(
        columns(&["--filter", "state=ended", "--filter", "name=fail"]),
        ["4 fails - exit 1 (rank 0)"]
    );
    assert_eq!(columns(&["--user", "nobody-of-this-name"]), [] as [&str; 0]);
    cluster.wait_state("sleeps", "running");
    let listed = cluster.json(&["ps", "--json", "--filter", "state=running"]);
    assert_eq!(listed[0]["job"].to_string(), waits);
    cluster.kumi(&["ps", "--filter", "node=nowhere"]).fails(64, &["no node 'nowhere'"]);
    cluster.kumi(&["kill", &waits, "--grace", "0s"]).ok();
}
