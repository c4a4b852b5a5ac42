//! Objects of classes: their state, the order of their calls, and their ends.
#![forbid(unsafe_code)]

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use common::{Gate, TestServer, config, eventually, library_of, served_text};
use kumi_call::server::Config;
use kumi_call::users::{NewToken, Users, add};
use kumi_call::{Arg, Call, CallError, Callback, Client, FileArgument, Object, Options};
use kumi_idl::Scalar;
use kumi_rpc::{CallHead, ClientHello, HEADER};

const CLASSES: &str = r#"
DefClass log "what was written, and the sum of what was added" {
    DefMethod pid(OUT int pid) Calls "C" log_pid(pid);
    DefMethod write(IN string path, IN string text) Calls "C" log_write(path, text);
    DefMethod read(OUT string text[256]) Calls "C" log_read(text);
    DefMethod add(IN int n, IN double x[n], OUT double total) Calls "C" log_add(n, x, total);
    DefMethod ask(f(IN double so_far, OUT double more), OUT double total) Calls "C" log_ask(f, total);
    DefMethod file(IN filename from, OUT filename to, OUT int bytes) Calls "C" log_file(from, to, bytes);
    DefMethod crash() Calls "C" log_crash();
}
DefClass other { DefMethod pid(OUT int pid) Calls "C" log_pid(pid); }
DefClass broken { DefMethod nothing() Calls "C" there_is_none(); }
Define plain(OUT int pid) Calls "C" log_pid(pid);
"#;

fn serve(change: impl FnOnce(&mut Config)) -> TestServer {
    let mut config = config();
    change(&mut config);
    served_text(config, CLASSES, library_of("objects.c"))
}

fn write(object: &Object, path: &str, text: &str) -> Call<'static> {
    let args = vec![Arg::Text(path.to_owned().into()), Arg::Text(text.to_owned().into())];
    object.call_async("write", args, None).expect("it begins")
}

fn read(object: &Object) -> String {
    match &object.call("read", vec![]).expect("it is there").values[..] {
        [(0, kumi_call::Value::Text(text))] => text.clone(),
        other => panic!("{other:?}"),
    }
}

fn pid(object: &Object) -> Scalar {
    object.call("pid", vec![]).expect("it is there").scalar(0).expect("a number")
}

fn is_there(pid: Scalar) -> bool {
    let pid = pid.integer().expect("an integer");
    std::path::Path::new("/proc").join(pid.to_string()).exists()
}

#[test]
fn each_object_has_a_state_of_its_own() {
    let server = serve(|_| {});
    let client = server.client();
    let (one, two) = (client.object("log").expect("one"), client.object("log").expect("two"));
    assert_ne!(pid(&one), pid(&two));
    for (object, text) in [(&one, "a"), (&two, "b"), (&one, "c")] {
        write(object, "", text).wait(&|| false).expect("written");
    }
    assert_eq!((read(&one), read(&two)), ("ac".to_owned(), "b".to_owned()));
    let x = vec![1.5; 100_000];
    for round in 1..4 {
        let total = one.call("add", vec![100_000.into(), x.as_slice().into()]).expect("added");
        assert_eq!(total.scalar(2), Some(Scalar::F64(150_000.0 * f64::from(round))));
    }
    // Two requests for a class make two objects. A plain routine has none.
    client.call("plain", vec![]).expect("no object is needed");
    assert!(!one.is_lost() && one.class() == "log");
}

#[test]
fn it_goes_with_its_handle_and_its_calls() {
    let server = serve(|config| config.objects = 1);
    let client = server.client();
    let object = client.object("log").expect("one");
    let process = pid(&object);
    let error = client.object("log").expect_err("one is the most");
    assert!(matches!(error, CallError::Busy(_)) && error.has_not_run(), "{error:?}");
    let gate = Gate::new();
    let mut call = write(&object, &gate.path(), "x");
    drop(object);
    assert!(client.object("log").is_err(), "the call still runs on it");
    gate.open();
    call.wait(&|| false).expect("it was not ended");
    drop(call);
    eventually("the end of the process", || !is_there(process));
    eventually("room for another", || client.object("log").is_ok());
}

