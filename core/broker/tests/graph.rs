//! Transactions: what depends on what, what runs when, and what failures take along.

use std::collections::{BTreeMap, BTreeSet};

use kumi_broker::{
    Access, BufferId, DependencyKind, Graph, GraphError, HeldInput, Node, RecordedCall, ServerId,
    State,
};
use proptest::prelude::*;

const A: ServerId = ServerId(1);
const B: ServerId = ServerId(2);

fn bytes(buffer: u64, start: u64, end: u64) -> Access {
    Access { buffer: BufferId(buffer), start, end }
}

fn call(name: &str, reads: &[Access], writes: &[Access]) -> RecordedCall {
    RecordedCall { name: name.to_owned(), reads: reads.to_vec(), writes: writes.to_vec() }
}

/// The paper's example: E = A + B, F = C + D, G = E + F; buffers 0 to 6.
fn sums() -> Graph {
    let whole = |buffer| bytes(buffer, 0, 800);
    let mut graph = Graph::new();
    for (left, right, sum) in [(0, 1, 4), (2, 3, 5), (4, 5, 6)] {
        graph.record(&call("madd", &[whole(left), whole(right)], &[whole(sum)])).unwrap();
    }
    graph
}

#[test]
fn the_papers_example_runs_two_at_a_time() {
    let mut graph = sums();
    assert_eq!(graph.ready().collect::<Vec<_>>(), [Node(0), Node(1)]);
    assert_eq!(graph.start(Node(2)), Err(GraphError::NotNow(Node(2))));
    graph.start(Node(0)).unwrap();
    graph.start(Node(1)).unwrap();
    assert_eq!(graph.finish(Node(1), B), Ok(vec![]));
    assert_eq!(graph.finish(Node(0), A), Ok(vec![Node(2)]));
    let there = |server| HeldInput { server, bytes: 800 };
    assert_eq!(graph.held(Node(2)), [there(A), there(B)]);
    assert_eq!(graph.held(Node(0)), []);
    graph.discard(BufferId(4));
    graph.start(Node(2)).unwrap();
    graph.finish(Node(2), A).unwrap();
    assert!(graph.is_over());
    let results = [(bytes(5, 0, 800), Node(1), B), (bytes(6, 0, 800), Node(2), A)];
    assert_eq!(graph.results(), results);
}

#[test]
fn failures_take_along_who_would_have_read() {
    let mut graph = sums();
    // Only has to come after call 2: it overwrites what that reads.
    graph.record(&call("zero", &[], &[bytes(4, 0, 800)])).unwrap();
    graph.record(&call("scale", &[bytes(6, 0, 8)], &[bytes(7, 0, 8)])).unwrap();
    graph.start(Node(0)).unwrap();
    let ready = graph.fail(Node(0), "out of memory".to_owned()).unwrap();
    assert_eq!(ready, [], "call 2 is skipped, but comes after call 1 all the same");
    assert_eq!(graph.state(Node(2)), Some(&State::Skipped(Node(0))));
    assert_eq!(graph.state(Node(4)), Some(&State::Skipped(Node(2))));
    assert_eq!(graph.failure_path(Node(4)), [0, 2, 4].map(Node));
    let told = graph.explain(Node(4));
    assert_eq!(
        told,
        "call 4 (scale) did not run, because of 0 (madd) -> 2 (madd) -> 4 (scale): out of memory"
    );
    // What is recorded later knows it too.
    let late = graph.record(&call("late", &[bytes(7, 4, 5)], &[])).unwrap();
    assert_eq!(graph.failure_path(late), [0, 2, 4, 5].map(Node));
    assert_eq!(graph.ready().collect::<Vec<_>>(), [Node(1)]);
    graph.start(Node(1)).unwrap();
    assert_eq!(graph.finish(Node(1), A), Ok(vec![Node(3)]));
}

#[test]
fn order_is_kept_through_a_call_that_was_skipped() {
    let (b, c) = (bytes(0, 0, 8), bytes(1, 0, 8));
    for again in [false, true] {
        let mut graph = Graph::new();
        let makes = graph.record(&call("makes", &[], &[c])).unwrap();
        let reads = graph.record(&call("reads", &[b], &[])).unwrap();
        let both = graph.record(&call("both", &[c], &[b])).unwrap();
        let writes = graph.record(&call("writes", &[], &[b])).unwrap();
        graph.start(makes).unwrap();
        graph.start(reads).unwrap();
        if again {
            graph.finish(reads, A).unwrap();
        }
        let ready = graph.fail(makes, "no".to_owned()).unwrap();
        assert_eq!(graph.state(both), Some(&State::Skipped(makes)));
        if again {
            // What it gave is lost: it reads once more, before anybody writes there.
            assert_eq!(ready, [writes]);
            graph.restart(reads).unwrap();
            graph.start(reads).unwrap();
        } else {
            assert_eq!(ready, [], "what it would overwrite is being read");
        }
        assert_eq!(graph.state(writes), Some(&State::Waiting));
        assert_eq!(graph.finish(reads, A), Ok(vec![writes]));
    }
}

