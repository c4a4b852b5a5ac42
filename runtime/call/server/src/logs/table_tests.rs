//! What is kept stays within its bounds, is its user's alone, and what is missing is counted.

use kumi_call_wire::logs::{CallOutcome, LineSource, PlacedCall, TracedCall};
use kumi_rpc::TraceId;
use proptest::prelude::*;

use super::*;

const LIMITS: LogLimits = LogLimits { calls: 6, call_bytes: 600, bytes: 8_000 };
const USERS: [&str; 3] = ["", "ada", "zoe"];

fn head(call: u64) -> LoggedCall {
    LoggedCall { call, routine: "f".into(), came_ms: call, ..LoggedCall::default() }
}

fn line(text: &str) -> LogLine {
    LogLine { at_ms: 1, source: LineSource::Routine, text: text.to_owned() }
}

fn end(reason: &str) -> CallEnd {
    let reason = reason.to_owned();
    CallEnd { at_ms: 2, outcome: CallOutcome::Failed, code: 9, reason, ran_ns: None }
}

fn whole(call: u64) -> LogRequest {
    LogRequest::Call { call, from: 0 }
}

fn numbers(logs: &LogAnswer) -> Vec<u64> {
    logs.calls.iter().map(|call| call.call).collect()
}

#[derive(Debug, Clone)]
enum Step {
    Open(usize),
    Begin(usize, u64),
    Line(usize, u64, usize),
    End(usize, u64, usize),
}

fn step() -> impl Strategy<Value = Step> {
    let (user, call) = (0..USERS.len(), 0..40_u64);
    prop_oneof![
        3 => user.clone().prop_map(Step::Open),
        1 => (user.clone(), call.clone()).prop_map(|(user, call)| Step::Begin(user, call)),
        6 => (user.clone(), call.clone(), 0..900_usize)
            .prop_map(|(user, call, length)| Step::Line(user, call, length)),
        2 => (user, call, 0..300_usize)
            .prop_map(|(user, call, length)| Step::End(user, call, length)),
    ]
}

/// Checks what holds at all times.
fn check(table: &CallLogTable) {
    let calls: usize = table.users.values().map(|own| own.calls.len()).sum();
    assert_eq!(table.calls, calls);
    assert!(calls <= table.limits.calls);
    let mut bytes = 0;
    for own in table.users.values() {
        let own_bytes: usize = own.calls.values().map(Entry::bytes).sum();
        assert_eq!(own.bytes, own_bytes);
        bytes += own_bytes;
        let ended: Vec<u64> =
            own.calls.values().filter(|it| it.head.end.is_some()).map(|it| it.head.call).collect();
        let mut queued: Vec<u64> = own.ended.iter().copied().collect();
        queued.sort_unstable();
        assert_eq!(ended, queued);
        for entry in own.calls.values() {
            let lines: usize = entry.lines.iter().map(line_bytes).sum();
            assert_eq!((entry.line_bytes, entry.head_bytes), (lines, head_bytes(&entry.head)));
            assert!(lines <= table.limits.call_bytes);
            assert_eq!(entry.head.count, entry.head.dropped + entry.lines.len() as u64);
        }
    }
    assert_eq!(table.bytes, bytes);
    assert!(bytes <= table.limits.bytes);
}

