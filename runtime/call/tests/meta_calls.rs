//! Calls through a metaserver.
#![forbid(unsafe_code)]

mod common;
#[path = "common/grid.rs"]
mod grid;

use std::collections::BTreeMap;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use common::{TestServer, served};
use grid::{Meta, config, get, meta, port, shown_state};
use kumi_call::{Array, CallError, GridCall};

/// Servers with these numbers of slots, named a, b, c, …
fn servers(meta: &Meta, slots: &[usize]) -> Vec<TestServer> {
    let servers =
        ["a", "b", "c"].iter().zip(slots).map(|(name, slots)| served(meta.member(name, *slots)));
    let servers: Vec<TestServer> = servers.collect();
    meta.until_servers(servers.len());
    servers
}

/// Calls that have run on each server.
fn done(meta: &Meta, all: u64) -> BTreeMap<String, u64> {
    let state = meta.until("the end of all calls", |state| state.counters.done == all);
    state.servers.into_iter().map(|server| (server.name, server.done)).collect()
}

fn nap(grid: &kumi_call::Grid, ms: i32) -> GridCall {
    grid.call_async("nap", vec![ms.into()], None).expect("it begins")
}

fn expected(counts: &[(&str, u64)]) -> BTreeMap<String, u64> {
    counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
}

#[test]
fn calls_go_to_servers_in_turn() {
    let meta = meta(config("round-robin"));
    let _servers = servers(&meta, &[1, 1, 1]);
    let grid = meta.grid();
    let (a, b) = ([1.0, 2.0, 3.0, 4.0], [1.0, 0.0, 0.0, 1.0]);
    for call in 1..=9 {
        let mut c = [0.0; 4];
        let args = vec![2.into(), (&a[..]).into(), (&b[..]).into(), c.as_mut_slice().into()];
        grid.call("dmmul", args).expect("it runs");
        assert_eq!(c, a);
        // A server whose last call is not known to be over would be passed by.
        done(&meta, call);
    }
    assert_eq!(done(&meta, 9), expected(&[("a", 3), ("b", 3), ("c", 3)]));
    let state = meta.state();
    assert_eq!((state.waiting, state.running, state.counters.placed), (0, 0, 9));
    assert!(state.recent.iter().all(|call| call.outcome == "done" && call.routine == "dmmul"));
    assert!(grid.names("mm").expect("names") == ["dmmul"]);
}

