//! What `kumi call` says of calls that wait, crash or cannot be made, and of servers that are refused or gone.
#![forbid(unsafe_code)]

use kumi_tests::binaries;
use kumi_tests::call_server::{CallServer, routines};
use kumi_tests::command::{FinishedCommand, RunningCommand, run, wait_for};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

const DESCRIPTIONS: &str = r#"
Define crash(mode_in int n) Calls "C" crash(n);
Define wait_for(mode_in string path) Calls "C" wait_for(path);
Define sum(mode_in int n, mode_in double x[n], mode_out double total) Calls "C" sum(n, x, total);
"#;

const SOURCE: &str = r#"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
void crash(int n) { *(volatile int *)8 = n; }
void wait_for(const char *path)
{ char begun[4096]; snprintf(begun, sizeof begun, "%s.begun", path); close(open(begun, O_CREAT | O_WRONLY, 0600));
  while (access(path, F_OK)) usleep(1000); }
void sum(int n, const double *x, double *total) { *total = 0; while (n) *total += x[--n]; }
"#;

fn kumi(words: &[&str]) -> Command {
    let mut command = Command::new(binaries::path("kumi"));
    command.arg("call").args(words);
    for name in ["KUMI_CALL_SERVER", "KUMI_CALL_TOKEN", "KUMI_CALL_TOKENS", "TRACEPARENT"] {
        command.env_remove(name);
    }
    command
}

/// A server of the routines of this folder.
fn serve(folder: &Path, options: &[&str]) -> CallServer {
    CallServer::start(serving(folder, options), folder)
}

fn serving(folder: &Path, options: &[&str]) -> Command {
    let mut command = kumi(&["serve", "--listen", "127.0.0.1:0", "--slots", "1"]);
    command.current_dir(folder).args(options);
    command.args(["--library", "libroutines.so", "routines.idl"]);
    command
}

fn metaserver(folder: &Path, options: &[&str]) -> CallServer {
    let mut command = kumi(&["meta", "--listen", "127.0.0.1:0"]);
    command.current_dir(folder).args(options);
    CallServer::start(command, folder)
}

/// Waits until so many servers of a metaserver are in this state.
fn until(address: &str, state: &str, count: usize) {
    wait_for(state, || {
        let json = run(kumi(&["status", "--json", "--server", address])).ok().out;
        (json.matches(&format!("\"{state}\"")).count() == count).then_some(())
    });
}

fn call(address: &str, words: &[&str]) -> FinishedCommand {
    run(kumi(&[&["run", "--server", address], words].concat()))
}

#[test]
fn arguments_that_do_not_fit_are_named() {
    let folder = routines(DESCRIPTIONS, SOURCE);
    let server = serve(folder.path(), &[]);
    let address = server.address.as_str();
    assert_eq!(call(address, &["sum", "1,2"]).ok().out, "total = 3.0\n");
    call(address, &["sum", "1,2;3,4"]).fails(64, &["`x` has 2 dimensions", "wants 1"]);
    call(address, &["sum", "x=1,2", "y=3"]).fails(64, &["`sum` takes no `y`", "n x"]);
    call(address, &["sum", ""]).fails(64, &["`x` is empty"]);
    let status = run(kumi(&["status", "--server", address]));
    status.fails(64, &["is a server, not a metaserver"]);
}

#[test]
fn a_crash_is_told_once_and_says_where_its_log_is() {
    let folder = routines(DESCRIPTIONS, SOURCE);
    let meta = metaserver(folder.path(), &[]);
    let _server = serve(folder.path(), &["--meta", &meta.address]);
    until(&meta.address, "up", 1);
    let crashed = call(&meta.address, &["crash", "1"]);
    assert_eq!(crashed.code(), 70);
    let said = &crashed.err;
    assert!(said.contains("signal 11 (SIGSEGV)") && said.contains("not run again"), "{said}");
    assert_eq!(said.matches("crashed").count(), 1, "{said}");
    assert!(said.contains(&format!("`kumi call logs {}`", meta.address)), "{said}");
}

