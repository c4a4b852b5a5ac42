//! Places at a metaserver: calls that wait again after an attempt, and places to which no client comes.
#![forbid(unsafe_code)]

mod common;
#[path = "common/grid.rs"]
mod grid;

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use common::{Gate, read_some, served};
use grid::{Meta, config, kept, meta, meta_at, repeating};
use kumi_call::meta::ServerCondition;
use kumi_call::{CallError, GridCall};
use kumi_rpc::{
    AttemptOutcome, AttemptReport, ClientEvent, ClientHello, Code, InputLocation, PlacementRequest,
    Step, Ticket, Transfer,
};

#[test]
fn a_call_whose_server_is_gone_waits_as_any_does() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut kept = kept(config("round-robin"), &folder);
    // Until the loss of the server is noticed.
    kept.attempts = 10_000;
    let mut meta = meta(kept.clone());
    let mut first = repeating(&meta, "first");
    meta.until_servers(1);
    let grid = meta.grid();
    let mut call = grid.call_async("nap", vec![500.into()], None).expect("it begins");
    meta.until("a call that runs", |state| state.servers.iter().any(|server| server.running == 1));
    first.stop();
    let state = meta.until("a call that waits", |state| {
        (state.waiting, state.running) == (1, 0) && state.servers[0].state == ServerCondition::Ended
    });
    assert_eq!(state.users[0].waiting, 1);
    // Waiting calls are not stored, so nobody is sent to the lost server.
    meta.stop();
    let meta = meta_at(kept, meta.address);
    let _second = repeating(&meta, "second");
    call.wait(&|| false).expect("it runs on the second");
    let state = meta.until("its end", |state| state.counters.done == 1);
    // If the store still had the first attempt, it counts here too, and the second as one more.
    let firsts = state.counters.placed - state.counters.retried;
    assert_eq!((firsts, state.counters.failed), (1, 0), "{state:?}");
    assert!(state.recent[0].attempts >= 2 && state.recent[0].server == "second", "{state:?}");
}

#[test]
fn a_call_that_broke_while_no_metaserver_was_there_runs_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let kept = kept(config("round-robin"), &folder);
    let mut meta = meta(kept.clone());
    let mut first = repeating(&meta, "first");
    meta.until_servers(1);
    let grid = meta.grid();
    let mut call = grid.call_async("nap", vec![500.into()], None).expect("it begins");
    meta.until("a call that runs", |state| state.servers.iter().any(|server| server.running == 1));
    meta.stop();
    first.stop();
    // A client asks for a known call, and reports a failed attempt.
    let meta = meta_at(kept, meta.address);
    let _second = repeating(&meta, "second");
    call.wait(&|| false).expect("it runs on the second");
    let state = meta.until("its end", |state| state.counters.done == 1);
    assert_eq!(state.counters.placed, 1, "{state:?}");
    assert!(state.recent[0].attempts == 2 && state.recent[0].server == "second", "{state:?}");
}

#[test]
fn calls_wait_for_the_servers_of_an_earlier_metaserver() {
    let folder = tempfile::tempdir().expect("a folder");
    let kept = kept(config("round-robin"), &folder);
    let mut meta = meta(kept.clone());
    let mut server = served(meta.member("a", 1));
    meta.until_servers(1);
    loop {
        server.stop();
        meta.stop();
        let begin = Instant::now();
        meta = meta_at(kept.clone(), meta.address);
        let grid = meta.grid();
        // It asks for the description first, which nobody has yet.
        let call = std::thread::spawn(move || grid.call("noop", vec![]).map(|_| ()));
        server = served(meta.member("a", 1));
        match call.join().expect("no panic") {
            // The metaserver expects servers for ten seconds, and this machine is slower.
            Err(_) if begin.elapsed() > Duration::from_secs(9) => {}
            ended => break ended.expect("it waits"),
        }
    }
}

fn placing(routine: &str) -> PlacementRequest {
    let all = common::interfaces();
    let interface = all.iter().find(|one| one.name == routine).expect("a routine");
    let json = interface.to_json().expect("JSON");
    PlacementRequest {
        key: (7, 7),
        hash: twox_hash::XxHash3_64::oneshot(json.as_bytes()),
        bytes_out: 0,
        bytes_back: 0,
        operations: f64::NAN,
        time_ms: 0,
        attempts: 0,
        priority: 0,
        idempotent: false,
        routine: routine.to_owned(),
        bound: false,
        input_locations: Vec::new(),
    }
}

