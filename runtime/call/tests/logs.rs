//! Logs of calls: what a server tells its users of the calls that they have made, and of nobody else's.
#![forbid(unsafe_code)]

mod common;
#[path = "common/grid.rs"]
mod grid;
#[path = "common/scripted_server.rs"]
mod scripted_server;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{Gate, TestServer, compiled, config, eventually, interfaces, served_text};
use kumi_call::log_records::{CallOutcome, LineSource, LogAnswer, LoggedCall};
use kumi_call::server::{Config, Listener, LogLimits, Registry};
use kumi_call::users::{NewToken, Users, add, revoke};
use kumi_call::{
    Arg, CallError, Client, LogRequest, Object, Options, TraceContext, Value, trace_calls,
};
use kumi_rpc::{ClientHello, HEADER};
use scripted_server::ScriptedServer;

const TEXT: &str = r#"
Define talk(mode_in int lines) Calls "C" talk(lines);
Define wait_for(mode_in string path) Calls "C" wait_for(path);
Define crash(mode_in int n) Calls "C" crash(n);
Define nap(mode_in int ms) Calls "C" nap(ms);
Define raw(mode_in int n) Calls "C" raw(n);
DefClass thing {
    DefMethod say(IN int n) Calls "C" talk(n);
    DefMethod parent(OUT string text[80]) Calls "C" parent(text);
}
"#;

const CODE: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static char made_in[80];
__attribute__((constructor)) static void made(void)
{ const char *found = getenv("TRACEPARENT"); strncpy(made_in, found ? found : "", 79); }
void talk(int lines) { for (int i = 0; i < lines; i++) printf("line %d\n", i); }
void wait_for(const char *path)
{ puts("before"); fflush(stdout); while (access(path, F_OK)) usleep(1000); puts("after"); }
void crash(int n) { printf("last words %d\n", n); abort(); }
void nap(int ms) { usleep(1000 * ms); }
void raw(int n) { fputs("a\tb\033[2J\xff\xe2\x80\xae\r\n", stdout); }
void parent(char *text) { strcpy(text, made_in); }
"#;

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn serve(change: impl FnOnce(&mut Config)) -> TestServer {
    let folder = tempfile::tempdir().expect("a folder");
    let library = compiled(folder.path(), "talk", CODE);
    let mut config = config();
    change(&mut config);
    let mut server = served_text(config, TEXT, library);
    server.keep(folder);
    server
}

fn parent() -> TraceContext {
    TraceContext::parse(PARENT.as_bytes()).expect("a traceparent")
}

/// An answer of a server that says how long it runs.
fn without_time(answer: LogAnswer) -> LogAnswer {
    assert!(answer.uptime_ms.is_some());
    LogAnswer { uptime_ms: None, ..answer }
}

fn latest(client: &Client) -> LogAnswer {
    client.logs(&LogRequest::Latest(100)).expect("logs")
}

/// The call with its lines.
#[track_caller]
fn whole(client: &Client, call: u64) -> LoggedCall {
    let logs = client.logs(&LogRequest::Call { call, from: 0 }).expect("logs");
    logs.calls.into_iter().next().expect("the call is kept")
}

/// The latest call, with its lines.
#[track_caller]
fn last(client: &Client) -> LoggedCall {
    whole(client, latest(client).calls.first().expect("a call").call)
}

fn texts(call: &LoggedCall) -> Vec<&str> {
    call.lines.iter().map(|line| line.text.as_str()).collect()
}

/// How a call ended, and why.
#[track_caller]
fn end(call: &LoggedCall) -> (CallOutcome, &str) {
    let end = call.end.as_ref().expect("it has ended");
    (end.outcome, &end.reason)
}

