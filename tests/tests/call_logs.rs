//! `kumi call logs`: what a user sees of the calls that a server, or those of a metaserver, have run.
#![forbid(unsafe_code)]

use kumi_tests::binaries;
use kumi_tests::call_server::{CallServer, routines};
use kumi_tests::command::{FinishedCommand, RunningCommand, run, wait_for};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;

const DESCRIPTIONS: &str = r#"
Define talk(mode_in int lines) Calls "C" talk(lines);
Define crash(mode_in int n) Calls "C" crash(n);
Define wait_for(mode_in string path) Calls "C" wait_for(path);
Define raw(mode_in int n) Calls "C" raw(n);
"#;

const SOURCE: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
void talk(int lines) { for (int i = 0; i < lines; i++) printf("line %d\n", i); }
void crash(int n) { printf("last words %d\n", n); abort(); }
void wait_for(const char *path)
{ puts("before"); fflush(stdout); while (access(path, F_OK)) usleep(1000); puts("after"); }
void raw(int n) { fputs("red \033[31m\n", stdout); }
"#;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

fn kumi(words: &[&str]) -> Command {
    let mut command = Command::new(binaries::path("kumi"));
    command.arg("call").args(words).env_remove("TRACEPARENT").env_remove("KUMI_CALL_TOKEN");
    command
}

fn call(address: &str, words: &[&str]) -> FinishedCommand {
    run(kumi(&[&["run", "--server", address], words].concat()))
}

fn logs(address: &str, words: &[&str]) -> FinishedCommand {
    run(kumi(&[&["logs", address], words].concat()))
}

/// A server with its folder.
struct Server {
    server: CallServer,
    folder: tempfile::TempDir,
}

impl Server {
    fn start(options: &[&str]) -> Server {
        let folder = routines(DESCRIPTIONS, SOURCE);
        let mut command = kumi(&["serve", "--listen", "127.0.0.1:0", "--slots", "2"]);
        command.current_dir(folder.path()).args(options);
        command.args(["--library", "libroutines.so", "routines.idl"]);
        Server { server: CallServer::start(command, folder.path()), folder }
    }

    fn address(&self) -> &str {
        &self.server.address
    }
}

/// The calls in a table as JSON.
#[track_caller]
fn calls(address: &str, words: &[&str]) -> Vec<Value> {
    let shown = logs(address, &[&["--json"], words].concat()).ok();
    let json: Value = serde_json::from_str(&shown.out).unwrap_or_else(|_| panic!("{shown:#?}"));
    json["calls"].as_array().expect("an array").clone()
}

/// The number of the latest call.
#[track_caller]
fn latest(address: &str) -> String {
    calls(address, &["-n", "1"])[0]["call"].to_string()
}

/// The lines of an output without their times.
fn said(out: &str) -> Vec<&str> {
    out.lines().skip(1).map(|line| line.split_once("Z ").map_or(line, |(_, rest)| rest)).collect()
}

#[test]
fn a_call_is_shown_from_begin_to_end() {
    let server = Server::start(&[]);
    let address = server.address();
    let none = logs(address, &[]).ok();
    assert_eq!(none.out.lines().count(), 1, "headings only: {}", none.out);
    call(address, &["talk", "2"]).ok();
    let number = latest(address);
    let shown = logs(address, &[&number]).ok();
    assert!(shown.out.starts_with(&format!("call {number} of talk at ")), "{}", shown.out);
    let lines = said(&shown.out);
    assert_eq!(lines[..4], ["comes", "begins to run", "| line 0", "| line 1"], "{}", shown.out);
    assert!(lines[4].starts_with("has run for ") && lines.len() == 5, "{}", shown.out);
    assert_ne!(call(address, &["crash", "7"]).code(), 0);
    let crashed = logs(address, &[&latest(address)]).ok();
    let lines = said(&crashed.out);
    assert!(lines.contains(&"| last words 7"), "{}", crashed.out);
    assert!(lines.last().is_some_and(|line| line.contains("signal 6")), "{}", crashed.out);
    let table = logs(address, &[]).ok().out;
    let rows: Vec<Vec<&str>> =
        table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["CALL", "ROUTINE", "CAME", "RAN", "STATE", "TRACE"]);
    assert_eq!((rows[1][1], rows[1][4]), ("crash", "crashed"), "{table}");
    assert_eq!((rows[2][0], rows[2][1], rows[2][4]), (&*number, "talk", "completed"), "{table}");
    assert_eq!(logs(address, &["-n", "1"]).ok().out.lines().count(), 2);
    // What a routine prints does nothing to a terminal.
    call(address, &["raw", "1"]).ok();
    let raw = logs(address, &[&latest(address)]).ok();
    assert!(raw.out.contains("| red \\u{1b}[31m") && !raw.out.contains('\u{1b}'), "{}", raw.out);
    let json = logs(address, &[&number, "--json"]).ok();
    let json: Value = serde_json::from_str(&json.out).expect("JSON");
    assert_eq!((&json["routine"], &json["end"]["outcome"]), (&"talk".into(), &"completed".into()));
    let texts: Vec<&Value> =
        json["lines"].as_array().expect("lines").iter().map(|line| &line["text"]).collect();
    assert_eq!(texts, ["line 0", "line 1"]);
}

