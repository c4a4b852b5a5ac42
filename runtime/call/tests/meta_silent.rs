//! Metaservers that fall silent or lose leadership, and clients that go on to the next.
#![forbid(unsafe_code)]

mod common;
#[path = "common/grid.rs"]
mod grid;
#[path = "common/scripted_server.rs"]
mod scripted_server;

use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use common::{read_some, served};
use grid::{Meta, config, kept, meta, meta_at};
use kumi_call::{CallError, Client, Grid, Options};
use kumi_rpc::{Code, Failure, FrameStep, Metaserver, MetaserverEvent};
use nix::sys::socket::{setsockopt, sockopt};
use scripted_server::{CALL, ScriptedServer};

/// Answers of a fake metaserver; it falls silent after false.
type Answers = fn(&mut Metaserver, MetaserverEvent) -> bool;

/// A scripted metaserver.
fn pretends(answers: Answers) -> SocketAddr {
    pretends_at(TcpListener::bind(("127.0.0.1", 0)).expect("a port"), answers)
}

fn pretends_at(listener: TcpListener, answers: Answers) -> SocketAddr {
    let address = listener.local_addr().expect("its address");
    std::thread::spawn(move || {
        // One connection after the other: a client connects again only after it has left.
        while let Ok((stream, _)) = listener.accept() {
            std::thread::spawn(move || attend(stream, answers));
        }
    });
    address
}

fn attend(mut stream: TcpStream, answers: Answers) {
    let mut rpc = Metaserver::new(100);
    let (mut input, mut piece) = (Vec::new(), [0; 4096]);
    let mut answering = true;
    while let Ok(count @ 1..) = read_some(&mut stream, &mut piece) {
        input.extend_from_slice(&piece[..count]);
        while let Ok(FrameStep::Event(used, event)) = rpc.step(&input) {
            input.drain(..used);
            match event {
                Some(MetaserverEvent::Hello(hello)) => drop(rpc.welcome(&hello, "a pretender")),
                Some(event) if answering => answering = answers(&mut rpc, event),
                _ => {}
            }
        }
        if answering {
            stream.write_all(&std::mem::take(rpc.out())).expect("written");
        }
    }
}

/// The description of a routine without parameters.
fn describe(rpc: &mut Metaserver, stream: u32, name: &str) {
    let all = common::interfaces();
    let interface = all.iter().find(|one| one.name == name).expect("a routine");
    let json = interface.to_json().expect("JSON");
    rpc.describe(stream, twox_hash::XxHash3_64::oneshot(json.as_bytes()), &json);
}

/// A client connected to the first metaserver, which knows the second.
fn between(first: SocketAddr, second: &Meta) -> Grid {
    let grid = Grid::connect(&format!("{first},{}", second.address), &Options::default());
    let grid = grid.expect("a connection");
    assert_eq!(grid.server(), "a pretender");
    grid
}

#[test]
fn whatever_a_silent_metaserver_is_asked_the_next_answers() {
    let meta = meta(config("round-robin"));
    let _server = served(meta.member("a", 1));
    meta.until_servers(1);
    let asks: [fn(&Grid); 4] = [
        |grid| assert_eq!(grid.status().expect("its state").servers.len(), 1),
        |grid| assert_eq!(grid.names("noo").expect("names"), ["noop"]),
        |grid| drop(grid.interface("noop").expect("a description")),
        |grid| drop(grid.call("noop", vec![]).expect("it runs")),
    ];
    std::thread::scope(|scope| {
        for ask in asks {
            let meta = &meta;
            scope.spawn(move || {
                let grid = between(pretends(|_, _| false), meta);
                ask(&grid);
                assert_ne!(grid.server(), "a pretender");
            });
        }
    });
}

#[test]
fn a_server_that_ends_takes_its_leave_first() {
    static SEEN: AtomicU32 = AtomicU32::new(0);
    let address = pretends(|rpc, event| {
        match event {
            MetaserverEvent::Register(_) => rpc.registered(60_000),
            // It knows that it is registered.
            MetaserverEvent::Report(_) => SEEN.store(1, Ordering::SeqCst),
            MetaserverEvent::Leave => SEEN.store(2, Ordering::SeqCst),
            _ => {}
        }
        true
    });
    let mut config = common::config();
    let metaservers = vec![address.to_string()];
    config.membership = Some(kumi_call::server::Membership { metaservers, ..Default::default() });
    let mut server = served(config);
    common::eventually("it registers", || SEEN.load(Ordering::SeqCst) == 1);
    server.stop();
    common::eventually("it leaves", || SEEN.load(Ordering::SeqCst) == 2);
}

