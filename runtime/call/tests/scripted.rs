//! Clients of a scripted server: the frames that they send, and their defence against a hostile server.
#![forbid(unsafe_code)]

#[path = "common/scripted_server.rs"]
mod scripted_server;

use std::path::Path;
use std::time::Duration;

use kumi_call::{Arg, CallError, Client, FileArgument, Options, Remote};
use kumi_idl::Interface;
use scripted_server::{CALL, CANCEL, ScriptedServer};

fn interface(text: &str) -> Interface {
    let parsed = kumi_idl::parse(text.as_bytes());
    parsed.module.unwrap_or_else(|| panic!("{:?}", parsed.diagnostics)).interfaces.remove(0)
}

/// Result of receiving a file of this announced length. The folder contains only `to`, with the content
/// "before".
fn coming(options: &Options, length: u64, folder: &Path) -> CallError {
    let copy = interface("Define copy(mode_out filename to) Calls copy(to);");
    let (address, server) = ScriptedServer::attends(&copy, 1 << 20, move |scripted_server| {
        let Some((stream, CALL, _)) = scripted_server.next() else { panic!("no call") };
        scripted_server.announce_files(stream, &[(0, length)]);
        // A first part, which must stay invisible.
        scripted_server.say(stream, 4, 0, &[7; 1000]);
        let Some((cancelled, CANCEL, _)) = scripted_server.next() else {
            panic!("it is not cancelled")
        };
        assert_eq!(cancelled, stream);
    });
    let to = folder.join("to");
    std::fs::write(&to, "before").expect("written");
    let client = Client::connect(&address, options).expect("a connection");
    let error =
        client.call("copy", vec![FileArgument::to(&to).into()]).expect_err("it is too long");
    server.join().expect("a server that was told");
    drop(client);
    assert_eq!(std::fs::read(&to).expect("it is there"), b"before");
    assert_eq!(std::fs::read_dir(folder).expect("a folder").count(), 1);
    error
}

#[test]
fn a_file_that_is_too_long_does_not_come_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let said = |options: &Options, length| match coming(options, length, folder.path()) {
        CallError::File(text) => text,
        other => panic!("{other:?}"),
    };
    let usual = Options::default();
    assert_eq!(usual.file_bytes, 16 << 30);
    assert!(said(&usual, (16 << 30) + 1).contains("17179869185 bytes"));
    assert!(said(&usual, u64::MAX).contains("more than the 17179869184"));
    let few = Options { file_bytes: 4096, ..Options::default() };
    assert!(said(&few, 4097).contains("more than the 4096"));
}

/// The kinds of frames that a client sends until it leaves, besides requests for descriptions.
fn sent(interface: &Interface, bytes: u64, calls: impl FnOnce(&str)) -> Vec<u8> {
    let (address, server) = ScriptedServer::attends(interface, bytes, |scripted_server| {
        let frames = std::iter::from_fn(|| scripted_server.next());
        frames.map(|(_, kind, _)| kind).collect()
    });
    calls(&address);
    server.join().expect("no panic")
}

#[test]
fn a_server_is_told_no_priority() {
    let noop = interface("Define noop() Calls noop();");
    let frames = sent(&noop, 1 << 20, |address| {
        let remote = Remote::connect(address, &Options::default()).expect("a connection");
        for priority in [1, 9] {
            match remote.with_priority(priority) {
                Err(error @ CallError::NoPriority(_)) => {
                    let text = error.to_string();
                    assert!(
                        error.has_not_run() && text.contains("`by hand` is a server"),
                        "{text}"
                    );
                }
                other => panic!("{other:?}"),
            }
        }
        remote.with_priority(0).expect("that of every call");
    });
    assert!(frames.is_empty(), "{frames:?}");
}