#[test]
fn it_goes_when_it_is_ended_and_when_its_client_goes() {
    let server = serve(|_| {});
    let client = server.client();
    let object = client.object("log").expect("one");
    let process = pid(&object);
    object.end().expect("sent");
    object.end().expect("a second time it does nothing");
    eventually("its end", || object.is_lost());
    eventually("the end of the process", || !is_there(process));
    let error = object.call("read", vec![]).expect_err("it is no more");
    assert!(matches!(error, CallError::ObjectLost(_)) && error.has_not_run(), "{error:?}");
    let object = client.object("log").expect("another");
    let process = pid(&object);
    // Anything that holds the connection keeps the object.
    drop(client);
    assert_eq!(pid(&object), process);
    drop(object);
    eventually("the end of the process", || !is_there(process));
}

#[test]
fn its_calls_run_one_after_the_other_and_hold_no_slots_before() {
    let server = serve(|config| config.slots = 2);
    let client = server.client();
    let object = client.object("log").expect("one");
    let gate = Gate::new();
    let mut calls = vec![write(&object, &gate.path(), "0")];
    calls.extend((1..10).map(|i| write(&object, "", &i.to_string())));
    eventually("the first", || gate.begun() == 1);
    // One slot is left for other calls.
    client.call("plain", vec![]).expect("it does not wait for the object");
    let other = client.object("log").expect("another");
    write(&other, "", "other").wait(&|| false).expect("it does not wait for the object");
    assert!(calls.iter().all(|call| !call.is_over()));
    gate.open();
    for call in &mut calls {
        call.wait(&|| false).expect("written");
    }
    assert_eq!(read(&object), "0123456789");
    assert_eq!(read(&other), "other");
}

#[test]
fn objects_share_the_slots() {
    let server = serve(|config| config.slots = 1);
    let client = server.client();
    let objects: Vec<Object> = (0..3).map(|_| client.object("log").expect("one")).collect();
    let gate = Gate::new();
    let mut first = write(&objects[0], &gate.path(), "0");
    eventually("the first", || gate.begun() == 1);
    let mut others: Vec<_> = objects.iter().map(|object| write(object, "", "1")).collect();
    assert!(others.iter().all(|call| !call.is_over()), "there is one slot");
    gate.open();
    first.wait(&|| false).expect("written");
    others.iter_mut().for_each(|call| drop(call.wait(&|| false).expect("written")));
    let texts: Vec<String> = objects.iter().map(read).collect();
    assert_eq!(texts, ["01", "1", "1"]);
}

#[test]
fn a_crash_is_the_end_of_one_object() {
    let server = serve(|_| {});
    let client = server.client();
    let (object, other) = (client.object("log").expect("one"), client.object("log").expect("two"));
    let gate = Gate::new();
    let mut before = write(&object, &gate.path(), "x");
    let mut crash = object.call_async("crash", vec![], None).expect("it begins");
    let mut behind = write(&object, "", "y");
    gate.open();
    before.wait(&|| false).expect("written");
    let error = crash.wait(&|| false).expect_err("it crashes");
    assert!(matches!(error, CallError::Crashed { .. }) && !error.has_not_run(), "{error:?}");
    let error = behind.wait(&|| false).expect_err("it has nothing to run on");
    assert!(matches!(error, CallError::ObjectLost(_)) && error.has_not_run(), "{error:?}");
    assert!(error.to_string().contains("signal 6"), "{error}");
    eventually("that it is told", || object.is_lost());
    write(&other, "", "z").wait(&|| false).expect("written");
    assert_eq!(read(&other), "z");
    client.object("log").expect("the place is free");
}

