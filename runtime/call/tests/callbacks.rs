//! Routines that call functions of their client while they run.
#![forbid(unsafe_code)]

mod common;
#[path = "common/functions.rs"]
mod functions;

use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::time::Duration;

use common::{TestServer, config, library_of, served_text};
use functions::{counted, is_integral, square};
use kumi_call::server::Config;
use kumi_call::{Arg, CallError, Callback, Client, HeldNames, Options, RemoteArray, wait_any};
use kumi_idl::Scalar;
use kumi_rpc::Value;

const MORE: &str = r#"
Define fintegrate(mode_in int n, f(mode_in double x, mode_out double y), mode_out double sum)
Calls "Fortran" fintegrate(n, f, sum);
Define states(mode_in int n, next(mode_out int first, mode_out int count), mode_out double density[n])
Calls "C" states(n, next, density);
Define threads(mode_in int n, tick(mode_in int thread, mode_in int i, mode_out int back), mode_out int sum)
Calls "C" threads(n, tick, sum);
Define give(mode_in int n, mode_in int null, take(mode_in int n, mode_in double a[n]))
Calls "C" give(n, null, take);
Define crashes(f()) Calls "C" crashes(f);
Define leaves_thread(f()) Calls "C" leaves_thread(f);
Define plain(mode_in int n, mode_out int twice) Calls "C" plain(n, twice);
"#;

fn served(config: Config) -> TestServer {
    served_text(config, &[functions::TEXT, MORE].concat(), library_of("callbacks.c"))
}

fn works(client: &Client) {
    let outcome = client.call("plain", vec![21.into()]).expect("it runs");
    assert_eq!(outcome.scalar(1), Some(Scalar::I64(42)));
}

#[test]
fn a_function_is_called_for_each_point() {
    let server = served(config());
    let client = server.client();
    for routine in ["integrate", "fintegrate"] {
        let count = AtomicUsize::new(0);
        let outcome = client.call(routine, vec![100.into(), counted(&count).into()]);
        is_integral(&outcome.expect("it runs"), 100);
        assert_eq!(count.load(Ordering::Relaxed), 100);
    }
    // The description asks for a function; without one nothing is sent.
    let error = client.call("integrate", vec![1.into(), 1.into()]).expect_err("no function");
    assert!(matches!(&error, CallError::Argument { .. }), "{error}");
    assert!(error.to_string().contains("`f` is a function"), "{error}");
    let error = client.call("integrate", vec![1.into(), Arg::Default]).expect_err("no function");
    assert!(matches!(error, CallError::Argument { .. }), "{error}");
}

#[test]
fn arrays_texts_and_sections_go_there_and_back() {
    let server = served(config());
    let client = server.client();
    // The last arrays travel in several chunks each way.
    for n in [1_usize, 5, 200_000] {
        let mut x: Vec<f64> = (0..n).map(|i| i as f64 / 2.0).collect();
        let before = x.clone();
        let callback = Callback::new(|args| {
            assert_eq!(args.integer("k"), Ok(n as i64));
            assert_eq!(args.integer("small"), Ok(-7));
            assert_eq!(args.text("name"), Ok("ninf"));
            assert!(args.array::<f64>("a")? == before);
            assert!(args.array::<i32>("a").is_err(), "its elements are others");
            let every = args.array_mut::<i32>("every")?;
            for (i, each) in every.iter_mut().enumerate() {
                assert_eq!(*each, if i.is_multiple_of(2) { 100 + i as i32 } else { 0 });
                *each = 1000;
            }
            let pairs = args.array_mut::<f64>("b")?;
            assert_eq!(pairs.len(), 2 * n);
            for pair in pairs.chunks_exact_mut(2) {
                assert_eq!(pair[0], -pair[1]);
                pair[1] = 0.5;
            }
            args.set_text("said", "well done")
        });
        let args = vec![(n as i32).into(), callback.into(), (&mut x).into()];
        let outcome = client.call("visit", args).expect("it runs");
        assert_eq!(outcome.values, [(3, Value::Text("well done".to_owned()))]);
        // Only every second element of `every` came back.
        let expected =
            |i: usize| i as f64 + 0.5 + if i.is_multiple_of(2) { 1000.0 } else { 100.0 + i as f64 };
        assert!((0..n).all(|i| x[i] == expected(i)), "n = {n}");
    }
}