/// Passes bytes on until the end of either side.
fn pass_on(from: &TcpStream, to: &TcpStream) {
    let (mut from, mut to) = (from, to);
    let _copied = std::io::copy(&mut from, &mut to);
    let _gone = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

#[test]
fn calls_that_want_a_connection_to_one_server_share_the_attempt() {
    const CALLS: usize = 8;
    let meta = meta(config("round-robin"));
    // Clients come to a tunnel, which lets nothing through before all of them are there.
    let tunnel = TcpListener::bind("127.0.0.1:0").expect("a port");
    let mut member = meta.member("a", CALLS);
    let entrance = tunnel.local_addr().expect("its address").to_string();
    member.membership.iter_mut().for_each(|it| it.address.clone_from(&entrance));
    let server = served(member);
    meta.until_servers(1);
    let (exit, connections) = (server.address.to_string(), Arc::new(AtomicUsize::new(0)));
    let (gate, count) = (Arc::new(AtomicBool::new(false)), Arc::clone(&connections));
    let is_open = Arc::clone(&gate);
    std::thread::spawn(move || {
        while let Ok((client, _)) = tunnel.accept() {
            count.fetch_add(1, Ordering::SeqCst);
            let (exit, is_open) = (exit.clone(), Arc::clone(&is_open));
            std::thread::spawn(move || {
                while !is_open.load(Ordering::SeqCst) {
                    std::thread::sleep(Duration::from_millis(1));
                }
                let server = TcpStream::connect(exit).expect("the server");
                std::thread::scope(|scope| {
                    scope.spawn(|| pass_on(&client, &server));
                    pass_on(&server, &client);
                });
            });
        }
    });
    let grid = meta.grid();
    let mut calls: Vec<GridCall> = (0..CALLS).map(|_| nap(&grid, 1)).collect();
    meta.until("places for all", |state| state.running == CALLS);
    // Each has been told by then, and its thread may be anywhere on its way to the server.
    std::thread::sleep(Duration::from_millis(200));
    gate.store(true, Ordering::SeqCst);
    for call in &mut calls {
        call.wait(&|| false).expect("it runs");
    }
    assert_eq!(connections.load(Ordering::SeqCst), 1);
}

#[test]
fn calls_for_a_server_that_cannot_be_reached_name_it_and_have_not_run() {
    let meta = meta(config("round-robin"));
    let nowhere = port().to_string();
    let mut member = meta.member("a", 4);
    member.membership.iter_mut().for_each(|it| it.address.clone_from(&nowhere));
    let _server = served(member);
    meta.until_servers(1);
    let grid = meta.grid();
    let mut calls: Vec<GridCall> = (0..4).map(|_| nap(&grid, 1)).collect();
    for call in &mut calls {
        let error = call.wait(&|| false).expect_err("nobody is there");
        assert!(error.has_not_run(), "{error:?}");
        assert!(error.to_string().contains(&nowhere), "{error}");
    }
}

#[test]
fn a_server_has_never_more_than_its_limit() {
    let mut limited = config("least-load");
    limited.limit = Some(2);
    let meta = meta(limited);
    let _servers = servers(&meta, &[4, 1]);
    let grid = meta.grid();
    let mut calls: Vec<GridCall> = (0..9).map(|_| nap(&grid, 150)).collect();
    let mut most = BTreeMap::new();
    while calls.iter().any(|call| !call.is_over()) {
        for server in meta.state().servers {
            let so_far: &mut u32 = most.entry(server.name).or_default();
            *so_far = server.in_flight.max(*so_far);
        }
    }
    for call in &mut calls {
        call.wait(&|| false).expect("it runs");
    }
    assert_eq!(most, BTreeMap::from([("a".to_owned(), 2), ("b".to_owned(), 1)]));
    let done = done(&meta, 9);
    assert!(done["a"] > done["b"], "{done:?}");
}

#[test]
fn a_call_that_waits_is_cancelled_or_too_late() {
    let meta = meta(config("round-robin"));
    let servers = servers(&meta, &[1]);
    let grid = meta.grid();
    let mut long = nap(&grid, 60_000);
    meta.until("a call that runs", |state| state.running == 1);
    let mut waits = nap(&grid, 1);
    meta.until("a call that waits", |state| state.waiting == 1);
    waits.cancel();
    assert!(matches!(waits.wait(&|| false), Err(CallError::Cancelled(_))));
    let late = grid.call_within("nap", vec![1.into()], Some(Duration::from_millis(50)));
    assert!(matches!(late, Err(CallError::TimedOut(_))), "{late:?}");
    drop(nap(&grid, 1));
    meta.until("nobody waits", |state| state.waiting == 0);
    // Also one that runs.
    long.cancel();
    assert!(matches!(long.wait(&|| false), Err(CallError::Cancelled(_))));
    assert!(long.is_over() && long.wait(&|| false).is_err());
    nap(&grid, 1).wait(&|| false).expect("the slot is free");
    // Whatever stage it has reached.
    for step in 0..100 {
        let on_its_way = nap(&grid, 60_000);
        std::thread::sleep(Duration::from_micros(20 * step));
        drop(on_its_way);
    }
    nap(&grid, 1).wait(&|| false).expect("the slot is free again");
    // The metaserver waits for the server's report.
    let counts = meta.until("both are over", |state| state.counters.done >= 2).counters;
    assert_eq!((counts.done, counts.hostile), (2, 0));
    drop(servers);
}

#[test]
fn what_is_wrong_is_said_before_anything_is_placed() {
    let meta = meta(config("round-robin"));
    let _servers = servers(&meta, &[1]);
    let grid = meta.grid();
    match grid.call("dmul", vec![]) {
        Err(CallError::RoutineNotFound(text)) => {
            assert!(text.contains("did you mean dmmul?"), "{text}");
        }
        other => panic!("{other:?}"),
    }
    let few = grid.call("dmmul", vec![2.into()]);
    assert!(matches!(few, Err(CallError::Argument { .. })), "{few:?}");
    // A routine's failure is an answer: the call is not tried elsewhere.
    let (a, mut y) = (vec![1.0; 100], [0.0]);
    let args =
        vec![1.into(), 100.into(), kumi_call::Arg::In(Array::flat(&a)), y.as_mut_slice().into()];
    let status = grid.call("addcol", args);
    assert!(matches!(status, Err(CallError::Status { value: 100, .. })), "{status:?}");
    let crash = grid.call("crash", vec![]);
    let Err(CallError::Attempts { tried, last, has_not_run: false, .. }) = &crash else {
        panic!("{crash:?}")
    };
    assert!(matches!(**last, CallError::Crashed { detail: 6, .. }), "{last:?}");
    assert!(matches!(tried.as_slice(), [one] if one.starts_with("a (127.0.0.1:")), "{tried:?}");
    let state = meta.until("no calls", |state| state.running == 0);
    assert_eq!((state.counters.placed, state.counters.failed), (2, 2));
    // A server is not a metaserver.
    let address = state.servers[0].address.clone();
    let other = kumi_call::Grid::connect(&address, &kumi_call::Options::default());
    assert!(matches!(other, Err(CallError::NotMetaserver(_))), "{other:?}");
}

#[test]
fn whoever_looks_on_sees_it() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    let mut shown = config("round-robin");
    shown.http = Some(std::sync::Arc::new(listener));
    let meta = meta(shown);
    let _servers = servers(&meta, &[3]);
    meta.grid().call("noop", vec![]).expect("it runs");
    meta.until("its end", |state| state.counters.done == 1);
    let state = shown_state(address, "the call", |state| state.counters.done == 1);
    assert_eq!(state.servers[0].slots, 3);
    let figures = get(address, "/metrics");
    assert!(figures.contains("\nkumi_call_done_total 1\n"), "{figures}");
    assert!(figures.contains("kumi_call_server_up{server=\"a\","), "{figures}");
    let page = get(address, "/");
    assert!(page.contains("<h2>Servers</h2>") && !page.contains("://"), "nothing from elsewhere");
    assert!(get(address, "/nothing").starts_with("HTTP/1.1 404"));
}
