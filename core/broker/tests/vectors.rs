//! Transactions as `bindings/testvectors/graph.json` has them, by which implementations in other languages can be held to this one.
//! `KUMI_WRITE_VECTORS=1 cargo test -p kumi-broker vectors` writes the file anew.
//!
//! A case is a list of calls, each with the earlier calls whose results it reads, and its steps: what happens, whether the graph takes
//! it, the states that it changes. Each call makes one result and changes nothing in place, so there are no dependencies of order.

use std::fmt::Write as _;

use kumi_broker::{Access, BufferId, Graph, GraphError, Node, RecordedCall, ServerId, State};
use serde_json::{Value, json};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bindings/testvectors/graph.json");
const CASES: u64 = 120;
const STEPS: u64 = 40;

/// The same numbers on every machine.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, most: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }

    fn of<T: Copy>(&mut self, items: &[T]) -> T {
        let index = self.below(items.len() as u64);
        items[usize::try_from(index).expect("an index")]
    }
}

/// The result of a call.
fn result(node: u32) -> Access {
    Access { buffer: BufferId(u64::from(node)), start: 0, end: 8 }
}

/// Records calls, and tells which results each reads.
fn record(numbers: &mut Numbers, graph: &mut Graph) -> Vec<Vec<u32>> {
    let count = 1 + u32::try_from(numbers.below(9)).expect("few");
    let mut calls = Vec::new();
    for node in 0..count {
        let mut reads: Vec<u32> =
            (0..node).filter(|_| numbers.below(u64::from(node) + 1) < 2).collect();
        reads.dedup();
        let call = RecordedCall {
            name: format!("f{node}"),
            reads: reads.iter().map(|from| result(*from)).collect(),
            writes: vec![result(node)],
        };
        assert_eq!(graph.record(&call), Ok(Node(node)));
        calls.push(reads);
    }
    calls
}

fn said(state: &State) -> String {
    match state {
        State::Waiting => "waiting".to_owned(),
        State::Ready => "ready".to_owned(),
        State::Running => "running".to_owned(),
        State::Done(server) => format!("done {}", server.0),
        State::Failed(why) => format!("failed {why}"),
        State::Skipped(from) => format!("skipped {}", from.0),
        State::Cancelled => "cancelled".to_owned(),
    }
}

fn states(graph: &Graph) -> Vec<String> {
    graph.nodes().filter_map(|node| graph.state(node)).map(said).collect()
}

/// A call in this state, if there is one, and now and then any.
fn node(numbers: &mut Numbers, graph: &Graph, wanted: fn(&State) -> bool) -> Node {
    let all: Vec<Node> = graph.nodes().collect();
    let fit = |node: &Node| graph.state(*node).is_some_and(wanted);
    let fits: Vec<Node> = all.iter().copied().filter(fit).collect();
    if fits.is_empty() || numbers.below(12) == 0 { numbers.of(&all) } else { numbers.of(&fits) }
}

/// Something happens: its name, and whether the graph takes it.
fn happen(numbers: &mut Numbers, graph: &mut Graph, step: u64) -> (String, Result<(), GraphError>) {
    let ready: fn(&State) -> bool = |state| *state == State::Ready;
    let running: fn(&State) -> bool = |state| *state == State::Running;
    let done: fn(&State) -> bool = |state| matches!(state, State::Done(_));
    match numbers.below(32) {
        0..12 => {
            let node = node(numbers, graph, ready);
            (format!("start {}", node.0), graph.start(node))
        }
        12..21 => {
            let (node, server) = (node(numbers, graph, running), numbers.below(3));
            let server = ServerId(u32::try_from(server).expect("few"));
            let taken = graph.finish(node, server).map(drop);
            (format!("finish {} {}", node.0, server.0), taken)
        }
        21..24 => {
            let node = node(numbers, graph, running);
            (format!("fail {} why{step}", node.0), graph.fail(node, format!("why{step}")).map(drop))
        }
        24..26 => {
            let node = node(numbers, graph, running);
            (format!("restart {}", node.0), graph.restart(node))
        }
        26..29 => {
            let node = node(numbers, graph, done);
            (format!("restart {}", node.0), graph.restart(node))
        }
        29..31 => {
            let node = node(numbers, graph, done);
            let taken = graph.mark_lost(node, format!("why{step}")).map(drop);
            (format!("lose {} why{step}", node.0), taken)
        }
        _ if numbers.below(6) == 0 => {
            graph.cancel();
            ("cancel".to_owned(), Ok(()))
        }
        _ => {
            let node = node(numbers, graph, ready);
            (format!("start {}", node.0), graph.start(node))
        }
    }
}

fn case(seed: u64, seen: &mut Vec<String>) -> Value {
    let mut numbers = Numbers(seed);
    let mut graph = Graph::new();
    let calls = record(&mut numbers, &mut graph);
    let mut before = states(&graph);
    let begin = before.clone();
    let mut steps = Vec::new();
    for step in 0..STEPS {
        let (what, taken) = happen(&mut numbers, &mut graph, step);
        let after = states(&graph);
        let turned = |at: &usize| before[*at] != after[*at];
        let changes: Vec<Value> =
            (0..after.len()).filter(turned).map(|at| json!([at, after[at].clone()])).collect();
        assert!(taken.is_ok() || changes.is_empty(), "what is refused changes nothing");
        seen.push(what.split(' ').next().unwrap_or_default().to_owned());
        seen.extend(
            after.iter().map(|state| state.split(' ').next().unwrap_or_default().to_owned()),
        );
        steps.push(json!([what, taken.is_ok(), changes]));
        before = after;
        if graph.is_over() && numbers.below(4) == 0 {
            break;
        }
    }
    let told: Vec<String> = graph.nodes().map(|node| graph.explain(node)).collect();
    json!({ "calls": calls, "begin": begin, "steps": steps, "over": graph.is_over(), "explain": told })
}

#[test]
#[cfg_attr(miri, ignore = "it reads a file")]
fn the_vectors_are_what_the_code_gives() {
    let mut seen = Vec::new();
    let cases: Vec<String> = (0..CASES).map(|seed| case(seed, &mut seen).to_string()).collect();
    for word in [
        "start",
        "finish",
        "fail",
        "restart",
        "lose",
        "cancel",
        "waiting",
        "ready",
        "running",
        "done",
        "failed",
        "skipped",
        "cancelled",
    ] {
        assert!(seen.iter().any(|seen| seen == word), "no case shows `{word}`");
    }
    let mut made = String::from("{\n\"cases\": [\n");
    write!(made, "{}\n]\n}}\n", cases.join(",\n")).expect("into a text");
    if std::env::var_os("KUMI_WRITE_VECTORS").is_some() {
        std::fs::write(FILE, &made).expect(FILE);
    }
    let text = std::fs::read_to_string(FILE).expect(FILE);
    // As values: the order of members depends on how the writer of JSON was built.
    let read = |text: &str| serde_json::from_str::<Value>(text).expect("JSON");
    assert_eq!(read(&text), read(&made), "the vectors in {FILE} are out of date");
}
