//! Calls of routines in a C library over loopback.
#![forbid(unsafe_code)]

mod common;

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::{Gate, config, eventually, library, served, served_by};
use kumi_call::server::{Registry, RegistryError};
use kumi_call::{
    Arg, Array, Call, CallError, Client, Options, Outcome, Remote, WakeEvent, wait_any,
};
use kumi_idl::{Order, Scalar};
use kumi_rpc::Value;

/// The product by definition.
fn product(n: usize, a: &[f64], b: &[f64]) -> Vec<f64> {
    let cell = |i: usize, j: usize| (0..n).map(|k| a[i * n + k] * b[k * n + j]).sum();
    (0..n * n).map(|at| cell(at / n, at % n)).collect()
}

fn numbers(count: usize, seed: usize) -> Vec<f64> {
    (0..count).map(|at| ((at * 7919 + seed * 31) % 1009) as f64).collect()
}

#[test]
fn matrices_are_multiplied() {
    let server = served(config());
    let client = server.client();
    for n in [0, 1, 2, 17, 60] {
        let (a, b, mut c) = (numbers(n * n, 1), numbers(n * n, 2), vec![0.0; n * n]);
        let args = vec![(n as i32).into(), (&a).into(), (&b).into(), (&mut c).into()];
        client.call("dmmul", args).expect("it runs");
        assert!(c == product(n, &a, &b), "n = {n}");
    }
}

#[test]
fn long_arrays_go_in_chunks() {
    let server = served(config());
    let client = server.client();
    // The matrix moves every column one to the right.
    let n = 400;
    let (a, mut b, mut c) = (numbers(n * n, 1), vec![0.0; n * n], vec![0.0; n * n]);
    for i in 0..n {
        b[i * n + (i + 1) % n] = 1.0;
    }
    let args = vec![(n as i32).into(), (&a).into(), (&b).into(), (&mut c).into()];
    client.call("dmmul", args).expect("it runs");
    assert!((0..n * n).all(|at| c[at / n * n + (at % n + 1) % n] == a[at]));
}