/// Pieces of a density of states, for workers that ask for the next (Ninf paper, section 4).
#[test]
fn workers_ask_for_the_next_piece() {
    const N: i32 = 200;
    const PIECE: i32 = 7;
    let mut two = config();
    two.slots = 4;
    let server = served(two);
    let client = server.client();
    let next = AtomicI32::new(0);
    let given = Mutex::new(Vec::new());
    let densities: Vec<Vec<f64>> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let mut density = vec![0.0; N as usize];
                    let callback = Callback::new(|args| {
                        let first = next.fetch_add(PIECE, Ordering::Relaxed).min(N);
                        let count = PIECE.min(N - first);
                        given.lock().expect("sound").push((first, count));
                        args.set("first", Scalar::I64(first.into()))?;
                        args.set("count", Scalar::I64(count.into()))
                    });
                    let args = vec![N.into(), callback.into(), (&mut density).into()];
                    client.call("states", args).expect("it runs");
                    density
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().expect("it ends well")).collect()
    });
    // Each piece was given once, and each worker learned once that none is left.
    let mut given = given.into_inner().expect("sound");
    given.sort_unstable();
    let pieces = (N / PIECE + 1) as usize;
    assert_eq!(given.len(), pieces + 4);
    assert_eq!(given.iter().map(|(_, count)| count).sum::<i32>(), N);
    for i in 0..N {
        let expected: f64 = (0..=i * i).map(|k| 1.0 / (1.0 + f64::from(k))).sum();
        let found: Vec<f64> = densities
            .iter()
            .map(|density| density[i as usize])
            .filter(|density| *density != 0.0)
            .collect();
        assert_eq!(found, [expected], "of {i}");
    }
}

#[test]
fn threads_of_a_routine_take_turns() {
    let server = served(config());
    let client = server.client();
    let mut seen = [0_i64; 2];
    let mut inside = false;
    let callback = Callback::new(|args| {
        assert!(!std::mem::replace(&mut inside, true));
        let thread = args.integer("thread")? as usize;
        assert_eq!(args.integer("i")?, seen[thread], "in the order of its thread");
        seen[thread] += 1;
        inside = false;
        args.set("back", Scalar::I64(1))
    });
    let outcome = client.call("threads", vec![50.into(), callback.into()]).expect("it runs");
    assert_eq!(outcome.scalar(2), Some(Scalar::I64(100)));
    assert_eq!(seen, [50, 50]);
}

#[test]
fn a_function_calls_routines_itself() {
    let server = served(config());
    let client = server.client();
    let mut count = 0;
    let callback = Callback::new(|args| {
        works(&client);
        count += 1;
        let inner = AtomicUsize::new(0);
        let outcome = client.call("integrate", vec![3.into(), counted(&inner).into()]);
        let sum = outcome.map_err(|error| error.to_string())?.scalar(2);
        args.set("y", sum.ok_or("no sum")?)
    });
    let outcome = client.call("integrate", vec![4.into(), callback.into()]).expect("it runs");
    is_integral(&outcome, 3);
    assert_eq!(count, 4);
}

#[test]
fn calls_with_functions_share_a_connection() {
    let mut many = config();
    many.slots = 4;
    let server = served(many);
    let client = server.client();
    std::thread::scope(|scope| {
        for thread in 0..6 {
            let client = &client;
            scope.spawn(move || {
                for round in 0..5 {
                    let n = 1 + (thread * 5 + round) % 9;
                    let count = AtomicUsize::new(0);
                    let outcome = client.call("integrate", vec![n.into(), counted(&count).into()]);
                    is_integral(&outcome.expect("it runs"), n);
                    assert_eq!(count.load(Ordering::Relaxed), n as usize);
                    works(client);
                }
            });
        }
    });
}

#[test]
fn functions_run_while_any_call_is_waited_for() {
    let server = served(config());
    let client = server.client();
    let begin = || client.call_async("integrate", vec![10.into(), square(|_| {}).into()], None);
    let mut calls = [begin().expect("it is sent"), begin().expect("it is sent")];
    let mut open = vec![0, 1];
    while !open.is_empty() {
        let waited: Vec<_> = open.iter().map(|index| &calls[*index]).collect();
        let index = wait_any(&waited, &|| false).expect("it ends").expect("one is open");
        open.remove(index);
    }
    for call in &mut calls {
        is_integral(&call.wait(&|| false).expect("it runs"), 10);
    }
}

#[test]
fn a_function_that_fails_ends_the_routine() {
    let server = served(config());
    let client = server.client();
    let mut count = 0;
    let callback = Callback::new(|_| {
        count += 1;
        Err("no more".to_owned())
    });
    let error = client.call("integrate", vec![100.into(), callback.into()]).expect_err("it ends");
    assert!(
        matches!(&error, CallError::Callback(text) if text.contains("`f` failed: no more")),
        "{error}"
    );
    assert!(!error.has_not_run());
    assert_eq!(count, 1);
    // Functions that return nothing, or values that do not fit.
    let nothing = Callback::new(|_| Ok(()));
    let error = client.call("integrate", vec![1.into(), nothing.into()]).expect_err("it ends");
    assert!(error.to_string().contains("it gave no value of `y`"), "{error}");
    let wrong = Callback::new(|args| args.set("x", Scalar::F64(1.0)));
    let error = client.call("integrate", vec![1.into(), wrong.into()]).expect_err("it ends");
    assert!(error.to_string().contains("`x` is not a scalar result"), "{error}");
    works(&client);
}