#[test]
fn a_call_that_is_stopped_while_it_runs_ends_its_object_and_one_that_waits_does_not() {
    let server = serve(|_| {});
    let client = server.client();
    let object = client.object("log").expect("one");
    let gate = Gate::new();
    let mut first = write(&object, &gate.path(), "a");
    let mut second = write(&object, "", "b");
    eventually("the first", || gate.begun() == 1);
    second.cancel().expect("sent");
    assert!(matches!(second.wait(&|| false), Err(CallError::Cancelled(_))));
    let mut late =
        object.call_async("read", vec![], Some(Duration::from_millis(1))).expect("it begins");
    assert!(matches!(late.wait(&|| false), Err(CallError::TimedOut(_))), "it waits too long");
    gate.open();
    first.wait(&|| false).expect("written");
    assert_eq!(read(&object), "a");
    let gate = Gate::new();
    let mut first = write(&object, &gate.path(), "c");
    eventually("the first", || gate.begun() == 1);
    first.cancel().expect("sent");
    assert!(matches!(first.wait(&|| false), Err(CallError::Cancelled(_))));
    assert!(matches!(object.call("read", vec![]), Err(CallError::ObjectLost(_))));
}

#[test]
fn methods_have_files_functions_and_arrays() {
    let server = serve(|_| {});
    let client = server.client();
    let object = client.object("log").expect("one");
    for sum in [1.0, 3.0] {
        let more = Callback::new(|args| {
            let so_far = args.real("so_far")?;
            args.set("more", Scalar::F64(so_far + 1.0))
        });
        let outcome = object.call("ask", vec![more.into()]).expect("it runs");
        assert_eq!(outcome.scalar(1), Some(Scalar::F64(sum)));
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    std::fs::write(&from, vec![7; 100_000]).expect("written");
    let args = vec![FileArgument::from(from).into(), FileArgument::to(&to).into()];
    let outcome = object.call("file", args).expect("it runs");
    assert_eq!(outcome.scalar(2), Some(Scalar::I64(100_000)));
    assert_eq!(std::fs::read(&to).expect("a copy"), vec![7; 100_000]);
}

#[test]
fn what_cannot_be_is_said() {
    let server = serve(|_| {});
    let client = server.client();
    let error = client.object("lug").expect_err("no class");
    assert!(matches!(error, CallError::RoutineNotFound(_)), "{error:?}");
    assert!(error.to_string().contains("did you mean log?"), "{error}");
    for name in ["plain", "", "a\nb", &"x".repeat(600)] {
        let error = client.object(name).expect_err("no class");
        assert!(matches!(error, CallError::RoutineNotFound(_)), "{name}: {error:?}");
    }
    let error = client.object("plain").expect_err("a routine");
    assert!(error.to_string().contains("it is a routine"), "{error}");
    let error = client.object("broken").expect_err("its symbol is not there");
    assert!(matches!(error, CallError::NotRunnable(_)), "{error:?}");
    let object = client.object("log").expect("one");
    let error = object.call("reed", vec![]).expect_err("no method");
    assert!(error.to_string().contains("did you mean log.read or "), "{error}");
    let error = object.call("add", vec![2.into(), [1.0].as_slice().into()]).expect_err("too short");
    assert!(matches!(error, CallError::Argument { .. }), "{error:?}");
    // A method works only on objects of its class.
    let error = client.call("log.read", vec![]).expect_err("it has no object");
    assert!(matches!(error, CallError::Argument { .. }), "{error:?}");
    assert!(error.to_string().contains("make an object of `log`"), "{error}");
    assert_eq!(read(&object), "");
}

#[test]
fn who_may_call_a_method_may_have_objects() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("users.toml");
    let new = |user: &str, routines: &[&str]| {
        let routines = routines.iter().map(|&name| name.to_owned()).collect();
        let routines = Some(routines);
        let token = NewToken { user: user.to_owned(), routines, ..NewToken::default() };
        add(&file, &token).expect("a token")
    };
    let (reader, none) = (new("reader", &["log.read"]), new("none", &["plain"]));
    let users = Arc::new(Users::open(&file).expect("users"));
    let server = serve(|config| config.users = Some(users));
    let connect = |token: &str| {
        let options = Options { token: token.to_owned(), ..Options::default() };
        Client::connect(&server.address.to_string(), &options).expect("a user")
    };
    let object = connect(&reader).object("log").expect("it may call one");
    assert_eq!(read(&object), "");
    assert!(matches!(object.call("pid", vec![]), Err(CallError::NotPermitted(_))));
    for class in ["log", "lug"] {
        let error = connect(&none).object(class).expect_err("it may not");
        assert!(matches!(error, CallError::NotPermitted(_)), "{class}: {error:?}");
    }
}