#[test]
fn fortran_columns_and_a_status() {
    let server = served(config());
    let client = server.client();
    // Row-major at the caller, column-major at the routine.
    let a = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
    let mut y = [10.0, 20.0];
    let mut call = |a: Array<'_>, m: i32| {
        client.call("addcol", vec![2.into(), m.into(), Arg::In(a), y.as_mut_slice().into()])
    };
    call(Array::shaped(&a, &[2, 3], Order::Row), 3).expect("it runs");
    call(Array::shaped(&a, &[2, 3], Order::Column), 3).expect("it runs");
    call(Array::flat(&a), 3).expect("it runs");
    let many = vec![1.0; 200];
    match call(Array::flat(&many), 100) {
        Err(CallError::Status { parameter, value: 100, outcome, .. }) => {
            assert_eq!((parameter.as_str(), outcome.scalar(4)), ("info", Some(Scalar::I64(100))));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(y, [10.0 + 1.0 + 1.0 + 1.0 + 1.0, 20.0 + 4.0 + 2.0 + 2.0 + 1.0]);
}

#[test]
fn scalars_sections_and_texts() {
    let server = served(config());
    let client = server.client();
    let outcome =
        client.call("total", vec![3.into(), [1.0_f32, 2.0, 3.5].as_slice().into(), Arg::Default]);
    assert_eq!(outcome.expect("it runs").scalar(3), Some(Scalar::F64(13.0)));
    let mut x = [1, 2, 3, 4, 5];
    client.call("negate", vec![5.into(), x.as_mut_slice().into()]).expect("it runs");
    assert_eq!(x, [-1, 2, -3, 4, -5], "what does not travel stays");
    let outcome: Outcome = client.call("shout", vec!["hey".into()]).expect("it runs");
    assert_eq!(outcome.values, [(1, Value::Text("hey!".to_owned()))]);
    client.call("noop", vec![]).expect("it runs");
}

const TEXT: &str = r#"
Module tests;
Define other(mode_in int n, mode_inout int x[n: 0, n, 2]) "every second one" Calls "C" negate(n, x);
Define times(mode_in string way = "N", mode_in int n, mode_in float x[way == 'T' ? n : 1], mode_in float scale = 2,
    mode_out double sum)
Calls "C" sum = total(n, x, scale);
Define built(mode_in int n) { (void) n; }
"#;

#[test]
fn descriptions_as_text_and_as_a_module() {
    let folder = tempfile::tempdir().expect("a folder");
    let libraries = [library()];
    let text = folder.path().join("tests.idl");
    std::fs::write(&text, TEXT).expect("written");
    let mut registry = Registry::default();
    let left_out = registry.add_file(&text, &libraries).expect("descriptions");
    let names: Vec<String> = registry.names().map(str::to_owned).collect();
    assert_eq!(left_out.len(), 1, "{left_out:?}");
    assert!(left_out[0].to_string().contains("built"), "{}", left_out[0]);
    // The same from the output of `kumi call check --json`.
    let module = kumi_idl::parse(TEXT.as_bytes()).module.expect("a module");
    let json = folder.path().join("tests.json");
    std::fs::write(&json, module.to_json().expect("JSON")).expect("written");
    let mut again = Registry::default();
    again.add_file(&json, &libraries).expect("descriptions");
    assert!(again.names().eq(names.iter().map(String::as_str)), "{names:?}");

    let server = served_by(config(), again);
    let client = server.client();
    let other = names.iter().find(|name| name.ends_with("other")).expect("its name");
    let mut x = [1, 2, 3];
    client.call(other, vec![3.into(), x.as_mut_slice().into()]).expect("it runs");
    assert_eq!(x, [-1, 2, -3]);
    // The size of `x` depends on a text argument.
    let times = names.iter().find(|name| name.ends_with("times")).expect("its name");
    let x = [1.0_f32, 2.0];
    let args = vec!["T".into(), 2.into(), x.as_slice().into(), Arg::Default];
    let outcome = client.call(times, args).expect("it runs");
    assert_eq!(outcome.scalar(4), Some(Scalar::F64(6.0)));
    let args = vec![Arg::Default, 2.into(), x.as_slice().into(), Arg::Default];
    let refused = client.call(times, args);
    assert!(matches!(refused, Err(CallError::Argument { .. })), "{refused:?}");
}

#[test]
fn wrong_descriptions_are_told_with_their_place() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("wrong.idl");
    std::fs::write(&path, "Define f(mode_in int n, mode_in double A[m])\nCalls \"C\" f(n, A);\n")
        .expect("written");
    let wrong = Registry::default().add_file(&path, &[library()]);
    let Err(RegistryError::Text { what, .. }) = wrong else { panic!("{wrong:?}") };
    assert!(what.starts_with("1:") && what.contains('m'), "{what}");
    std::fs::write(&path, "Define f(mode_in int n) { (void) n; }").expect("written");
    let nothing = Registry::default().add_file(&path, &[library()]);
    assert!(matches!(nothing, Err(RegistryError::NotRunnable(_))), "{nothing:?}");
}

#[test]
fn a_call_is_ended_by_another_thread_and_waited_for_once() {
    let server = served(config());
    let client = server.client();
    let begin = |ms: i32| client.call_async("nap", vec![ms.into()], None).expect("it is sent");
    let mut long = begin(600_000);
    let canceller = long.canceller();
    let ended = std::thread::scope(|scope| {
        let waits = scope.spawn(|| long.wait(&|| false));
        canceller.cancel().expect("the connection is there");
        waits.join().expect("it ends")
    });
    assert!(matches!(ended, Err(CallError::Cancelled(_))), "{ended:?}");
    match long.wait(&|| false) {
        Err(CallError::Server(text)) => assert!(text.contains("the call is over"), "{text}"),
        other => panic!("{other:?}"),
    }
    canceller.cancel().expect("nothing is left to be ended");
    // A time too long for the wire means no limit.
    let mut short = begin(1);
    assert!(short.wait_for(Duration::MAX, &|| false).expect("it runs").is_some());
    client.call_within("nap", vec![1.into()], Some(Duration::MAX)).expect("it runs");
    let patient = Options { connect_time: Duration::MAX, ..Options::default() };
    Client::connect(&server.address.to_string(), &patient).expect("a connection");
}

