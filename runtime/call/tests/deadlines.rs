//! Deadlines go with calls: into the routine, to functions that it calls, and to the calls that these make.
#![forbid(unsafe_code)]

mod common;
#[path = "common/grid.rs"]
mod grid;

use std::sync::Mutex;
use std::time::Duration;

use common::{TestServer, config, library_of, served_text};
use kumi_call::server::Config;
use kumi_call::{CallError, Callback, Client, Options, Outcome, remaining};
use kumi_idl::Scalar;

const TEXT: &str = r#"
Define left(mode_out long ns) Calls "C" left(ns);
Define calls(f(), mode_out long ns) Calls "C" calls(f, ns);
"#;

const HOUR: Duration = Duration::from_secs(3600);

fn served(config: Config) -> TestServer {
    served_text(config, TEXT, library_of("context.c"))
}

/// What a routine says is left; `None`: it has no deadline.
#[track_caller]
fn left(outcome: &Outcome, parameter: usize) -> Option<Duration> {
    let ns = outcome.scalar(parameter).and_then(Scalar::integer).expect("a number");
    u64::try_from(ns).ok().map(Duration::from_nanos)
}

#[track_caller]
fn of_call(client: &Client, time: Option<Duration>) -> Option<Duration> {
    left(&client.call_within("left", vec![], time).expect("it runs"), 0)
}

#[test]
fn a_routine_knows_how_much_time_is_left() {
    let server = served(config());
    let client = server.client();
    // The same process runs all of these, and keeps nothing of the call before.
    for _ in 0..2 {
        assert_eq!(of_call(&client, None), None);
        let time = of_call(&client, Some(HOUR));
        assert!(time.is_some_and(|time| time <= HOUR && time > HOUR / 2), "{time:?}");
    }
}

#[test]
fn the_limit_of_the_server_counts_too() {
    let mut limited = config();
    limited.call_time = Some(HOUR);
    let server = served(limited);
    let client = server.client();
    for asked in [None, Some(3 * HOUR)] {
        let time = of_call(&client, asked);
        assert!(time.is_some_and(|time| time <= HOUR && time > HOUR / 2), "{time:?}");
    }
    let less = of_call(&client, Some(HOUR / 4));
    assert!(less.is_some_and(|less| less <= HOUR / 4), "{less:?}");
}

#[test]
fn a_function_and_its_calls_have_the_time_of_the_call() {
    let (server, other) = (served(config()), served(config()));
    let (client, further) = (server.client(), other.client());
    let seen = Mutex::new(Vec::new());
    let callback = Callback::new(|_| {
        let own = remaining().map_err(|error| error.to_string())?;
        seen.lock().expect("sound").extend([own, of_call(&further, None)]);
        seen.lock().expect("sound").push(of_call(&further, Some(Duration::from_secs(60))));
        Ok(())
    });
    let outcome = client.call_within("calls", vec![callback.into()], Some(HOUR)).expect("it runs");
    assert!(left(&outcome, 1).is_some_and(|left| left <= HOUR));
    let seen = seen.into_inner().expect("sound");
    let [own, of_next, of_short] = seen[..] else { panic!("{seen:?}") };
    assert!(own.is_some_and(|own| own <= HOUR && own > HOUR / 2), "{own:?}");
    assert!(of_next <= own && of_next.is_some_and(|next| next > HOUR / 2), "{of_next:?}");
    assert!(of_short.is_some_and(|short| short <= Duration::from_secs(60)), "{of_short:?}");
    // Neither this thread nor the server keep the deadline.
    assert_eq!(remaining().expect("no variable"), None);
    assert_eq!(of_call(&further, None), None);
}

/// A function that sees that its call is over, and what a call says that it makes then.
fn outlasting(told: &Mutex<Vec<CallError>>, further: Client) -> Callback<'_> {
    Callback::new(move |_| {
        while remaining().map_err(|error| error.to_string())? != Some(Duration::ZERO) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let error = further.call("left", vec![]).expect_err("there is no time left");
        told.lock().expect("sound").push(error);
        // Longer than the client waits for the server's answer beyond the deadline.
        std::thread::sleep(Duration::from_secs(3));
        Ok(())
    })
}

#[test]
fn a_function_that_outlasts_the_deadline_ends_the_call() {
    let (server, other) = (served(config()), served(config()));
    let client = server.client();
    let told = Mutex::new(Vec::new());
    let args = vec![outlasting(&told, other.client()).into()];
    let error = client.call_within("calls", args, Some(Duration::from_millis(300)));
    let error = error.expect_err("its time is over");
    assert!(matches!(error, CallError::TimedOut(_)), "{error}");
    assert!(error.to_string().contains("it waited for `f`, a function of its caller"), "{error}");
    let told = told.into_inner().expect("sound");
    assert!(matches!(&told[..], [CallError::TimedOut(_)]), "{told:?}");
    // The connection is as good as before, and the other server was not asked.
    assert_eq!(of_call(&client, None), None);
    assert_eq!(of_call(&other.client(), None), None);
}

#[test]
fn deadlines_go_through_a_metaserver() {
    let meta = grid::meta(grid::config("round-robin"));
    let _server = served(meta.member("one", 1));
    meta.until_servers(1);
    let grid = meta.grid();
    let outcome = grid.call_within("left", vec![], Some(HOUR)).expect("it runs");
    let time = left(&outcome, 0);
    assert!(time.is_some_and(|time| time <= HOUR && time > HOUR / 2), "{time:?}");
    assert_eq!(left(&grid.call("left", vec![]).expect("it runs"), 0), None);
    // A thread of the program runs the function of a call that another thread drives.
    let other = served(config());
    let further = Client::connect(&other.address.to_string(), &Options::default());
    let told: &Mutex<Vec<CallError>> = Box::leak(Box::default());
    let args = vec![outlasting(told, further.expect("a connection")).into()];
    let call = grid.call_async("calls", args, Some(Duration::from_millis(300)));
    let error = call.expect("it begins").wait(&|| false).expect_err("its time is over");
    assert!(error.to_string().contains("longer than it may"), "{error}");
    let told = told.lock().expect("sound");
    assert!(matches!(&told[..], [CallError::TimedOut(_)]), "{told:?}");
}