proptest! {
    /// Whatever happens, the bounds hold, all numbers add up, and nobody sees another's call.
    #[test]
    fn any_history(steps in prop::collection::vec(step(), 0..200)) {
        let mut table = CallLogTable::new(LIMITS);
        let (mut next, mut opened) = (0, [0_u64; 3]);
        for step in steps {
            match step {
                Step::Open(user) => {
                    table.open(USERS[user], head(next));
                    next += 1;
                    opened[user] += 1;
                }
                Step::Begin(user, call) => table.begin(USERS[user], call, 1),
                Step::Line(user, call, length) => {
                    table.line(USERS[user], call, line(&"x".repeat(length)));
                }
                Step::End(user, call, length) => {
                    table.end(USERS[user], call, end(&"x".repeat(length)));
                }
            }
            check(&table);
        }
        let mut seen = Vec::new();
        for (user, opened) in USERS.iter().zip(opened) {
            let logs = table.answer(user, &LogRequest::Latest(1000));
            prop_assert_eq!(logs.calls.len() as u64 + logs.dropped, opened);
            prop_assert!(numbers(&logs).is_sorted_by(|a, b| a > b));
            for call in &logs.calls {
                seen.push(call.call);
                let shown = table.answer(user, &whole(call.call));
                let shown = &shown.calls[0];
                prop_assert_eq!(shown.first, shown.dropped);
                prop_assert_eq!(shown.first + shown.lines.len() as u64, shown.count);
                let strangers = USERS.iter().filter(|other| *other != user);
                for other in strangers {
                    prop_assert_eq!(table.answer(other, &whole(call.call)).calls, vec![]);
                }
            }
        }
        let count = seen.len();
        seen.sort_unstable();
        seen.dedup();
        prop_assert_eq!(seen.len(), count);
    }

    /// The lines that are kept are the last ones, from whichever line on they are asked for.
    #[test]
    fn the_last_lines_stay(lengths in prop::collection::vec(0..200_usize, 1..40), from in 0..50_u64) {
        let mut table = CallLogTable::new(LIMITS);
        table.open("ada", head(7));
        let texts: Vec<String> =
            lengths.iter().enumerate().map(|(at, length)| format!("{at} {}", "x".repeat(*length))).collect();
        texts.iter().for_each(|text| table.line("ada", 7, line(text)));
        let logs = table.answer("ada", &LogRequest::Call { call: 7, from });
        let shown = &logs.calls[0];
        prop_assert_eq!(shown.count, texts.len() as u64);
        prop_assert_eq!(shown.first, from.max(shown.dropped).min(shown.count));
        let expected = &texts[usize::try_from(shown.first).expect("few")..];
        let came: Vec<&String> = shown.lines.iter().map(|line| &line.text).collect();
        prop_assert_eq!(came, expected.iter().collect::<Vec<_>>());
        // Nothing is dropped without need.
        let first = usize::try_from(shown.dropped).expect("few");
        if first > 0 {
            let bytes: usize = texts[first - 1..].iter().map(|text| LINE_COST + text.len()).sum();
            prop_assert!(bytes > LIMITS.call_bytes);
        }
    }
}

#[test]
fn a_line_longer_than_all_that_a_call_may_have_is_cut_between_characters() {
    let mut table = CallLogTable::new(LIMITS);
    table.open("ada", head(1));
    table.line("ada", 1, line(&"é€".repeat(400)));
    check(&table);
    let shown = table.answer("ada", &whole(1)).calls.remove(0);
    let room = LIMITS.call_bytes - LINE_COST;
    let length = shown.lines[0].text.len();
    assert!(length <= room && length > room - 3 && shown.dropped == 0, "{length}");
}

#[test]
fn who_keeps_most_makes_room() {
    let mut table = CallLogTable::new(LIMITS);
    table.open("ada", head(1));
    table.line("ada", 1, line("hers"));
    table.end("ada", 1, end(""));
    for call in 2..100 {
        table.open("zoe", head(call));
        table.line("zoe", call, line("much"));
        table.end("zoe", call, end(""));
    }
    assert_eq!(numbers(&table.answer("ada", &LogRequest::Latest(9))), [1]);
    let logs = table.answer("zoe", &LogRequest::Latest(9));
    assert_eq!((numbers(&logs), logs.dropped), (vec![99, 98, 97, 96, 95], 93));
}

#[test]
fn who_has_most_calls_makes_room_for_calls() {
    let mut table =
        CallLogTable::new(LogLimits { call_bytes: 100_000, bytes: 1_000_000, ..LIMITS });
    table.open("ada", head(1));
    table.line("ada", 1, line(&"x".repeat(90_000)));
    table.end("ada", 1, end(""));
    for call in 2..100 {
        table.open("zoe", head(call));
        table.end("zoe", call, end(""));
        check(&table);
    }
    assert_eq!(numbers(&table.answer("ada", &LogRequest::Latest(9))), [1]);
    assert_eq!(numbers(&table.answer("zoe", &LogRequest::Latest(9))), [99, 98, 97, 96, 95]);
}

#[test]
fn calls_that_go_on_outlast_those_that_have_ended() {
    let mut table = CallLogTable::new(LIMITS);
    table.open("ada", head(1));
    table.begin("ada", 1, 5);
    for call in 2..20 {
        table.open("ada", head(call));
        table.end("ada", call, end(""));
    }
    let logs = table.answer("ada", &LogRequest::Latest(2));
    assert_eq!(numbers(&logs), [19, 18]);
    assert_eq!(table.answer("ada", &whole(1)).calls[0].began_ms, Some(5));
    // Of calls of which nothing has ended, those stay that came first: they run.
    let mut table = CallLogTable::new(LIMITS);
    (1..10).for_each(|call| table.open("ada", head(call)));
    let logs = table.answer("ada", &LogRequest::Latest(9));
    assert_eq!((numbers(&logs), logs.dropped), (vec![6, 5, 4, 3, 2, 1], 3));
    // What is no longer kept has no lines and no end.
    table.line("ada", 9, line("lost"));
    table.end("ada", 9, end(""));
    check(&table);
    assert_eq!(table.answer("ada", &whole(9)).calls, []);
}

