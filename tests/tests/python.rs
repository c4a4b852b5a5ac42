//! The Python package between ranks: its own program of tests, and the examples.
#![forbid(unsafe_code)]

use kumi_tests::binaries::{self, repository};
use kumi_tests::cluster::TestCluster;
use kumi_tests::command::{self, FinishedCommand, RunningCommand};
use kumi_tests::{deadlock, source};
use std::path::PathBuf;
use std::process::Command;

/// The interpreter with the package: `$KUMI_PYTHON`, which `make test` sets, or that of `make
/// python` beside this test. None, after saying so, if the latter was not built.
fn interpreter(test: &str) -> Option<String> {
    let named = std::env::var_os("KUMI_PYTHON").map(PathBuf::from);
    chosen(named, test).map(|path| path.display().to_string())
}

/// That which was named must be there: nobody would see that nothing was tested.
fn chosen(named: Option<PathBuf>, test: &str) -> Option<PathBuf> {
    if let Some(path) = named {
        assert!(path.is_file(), "KUMI_PYTHON is {}, which is not there", path.display());
        return Some(path);
    }
    let exe = std::env::current_exe().expect("a test knows where it is");
    let target = exe.ancestors().nth(3).expect("tests lie in target/<profile>/deps");
    let path = target.join("python/venv/bin/python");
    if !path.is_file() {
        let reason = format!("there is no {}; run `make python` first", path.display());
        kumi_skip::skip(test, &reason);
        return None;
    }
    Some(path)
}

#[test]
#[should_panic(expected = "which is not there")]
fn an_interpreter_that_was_named_and_is_missing_is_no_reason_to_skip() {
    chosen(Some(PathBuf::from("/nowhere/python")), "none");
}

/// Runs a program of the repository on 2 nodes with 2 ranks each.
#[track_caller]
fn run(cluster: &TestCluster, python: &str, program: &str, arguments: &[&str]) -> FinishedCommand {
    let program = repository().join(program).display().to_string();
    let mut args = vec!["run", "-n", "4", "--nodes", "2", python, &program];
    args.extend(arguments);
    cluster.kumi(&args)
}

#[test]
fn python_programs_communicate() {
    let Some(python) = interpreter("python_programs_communicate") else { return };
    let cluster = TestCluster::up(2);
    let passed = |program: &str| {
        let out = run(&cluster, &python, program, &[]).ok().out;
        out.lines().filter(|line| line.starts_with("passed ")).count()
    };
    for (program, least) in [("ranks.py", 6), ("ranks_collectives.py", 4), ("ranks_shared.py", 5)] {
        let program = format!("bindings/python/tests/{program}");
        let source = std::fs::read_to_string(repository().join(&program));
        let tests = source.expect("the program").matches("\n@test\n").count();
        assert!(tests >= least, "{program}: {tests}");
        assert_eq!(passed(&program), 4 * tests, "{program}");
    }
    assert_eq!(passed("bindings/python/tests/ranks_threads.py"), 4);
}

/// The last line is as those of the other examples.
#[track_caller]
fn verified(program: &str, out: &str) {
    let last = out.lines().last().unwrap_or_default();
    let begin = format!("RESULT name={program} class=- verified=yes seconds=");
    assert!(last.starts_with(&begin) && last.contains(" mops="), "{out}");
    assert!(last.ends_with(" ranks=4 repeat=1"), "{out}");
}

#[test]
fn calls_that_wait_for_ever_are_named() {
    let Some(python) = interpreter("calls_that_wait_for_ever_are_named") else { return };
    let cluster = TestCluster::up(2);
    let program = repository().join("examples/python/deadlock.py").display().to_string();
    let kinds = [
        ("crossed", ["kumi.recv", "kumi.recv"]),
        ("left", ["kumi.recv", ""]),
        ("notification", ["Window.wait_notify", "kumi.recv"]),
        ("locks", ["Lock.acquire", "Lock.acquire"]),
    ];
    deadlock::calls_are_named(&cluster, &[&python, &program], &kinds);
}

#[test]
fn python_examples_verify() {
    let Some(python) = interpreter("python_examples_verify") else { return };
    let cluster = TestCluster::up(2);
    let out = run(&cluster, &python, "examples/python/hello.py", &[]).ok().out;
    let mut lines: Vec<&str> = out.lines().collect();
    lines.sort_unstable();
    let line = |rank| format!("hello from rank {rank} of 4 on node {}, turn {rank}", rank / 2);
    assert_eq!(lines, [line(0), line(1), line(2), line(3)]);
    // Rows that four ranks cannot share equally.
    let size = ["--size", "37", "--steps", "60"];
    let out = run(&cluster, &python, "examples/python/heat.py", &size).ok().out;
    verified("heat", &out);
    run(&cluster, &python, "examples/python/heat.py", &["--size", "x"]).fails(64, &["--size"]);
    let out = run(&cluster, &python, "examples/python/shared_heat.py", &size).ok().out;
    verified("shared_heat", &out);
    run(&cluster, &python, "examples/python/shared_heat.py", &["--size", "x"])
        .fails(64, &["--size"]);
    let out = run(&cluster, &python, "examples/python/search.py", &["--bits", "10"]).ok().out;
    verified("search", &out);
    run(&cluster, &python, "examples/python/search.py", &["--bits", "0"]).fails(64, &["--bits"]);
    let out = run(&cluster, &python, "examples/python/pieces.py", &["--pieces", "300"]).ok().out;
    verified("pieces", &out);
    let size = ["--rounds", "20", "--count", "5000"];
    let out = run(&cluster, &python, "examples/python/draws.py", &size).ok().out;
    verified("draws", &out);
    run(&cluster, &python, "examples/python/draws.py", &["--rounds", "0"]).fails(64, &["--rounds"]);
    run(&cluster, &python, "examples/python/pieces.py", &["--workers", "0"])
        .fails(64, &["--workers"]);
}