#[test]
fn a_lost_server_takes_what_lived_there() {
    let mut graph = sums();
    for (node, server) in [(Node(0), A), (Node(1), B)] {
        graph.start(node).unwrap();
        graph.finish(node, server).unwrap();
    }
    assert_eq!(graph.server_lost(B, "server 2 is gone"), []);
    assert!(matches!(graph.state(Node(2)), Some(State::Skipped(_))));
    assert!(graph.explain(Node(2)).ends_with("server 2 is gone"), "{}", graph.explain(Node(2)));
    assert!(graph.is_over());
    assert_eq!(graph.results().len(), 1);
}

#[test]
fn cancellation_starts_nothing_more() {
    let mut graph = sums();
    graph.start(Node(0)).unwrap();
    assert_eq!(graph.cancel(), [Node(0)]);
    assert_eq!(graph.finish(Node(0), A), Ok(vec![]));
    assert!(graph.is_over());
    assert_eq!(graph.explain(Node(1)), "call 1 (madd) was cancelled");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let mut graph = Graph::new();
    let backwards = bytes(1, 5, 4);
    let refused = graph.record(&call("f", &[backwards], &[]));
    assert_eq!(refused, Err(GraphError::Backwards(backwards)));
    let many = vec![bytes(1, 0, 1); 2000];
    assert_eq!(graph.record(&call("f", &many, &[])), Err(GraphError::TooLarge));
    assert_eq!(graph.nodes().count(), 0);
    assert_eq!(graph.finish(Node(7), A), Err(GraphError::NotNow(Node(7))));
}

#[test]
fn pictures_hold_every_call_and_no_markup_of_names() {
    let mut graph = sums();
    graph.record(&call("\"</text>\u{1}&", &[bytes(6, 0, 1)], &[bytes(0, 0, 1)])).unwrap();
    let svg = graph.svg();
    assert_eq!(svg.matches("<rect").count(), 4);
    assert_eq!(svg.matches("<line").count(), 4);
    assert_eq!(svg.matches("stroke-dasharray").count(), 1);
    assert!(svg.contains("&quot;&lt;/text&gt; &amp;") && !svg.contains('\u{1}'), "{svg}");
    let dot = graph.dot();
    assert_eq!(dot.matches("->").count(), 4);
    assert!(dot.contains("c0 -> c3 [style=dashed];") && dot.contains("\\\"</text>"), "{dot}");
}

/// Byte by byte: the last writer, and who has read since.
#[derive(Default)]
struct Bytes {
    of: BTreeMap<(BufferId, u64), (Option<Node>, BTreeSet<Node>)>,
}

impl Bytes {
    fn record(&mut self, node: Node, call: &RecordedCall) -> BTreeMap<Node, DependencyKind> {
        let mut after = BTreeMap::new();
        let all = |access: &Access| {
            let buffer = access.buffer;
            (access.start..access.end).map(move |at| (buffer, at))
        };
        for key in call.reads.iter().flat_map(all) {
            let writer = self.of.get(&key).and_then(|byte| byte.0);
            after.extend(writer.map(|writer| (writer, DependencyKind::Data)));
        }
        for key in call.writes.iter().flat_map(all) {
            let Some((writer, readers)) = self.of.get(&key) else { continue };
            for &other in writer.iter().chain(readers) {
                after.entry(other).or_insert(DependencyKind::Order);
            }
        }
        for key in call.reads.iter().flat_map(all) {
            self.of.entry(key).or_default().1.insert(node);
        }
        for key in call.writes.iter().flat_map(all) {
            self.of.insert(key, (Some(node), BTreeSet::new()));
        }
        after
    }
}

/// Whether one of them writes what the other reads or writes.
fn conflict(one: &(Vec<Access>, Vec<Access>), two: &(Vec<Access>, Vec<Access>)) -> bool {
    let touch = |some: &[Access], others: &[Access]| {
        some.iter().any(|a| {
            let same = |b: &Access| a.buffer == b.buffer && a.start.max(b.start) < a.end.min(b.end);
            others.iter().any(same)
        })
    };
    touch(&one.1, &two.1) || touch(&one.1, &two.0) || touch(&one.0, &two.1)
}

/// A skipped call has a way of data to one that failed.
fn check_way(graph: &Graph, node: Node) -> Result<(), TestCaseError> {
    let way = graph.failure_path(node);
    prop_assert_eq!(way.last(), Some(&node));
    prop_assert!(matches!(graph.state(way[0]), Some(State::Failed(_))));
    for pair in way.windows(2) {
        prop_assert!(graph.after(pair[1]).any(|dep| dep == (pair[0], DependencyKind::Data)));
    }
    Ok(())
}

