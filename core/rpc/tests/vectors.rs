//! Bytes as docs/reference/call-protocol.md describes them, written by hand.

use kumi_rpc::{
    ArraySize, CallHead, Client, ClientEvent, ClientHello, Code, DecodeError, Failure,
    FetchRequest, HeldArrayName, HeldArrayPart, HeldArrays, HeldResult, HoldRequest, ProtocolError,
    ResultHead, SendPiece, Server, ServerEvent, ServerHello, Step, Value, VoucherSupport,
    chunk_header,
};

fn pieces(server: &mut Server) -> Vec<u8> {
    let mut bytes = Vec::new();
    for piece in server.send_queue().pieces() {
        match piece {
            SendPiece::Bytes(piece) => bytes.extend_from_slice(piece),
            SendPiece::Data(place, length) => {
                bytes.extend(std::iter::repeat_n(place.argument as u8, length));
            }
        }
    }
    server.send_queue().wrote(bytes.len());
    bytes
}

#[test]
fn hellos() {
    let hello = ClientHello {
        versions: 1..=2,
        token: "ab".into(),
        program: "p".into(),
        site: String::new(),
        maps_memory: false,
    };
    let bytes = b"kumicall\x01\0\x02\0\x0b\0\0\0\x01\0\x02\0ab\x02\0\x01\0p";
    assert_eq!(hello.encode(), bytes);
    assert_eq!(ClientHello::decode(bytes), Ok(Ok((hello.clone(), bytes.len()))));
    assert_eq!(hello.common(&(1..=1)), Some(1), "a newer client and an older server");
    assert_eq!(hello.common(&(1..=9)), Some(2), "an older client and a newer server");
    assert_eq!(hello.common(&(3..=9)), None);
    let answer = ServerHello {
        version: Ok(1),
        highest: 1,
        name: "s".into(),
        streams: 2,
        bytes: 3,
        role: kumi_rpc::Role::Server,
        shares_memory: false,
        local: None,
        vouchers: kumi_rpc::VoucherSupport::Unknown,
        gives_resources: false,
        binds_calls: false,
        holds_arrays: false,
        shows_logs: false,
    };
    let bytes = b"KUMICALL\x01\0\x01\0\x19\0\0\0\x03\0\x01\0s\x04\0\x04\0\x02\0\0\0\x05\0\x08\0\x03\0\0\0\0\0\0\0";
    assert_eq!(answer.encode(), bytes);
    assert_eq!(ServerHello::decode(bytes), Ok(Ok((answer, bytes.len()))));
}

#[test]
fn a_call() {
    let mut client = Client::new();
    let mut out = Vec::new();
    let head = CallHead {
        hash: 0x0102_0304_0506_0708,
        timeout_ms: 9,
        routine: "f".into(),
        values: vec![(0, Value::I64(-1)), (2, Value::Text("x".into()))],
        ..CallHead::default()
    };
    let stream =
        client.call(&head, &[ArraySize { argument: 1, bytes: 3 }], &mut out).expect("short");
    assert_eq!(stream, 1);
    let mut expected = b"\x25\0\0\0\x01\0\0\0\x03\0\0\0".to_vec();
    expected.extend_from_slice(b"\x08\x07\x06\x05\x04\x03\x02\x01\x09\0\0\0\x01\0f\x02\0");
    expected.extend_from_slice(b"\0\0\x01\xff\xff\xff\xff\xff\xff\xff\xff\x02\0\x05\x01\0\0\0x");
    expected[0] = u8::try_from(expected.len() - 12).expect("short");
    assert_eq!(out, expected);
    assert_eq!(chunk_header(1, 4, 2), *b"\x02\0\0\0\x01\0\0\0\x04\0\x04\0");

    let mut server = Server::new(4);
    let hello = ClientHello::default();
    let bytes = hello.encode();
    let step = server.step(&bytes).expect("well-formed");
    assert_eq!(step, Step::Event(bytes.len(), Some(ServerEvent::Hello(hello.clone()))));
    assert!(server.welcome(&hello, "s", 3));
    let greeting = pieces(&mut server);
    assert!(matches!(client.step(&greeting), Ok(Step::Event(_, Some(ClientEvent::Hello(_))))));
    let step = server.step(&out).expect("well-formed");
    assert_eq!(step, Step::Event(out.len(), Some(ServerEvent::Call(1, head))));
    server.accept(1, &[]);
    assert_eq!(server.step(&[]), Ok(Step::Event(0, Some(ServerEvent::Ready(1)))));
    let result = ResultHead { waited_ns: 1, ran_ns: 2, values: vec![(3, Value::F64(1.0))] };
    server.finish(1, &result, &[ArraySize { argument: 1, bytes: 3 }]);
    let mut expected = b"\x1d\0\0\0\x01\0\0\0\x0a\0\0\0".to_vec();
    expected.extend_from_slice(
        b"\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x01\0\x03\0\x03\0\0\0\0\0\0\xf0\x3f",
    );
    expected.extend_from_slice(b"\x03\0\0\0\x01\0\0\0\x04\0\x01\0\x01\x01\x01");
    assert_eq!(pieces(&mut server), expected);
    assert_eq!(server.send_queue().written(), Some(1));
}