/// A request for a place at this server or nowhere.
fn bound(key: u64, server: &str, address: &str) -> PlacementRequest {
    let (server, address) = (server.to_owned(), address.to_owned());
    let input_locations = vec![InputLocation { server, address, bytes: 8 }];
    PlacementRequest { key: (8, key), bound: true, input_locations, ..placing("noop") }
}

/// A connection that asks a metaserver for places and never uses them.
struct IdleClient {
    rpc: kumi_rpc::Client,
    stream: TcpStream,
    input: Vec<u8>,
}

impl IdleClient {
    fn new(meta: &Meta) -> IdleClient {
        let mut stream = TcpStream::connect(meta.address).expect("a connection");
        stream.write_all(&ClientHello::default().encode()).expect("written");
        IdleClient { rpc: kumi_rpc::Client::default(), stream, input: Vec::new() }
    }

    fn seek(&mut self, routine: &str) {
        self.ask(&placing(routine));
    }

    fn ask(&mut self, placing: &PlacementRequest) {
        let mut out = Vec::new();
        self.rpc.request_placement(placing, &mut out).expect("a name");
        self.stream.write_all(&out).expect("written");
    }

    /// Reports an attempt as run, with this duration.
    fn over(&mut self, stream: u32, ticket: Ticket, ran_ns: u64) {
        let fast = Transfer { bytes: u64::MAX, ns: 1 };
        let ended = AttemptOutcome::Done;
        let over = AttemptReport { ticket, ended, out: fast, back: fast, ran_ns, waited_ns: 0 };
        let mut out = Vec::new();
        self.rpc.report_attempt(stream, &over, &mut out);
        self.stream.write_all(&out).expect("written");
    }

    fn next(&mut self) -> ClientEvent {
        loop {
            match self.rpc.step(&self.input).expect("the protocol") {
                Step::Event(used, event) => {
                    self.input.drain(..used);
                    if let Some(event) = event {
                        return event;
                    }
                }
                _ => {
                    let mut piece = [0; 4096];
                    let count = read_some(&mut self.stream, &mut piece).expect("read");
                    assert!(count > 0, "it is closed");
                    self.input.extend_from_slice(&piece[..count]);
                }
            }
        }
    }
}

#[test]
fn a_client_gets_all_answers_to_questions_that_it_asks_at_once() {
    const AT_ONCE: usize = 20_000;
    let meta = meta(config("round-robin"));
    let mut client = IdleClient::new(&meta);
    assert!(matches!(client.next(), ClientEvent::Hello(_)));
    let mut questions = Vec::new();
    for _ in 0..AT_ONCE {
        client.rpc.status(&mut questions);
    }
    // Answers are longer than questions: the metaserver pauses until some are read, and then goes on with what it has.
    let mut writes = client.stream.try_clone().expect("a descriptor");
    let writing = std::thread::spawn(move || writes.write_all(&questions));
    for number in 0..AT_ONCE {
        let event = client.next();
        assert!(matches!(event, ClientEvent::State(..)), "{number}: {event:?}");
    }
    writing.join().expect("no panic").expect("written");
}