#[test]
fn an_end_is_the_first_one() {
    let mut table = CallLogTable::new(LIMITS);
    table.open("ada", head(1));
    table.end("ada", 1, end("first"));
    table.end("ada", 1, end("second"));
    check(&table);
    let reason = table.answer("ada", &whole(1)).calls[0].end.clone().map(|end| end.reason);
    assert_eq!(reason.as_deref(), Some("first"));
}

#[test]
fn a_call_that_prints_much_loses_lines_before_others_lose_calls() {
    let limits = LogLimits { calls: 6, call_bytes: 20_000, bytes: 8_000 };
    let mut table = CallLogTable::new(limits);
    table.open("ada", head(1));
    table.open("zoe", head(2));
    for at in 0..1000 {
        table.line("ada", 1, line(&format!("line {at}")));
        check(&table);
    }
    let logs = table.answer("ada", &whole(1));
    let shown = &logs.calls[0];
    assert_eq!(shown.lines.last().map(|line| line.text.as_str()), Some("line 999"));
    assert!(shown.dropped > 0 && shown.lines.len() > 40, "{}", shown.lines.len());
    assert_eq!(table.answer("zoe", &whole(2)).calls.len(), 1);
}

#[test]
fn calls_are_found_by_metaserver_and_by_trace() {
    let mut table = CallLogTable::new(LIMITS);
    let placed = |attempt| Some(PlacedCall { call: 70, attempt });
    let id = TraceId::new([5; 16]).expect("not zero");
    let traced = TracedCall { trace: id.to_string(), span: "s".into(), parent: "p".into() };
    table.open("ada", LoggedCall { placed: placed(1), ..head(1) });
    table.open("ada", LoggedCall { placed: placed(2), ..head(2) });
    table.open("ada", LoggedCall { trace: Some(traced.clone()), ..head(3) });
    table.open("zoe", LoggedCall { placed: placed(3), trace: Some(traced), ..head(4) });
    assert_eq!(numbers(&table.answer("ada", &LogRequest::Placed(70))), [2, 1]);
    assert_eq!(numbers(&table.answer("ada", &LogRequest::Placed(7))), [0; 0]);
    assert_eq!(numbers(&table.answer("ada", &LogRequest::Trace(id))), [3]);
    let other = TraceId::new([6; 16]).expect("not zero");
    assert_eq!(numbers(&table.answer("ada", &LogRequest::Trace(other))), [0; 0]);
    assert_eq!(table.answer("eve", &LogRequest::Latest(9)), LogAnswer::default());
}

#[test]
fn an_answer_fits_a_frame_and_the_next_question_gets_the_rest() {
    let limits = LogLimits { calls: 4000, call_bytes: 8 << 20, bytes: 32 << 20 };
    let mut table = CallLogTable::new(limits);
    table.open("ada", head(1));
    let text = "\"".repeat(8 << 10);
    (0..500).for_each(|_| table.line("ada", 1, line(&text)));
    let (mut from, mut questions) = (0, 0);
    while from < 500 {
        let logs = table.answer("ada", &LogRequest::Call { call: 1, from });
        assert!(serde_json::to_string(&logs).expect("JSON").len() <= kumi_rpc::MOST_ANSWER);
        assert!(!logs.calls[0].lines.is_empty());
        let bytes: usize = logs.calls[0].lines.iter().map(line_bytes).sum();
        assert!(bytes <= 256 << 10, "{bytes}");
        from += logs.calls[0].lines.len() as u64;
        questions += 1;
    }
    assert!(questions > 1);
    for call in 2..3000 {
        table.open("ada", head(call));
        table.end("ada", call, end(&"\"".repeat(2048)));
    }
    let logs = table.answer("ada", &LogRequest::Latest(3000));
    assert!(logs.is_cut && logs.calls.len() > 100);
    assert!(serde_json::to_string(&logs).expect("JSON").len() <= kumi_rpc::MOST_ANSWER);
}

#[test]
fn nothing_is_kept_of_nothing() {
    let mut table = CallLogTable::new(LogLimits { calls: 0, ..LIMITS });
    table.open("ada", head(1));
    table.line("ada", 1, line("x"));
    table.end("ada", 1, end("x"));
    check(&table);
    assert_eq!(table.answer("ada", &LogRequest::Latest(9)).dropped, 1);
    let mut table = CallLogTable::new(LogLimits { call_bytes: 0, ..LIMITS });
    table.open("ada", head(1));
    table.line("ada", 1, line("x"));
    check(&table);
    assert_eq!(table.answer("ada", &whole(1)).calls[0].dropped, 1);
}

#[test]
fn users_of_whom_nothing_is_left_cost_nothing_in_the_end() {
    let mut table = CallLogTable::new(LIMITS);
    for user in 0..1000 {
        table.open(&user.to_string(), head(user));
        table.end(&user.to_string(), user, end(""));
        check(&table);
    }
    assert!(table.users.len() <= 2 * LIMITS.calls, "{}", table.users.len());
}