#[test]
fn a_call_has_its_begin_its_lines_and_its_end() {
    let server = serve(|_| {});
    let client = server.client();
    assert_eq!(without_time(latest(&client)), LogAnswer::default());
    client.call("talk", vec![3.into()]).expect("it runs");
    let call = last(&client);
    assert_eq!((call.routine.as_str(), call.is_object, call.placed), ("talk", false, None));
    assert_eq!(texts(&call), ["line 0", "line 1", "line 2"]);
    assert!(call.lines.iter().all(|line| line.source == LineSource::Routine));
    assert_eq!((call.first, call.count, call.dropped), (0, 3, 0));
    assert_eq!(end(&call), (CallOutcome::Completed, ""));
    let (began, end) = (call.began_ms.expect("it ran"), call.end.clone().expect("its end"));
    assert!(call.came_ms > 1_700_000_000_000 && began >= call.came_ms && end.at_ms >= began);
    assert!(end.ran_ns.is_some() && end.code == 0);
    // From a line on.
    let request = LogRequest::Call { call: call.call, from: 2 };
    let rest = client.logs(&request).expect("logs").calls.remove(0);
    assert_eq!((texts(&rest), rest.first), (vec!["line 2"], 2));
    // The latest call stands first, and a table has no lines.
    client.call("nap", vec![0.into()]).expect("it runs");
    let logs = latest(&client);
    let routines: Vec<&str> = logs.calls.iter().map(|call| call.routine.as_str()).collect();
    assert_eq!(routines, ["nap", "talk"]);
    assert!(logs.calls.iter().all(|call| call.lines.is_empty()));
    assert_eq!(client.logs(&LogRequest::Latest(1)).expect("logs").calls.len(), 1);
    let unknown = LogRequest::Call { call: 1 << 40, from: 0 };
    assert_eq!(client.logs(&unknown).expect("logs").calls, []);
}

#[test]
fn failures_are_told_with_their_reasons() {
    let server = serve(|config| config.slots = 1);
    let client = server.client();
    client.call("crash", vec![7.into()]).expect_err("it crashes");
    let call = last(&client);
    assert_eq!(texts(&call), ["last words 7"]);
    let (outcome, reason) = end(&call);
    assert!(outcome == CallOutcome::Crashed && reason.contains("signal 6"), "{reason}");
    assert_eq!(call.end.as_ref().map(|end| (end.code, end.ran_ns)), Some((6, None)));
    let soon = Some(Duration::from_millis(50));
    client.call_within("nap", vec![600_000.into()], soon).expect_err("it is late");
    assert_eq!(end(&last(&client)).0, CallOutcome::TimedOut);
    // One that runs and one that waits are cancelled, and so is one whose client leaves.
    let gate = Gate::new();
    let begin = || {
        let args = vec![Arg::Text(gate.path().into())];
        client.call_async("wait_for", args, None).expect("it begins")
    };
    let (mut runs, mut waits) = (begin(), begin());
    eventually("its first line", || whole(&client, latest(&client).calls[1].call).count == 1);
    let calls = latest(&client).calls;
    assert!(calls[0].began_ms.is_none() && calls[1].began_ms.is_some() && calls[1].end.is_none());
    for call in [&mut waits, &mut runs] {
        call.canceller().cancel().expect("a connection");
        call.wait(&|| false).expect_err("it is cancelled");
    }
    let calls = latest(&client).calls;
    assert_eq!(
        calls[..2].iter().map(|call| end(call).0).collect::<Vec<_>>(),
        [CallOutcome::Cancelled, CallOutcome::Cancelled]
    );
    let other = server.client();
    let gone = other.call_async("nap", vec![600_000.into()], None).expect("it begins");
    eventually("its begin", || latest(&client).calls[0].end.is_none());
    let number = latest(&client).calls[0].call;
    drop((gone, other));
    eventually("its end", || whole(&client, number).end.is_some());
    assert_eq!(end(&whole(&client, number)).0, CallOutcome::Cancelled);
}

#[test]
fn lines_come_while_a_call_runs_and_do_nothing_to_a_terminal() {
    let server = serve(|_| {});
    let client = server.client();
    let gate = Gate::new();
    let args = vec![Arg::Text(gate.path().into())];
    let mut call = client.call_async("wait_for", args, None).expect("it begins");
    eventually("its first line", || {
        latest(&client).calls.first().is_some_and(|call| call.count == 1)
    });
    let shown = last(&client);
    assert_eq!((texts(&shown), shown.end.is_some()), (vec!["before"], false));
    gate.open();
    call.wait(&|| false).expect("it runs");
    assert_eq!(texts(&last(&client)), ["before", "after"]);
    client.call("raw", vec![0.into()]).expect("it runs");
    assert_eq!(texts(&last(&client)), ["a\tb\\u{1b}[2J\u{fffd}\\u{202e}"]);
}

#[test]
fn what_is_not_kept_is_counted() {
    let limits = LogLimits { calls: 3, call_bytes: 1000, bytes: 1 << 20 };
    let server = serve(|config| config.logs = limits);
    let client = server.client();
    for _ in 0..5 {
        client.call("nap", vec![0.into()]).expect("it runs");
    }
    assert_eq!((latest(&client).calls.len(), latest(&client).dropped), (3, 2));
    client.call("talk", vec![500.into()]).expect("it runs");
    let call = last(&client);
    assert_eq!((call.count, call.first), (500, call.dropped));
    assert!(call.lines.len() < 20 && call.lines.len() > 10, "{}", call.lines.len());
    assert_eq!(texts(&call).last(), Some(&"line 499"));
    let none = serve(|config| config.logs = LogLimits { calls: 0, ..limits });
    let client = none.client();
    client.call("nap", vec![0.into()]).expect("it runs");
    assert_eq!((latest(&client).calls.len(), latest(&client).dropped), (0, 1));
}