#[test]
fn failures() {
    let failure = Failure::new(Code::Crashed, 11, "it crashed");
    let mut bytes = Vec::new();
    failure.encode(&mut bytes);
    assert_eq!(bytes, b"\x06\0\x0b\0\0\0\0\0\0\0it crashed");
    for number in 1..=99 {
        assert_eq!(Code::of(number).number(), number);
    }
    assert_eq!(Code::of(999), Code::Other(999));
}

#[test]
fn what_breaks_the_protocol_is_said() {
    let mut server = Server::new(4);
    assert!(server.step(b"GET / HTTP/1.1").is_err());
    let said = pieces(&mut server);
    let (hello, _) = ServerHello::decode(&said).expect("a hello").expect("whole");
    assert_eq!(hello.version.expect_err("refused").code, Code::Protocol);
}

#[test]
fn held_arrays() {
    let name = |index| HeldArrayName { secret: *b"0123456789abcdef", index };
    let part = HeldArrayPart {
        offset: 1,
        length: 2,
        name: name(3),
        from: 4,
        server: "a:1".into(),
        voucher: String::new(),
    };
    let keep = HeldResult { name: name(5), lifetime_ms: 6, sent: true, survives: false };
    let held = HeldArrays { from: vec![(1, vec![part.clone()])], keep: vec![(1, keep), (2, keep)] };
    let values = vec![(0, Value::I64(7)), (3, Value::I64(8))];
    let head = CallHead { routine: "f".into(), values, held, ..CallHead::default() };
    let mut bytes = Vec::new();
    head.encode(&mut bytes);
    let mut expected = b"\0\0\0\0\0\0\0\0\0\0\0\0\x01\0f\x05\0".to_vec();
    expected.extend_from_slice(b"\0\0\x01\x07\0\0\0\0\0\0\0");
    expected.extend_from_slice(b"\x01\0\x07\x01\0\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0");
    expected.extend_from_slice(b"0123456789abcdef\x03\0\0\0\x04\0\0\0\0\0\0\0\x03\0a:1");
    expected.extend_from_slice(b"\x01\0\x080123456789abcdef\x05\0\0\0\x06\0\0\0\x01");
    expected.extend_from_slice(b"\x02\0\x080123456789abcdef\x05\0\0\0\x06\0\0\0\x01");
    expected.extend_from_slice(b"\x03\0\x01\x08\0\0\0\0\0\0\0");
    assert_eq!(bytes, expected);
    assert_eq!(CallHead::decode(&bytes), Ok(head.clone()));

    let overlapping = HeldArrayPart { offset: 2, ..part.clone() };
    let endless = HeldArrayPart { length: u64::MAX, ..part.clone() };
    let empty = HeldArrayPart { length: 0, ..part.clone() };
    let parts = [vec![part.clone(), overlapping], vec![endless], vec![empty]];
    for wrong in parts.map(|parts| HeldArrays { from: vec![(1, parts)], keep: vec![] }) {
        bytes.clear();
        CallHead { held: wrong, ..head.clone() }.encode(&mut bytes);
        assert_eq!(CallHead::decode(&bytes), Err(DecodeError::Order));
    }
    for twice in [(0, keep), (3, keep)] {
        bytes.clear();
        let held = HeldArrays { from: vec![], keep: vec![twice] };
        CallHead { held, ..head.clone() }.encode(&mut bytes);
        assert_eq!(CallHead::decode(&bytes), Err(DecodeError::Order), "a value and an array");
    }
}