#[test]
fn a_server_that_does_not_answer_is_named() {
    let noop = interface("Define noop() Calls noop();");
    let short = Some(Duration::from_millis(1));
    sent(&noop, 1 << 20, |address| {
        let client = Client::connect(address, &Options::default()).expect("a connection");
        let late = client.call_within("noop", vec![], short).expect_err("there is no answer");
        assert!(matches!(late, CallError::TimedOut(_)), "{late:?}");
        let expected = format!("the server `by hand` at {address} did not answer in time");
        assert_eq!(late.to_string(), expected);
    });
    // One that does not even greet has begun nothing.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address").to_string();
    let options = Options { connect_time: Duration::from_millis(1), ..Options::default() };
    let late = Client::connect(&address, &options).expect_err("there is no greeting");
    assert!(matches!(late, CallError::Connect { .. }) && late.has_not_run(), "{late:?}");
    assert!(late.to_string().contains(&address), "{late}");
}

/// Arguments of wrong number, type, shape and size: the client only asks for the description.
#[test]
fn of_calls_with_wrong_arguments_nothing_is_sent() {
    let text = r#"Define scale(mode_in int n, mode_in double a, mode_in double x[n], mode_out double y[n],
        mode_in string name[8], mode_in filename from) Calls scale(n, a, x, y, name, from);"#;
    let folder = tempfile::tempdir().expect("a folder");
    let (file, missing) = (folder.path().join("file"), folder.path().join("missing"));
    std::fs::write(&file, "text").expect("written");
    let frames = sent(&interface(text), 1 << 20, |address| {
        let client = Client::connect(address, &Options::default()).expect("a connection");
        let (mut y, mut long, whole) = (vec![0.0; 3], vec![0.0; 4], vec![1, 2, 3]);
        let x = vec![1.0, 2.0, 3.0];
        let from = || Arg::from(FileArgument::from(&file));
        let wrong = |args: Vec<Arg<'_>>| {
            let shown = format!("{args:?}");
            match client.call("scale", args) {
                Err(error @ CallError::Argument { .. }) => assert!(error.has_not_run()),
                other => panic!("{shown}: {other:?}"),
            }
        };
        wrong(vec![]);
        wrong(vec![3.into(), 2.0.into(), (&x).into(), (&mut y).into(), "name".into()]);
        let many: [Arg<'_>; 6] =
            [3.into(), 2.0.into(), (&x).into(), (&mut y).into(), "name".into(), from()];
        wrong(many.into_iter().chain([1.into()]).collect());
        wrong(vec!["3".into(), 2.0.into(), (&x).into(), (&mut y).into(), "name".into(), from()]);
        wrong(vec![3.into(), 2.0.into(), (&whole).into(), (&mut y).into(), "name".into(), from()]);
        wrong(vec![3.into(), 2.0.into(), (&x).into(), (&mut long).into(), "name".into(), from()]);
        wrong(vec![4.into(), 2.0.into(), (&x).into(), (&mut long).into(), "name".into(), from()]);
        wrong(vec![(-1).into(), 2.0.into(), (&x).into(), (&mut y).into(), "name".into(), from()]);
        wrong(vec![3.into(), 2.0.into(), (&x).into(), (&mut y).into(), "too long".into(), from()]);
        wrong(vec![3.into(), 2.0.into(), (&x).into(), (&mut y).into(), "na\0me".into(), from()]);
        wrong(vec![3.into(), 2.0.into(), (&x).into(), (&mut y).into(), "name".into(), (&x).into()]);
        let args: Vec<Arg<'_>> =
            vec![3.into(), 2.0.into(), (&x).into(), (&mut y).into(), "name".into()];
        let missing = Arg::from(FileArgument::from(&missing));
        let error = client.call("scale", args.into_iter().chain([missing]).collect());
        assert!(matches!(error, Err(CallError::File(_))), "{error:?}");
        // More than the server's hello permits.
        let (x, mut y) = (vec![0.0; 1 << 17], vec![0.0; 1 << 17]);
        let args: Vec<Arg<'_>> =
            vec![(1 << 17).into(), 2.0.into(), (&x).into(), (&mut y).into(), "name".into(), from()];
        match client.call("scale", args) {
            Err(error @ CallError::TooLarge(_)) => assert!(error.has_not_run()),
            other => panic!("{other:?}"),
        }
    });
    assert!(frames.is_empty(), "{frames:?}");
}
