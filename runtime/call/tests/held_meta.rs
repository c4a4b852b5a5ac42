//! Arrays at servers that a metaserver has chosen: calls that have them run there or fail.
#![forbid(unsafe_code)]

mod common;
#[path = "common/grid.rs"]
mod grid;
#[path = "common/scripted_server.rs"]
mod scripted_server;

use std::sync::mpsc;
use std::time::Duration;

use common::{Gate, TestServer, eventually, interfaces, param, routine, served, served_by};
use grid::{Meta, config, kept, meta, meta_at};
use kumi_call::server::Registry;
use kumi_call::{Arg, Array, CallError, Grid, HeldArray, Options, RemoteArray, Resources};
use kumi_idl::{Element, Expr, Interface, Mode, Param, Type};
use kumi_rpc::{Placement, Role, Ticket};
use scripted_server::{CALL, RESULT, ScriptedServer};

const COUNT: i32 = 4;

/// Has a call make an array of equal numbers, which stays.
fn fill(grid: &Grid, x: f64) -> HeldArray {
    let held = HeldArray::new();
    grid.call("fill", vec![COUNT.into(), 0.into(), x.into(), held.stays()]).expect("it runs");
    held
}

/// y += x.
fn add(grid: &Grid, x: &HeldArray, y: Arg<'_>) -> Result<(), CallError> {
    grid.call("add", vec![COUNT.into(), x.argument(), y]).map(|_| ())
}

fn at(held: &HeldArray) -> String {
    held.server().expect("a server").0
}

/// Two servers of a metaserver that sends calls to them in turn.
fn two(meta: &Meta, slots: usize) -> [TestServer; 2] {
    let servers = ["one", "two"].map(|name| served(meta.member(name, slots)));
    meta.until_servers(2);
    servers
}

/// The calls that ended well at a server.
fn done(meta: &Meta, name: &str) -> u64 {
    let state = meta.state();
    state.servers.iter().find(|server| server.name == name).expect("it is shown").done
}

/// Ends one of the servers.
fn stop(servers: &mut [TestServer; 2], name: &str) {
    servers[usize::from(name == "two")].stop();
}

/// The error of a call whose array was at this server.
#[track_caller]
fn assert_lost(failed: Result<(), CallError>, server: &str) -> CallError {
    let error = failed.expect_err("its array is gone");
    assert!(matches!(error, CallError::HeldLost { .. }), "{error:?}");
    let text = error.to_string();
    for word in ["`add`: `x` is `y` of `fill` at ", server, "and that is gone: "] {
        assert!(text.contains(word), "{text} lacks {word}");
    }
    error
}

#[test]
fn calls_run_where_their_arrays_are() {
    let meta = meta(config("round-robin"));
    let _servers = two(&meta, 2);
    let grid = meta.grid();
    let (x, other) = (fill(&grid, 3.0), fill(&grid, 5.0));
    assert_ne!(at(&x), at(&other), "in turn");
    let before = done(&meta, &at(&x));
    for turn in 1..=5 {
        let mut y = [1.0; COUNT as usize];
        add(&grid, &x, y.as_mut_slice().into()).expect("it runs");
        assert_eq!(y, [4.0; COUNT as usize]);
        meta.until("its end", |state| state.counters.done == 2 + turn);
    }
    assert_eq!(done(&meta, &at(&x)), before + 5);
    // The result of a call with a held array is held, too. It replaces what the reference was.
    let y = RemoteArray::default().held_as(&x).staying_as(&x);
    add(&grid, &x, Arg::Remote(Box::new(y))).expect("it runs");
    let mut fetched = [0.0; COUNT as usize];
    x.fetch(0, &mut fetched).expect("it is there");
    assert_eq!(fetched, [6.0; COUNT as usize]);
    let mut last = [0.0; 1];
    x.fetch(8 * (COUNT as u64 - 1), &mut last).expect("it is there");
    assert_eq!(last, [6.0]);
    assert!(!x.is_lost());
    // A call without a thread, which waits for a place first.
    let z = HeldArray::new();
    let y = Arg::Remote(Box::new(RemoteArray::default().held_as(&other).staying_as(&z)));
    let mut call =
        grid.call_async("add", vec![COUNT.into(), other.argument(), y], None).expect("it begins");
    call.wait(&|| false).expect("it runs");
    z.fetch(0, &mut fetched).expect("it is there");
    assert_eq!((fetched, at(&z)), ([10.0; COUNT as usize], at(&other)));
}