/// A server with users, and their file.
struct ServerWithUsers {
    server: TestServer,
    file: PathBuf,
    _folder: tempfile::TempDir,
}

impl ServerWithUsers {
    fn new() -> ServerWithUsers {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("users.toml");
        add(&file, &NewToken { user: "owner".to_owned(), ..NewToken::default() }).expect("a file");
        let users = Some(Arc::new(Users::open(&file).expect("users")));
        let server = serve(|config| config.users = users);
        ServerWithUsers { server, file, _folder: folder }
    }

    fn client(&self, user: &str) -> Client {
        let new = NewToken { user: user.to_owned(), ..NewToken::default() };
        let token = add(&self.file, &new).expect("a token");
        let options = Options { token, ..Options::default() };
        Client::connect(&self.server.address.to_string(), &options).expect("a connection")
    }
}

#[test]
fn nobody_sees_the_calls_of_another() {
    let fixture = ServerWithUsers::new();
    let (ada, zoe) = (fixture.client("ada"), fixture.client("zoe"));
    trace_calls(Some(parent()));
    ada.call("talk", vec![2.into()]).expect("it runs");
    trace_calls(None);
    let hers = last(&ada);
    assert_eq!((hers.user.as_str(), texts(&hers).len()), ("ada", 2));
    let trace = parent().trace_id();
    assert_eq!(ada.logs(&LogRequest::Trace(trace)).expect("logs").calls.len(), 1);
    let number = LogRequest::Call { call: hers.call, from: 0 };
    for request in [LogRequest::Latest(1000), number, LogRequest::Trace(trace)] {
        let answer = without_time(zoe.logs(&request).expect("logs"));
        assert_eq!(answer, LogAnswer::default(), "{request:?}");
    }
    // Another connection of the same user sees them.
    assert_eq!(latest(&fixture.client("ada")).calls.len(), 1);
    // Who is no user any more sees nothing.
    revoke(&fixture.file, "ada", None).expect("revoked");
    let refused = ada.logs(&LogRequest::Latest(1));
    assert!(matches!(refused, Err(CallError::NotPermitted(_))), "{refused:?}");
}

#[test]
fn calls_are_found_by_their_trace() {
    let server = serve(|_| {});
    let client = server.client();
    client.call("nap", vec![0.into()]).expect("it runs");
    assert_eq!(last(&client).trace, None);
    trace_calls(Some(parent()));
    client.call("talk", vec![1.into()]).expect("it runs");
    client.call("talk", vec![1.into()]).expect("it runs");
    trace_calls(None);
    let request = LogRequest::Trace(parent().trace_id());
    let logs = client.logs(&request).expect("logs");
    assert_eq!(logs.calls.len(), 2);
    let traces: Vec<_> = logs.calls.iter().map(|call| call.trace.clone().expect("one")).collect();
    assert!(traces.iter().all(|traced| traced.trace == parent().trace().to_string()));
    assert!(traces.iter().all(|traced| traced.parent == parent().span().to_string()));
    assert_ne!(traces[0].span, traces[1].span);
}