#[test]
fn wishes_for_held_arrays() {
    let name = |index| HeldArrayName { secret: *b"0123456789abcdef", index };
    let fetch = FetchRequest { name: name(3), offset: 1, length: 2 };
    let mut client = Client::new();
    let mut out = Vec::new();
    assert_eq!(client.fetch(&fetch, &mut out), 1);
    let mut expected = b"\x24\0\0\0\x01\0\0\0\x0e\0\0\0".to_vec();
    expected.extend_from_slice(b"0123456789abcdef\x03\0\0\0\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0");
    assert_eq!(out, expected);
    client.drop_held(&[name(3)], &mut out);
    expected.extend_from_slice(b"\x14\0\0\0\0\0\0\0\x0f\0\0\x000123456789abcdef\x03\0\0\0");
    assert_eq!(out, expected);
    let mut server = Server::new(4);
    let hello = ClientHello::default();
    assert!(server.step(&hello.encode()).is_ok() && server.welcome(&hello, "s", 3));
    let (first, second) = out.split_at(48);
    let step = server.step(first).expect("well-formed");
    assert_eq!(step, Step::Event(48, Some(ServerEvent::Fetch(1, fetch))));
    let step = server.step(second).expect("well-formed");
    assert_eq!(step, Step::Event(32, Some(ServerEvent::Drop(vec![name(3)]))));
    assert_eq!(format!("{:?}", name(3)), "HeldArrayName(…3)", "secrets are not printed");
}

#[test]
fn arrays_that_clients_send_to_be_held() {
    let name = HeldArrayName { secret: *b"0123456789abcdef", index: 3 };
    let head = HoldRequest { name, lifetime_ms: 6, bytes: 5 };
    let (mut client, mut out) = (Client::new(), Vec::new());
    assert_eq!(client.hold(&head, &mut out), 1);
    let mut expected = b"\x20\0\0\0\x01\0\0\0\xd7\0\0\0".to_vec();
    expected.extend_from_slice(b"0123456789abcdef\x03\0\0\0\x06\0\0\0\x05\0\0\0\0\0\0\0");
    assert_eq!(out, expected);
    let mut server = Server::new(4);
    let hello = ClientHello::default();
    assert!(server.step(&hello.encode()).is_ok() && server.welcome(&hello, "s", 3));
    let greeting = pieces(&mut server);
    assert!(greeting.ends_with(b"\xd7\0\x01\0\x01\x0c\0\x01\0\x01"), "{greeting:?}");
    match client.step(&greeting) {
        Ok(Step::Event(_, Some(ClientEvent::Hello(hello)))) => assert!(hello.holds_arrays),
        other => panic!("{other:?}"),
    }
    let step = server.step(&out).expect("well-formed");
    assert_eq!(step, Step::Event(out.len(), Some(ServerEvent::Hold(1, head))));
    server.accept(1, &[ArraySize { argument: 0, bytes: 5 }]);
    // Not a byte more than announced.
    assert!(server.step(&chunk_header(1, 0, 6)).is_err());
    for wrong in [&expected[12..43], &[&expected[12..], &[0]].concat()] {
        let length = u8::try_from(wrong.len()).expect("short");
        let frame = [&[length, 0, 0, 0, 2, 0, 0, 0, 215, 0, 0, 0], wrong].concat();
        let mut server = Server::new(4);
        assert!(server.step(&hello.encode()).is_ok() && server.welcome(&hello, "s", 3));
        assert!(matches!(server.step(&frame), Err(ProtocolError::Body { kind: 215, .. })));
    }
}

