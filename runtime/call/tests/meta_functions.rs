//! Functions of the client as arguments of calls through a metaserver.
#![forbid(unsafe_code)]

mod common;
#[path = "common/functions.rs"]
mod functions;
#[path = "common/grid.rs"]
mod grid;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;
use std::time::Duration;

use common::{TestServer, library_of, served_text};
use functions::{counted, is_integral, square};
use grid::{Meta, config, meta};
use kumi_call::server::Config;
use kumi_call::{Arg, CallError, CallWatch, Callback, Options, Remote, RemoteCall, WakeEvent};
use kumi_rpc::Value;

const REPEATED: &str = r#"
Define again(mode_in int n, f(mode_in double x, mode_out double y), mode_out double sum) @idempotent
Calls "C" integrate(n, f, sum);
"#;

/// A server of these routines.
fn started(config: Config) -> TestServer {
    served_text(config, &[functions::TEXT, REPEATED].concat(), library_of("callbacks.c"))
}

fn member(meta: &Meta, name: &str) -> TestServer {
    started(meta.member(name, 2))
}

#[test]
fn a_function_is_called_by_who_calls() {
    let meta = meta(config("round-robin"));
    let _server = member(&meta, "a");
    meta.until_servers(1);
    let grid = meta.grid();
    let (count, here) = (AtomicUsize::new(0), std::thread::current().id());
    let function = square(|_| {
        assert_eq!(std::thread::current().id(), here);
        count.fetch_add(1, Ordering::Relaxed);
    });
    let outcome = grid.call("integrate", vec![100.into(), function.into()]).expect("it runs");
    is_integral(&outcome, 100);
    assert_eq!(count.load(Ordering::Relaxed), 100);
    let function = Callback::new(|_| Err("enough".to_owned()));
    let failed = grid.call("integrate", vec![1.into(), function.into()]);
    assert!(
        matches!(&failed, Err(CallError::Callback(text)) if text.contains("enough")),
        "{failed:?}"
    );
    let state = meta.until("both ends", |state| state.running == 0);
    assert_eq!((state.counters.placed, state.counters.done, state.counters.failed), (2, 1, 1));
}

#[test]
fn arrays_of_functions_go_there_and_back() {
    let meta = meta(config("round-robin"));
    let _server = member(&meta, "a");
    meta.until_servers(1);
    let n = 100_000_usize;
    let mut x: Vec<f64> = (0..n).map(|i| i as f64 / 2.0).collect();
    let before = x.clone();
    let function = Callback::new(|args| {
        assert!(args.array::<f64>("a")? == before);
        args.array_mut::<f64>("b")?.fill(0.25);
        args.array_mut::<i32>("every")?.fill(7);
        args.set_text("said", "well done")
    });
    let args = vec![(n as i32).into(), function.into(), (&mut x).into()];
    let outcome = meta.grid().call("visit", args).expect("it runs");
    assert_eq!(outcome.values, [(3, Value::Text("well done".to_owned()))]);
    let every = |i: usize| if i.is_multiple_of(2) { 7.0 } else { 100.0 + i as f64 };
    assert!((0..n).all(|i| x[i] == 0.5 + every(i)));
}

#[test]
fn a_function_of_a_call_that_was_begun_is_called_by_who_waits() {
    let meta = meta(config("round-robin"));
    let _server = member(&meta, "a");
    meta.until_servers(1);
    let grid = meta.grid();
    let callers: Arc<Mutex<Vec<ThreadId>>> = Arc::default();
    let begin = || {
        let callers = Arc::clone(&callers);
        let note = move |_| callers.lock().expect("a list").push(std::thread::current().id());
        let args: Vec<Arg<'static>> = vec![50.into(), square(note).into()];
        grid.call_async("integrate", args, None).expect("it begins")
    };
    let mut call = begin();
    meta.until("a call that runs", |state| state.running == 1);
    assert!(callers.lock().expect("a list").is_empty(), "nobody waits");
    let waits = std::thread::spawn(move || {
        is_integral(&call.wait(&|| false).expect("it runs"), 50);
        std::thread::current().id()
    });
    let waits = waits.join().expect("it ends");
    assert_eq!(*callers.lock().expect("a list"), [waits; 50]);
    // A wait without time runs a callback if one is pending.
    callers.lock().expect("a list").clear();
    let mut call = begin();
    let mut outcome = None;
    common::eventually("its end", || {
        outcome = call.wait_for(Duration::ZERO, &|| false).expect("it runs");
        outcome.is_some()
    });
    is_integral(&outcome.expect("an end"), 50);
    assert_eq!(*callers.lock().expect("a list"), [std::thread::current().id(); 50]);
    // A call dropped while its routine waits ends there.
    drop(begin());
    meta.until("no calls", |state| state.running == 0 && state.waiting == 0);
}