#[test]
fn a_call_is_followed_to_its_end() {
    let server = Server::start(&[]);
    let address = server.address();
    let gate = server.folder.path().join("gate");
    let running = ["run", "--server", address, "wait_for", gate.to_str().expect("a path")];
    let running = RunningCommand::start(kumi(&running));
    let number = wait_for("its first line", || {
        let calls = calls(address, &[]);
        calls.first().filter(|call| call["count"] == 1).map(|call| call["call"].to_string())
    });
    // Without --follow the command ends while the call runs.
    let now = logs(address, &[&number]).ok();
    assert_eq!(said(&now.out), ["comes", "begins to run", "| before"]);
    let mut follows = RunningCommand::start(kumi(&["logs", address, &number, "--follow"]));
    let json = RunningCommand::start(kumi(&["logs", address, &number, "-f", "--json"]));
    follows.output_line();
    json.output_line();
    assert!(follows.runs(), "the call goes on");
    fs::write(&gate, "").expect("it is opened");
    running.finish().ok();
    let followed = follows.finish().ok();
    let lines = said(&followed.out);
    assert_eq!(lines[..4], ["comes", "begins to run", "| before", "| after"]);
    assert!(lines[4].starts_with("has run for ") && lines.len() == 5, "{}", followed.out);
    let events: Vec<Value> = (json.finish().ok().out.lines())
        .map(|line| serde_json::from_str(line).expect("an object in each line"))
        .collect();
    let kinds: Vec<&Value> = events.iter().map(|event| &event["event"]).collect();
    assert_eq!(kinds, ["came", "began", "routine", "routine", "ended"]);
    assert_eq!(events[4]["outcome"], "completed");
}

fn token(folder: &Path, user: &str, more: &[&str]) -> String {
    let mut command = kumi(&["token", "add", user, "--file", "users.toml"]);
    command.current_dir(folder).args(more);
    run(command).ok().out.trim().to_owned()
}

#[test]
fn users_see_their_own_calls_only() {
    let users = tempfile::tempdir().expect("a folder");
    let (ada, zoe) = (token(users.path(), "ada", &[]), token(users.path(), "zoe", &[]));
    let file = users.path().join("users.toml");
    let server = Server::start(&["--tokens", file.to_str().expect("a path")]);
    let address = server.address();
    let as_user = |token: &str, words: &[&str]| {
        let mut command = kumi(words);
        run({
            command.env("KUMI_CALL_TOKEN", token);
            command
        })
    };
    as_user(&ada, &["run", "--server", address, "talk", "1"]).ok();
    let table = as_user(&ada, &["logs", address]).ok().out;
    let row: Vec<&str> = table.lines().nth(1).expect("a call").split_whitespace().collect();
    let shown = as_user(&ada, &["logs", address, row[0]]).ok();
    assert!(shown.out.contains(", by ada") && shown.out.contains("| line 0"), "{}", shown.out);
    assert_eq!(as_user(&zoe, &["logs", address]).ok().out.lines().count(), 1);
    as_user(&zoe, &["logs", address, row[0]]).fails(66, &["no log of call"]);
    as_user("", &["logs", address]).fails(77, &[]);
}