#[test]
fn a_call_that_waits_says_so() {
    let folder = routines(DESCRIPTIONS, SOURCE);
    let server = serve(folder.path(), &[]);
    let gate = folder.path().join("gate");
    let path = gate.to_str().expect("a path");
    let start =
        || RunningCommand::start(kumi(&["run", "--server", &server.address, "wait_for", path]));
    let first = start();
    let begun = folder.path().join("gate.begun");
    wait_for("its begin", || begun.exists().then_some(()));
    // The only slot is taken.
    let late = call(&server.address, &["sum", "1", "--timeout", "50ms"]);
    late.fails(75, &["`sum` has not begun"]);
    // It is told from the one that runs, which is of the same routine.
    let at_server = start();
    let said = at_server.error_line();
    assert!(said.contains("`wait_for` waits for a free slot"), "{said}");
    fs::write(&gate, "").expect("it is opened");
    for ended in [first, at_server] {
        ended.finish().ok();
    }
}

#[test]
fn a_server_that_is_lost_is_named_where_its_logs_are_missing() {
    let folder = routines(DESCRIPTIONS, SOURCE);
    let meta = metaserver(folder.path(), &[]);
    let _one = serve(folder.path(), &["--meta", &meta.address]);
    let mut other = serve(folder.path(), &["--meta", &meta.address]);
    until(&meta.address, "up", 2);
    run(kumi(&["logs", &meta.address])).ok();
    // As in other commands.
    run(kumi(&["logs", "--server", &meta.address])).ok();
    other.child.kill().expect("it is there");
    until(&meta.address, "lost", 1);
    let logs = run(kumi(&["logs", &meta.address]));
    let logs = logs.fails(69, &[&other.address, "`lost`", "calls are missing"]);
    assert!(logs.out.trim_start().starts_with("CALL"), "{}", logs.out);
}

#[test]
fn a_token_is_not_written_into_the_user_file() {
    let folder = tempfile::tempdir().expect("a folder");
    std::os::unix::fs::symlink(".", folder.path().join("link")).expect("a link");
    let add = |file: &str, out: &str| {
        let mut command = kumi(&["token", "add", "ada", "--file", file, "--out", out]);
        command.current_dir(folder.path());
        run(command)
    };
    let there = || fs::read_dir(folder.path()).expect("the folder").count();
    for out in ["users", "./users", "link/users"] {
        add("users", out).fails(64, &["--out", "is the user file itself"]);
        assert_eq!(there(), 1, "nothing is left of {out}");
    }
    add("users", "ada.token").ok();
    let users = fs::read(folder.path().join("users")).expect("users");
    fs::hard_link(folder.path().join("users"), folder.path().join("twin")).expect("a link");
    for out in ["users", "link/users", "twin"] {
        add("users", out).fails(64, &["--out", "is the user file itself"]);
        assert_eq!(fs::read(folder.path().join("users")).expect("users"), users, "{out}");
    }
}

#[test]
fn what_can_never_serve_ends_and_says_why() {
    let folder = routines(DESCRIPTIONS, SOURCE);
    let in_folder = |words: &[&str]| {
        let mut command = kumi(words);
        command.current_dir(folder.path());
        run(command)
    };
    let token = ["token", "add", "ada", "--file", "users", "--out", "ada.token"];
    assert_eq!(in_folder(&token).ok().out, "");
    let made = folder.path().join("ada.token");
    assert_eq!(fs::metadata(&made).expect("it").permissions().mode() & 0o777, 0o600);
    assert!(fs::read_to_string(&made).expect("text").starts_with("kumi_"));
    // What is there stays, and no token is made that nobody has.
    let listed = in_folder(&["token", "list", "--file", "users"]).ok().out;
    in_folder(&token).fails(74, &["ada.token"]);
    assert_eq!(in_folder(&["token", "list", "--file", "users"]).ok().out, listed);
    let meta = metaserver(folder.path(), &["--tokens", "users"]);
    let serves = |options: &[&str]| run(serving(folder.path(), options));
    serves(&["--meta", &meta.address]).fails(77, &["--meta-token-file"]);
    let as_user = ["--meta", &meta.address, "--meta-token-file", "ada.token"];
    serves(&as_user).fails(77, &["`ada` may not offer routines"]);
    let server = serve(folder.path(), &[]);
    serves(&["--meta", &server.address]).fails(64, &["this is a server, not a metaserver"]);
    serves(&["--meta", "foo"]).fails(64, &["--meta foo is not a server address"]);
    let policy = in_folder(&["meta", "--listen", "127.0.0.1:0", "--policy", "foo"]);
    let policy = policy.fails(64, &["foo"]);
    let state = in_folder(&["meta", "--listen", "127.0.0.1:0", "--state", "/nowhere/x"]);
    let state = state.fails(74, &["/nowhere/x"]);
    for refused in [policy, state] {
        assert!(!refused.err.contains("metaserver ("), "{}", refused.err);
    }
}
