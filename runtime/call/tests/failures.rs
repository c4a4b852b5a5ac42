//! Failures: routines that crash, hang or cannot be run, wrong arguments, malformed clients, clients that
//! vanish.
#![forbid(unsafe_code)]

mod common;

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use common::{config, eventually, served};
use kumi_call::{Arg, Array, CallError, Client, Options};
use kumi_idl::{Order, Scalar};
use kumi_rpc::{CallHead, ClientHello, Code, Failure, HEADER, ServerHello, Value};

fn runs(client: &Client) {
    let mut c = [0.0];
    let args =
        vec![1.into(), [2.0].as_slice().into(), [3.0].as_slice().into(), c.as_mut_slice().into()];
    client.call("dmmul", args).expect("it runs");
    assert_eq!(c, [6.0]);
}

#[test]
fn a_routine_that_dies_is_its_calls_failure_alone() {
    let server = served(config());
    let client = server.client();
    for _ in 0..3 {
        match client.call("crash", vec![]) {
            Err(CallError::Crashed { detail: 6, text }) => {
                assert!(text.contains("`crash`"), "{text}");
            }
            other => panic!("{other:?}"),
        }
        match client.call("leave", vec![3.into()]) {
            Err(CallError::Crashed { detail: -4, .. }) => {}
            other => panic!("{other:?}"),
        }
        runs(&client);
    }
    match client.call("absent", vec![]) {
        Err(error @ CallError::NotRunnable(_)) => {
            assert!(error.to_string().contains("absent") && error.has_not_run(), "{error}");
        }
        other => panic!("{other:?}"),
    }
    runs(&client);
}

#[test]
fn limits_of_time_and_memory() {
    let mut limited = config();
    limited.slots = 1;
    limited.process_bytes = 1 << 30;
    limited.call_bytes = 1 << 20;
    let server = served(limited);
    let client = server.client();
    let nap = |ms: i32, most| {
        client.call_within("nap", vec![ms.into()], Some(Duration::from_millis(most)))
    };
    assert!(matches!(nap(60_000, 50), Err(CallError::TimedOut(_))));
    assert!(nap(1, 20_000).is_ok(), "the slot is free again");
    let used = |bytes: i64| {
        let outcome = client.call("use", vec![bytes.into()]).expect("it runs");
        outcome.scalar(1)
    };
    assert_eq!(used(1 << 20), Some(Scalar::I64(0)));
    assert_eq!(used(2 << 30), Some(Scalar::I64(1)), "more than the process may have");
    let many = vec![0.0; 1 << 16];
    let mut c = many.clone();
    let args = vec![256.into(), (&many).into(), (&many).into(), (&mut c).into()];
    assert!(matches!(client.call("dmmul", args), Err(CallError::TooLarge(_))));
    runs(&client);
}

/// The message for wrong arguments.
fn refused(client: &Client, args: Vec<Arg<'_>>) -> String {
    match client.call("dmmul", args) {
        Err(CallError::Argument { text, .. }) => text,
        other => panic!("{other:?}"),
    }
}

#[test]
fn arguments_are_checked_before_anything_is_sent() {
    let server = served(config());
    let client = server.client();
    let (a, mut c) = ([1.0; 4], [0.0; 4]);
    let said = refused(&client, vec![2.into(), a.as_slice().into(), a.as_slice().into()]);
    assert!(said.contains("4 arguments (n, A, B, C), 3 were given"), "{said}");
    let said = refused(
        &client,
        vec![3.into(), a.as_slice().into(), a.as_slice().into(), c.as_mut_slice().into()],
    );
    assert!(said.contains("`A` has 4 elements, the routine wants 9 ([3, 3])"), "{said}");
    let said = refused(
        &client,
        vec![2.into(), [1_i32; 4].as_slice().into(), a.as_slice().into(), c.as_mut_slice().into()],
    );
    assert!(said.contains("`A` has elements of int, the routine wants double"), "{said}");
    let shaped = Array::shaped(&a, &[4, 1], Order::Row);
    let said = refused(
        &client,
        vec![2.into(), Arg::In(shaped), a.as_slice().into(), c.as_mut_slice().into()],
    );
    assert!(said.contains("`A` has the shape [4, 1], the routine wants [2, 2]"), "{said}");
    let said = refused(
        &client,
        vec![2.into(), a.as_slice().into(), a.as_slice().into(), a.as_slice().into()],
    );
    assert!(said.contains("`C` is an array of double with 2 dimensions that comes back"), "{said}");
    let said = refused(
        &client,
        vec![(-1).into(), a.as_slice().into(), a.as_slice().into(), c.as_mut_slice().into()],
    );
    assert!(said.contains("-1"), "{said}");
    let said = refused(
        &client,
        vec![
            (1_i64 << 40).into(),
            a.as_slice().into(),
            a.as_slice().into(),
            c.as_mut_slice().into(),
        ],
    );
    assert!(said.contains("cannot hold"), "{said}");
    match client.call("dmul", vec![]) {
        Err(CallError::RoutineNotFound(text)) => {
            assert!(text.contains("did you mean dmmul"), "{text}");
        }
        other => panic!("{other:?}"),
    }
    runs(&client);
}