#[test]
fn the_first_of_several_connections_to_answer() {
    let (server, other) = (served(config()), served(config()));
    let (client, another) = (server.client(), other.client());
    let begin = |client: &Client, ms: i32| {
        client.call_async("nap", vec![ms.into()], None).expect("it is sent")
    };
    let long = begin(&client, 600_000);
    let short = begin(&another, 1);
    assert_eq!(wait_any(&[&long, &short], &|| false).expect("it comes"), Some(1));
    let asked = Cell::new(0);
    let stop = || asked.replace(asked.get() + 1) > 1;
    assert!(matches!(wait_any(&[&long], &stop), Err(CallError::Interrupted)));
    assert_eq!(wait_any(&[], &|| false).expect("nothing to wait for"), None);
}

/// While one thread reads, a waiting thread asks for interruption, and may use the connection then.
#[test]
fn who_does_not_read_is_interrupted_as_well() {
    let server = served(config());
    let client = server.client();
    let begin = || client.call_async("nap", vec![600_000.into()], None).expect("it is sent");
    let mut calls = [begin(), begin()];
    let ends = [calls[0].canceller(), calls[1].canceller()];
    let wait = |call: &mut Call<'_>| {
        let ended = call.wait(&|| {
            assert_eq!(client.names("nap").expect("names"), ["nap"]);
            true
        });
        for end in &ends {
            end.cancel().expect("the connection is there");
        }
        ended
    };
    let wait = &wait;
    // It is unknown which of them reads. The other is interrupted, and ends the reader's call.
    let ended: Vec<_> = std::thread::scope(|scope| {
        let threads = calls.each_mut().map(|call| scope.spawn(move || wait(call)));
        threads.map(|thread| thread.join().expect("it ends").expect_err("no result")).into()
    });
    let count = |is: fn(&CallError) -> bool| ended.iter().filter(|error| is(error)).count();
    assert_eq!(count(|error| matches!(error, CallError::Interrupted)), 1, "{ended:?}");
    assert_eq!(count(|error| matches!(error, CallError::Cancelled(_))), 1, "{ended:?}");
}

/// The wait is shorter than the call.
const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn who_waits_beside_one_who_reads_is_woken() {
    let mut many = config();
    many.slots = 2;
    let server = served(many);
    let address = server.address.to_string();
    let remote = Remote::connect(&address, &Options::default()).expect("a connection");
    let begin = |gate: &Gate| {
        let call = remote.begin("gate", gate.args(), None, &|| false).expect("it begins");
        eventually("a call that runs", || gate.begun() == 1);
        call
    };
    let event = WakeEvent::new().expect("an event");
    for round in 0..20 {
        let (own, other) = (Gate::new(), Gate::new());
        let (mut call, mut read) = (begin(&own), begin(&other));
        let left = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                read.wait(&|| false).expect("it runs");
                left.store(true, Ordering::SeqCst);
            });
            scope.spawn(|| {
                // The call ends while the other thread reads, or after it has stopped.
                if round % 2 == 0 {
                    other.open();
                    eventually("its end", || left.load(Ordering::SeqCst));
                }
                own.open();
            });
            while call.wait_for(Duration::ZERO, &|| false).expect("it runs").is_none() {
                event.wait(&[call.watch()], HOUR).expect("it waits");
            }
            other.open();
        });
    }
}