#[test]
fn one_that_is_silent_is_lost() {
    let client = Client::connect(&pretends(|_, _| false).to_string(), &Options::default());
    let client = client.expect("a connection");
    std::thread::scope(|scope| {
        let asks = [
            scope.spawn(|| client.status_json().map(drop)),
            scope.spawn(|| client.names("").map(drop)),
            scope.spawn(|| client.interface("noop").map(drop)),
        ];
        for ask in asks {
            let error = ask.join().expect("no panic").expect_err("it is silent");
            assert!(matches!(error, CallError::Lost(_)), "{error}");
        }
    });
}

#[test]
fn a_server_that_does_not_answer_is_named_through_a_metaserver() {
    let mut meta = meta(config("round-robin"));
    let noop = common::routine("noop", vec![]);
    let (called, calls) = std::sync::mpsc::channel();
    let (address, _silent) = ScriptedServer::attends(&noop, 1 << 20, move |server| {
        while let Some((_, kind, _)) = server.next() {
            if kind == CALL {
                called.send(()).expect("the test goes on");
            }
        }
    });
    // The metaserver sends clients there.
    let mut member = meta.member("a", 1);
    member.membership.iter_mut().for_each(|it| it.address.clone_from(&address));
    let _server = served(member);
    meta.until_servers(1);
    let grid = meta.grid();
    let mut call =
        grid.call_async("noop", vec![], Some(Duration::from_secs(2))).expect("it begins");
    calls.recv().expect("a call");
    // Nobody else can end it then.
    meta.stop();
    let late = call.wait(&|| false).expect_err("there is no answer");
    assert!(matches!(late, CallError::TimedOut(_)), "{late:?}");
    let expected = format!("the server `by hand` at {address} did not answer in time");
    assert!(late.to_string().ends_with(&expected), "{late}");
}

#[test]
fn calls_without_a_thread_leave_one_that_says_it_does_not_lead() {
    let meta = meta(config("round-robin"));
    let _server = served(meta.member("a", 1));
    meta.until_servers(1);
    // It describes routines, answers only the second call that it does not lead, and keeps the connection.
    let first = pretends(|rpc, event| {
        match event {
            MetaserverEvent::Interface(stream, name) => describe(rpc, stream, &name),
            MetaserverEvent::Place(stream, placing) if placing.key.1 == 1 => {
                rpc.fail(stream, &Failure::new(Code::NotLeading, 0, ""));
            }
            _ => {}
        }
        true
    });
    let grid = between(first, &meta);
    let begin = |grid: &Grid| grid.call_async("noop", vec![], None).expect("it begins");
    let (mut waits, mut refused) = (begin(&grid), begin(&grid));
    for call in [&mut refused, &mut waits] {
        let outcome = call.wait_for(Duration::from_secs(60), &|| false).expect("it runs");
        outcome.expect("it is over");
    }
    let state = meta.until("both", |state| state.counters.done == 2);
    assert_eq!(state.counters.placed, 2);
}

#[test]
fn a_call_can_be_cancelled_while_the_metaserver_reads_nothing() {
    static READS_ON: AtomicBool = AtomicBool::new(false);
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    // Unread output soon fills the socket.
    setsockopt(&listener, sockopt::RcvBuf, &4096).expect("a small buffer");
    let address = pretends_at(listener, |rpc, event| match event {
        MetaserverEvent::Interface(stream, name) => {
            let interface = common::routine(&name, vec![]);
            let json = interface.to_json().expect("JSON");
            rpc.describe(stream, twox_hash::XxHash3_64::oneshot(json.as_bytes()), &json);
            true
        }
        _ => {
            while !READS_ON.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(10));
            }
            false
        }
    });
    let grid = Grid::connect(&address.to_string(), &Options::default()).expect("a connection");
    // Longer names need fewer calls.
    let name = "n".repeat(128);
    let begin = || grid.call_async(&name, vec![], None).expect("it begins");
    let mut first = begin();
    let (count, enough) = (AtomicU32::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut calls = Vec::new();
            while !enough.load(Ordering::SeqCst) {
                calls.push(begin());
                count.fetch_add(1, Ordering::SeqCst);
            }
        });
        let mut before = (0, Instant::now());
        while before.0 == 0 || before.1.elapsed() < Duration::from_secs(1) {
            let now = count.load(Ordering::SeqCst);
            if now != before.0 {
                before = (now, Instant::now());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        // The other thread sends for seconds.
        let since = Instant::now();
        first.cancel();
        let took = since.elapsed();
        enough.store(true, Ordering::SeqCst);
        READS_ON.store(true, Ordering::SeqCst);
        assert!(took < Duration::from_secs(4), "it waits for the other to have sent: {took:?}");
        assert!(matches!(first.wait(&|| false), Err(CallError::Cancelled(_))));
    });
}