#[test]
fn what_a_routine_cannot_give_ends_it() {
    let mut limited = config();
    limited.call_bytes = 1 << 20;
    let server = served(limited);
    let client = server.client();
    let give = |n: i32, null: i32| {
        let callback = Callback::new(|_| Ok(()));
        client.call("give", vec![n.into(), null.into(), callback.into()])
    };
    give(16, 0).expect("it runs");
    give(0, 1).expect("of an array without elements nothing is read");
    for (n, null, why) in
        [(3, 1, "`a` is a null pointer"), (i32::MAX, 0, "bytes of memory"), (-1, 0, "is -1")]
    {
        let error = give(n, null).expect_err("it cannot be called");
        assert!(matches!(&error, CallError::Callback(_)), "{error}");
        assert!(error.to_string().contains(why), "{error}");
    }
    works(&client);
    // A client with a lower limit reports it.
    let options = Options { callback_bytes: 64, ..Options::default() };
    let small = Client::connect(&server.address.to_string(), &options).expect("a connection");
    let callback = Callback::new(|_| panic!("it is not called"));
    let error = small.call("give", vec![16.into(), 0.into(), callback.into()]);
    let error = error.expect_err("it is too much");
    assert!(error.to_string().contains("more than 64 bytes"), "{error}");
    works(&small);
}

#[test]
fn crashes_time_and_cancellation_while_a_function_is_called() {
    let mut one = config();
    one.slots = 1;
    let server = served(one);
    let client = server.client();
    let quiet = || Callback::new(|_| Ok(()));
    let error = client.call("crashes", vec![quiet().into()]).expect_err("it crashes");
    assert!(matches!(error, CallError::Crashed { detail: 6, .. }), "{error}");
    // Time in the function counts as the call's.
    let slow = Callback::new(|args| {
        std::thread::sleep(Duration::from_millis(400));
        args.set("y", Scalar::F64(0.0))
    });
    let time = Some(Duration::from_millis(100));
    let error = client.call_within("integrate", vec![1000.into(), slow.into()], time);
    assert!(matches!(error, Err(CallError::TimedOut(_))), "{error:?}");
    works(&client);
    // Nobody waits, so the function does not run; the call ends anyway.
    let count = std::sync::Arc::new(AtomicUsize::new(0));
    let counted = std::sync::Arc::clone(&count);
    let never = Callback::new(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        Ok(())
    });
    let mut call = client.call_async("crashes", vec![never.into()], None).expect("it is sent");
    let begin = std::time::Instant::now();
    while count.load(Ordering::Relaxed) == 0 && begin.elapsed() < Duration::from_millis(200) {
        assert!(!call.is_over());
        std::thread::sleep(Duration::from_millis(20));
    }
    call.cancel().expect("it is sent");
    let ended = call.wait(&|| false);
    // The function may run once while the call's end is awaited.
    assert!(matches!(ended, Err(CallError::Cancelled(_) | CallError::Crashed { .. })), "{ended:?}");
    works(&client);
    // A client that leaves while its function runs frees the slot.
    let other = server.client();
    let gone = other.call_async("crashes", vec![quiet().into()], None).expect("it is sent");
    drop((gone, other));
    works(&client);
}

#[test]
fn a_function_is_not_called_after_the_end() {
    let mut one = config();
    one.slots = 1;
    let server = served(one);
    let client = server.client();
    let callback = Callback::new(|_| Ok(()));
    // The remaining thread ends the process: the call is over, or has crashed.
    match client.call("leaves_thread", vec![callback.into()]) {
        Ok(_) | Err(CallError::Crashed { detail: 6, .. }) => {}
        other => panic!("{other:?}"),
    }
    works(&client);
}

#[test]
fn what_a_function_helped_to_make_stays_as_long_as_its_client() {
    let server = served(config());
    let client = server.client();
    let mut names = HeldNames::new().expect("random bytes");
    let name = names.fresh();
    let states = |survives| {
        let mut array = RemoteArray::stays(name, Duration::from_secs(60));
        array.keep.as_mut().expect("it stays").survives = survives;
        let mut left = 3;
        let next = Callback::new(move |args| {
            let count = i64::from(left > 0);
            left -= count;
            args.set("first", Scalar::I64(left))?;
            args.set("count", Scalar::I64(count))
        });
        client.call("states", vec![3.into(), next.into(), Arg::Remote(Box::new(array))])
    };
    match states(true) {
        Err(CallError::Argument { text, .. }) => assert!(text.contains("functions of its client")),
        other => panic!("{other:?}"),
    }
    states(false).expect("it runs");
    let mut density = [0.0_f64; 3];
    client.fetch(name, 0, &mut density).expect("it is held");
    assert!((density[1] - 1.5).abs() < 1e-12 && density[0] == 1.0, "{density:?}");
}
