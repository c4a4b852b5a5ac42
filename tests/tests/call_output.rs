//! What routines print, and how they end, in the log of their server.
#![forbid(unsafe_code)]

use kumi_tests::binaries;
use kumi_tests::call_server::{CallServer, routines};
use kumi_tests::command::{FinishedCommand, RunningCommand, run, wait_for};
use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};

const DESCRIPTIONS: &str = r#"
Define talk(mode_in int lines, mode_in int name) Calls "C" talk(lines, name);
Define crash(mode_in int lines) Calls "C" crash_after(lines);
Define nap(mode_in int ms) Calls "C" nap(ms);
Define leave(mode_in int code) Calls "C" leave(code);
Define number(mode_out int pid) Calls "C" pid = number();
Define forge(mode_in int no) Calls "C" forge(no);
"#;

/// Routines that cannot be loaded.
const MISSING: &str = r#"
Define first(mode_in int n) Required "-labsent" Calls "C" first(n);
Define second(mode_in int n) Calls "C" not_there(n);
Define third(mode_in int n) Required "-labsent" Calls "C" third(n);
"#;

const SOURCE: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
void talk(int lines, int name)
{ for (int i = 0; i < lines; i++) fprintf(i % 2 ? stderr : stdout, "line %d of %d", i, name), fputs("\n", i % 2 ? stderr : stdout);
  printf("no end of %d", name); }
void crash_after(int lines)
{ for (int i = 0; i < lines; i++) printf("before %d\n", i); abort(); }
void nap(int ms) { usleep(1000 * ms); }
void leave(int code) { _exit(code); }
int number(void) { return getpid(); }
/* What a slot sends when its routine fails with a text: kind 4, a number of 8 bytes, the text. */
void forge(int no)
{ char reply[64] = {4}; const char *text = "one\n2026-01-01T00:00:00Z WARN forged \033[2J";
  memcpy(reply + 9, text, strlen(text));
  for (int end = 0; end < 64; end++) send(end, reply, 9 + strlen(text), MSG_NOSIGNAL); }
"#;

/// A server with its folder.
struct Server {
    server: CallServer,
    folder: tempfile::TempDir,
}

impl std::ops::Deref for Server {
    type Target = CallServer;

    fn deref(&self) -> &CallServer {
        &self.server
    }
}

impl Server {
    fn start(options: &[&str]) -> Server {
        let folder = routines(DESCRIPTIONS, SOURCE);
        fs::write(folder.path().join("missing.idl"), MISSING).expect("descriptions");
        let mut command = Command::new(binaries::path("kumi"));
        command.current_dir(folder.path()).env_remove("KUMI_LOG");
        command.args(["call", "serve", "--listen", "127.0.0.1:0", "--library", "libroutines.so"]);
        command.args(options).arg("routines.idl");
        Server { server: CallServer::start(command, folder.path()), folder }
    }

    fn call(&self, words: &[&str]) -> FinishedCommand {
        run(command(self.folder.path(), &self.address, words))
    }
}

fn command(folder: &Path, address: &str, words: &[&str]) -> Command {
    let mut command = Command::new(binaries::path("kumi"));
    command.current_dir(folder).args(["call", "run", "--server", address]).args(words);
    command
}

/// The number of the call in a line of the log.
fn call_of(line: &str) -> Option<u64> {
    let rest = line.split("call=").nth(1)?;
    rest.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()
}

/// The lines with these words, all of one call; its number.
#[track_caller]
fn lines_of_one_call<'a>(log: &'a str, words: &str) -> (u64, Vec<&'a str>) {
    let lines: Vec<&str> = log.lines().filter(|line| line.contains(words)).collect();
    let calls: Vec<Option<u64>> = lines.iter().map(|line| call_of(line)).collect();
    let first = calls.first().copied().flatten().unwrap_or_else(|| panic!("no call: {log}"));
    assert!(calls.iter().all(|call| *call == Some(first)), "{log}");
    (first, lines)
}

