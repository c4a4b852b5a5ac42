//! Bytes about arrays that stay at servers, as `bindings/testvectors/held.json` has them, by which implementations in other languages are
//! held to this one. `KUMI_WRITE_VECTORS=1 cargo test -p kumi-rpc held_vectors` writes the file anew.

use kumi_rpc::{
    CallHead, Client, ClientEvent, HeldArrayName, HeldArrayPart, HeldArrays, HeldResult,
    InputLocation, PlacementRequest, ServerHello, Step, VoucherSupport,
};
use serde_json::{Value, json};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bindings/testvectors/held.json");
const NAME: HeldArrayName = HeldArrayName { secret: *b"0123456789abcdef", index: 0x0403_0201 };

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn name() -> String {
    hex(&[&NAME.secret[..], &NAME.index.to_le_bytes()].concat())
}

/// Heads of calls of `f`: one whose parameter 1 servers have, with its address and a voucher, and one whose result 2 stays.
fn heads() -> Vec<Value> {
    let encoded = |held| {
        let mut out = Vec::new();
        CallHead { routine: "f".into(), held, ..CallHead::default() }.encode(&mut out);
        hex(&out)
    };
    let mut all = Vec::new();
    for (server, voucher) in [("", ""), ("größer:7070", ""), ("tls://a:1", "voucher_0f")] {
        let (server, voucher, length) = (server.to_owned(), voucher.to_owned(), 1 << 40);
        let (at, shown) = (server.clone(), voucher.clone());
        let part = HeldArrayPart { offset: 0, length, name: NAME, from: 0, server, voucher };
        let held = HeldArrays { from: vec![(1, vec![part])], keep: vec![] };
        all.push(json!({ "held": [name(), length, at, shown], "hex": encoded(held) }));
    }
    for (lifetime_ms, sent) in [(6, false), (u32::MAX, true), (0, false)] {
        let kept = HeldResult { name: NAME, lifetime_ms, sent, survives: false };
        let held = HeldArrays { from: vec![], keep: vec![(2, kept)] };
        all.push(json!({ "keep": [name(), lifetime_ms, sent], "hex": encoded(held) }));
    }
    all
}

/// Requests to place a call that has inputs at so many servers. Only the first 32 are told.
fn places() -> Vec<Value> {
    let one = |count: u64| {
        let at = |number: u64| InputLocation {
            server: format!("s{number}ä"),
            address: format!("host{number}:7070"),
            bytes: (1 << 40) + number,
        };
        let input_locations = (0..count).map(at).collect();
        let mut out = Vec::new();
        PlacementRequest { input_locations, ..crate::samples::placing() }.encode(&mut out);
        json!({ "inputs": count, "hex": hex(&out) })
    };
    vec![one(0), one(1), one(2), one(32), one(33)]
}

/// The wish for a voucher on stream 1, and answers to it: the voucher, or an error.
fn vouchers() -> Vec<Value> {
    let mut all = Vec::new();
    let long = "v".repeat(512);
    for given in ["voucher_0f", long.as_str(), "", &"v".repeat(513), "a\u{1b}b"] {
        let (mut client, mut out) = (Client::new(), Vec::new());
        client.request_voucher(NAME, 6, &mut out);
        let length = u32::try_from(given.len()).expect("short").to_le_bytes();
        let frame = [&length[..], &[1, 0, 0, 0, 25, 0, 0, 0], given.as_bytes()].concat();
        let hello = ServerHello::new(Ok(1), 1).encode();
        let input = [&hello[..], &frame].concat();
        assert!(matches!(client.step(&input), Ok(Step::Event(..))), "a hello");
        let told = match client.step(&frame) {
            Ok(Step::Event(_, Some(ClientEvent::Voucher(1, voucher)))) => Some(voucher),
            Ok(other) => panic!("{other:?}"),
            Err(_) => None,
        };
        all.push(json!({ "wish": [name(), 6], "wish_hex": hex(&out), "input": hex(&input), "voucher": told }));
    }
    assert_eq!(all.iter().filter(|one| one["voucher"].is_null()).count(), 3);
    all
}

/// Hellos of servers that know vouchers, and of those that do not.
fn welcomes() -> Vec<Value> {
    let with = |tags: &[(u16, &[u8])]| {
        let mut fields = Vec::new();
        for (tag, content) in tags {
            fields.extend_from_slice(&tag.to_le_bytes());
            fields.extend_from_slice(&u16::try_from(content.len()).expect("short").to_le_bytes());
            fields.extend_from_slice(content);
        }
        let length = u32::try_from(fields.len()).expect("short").to_le_bytes();
        let bytes = [&b"KUMICALL\x01\0\x01\0"[..], &length, &fields].concat();
        let (hello, _) = ServerHello::decode(&bytes).expect("a hello").expect("whole");
        let known = match hello.vouchers {
            VoucherSupport::Unknown => "unknown",
            VoucherSupport::Known => "known",
            VoucherSupport::Wanted => "wanted",
        };
        json!({ "vouchers": known, "hex": hex(&bytes) })
    };
    vec![
        with(&[]),
        with(&[(12, &[1])]),
        with(&[(12, &[2])]),
        with(&[(12, &[3])]),
        with(&[(12, &[2, 2])]),
        with(&[(12, &[])]),
        with(&[(12, &[1]), (12, &[2]), (12, &[9])]),
    ]
}

#[test]
#[cfg_attr(miri, ignore = "it reads a file")]
fn the_vectors_are_what_the_code_gives() {
    let sections = [
        ("heads", heads()),
        ("places", places()),
        ("vouchers", vouchers()),
        ("welcomes", welcomes()),
    ];
    let text = |items: &[Value]| items.iter().map(Value::to_string).collect::<Vec<_>>().join(",\n");
    let sections = sections.map(|(name, items)| format!("\"{name}\": [\n{}\n]", text(&items)));
    let made = format!("{{{}\n}}\n", sections.join(",\n"));
    if std::env::var_os("KUMI_WRITE_VECTORS").is_some() {
        std::fs::write(FILE, &made).expect(FILE);
    }
    let committed = std::fs::read_to_string(FILE).expect(FILE);
    // As values: the order of members depends on how the writer of JSON was built.
    let read = |text: &str| serde_json::from_str::<Value>(text).expect("JSON");
    assert_eq!(read(&committed), read(&made), "the vectors in {FILE} are out of date");
}
