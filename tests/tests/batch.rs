//! Whole-system tests of jobs that nobody follows: submitted, waited for, after others, in arrays, with limits of time.

use kumi_tests::cluster::TestCluster;
use kumi_tests::command::RunningCommand;
use kumi_tests::machine;
use nix::sys::signal::Signal;
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
fn a_script_is_submitted_by_its_name_alone_or_on_standard_input() {
    let cluster = TestCluster::up(2);
    let text = "#!/bin/sh\n#KUMI -n 2 --nodes 2\necho rank $KUMI_RANK of $KUMI_RANKS $1\ncat\n";
    // As any editor leaves it: nobody may execute it.
    std::fs::write(cluster.state().join("job.sh"), text).expect("our directory");
    let start = |args: &[&str]| {
        let mut command = cluster.command(args);
        command.current_dir(cluster.state());
        RunningCommand::start(command)
    };
    let gone = cluster.state().join("options.toml");
    std::fs::write(&gone, "name = \"filed\"\n").expect("our directory");
    let named = start(&["submit", "job.sh", "word"]);
    let mut given = start(&["submit", "--name", "given", "-", "word"]);
    given.write(text);
    let mut filed = start(&["submit", "--job-file", "options.toml"]);
    filed.write(text);
    let jobs = [(named, "job.sh", " word"), (given, "given", " word"), (filed, "filed", "")];
    for (command, name, word) in jobs {
        let job = command.finish().ok().out.trim_end().to_owned();
        cluster.kumi(&["wait", &job]).ok();
        let out = cluster.kumi(&["logs", &job]).ok().out;
        let mut lines: Vec<&str> = out.lines().map(str::trim_end).collect();
        lines.sort_unstable();
        let ranks = [0, 1].map(|rank| format!("rank {rank} of 2{word}"));
        assert_eq!(lines, ranks, "{name}");
        assert_eq!(cluster.job(name).expect("it is known")["job"].to_string(), job);
    }
    start(&["submit"]).finish().fails(64, &["is no script", "name a program"]);
    start(&["run", "job.sh"]).finish().fails(127, &["write ./job.sh"]);
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
    let some =
        submit(&cluster, &["--array", "9,1-2%1", "sh", "-c", "echo index $KUMI_ARRAY_INDEX"]);
    cluster.kumi(&["wait", &some]).ok();
    let (first, last) = some.split_once('-').expect("two numbers");
    assert_eq!(cluster.kumi(&["logs", first]).ok().out, "index 1\n");
    assert_eq!(cluster.kumi(&["logs", last]).ok().out, "index 9\n");
    cluster.kumi(&["submit", "--array", "5-1", "true"]).fails(64, &["is not an array"]);
    cluster.kumi(&["kill", &range]).ok();
}

#[test]
fn kill_takes_several_jobs_and_large_ranges() {
    let cluster = TestCluster::up(1);
    let [one, two] = ["one", "two"].map(|name| submit(&cluster, &["--name", name, "sleep", "600"]));
    cluster.kumi(&["kill", &one, &two, "--grace", "0s"]).ok();
    for job in [&one, &two] {
        cluster.kumi(&["wait", job]).fails(137, &["it was killed"]);
    }
    // More than the command may have asked for at a time. Most of them wait.
    let range = submit(&cluster, &["--array", "1-500%1", "sleep", "600"]);
    cluster.kumi(&["kill", &range, "--grace", "0s"]).ok();
    let listed = cluster.json(&["ps", "--json", "--all", "--filter", "state=ended"]);
    let listed = listed.as_array().expect("a list");
    assert_eq!(listed.len(), 502, "each was answered when it was over");
    let killed = |job: &&serde_json::Value| job["outcome"]["kind"] == "killed";
    assert_eq!(listed.iter().filter(killed).count(), 502);
    assert!(!listed.iter().any(|job| job["name"] == "sleep" && job["restarts"] != 0));
    // Numbers without a job are named, and those with one are ended all the same.
    let last = submit(&cluster, &["--name", "last", "sleep", "600"]);
    let beyond = last.parse::<u64>().expect("a number") + 1;
    let mixed = ["kill", &format!("1-{beyond}"), "--grace", "0s"];
    cluster.kumi(&mixed).fails(66, &[&format!("there is no job {beyond}")]);
    cluster.kumi(&["wait", &last]).fails(137, &["it was killed"]);
}

