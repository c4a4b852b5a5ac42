//! Bytes as `bindings/testvectors/frames.json` has them, by which implementations in other languages are held to this one.
//! `KUMI_WRITE_VECTORS=1 cargo test -p kumi-rpc frames` writes the file anew.

mod places;

use std::collections::BTreeMap;

use kumi_rpc::{
    ArraySize, CallHead, CallMetadata, CallbackHead, CallbackReturn, Client, ClientEvent,
    ClientHello, Code, Failure, HeldArrayName, HoldRequest, Resources, ResultHead, ServerHello,
    Step, TraceContext, Value as Sent, chunk_header,
};
use serde_json::{Value, json};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bindings/testvectors/frames.json");

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bits(value: f64) -> String {
    format!("{:016x}", value.to_bits())
}

fn values(values: &[(u16, Sent)]) -> Value {
    let one = |(param, value): &(u16, Sent)| match value {
        Sent::I64(value) => json!([param, "i", value]),
        Sent::U64(value) => json!([param, "u", value]),
        Sent::F64(value) => json!([param, "f", bits(*value)]),
        Sent::Complex(real, imaginary) => json!([param, "c", bits(*real), bits(*imaginary)]),
        Sent::Text(text) => json!([param, "t", text]),
        Sent::FileLength(bytes) => json!([param, "l", bytes]),
    };
    values.iter().map(one).collect()
}

fn some_values() -> Vec<(u16, Sent)> {
    vec![
        (0, Sent::I64(-5)),
        (1, Sent::U64(u64::MAX)),
        (3, Sent::F64(-0.5)),
        (4, Sent::Complex(1.5, f64::INFINITY)),
        (300, Sent::Text("größer".into())),
    ]
}

/// A hello: its first bytes with two versions, and fields.
fn by_hand(magic: &[u8; 8], fields: &[(u16, &[u8])]) -> Vec<u8> {
    let mut body = Vec::new();
    for (tag, content) in fields.iter().filter(|(_, content)| !content.is_empty()) {
        let length = u16::try_from(content.len()).expect("short");
        body.extend_from_slice(&tag.to_le_bytes());
        body.extend_from_slice(&length.to_le_bytes());
        body.extend_from_slice(content);
    }
    let length = u32::try_from(body.len()).expect("short").to_le_bytes();
    [&magic[..], &[1, 0, 1, 0], &length, &body].concat()
}

fn greetings() -> Vec<Value> {
    let hello = |token: &str, program: &str| {
        let bytes = by_hand(b"kumicall", &[(1, token.as_bytes()), (2, program.as_bytes())]);
        let (hello, _) = ClientHello::decode(&bytes).expect("a hello").expect("whole");
        assert_eq!((hello.token.as_str(), hello.program.as_str()), (token, program));
        assert_eq!(hello.encode(), bytes);
        json!({ "token": token, "program": program, "hex": hex(&bytes) })
    };
    vec![hello("", "prog"), hello("secret", "prog"), hello("ä", &"é".repeat(256))]
}

fn heads() -> Vec<Value> {
    let head = |hash, timeout_ms, routine: &str, sent: Vec<(u16, Sent)>| {
        let head = CallHead {
            hash,
            timeout_ms,
            routine: routine.into(),
            values: sent,
            ..CallHead::default()
        };
        let mut out = Vec::new();
        head.encode(&mut out);
        json!({ "hash": format!("{hash:016x}"), "milliseconds": timeout_ms, "routine": routine,
            "values": values(&head.values), "hex": hex(&out) })
    };
    vec![
        head(0, 0, "f", vec![]),
        head(u64::MAX, u32::MAX, "lib/größe.run", some_values()),
        head(1, 2, "files", vec![(0, Sent::FileLength(0)), (7, Sent::FileLength(u64::MAX))]),
    ]
}

/// How functions of the client have ended.
fn backs() -> Vec<Value> {
    let done = |sent: Vec<(u16, Sent)>| {
        let mut out = Vec::new();
        let shown = values(&sent);
        CallbackReturn::Done(sent).encode(&mut out);
        json!({ "values": shown, "hex": hex(&out) })
    };
    let failed = |text: &str| {
        let mut out = Vec::new();
        CallbackReturn::Failed(text.to_owned()).encode(&mut out);
        json!({ "failed": text, "hex": hex(&out) })
    };
    vec![
        done(vec![]),
        done(some_values()),
        failed(""),
        failed("it is größer"),
        failed(&"ä".repeat(1030)),
    ]
}