#[test]
fn arrays_of_two_servers_are_refused_before_anything_is_placed() {
    let meta = meta(config("round-robin"));
    let _servers = two(&meta, 2);
    let grid = meta.grid();
    let (x, y) = (fill(&grid, 3.0), fill(&grid, 5.0));
    let both = RemoteArray::default().held_as(&y).staying_as(&HeldArray::new());
    let refused = add(&grid, &x, Arg::Remote(Box::new(both))).expect_err("two servers");
    assert!(matches!(refused, CallError::HeldElsewhere(_)) && refused.has_not_run(), "{refused:?}");
    for word in [at(&x), at(&y), "fetch one of them".to_owned()] {
        assert!(refused.to_string().contains(&word), "{refused} lacks {word}");
    }
    // Fetched, it is an argument like any other.
    let mut here = [0.0; COUNT as usize];
    y.fetch(0, &mut here).expect("it is there");
    add(&grid, &x, here.as_mut_slice().into()).expect("it runs");
    assert_eq!(here, [8.0; COUNT as usize]);
    let state = meta.until("the last end", |state| state.counters.done == 3);
    assert_eq!(state.counters.placed, 3, "{:?}", state.counters);
}

#[test]
fn a_call_whose_array_is_gone_fails_at_once_and_runs_nowhere_else() {
    let meta = meta(config("round-robin"));
    let mut servers = two(&meta, 1);
    let grid = meta.grid();
    let x = fill(&grid, 3.0);
    let server = at(&x);
    // One call waits for the server of its array, the other has not asked yet.
    let open = Gate::new();
    let occupies = [0, 1].map(|_| grid.call_async("gate", open.args(), None).expect("it begins"));
    eventually("both servers", || open.begun() == 2);
    let y = HeldArray::new();
    let result = Arg::Remote(Box::new(RemoteArray::default().held_as(&x).staying_as(&y)));
    let args = vec![COUNT.into(), x.argument(), result];
    let mut waits = grid.call_async("add", args, None).expect("it begins");
    meta.until("a call that waits", |state| state.waiting == 1);
    let at = usize::from(server == "two");
    let stopping = std::thread::spawn(move || servers[at].stop());
    let lost = waits.wait(&|| false).map(|_| ());
    assert!(assert_lost(lost, &server).has_not_run());
    // The server goes on until its last call is over, and takes no others.
    let mut here = [0.0; COUNT as usize];
    assert!(assert_lost(add(&grid, &x, here.as_mut_slice().into()), &server).has_not_run());
    open.open();
    stopping.join().expect("it ends well");
    eventually("the end of the connection", || x.is_lost());
    let lost = assert_lost(add(&grid, &x, here.as_mut_slice().into()), &server);
    assert!(lost.has_not_run() && y.server().is_none(), "{lost}");
    assert!(lost.to_string().contains("the connection to the server was lost"), "{lost}");
    let gone = x.fetch(0, &mut here);
    assert!(matches!(&gone, Err(CallError::HeldLost { .. })), "{gone:?}");
    drop(occupies);
    let state = meta.until("no calls", |state| state.running + state.waiting == 0);
    assert_eq!(state.counters.placed, 3, "{:?}", state.counters);
}

/// `watch` reads an array and runs as long as `gate` does. It may run twice.
fn watching(meta: &Meta, name: &str) -> TestServer {
    let text = Param { ty: Type::String, ..param("path", Mode::In, Element::I32, &[]) };
    let size = param("n", Mode::In, Element::I32, &[]);
    let x = param("x", Mode::In, Element::F64, &[Expr::Param(1)]);
    let mut watch: Interface = routine("watch", vec![text, size, x]);
    watch.target.symbol = "gate".to_owned();
    watch.target.arguments.truncate(1);
    watch.idempotent = true;
    let mut registry = Registry::default();
    for interface in interfaces().into_iter().chain([watch]) {
        registry.add(interface, &[common::library()]).expect("a routine");
    }
    served_by(meta.member(name, 1), registry)
}

#[test]
fn a_call_that_runs_where_its_array_is_ends_with_the_server() {
    let meta = meta(config("round-robin"));
    let mut servers = ["one", "two"].map(|name| watching(&meta, name));
    meta.until_servers(2);
    let grid = meta.grid();
    let x = fill(&grid, 3.0);
    let server = at(&x);
    let open = Gate::new();
    let args = vec![Arg::Text(open.path().into()), COUNT.into(), x.argument()];
    let mut runs = grid.call_async("watch", args, None).expect("it begins");
    eventually("a call that runs", || open.begun() == 1);
    stop(&mut servers, &server);
    let error = runs.wait(&|| false).expect_err("its server is gone");
    assert!(matches!(error, CallError::HeldLost { has_not_run: false, .. }), "{error:?}");
    assert!(error.to_string().contains("`watch`: `x` is `y` of `fill` at "), "{error}");
    let state = meta.until("no calls", |state| state.running + state.waiting == 0);
    assert_eq!(
        (state.counters.placed, open.begun()),
        (2, 1),
        "it may run twice, but not elsewhere"
    );
}

