//! Jobs with terminals: keys, sizes, signals, clients that come and go.
#![forbid(unsafe_code)]

use kumi_tests::cluster::TestCluster;
use kumi_tests::command::wait_for;
use kumi_tests::machine;
use kumi_tests::terminal::TestTerminal;
use nix::sys::signal::Signal;
use serde_json::Value;

/// A shell that reads no files of the user's and has this prompt.
const SHELL: [&str; 6] = ["--env", "PS1=ready> ", "bash", "--norc", "--noprofile", "-i"];

fn terminal(cluster: &TestCluster, args: &[&str]) -> TestTerminal {
    TestTerminal::start(&cluster.command(args))
}

fn run(cluster: &TestCluster, options: &[&str], program: &[&str]) -> TestTerminal {
    terminal(cluster, &[&["run", "-it", "--name", "it"], options, program].concat())
}

fn shell(cluster: &TestCluster) -> TestTerminal {
    let mut shell = run(cluster, &[], &SHELL);
    shell.wait_text("ready> ");
    shell
}

fn number(job: &Value) -> String {
    job["job"].to_string()
}

fn attach(cluster: &TestCluster, job: &Value) -> TestTerminal {
    terminal(cluster, &["attach", &number(job)])
}

#[test]
fn a_shell_is_as_a_local_one() {
    let cluster = TestCluster::up(2);
    let mut shell = shell(&cluster);
    assert!(!shell.is_cooked());
    shell.type_keys("echo a$((1+1))b; tty; echo $TERM\r");
    shell.wait_text("a2b\r\n/dev/pts/");
    shell.wait_text("dumb\r\n");
    shell.type_keys("stty size\r");
    shell.wait_text("30 100\r\n");
    shell.resize(20, 80);
    // The size comes by another way than keys, which it does not overtake.
    wait_for("the new size", || {
        shell.type_keys("stty size\r");
        shell.wait_text("ready> ");
        shell.screen().contains("20 80\r\n").then_some(())
    });
    shell.type_keys("exit 3\r");
    assert_eq!(shell.finish().code(), Some(3));
    assert!(shell.is_cooked(), "the terminal is as it was");
}

#[test]
fn keys_that_make_signals() {
    let cluster = TestCluster::up(1);
    let mut shell = shell(&cluster);
    shell.type_keys(
        "bash -c 'trap \"echo g\"ot\"; exit 7\" INT; echo be\"\"gun; while :; do sleep 0.1; done'; echo code $?\r",
    );
    shell.wait_text("begun\r\n");
    shell.type_keys("\x03");
    shell.wait_text("got\r\ncode 7\r\n");
    // What is typed before the shell has handed the terminal over is not a line yet.
    shell.type_keys("echo g\"\"o; cat\r");
    shell.wait_text("go\r\n");
    shell.type_keys("one\r");
    shell.wait_text("one\r\none\r\n");
    shell.type_keys("\x1a");
    shell.wait_text("Stopped");
    shell.wait_text("ready> ");
    shell.type_keys("jobs\r");
    shell.wait_text("Stopped");
    shell.wait_text("ready> ");
    shell.type_keys("fg\r");
    shell.wait_text("cat\r\n");
    shell.type_keys("two\r");
    shell.wait_text("two\r\ntwo\r\n");
    shell.type_keys("\x04");
    shell.wait_text("ready> ");
    shell.type_keys("\x04");
    assert_eq!(shell.finish().code(), Some(0));
    assert_eq!(cluster.job("it").expect("it was there")["state"], "ended");
}

#[test]
fn other_ranks_have_lines_of_their_own() {
    let cluster = TestCluster::up(2);
    let script = "test -t 0 && echo rank $KUMI_RANK has a terminal; test -t 1 || echo rank $KUMI_RANK has none";
    let mut both = run(&cluster, &["-n", "2", "--nodes", "2"], &["sh", "-c", script]);
    assert_eq!(both.finish().code(), Some(0));
    let screen = both.screen();
    for line in ["rank 0 has a terminal\r\n", "rank 1 has none\r\n"] {
        assert!(screen.contains(line), "{screen:?}");
    }
}