/// What clients say of calls in frames before these, all on stream 1, and the frame that sends an array to be held.
fn said() -> Vec<Value> {
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let trace = TraceContext::parse(parent.as_bytes()).expect("a traceparent");
    let head = CallHead { routine: "f".into(), ..CallHead::default() };
    let mut all = Vec::new();
    for (listens, traced, threads, memory) in [
        (true, false, 0, 0),
        (false, true, 0, 0),
        (false, false, 3, 0),
        (true, true, 0, 1 << 40),
        (true, true, 1 << 20, 5),
    ] {
        let (mut client, mut out) = (Client::new(), Vec::new());
        let stream = client.call(&head, &[], &mut out).expect("short");
        let call = out.len();
        let resources = Resources::new(threads, memory);
        let metadata = CallMetadata { listens, trace: traced.then_some(trace), resources };
        client.metadata(stream, &metadata, &mut out);
        out.truncate(out.len() - call);
        let place = if traced { parent } else { "" };
        all.push(json!({ "said": [listens, place, threads, memory], "hex": hex(&out) }));
    }
    let (mut client, mut out) = (Client::new(), Vec::new());
    let name = HeldArrayName { secret: *b"0123456789abcdef", index: 0x0403_0201 };
    let hold = HoldRequest { name, lifetime_ms: u32::MAX, bytes: 1 << 40 };
    client.hold(&hold, &mut out);
    let name = [&name.secret[..], &name.index.to_le_bytes()].concat();
    all.push(json!({ "hold": [hex(&name), hold.bytes], "hex": hex(&out) }));
    all
}

/// The hellos of servers that know what is said of calls, and of those that do not.
fn welcomes() -> Vec<Value> {
    let with = |tags: &[(u16, &[u8])]| {
        let bytes = by_hand(b"KUMICALL", &[&[(3, &b"s"[..])], tags].concat());
        let (hello, _) = ServerHello::decode(&bytes).expect("a hello").expect("whole");
        json!({ "resources": hello.gives_resources, "holds": hello.holds_arrays, "binds": hello.binds_calls, "hex": hex(&bytes) })
    };
    vec![
        with(&[]),
        with(&[(13, &[1])]),
        with(&[(215, &[1])]),
        with(&[(13, &[1]), (215, &[1]), (999, b"skipped")]),
        with(&[(13, &[0]), (215, &[2])]),
        with(&[(13, &[1, 1]), (215, &[1, 0])]),
        with(&[(13, &[1]), (13, &[2]), (215, &[0]), (215, &[1])]),
        with(&[(14, &[1])]),
        with(&[(14, &[2])]),
        with(&[(14, &[1, 0])]),
        with(&[(14, &[1]), (14, &[0])]),
    ]
}

fn failure(failure: &Failure) -> Value {
    json!([failure.code.number(), failure.detail, failure.text])
}

/// What a client is told of these bytes, when it has asked for a description (stream 1), a list (2), two calls (3 and 4), and an object (5),
/// with arrays of 5 and 3 bytes in parameters 1 and 2, files in 8 and 9, and an array of 2^40 in parameter 7, and waits for 4 no
/// more. Functions of even parameters are called, with as many bytes in parameter 6 as the parameter says, and return at once;
/// others fail before.
fn told(input: &[u8]) -> (Vec<Value>, bool, usize, BTreeMap<String, Vec<u8>>) {
    let mut client = Client::new();
    let mut out = Vec::new();
    let head = CallHead { hash: 1, routine: "f".into(), ..CallHead::default() };
    client.interface("f", &mut out).expect("a name");
    client.list("", &mut out).expect("short");
    let sizes =
        [(1, 5), (2, 3), (7, 1 << 40)].map(|(argument, bytes)| ArraySize { argument, bytes });
    let call = client.call(&head, &sizes[..2], &mut out).expect("short");
    client.expect_files(call, vec![8, 9]);
    let unwanted = client.call(&head, &sizes[2..], &mut out).expect("short");
    client.abandon(unwanted);
    client.create("c", &mut out).expect("a name");
    let (mut events, mut at) = (Vec::new(), 0);
    let mut arrays: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    loop {
        match client.step(&input[at..]) {
            Err(_) => return (events, true, 0, arrays),
            Ok(Step::More(_)) => return (events, false, input.len() - at, arrays),
            Ok(Step::Event(count, event)) => {
                at += count;
                events.extend(event.as_ref().map(shown));
                event.iter().for_each(|event| serve(&mut client, event));
            }
            Ok(Step::Data(place, count)) => {
                let here = count.min(input.len() - at);
                if here == 0 {
                    return (events, false, 0, arrays);
                }
                if let Some(place) = place {
                    let key = format!("{}.{}", place.stream, place.argument);
                    arrays.entry(key).or_default().extend_from_slice(&input[at..at + here]);
                }
                client.placed(here);
                at += here;
            }
        }
    }
}

