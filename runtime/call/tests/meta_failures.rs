//! Servers, metaservers and clients that vanish, and malformed clients.
#![forbid(unsafe_code)]

mod common;
#[path = "common/grid.rs"]
mod grid;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{Gate, TestServer, eventually, served};
use grid::{Meta, config, kept, meta, meta_at, repeating};
use kumi_call::meta::ServerCondition;
use kumi_call::{CallError, Grid, GridCall, Options};
use kumi_rpc::{AttemptState, ClientHello, RegisteredServer, ServerRegistration, Ticket};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

fn nap(grid: &Grid, ms: i32) -> GridCall {
    grid.call_async("nap", vec![ms.into()], None).expect("it begins")
}

#[test]
fn a_call_whose_server_is_gone_runs_elsewhere_if_it_may() {
    let meta = meta(config("round-robin"));
    let mut first = repeating(&meta, "first");
    meta.until_servers(1);
    let grid = meta.grid();
    let open = Gate::new();
    let mut call = gate(&grid, &open);
    eventually("a call that runs", || open.begun() == 1);
    let _second = repeating(&meta, "second");
    meta.until_servers(2);
    first.stop();
    eventually("its next attempt", || open.begun() == 2);
    open.open();
    call.wait(&|| false).expect("it runs on the second");
    let state = meta.until("its end", |state| state.counters.done == 1);
    assert_eq!((state.counters.placed, state.counters.retried, state.counters.failed), (2, 1, 0));
    let second = state.servers.iter().find(|server| server.name == "second").expect("it is there");
    assert_eq!(second.done, 1);
    assert_eq!((state.recent[0].attempts, state.recent[0].server.as_str()), (2, "second"));
    meta.until("the first has ended", |state| state.servers[0].state == ServerCondition::Ended);
}

#[test]
fn calls_whose_servers_do_not_come_back_fail_after_a_while() {
    let mut soon = config("round-robin");
    soon.return_time = Duration::from_millis(300);
    let meta = meta(soon);
    let mut server = served(meta.member("a", 1));
    meta.until_servers(1);
    let grid = meta.grid();
    let open = Gate::new();
    let mut runs = gate(&grid, &open);
    meta.until("a call that runs", |state| state.running == 1);
    let mut waits = nap(&grid, 1);
    meta.until("a call that waits", |state| state.waiting == 1);
    server.stop();
    runs.wait(&|| false).expect_err("its server has gone");
    let gone = waits.wait(&|| false).expect_err("no server comes back");
    assert!(matches!(gone, CallError::NoServer { has_not_run: true, .. }), "{gone:?}");
    let state = meta.until("no calls", |state| state.waiting + state.running == 0);
    let counters = &state.counters;
    assert_eq!((counters.done, counters.failed, counters.rejected), (0, 2, 0), "{state:?}");
    let last = state.recent.iter().find(|call| call.routine == "nap").expect("it is shown");
    assert_eq!((last.outcome.as_str(), last.server.as_str()), ("no server", ""));
    assert!(
        last.reason.contains("`nap`: the servers that offer this routine are gone"),
        "{last:?}"
    );
}

#[test]
fn failures_are_shown_with_server_and_reason() {
    let meta = meta(config("round-robin"));
    let _server = served(meta.member("a", 1));
    meta.until_servers(1);
    let grid = meta.grid();
    let crash = grid.call("crash", vec![]).expect_err("it crashes").to_string();
    let (place, why) = crash.split_once(": `crash` crashed: ").expect("where, and what");
    assert!(place.starts_with("`crash` failed on one server: "), "{crash}");
    // The server goes on. Once is enough, and what it means for other servers.
    assert!(
        why.contains(" (SIG") && !why.contains("crashed") && !why.contains("broke off"),
        "{crash}"
    );
    assert!(
        why.ends_with(
            "; `crash` may have run in part; it is not marked idempotent, so it was not run again"
        ),
        "{crash}"
    );
    grid.call("noop", vec![]).expect("it runs");
    let state = meta.until("both ends", |state| state.recent.len() == 2);
    let address = &state.servers[0].address;
    let [good, bad] = [&state.recent[0], &state.recent[1]];
    assert_eq!((good.outcome.as_str(), good.reason.as_str()), ("done", ""));
    assert_eq!((&bad.server, &bad.address), (&"a".to_owned(), address));
    assert!(bad.reason.starts_with(&format!("a ({address}): ")), "{bad:?}");
    assert!(bad.reason.contains("crash"), "{bad:?}");
}