#[test]
fn without_a_terminal_there_is_none_to_show() {
    let cluster = TestCluster::up(1);
    cluster.kumi(&["run", "-t", "true"]).fails(64, &["terminal", "leave out -t"]);
    cluster.kumi(&["run", "-t", "--label", "true"]).fails(64, &["--label"]);
    cluster.kumi(&["run", "-t", "--escape", "ab", "true"]).fails(64, &["one character"]);
    assert_eq!(cluster.json(&["ps", "--all", "--json"]).as_array().map(Vec::len), Some(0));
    cluster.kumi(&["run", "-i", "true"]).ok();
}

/// Counts to 400, a line for each, and takes some time.
const COUNTS: &str = "i=0; while test $i -lt 400; do i=$((i+1)); echo line $i.; sleep 0.01; done";

/// Each line is there once, and they are in order.
#[track_caller]
fn counted(screen: &str) {
    let lines = screen.split("\r\n").filter(|line| line.starts_with("line "));
    let expected = (1..=400).map(|number| format!("line {number}."));
    assert!(lines.eq(expected), "lines are missing, doubled or out of order: {screen:?}");
}

#[test]
fn a_client_that_is_killed_loses_nothing() {
    let cluster = TestCluster::up(1);
    let mut first =
        run(&cluster, &[], &["bash", "-c", &format!("{COUNTS}; read word; echo it was $word")]);
    first.wait_text("line 20.");
    machine::signal(first.pid(), Signal::SIGKILL);
    first.finish();
    let job = cluster.wait_state("it", "running");
    let mut second = attach(&cluster, &job);
    second.wait_text("line 400.");
    second.type_keys("hello\r");
    second.wait_text("it was hello\r\n");
    assert_eq!(second.finish().code(), Some(0));
    counted(&second.screen());
    assert!(second.is_cooked());
}

#[test]
fn a_head_that_is_started_again_doubles_nothing() {
    let mut cluster = TestCluster::up(1);
    let mut shown =
        run(&cluster, &[], &["bash", "-c", &format!("{COUNTS}; read word; echo it was $word")]);
    shown.wait_text("line 20.");
    let old = cluster.pid("head");
    machine::signal(old, Signal::SIGKILL);
    wait_for("end of the head", || (!machine::lives(old)).then_some(()));
    let head = cluster.start_daemon(0, &["head"]);
    shown.wait_text("the head is back");
    shown.wait_text("line 400.");
    shown.type_keys("hello\r");
    shown.wait_text("it was hello\r\n");
    assert_eq!(shown.finish().code(), Some(0));
    // Only what was on its way to the head that died is lost with it.
    let screen = shown.screen();
    let lines: Vec<&str> = screen.split("\r\n").filter(|line| line.starts_with("line ")).collect();
    let mut sorted = lines.clone();
    sorted.dedup();
    assert_eq!(lines, sorted, "lines are doubled: {screen:?}");
    cluster.down().ok();
    head.finish();
}

#[test]
fn a_job_outlives_its_terminal_unless_its_user_wants_otherwise() {
    let cluster = TestCluster::up(1);
    let first = shell(&cluster);
    let job = cluster.wait_state("it", "running");
    assert_eq!(first.hang_up().code(), Some(129));
    let mut second = attach(&cluster, &job);
    second.wait_text("ready> ");
    second.type_keys("echo st\"\"ill\r");
    second.wait_text("still\r\n");
    second.type_keys("~");
    second.type_keys(".");
    assert_eq!(second.finish().code(), Some(0));
    assert!(second.is_cooked());
    second.wait_text(&format!("kumi attach {}", number(&job)));
    assert_eq!(cluster.job("it").expect("it runs")["state"], "running");
    let mut third = terminal(&cluster, &["attach", "--hangup", "end", &number(&job)]);
    third.wait_text("still");
    third.wait_text("ready> ");
    assert_eq!(third.hang_up().code(), Some(129));
    cluster.wait_state("it", "ended");
}

#[test]
fn who_attaches_is_shown_a_window_of_ones_own_size() {
    let cluster = TestCluster::up(1);
    let script = "trap 'stty size' WINCH; echo be\"\"gun; while :; do sleep 0.05; done";
    let mut first = run(&cluster, &[], &["bash", "-c", script]);
    first.wait_text("begun");
    let job = cluster.wait_state("it", "running");
    first.type_keys("\r~.");
    assert_eq!(first.finish().code(), Some(0));
    let mut second = attach(&cluster, &job);
    second.wait_text("30 100\r\n");
    // A shell forgets a signal that comes while it handles the same one, so the size changes more than once.
    wait_for("the size of the window", || {
        second.resize(11, 23);
        second.resize(11, 22);
        std::thread::sleep(std::time::Duration::from_millis(200));
        second.screen().contains("11 22\r\n").then_some(())
    });
    // The same size again: programs draw anew all the same.
    let mut third = attach(&cluster, &job);
    third.wait_text("11 22\r\n");
    third.wait_text("30 100\r\n");
    second.wait_text("30 100\r\n");
    cluster.kumi(&["kill", &number(&job)]).ok();
    assert_eq!((second.finish().code(), third.finish().code()), (Some(137), Some(137)));
}