fn accesses() -> impl Strategy<Value = Vec<Access>> {
    let one = (0..2u64, 0..24u64, 0..12u64).prop_map(|(b, at, many)| bytes(b, at, at + many));
    prop::collection::vec(one, 0..3)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn dependencies_are_those_of_single_bytes(
        calls in prop::collection::vec((accesses(), accesses()), 1..24),
        fails in any::<u32>(),
        mut turns in any::<u64>(),
    ) {
        let mut graph = Graph::new();
        let mut reference = Bytes::default();
        for (reads, writes) in &calls {
            let call = call("f", reads, writes);
            let node = graph.record(&call).unwrap();
            let expected = reference.record(node, &call);
            prop_assert_eq!(graph.after(node).collect::<BTreeMap<_, _>>(), expected);
            let read: u64 = reads.iter().map(|access| access.end - access.start).sum();
            let parts = graph.inputs(node).iter().map(|input| input.bytes.end - input.bytes.start);
            prop_assert_eq!(parts.sum::<u64>(), read);
        }
        // Run it all, several at once, some failing: everything ends, nothing starts before what it needs, and none that
        // writes runs beside another of the same bytes.
        let mut running: Vec<Node> = Vec::new();
        loop {
            turns = turns.rotate_left(7).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let next = graph.ready().next().filter(|_| running.is_empty() || turns % 3 > 0);
            let Some(node) = next else {
                if running.is_empty() {
                    break;
                }
                let node = running.swap_remove((turns >> 32) as usize % running.len());
                if fails & (1 << node.0) != 0 {
                    graph.fail(node, "no".to_owned()).unwrap();
                } else {
                    graph.finish(node, A).unwrap();
                }
                continue;
            };
            for (other, why) in graph.after(node) {
                let over = match graph.state(other) {
                    Some(State::Done(_)) => true,
                    Some(State::Failed(_) | State::Skipped(_)) => why == DependencyKind::Order,
                    _ => false,
                };
                prop_assert!(over, "{node:?} starts before {other:?}");
            }
            for other in &running {
                let (one, two) = (&calls[node.0 as usize], &calls[other.0 as usize]);
                prop_assert!(!conflict(one, two), "{node:?} runs beside {other:?}");
            }
            graph.start(node).unwrap();
            running.push(node);
        }
        prop_assert!(graph.is_over());
        for node in graph.nodes() {
            if let Some(State::Skipped(_)) = graph.state(node) {
                check_way(&graph, node)?;
            }
        }
    }
}

#[test]
fn what_was_lost_is_made_again() {
    let mut graph = sums();
    for node in [Node(0), Node(1)] {
        graph.start(node).unwrap();
        graph.finish(node, A).unwrap();
    }
    graph.start(Node(2)).unwrap();
    // Both are lost, and the call that would have read them comes back.
    graph.restart(Node(2)).unwrap();
    assert_eq!(graph.state(Node(2)), Some(&State::Ready));
    graph.restart(Node(0)).unwrap();
    graph.restart(Node(1)).unwrap();
    assert_eq!(graph.restart(Node(1)), Err(GraphError::NotNow(Node(1))));
    assert_eq!(graph.ready().collect::<Vec<_>>(), [Node(0), Node(1)]);
    assert_eq!(graph.state(Node(2)), Some(&State::Waiting));
    graph.start(Node(0)).unwrap();
    assert_eq!(graph.finish(Node(0), B), Ok(vec![]));
    graph.start(Node(1)).unwrap();
    assert_eq!(graph.finish(Node(1), B), Ok(vec![Node(2)]));
    // Once more, in the other order, and now one of them cannot be made again.
    graph.start(Node(2)).unwrap();
    graph.restart(Node(0)).unwrap();
    graph.restart(Node(2)).unwrap();
    assert_eq!(graph.state(Node(2)), Some(&State::Waiting));
    assert_eq!(graph.mark_lost(Node(1), "it is gone".to_owned()), Ok(vec![]));
    let told = graph.explain(Node(2));
    assert_eq!(told, "call 2 (madd) did not run, because of 1 (madd) -> 2 (madd): it is gone");
    assert_eq!(graph.ready().collect::<Vec<_>>(), [Node(0)]);
    let last = graph.last_writers();
    assert_eq!(last.len(), 3);
    assert_eq!(last[2], (bytes(6, 0, 800), Node(2)));
    let svg = graph.svg_with(|node| format!("at {}", node.0));
    assert_eq!(svg.matches("font-size=\"10\"").count(), 3);
}
