//! Calls as `bindings/testvectors/routing.json` has them, by which implementations in other languages can be held to this one.
//! `KUMI_WRITE_VECTORS=1 cargo test -p kumi-routing vectors` writes the file anew.
//!
//! A case is a call's rules and its steps: the time, an event, the actions that follow it. Places and errors are numbers. Many
//! events come too late, and nothing follows them. A call that is bound runs only at the server that has the even places.

use std::fmt::Write as _;

use kumi_routing::{Action, Call, CallEnd, Event, GiveUpReason, Outcome, Rules};
use serde_json::{Value, json};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bindings/testvectors/routing.json");
const CASES: u64 = 240;
/// So many of them, the last, are of calls that are bound.
const BOUND: u64 = 80;

/// The same numbers on every machine.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, most: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }
}

/// What a driver has seen, for events that fit.
#[derive(Default)]
struct Seen {
    sent: bool,
    leaves: bool,
}

/// The name of the next event: mostly one that fits, and then any.
fn name(numbers: &mut Numbers, call: &Call<u32, u32, u32>, seen: &Seen) -> &'static str {
    const ANY: [&str; 14] = [
        "asked",
        "placed",
        "placed again",
        "request ended",
        "metaserver lost",
        "no metaserver",
        "sent",
        "done",
        "failed",
        "not begun",
        "broken",
        "left",
        "stays",
        "stopped",
    ];
    const RUNS: [&str; 12] = [
        "placed",
        "placed",
        "placed again",
        "request ended",
        "metaserver lost",
        "metaserver lost",
        "not begun",
        "not begun",
        "broken",
        "broken",
        "broken",
        "done",
    ];
    let of = |numbers: &mut Numbers, names: &[&'static str]| {
        let index = numbers.below(names.len() as u64);
        names[usize::try_from(index).expect("an index")]
    };
    match numbers.below(8) {
        0 => of(numbers, &ANY),
        1 => "tick",
        2..5 if call.wants_metaserver() => "asked",
        _ if seen.leaves => {
            of(numbers, &["left", "left", "stays", "broken", "placed", "metaserver lost"])
        }
        _ if !call.has_attempt() => of(
            numbers,
            &["placed", "placed", "placed", "placed again", "metaserver lost", "request ended"],
        ),
        _ if !seen.sent => of(numbers, &["sent", "sent", "sent", "sent", "placed", "not begun"]),
        _ => of(numbers, &RUNS),
    }
}

/// The event, and its name with a place (the last one, or the next) or an error.
fn event(name: &str, (place, next): (u32, u32), error: u32) -> (String, Event<u32, u32>) {
    let failed = |event: fn(u32) -> Event<u32, u32>| (format!("{name} {error}"), event(error));
    let plain = |event| (name.to_owned(), event);
    match name {
        "asked" => plain(Event::Asked),
        "placed" => (format!("placed {next}"), Event::Placed(next)),
        "placed again" => (format!("placed {place}"), Event::Placed(place)),
        "request ended" => failed(Event::RequestEnded),
        "metaserver lost" => plain(Event::MetaserverLost),
        "no metaserver" => failed(Event::NoMetaserver),
        "sent" => plain(Event::Sent),
        "done" => plain(Event::Done),
        "failed" => failed(Event::Failed),
        "not begun" => failed(Event::NotBegun),
        "broken" => failed(Event::Broken),
        "left" => plain(Event::Left),
        "stays" => plain(Event::Stays),
        "stopped" => failed(Event::Stopped),
        "tick" => plain(Event::Tick),
        other => panic!("there is no event `{other}`"),
    }
}

fn said(action: &Action<u32, u32>) -> String {
    let outcome = |outcome: &Outcome| match outcome {
        Outcome::Done => "done",
        Outcome::NotBegun => "not begun",
        Outcome::Broken => "broken",
        Outcome::Failed => "failed",
    };
    match action {
        Action::Ask => "ask".to_owned(),
        Action::Start(place) => format!("start {place}"),
        Action::Leave => "leave".to_owned(),
        Action::Report(place, how) => format!("report {place} {}", outcome(how)),
        Action::CancelRequest => "cancel request".to_owned(),
        Action::CloseRequest => "close request".to_owned(),
        Action::End(CallEnd::Done) => "end done".to_owned(),
        Action::End(CallEnd::Failed(error)) => format!("end failed {error}"),
        Action::End(CallEnd::GivenUp(GiveUpReason::Because(error))) => {
            format!("end given up {error}")
        }
        Action::End(CallEnd::GivenUp(GiveUpReason::Unknown)) => "end unknown".to_owned(),
        Action::End(CallEnd::GivenUp(GiveUpReason::RetryTime)) => "end retry time".to_owned(),
        Action::End(CallEnd::GivenUp(GiveUpReason::Elsewhere)) => "end elsewhere".to_owned(),
    }
}

fn actions(call: &mut Call<u32, u32, u32>) -> Vec<String> {
    std::iter::from_fn(|| call.poll()).map(|action| said(&action)).collect()
}

/// A call, and the actions that were seen.
fn case(seed: u64, seen: &mut Vec<String>) -> Value {
    let mut numbers = Numbers(seed);
    let idempotent = numbers.below(2) == 0;
    let retry_time = (numbers.below(3) == 0).then(|| numbers.below(20));
    let rules = Rules { idempotent, retry_time };
    let bound = seed >= CASES - BOUND;
    let mut call = match bound {
        true => Call::bound(rules, 0, |place, server| place % 2 == *server),
        false => Call::new(rules),
    };
    let (mut driver, mut now) = (Seen::default(), 0);
    let mut steps = vec![json!([0, "begin", actions(&mut call)])];
    for error in 1..=24 {
        now += numbers.below(3);
        let place = call.last().copied().unwrap_or(0);
        let name = name(&mut numbers, &call, &driver);
        driver.sent |= name == "sent";
        driver.leaves &= !["left", "stays", "broken", "not begun"].contains(&name);
        // Mostly a place at the only server.
        let next = place + if bound && numbers.below(6) != 0 { 2 } else { 1 };
        let (name, event) = event(name, (place, next), error);
        call.handle(now, event);
        let done = actions(&mut call);
        driver.leaves |= done.iter().any(|action| action == "leave");
        driver.sent &= !done.iter().any(|action| action.starts_with("start"));
        let over = done.iter().any(|action| action.starts_with("end"));
        seen.extend_from_slice(&done);
        steps.push(json!([now, name, done]));
        if over {
            break;
        }
    }
    let tried: Vec<u32> = call.tried().iter().map(|(place, _)| *place).collect();
    json!({
        "bound": bound, "idempotent": idempotent, "retry_time": retry_time, "steps": steps, "tried": tried,
        "may_have_run": call.may_have_run(), "wants_metaserver": call.wants_metaserver(),
    })
}

#[test]
#[cfg_attr(miri, ignore = "it reads a file")]
fn the_vectors_are_what_the_code_gives() {
    let mut seen = Vec::new();
    let cases: Vec<String> = (0..CASES).map(|seed| case(seed, &mut seen).to_string()).collect();
    for action in [
        "ask",
        "start 3",
        "leave",
        "report 2 broken",
        "report 1 not begun",
        "cancel request",
        "close request",
        "end done",
        "end failed",
        "end given up",
        "end unknown",
        "end elsewhere",
        "end retry time",
    ] {
        assert!(seen.iter().any(|seen| seen.starts_with(action)), "no case shows `{action}`");
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
