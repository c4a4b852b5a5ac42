//! The trace in Chrome's trace event format, which Perfetto reads.

use super::arrows::{Arrow, ArrowKind};
use super::model::{Trace, describe, kind_name};
use kumi_control::message::{TraceEvent, TraceKind};
use serde_json::{Value, json};

/// Shortest slice in microseconds: arrows begin and end in slices.
const SHORTEST: f64 = 0.001;

/// Events that are looked at to find the one in which an arrow begins or ends.
const LOOK_BACK: usize = 64;

fn microseconds(nanoseconds: u64) -> f64 {
    // Below 2^53, as the trace was checked.
    nanoseconds as f64 / 1_000.0
}

/// The file's contents.
pub fn document(trace: &Trace, arrows: &[Arrow]) -> Value {
    let mut events = Vec::new();
    for rank in &trace.ranks {
        let name = format!("rank {} on node {}", rank.rank, rank.node);
        events.push(
            json!({"ph": "M", "name": "process_name", "pid": rank.rank, "args": {"name": name}}),
        );
        events.push(json!({"ph": "M", "name": "process_sort_index", "pid": rank.rank, "args": {"sort_index": rank.rank}}));
        events.extend(rank.events.iter().map(|event| slice(trace, rank.rank, event)));
    }
    for (id, arrow) in arrows.iter().enumerate() {
        if arrow.kind == ArrowKind::Pages {
            events.push(served(arrow));
        }
        let word = arrow.kind.word();
        for (phase, (rank, time)) in [("s", arrow.from), ("f", arrow.to)] {
            events.push(json!({
                "ph": phase, "bp": "e", "id": id, "cat": word, "name": word,
                "pid": rank, "tid": thread_at(trace, rank, time), "ts": microseconds(time),
            }));
        }
    }
    json!({
        "displayTimeUnit": "ns",
        "otherData": {"job": trace.job, "name": trace.name},
        "traceEvents": events,
    })
}

fn slice(trace: &Trace, rank: u32, event: &TraceEvent) -> Value {
    json!({
        "ph": "X", "pid": rank, "tid": event.thread, "cat": category(event.kind),
        "name": kind_name(event.kind),
        "ts": microseconds(event.time), "dur": microseconds(event.duration).max(SHORTEST),
        "args": {"what": describe(trace, event)},
    })
}

/// Where an arrow from the home of pages begins: the home itself records nothing.
fn served(arrow: &Arrow) -> Value {
    let (rank, time) = arrow.from;
    json!({
        "ph": "X", "pid": rank, "tid": 0, "cat": "page", "name": "pages wanted",
        "ts": microseconds(time), "dur": SHORTEST,
    })
}

/// The thread of an event that the rank had at that time, among the last ones that began before.
fn thread_at(trace: &Trace, rank: u32, time: u64) -> u8 {
    let of_rank = trace.ranks.binary_search_by_key(&rank, |one| one.rank);
    let Ok(of_rank) = of_rank.map(|at| &trace.ranks[at].events) else { return 0 };
    let begun = of_rank.partition_point(|event| event.time <= time);
    let mut last = of_rank[..begun].iter().rev().take(LOOK_BACK);
    last.find(|event| event.time + event.duration >= time).map_or(0, |event| event.thread)
}

/// By which a viewer can show or hide events.
fn category(kind: TraceKind) -> &'static str {
    match kind {
        TraceKind::Fetch | TraceKind::Found | TraceKind::Written => "page",
        TraceKind::Diff | TraceKind::Flush | TraceKind::Stale => "page",
        TraceKind::Lock | TraceKind::Unlock => "lock",
        TraceKind::Barrier | TraceKind::Wait => "barrier",
        TraceKind::SetCondition | TraceKind::WaitCondition => "condition",
        TraceKind::Send | TraceKind::Receive => "protocol",
        TraceKind::ProgramSend | TraceKind::ProgramReceive => "message",
    }
}

#[cfg(test)]
mod tests {
    use super::super::model::tests::{event, trace};
    use super::*;

    #[test]
    fn slices_and_arrows_are_what_perfetto_reads() {
        let lock = event(TraceKind::Lock, (1_500, 2_000), 4);
        let trace = trace(vec![vec![event(TraceKind::Unlock, (0, 0), 4)], vec![lock]]);
        let arrow = Arrow { kind: ArrowKind::Lock, from: (0, 0), to: (1, 3_500), object: 4 };
        let document = document(&trace, &[arrow]);
        let events = document["traceEvents"].as_array().unwrap();
        let of = |phase: &str| events.iter().filter(|one| one["ph"] == phase).collect::<Vec<_>>();
        assert_eq!(of("M")[0]["args"]["name"], "rank 0 on node 0");
        let slices = of("X");
        assert_eq!((slices[0]["ts"].as_f64(), slices[0]["dur"].as_f64()), (Some(0.0), Some(0.001)));
        assert_eq!((slices[1]["ts"].as_f64(), slices[1]["dur"].as_f64()), (Some(1.5), Some(2.0)));
        assert_eq!((&slices[1]["name"], &slices[1]["cat"]), (&json!("lock"), &json!("lock")));
        let (begin, end) = (of("s"), of("f"));
        assert_eq!((begin[0]["pid"].as_u64(), end[0]["pid"].as_u64()), (Some(0), Some(1)));
        assert_eq!((&begin[0]["id"], end[0]["ts"].as_f64()), (&end[0]["id"], Some(3.5)));
    }
}