/// The server's answers to raw frames after its hello (kinds, streams and bodies), until this many have
/// arrived.
fn said(server: &TestServer, frames: &[u8], count: usize) -> Vec<(u8, u32, Vec<u8>)> {
    let mut socket = TcpStream::connect(server.address).expect("a connection");
    socket.set_read_timeout(Some(Duration::from_secs(60))).expect("a limit");
    socket.write_all(&[&ClientHello::default().encode(), frames].concat()).expect("it is sent");
    let mut head = [0; 16];
    socket.read_exact(&mut head).expect("a hello");
    let fields = u32::from_le_bytes([head[12], head[13], head[14], head[15]]);
    socket.read_exact(&mut vec![0; fields as usize]).expect("its fields");
    let mut all = Vec::new();
    while all.len() < count {
        let mut header = [0; HEADER];
        socket.read_exact(&mut header).expect("a header");
        let number = |at: usize| {
            u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        let mut body = vec![0; number(0) as usize];
        socket.read_exact(&mut body).expect("a body");
        all.push((header[8], number(4), body));
    }
    all
}

#[test]
fn what_no_client_sends_is_refused() {
    const ERROR: u8 = 11;
    let server = serve(|_| {});
    let hash = |method: &str| {
        let known = server.client().interface(method).expect("a method");
        let json = known.to_json().expect("its text");
        twox_hash::XxHash3_64::oneshot(json.as_bytes())
    };
    let head = |method: &str, object| CallHead {
        hash: hash(method),
        routine: method.to_owned(),
        object,
        ..CallHead::default()
    };
    // Each begins with an object on stream 1. Then: its own method, another class's, a routine, an unknown
    // stream, no stream.
    for (method, object, code) in [
        ("log.pid", 1, None),
        ("other.pid", 1, Some(3)),
        ("plain", 1, Some(3)),
        ("log.pid", 2, Some(32)),
        ("log.pid", 7, Some(32)),
        ("log.pid", 0, Some(3)),
    ] {
        let (mut client, mut out) = (kumi_rpc::Client::new(), Vec::new());
        let stream = client.create("log", &mut out).expect("a name");
        assert_eq!(stream, 1);
        let call = client.call(&head(method, object), &[], &mut out).expect("short");
        // The call may be refused before the object exists.
        let answers = said(&server, &out, 2);
        let refusal = answers.iter().find(|(kind, ..)| *kind == ERROR);
        let refused = refusal.map(|(_, stream, body)| {
            assert_eq!(*stream, call, "{body:?}");
            u16::from_le_bytes([body[0], body[1]])
        });
        assert_eq!(refused, code, "{method} on {object}: {answers:?}");
    }
    // An object of another connection does not exist here.
    let object = server.client().object("log").expect("one");
    assert_eq!(read(&object), "");
    let (mut client, mut out) = (kumi_rpc::Client::new(), Vec::new());
    client.call(&head("log.pid", 2), &[], &mut out).expect("short");
    let answers = said(&server, &out, 1);
    assert_eq!((answers[0].0, &answers[0].2[..2]), (ERROR, &[32, 0][..]));
    assert_eq!(read(&object), "");
}
