//! What goes with a call down a chain of servers: its deadline, its place in a trace, and its threads, into routines and logs.
#![forbid(unsafe_code)]

use kumi_tests::binaries;
use kumi_tests::call_server::{CallServer, routines};
use kumi_tests::command::{RunningCommand, run, wait_for};
use std::process::Command;

const DESCRIPTIONS: &str = r#"
Define left(mode_out long ns) Calls "C" left(ns);
Define traced(mode_out string parent[80]) Calls "C" traced(parent);
Define threads(mode_out int n) Calls "C" threads(n);
Define through(mode_in string command, mode_out string said[200]) Calls "C" through(command, said);
"#;

const SOURCE: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
void left(long *ns)
{ const char *deadline = getenv("KUMI_CALL_DEADLINE"); struct timespec now; clock_gettime(CLOCK_MONOTONIC, &now);
  *ns = deadline && *deadline ? strtol(deadline, NULL, 10) - (now.tv_sec * 1000000000L + now.tv_nsec) : -1; }
void traced(char *parent)
{ const char *found = getenv("TRACEPARENT"); strcpy(parent, found ? found : "unset"); puts("seen"); }
void threads(int *n)
{ const char *found = getenv("OMP_NUM_THREADS"); *n = found ? atoi(found) : -1; }
void through(const char *command, char *said)
{ FILE *pipe = popen(command, "r"); size_t length = fread(said, 1, 199, pipe); said[length] = 0; pclose(pipe); }
"#;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

/// A server or a metaserver with its folder.
struct Service {
    server: CallServer,
    _folder: tempfile::TempDir,
}

impl std::ops::Deref for Service {
    type Target = CallServer;

    fn deref(&self) -> &CallServer {
        &self.server
    }
}

impl Service {
    fn start(words: &[&str], described: bool) -> Service {
        let folder = routines(DESCRIPTIONS, SOURCE);
        let mut command = Command::new(binaries::path("kumi"));
        command.current_dir(folder.path()).arg("call").args(words);
        command.args(["--listen", "127.0.0.1:0"]).env("KUMI_LOG", "info");
        if described {
            command.args(["--library", "libroutines.so", "routines.idl"]);
        }
        // What the server was started in is not what its calls are in.
        command.env("TRACEPARENT", format!("00-{}-{}-00", "1".repeat(32), "1".repeat(16)));
        command.env("KUMI_CALL_DEADLINE", "1");
        let server = CallServer::start(command, folder.path());
        Service { server, _folder: folder }
    }

    fn server(more: &[&str]) -> Service {
        Service::start(&[&["serve", "--slots", "2"], more].concat(), true)
    }

    /// The value of a field in the line of the log with all these words.
    #[track_caller]
    fn field(&self, words: &[&str], field: &str) -> String {
        let name = format!(" {field}=");
        wait_for(&format!("{field} of {words:?}"), || {
            let log = self.log();
            let line = log.lines().find(|line| words.iter().all(|word| line.contains(word)))?;
            let (_, rest) = line.split_once(&name)?;
            Some(rest.split_whitespace().next().unwrap_or_default().to_owned())
        })
    }
}

/// Calls a routine. Returns what comes back.
#[track_caller]
fn call(address: &str, words: &[&str]) -> String {
    let mut command = Command::new(binaries::path("kumi"));
    command.args(["call", "run", "--server", address]).args(words);
    command.env_remove("TRACEPARENT").env_remove("KUMI_CALL_DEADLINE");
    run(command).ok().out
}

/// The command that calls a routine at a server.
fn further(address: &str, routine: &str) -> String {
    format!("'{}' call run --server {address} {routine} 2>&1", binaries::path("kumi").display())
}