#[test]
fn what_routines_print_is_logged_by_call_and_whole() {
    let server = Server::start(&["--slots", "2"]);
    let mut calls: Vec<Child> = [1, 2]
        .map(|name| {
            let name = name.to_string();
            let mut call = command(server.folder.path(), &server.address, &["talk", "600", &name]);
            call.spawn().expect("a call")
        })
        .into();
    for call in &mut calls {
        assert!(call.wait().expect("its end").success());
    }
    // The log has it before the caller hears of the end.
    let log = server.log();
    let one = lines_of_one_call(&log, " of 1 call=");
    let two = lines_of_one_call(&log, " of 2 call=");
    assert_ne!(one.0, two.0);
    for (name, (_, lines)) in [(1, one), (2, two)] {
        assert_eq!(lines.len(), 601, "{log}");
        for number in 0..600 {
            let line = format!(" line {number} of {name} call=");
            assert_eq!(lines.iter().filter(|it| it.contains(&line)).count(), 1, "{line}: {log}");
        }
        assert!(lines.iter().all(|line| line.contains("talk")), "{log}");
        assert!(
            lines.iter().any(|line| line.contains(&format!("no end of {name} call="))),
            "{log}"
        );
    }
}

#[test]
fn missing_libraries_and_symbols_are_told_at_the_start() {
    let server = Server::start(&["missing.idl"]);
    let log = server.wait_for("what is missing", |log| log.matches("cannot run ").count() == 2);
    let line = |word: &str| {
        let mut lines = log.lines().filter(|line| line.contains(word));
        lines.next().unwrap_or_else(|| panic!("{word}: {log}"))
    };
    assert!(line("cannot run first, third: ").contains("libabsent.so"), "{log}");
    assert!(line("cannot run second: ").contains("`not_there`"), "{log}");
    // The others are served.
    server.call(&["nap", "1"]).ok();
}

#[test]
fn a_description_without_routines_is_no_server() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("none.idl"), "Module none;\n").expect("a description");
    let mut serve = Command::new(binaries::path("kumi"));
    serve.args(["call", "serve", "--listen", "127.0.0.1:0", "none.idl"]);
    run({
        serve.current_dir(folder.path());
        serve
    })
    .fails(64, &["nothing to serve"]);
}

#[test]
fn crashes_kills_and_limits_are_logged() {
    let server = Server::start(&["--slots", "1"]);
    assert_ne!(server.call(&["crash", "600"]).status.code(), Some(0));
    let log = server.log();
    let (call, lines) = lines_of_one_call(&log, "before ");
    assert_eq!(lines.len(), 600, "{log}");
    let (crashed, _) = lines_of_one_call(&log, "killed by signal 6");
    assert_eq!(call, crashed);
    assert_ne!(server.call(&["leave", "3"]).status.code(), Some(0));
    let (left, _) = lines_of_one_call(&server.log(), "ended its process with exit code 3");
    assert!(left > call);
    assert_ne!(server.call(&["--timeout", "100ms", "nap", "600000"]).status.code(), Some(0));
    let (stopped, _) = lines_of_one_call(&server.log(), "took longer than it may");
    assert!(stopped > left);
    let numbered = server.call(&["number"]);
    let pid = numbered
        .out
        .split(|letter: char| !letter.is_ascii_digit())
        .find_map(|word| word.parse().ok());
    let pid = nix::unistd::Pid::from_raw(pid.expect("its number"));
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).expect("it is idle");
    let log =
        server.wait_for("its end", |log| log.contains("an idle process was killed by signal 9"));
    let line = log.lines().find(|line| line.contains("an idle process was killed"));
    assert!(line.is_some_and(|line| line.contains("routine=\"number\"")), "{log}");
}

