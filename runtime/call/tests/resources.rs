//! Threads and memory that a client asks for a call, and how many slots such a call takes.
#![forbid(unsafe_code)]

mod common;
#[path = "common/grid.rs"]
mod grid;
#[path = "common/scripted_server.rs"]
mod scripted_server;

use std::path::PathBuf;

use common::{Gate, TestServer, config, eventually, library_of, served_text};
use kumi_call::server::Config;
use kumi_call::transaction::Transaction;
use kumi_call::{Arg, Call, CallError, Client, Options, Outcome, Resources};
use kumi_idl::Scalar;
use scripted_server::ScriptedServer;

const TEXT: &str = r#"
Define threads(mode_out int omp, mode_out int openblas, mode_out int mkl) Calls "C" threads(omp, openblas, mkl);
Define note(mode_in string path, mode_in string gate, mode_in string text, mode_out int failed)
    Calls "C" failed = note(path, gate, text);
Define alone(mode_in string path, mode_out int others) Calls "C" others = alone(path);
DefClass holder { DefMethod threads(OUT int omp, OUT int calls) Calls "C" object_threads(omp, calls); }
"#;

fn serve(slots: usize, threads: usize) -> TestServer {
    served(Config { slots, threads, ..config() })
}

fn served(config: Config) -> TestServer {
    served_text(config, TEXT, library_of("resources.c"))
}

fn threads(count: u32) -> Resources {
    Resources::new(count, 0).expect("threads")
}

#[track_caller]
fn numbers(outcome: &Outcome) -> Vec<i64> {
    let number = |(_, value): &(usize, _)| match value {
        kumi_call::Value::I64(number) => *number,
        other => panic!("{other:?}"),
    };
    outcome.values.iter().map(number).collect()
}