#[test]
fn a_place_to_which_nobody_comes_is_anothers() {
    let mut soon = config("round-robin");
    soon.start = Duration::from_millis(200);
    let meta = meta(soon);
    let _server = served(meta.member("a", 1));
    meta.until_servers(1);
    let mut idler = IdleClient::new(&meta);
    assert!(matches!(idler.next(), ClientEvent::Hello(_)));
    idler.seek("noop");
    let ClientEvent::Placed(_, first) = idler.next() else { panic!("no place") };
    // It has the only slot, and another wants it.
    let grid = meta.grid();
    let mut waits = grid.call_async("noop", vec![], None).expect("it begins");
    let ClientEvent::Placed(_, second) = idler.next() else { panic!("no second place") };
    assert_eq!((second.ticket.call, second.ticket.attempt), (first.ticket.call, 2));
    let failure = loop {
        match idler.next() {
            ClientEvent::Placed(..) => {}
            ClientEvent::Failed(_, failure) => break failure,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(failure.code, Code::NoServer);
    waits.wait(&|| false).expect("it has the slot in the end");
    let state = meta.until("both ends", |state| state.counters.done == 1);
    assert_eq!((state.counters.failed, state.running, state.servers[0].done), (1, 0, 1));
}

#[test]
fn a_client_that_says_that_its_call_has_run_is_not_believed() {
    let mut soon = config("round-robin");
    soon.start = Duration::from_millis(200);
    let meta = meta(soon);
    let _server = served(meta.member("a", 1));
    meta.until_servers(1);
    let mut idler = IdleClient::new(&meta);
    assert!(matches!(idler.next(), ClientEvent::Hello(_)));
    idler.seek("noop");
    let ClientEvent::Placed(stream, first) = idler.next() else { panic!("no place") };
    idler.over(stream, first.ticket, 1 << 60);
    // It keeps its place until the server reports that no client has come.
    idler.seek("noop");
    let ClientEvent::Closed(_) = idler.next() else { panic!("the stream that is left is closed") };
    let ClientEvent::Placed(_, again) = idler.next() else { panic!("no place") };
    assert_eq!(again.ticket, first.ticket);
    let ClientEvent::Placed(_, second) = idler.next() else { panic!("no second place") };
    assert_eq!((second.ticket.call, second.ticket.attempt), (first.ticket.call, 2));
    let state = meta.state();
    assert_eq!((state.counters.done, state.paths.len()), (0, 0), "{state:?}");
}

#[test]
fn a_place_is_kept_while_its_call_runs() {
    let mut soon = config("round-robin");
    soon.start = Duration::from_millis(100);
    let meta = meta(soon);
    let _server = served(meta.member("a", 1));
    meta.until_servers(1);
    meta.grid().call("nap", vec![1000.into()]).expect("it runs");
    let state = meta.until("its end", |state| state.counters.done == 1);
    assert_eq!((state.counters.placed, state.counters.failed, state.servers[0].done), (1, 0, 1));
}

#[test]
fn many_calls_wait_and_are_cancelled_in_any_order() {
    const MANY: usize = 3000;
    let mut first = meta(config("round-robin"));
    let _server = served(first.member("a", 1));
    first.until_servers(1);
    let grid = first.grid();
    let open = Gate::new();
    let mut runs = grid.call_async("gate", open.args(), None).expect("it begins");
    first.until("a call that runs", |state| state.running == 1);
    let mut calls: Vec<GridCall> =
        (0..MANY).map(|_| grid.call_async("noop", vec![], None).expect("it begins")).collect();
    first.until("calls that wait", |state| state.waiting == MANY);
    // From the middle, from both ends, and some of them twice.
    for at in (0..MANY).step_by(3).chain((0..MANY).rev().step_by(5)) {
        calls[at].cancel();
    }
    let is_cancelled = |at: usize| at.is_multiple_of(3) || (MANY - 1 - at).is_multiple_of(5);
    let left = (0..MANY).filter(|at| !is_cancelled(*at)).count();
    first.until("fewer calls", |state| state.waiting == left);
    // The remaining calls ask the next metaserver.
    let lost = first.address;
    first.stop();
    let second = meta_at(config("round-robin"), lost);
    open.open();
    let ended = runs.wait(&|| false);
    assert!(ended.is_ok() || ended.is_err_and(|error| !error.has_not_run()));
    for (at, call) in calls.iter_mut().enumerate() {
        match call.wait(&|| false) {
            Err(CallError::Cancelled(_)) => assert!(is_cancelled(at)),
            other => assert!(other.is_ok() && !is_cancelled(at), "{at}: {other:?}"),
        }
    }
    second.until("no calls", |state| state.waiting == 0 && state.running == 0);
}

#[test]
fn a_bound_call_waits_while_servers_may_still_come_back() {
    let meta = meta(config("round-robin"));
    let _one = served(meta.member("one", 4));
    meta.until_servers(1);
    let address = grid::port().to_string();
    let mut idler = IdleClient::new(&meta);
    assert!(matches!(idler.next(), ClientEvent::Hello(_)));
    idler.ask(&bound(1, "two", &address));
    // It may be a server of the metaserver before this one. Another name and another address are other servers.
    idler.ask(&bound(2, "two", "127.0.0.1:1"));
    let mut config = meta.member("two", 4);
    config.membership.as_mut().expect("one").address.clone_from(&address);
    let _two = served(config);
    let ClientEvent::Placed(_, placed) = idler.next() else { panic!("no place") };
    assert_eq!((placed.server.as_str(), placed.address.as_str()), ("two", address.as_str()));
    // Nobody comes to the place that was not used, nor elsewhere.
    let failure = loop {
        match idler.next() {
            ClientEvent::Placed(_, placed) => assert_eq!(placed.server, "two"),
            ClientEvent::Failed(_, failure) => break failure,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((failure.code, failure.detail), (Code::NoServer, 0));
    assert!(failure.text.contains("the server that has its arrays is gone"), "{}", failure.text);
    let state = meta.state();
    let one = state.servers.iter().find(|server| server.name == "one").expect("it is shown");
    assert_eq!((one.done, one.running), (0, 0), "{state:?}");
}