#[test]
fn bounds_hold_and_what_is_missing_is_said() {
    let server = Server::start(&["--log-calls", "2", "--log-lines", "64"]);
    let address = server.address();
    for _ in 0..4 {
        call(address, &["talk", "1"]).ok();
    }
    let table = logs(address, &[]).ok();
    assert_eq!(table.out.lines().count(), 3, "{}", table.out);
    assert!(table.err.contains("2 more of your calls are not kept any more"), "{}", table.err);
    call(address, &["talk", "5000"]).ok();
    let shown = logs(address, &[&latest(address)]).ok();
    let lines = said(&shown.out);
    let kept = lines.iter().filter(|line| line.starts_with("| line ")).count();
    assert!(lines.contains(&"| line 4999") && !lines.contains(&"| line 0"), "{}", shown.out);
    let missing = format!("{} lines are not kept any more", 5000 - kept);
    assert!(shown.out.contains(&missing), "{missing}: {}", shown.out);
    logs(address, &["1000000"]).fails(66, &["no log of call 1000000"]);
    logs(address, &["node/1"]).fails(64, &["not a metaserver"]);
    logs(address, &["--trace", "12"]).fails(64, &["hexadecimal"]);
    logs("127.0.0.1:1", &[]).fails(69, &["cannot be reached"]);
    let none = Server::start(&["--log-calls", "0"]);
    call(none.address(), &["talk", "1"]).ok();
    assert_eq!(logs(none.address(), &[]).ok().out.lines().count(), 1);
}

/// A metaserver, whose servers have one name: that of this machine.
struct Meta {
    server: CallServer,
    folder: tempfile::TempDir,
}

impl Meta {
    fn start() -> Meta {
        let folder = routines(DESCRIPTIONS, SOURCE);
        let server = CallServer::start(kumi(&["meta", "--listen", "127.0.0.1:0"]), folder.path());
        Meta { server, folder }
    }

    fn address(&self) -> &str {
        &self.server.address
    }

    /// A further server of it, when so many are up.
    fn serve(&self, listen: &str, up: usize) -> CallServer {
        let meta = self.address();
        let mut command = kumi(&["serve", "--listen", listen, "--slots", "1", "--meta", meta]);
        command.current_dir(self.folder.path());
        command.args(["--library", "libroutines.so", "routines.idl"]);
        let server = CallServer::start(command, self.folder.path());
        self.until_up(up);
        server
    }

    fn until_up(&self, count: usize) {
        wait_for("servers that are up", || {
            let state = run(kumi(&["status", "--json", "--server", self.address()])).ok().out;
            (state.matches("\"up\"").count() == count).then_some(())
        });
    }

    /// Kills its only server. Returns where that was.
    fn end(&self, mut server: CallServer) -> String {
        server.child.kill().expect("it is there");
        server.child.wait().expect("it has ended");
        self.until_up(0);
        server.address.clone()
    }

    /// Makes a call. Returns its number at the metaserver, the name of its server, and its number there.
    fn call(&self) -> (String, String, String) {
        call(self.address(), &["talk", "1"]).ok();
        // With a server that is gone the command does not end well.
        let shown = logs(self.address(), &["--json", "-n", "1"]).out;
        let shown: Value = serde_json::from_str(&shown).expect("JSON");
        let found = &shown["calls"][0];
        let name = found["server"].as_str().expect("a name").to_owned();
        (found["placed"]["call"].to_string(), name, found["call"].to_string())
    }
}

#[test]
fn the_log_of_a_call_is_gone_with_the_process_of_its_server() {
    let meta = Meta::start();
    let server = meta.serve("127.0.0.1:0", 1);
    let (first, name, _) = meta.call();
    logs(meta.address(), &[&first]).ok();
    // Started again where it was: the metaserver takes it for the same server.
    let at = meta.end(server);
    let server = meta.serve(&at, 1);
    let gone = format!("call {first} is gone: its server `{name}` at {at} was started again");
    logs(meta.address(), &[&first]).fails(66, &[&gone]);
    // Started again at another port.
    let (second, _, _) = meta.call();
    meta.end(server);
    let server = meta.serve("127.0.0.1:0", 1);
    let moved = &server.address;
    let gone = format!("`{name}` at {at} is gone; `{name}` was started again since, at {moved}");
    logs(meta.address(), &[&second]).fails(66, &[&gone]);
    let (third, _, _) = meta.call();
    logs(meta.address(), &[&third]).ok();
}