#[test]
fn references_outlive_their_metaserver() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut first = meta(kept(config("round-robin"), &folder));
    let servers = ["one", "two"].map(|name| watching(&first, name));
    first.until_servers(2);
    let grid = first.grid();
    let x = fill(&grid, 3.0);
    let open = Gate::new();
    let args = vec![Arg::Text(open.path().into()), COUNT.into(), x.argument()];
    let mut runs = grid.call_async("watch", args, None).expect("it begins");
    eventually("a call that runs", || open.begun() == 1);
    first.stop();
    let second = meta_at(kept(config("round-robin"), &folder), first.address);
    second.until_servers(2);
    // The slot of its server is taken by a call of the first metaserver.
    let y = HeldArray::new();
    let result = Arg::Remote(Box::new(RemoteArray::default().held_as(&x).staying_as(&y)));
    let args = vec![COUNT.into(), x.argument(), result];
    let mut waits = grid.call_async("add", args, None).expect("it begins");
    second.until("a call that waits", |state| state.waiting == 1);
    open.open();
    runs.wait(&|| false).expect("it goes on");
    waits.wait(&|| false).expect("it runs");
    let mut fetched = [0.0; COUNT as usize];
    y.fetch(0, &mut fetched).expect("it is there");
    assert_eq!((fetched, at(&y)), ([6.0; COUNT as usize], at(&x)));
    assert_eq!(open.begun(), 1, "it has run once");
    drop(servers);
}

#[test]
fn arrays_go_with_their_last_reference() {
    let meta = meta(config("round-robin"));
    let mut one = meta.member("one", 1);
    one.held_bytes = 1 << 20;
    let _server = served(one);
    meta.until_servers(1);
    let grid = meta.grid();
    let large = |held: &HeldArray| {
        let args = vec![100_000.into(), 0.into(), 1.0.into(), held.stays()];
        grid.call("fill", args).map(|_| ())
    };
    let (first, second) = (HeldArray::new(), HeldArray::new());
    large(&first).expect("there is room for one");
    let full = large(&second).expect_err("there is no room for two");
    assert!(matches!(full, CallError::HeldFull(_)) || full.to_string().contains("room"), "{full}");
    // What a reference was is released when it becomes another array, which needs room beside it.
    first.release();
    assert!(first.server().is_none() && first.is_lost());
    for _ in 0..3 {
        large(&second).expect("there is room again");
        let clone = second.clone();
        drop(second.clone());
        assert!(!clone.is_lost(), "another reference has it");
        second.release();
    }
    // The last reference goes by itself, and so does what a failed call left.
    large(&HeldArray::new()).expect("there is room");
    large(&second).expect("there is room");
    second.release();
    let args = vec![100_000.into(), 60_000.into(), 1.0.into(), first.stays()];
    let late = grid.call_within("fill", args, Some(Duration::from_millis(100)));
    late.expect_err("it does not end in time");
    assert!(first.server().is_none());
    large(&first).expect("there is room");
}

#[test]
fn a_call_asks_for_nothing_that_the_maker_of_its_array_asked_for() {
    let meta = meta(config("round-robin"));
    let mut one = meta.member("one", 2);
    one.threads = 1;
    let _server = served(one);
    meta.until_servers(1);
    let grid = meta.grid();
    // It takes both slots.
    let x = fill(&grid.with_resources(Resources::new(2, 0).expect("threads")), 3.0);
    let open = Gate::new();
    let mut occupies = grid.call_async("gate", open.args(), None).expect("it begins");
    eventually("a call that runs", || open.begun() == 1);
    let mut y = [1.0; COUNT as usize];
    let args = vec![COUNT.into(), x.argument(), y.as_mut_slice().into()];
    grid.call_within("add", args, Some(Duration::from_secs(60))).expect("one slot is free");
    assert_eq!(y, [4.0; COUNT as usize]);
    open.open();
    occupies.wait(&|| false).expect("it ends");
}