/// Does with a function what is to be done.
fn serve(client: &mut Client, event: &ClientEvent) {
    let mut out = Vec::new();
    match event {
        ClientEvent::Callback(stream, head) if head.parameter % 2 == 0 => {
            let size = ArraySize { argument: 6, bytes: head.parameter.into() };
            client.accept_callback(*stream, &[size]);
        }
        ClientEvent::Callback(stream, _) => {
            client.refuse_callback(*stream);
            let failed = CallbackReturn::Failed(String::new());
            assert_eq!(client.callback_return(*stream, &failed, &mut out), Ok(true));
        }
        ClientEvent::CallbackReady(stream) => {
            let done = CallbackReturn::Done(vec![]);
            assert_eq!(client.callback_return(*stream, &done, &mut out), Ok(true));
        }
        _ => {}
    }
}

fn shown(event: &ClientEvent) -> Value {
    match event {
        ClientEvent::Hello(hello) => match &hello.version {
            Ok(version) => json!(["hello", version, hello.name, hello.streams, hello.bytes]),
            Err(refusal) => json!(["refused", failure(refusal)]),
        },
        ClientEvent::Description(stream, hash, text) => {
            json!(["description", stream, format!("{hash:016x}"), text])
        }
        ClientEvent::Names(stream, names) => json!(["names", stream, names]),
        ClientEvent::Result(stream, head) => {
            json!(["result", stream, head.waited_ns, head.ran_ns, values(&head.values)])
        }
        ClientEvent::Done(stream) => json!(["done", stream]),
        ClientEvent::Failed(stream, why) => json!(["failed", stream, failure(why)]),
        ClientEvent::Ended(why) => json!(["ended", failure(why)]),
        ClientEvent::Pong => json!(["pong"]),
        ClientEvent::Created(stream) => json!(["created", stream]),
        // No vector speaks of metaservers: clients in other languages do not call through them.
        ClientEvent::Placed(..) | ClientEvent::Closed(_) | ClientEvent::State(..) => {
            json!(["of a metaserver"])
        }
        ClientEvent::Callback(stream, head) => {
            json!(["callback", stream, head.parameter, values(&head.values)])
        }
        ClientEvent::CallbackReady(stream) => json!(["called", stream]),
        // Nor of memory, nor of arrays that servers hold.
        ClientEvent::Granted(..) => json!(["of memory"]),
        ClientEvent::Voucher(..) => json!(["of a held array"]),
        // Nor of clients that listen.
        ClientEvent::Output(..) => json!(["of output"]),
    }
}

fn case(about: &str, input: &[u8]) -> Value {
    let (events, error, left, arrays) = told(input);
    let arrays: BTreeMap<String, String> =
        arrays.into_iter().map(|(key, bytes)| (key, hex(&bytes))).collect();
    json!({ "about": about, "input": hex(input), "events": events, "error": error, "left": left,
        "arrays": arrays })
}

fn greeting() -> Vec<u8> {
    let (streams, bytes) = (9_u32.to_le_bytes(), (1_u64 << 30).to_le_bytes());
    by_hand(b"KUMICALL", &[(3, b"s"), (4, &streams), (5, &bytes)])
}