#[test]
fn a_server_is_meant_by_its_name_also_at_another_port_and_else_by_its_address() {
    let meta = Meta::start();
    let server = meta.serve("127.0.0.1:0", 1);
    meta.end(server);
    let server = meta.serve("127.0.0.1:0", 1);
    let (_, name, number) = meta.call();
    assert!(!name.contains(':'), "{name}");
    let by_name = format!("{name}/{number}");
    let shown = logs(meta.address(), &[&by_name]).ok();
    assert!(shown.out.contains("| line 0"), "{}", shown.out);
    // With two servers of the name the address says which.
    let other = meta.serve("127.0.0.1:0", 2);
    let both = logs(meta.address(), &[&by_name]);
    both.fails(64, &["2 servers are called", &server.address, &other.address]);
    let at = |server: &CallServer| logs(meta.address(), &[&format!("{}/{number}", server.address)]);
    let shown = at(&server).ok();
    assert!(shown.out.contains("| line 0"), "{}", shown.out);
    at(&other).fails(66, &["no log of call"]);
}

#[test]
fn a_metaserver_leads_to_the_logs_of_its_servers() {
    let folder = tempfile::tempdir().expect("a folder");
    let user = token(folder.path(), "ada", &[]);
    let other = token(folder.path(), "zoe", &[]);
    let own = token(folder.path(), "node", &["--server"]);
    fs::write(folder.path().join("node.token"), own).expect("a token");
    let mut meta = kumi(&["meta", "--listen", "127.0.0.1:0", "--tokens", "users.toml"]);
    meta.current_dir(folder.path());
    let meta = CallServer::start(meta, folder.path());
    let address = meta.address.as_str();
    let file = folder.path().join("node.token");
    let options =
        ["--meta", address, "--meta-only", "--meta-token-file", file.to_str().expect("a path")];
    let (_one, _two) = (Server::start(&options), Server::start(&options));
    let as_user = |token: &str, words: &[&str]| {
        let mut command = kumi(words);
        run({
            command.env("KUMI_CALL_TOKEN", token);
            command
        })
    };
    wait_for("both servers", || {
        let state = as_user(&user, &["status", "--json", "--server", address]).ok().out;
        (state.matches("\"up\"").count() == 2).then_some(())
    });
    let parent = format!("00-{TRACE}-00f067aa0ba902b7-01");
    for _ in 0..3 {
        as_user(&user, &["run", "--server", address, "talk", "1"]).ok();
    }
    let traced = ["run", "--server", address, "--traceparent", &parent, "talk", "2"];
    as_user(&user, &traced).ok();
    let table = as_user(&user, &["logs", address]).ok().out;
    assert_eq!(table.lines().count(), 5, "{table}");
    let of_trace = as_user(&user, &["logs", address, "--trace", TRACE]).ok().out;
    let rows: Vec<Vec<&str>> =
        of_trace.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["CALL", "ROUTINE", "SERVER", "CAME", "RAN", "STATE", "TRACE"]);
    assert_eq!((rows.len(), rows[1][1], rows[1][6]), (2, "talk", TRACE), "{of_trace}");
    let shown = as_user(&user, &["logs", address, rows[1][0], "--follow"]).ok();
    assert!(shown.out.contains(", attempt 1, by ada, trace "), "{}", shown.out);
    assert!(shown.out.contains("| line 1\n") && shown.out.contains("has run"), "{}", shown.out);
    // By the server's name and number.
    let json = as_user(&user, &["logs", address, "--trace", TRACE, "--json"]).ok().out;
    let json: Value = serde_json::from_str(&json).expect("JSON");
    let found = &json["calls"][0];
    let name = format!("{}/{}", found["server"].as_str().expect("a name"), found["call"]);
    let again = as_user(&user, &["logs", address, &name]).ok();
    assert!(again.out.contains("| line 1\n"), "{}", again.out);
    // Nobody else sees any of it.
    assert_eq!(as_user(&other, &["logs", address]).ok().out.lines().count(), 1);
    as_user(&other, &["logs", address, rows[1][0]]).fails(66, &["no log of call"]);
    as_user("", &["logs", address]).fails(77, &[]);
}