#[test]
fn a_deadline_goes_down_a_chain_of_servers() {
    let (first, second) = (Service::server(&[]), Service::server(&[]));
    let words = ["through", &further(&second.address, "left")];
    let left = |said: &str| -> i64 {
        let digits = said.split("ns = ").nth(1).unwrap_or_else(|| panic!("{said}"));
        let digits = digits.split(|letter: char| letter != '-' && !letter.is_ascii_digit()).next();
        digits.and_then(|digits| digits.parse().ok()).unwrap_or_else(|| panic!("{said}"))
    };
    assert_eq!(left(&call(&first.address, &words)), -1);
    let hour = 3_600_000_000_000;
    let time = left(&call(&first.address, &[&["--timeout", "3600s"], &words[..]].concat()));
    assert!(time > hour / 2 && time <= hour, "{time}");
    // The same process without a limit has none again.
    assert_eq!(left(&call(&first.address, &words)), -1);
}

#[test]
fn a_trace_goes_through_metaserver_and_servers_into_their_logs() {
    let meta = Service::start(&["meta"], false);
    let first = Service::server(&["--meta", &meta.address]);
    let second = Service::server(&[]);
    wait_for("its routines", || {
        let mut list = Command::new(binaries::path("kumi"));
        list.args(["call", "list", "--server", &meta.address]);
        run(list).out.contains("through").then_some(())
    });
    let parent = format!("00-{TRACE}-{PARENT}-01");
    let words = ["--traceparent", &parent, "through", &further(&second.address, "traced")];
    let said = call(&meta.address, &words);
    // The metaserver and the servers each have a span, whose parent is that of who has called.
    let (of_trace, of_parent) = (format!("trace={TRACE}"), format!("parent={PARENT}"));
    let placed = meta.field(&["is placed", "through", &of_trace, &of_parent], "span");
    assert_eq!(meta.field(&["is over: done", &of_trace, &of_parent], "span"), placed);
    let outer = first.field(&["has run", "through", &of_trace, &of_parent], "span");
    let caller = format!("parent={outer}");
    let inner = second.field(&["has run", "traced", &of_trace, &caller], "span");
    assert_eq!(second.field(&["seen", "routine=\"traced\"", &of_trace], "span"), inner);
    assert!(placed != outer && outer != inner && inner != placed);
    assert!(said.contains(&format!("00-{TRACE}-{inner}-01")), "{said}");
    // A call of the shell that is in none begins one.
    let alone = call(&second.address, &["traced"]);
    assert!(alone.contains("parent = \"00-") && !alone.contains(TRACE), "{alone}");
    let log = second.log();
    assert_eq!(log.matches("has run").count(), 2, "{log}");
    assert_eq!(log.matches(&of_trace).count(), 2, "{log}");
}

#[test]
fn what_is_no_traceparent_is_refused_on_the_command_line_and_ignored_in_the_environment() {
    let server = Service::server(&[]);
    let command = |words: &[&str], variable: &str| {
        let mut command = Command::new(binaries::path("kumi"));
        command.args(["call", "run", "--server", &server.address]).args(words);
        command.env("TRACEPARENT", variable);
        RunningCommand::start(command).finish()
    };
    let refused = command(&["--traceparent", "00-1-2-3", "traced"], "");
    refused.fails(64, &["a traceparent is `00-`"]);
    let begun = command(&["traced"], "nothing").ok().out;
    assert!(begun.contains("parent = \"00-") && !begun.contains(TRACE), "{begun}");
    let taken = command(&["traced"], &format!("00-{TRACE}-{PARENT}-00")).ok().out;
    assert!(taken.contains(&format!("00-{TRACE}-")) && !taken.contains(PARENT), "{taken}");
}

#[test]
fn a_call_of_the_shell_asks_for_threads_and_memory() {
    let server = Service::server(&[]);
    assert!(call(&server.address, &["threads"]).contains("n = 1"));
    assert!(call(&server.address, &["--threads", "2", "threads"]).contains("n = 2"));
    let refused = |words: &[&str]| {
        let mut command = Command::new(binaries::path("kumi"));
        command.args(["call", "run", "--server", &server.address]).args(words);
        RunningCommand::start(command).finish()
    };
    let too_many = refused(&["--threads", "3", "threads"]);
    too_many.fails(78, &["`threads` asks for 3 threads", "2 slots of 1"]);
    let unbounded = refused(&["--memory", "64M", "threads"]);
    unbounded.fails(78, &["67108864 bytes of memory", "--slot-memory"]);
    refused(&["--threads", "0", "threads"]).fails(64, &["--threads"]);
}