/// Rank 0 is interrupted in a call that waits for ranks which never come; what it does then ends it with
/// code 3 and these words.
#[track_caller]
fn interrupted(test: &str, call: &str, then: &str, words: &str) {
    let Some(python) = interpreter(test) else { return };
    let cluster = TestCluster::up(2);
    let script = format!(
        "import kumi, os, signal, sys, threading, time
memory = bytearray(8)
signal.signal(signal.SIGINT, signal.default_int_handler)
with kumi.init():
    if kumi.rank() > 0:
        time.sleep(3600)
    try:
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
        {call}
    except KeyboardInterrupt:
        pass
{then}"
    );
    let args = ["run", "-n", "4", "--nodes", "2", &python, "-c", &script];
    cluster.kumi(&args).fails(3, &[words]);
}

#[test]
fn after_an_interrupted_barrier_a_rank_can_only_end() {
    let then = "    try:
        kumi.send(3, b'')
    except kumi.FaultError as error:
        print(error, file=sys.stderr, flush=True)
        sys.exit(3)
";
    let test = "after_an_interrupted_barrier_a_rank_can_only_end";
    interrupted(test, "kumi.barrier()", then, "an earlier call was interrupted half-way");
}

#[test]
fn memory_of_a_window_that_was_not_made_is_let_go() {
    let then = "    memory.extend(b'more')
    print('let go of', len(memory), file=sys.stderr, flush=True)
    sys.exit(3)
";
    let test = "memory_of_a_window_that_was_not_made_is_let_go";
    interrupted(test, "kumi.window_on(memory)", then, "let go of 12");
}

#[test]
fn an_exception_in_a_rank_ends_the_job_and_is_seen() {
    let Some(python) = interpreter("an_exception_in_a_rank_ends_the_job_and_is_seen") else {
        return;
    };
    let cluster = TestCluster::up(2);
    // Rank 3 fails; the others would wait for ever.
    let script = "import kumi\nkumi.init()\nkumi.send(9, b'') if kumi.rank() == 3 else kumi.recv()";
    let args = ["run", "-n", "4", "--nodes", "2", &python, "-c", script];
    let words = ["kumi.BadRankError: rank 9 does not exist in a job of 4 ranks", "rank 3"];
    cluster.kumi(&args).fails(1, &words);
}

/// A rank that fails waits for nobody at the end of its shared memory, and others that wait for its lock end with the job.
#[test]
fn an_exception_beside_shared_memory_ends_the_job_and_is_seen() {
    let test = "an_exception_beside_shared_memory_ends_the_job_and_is_seen";
    let Some(python) = interpreter(test) else { return };
    let cluster = TestCluster::up(2);
    let begin = "import kumi\nwith kumi.init():\n lock, me = kumi.lock(1), kumi.rank()\n";
    let holds = " if me == 2:\n  lock.acquire(); kumi.barrier(); raise ValueError('mine')\n \
                 kumi.barrier(); lock.acquire()";
    let differs = " if me == 2: kumi.shared_array(1)\n kumi.barrier()";
    for (body, words) in [(holds, "ValueError: mine"), (differs, "allocated other shared memory")] {
        let script = format!("{begin}{body}");
        let args = ["run", "-n", "4", "--nodes", "2", &python, "-c", &script];
        cluster.kumi(&args).fails(1, &[words]);
    }
}

/// The line by which the documents show a call, as they have it.
fn line_of_the_documents() -> String {
    let read = |path: &str| std::fs::read_to_string(repository().join(path)).unwrap_or_default();
    let pages = source::files(&["md"]);
    let all = [read("README.md")].into_iter().chain(pages.into_iter().map(|page| page.text));
    let lines: Vec<String> =
        all.flat_map(|text| lines_with(&text, "kumi.call.call('dgesv'")).collect();
    lines.into_iter().next().expect("a document that shows how dgesv is called")
}

fn lines_with(text: &str, word: &str) -> Vec<String> {
    let shown = |line: &&str| line.starts_with("python3 -c ") && line.contains(word);
    text.lines().filter(shown).map(str::to_owned).collect()
}

#[test]
fn the_call_that_the_documents_show() {
    let test = "the_call_that_the_documents_show";
    let Some(python) = interpreter(test) else { return };
    let mut serve = Command::new(binaries::path("kumi"));
    serve.args(["call", "serve", "--listen", "127.0.0.1:0", "--shipped", "blas,lapack"]);
    let server = RunningCommand::start(serve);
    let said = server.error_line();
    let address = said.trim().rsplit(' ').next().expect("an address");
    // What the line calls python3 is the interpreter with the package.
    let line = line_of_the_documents().replacen("python3", &python, 1);
    let mut shell = Command::new("sh");
    shell.args(["-c", &line]).env("KUMI_CALL_SERVER", address);
    let out = command::run(shell).ok().out;
    let numbers = out.trim().trim_matches(['[', ']']).split_whitespace();
    let solution: Vec<f64> = numbers.map(|word| word.parse().expect("a number")).collect();
    // 2 x + y = 3 and x + 3 y = 5.
    let [x, y] = solution[..] else { panic!("{out}") };
    assert!((x - 0.8).abs() < 1e-12 && (y - 1.4).abs() < 1e-12, "{out}");
    // The server does not outlive the test, however it ends.
    drop(server);
}