#[track_caller]
fn refusal<T: std::fmt::Debug>(outcome: Result<T, CallError>) -> String {
    match outcome {
        Err(error @ CallError::NoResources(_)) => {
            assert!(error.has_not_run(), "{error}");
            error.to_string()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_routine_has_the_threads_that_its_call_asks_for() {
    let server = serve(3, 1);
    let client = server.client();
    let found = |client: &Client| numbers(&client.call("threads", vec![]).expect("it runs"));
    assert_eq!(found(&client), [1, 1, 1]);
    let three = client.with_resources(threads(3));
    assert_eq!(found(&three), [3, 3, 3]);
    assert_eq!(found(&client), [1, 1, 1], "the next call has the server's");
    assert_eq!(found(&client.with_resources(threads(2))), [2, 2, 2]);
    assert_eq!(found(&three), [3, 3, 3]);
    let text = refusal(client.with_resources(threads(4)).call("threads", vec![]));
    assert!(text.contains("4 threads") && text.contains("3 slots of 1"), "{text}");
    assert_eq!(found(&client), [1, 1, 1], "the connection goes on");
    let server = serve(2, 4);
    let client = server.client();
    assert_eq!(found(&client), [4, 4, 4]);
    assert_eq!(found(&client.with_resources(threads(8))), [8, 8, 8]);
    refusal(client.with_resources(threads(9)).call("threads", vec![]));
}

/// A file that calls write, one line each.
struct Notes {
    path: PathBuf,
    _folder: tempfile::TempDir,
}

impl Notes {
    fn new() -> Notes {
        let folder = tempfile::tempdir().expect("a folder");
        Notes { path: folder.path().join("notes"), _folder: folder }
    }

    /// Begins a call that writes this text, once the gate is open.
    fn begin(&self, client: &Client, text: &str, gate: Option<&Gate>) -> Call<'static> {
        let path = self.path.to_str().expect("a text").to_owned();
        let gate = gate.map_or_else(String::new, Gate::path);
        let texts = [path, gate, text.to_owned()].map(|text| Arg::Text(text.into()));
        client.call_async("note", texts.into(), None).expect("it begins")
    }

    fn written(&self) -> Vec<String> {
        let text = std::fs::read_to_string(&self.path).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

/// Returns when the server has taken all that was sent before.
fn settled(client: &Client) {
    client.names("").expect("an answer");
}

#[test]
fn a_call_waits_for_all_of_its_slots_and_later_ones_wait_behind_it() {
    let server = serve(2, 1);
    let (client, notes, gate) = (server.client(), Notes::new(), Gate::new());
    let mut first = notes.begin(&client, "first", Some(&gate));
    eventually("its begin", || gate.begun() == 1);
    let mut both = notes.begin(&client.with_resources(threads(2)), "both", None);
    let mut later: Vec<_> = (0..3).map(|_| notes.begin(&client, "later", None)).collect();
    settled(&client);
    gate.open();
    for call in [&mut first, &mut both].into_iter().chain(&mut later) {
        call.wait(&|| false).expect("it runs");
    }
    assert_eq!(notes.written(), ["first", "both", "later", "later", "later"]);
}

#[test]
fn calls_go_on_when_one_that_waits_for_many_slots_is_cancelled_or_late() {
    let server = serve(2, 1);
    let (client, notes, gate) = (server.client(), Notes::new(), Gate::new());
    let mut first = notes.begin(&client, "first", Some(&gate));
    eventually("its begin", || gate.begun() == 1);
    let mut both = notes.begin(&client.with_resources(threads(2)), "both", None);
    let mut later = notes.begin(&client, "later", None);
    settled(&client);
    both.cancel().expect("sent");
    later.wait(&|| false).expect("it runs beside the first");
    assert!(matches!(both.wait(&|| false), Err(CallError::Cancelled(_))));
    let short = Some(std::time::Duration::from_millis(50));
    let two = client.with_resources(threads(2));
    let mut late = two.call_async("threads", vec![], short).expect("it begins");
    let mut last = notes.begin(&client, "last", None);
    last.wait(&|| false).expect("it runs beside the first");
    assert!(matches!(late.wait(&|| false), Err(CallError::TimedOut(_))));
    assert_eq!(notes.written(), ["later", "last"]);
    gate.open();
    first.wait(&|| false).expect("it runs");
}

#[test]
fn a_call_that_takes_all_slots_runs_alone() {
    let server = serve(2, 1);
    let (client, folder) = (server.client(), tempfile::tempdir().expect("a folder"));
    let path = folder.path().join("mark").to_str().expect("a text").to_owned();
    let two = client.with_resources(threads(2));
    let begin =
        |_| two.call_async("alone", vec![Arg::Text(path.clone().into())], None).expect("it begins");
    let mut calls: Vec<Call<'_>> = (0..8).map(begin).collect();
    for call in &mut calls {
        assert_eq!(numbers(&call.wait(&|| false).expect("it runs")), [0]);
    }
    // Two narrow calls fit again.
    let (notes, gate) = (Notes::new(), Gate::new());
    let mut narrow: Vec<_> = (0..2).map(|_| notes.begin(&client, "x", Some(&gate))).collect();
    eventually("both", || gate.begun() == 2);
    gate.open();
    narrow.iter_mut().for_each(|call| drop(call.wait(&|| false).expect("it runs")));
}

#[test]
fn an_object_has_the_threads_with_which_it_was_made() {
    let server = serve(2, 1);
    let client = server.client();
    let call =
        |object: &kumi_call::Object| numbers(&object.call("threads", vec![]).expect("it is there"));
    let wide = client.with_resources(threads(2)).object("holder").expect("an object");
    let usual = client.object("holder").expect("an object");
    assert_eq!((call(&wide), call(&usual)), (vec![2, 1], vec![1, 1]));
    assert_eq!((call(&wide), call(&usual)), (vec![2, 2], vec![1, 2]));
    let text = refusal(client.with_resources(threads(3)).object("holder"));
    assert!(text.contains("`holder` asks for 3 threads"), "{text}");
    // A call on it takes both slots.
    let (notes, gate) = (Notes::new(), Gate::new());
    let mut first = notes.begin(&client, "first", Some(&gate));
    eventually("its begin", || gate.begun() == 1);
    let mut on_it = wide.call_async("threads", vec![], None).expect("it begins");
    let mut later = notes.begin(&client, "later", None);
    settled(&client);
    gate.open();
    assert_eq!(numbers(&on_it.wait(&|| false).expect("it runs")), [2, 3]);
    first.wait(&|| false).expect("it runs");
    later.wait(&|| false).expect("it runs");
    assert_eq!(notes.written(), ["first", "later"]);
}

#[test]
fn memory_is_refused_where_nothing_bounds_it() {
    let server = serve(1, 1);
    let client = server.client().with_resources(Resources::new(1, 1 << 30).expect("memory"));
    let text = refusal(client.call("threads", vec![]));
    assert!(text.contains("1073741824 bytes") && text.contains("--slot-memory"), "{text}");
}

#[test]
fn a_server_of_an_earlier_version_is_asked_for_nothing() {
    let parsed = kumi_idl::parse(b"Define noop() Calls noop();");
    let noop = parsed.module.expect("a description").interfaces.remove(0);
    let (address, server) = ScriptedServer::attends(&noop, 1 << 20, |scripted_server| {
        std::iter::from_fn(|| scripted_server.next()).map(|(_, kind, _)| kind).collect::<Vec<_>>()
    });
    let client = Client::connect(&address, &Options::default()).expect("a connection");
    let asking = client.with_resources(threads(1));
    let text = refusal(asking.call("noop", vec![]));
    assert!(text.contains("`by hand` is of a version") && text.contains("protocol 1"), "{text}");
    refusal(asking.object("noop"));
    drop((client, asking));
    assert_eq!(server.join().expect("no panic"), [0_u8; 0], "it hears of no call");
}

#[test]
fn through_a_metaserver_a_call_goes_to_a_server_that_gives_what_it_asks_for() {
    let meta = grid::meta(grid::config("round-robin"));
    let _servers = [("one", 1), ("three", 3)].map(|(name, slots)| served(meta.member(name, slots)));
    meta.until_servers(2);
    let grid = meta.grid();
    let three = grid.with_resources(threads(3));
    for _ in 0..4 {
        let outcome = three.call("threads", vec![]).expect("one server has three slots");
        assert_eq!(numbers(&outcome), [3, 3, 3]);
    }
    assert_eq!(numbers(&grid.call("threads", vec![]).expect("it runs")), [1, 1, 1]);
    let object = three.object("holder").expect("an object");
    let found = object.call("threads", vec![]).expect("it is there");
    assert_eq!((object.server(), found.scalar(0)), ("three", Some(Scalar::I64(3))));
    match grid.with_resources(threads(4)).call("threads", vec![]) {
        Err(CallError::Attempts { tried, last, has_not_run, .. }) => {
            assert!(has_not_run && matches!(*last, CallError::NoResources(_)), "{last:?}");
            assert!(tried.iter().any(|why| why.contains("one ") && why.contains("1 slots")));
            assert!(tried.iter().any(|why| why.contains("three ") && why.contains("3 slots")));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn calls_of_a_transaction_ask_for_threads_each() {
    let (one, three) = (serve(1, 1), serve(3, 1));
    let servers = [one.address.to_string(), three.address.to_string()];
    let mut tx = Transaction::new();
    let asked = [2, 0, 3];
    for count in asked {
        let step = tx.call("threads", vec![]);
        if let Some(resources) = Resources::new(count, 0) {
            tx.ask_resources(step, resources);
        }
    }
    let report = tx.run(&servers).expect("one server has three slots");
    for (count, step) in asked.into_iter().zip(&report.steps) {
        let outcome = step.outcome.as_ref().expect("it has run");
        let threads = i64::from(count.max(1));
        assert_eq!(numbers(outcome), [threads; 3], "{report}");
        let there = Some(servers[1].as_str());
        assert!(count == 0 || step.server.as_deref() == there, "{report}");
    }
    let mut tx = Transaction::new();
    let step = tx.call("threads", vec![]);
    tx.ask_resources(step, threads(4));
    let refused = tx.run(&servers).expect_err("no server has four");
    assert!(refused.to_string().contains("4 threads"), "{refused}");
}