#[test]
fn many_calls_are_in_flight() {
    let server = served(config());
    let client = server.client();
    std::thread::scope(|scope| {
        for thread in 0..16 {
            let client = &client;
            scope.spawn(move || {
                for round in 0..20 {
                    let n = 1 + (thread * 13 + round * 7) % 60;
                    let a = vec![f64::from(thread); (n * n) as usize];
                    let b = vec![f64::from(round); (n * n) as usize];
                    let mut c = vec![0.0; (n * n) as usize];
                    let args = vec![n.into(), (&a).into(), (&b).into(), (&mut c).into()];
                    client.call("dmmul", args).expect("it runs");
                    let expected = f64::from(n) * f64::from(thread) * f64::from(round);
                    assert!(c.iter().all(|cell| *cell == expected));
                }
            });
        }
    });
}

/// Whether a process exists and is not a zombie.
fn lives(pid: i64) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| !stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" Z")))
}

#[test]
fn a_routine_that_closes_its_descriptors_gives_the_slot_back() {
    let mut one = config();
    one.slots = 1;
    let server = served(one);
    let client = server.client();
    for _ in 0..2 {
        let ended = client.call("deaf", vec![]);
        assert!(matches!(ended, Err(CallError::Crashed { detail: 9, .. })), "{ended:?}");
    }
    client.call("noop", vec![]).expect("the slot is free");
}

#[test]
fn what_a_routine_forks_ends_with_its_process() {
    let mut one = config();
    one.slots = 1;
    let mut server = served(one);
    let client = server.client();
    // The fork still has the socket; the end of the process is noticed anyway.
    let ended = client.call("brood", vec![1.into()]);
    assert!(matches!(ended, Err(CallError::Crashed { detail: -4, .. })), "{ended:?}");
    let outcome = client.call("brood", vec![0.into()]).expect("it runs");
    let pid = outcome.scalar(1).and_then(Scalar::integer).expect("a pid");
    assert!(lives(pid));
    server.stop();
    eventually("the end of the fork", || !lives(pid));
}

#[test]
fn who_goes_frees_the_slot() {
    let mut one = config();
    one.slots = 1;
    let mut server = served(one);
    let client = server.client();
    let outcome = client.call("nap", vec![0.into()]).expect("it runs");
    let pid = outcome.scalar(1).and_then(Scalar::integer).expect("a pid");
    // A raw client that begins a long call and vanishes.
    let known = client.interface("nap").expect("a description");
    let json = known.to_json().expect("its text");
    let mut bytes = ClientHello::default().encode();
    let head = CallHead {
        hash: twox_hash::XxHash3_64::oneshot(json.as_bytes()),
        timeout_ms: 0,
        routine: "nap".to_owned(),
        values: vec![(0, Value::I64(600_000))],
        ..CallHead::default()
    };
    kumi_rpc::Client::new().call(&head, &[], &mut bytes).expect("short");
    let mut raw_client = TcpStream::connect(server.address).expect("a connection");
    raw_client.write_all(&bytes).expect("it is sent");
    let mut hello = [0; 8];
    raw_client.read_exact(&mut hello).expect("it is greeted");
    assert_eq!(&hello, b"KUMICALL");
    // The only slot is taken, so others wait.
    let waits = client.call_within("noop", vec![], Some(Duration::from_millis(200)));
    let Err(CallError::TimedOut(why)) = waits else { panic!("{waits:?}") };
    assert!(why.starts_with("`noop` has not begun: it waited for a slot"), "{why}");
    assert!(lives(pid));
    drop(raw_client);
    runs(&client);
    eventually("the end of the process", || !lives(pid));
    server.stop();
    assert!(matches!(client.call("noop", vec![]), Err(CallError::Lost(_))));
}

#[test]
fn strangers_are_told_and_closed() {
    let server = served(config());
    let client = server.client();
    let hello = ClientHello::default().encode();
    let newer = ClientHello {
        versions: 7..=9,
        token: String::new(),
        program: String::new(),
        site: String::new(),
        maps_memory: false,
    };
    let chunk = kumi_rpc::chunk_header(1, 0, u32::MAX);
    let call = [&hello[..], &[0xff; 12]].concat();
    let long = [&hello[..], &chunk].concat();
    let mut versions = Vec::new();
    for bytes in [b"GET / HTTP/1.1\r\n\r\n".to_vec(), newer.encode(), call, long] {
        let mut raw_client = TcpStream::connect(server.address).expect("a connection");
        raw_client.write_all(&bytes).expect("it is sent");
        let mut said = Vec::new();
        raw_client.set_read_timeout(Some(Duration::from_secs(60))).expect("a limit");
        match raw_client.read_to_end(&mut said) {
            Ok(_) => {}
            // A reset counts as an end.
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            Err(error) => panic!("it is not closed: {error}"),
        }
        let (hello, length) = ServerHello::decode(&said).expect("a hello").expect("all of it");
        // Of another protocol or version the hello says so; whoever was greeted gets a failure.
        if hello.version.is_ok() {
            let failure = said.get(length + HEADER..).map(Failure::decode).expect("a failure");
            assert_eq!(failure.expect("well-formed").code, Code::Protocol);
        }
        versions.push(hello.version.is_ok());
    }
    assert_eq!(versions, [false, false, true, true]);
    runs(&client);
    let nobody = Client::connect("127.0.0.1:1", &Options::default());
    assert!(matches!(nobody, Err(CallError::Connect { .. })));
    assert!(matches!(Client::connect("here", &Options::default()), Err(CallError::Address(_))));
    assert!(!Path::new("here").exists());
}