#[test]
fn calls_that_wait_end_and_can_be_cancelled_while_no_metaserver_is_there() {
    let mut meta = meta(config("round-robin"));
    let server = served(meta.member("a", 1));
    meta.until_servers(1);
    let grid = meta.grid();
    let nap = |time| grid.call_async("nap", vec![60_000.into()], time).expect("it begins");
    let runs = nap(None);
    meta.until("a call that runs", |state| state.running == 1);
    let mut late = nap(Some(Duration::from_millis(500)));
    let mut unwanted = nap(None);
    meta.until("calls that wait", |state| state.waiting == 2 || late.is_over());
    meta.stop();
    match late.wait_for(Duration::from_secs(20), &|| false) {
        Err(CallError::TimedOut(_)) => {}
        other => panic!("{other:?}"),
    }
    // Cancelling does not wait until the metaserver is given up.
    unwanted.cancel();
    match unwanted.wait_for(Duration::from_secs(20), &|| false) {
        Err(CallError::Cancelled(_)) => {}
        other => panic!("{other:?}"),
    }
    drop((runs, server));
}

#[test]
fn the_client_of_a_call_that_runs_comes_back_to_the_next_metaserver() {
    let folder = tempfile::tempdir().expect("a folder");
    let kept = kept(config("round-robin"), &folder);
    let mut first = meta(kept.clone());
    let _server = served(first.member("a", 1));
    first.until_servers(1);
    let grid = first.grid();
    let mut runs = grid.call_async("nap", vec![120_000.into()], None).expect("it begins");
    first.until("a call that runs", |state| state.servers.iter().any(|server| server.running == 1));
    first.stop();
    let second = meta_at(kept, first.address);
    // The server and the client. A call whose client stays away is given up.
    second.until("its client", |state| (state.running, state.connections) == (1, 3));
    assert!(!runs.is_over());
    runs.cancel();
    match runs.wait(&|| false) {
        Err(CallError::Cancelled(_)) => {}
        other => panic!("{other:?}"),
    }
    let state = second.until("its end", |state| state.running == 0);
    assert_eq!(state.counters.placed, 0, "{state:?}");
    grid.call("noop", vec![]).expect("it runs");
}

#[test]
fn a_metaserver_that_knows_nothing_of_a_call_that_runs_has_it_run_nowhere_else() {
    let (mut first, second) = (meta(config("round-robin")), meta(config("round-robin")));
    let _server = served(first.member("a", 1));
    let _other = served(second.member("b", 1));
    first.until_servers(1);
    second.until_servers(1);
    let both = format!("{},{}", first.address, second.address);
    let grid = Grid::connect(&both, &Options::default()).expect("a connection");
    let mut runs = grid.call_async("nap", vec![120_000.into()], None).expect("it begins");
    first.until("a call that runs", |state| state.servers.iter().any(|server| server.running == 1));
    first.stop();
    // It names a place, which the client gives back.
    let state = second.until("a call that is not wanted", |state| state.counters.cancelled == 1);
    assert_eq!((state.counters.placed, state.counters.done, state.servers[0].done), (1, 0, 0));
    second.until("its slot", |state| (state.running, state.servers[0].in_flight) == (0, 0));
    assert!(!runs.is_over());
    runs.cancel();
    match runs.wait(&|| false) {
        Err(CallError::Cancelled(_)) => {}
        other => panic!("{other:?}"),
    }
}