fn frame(kind: u8, stream: u32, flags: u8, argument: u16, body: &[u8]) -> Vec<u8> {
    let mut out = u32::try_from(body.len()).expect("short").to_le_bytes().to_vec();
    out.extend_from_slice(&stream.to_le_bytes());
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&argument.to_le_bytes());
    out.extend_from_slice(body);
    out
}

fn chunk(stream: u32, argument: u16, bytes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(bytes.len()).expect("short");
    [&chunk_header(stream, argument, length)[..], bytes].concat()
}

/// A result's frame.
fn result(stream: u32, sent: Vec<(u16, Sent)>) -> Vec<u8> {
    let mut body = Vec::new();
    ResultHead { waited_ns: 7, ran_ns: 1 << 40, values: sent }.encode(&mut body);
    frame(10, stream, 0, 0, &body)
}

/// A function's call.
fn callback(stream: u32, parameter: u16, sent: Vec<(u16, Sent)>) -> Vec<u8> {
    let mut body = Vec::new();
    CallbackHead { parameter, values: sent }.encode(&mut body);
    frame(12, stream, 0, 0, &body)
}

/// A result with the length of a file.
fn filed(argument: u16, bytes: u64) -> Vec<u8> {
    result(3, vec![(argument, Sent::FileLength(bytes))])
}

/// Functions and files of the calls 3 and 4.
fn served() -> Vec<u8> {
    [
        greeting(),
        callback(3, 0, some_values()),
        callback(3, 4, vec![]),
        chunk(3, 6, &[1, 2, 3]),
        callback(4, 2, vec![]),
        chunk(4, 1, &[9; 7]),
        chunk(3, 6, &[4]),
        callback(3, 2, vec![(5, Sent::Text("a".into()))]),
        chunk(3, 6, &[5, 6]),
        result(3, vec![(8, Sent::FileLength(3)), (9, Sent::FileLength(0))]),
        chunk(3, 8, &[7, 8]),
        chunk(3, 1, &[1; 5]),
        chunk(3, 2, &[2; 3]),
        chunk(3, 8, &[9]),
    ]
    .concat()
}

fn good() -> Vec<u8> {
    let mut failed = Vec::new();
    Failure::new(Code::Crashed, -3, "it ended").encode(&mut failed);
    [
        greeting(),
        frame(6, 0, 0, 0, &[1, 2, 3, 4, 5, 6, 7, 8]),
        frame(200, 77, 3, 9, b"skipped"),
        result(3, some_values()),
        chunk(3, 2, &[1]),
        frame(8, 1, 0, 0, b"\x08\x07\x06\x05\x04\x03\x02\x01{}"),
        chunk(3, 1, &[1, 2]),
        chunk(3, 1, &[]),
        result(4, vec![]),
        chunk(4, 7, &[9; 20]),
        chunk(3, 2, &[2, 3]),
        frame(9, 2, 0, 0, b"\x01\0a\x02\0\xc3\xa4"),
        chunk(3, 1, &[3, 4, 5]),
        frame(7, 0, 0, 0, &[0; 8]),
        frame(11, 4, 0, 0, &failed),
        frame(11, 0, 0, 0, &failed),
    ]
    .concat()
}