#[test]
fn a_call_that_may_have_run_is_reported_and_not_run_again() {
    let meta = meta(config("round-robin"));
    let mut first = served(meta.member("first", 1));
    meta.until_servers(1);
    let grid = meta.grid();
    let mut call = nap(&grid, 60_000);
    meta.until("a call that runs", |state| state.running == 1);
    let mut waits = nap(&grid, 1);
    meta.until("a call that waits", |state| state.waiting == 1);
    let _second = served(meta.member("second", 1));
    waits.wait(&|| false).expect("it runs on the second");
    first.stop();
    let lost = call.wait(&|| false).expect_err("its server is gone");
    assert!(!lost.has_not_run(), "{lost}");
    let state = meta.until("no calls", |state| state.running == 0);
    assert_eq!((state.counters.done, state.counters.failed, state.counters.retried), (1, 1, 0));
}

/// Two servers at whose addresses nobody listens.
fn unreachable(meta: &Meta) -> Vec<TestServer> {
    let servers = ["a", "b"].map(|name| {
        let mut config = meta.member(name, 1);
        let membership = config.membership.as_mut().expect("one");
        membership.address = grid::port().to_string();
        served(config)
    });
    meta.until_servers(2);
    servers.into()
}

#[test]
fn a_call_without_time_for_further_attempts_ends_after_the_first() {
    let meta = meta(config("round-robin"));
    let servers = unreachable(&meta);
    let options = Options { retry_time: Some(Duration::ZERO), ..Options::default() };
    let grid = Grid::connect(&meta.address.to_string(), &options).expect("a connection");
    let failed = grid.call("noop", vec![]).expect_err("nobody is there");
    let CallError::Attempts { tried, last, .. } = &failed else { panic!("{failed:?}") };
    assert!(tried.len() == 1 && matches!(**last, CallError::Connect { .. }), "{failed:?}");
    assert!(failed.to_string().contains("KUMI_CALL_RETRY_TIME"), "{failed}");
    let state = meta.until("no calls", |state| state.running == 0 && state.waiting == 0);
    assert_eq!((state.counters.placed, state.counters.done), (1, 0), "{:?}", state.counters);
    drop(servers);
}

#[test]
fn a_server_that_cannot_be_reached_is_told_with_all_attempts() {
    let mut few = config("round-robin");
    few.attempts = 2;
    let meta = meta(few);
    let servers = unreachable(&meta);
    let failed = meta.grid().call("noop", vec![]).expect_err("nobody is there");
    match &failed {
        CallError::Attempts { tried, has_not_run: true, .. } => {
            assert_eq!(tried.len(), 2);
            let of = |name| tried.iter().filter(|one| one.starts_with(name)).count();
            assert_eq!((of("a ("), of("b (")), (1, 1), "{failed}");
        }
        other => panic!("{other:?}"),
    }
    let state = meta.until("no calls", |state| state.running == 0);
    assert_eq!((state.counters.placed, state.counters.failed), (2, 1));
    drop(servers);
}

#[test]
fn a_metaserver_comes_back_with_what_it_knew() {
    let folder = tempfile::tempdir().expect("a folder");
    let kept = kept(config("round-robin"), &folder);
    let mut first = meta(kept.clone());
    let _server = served(first.member("a", 1));
    first.until_servers(1);
    let grid = first.grid();
    grid.call("noop", vec![]).expect("it runs");
    first.until("its end", |state| state.counters.done == 1);
    let open = Gate::new();
    let mut runs = gate(&grid, &open);
    first.until("a call that runs", |state| state.running == 1);
    let mut waits = nap(&grid, 1);
    first.until("a call that waits", |state| state.waiting == 1);
    let paths = first.state().paths.len();
    first.stop();
    let mut second = meta_at(kept.clone(), first.address);
    let state = second.until("the server is back", |state| {
        state.servers.iter().any(|server| server.state == ServerCondition::Up)
    });
    assert_eq!((state.paths.len(), paths), (1, 1));
    // The running call goes on and keeps its slot.
    assert!(state.servers[0].in_flight == 1 && !runs.is_over(), "{state:?}");
    open.open();
    runs.wait(&|| false).expect("it runs to its end");
    waits.wait(&|| false).expect("it runs too");
    // If a call ends before its client has found the new metaserver, the server reports the outcome.
    let state = second.until("both ends", |state| state.counters.done == 2);
    assert_eq!((state.running, state.waiting, state.counters.placed), (0, 0, 1));
    second.stop();
    let third = meta_at(kept, first.address);
    let state = third.until("the server is back", |state| !state.servers.is_empty());
    assert_eq!((state.running, state.paths.len()), (0, 1), "nothing is left over");
    grid.call("noop", vec![]).expect("it runs");
}