/// A rank sees before the head that its peer is gone with its node, and fails.
#[test]
fn a_job_with_requeue_is_started_again_when_a_rank_fails_for_a_lost_node() {
    let mut cluster = TestCluster::up(2);
    let folder = tempfile::tempdir().expect("a folder");
    let script = format!(
        "cd {}; test $KUMI_RESTARTS = 0 || exit 0; \
         if test $KUMI_RANK = 1; then echo $$ > new; mv new peer; echo up; exec sleep 600; fi; \
         until test -e peer; do sleep 0.01; done; echo up; \
         while kill -0 $(cat peer) 2> /dev/null; do sleep 0.01; done; exit 7",
        folder.path().display()
    );
    let run = cluster.start(&[
        "run",
        "-n",
        "2",
        "--nodes",
        "2",
        "--requeue",
        "--name",
        "peers",
        "sh",
        "-c",
        &script,
    ]);
    let job = cluster.wait_state("peers", "running");
    cluster.wait_lines(&job, 2);
    let peer = job["nodes"][1].as_u64().expect("the node of rank 1");
    machine::signal(cluster.pid(&format!("node-{peer}")), Signal::SIGKILL);
    cluster.kumi(&["cluster", "up"]).ok();
    let done = run.finish().ok();
    assert_eq!(done.out, "up\nup\n");
    let said = format!("was started again (1): node node{peer} was lost");
    assert!(done.err.contains(&said), "{}", done.err);
    cluster.down().ok();
}

#[test]
fn a_job_with_requeue_is_started_again_when_its_node_is_lost() {
    let mut cluster = TestCluster::up(2);
    // Only its second start ends.
    let script =
        "echo start $KUMI_RESTARTS of $KUMI_JOB; test $KUMI_RESTARTS = 1 || exec sleep 600";
    let run = cluster.start(&["run", "--requeue", "--name", "again", "sh", "-c", script]);
    let job = cluster.wait_state("again", "running");
    cluster.wait_lines(&job, 1);
    let node = job["nodes"][0].as_u64().expect("its node");
    machine::signal(cluster.pid(&format!("node-{node}")), Signal::SIGKILL);
    let done = run.finish().ok();
    let number = job["job"].to_string();
    let both = format!("start 0 of {number}\nstart 1 of {number}\n");
    assert_eq!(done.out, both);
    let said = format!("was started again (1): node node{node} was lost");
    assert!(done.err.contains(&said), "{}", done.err);
    // Who reads it later finds the same.
    let logs = cluster.kumi(&["logs", &number]).ok();
    assert!(logs.out == both && logs.err.contains(&said), "{logs:?}");
    let job = cluster.job("again").expect("it is known");
    assert_eq!((&job["restarts"], &job["outcome"]["kind"]), (&1.into(), &"success".into()));
    assert!(cluster.kumi(&["ps", "--all"]).ok().out.contains("RESTARTS"));
    // Its own end is not a reason, and one that is killed is not started again.
    let fails = submit(&cluster, &["--requeue=3", "--name", "fails", "sh", "-c", "exit 4"]);
    cluster.kumi(&["wait", &fails]).fails(4, &["exited with code 4"]);
    let killed = submit(&cluster, &["--requeue=3", "--name", "killed", "sleep", "600"]);
    cluster.wait_state("killed", "running");
    cluster.kumi(&["kill", &killed, "--grace", "0s"]).ok();
    cluster.kumi(&["wait", &killed]).fails(137, &["it was killed"]);
    for name in ["fails", "killed"] {
        assert_eq!(cluster.job(name).expect("it is known")["restarts"], 0);
    }
    cluster.kumi(&["run", "--requeue=1001", "true"]).fails(64, &["1001"]);
    cluster.down().ok();
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
    let says = ["no user 'nobody-of-this-name' is known"];
    cluster.kumi(&["ps", "--user", "nobody-of-this-name"]).fails(64, &says);
    cluster.kumi(&["ps", "--json", "--user", "nobody-of-this-name"]).fails(64, &says);
    // Users without jobs are users, and numbers need no name.
    assert_eq!(columns(&["--user", "bin"]), [] as [&str; 0]);
    assert_eq!(columns(&["--user", "3999999999"]), [] as [&str; 0]);
    cluster.wait_state("sleeps", "running");
    let listed = cluster.json(&["ps", "--json", "--filter", "state=running"]);
    assert_eq!(listed[0]["job"].to_string(), waits);
    cluster.kumi(&["ps", "--filter", "node=nowhere"]).fails(64, &["no node 'nowhere'"]);
    cluster.kumi(&["kill", &waits, "--grace", "0s"]).ok();
}