fn cases() -> Vec<Value> {
    let with =
        |about: &str, frames: &[&[u8]]| case(about, &[&greeting()[..], &frames.concat()].concat());
    let begun = result(3, vec![]);
    let mut all = vec![
        case("all kinds", &good()),
        case("a stranger", b"HTTP/1.1 400"),
        case("half a hello", &greeting()[..20]),
        case("a hello that is too long", b"KUMICALL\x01\0\x01\0\x01\x10\0\0"),
        case("a field beyond the hello", b"KUMICALL\x01\0\x01\0\x04\0\0\0\x03\0\x09\0"),
        case("refused without a reason", b"KUMICALL\0\0\x05\0\0\0\0\0"),
        with("a chunk before the result", &[&chunk(3, 1, &[1])]),
        with("more than an array has", &[&begun, &chunk(3, 2, &[1; 4])]),
        with("an array that does not come", &[&begun, &chunk(3, 5, &[1])]),
        with("a second result", &[&begun, &begun]),
        with("a result of a list", &[&result(2, vec![])]),
        with("a description of a call", &[&frame(8, 3, 0, 0, &[0; 10])]),
        with("a short description", &[&frame(8, 1, 0, 0, &[0; 7])]),
        with("names cut short", &[&frame(9, 2, 0, 0, b"\x02\0a")]),
        with("a name that is no UTF-8", &[&frame(9, 2, 0, 0, b"\x01\0\xff")]),
        with("values out of order", &[&result(3, vec![(2, Sent::I64(1)), (1, Sent::I64(1))])]),
        with(
            "a value of an unknown tag",
            &[&frame(10, 3, 0, 0, &[&[0; 16][..], &[1, 0, 0, 0, 9]].concat())],
        ),
        with(
            "a text longer than its frame",
            &[&frame(10, 3, 0, 0, &[&[0; 16][..], &[1, 0, 0, 0, 5, 255, 255, 255, 255]].concat())],
        ),
        with("a call from the server", &[&frame(3, 3, 0, 0, &[])]),
        with("kind 0", &[&frame(0, 3, 0, 0, &[])]),
        with("a kind of tomorrow", &[&frame(127, 3, 0, 0, &[])]),
        with("flags", &[&frame(7, 0, 1, 0, &[0; 8])]),
        with("an argument", &[&frame(7, 0, 0, 1, &[0; 8])]),
        with("a ping of a stream", &[&frame(6, 1, 0, 0, &[0; 8])]),
        with("a result of no stream", &[&frame(10, 0, 0, 0, &[0; 18])]),
        with("4 GiB", &[&[255, 255, 255, 255, 1, 0, 0, 0, 8, 0, 0, 0]]),
        with("a chunk of 16 MiB and a byte", &[&begun, &[1, 0, 0, 1, 3, 0, 0, 0, 4, 0, 1, 0]]),
        with("an answer of 4 MiB and a byte", &[&[1, 0, 64, 0, 1, 0, 0, 0, 8, 0, 0, 0]]),
        with(
            "control characters",
            &[&frame(11, 3, 0, 0, &[&[0; 10][..], b"a\x1b[2J\xc2\x9bb\r\n\tc"].concat())],
        ),
        with(
            "a long sentence",
            &[&frame(11, 3, 0, 0, &[&[0; 11][..], "ä".repeat(1030).as_bytes()].concat())],
        ),
        with("a name with control characters", &[&frame(9, 2, 0, 0, b"\x01\0\x1b")]),
        with("a short sign of life", &[&frame(7, 0, 0, 0, &[0; 7])]),
        with("half an array", &[&begun, &chunk(3, 1, &[1, 2, 3, 4, 5])[..14]]),
    ];
    all.extend(of_functions_and_files());
    all.extend(of_objects());
    all.extend(mutated());
    all
}

fn of_functions_and_files() -> Vec<Value> {
    let with =
        |about: &str, frames: &[&[u8]]| case(about, &[&greeting()[..], &frames.concat()].concat());
    let (begun, called) = (result(3, vec![]), callback(3, 4, vec![]));
    let mut failed = Vec::new();
    Failure::new(Code::TimedOut, 5, "too late").encode(&mut failed);
    let over = frame(11, 3, 0, 0, &failed);
    vec![
        case("functions and files", &served()),
        with("a function in the middle of another", &[&called, &chunk(3, 6, &[1]), &called]),
        with("a result in the middle of a function", &[&called, &begun]),
        with("a function behind the result", &[&begun, &called]),
        with("a function of a list", &[&callback(2, 4, vec![])]),
        with("a function of no stream", &[&callback(0, 4, vec![])]),
        with("more than a function takes", &[&called, &chunk(3, 6, &[1; 5])]),
        with("an array that a function does not take", &[&called, &chunk(3, 1, &[1])]),
        with("an array behind a function", &[&called, &chunk(3, 6, &[1; 4]), &chunk(3, 6, &[])]),
        with("what is no function", &[&callback(3, 5, vec![]), &chunk(3, 6, &[1; 90]), &over]),
        with("an end in the middle of a function", &[&called, &chunk(3, 6, &[1]), &over]),
        with("a result after a refusal", &[&callback(3, 5, vec![]), &begun]),
        with("a function cut short", &[&frame(12, 3, 0, 0, &[0])]),
        with("a function with too much", &[&frame(12, 3, 0, 0, &[0; 5])]),
        with("how a function ended", &[&frame(13, 3, 0, 0, &[0; 3])]),
        with("a file that nobody expects", &[&filed(7, 1)]),
        with("a length for an array", &[&filed(1, 1)]),
        with("a file longer than its length", &[&filed(8, 2), &chunk(3, 8, &[1; 3])]),
        with("a file without a length", &[&begun, &chunk(3, 8, &[1])]),
        with("a file of 2^64 - 1 bytes", &[&filed(9, u64::MAX), &chunk(3, 9, &[1, 2])]),
    ]
}