fn made_in(object: &Object) -> String {
    match &object.call("parent", vec![]).expect("it is there").values[..] {
        [(0, Value::Text(text))] => text.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_object_is_made_in_its_trace_and_has_a_log() {
    let server = serve(|_| {});
    let client = server.client();
    let object = client.object("thing").expect("an object");
    assert_eq!(made_in(&object), "", "it is in no trace");
    trace_calls(Some(parent()));
    let traced = client.object("thing").expect("an object");
    trace_calls(None);
    let calls = latest(&client).calls;
    let made = calls[0].clone();
    assert!(made.is_object && made.routine == "thing" && made.began_ms.is_some());
    let span = made.trace.clone().expect("its span");
    assert_eq!(
        (span.trace, span.parent),
        (parent().trace().to_string(), parent().span().to_string())
    );
    assert_eq!(made_in(&traced), format!("00-{}-{}-01", parent().trace(), span.span));
    // Its calls have logs of their own.
    object.call("say", vec![2.into()]).expect("it is there");
    let said = last(&client);
    assert_eq!(
        (said.routine.as_str(), said.is_object, texts(&said).len()),
        ("thing.say", false, 2)
    );
    // They are in the traces of their callers.
    assert_eq!(said.trace, None);
    trace_calls(Some(parent()));
    traced.call("say", vec![1.into()]).expect("it is there");
    trace_calls(None);
    let own = last(&client).trace.expect("its span");
    assert_eq!(own.parent, parent().span().to_string());
    assert_eq!(whole(&client, made.call).end, None);
    let number = made.call;
    drop(traced);
    eventually("its end", || whole(&client, number).end.is_some());
    let made = whole(&client, number);
    let (outcome, reason) = end(&made);
    assert!(outcome == CallOutcome::Cancelled && reason.contains("released"), "{reason}");
}

#[test]
fn an_object_is_made_in_its_trace_through_a_metaserver() {
    let meta = grid::meta(grid::config("round-robin"));
    let _server = serve(|config| *config = meta.member("one", 2));
    meta.until_servers(1);
    let grid = meta.grid();
    trace_calls(Some(parent()));
    let object = grid.object("thing").expect("an object");
    trace_calls(None);
    let sources = grid.log_sources().expect("servers");
    let client = &sources.servers[0].client;
    let request = LogRequest::Trace(parent().trace_id());
    let made = client.logs(&request).expect("logs").calls.remove(0);
    assert!(made.is_object && made.placed.is_some_and(|placed| placed.attempt == 1), "{made:?}");
    let span = made.trace.expect("its span").span;
    assert_eq!(made_in(&object), format!("00-{}-{span}-01", parent().trace()));
}

/// How many questions for logs a client asks at once.
const AT_ONCE: u32 = 500;

/// How many answers have come since this was last called.
fn answers(socket: &mut UnixStream, read: &mut Vec<u8>, hello: &mut bool) -> u32 {
    let mut piece = vec![0; 64 << 10];
    match socket.read(&mut piece) {
        Ok(count) => read.extend_from_slice(&piece[..count]),
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock, "{error}"),
    }
    let mut count = 0;
    loop {
        let head = if *hello { 16 } else { HEADER };
        let at = if *hello { 12 } else { 0 };
        let Some(length) = read.get(at..at + 4) else { return count };
        let length = u32::from_le_bytes(length.try_into().expect("four bytes"));
        let whole = head + length as usize;
        if read.len() < whole {
            return count;
        }
        read.drain(..whole);
        count += u32::from(!std::mem::take(hello));
    }
}

/// The server has one thread. The future that ends it runs there between turns of the connections, and sees what they do.
#[test]
fn a_client_that_asks_for_many_logs_at_once_gets_one_in_each_turn() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("socket");
    let listener = Listener::unix(&path).expect("a socket");
    // What is written to such a socket can be read at once.
    let mut socket = UnixStream::connect(&path).expect("a connection");
    let mut question = ClientHello::default().encode();
    for stream in 1..=AT_ONCE {
        question.extend([5, 0, 0, 0]);
        question.extend(stream.to_le_bytes());
        question.extend([216, 0, 0, 0, 1, 1, 0, 0, 0]);
    }
    socket.write_all(&question).expect("questions");
    socket.set_nonblocking(true).expect("it does not wait");
    let (mut read, mut hello, mut all, mut most) = (Vec::new(), true, 0, 0);
    let deadline = Instant::now() + Duration::from_secs(300);
    let seen = std::future::poll_fn(|context| {
        let count = answers(&mut socket, &mut read, &mut hello);
        (all, most) = (all + count, most.max(count));
        assert!(Instant::now() < deadline, "{all} answers have come");
        if all == AT_ONCE {
            return std::task::Poll::Ready(());
        }
        context.waker().wake_by_ref();
        std::task::Poll::Pending
    });
    kumi_call::server::serve(config(), Registry::default(), listener, seen).expect("it serves");
    assert_eq!((all, most), (AT_ONCE, 1));
}

#[test]
fn servers_of_earlier_versions_cannot_show_logs() {
    let interface = interfaces().remove(1);
    let (address, thread) = ScriptedServer::attends(&interface, 1 << 20, |server| {
        assert!(server.next().is_none(), "it is asked nothing that it does not know");
    });
    let client = Client::connect(&address, &Options::default()).expect("a connection");
    match client.logs(&LogRequest::Latest(1)) {
        Err(error @ CallError::NoLogs(_)) => {
            assert!(error.to_string().contains("`by hand` cannot show logs"), "{error}");
        }
        other => panic!("{other:?}"),
    }
    drop(client);
    thread.join().expect("it was left alone");
}