#[test]
fn a_call_that_has_not_begun_runs_elsewhere() {
    let meta = meta(config("round-robin"));
    let mut nowhere = meta.member("a", 1);
    // Nobody listens there.
    nowhere.membership.as_mut().expect("one").address = grid::port().to_string();
    let _nowhere = started(nowhere);
    let _server = member(&meta, "b");
    meta.until_servers(2);
    let grid = meta.grid();
    let count = AtomicUsize::new(0);
    for _ in 0..2 {
        let args = vec![10.into(), counted(&count).into()];
        let outcome = grid.call("integrate", args).expect("it runs");
        is_integral(&outcome, 10);
    }
    assert_eq!(count.load(Ordering::Relaxed), 20);
    let state = meta.until("both ends", |state| state.counters.done == 2);
    assert!(state.counters.retried > 0, "{state:?}");
}

/// A metaserver with two servers, and a function that ends the busy one.
fn two() -> (Meta, impl FnMut() + Send) {
    let meta = meta(config("round-robin"));
    let first = member(&meta, "first");
    meta.until_servers(1);
    let mut both = vec![first];
    let at = meta.address.to_string();
    let mut second = meta.member("second", 2);
    let mut kept = Some(move || {
        second.membership.as_mut().expect("one").metaservers = vec![at];
        started(second)
    });
    let swap = move || {
        if let Some(start) = kept.take() {
            both.push(start());
            both[0].stop();
        }
    };
    (meta, swap)
}

#[test]
fn a_call_whose_function_was_called_is_not_run_again() {
    for apart in [false, true] {
        let (meta, mut swap) = two();
        let count = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&count);
        let function = square(move |_| {
            counter.fetch_add(1, Ordering::Relaxed);
            swap();
        });
        let args: Vec<Arg<'static>> = vec![10.into(), function.into()];
        let grid = meta.grid();
        let failed = match apart {
            false => grid.call("integrate", args),
            true => grid.call_async("integrate", args, None).and_then(|mut it| it.wait(&|| false)),
        };
        let failed = failed.expect_err("its server is gone");
        assert!(!failed.has_not_run(), "{failed}");
        assert_eq!(count.load(Ordering::Relaxed), 1, "{failed}");
    }
}

#[test]
fn a_call_that_may_run_twice_calls_its_functions_again() {
    for apart in [false, true] {
        let (meta, mut swap) = two();
        let count = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&count);
        let function = square(move |_| {
            if counter.fetch_add(1, Ordering::Relaxed) == 2 {
                swap();
            }
        });
        let args: Vec<Arg<'static>> = vec![10.into(), function.into()];
        let grid = meta.grid();
        let outcome = match apart {
            false => grid.call("again", args),
            true => grid.call_async("again", args, None).and_then(|mut it| it.wait(&|| false)),
        };
        is_integral(&outcome.expect("it runs on the other"), 10);
        assert_eq!(count.load(Ordering::Relaxed), 13);
        let state = meta.until("its end", |state| state.counters.done == 1);
        assert_eq!(state.recent[0].server, "second");
    }
}

#[test]
fn who_waits_for_several_calls_is_woken() {
    /// The wait is shorter than the call.
    const HOUR: Duration = Duration::from_secs(3600);
    let meta = meta(config("round-robin"));
    let server = member(&meta, "a");
    meta.until_servers(1);
    let count = Arc::new(AtomicUsize::new(0));
    let begin = |address: String| {
        let counter = Arc::clone(&count);
        let function = square(move |_| {
            counter.fetch_add(1, Ordering::Relaxed);
        });
        let remote = Remote::connect(&address, &Options::default()).expect("a connection");
        let args: Vec<Arg<'static>> = vec![20.into(), function.into()];
        remote.begin("integrate", args, None, &|| false).expect("it begins")
    };
    // Callbacks and ends, with and without a metaserver.
    let mut calls: Vec<RemoteCall> =
        [meta.address, server.address, meta.address].map(|it| begin(it.to_string())).into();
    let event = WakeEvent::new().expect("an event");
    while !calls.is_empty() {
        let watches: Vec<CallWatch> = calls.iter().map(RemoteCall::watch).collect();
        event.wait(&watches, HOUR).expect("it waits");
        calls.retain_mut(|call| {
            let ended = call.wait_for(Duration::ZERO, &|| false).expect("it runs");
            ended.inspect(|outcome| is_integral(outcome, 20)).is_none()
        });
    }
    assert_eq!(count.load(Ordering::Relaxed), 60);
    // A call that fails, and a wake-up from another thread.
    let idle = [begin(meta.address.to_string())];
    event.wait(&[idle[0].watch()], HOUR).expect("its function is to be called");
    event.wake();
    event.wait(&[], HOUR).expect("it has rung");
    let waking = Arc::clone(&event);
    let waker = std::thread::spawn(move || waking.wake());
    event.wait(&[], HOUR).expect("it rings");
    waker.join().expect("it ends");
}