fn gate(grid: &Grid, gate: &Gate) -> GridCall {
    grid.call_async("gate", gate.args(), None).expect("it begins")
}

/// A server, a client and its running call, after whose start an ignorant metaserver replaced the first.
fn forgotten(server: impl FnOnce(&Meta) -> TestServer) -> (TestServer, Grid, Gate, GridCall, Meta) {
    let mut first = meta(config("round-robin"));
    let server = server(&first);
    first.until_servers(1);
    let grid = first.grid();
    let open = Gate::new();
    let call = gate(&grid, &open);
    eventually("a call that runs", || open.begun() == 1);
    first.stop();
    let second = meta_at(config("round-robin"), first.address);
    (server, grid, open, call, second)
}

#[test]
fn what_a_forgetful_metaserver_has_stopped_runs_again_if_it_may() {
    let (_server, _grid, open, mut call, second) = forgotten(|meta| repeating(meta, "a"));
    eventually("its next attempt", || open.begun() == 2);
    second.until("a call that it knows", |state| state.running == 1);
    open.open();
    call.wait(&|| false).expect("it ran again");
    let state = second.until("its end", |state| state.running == 0);
    assert_eq!((state.counters.done, open.begun()), (1, 2));
}

#[test]
fn what_a_forgetful_metaserver_has_stopped_says_so_if_it_may_not_run_again() {
    let (_server, grid, open, mut call, second) = forgotten(|meta| served(meta.member("a", 1)));
    let stopped = call.wait(&|| false).expect_err("nobody knows it any more");
    let CallError::Attempts { tried, last, has_not_run: false, .. } = &stopped else {
        panic!("{stopped:?}")
    };
    assert!(matches!(**last, CallError::NoServer { has_not_run: false, .. }), "{last:?}");
    assert_eq!(tried.len(), 1, "{stopped}");
    assert!(stopped.to_string().contains("--state"), "{stopped}");
    second.until_servers(1);
    grid.call("noop", vec![]).expect("the slot is free");
    assert_eq!(open.begun(), 1, "it was not run again");
    // The client cancels it, so it is cancelled.
    let mut call = gate(&grid, &open);
    eventually("a call that runs", || open.begun() == 2);
    call.cancel();
    assert!(matches!(call.wait(&|| false), Err(CallError::Cancelled(_))));
}

#[test]
fn what_a_forgetful_metaserver_has_stopped_before_it_began_runs_again() {
    let mut first = meta(config("round-robin"));
    let server = served(first.member("a", 1));
    first.until_servers(1);
    // A client without a metaserver gets the slot.
    let (before, open) = (Gate::new(), Gate::new());
    let client = server.client();
    let mut other = client.call_async("gate", before.args(), None).expect("it begins");
    eventually("a call that runs", || before.begun() == 1);
    let grid = first.grid();
    let mut call = gate(&grid, &open);
    first
        .until("a call at the server", |state| state.running == 1 && state.servers[0].waiting == 1);
    first.stop();
    let second = meta_at(config("round-robin"), first.address);
    second.until("its next place", |state| state.counters.placed > 0 && state.running == 1);
    before.open();
    other.wait(&|| false).expect("it runs to its end");
    open.open();
    call.wait(&|| false).expect("it runs");
    assert_eq!(open.begun(), 1);
}

/// The metaserver's address, for a client in a process of its own.
const CHILD: &str = "KUMI_TEST_META";

#[test]
fn a_client_of_its_own() {
    if let Ok(address) = std::env::var(CHILD) {
        let grid = Grid::connect(&address, &Options::default()).expect("a connection");
        let _waits = nap(&grid, 60_000);
        let _late = grid.call("nap", vec![60_000.into()]);
    }
}