#[test]
fn parts_with_vouchers() {
    let name = HeldArrayName { secret: *b"0123456789abcdef", index: 3 };
    let part = HeldArrayPart {
        offset: 1,
        length: 2,
        name,
        from: 4,
        server: "a:1".into(),
        voucher: "voucher_0f".into(),
    };
    // Beside a part with one, parts have empty ones.
    let other = HeldArrayPart { offset: 3, length: 1, voucher: String::new(), ..part.clone() };
    let held = HeldArrays { from: vec![(1, vec![part, other])], keep: vec![] };
    assert!(held.is_vouched());
    let head = CallHead { routine: "f".into(), held, ..CallHead::default() };
    let mut bytes = Vec::new();
    head.encode(&mut bytes);
    let mut expected = b"\0\0\0\0\0\0\0\0\0\0\0\0\x01\0f\x01\0\x01\0\x0a\x02\0".to_vec();
    expected.extend_from_slice(b"\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0");
    expected.extend_from_slice(b"0123456789abcdef\x03\0\0\0\x04\0\0\0\0\0\0\0\x03\0a:1");
    expected.extend_from_slice(b"\x0a\0voucher_0f");
    expected.extend_from_slice(b"\x03\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0");
    expected.extend_from_slice(b"0123456789abcdef\x03\0\0\0\x04\0\0\0\0\0\0\0\x03\0a:1\0\0");
    assert_eq!(bytes, expected);
    assert_eq!(CallHead::decode(&bytes), Ok(head.clone()));
    assert!(!format!("{head:?}").contains("voucher_0f"), "it is not to get into logs");
    for length in 0..bytes.len() {
        assert!(CallHead::decode(&bytes[..length]).is_err(), "{length}");
    }
    // Parts of one array come once, in either form.
    let twice = [&bytes[..15], &[2, 0], &bytes[17..], &[1, 0, 7, 0, 0]].concat();
    assert_eq!(CallHead::decode(&twice), Err(DecodeError::Order));
}

#[test]
fn wishes_for_vouchers() {
    let name = HeldArrayName { secret: *b"0123456789abcdef", index: 3 };
    let (mut client, mut out) = (Client::new(), Vec::new());
    assert_eq!(client.request_voucher(name, 6, &mut out), 1);
    let wish = b"\x18\0\0\0\x01\0\0\0\x18\0\0\x000123456789abcdef\x03\0\0\0\x06\0\0\0";
    assert_eq!(out, wish);
    let mut server = Server::new(4);
    server.want_vouchers(true);
    let hello = ClientHello::default();
    assert!(server.step(&hello.encode()).is_ok() && server.welcome(&hello, "s", 3));
    let greeting = pieces(&mut server);
    assert!(greeting.ends_with(b"\x0c\0\x01\0\x02"), "{greeting:?}");
    match client.step(&greeting) {
        Ok(Step::Event(_, Some(ClientEvent::Hello(hello)))) => {
            assert_eq!(hello.vouchers, VoucherSupport::Wanted);
        }
        other => panic!("{other:?}"),
    }
    let step = server.step(wish).expect("well-formed");
    assert_eq!(step, Step::Event(wish.len(), Some(ServerEvent::Vouch(1, name, 6))));
    server.send_voucher(1, "voucher_0f");
    let answer = pieces(&mut server);
    assert_eq!(answer, b"\x0a\0\0\0\x01\0\0\0\x19\0\0\0voucher_0f");
    let given = ClientEvent::Voucher(1, "voucher_0f".into());
    assert_eq!(client.step(&answer), Ok(Step::Event(answer.len(), Some(given))));
    let again = client.step(&answer);
    assert_eq!(again, Err(ProtocolError::Unasked { kind: 25, stream: 1 }));
    for wrong in [&wish[12..35], &[&wish[12..], &[0]].concat()] {
        let length = u8::try_from(wrong.len()).expect("short");
        let frame = [&[length, 0, 0, 0, 2, 0, 0, 0, 24, 0, 0, 0], wrong].concat();
        let mut server = Server::new(4);
        assert!(server.step(&hello.encode()).is_ok() && server.welcome(&hello, "s", 3));
        assert!(matches!(server.step(&frame), Err(ProtocolError::Body { kind: 24, .. })));
    }
}