#[test]
fn two_clients_share_a_terminal() {
    let cluster = TestCluster::up(1);
    let mut one = shell(&cluster);
    let job = cluster.wait_state("it", "running");
    let mut two = attach(&cluster, &job);
    two.wait_text("ready> ");
    two.type_keys("echo from \"\"two\r");
    one.wait_text("from two\r\n");
    two.wait_text("from two\r\n");
    one.type_keys("echo from \"\"one; exit 4\r");
    two.wait_text("from one\r\n");
    assert_eq!((one.finish().code(), two.finish().code()), (Some(4), Some(4)));
}

/// Resident memory of a process, in KiB.
fn memory(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its memory");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

#[test]
fn a_client_that_does_not_read_costs_no_memory() {
    const MIB: u64 = 64;
    let cluster = TestCluster::up(1);
    let script = format!(
        "echo be\"\"gun; read x; head -c {} /dev/zero | tr '\\0' x; echo; echo wri\"\"tten; read x",
        MIB << 20
    );
    let mut slow = run(&cluster, &[], &["bash", "-c", &script]);
    slow.wait_text("begun");
    let job = cluster.wait_state("it", "running");
    let daemons = [cluster.pid("head"), cluster.pid("node-0"), slow.pid()];
    let before = daemons.map(memory);
    slow.set_reading(false);
    slow.type_keys("\r");
    let prefix = format!("{}.", number(&job));
    let spooled = || -> u64 {
        let entries = std::fs::read_dir(cluster.path().join("spool")).expect("the spool").flatten();
        let of_job =
            entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix));
        of_job.filter_map(|entry| entry.metadata().ok()).map(|file| file.len()).sum()
    };
    wait_for("output in the spool", || (spooled() > 1 << 20).then_some(()));
    for (pid, before) in daemons.into_iter().zip(before) {
        let more = memory(pid).saturating_sub(before);
        assert!(more < (MIB << 10) / 2, "process {pid} keeps {more} KiB of the output");
    }
    let ahead = spooled();
    assert!(ahead < MIB << 18, "the job is {ahead} bytes ahead of who does not read");
    slow.set_reading(true);
    slow.wait_text("written");
    slow.type_keys("\r");
    assert_eq!(slow.finish().code(), Some(0));
    assert!(spooled() > MIB << 20);
}

#[test]
fn a_shell_at_its_prompt_is_idle_and_a_key_needs_no_turn() {
    // A turn lasts longer than the test is patient.
    let cluster = TestCluster::up_with(1, &["--idle-after", "200ms"]);
    let mut shell = shell(&cluster);
    wait_for("an idle shell", || cluster.job("it").filter(|job| job["idle"] == true));
    let other = cluster.start(&["run", "--name", "other", "sh", "-c", "while :; do :; done"]);
    let computes = cluster.wait_state("other", "running");
    let switches = || {
        let stats = cluster.json(&["stats", "--json"]);
        stats["nodes"][0]["switching"]["count"].as_u64().expect("a number")
    };
    let before = switches();
    shell.type_keys("echo st\"\"ill\r");
    shell.wait_text("still\r\n");
    assert_eq!(switches(), before, "it is answered beside the job that computes");
    assert_eq!(cluster.job("it").expect("it runs")["idle"], true);
    // What needs time gets turns.
    shell.type_keys("while :; do :; done\r");
    wait_for("a shell that works", || cluster.job("it").filter(|job| job["idle"] == false));
    wait_for("turns of both", || (switches() > before + 3).then_some(()));
    shell.type_keys("\x03");
    shell.wait_text("ready> ");
    wait_for("an idle shell", || cluster.job("it").filter(|job| job["idle"] == true));
    cluster.kumi(&["kill", &number(&computes)]).ok();
    other.finish().fails(137, &[]);
    shell.type_keys("exit 0\r");
    assert_eq!(shell.finish().code(), Some(0));
}