#[test]
fn a_client_that_is_killed_frees_its_slots() {
    let meta = meta(config("least-load"));
    let _server = served(meta.member("a", 1));
    meta.until_servers(1);
    let mut client = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "a_client_of_its_own"])
        .env(CHILD, meta.address.to_string())
        .stdout(Stdio::null())
        .spawn()
        .expect("a client");
    meta.until("its calls", |state| state.running == 1 && state.waiting == 1);
    client.kill().expect("it dies");
    client.wait().expect("it is dead");
    let state = meta.until("no calls", |state| state.running == 0 && state.waiting == 0);
    assert_eq!(state.counters.cancelled, 2);
    let time = Some(Duration::from_secs(30));
    meta.grid().call_within("nap", vec![1.into()], time).expect("the slot is free");
}

#[test]
fn a_routine_whose_servers_are_gone_is_not_unknown() {
    let meta = meta(config("round-robin"));
    let mut server = served(meta.member("a", 1));
    meta.until_servers(1);
    let grid = meta.grid();
    grid.call("noop", vec![]).expect("it runs");
    server.stop();
    meta.until("it has ended", |state| state.servers[0].state == ServerCondition::Ended);
    // A client that knows the description, and one that asks for it.
    for grid in [&grid, &meta.grid()] {
        let gone = grid.call("noop", vec![]).expect_err("nobody is there");
        assert!(matches!(gone, CallError::NoServer { has_not_run: true, .. }), "{gone:?}");
        assert!(gone.to_string().contains("no server that offers `noop` is there now"), "{gone}");
        let never = grid.call("nop", vec![]).expect_err("nobody ever offered it");
        assert!(matches!(never, CallError::RoutineNotFound(_)), "{never:?}");
    }
    let _other = served(meta.member("b", 1));
    meta.until_servers(1);
    grid.call("noop", vec![]).expect("it runs on another");
}

fn hello() -> Vec<u8> {
    let (token, program, site) = (String::new(), String::new(), String::new());
    ClientHello { versions: 1..=1, token, program, site, maps_memory: false }.encode()
}

#[test]
fn strangers_cost_a_counter() {
    let meta = meta(config("round-robin"));
    let _server = served(meta.member("a", 1));
    meta.until_servers(1);
    let register = |offers| ServerRegistration {
        name: "x".into(),
        address: "h:1".into(),
        site: String::new(),
        version: String::new(),
        slots: 1,
        processors: 1,
        speed: 1.0,
        offers,
        key: None,
    };
    let member = |act: &dyn Fn(&mut RegisteredServer)| {
        let mut member = RegisteredServer::new();
        act(&mut member);
        [hello(), std::mem::take(member.out())].concat()
    };
    let ticket = Ticket { call: 1, attempt: 1 };
    let unidentified = [
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        [hello(), vec![0xff; 12]].concat(),
        [hello(), vec![9, 0, 0, 0, 1, 0, 0, 0, 32, 0, 0, 0], vec![0; 9]].concat(),
        member(&|member| member.report_attempt(ticket, AttemptState::Unknown)),
        member(&|member| member.offer(1, "{}")),
        member(&|member| member.register(&register(0))),
        member(&|member| member.register(&register(u16::MAX))),
        member(&|member| {
            member.register(&register(1));
            member.offer(1, "no description");
        }),
        member(&|member| {
            member.register(&register(1));
            member.register(&register(1));
        }),
    ];
    for (index, bytes) in unidentified.iter().enumerate() {
        let mut stream = TcpStream::connect(meta.address).expect("a connection");
        stream.write_all(bytes).expect("written");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("it is closed");
        assert!(answer.starts_with(b"KUMICALL"), "{index}: it says why");
    }
    let state = meta
        .until("malformed clients", |state| state.counters.hostile == unidentified.len() as u64);
    assert_eq!(state.servers.len(), 1);
    meta.grid().call("noop", vec![]).expect("it runs");
}

#[test]
fn a_metaserver_may_open_as_many_files_as_the_system_permits() {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit");
    setrlimit(Resource::RLIMIT_NOFILE, most.min(512), most).expect("it may be less");
    let meta = meta(config("round-robin"));
    meta.until("its state", |state| state.connections == 1);
    assert_eq!(getrlimit(Resource::RLIMIT_NOFILE).expect("a limit"), (most, most));
}
