//! Running jobs: placement, streams, signals, exit codes.
#![forbid(unsafe_code)]

use kumi_tests::binaries;
use kumi_tests::cluster::TestCluster;
use kumi_tests::command::RunningCommand;
use kumi_tests::machine;
use nix::sys::signal::Signal;

/// A job that says its process numbers and then waits to be ended.
const WAITS: &str = "echo $$; exec sleep 600";

fn lines(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn eight_ranks_on_four_nodes() {
    let mut cluster = TestCluster::up(4);
    let say = "echo rank $KUMI_RANK of $KUMI_RANKS on $KUMI_NODE";
    let out = cluster.kumi(&["run", "-n", "8", "--nodes", "4", "sh", "-c", say]).ok().out;
    let want: Vec<String> =
        (0..8).map(|rank| format!("rank {rank} of 8 on {}", rank / 2)).collect();
    assert_eq!(lines(&out), want);

    // The same through the library: a message goes round all ranks.
    let hello = binaries::path("hello").display().to_string();
    let out = cluster.kumi(&["run", "-n", "8", "--nodes", "4", &hello]).ok().out;
    assert_eq!(out.lines().count(), 8, "{out}");
    assert!(out.contains("hello from rank 7 of 8 on node 3, turn 7"), "{out}");
    cluster.down().ok();
}

#[test]
fn a_program_that_never_calls_kumi_runs_too() {
    let cluster = TestCluster::up(2);
    cluster.kumi(&["run", "-n", "4", "true"]).ok();
    cluster.kumi(&["run", "-n", "4", "false"]).fails(1, &["rank", "code 1"]);
}

#[test]
fn the_exit_code_is_the_first_failing_ranks() {
    let cluster = TestCluster::up(2);
    let run = |script: &str| {
        cluster.kumi(&["run", "-n", "4", "--nodes", "2", "--name", "x", "sh", "-c", script])
    };
    // The other ranks would run for ever: the failure ends them.
    run("test $KUMI_RANK != 3 || exit 7; sleep 600").fails(7, &["rank 3", "node1", "code 7"]);
    run("test $KUMI_RANK != 0 || kill -SEGV $$; sleep 600")
        .fails(139, &["rank 0", "node0", "11 (SIGSEGV)"]);
    let job = cluster.job("x").expect("it is in the table");
    assert_eq!(job["state"], "ended");
}

#[test]
fn environment_directory_and_arguments_arrive() {
    let cluster = TestCluster::up(2);
    let script = r#"pwd; echo "$A/$1/$2""#;
    let args = ["run", "--cwd", "/usr/bin", "--env", "A=b c", "sh", "-c", script, "sh", "", "*"];
    assert_eq!(cluster.kumi(&args).ok().out, "/usr/bin\nb c//*\n");
}

#[test]
fn input_goes_to_rank_0_only() {
    let cluster = TestCluster::up(2);
    let script = "cat; echo end";
    let mut job = cluster.start(&["run", "-l", "-n", "2", "--nodes", "2", "sh", "-c", script]);
    job.write("first\n");
    job.write("second\n");
    let out = job.finish().ok().out;
    // The lines of two ranks may come in any order; those of one may not.
    let of_rank = |label: &str| -> Vec<&str> {
        out.lines().filter_map(|line| line.strip_prefix(label)).collect()
    };
    assert_eq!(of_rank("[0] "), ["first", "second", "end"], "{out}");
    assert_eq!(of_rank("[1] "), ["end"], "rank 1 has no input: {out}");
}

#[test]
fn all_output_arrives_in_order() {
    let cluster = TestCluster::up(2);
    let script =
        "i=0; while test $i -lt 20000; do echo $KUMI_RANK $i; i=$((i+1)); done; echo e >&2";
    let done = cluster.kumi(&["run", "-n", "4", "--nodes", "2", "sh", "-c", script]).ok();
    for rank in 0..4 {
        let prefix = format!("{rank} ");
        let of_rank = done.out.lines().filter_map(|line| line.strip_prefix(&prefix));
        let expected = (0..20_000).map(|number| number.to_string());
        assert!(of_rank.eq(expected), "rank {rank}: lines are missing, doubled or out of order");
    }
    assert_eq!(done.err, "e\ne\ne\ne\n");
}

#[test]
fn lines_carry_their_rank_when_asked() {
    let cluster = TestCluster::up(2);
    let out = cluster.kumi(&["run", "-l", "-n", "2", "echo", "hello"]).ok().out;
    let lines = lines(&out);
    assert_eq!(lines, ["[0] hello", "[1] hello"]);
}

#[test]
fn logs_show_what_a_job_has_written() {
    let cluster = TestCluster::up(2);
    let done = cluster.kumi(&["run", "-n", "2", "--name", "said", "echo", "one line"]).ok();
    assert_eq!(done.out, "one line\none line\n");
    let job = cluster.job("said").expect("it is in the table");
    assert_eq!(job["state"], "ended");
    let number = job["job"].to_string();
    assert_eq!(cluster.kumi(&["logs", &number]).ok().out, done.out);
    cluster.kumi(&["logs", "999"]).fails(66, &["999"]);
}

/// Sends `signal` to the `kumi run` of a job whose ranks say what they got.
fn signal_reaches_all_ranks(signal: Signal, name: &str) {
    let cluster = TestCluster::up(2);
    let script = format!(
        "trap 'echo got $KUMI_RANK; exit 9' {name}; echo ready; while :; do sleep 0.05; done"
    );
    let args = ["run", "-n", "4", "--nodes", "2", "--name", "trap", "sh", "-c", &script];
    let job = cluster.start(&args);
    let record = cluster.wait_state("trap", "running");
    cluster.wait_lines(&record, 4);
    machine::signal(job.pid(), signal);
    let done = job.finish();
    assert_ne!(done.code(), 0, "{done:?}");
    let got = lines(&done.out).into_iter().filter(|line| line.starts_with("got")).count();
    assert_eq!(got, 4, "every rank gets the signal: {done:?}");
}

#[test]
fn ctrl_c_reaches_all_ranks() {
    signal_reaches_all_ranks(Signal::SIGINT, "INT");
}

#[test]
fn sigterm_reaches_all_ranks() {
    signal_reaches_all_ranks(Signal::SIGTERM, "TERM");
}

#[test]
fn a_job_can_be_killed_by_its_number() {
    let cluster = TestCluster::up(2);
    let args = ["run", "-n", "2", "--nodes", "2", "--name", "long", "sh", "-c", WAITS];
    let job = cluster.start(&args);
    let record = cluster.wait_state("long", "running");
    let ranks = cluster.wait_lines(&record, 2);
    cluster.kumi(&["kill", &record["job"].to_string()]).ok();
    let done = job.finish();
    assert_ne!(done.code(), 0, "{done:?}");
    assert!(done.err.contains("killed"), "{done:?}");
    for rank in ranks {
        assert!(!machine::lives(rank.parse().expect("a process number")), "rank {rank} lives");
    }
    cluster.kumi(&["kill", "12345"]).fails(66, &["12345"]);
}

#[test]
fn any_signal_reaches_all_ranks() {
    let cluster = TestCluster::up(2);
    let script = "trap 'echo usr1; exit 0' USR1; echo ready; while :; do sleep 0.05; done";
    let args = ["run", "-n", "2", "--nodes", "2", "--name", "x", "sh", "-c", script];
    let job = cluster.start(&args);
    let record = cluster.wait_state("x", "running");
    cluster.wait_lines(&record, 2);
    let number = record["job"].to_string();
    cluster.kumi(&["kill", "--signal", "usr1", &number]).ok();
    assert_eq!(lines(&job.finish().ok().out), ["ready", "ready", "usr1", "usr1"]);
    for wrong in ["0", "65", "WHAT"] {
        cluster.kumi(&["kill", "-s", wrong, &number]).fails(64, &["signal"]);
    }
}

#[test]
fn memory_of_computing_ranks_is_read_under_any_scheduling_of_the_handler() {
    let cluster = TestCluster::up(2);
    let dense = kumi_tests::binaries::path("dense").display().to_string();
    for setting in ["", "other:low", "fifo:high", "rr:even"] {
        let variable = format!("KUMI_HANDLER={setting}");
        for program in ["reads", "lu", "product", "sort"] {
            let args = ["run", "-n", "2", "--nodes", "2", "--env", &variable, &dense, program];
            let done = cluster.kumi(&[&args[..], &["--side", "64"]].concat());
            if done.code() != 0 && done.err.contains("KUMI_HANDLER asks for") {
                kumi_skip::skip(setting, "real-time priorities are not permitted here");
                continue;
            }
            let out = done.ok().out;
            assert!(out.contains("verified=yes"), "{setting} {program}: {out}");
        }
    }
    let args = ["run", "-n", "2", "--nodes", "2", "--env", "KUMI_HANDLER=fast", &dense, "lu"];
    cluster.kumi(&args).fails(64, &["KUMI_HANDLER", "other, rr or fifo"]);
}

#[test]
fn the_handlers_scheduling_is_the_jobs_own_or_the_clusters() {
    let cluster = TestCluster::up_with(1, &["--handler", "other:low"]);
    let said = |options: &[&str]| {
        let args = [&["run"], options, &["sh", "-c", "echo .$KUMI_HANDLER."]].concat();
        cluster.kumi(&args).ok().out
    };
    assert_eq!(said(&[]), ".other:low.\n");
    assert_eq!(said(&["--handler", "rr:high"]), ".rr:high.\n");
    assert_eq!(said(&["--env", "KUMI_HANDLER="]), "..\n");
    cluster.kumi(&["run", "--handler", "fast", "true"]).fails(64, &["fast", "other, rr or fifo"]);
    let file = cluster.path().join("cluster.toml");
    let text = std::fs::read_to_string(&file).expect("the configuration");
    assert!(text.contains("[job]\nhandler = \"other:low\"\n"), "{text}");
}

#[test]
fn a_misspelt_option_is_not_taken_for_a_program() {
    let cluster = TestCluster::up(1);
    cluster
        .kumi(&["run", "--rank", "3", "true"])
        .fails(64, &["'--rank' is not an option", "--ranks?"]);
}

#[test]
fn a_job_outlives_the_command_that_started_it() {
    let cluster = TestCluster::up(2);
    let args = ["run", "-n", "2", "--name", "orphan", "sh", "-c", WAITS];
    let job: RunningCommand = cluster.start(&args);
    let record = cluster.wait_state("orphan", "running");
    let ranks = cluster.wait_lines(&record, 2);
    machine::signal(job.pid(), Signal::SIGKILL);
    drop(job.finish());
    // It is followed by a new command, which ends when the job does.
    let number = record["job"].to_string();
    let follower = cluster.start(&["logs", "-f", &number]);
    assert_eq!(cluster.job("orphan").expect("in the table")["state"], "running");
    assert!(ranks.iter().all(|rank| machine::lives(rank.parse().expect("a number"))));
    cluster.kumi(&["kill", &number]).ok();
    let followed = follower.finish();
    assert_eq!(lines(&followed.out), ranks, "{followed:?}");
}

#[test]
fn jobs_wait_their_turn_and_all_run() {
    let cluster = TestCluster::up(2);
    let jobs: Vec<RunningCommand> = (0..6)
        .map(|number| cluster.start(&["run", "-n", "2", "echo", &number.to_string()]))
        .collect();
    for (number, job) in jobs.into_iter().enumerate() {
        assert_eq!(job.finish().ok().out, format!("{number}\n{number}\n"));
    }
    let all = cluster.json(&["ps", "--all", "--json"]);
    assert_eq!(all.as_array().map(Vec::len), Some(6));
    let running = cluster.json(&["ps", "--json"]);
    assert_eq!(running.as_array().map(Vec::len), Some(0), "{running}");
}