fn of_objects() -> Vec<Value> {
    let with =
        |about: &str, frames: &[&[u8]]| case(about, &[&greeting()[..], &frames.concat()].concat());
    let created = frame(17, 5, 0, 0, &[]);
    let mut failed = Vec::new();
    Failure::new(Code::ObjectLost, 0, "it is no more").encode(&mut failed);
    let lost = frame(11, 5, 0, 0, &failed);
    vec![
        with("an object that goes", &[&created, &result(3, vec![]), &lost]),
        with("an object that cannot be had", &[&lost]),
        with("an object twice", &[&created, &created]),
        with("an object that is no more", &[&created, &lost, &created]),
        with("an object with a body", &[&frame(17, 5, 0, 0, &[0])]),
        with("an object for a call", &[&frame(17, 3, 0, 0, &[])]),
        with("an object for nobody", &[&frame(17, 6, 0, 0, &[])]),
        with("a result of an object", &[&created, &result(5, vec![])]),
        with("an array of an object", &[&created, &chunk(5, 1, &[1])]),
        with("a function of an object", &[&created, &callback(5, 4, vec![])]),
        with("the wish for an object", &[&frame(16, 5, 0, 0, b"c")]),
        with("a call on an object", &[&frame(18, 5, 0, 0, &[0; 30])]),
    ]
}

/// Single bytes of the good stream changed, where the end is not still waited for.
fn mutated() -> Vec<Value> {
    let good = good();
    let mut state = 20_261_122_u32;
    let mut next = |below: usize| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as usize % below
    };
    let mut all = Vec::new();
    while all.len() < 16 {
        let mut bytes = good.clone();
        let at = next(bytes.len());
        bytes[at] ^= 1 << next(8);
        let made = case("a bit changed", &bytes);
        if made["error"] == json!(true) || made["left"] == json!(0) {
            all.push(made);
        }
    }
    all
}

#[test]
#[cfg_attr(miri, ignore = "minutes, in code without unsafe blocks")]
fn the_vectors_are_what_the_code_gives() {
    let sections = [
        ("hellos", greetings()),
        ("heads", heads()),
        ("backs", backs()),
        ("places", places::all()),
        ("said", said()),
        ("welcomes", welcomes()),
        ("cases", cases()),
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
    let (made, committed) = (read(&made), read(&committed));
    for section in ["hellos", "heads", "backs", "places", "said", "welcomes", "cases"] {
        let (made, committed) = (made[section].as_array(), committed[section].as_array());
        let (made, committed) = (made.expect("a list"), committed.expect("a list"));
        for (made, committed) in made.iter().zip(committed) {
            assert_eq!(made, committed, "if this is meant write {FILE} with KUMI_WRITE_VECTORS=1");
        }
        assert_eq!(made.len(), committed.len(), "{section}");
    }
}

#[test]
fn the_good_stream_is_good() {
    let (events, error, left, arrays) = told(&good());
    assert_eq!((events.len(), error, left), (7, false, 0), "{events:?}");
    assert_eq!(arrays["3.1"], [1, 2, 3, 4, 5]);
    assert_eq!(arrays["3.2"], [1, 2, 3]);
}

#[test]
fn functions_and_files_are_good() {
    let (events, error, left, arrays) = told(&served());
    assert_eq!((events.len(), error, left), (9, false, 0), "{events:?}");
    assert_eq!(arrays["3.6"], [1, 2, 3, 4, 5, 6]);
    assert_eq!(arrays["3.8"], [7, 8, 9]);
}
