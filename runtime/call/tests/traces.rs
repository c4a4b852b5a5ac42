//! The place of a call in a trace goes with it, through the metaserver and the server into the routine.
#![forbid(unsafe_code)]

mod common;
#[path = "common/grid.rs"]
mod grid;

use common::{TestServer, config, library_of, served_text};
use kumi_call::server::Config;
use kumi_call::{Outcome, TraceContext, Value, trace_calls, trace_context};

const TEXT: &str = r#"
Define traced(mode_out string parent[80]) Calls "C" traced(parent);
Define thread(mode_out string parent[80]) Calls "C" thread(parent);
"#;

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn served(config: Config) -> TestServer {
    served_text(config, TEXT, library_of("context.c"))
}

fn parent() -> TraceContext {
    TraceContext::parse(PARENT.as_bytes()).expect("a traceparent")
}

/// What a routine has found in its environment.
#[track_caller]
fn found(outcome: &Outcome) -> String {
    match &outcome.values[..] {
        [(0, Value::Text(text))] => text.clone(),
        other => panic!("{other:?}"),
    }
}

/// A span of the same trace that is another than the caller's.
#[track_caller]
fn next(text: &str) -> String {
    let found = TraceContext::parse(text.as_bytes()).unwrap_or_else(|_| panic!("`{text}`"));
    assert_eq!(found.trace(), parent().trace());
    assert_ne!(found.span(), parent().span());
    assert!(text.ends_with("-01"), "{text}");
    found.span().to_string()
}

#[test]
fn a_routine_has_a_span_of_its_own() {
    let server = served(config());
    let client = server.client();
    let call = |routine| found(&client.call(routine, vec![]).expect("it runs"));
    assert_eq!(call("traced"), "");
    assert_eq!(trace_calls(Some(parent())), None);
    let (one, other) = (next(&call("traced")), next(&call("traced")));
    assert_ne!(one, other, "each call has a span");
    // A thread that a routine leaves looks at the environment all the time.
    next(&call("thread"));
    for _ in 0..100 {
        next(&call("thread"));
    }
    assert_eq!(trace_calls(None), Some(parent()));
    assert_eq!((call("traced"), call("thread")), (String::new(), String::new()));
}

#[test]
fn a_trace_goes_through_a_metaserver() {
    let meta = grid::meta(grid::config("round-robin"));
    let _server = served(meta.member("one", 1));
    meta.until_servers(1);
    let grid = meta.grid();
    trace_calls(Some(parent()));
    assert_eq!(trace_context(), Some(parent()));
    next(&found(&grid.call("traced", vec![]).expect("it runs")));
    let begun = grid.call_async("traced", vec![], None).expect("it begins");
    // What counts is where the call began.
    trace_calls(None);
    let mut begun = begun;
    next(&found(&begun.wait(&|| false).expect("it runs")));
    assert_eq!(found(&grid.call("traced", vec![]).expect("it runs")), "");
}
