//! Held arrays: entries of a call's head, and fetching them.

use kumi_rpc::{
    CallHead, Client, ClientEvent, DecodeError, FetchRequest, HEADER, HeldArrayName, HeldArrayPart,
    HeldArrays, HeldResult, MOST_NAME, ProtocolError, ResultHead, ServerHello, Step, Value,
    VoucherSupport, chunk_header,
};

const NAME: HeldArrayName = HeldArrayName { secret: [0xAB; 16], index: 77 };

fn part(offset: u64, length: u64, from: u64) -> HeldArrayPart {
    let (server, voucher) = ("s".into(), String::new());
    HeldArrayPart { offset, length, name: NAME, from, server, voucher }
}

/// A call whose parameter 3 is made of these parts.
fn head(parts: Vec<HeldArrayPart>) -> CallHead {
    let held = HeldArrays { from: vec![(3, parts)], keep: Vec::new() };
    CallHead { routine: "f".into(), held, ..CallHead::default() }
}

fn again(head: &CallHead) -> Result<CallHead, DecodeError> {
    let mut bytes = Vec::new();
    head.encode(&mut bytes);
    CallHead::decode(&bytes)
}

#[test]
fn parts_follow_each_other_and_end() {
    let fits = |parts| {
        let head = head(parts);
        match again(&head) {
            Ok(read) => {
                assert_eq!(read, head);
                true
            }
            Err(error) => {
                assert_eq!(error, DecodeError::Order);
                false
            }
        }
    };
    assert!(fits(vec![part(0, 8, 5), part(8, 1, 0), part(20, 4, 9)]));
    assert!(!fits(vec![part(0, 8, 0), part(7, 1, 0)]), "they overlap");
    assert!(!fits(vec![part(8, 1, 0), part(0, 8, 0)]), "they go back");
    assert!(!fits(vec![part(0, 0, 0)]), "a part of nothing");
    assert!(fits(vec![part(u64::MAX - 4, 4, u64::MAX - 4)]));
    assert!(!fits(vec![part(u64::MAX - 3, 4, 0)]) && !fits(vec![part(0, 4, u64::MAX - 3)]));
}

#[test]
fn servers_and_vouchers_have_bounds() {
    let with = |server: usize, voucher: usize| {
        let (server, voucher) = ("s".repeat(server), "v".repeat(voucher));
        let read = again(&head(vec![HeldArrayPart { server, voucher, ..part(0, 8, 0) }]))?;
        let part = &read.held.from[0].1[0];
        Ok((part.server.len(), part.voucher.len()))
    };
    assert_eq!(with(0, 0), Ok((0, 0)));
    assert_eq!(with(MOST_NAME, MOST_NAME), Ok((MOST_NAME, MOST_NAME)));
    // What is much longer is cut, and refused all the same.
    for length in [MOST_NAME + 1, MOST_NAME + 2, 5_000] {
        assert_eq!(with(length, 0), Err(DecodeError::Name));
        assert_eq!(with(1, length), Err(DecodeError::Name));
    }
    // By hand: more bytes than may be, and the length says so.
    let mut bytes = Vec::new();
    head(vec![part(0, 8, 0)]).encode(&mut bytes);
    let at = bytes.len() - 3;
    assert_eq!(bytes[at..], *b"\x01\0s");
    bytes.truncate(at);
    bytes.extend_from_slice(&600_u16.to_le_bytes());
    bytes.extend_from_slice(&[b's'; 600]);
    assert_eq!(CallHead::decode(&bytes), Err(DecodeError::Name));
}

#[test]
fn entries_of_a_parameter_have_an_order() {
    let keep = HeldResult { name: NAME, lifetime_ms: 9, sent: true, survives: false };
    let mut call = head(vec![part(0, 8, 0)]);
    call.held.keep = vec![(3, keep), (4, HeldResult { sent: false, survives: true, ..keep })];
    call.values = vec![(1, Value::I64(5)), (9, Value::Text("x".into()))];
    assert_eq!(again(&call), Ok(call.clone()));
    assert!(!call.held.is_empty() && !call.held.is_vouched());
    assert!(!HeldArrays { from: Vec::new(), ..call.held.clone() }.is_empty());
    assert!(!HeldArrays { keep: Vec::new(), ..call.held.clone() }.is_empty());
    assert!(HeldArrays::default().is_empty() && !HeldArrays::default().is_vouched());
    call.held.from[0].1.push(HeldArrayPart { voucher: "v".into(), ..part(8, 8, 0) });
    assert!(call.held.is_vouched());
    assert_eq!(again(&call), Ok(call.clone()));
    // A value is all that there is of its parameter.
    for parameter in [3, 4] {
        let values = vec![(parameter, Value::I64(1))];
        assert_eq!(again(&CallHead { values, ..call.clone() }), Err(DecodeError::Order));
    }
}

#[test]
fn secrets_and_vouchers_are_not_printed() {
    let vouched = HeldArrayPart { voucher: "hush".into(), ..part(1, 8, 2) };
    for (part, says) in [(part(1, 8, 2), "vouched: false"), (vouched, "vouched: true")] {
        let shown = format!("{part:?}");
        assert!(shown.contains(says) && shown.contains("77"), "{shown}");
        assert!(!shown.contains("hush") && !shown.contains("171"), "{shown}");
    }
}

#[test]
fn a_fetched_array_comes_in_chunks_up_to_its_length() {
    let hello = ServerHello {
        version: Ok(1),
        highest: 1,
        name: "s".into(),
        streams: 9,
        bytes: 9,
        role: kumi_rpc::Role::Server,
        shares_memory: false,
        local: None,
        vouchers: VoucherSupport::Known,
        gives_resources: false,
        binds_calls: false,
        holds_arrays: false,
        shows_logs: false,
    };
    let mut client = Client::new();
    client.step(&hello.encode()).expect("a hello");
    let request = FetchRequest { name: NAME, offset: 100, length: 6 };
    let stream = client.fetch(&request, &mut Vec::new());
    let result = ResultHead { waited_ns: 1, ran_ns: 2, values: Vec::new() };
    let (mut body, mut frame) = (Vec::new(), Vec::new());
    result.encode(&mut body);
    frame.extend_from_slice(&(body.len() as u32).to_le_bytes());
    frame.extend_from_slice(&stream.to_le_bytes());
    frame.extend_from_slice(&[10, 0, 0, 0]);
    frame.extend_from_slice(&body);
    let begun = Step::Event(frame.len(), Some(ClientEvent::Result(stream, result)));
    assert_eq!(client.step(&frame), Ok(begun));
    for (offset, length) in [(0, 4), (4, 2)] {
        let long = client.step(&chunk_header(stream, 0, 7 - offset));
        assert_eq!(long, Err(ProtocolError::Excess { stream, argument: 0 }));
        let chunk = chunk_header(stream, 0, length);
        assert_eq!(client.step(&chunk), Ok(Step::Event(HEADER, None)), "it goes on");
        match client.step(&[]) {
            Ok(Step::Data(Some(place), left)) => {
                assert_eq!((place.stream, place.argument), (stream, 0));
                assert_eq!((place.offset, left), (u64::from(offset), length as usize));
            }
            other => panic!("{other:?}"),
        }
        client.placed(length as usize);
    }
    assert_eq!(client.step(&[]), Ok(Step::Event(0, Some(ClientEvent::Done(stream)))));
    assert_eq!(client.step(&[]), Ok(Step::More(HEADER)));
}