#[test]
fn references_are_of_calls_through_metaservers_only() {
    let meta = meta(config("round-robin"));
    let [one, _two] = two(&meta, 1);
    let grid = meta.grid();
    let x = fill(&grid, 3.0);
    let mut y = [0.0; COUNT as usize];
    let args = vec![COUNT.into(), x.argument(), y.as_mut_slice().into()];
    let refused = one.client().call("add", args).expect_err("it is no metaserver");
    assert!(matches!(refused, CallError::Argument { .. }), "{refused:?}");
    assert!(refused.to_string().contains("through a metaserver"), "{refused}");
    // A reference to nothing.
    let refused = add(&grid, &HeldArray::new(), y.as_mut_slice().into()).expect_err("no array");
    assert!(matches!(refused, CallError::HeldLost { has_not_run: true, .. }), "{refused:?}");
    assert!(HeldArray::new().fetch(0, &mut y).is_err());
}

#[test]
fn a_metaserver_of_an_earlier_version_gets_no_such_call() {
    let mut meta = meta(config("round-robin"));
    let _servers = two(&meta, 1);
    let add_interface = interfaces().into_iter().find(|it| it.name == "add").expect("it is there");
    let (old, heard) =
        ScriptedServer::attends_as(Role::Metaserver, &add_interface, 1 << 20, |old| {
            std::iter::from_fn(|| old.next()).map(|(_, kind, _)| kind).collect::<Vec<_>>()
        });
    let addresses = format!("{},{old}", meta.address);
    let grid = Grid::connect(&addresses, &Options::default()).expect("a connection");
    let x = fill(&grid, 3.0);
    meta.stop();
    let mut y = [0.0; COUNT as usize];
    let refused = add(&grid, &x, y.as_mut_slice().into()).expect_err("an earlier version");
    assert!(refused.to_string().contains("metaserver of a version"), "{refused}");
    x.fetch(0, &mut y).expect("the server is there");
    drop((grid, x));
    let place = 32;
    assert!(!heard.join().expect("no panic").contains(&place), "it would end the connection");
}

#[test]
fn a_call_that_waits_without_a_thread_notices_by_itself_that_its_server_is_gone() {
    const PLACE: u8 = 32;
    const PLACED: u8 = 33;
    let size = param("n", Mode::In, Element::I32, &[]);
    let double =
        routine("double", vec![size, param("x", Mode::InOut, Element::F64, &[Expr::Param(0)])]);
    let (go, gone) = mpsc::channel();
    let (address, server) = ScriptedServer::attends(&double, 1 << 20, move |server| {
        while let Some((stream, kind, _)) = server.next() {
            if kind == CALL {
                server.say(stream, RESULT, 0, &[0; 18]);
                break;
            }
        }
        // Nothing is sent over it any more: the connection goes when this returns.
        gone.recv().expect("a word");
    });
    let (heard, asked) = mpsc::channel();
    let (meta, _says_nothing) = ScriptedServer::binds(&double, move |meta| {
        let mut places = 0;
        while let Some((stream, kind, _)) = meta.next() {
            if kind != PLACE {
                continue;
            }
            places += 1;
            if places == 2 {
                // Of this one it says nothing.
                heard.send(()).expect("who waits for it");
                continue;
            }
            let ticket = Ticket { call: 1, attempt: 1 };
            let (address, server) = (address.clone(), "one".to_owned());
            let mut placed = Vec::new();
            Placement { ticket, address, server, pass: String::new() }.encode(&mut placed);
            meta.say(stream, PLACED, 0, &placed);
        }
    });
    let grid = Grid::connect(&meta, &Options::default()).expect("a connection");
    let (x, y) = (HeldArray::new(), HeldArray::new());
    let one = RemoteArray { from: Some(Array::flat(&[1.0; 4])), ..RemoteArray::default() };
    let args = vec![COUNT.into(), Arg::Remote(Box::new(one.staying_as(&x)))];
    grid.call("double", args).expect("it runs");
    let read = Arg::Remote(Box::new(RemoteArray::default().held_as(&x).staying_as(&y)));
    let mut waits = grid.call_async("double", vec![COUNT.into(), read], None).expect("it begins");
    asked.recv_timeout(Duration::from_secs(60)).expect("a request for a place");
    go.send(()).expect("it waits");
    server.join().expect("no panic");
    let lost = waits.wait(&|| false).expect_err("its array is gone");
    assert!(matches!(lost, CallError::HeldLost { has_not_run: true, .. }), "{lost:?}");
    assert!(lost.to_string().contains("the connection to the server was lost"), "{lost}");
}
