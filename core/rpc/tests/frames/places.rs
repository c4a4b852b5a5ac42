//! What clients and metaservers tell each other of calls: the bodies of PLACE, PLACED, TICKET, ATTEMPT_REPORT and ATTEMPT_REASON.

use kumi_rpc::{
    AttemptOutcome, AttemptReport, Client, InputLocation, Placement, PlacementRequest, Ticket,
    Transfer,
};
use serde_json::{Value, json};

use super::{bits, hex};

const TICKET: Ticket = Ticket { call: u64::MAX - 1, attempt: 3 };

fn number(bits: u64) -> String {
    format!("{bits:016x}")
}

/// All of them.
pub fn all() -> Vec<Value> {
    [requests(), placements(), reports(), reasons()].concat()
}

fn requests() -> Vec<Value> {
    let location = |bytes| InputLocation {
        server: "größer".to_owned(),
        address: "tls://host:7070".to_owned(),
        bytes,
    };
    let request = |operations, idempotent, bound, held: &[u64]| {
        let placing = PlacementRequest {
            key: (u64::MAX, 7),
            hash: 0xfedc_ba98_7654_3210,
            bytes_out: 1 << 40,
            bytes_back: 24,
            time_ms: 60_000,
            attempts: 2,
            priority: 9,
            routine: "größer".to_owned(),
            operations,
            idempotent,
            bound,
            input_locations: held.iter().copied().map(location).collect(),
        };
        let mut out = Vec::new();
        placing.encode(&mut out);
        let locations = placing.input_locations.iter();
        let locations: Vec<Value> =
            locations.map(|it| json!([it.server, it.address, it.bytes])).collect();
        let (key, hash) = (placing.key, number(placing.hash));
        json!({ "place": [number(key.0), number(key.1), hash, placing.bytes_out, placing.bytes_back,
            bits(operations), placing.time_ms, placing.attempts, placing.priority, idempotent, "größer", bound, locations],
            "hex": hex(&out) })
    };
    vec![
        request(f64::NAN, false, false, &[]),
        request(2.0e9, true, false, &[]),
        request(2.0e9, false, true, &[1 << 40]),
        request(2.0e9, true, true, &[0, 7]),
    ]
}

fn placements() -> Vec<Value> {
    let placement = |pass: &str| {
        let (address, server) = ("tls://host:7070".to_owned(), "größer".to_owned());
        let placed = Placement { ticket: TICKET, address, server, pass: pass.to_owned() };
        let (mut out, mut shown) = (Vec::new(), Vec::new());
        placed.encode(&mut out);
        TICKET.encode(&mut shown);
        shown.extend_from_slice(pass.as_bytes());
        json!({ "placed": [number(TICKET.call), TICKET.attempt, placed.address, placed.server, pass],
            "shown": hex(&shown), "hex": hex(&out) })
    };
    vec![placement(""), placement("pass_01ab")]
}

fn reports() -> Vec<Value> {
    let report = |ended| {
        let (out, back) = (Transfer { bytes: 1, ns: 2 }, Transfer { bytes: 3, ns: 4 });
        let over = AttemptReport { ticket: TICKET, ended, out, back, ran_ns: 5, waited_ns: 6 };
        let mut bytes = Vec::new();
        over.encode(&mut bytes);
        json!({ "over": [number(TICKET.call), TICKET.attempt, ended as u8, 1, 2, 3, 4, 5, 6], "hex": hex(&bytes) })
    };
    [AttemptOutcome::Done, AttemptOutcome::NotBegun, AttemptOutcome::Broken, AttemptOutcome::Failed]
        .map(report)
        .into()
}

fn reasons() -> Vec<Value> {
    let reason = |why: &str| {
        let mut bytes = Vec::new();
        Client::new().attempt_reason(1, TICKET, why, &mut bytes);
        json!({ "reason": [number(TICKET.call), TICKET.attempt, why], "hex": hex(&bytes[12..]) })
    };
    vec![reason("it ended"), reason("größer\u{1b}[2J\n"), reason(&"ä".repeat(300))]
}