#[test]
fn a_routine_forges_no_line_of_the_log_and_does_nothing_to_a_terminal() {
    let server = Server::start(&["--slots", "1"]);
    let failed = server.call(&["forge", "0"]);
    assert_ne!(failed.status.code(), Some(0));
    assert!(failed.err.contains("forged") && !failed.err.contains('\u{1b}'), "{failed:?}");
    let log = server.wait_for("its failure", |log| log.contains("forged"));
    let forged = log.lines().filter(|line| line.contains("forged"));
    let forged: Vec<_> = forged.filter(|line| !line.contains("routine=\"forge\"")).collect();
    assert!(forged.is_empty(), "{forged:?} in {log}");
}

#[test]
fn who_asks_gets_what_a_routine_prints() {
    let server = Server::start(&["--slots", "1"]);
    let said = server.call(&["--printed", "talk", "600", "3"]).ok();
    assert_eq!(said.err.lines().count(), 601, "{}", said.err);
    for number in 0..600 {
        assert!(said.err.contains(&format!("line {number} of 3\n")), "{number}: {}", said.err);
    }
    assert!(said.err.contains("no end of 3"), "{}", said.err);
    // It is in the log too, and nobody else gets it.
    let log = server.log();
    assert_eq!(lines_of_one_call(&log, " of 3 call=").1.len(), 601, "{log}");
    assert_eq!(server.call(&["talk", "600", "4"]).ok().err, "");
    // A call that fails has printed as well.
    let crashed = server.call(&["--printed", "crash", "2"]);
    assert_ne!(crashed.status.code(), Some(0));
    assert!(crashed.err.contains("before 0\nbefore 1\n"), "{}", crashed.err);
    // A server passes on a part, and says that there is more: 80,000 lines are longer than 1 MiB.
    let many = server.call(&["--printed", "talk", "80000", "5"]).ok();
    assert!(many.err.ends_with("kumi: the routine has printed more\n"), "it is cut");
    assert!(many.err.len() > 1 << 20 && many.err.len() < (1 << 20) + 100, "{}", many.err.len());
}

#[test]
fn that_a_call_failed_counts_for_more_than_that_its_output_has_no_place() {
    let server = Server::start(&["--slots", "1"]);
    let crashed = server.call(&["--printed", "crash", "2"]).status.code();
    let unwritten = |words: &[&str]| {
        let full = File::options().write(true).open("/dev/full").expect("a full disk");
        let mut command = command(server.folder.path(), &server.address, words);
        command.stdin(Stdio::null()).stderr(full).status().expect("kumi runs").code()
    };
    assert_ne!(crashed, Some(74));
    assert_eq!(unwritten(&["--printed", "crash", "2"]), crashed);
    assert_eq!(unwritten(&["--printed", "talk", "2", "3"]), Some(74));
}

#[test]
fn a_metaserver_is_no_hindrance() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut meta = Command::new(binaries::path("kumi"));
    meta.args(["call", "meta", "--listen", "127.0.0.1:0"]).current_dir(folder.path());
    let meta = RunningCommand::start(meta);
    let said = meta.error_line();
    let address = said.split_whitespace().find(|word| word.starts_with("127.0.0.1:"));
    let address = address.unwrap_or_else(|| panic!("{said}")).to_owned();
    let _server = Server::start(&["--slots", "1", "--meta", &address]);
    wait_for("its routines", || {
        let mut list = Command::new(binaries::path("kumi"));
        list.args(["call", "list", "--server", &address]);
        run(list).out.contains("talk").then_some(())
    });
    let through = |words: &[&str]| run(command(folder.path(), &address, words));
    let said = through(&["--printed", "talk", "10", "6"]).ok();
    assert_eq!(said.err.lines().count(), 11, "{}", said.err);
    let crashed = through(&["--printed", "crash", "2"]);
    assert!(crashed.err.contains("before 0\nbefore 1\n"), "{}", crashed.err);
    assert!(crashed.err.contains("failed on one server: "), "{}", crashed.err);
}
