//! The other side asks for more than it may, says what cannot be, or does not listen.

use kumi_rpc::{
    ArraySize, CallHead, Client, ClientEvent, ClientHello, Code, DecodeError, Failure, HEADER,
    MOST_ANSWER, MOST_NAME, MOST_REQUEST, MOST_UNREAD, ProtocolError, RequestTooLong, ResultHead,
    SendPiece, Server, ServerEvent, ServerHello, Step, Value, chunk_header,
};

/// A frame by hand.
fn frame(kind: u8, stream: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = u32::try_from(body.len()).expect("short").to_le_bytes().to_vec();
    bytes.extend_from_slice(&stream.to_le_bytes());
    bytes.extend_from_slice(&[kind, 0, 0, 0]);
    bytes.extend_from_slice(body);
    bytes
}

/// A server that has taken its client in.
fn served(streams: usize) -> Server {
    let mut server = Server::new(streams);
    let hello = ClientHello::default();
    assert!(matches!(server.step(&hello.encode()), Ok(Step::Event(..))));
    assert!(server.welcome(&hello, "s", 1));
    written(&mut server);
    server
}

/// A client that has been taken in.
fn greeted() -> Client {
    let mut client = Client::new();
    let hello = ServerHello {
        version: Ok(1),
        highest: 1,
        name: "s".into(),
        streams: 9,
        bytes: 9,
        role: kumi_rpc::Role::Server,
        shares_memory: false,
        local: None,
        vouchers: kumi_rpc::VoucherSupport::Unknown,
        gives_resources: false,
        binds_calls: false,
        holds_arrays: false,
        shows_logs: false,
    };
    assert!(matches!(client.step(&hello.encode()), Ok(Step::Event(_, Some(_)))));
    client
}

/// What a server writes, arrays left out.
fn written(server: &mut Server) -> Vec<u8> {
    let (mut bytes, mut count) = (Vec::new(), 0);
    for piece in server.send_queue().pieces() {
        match piece {
            SendPiece::Bytes(piece) => {
                bytes.extend_from_slice(piece);
                count += piece.len();
            }
            SendPiece::Data(_, length) => count += length,
        }
    }
    server.send_queue().wrote(count);
    bytes
}

/// The failures in what a server wrote: stream, code and detail.
fn failures(mut bytes: &[u8]) -> Vec<(u32, Code, i64)> {
    let mut found = Vec::new();
    while let Some((head, rest)) = bytes.split_first_chunk::<HEADER>() {
        let length = u32::from_le_bytes(*head.first_chunk().expect("four")) as usize;
        let stream = u32::from_le_bytes(*head[4..].first_chunk().expect("four"));
        let (body, next) = rest.split_at(length);
        if head[8] == 11 {
            let failure = Failure::decode(body).expect("well-formed");
            found.push((stream, failure.code, failure.detail));
        }
        bytes = next;
    }
    found
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn who_asks_and_does_not_read_is_not_answered_without_end() {
    let json = "x".repeat(MOST_ANSWER - 8);
    let mut server = served(4);
    let mut asked = 0;
    let error = loop {
        asked += 1;
        match server.step(&frame(1, asked, b"f")) {
            Ok(Step::Event(_, Some(ServerEvent::Interface(stream, _)))) => {
                server.describe(stream, 1, &json);
            }
            Err(error) => break error,
            other => panic!("{other:?}"),
        }
        assert!(asked < 10, "it is answered without end");
    };
    assert!(matches!(error, ProtocolError::Unread(bytes) if bytes > MOST_UNREAD), "{error}");
    assert!(server.send_queue().waiting() < MOST_UNREAD + MOST_ANSWER + 4096);
    let said = failures(&written(&mut server));
    assert_eq!(said, [(0, Code::Protocol, 0)], "it is told behind what it did not read");
    assert_eq!(server.send_queue().waiting(), 0);

    let mut server = served(4);
    let ping = frame(6, 0, b"12345678");
    let mut pings = 0;
    while let Ok(step) = server.step(&ping) {
        assert_eq!(step, Step::Event(ping.len(), None));
        pings += 1;
        assert!(pings * ping.len() <= MOST_UNREAD + ping.len(), "it is answered without end");
    }
    assert_eq!(pings, MOST_UNREAD / ping.len() + 1);
}

#[test]
fn who_reads_slowly_is_answered_for_ever() {
    let mut server = served(4);
    let ping = frame(6, 0, b"12345678");
    let pong = frame(7, 0, b"12345678");
    let mut read = Vec::new();
    for round in 0..1000 {
        assert_eq!(server.step(&ping), Ok(Step::Event(ping.len(), None)));
        let mut taken = 0;
        for piece in server.send_queue().pieces() {
            let SendPiece::Bytes(bytes) = piece else { panic!("there are no arrays") };
            let now = bytes.len().min(19 - taken);
            read.extend_from_slice(&bytes[..now]);
            taken += now;
        }
        server.send_queue().wrote(taken);
        assert_eq!(server.send_queue().waiting(), (round + 1) * ping.len() - read.len());
    }
    read.extend(written(&mut server));
    assert_eq!(read, pong.repeat(1000));
    assert!(server.send_queue().is_empty());
}

#[test]
fn a_stream_too_many_fails_alone() {
    let mut server = served(2);
    let mut client = greeted();
    let head =
        CallHead { routine: "f".into(), values: vec![(0, Value::I64(1))], ..CallHead::default() };
    let size = ArraySize { argument: 0, bytes: 5 };
    let mut input = Vec::new();
    for _ in 0..3 {
        client.call(&head, &[], &mut input).expect("short");
    }
    for stream in 1..=3 {
        input.extend_from_slice(&chunk_header(stream, 0, 5));
        input.extend_from_slice(b"12345");
    }
    let (mut at, mut ready, mut skipped) = (0, Vec::new(), 0);
    loop {
        match server.step(&input[at..]).expect("the connection goes on") {
            Step::More(_) => break,
            Step::Event(count, event) => {
                at += count;
                match event {
                    Some(ServerEvent::Call(stream, _)) => server.accept(stream, &[size]),
                    Some(ServerEvent::Ready(stream)) => ready.push(stream),
                    _ => {}
                }
            }
            Step::Data(place, length) => {
                skipped += if place.is_none() { length } else { 0 };
                server.placed(length);
                at += length;
            }
        }
    }
    assert_eq!((ready, skipped), (vec![1, 2], 5));
    let bytes = written(&mut server);
    assert_eq!(failures(&bytes), [(3, Code::Busy, 2)]);
    assert!(matches!(
        client.step(&bytes),
        Ok(Step::Event(_, Some(ClientEvent::Failed(3, failure)))) if failure.text.contains("too many calls at once")
    ));
}

#[test]
fn a_result_that_is_too_long_is_a_failure_of_its_call() {
    let mut server = served(2);
    let mut input = Vec::new();
    let head = CallHead { routine: "f".into(), ..CallHead::default() };
    Client::new().call(&head, &[], &mut input).expect("short");
    assert!(matches!(server.step(&input), Ok(Step::Event(_, Some(ServerEvent::Call(1, _))))));
    server.accept(1, &[]);
    assert_eq!(server.step(&[]), Ok(Step::Event(0, Some(ServerEvent::Ready(1)))));
    let text = Value::Text("x".repeat(MOST_ANSWER));
    let result = ResultHead { waited_ns: 0, ran_ns: 0, values: vec![(0, text)] };
    server.finish(1, &result, &[ArraySize { argument: 1, bytes: 8 }]);
    assert_eq!(server.send_queue().written(), Some(1), "its memory may go");
    server.ended(1);
    let length = 16 + 2 + 2 + 1 + 4 + MOST_ANSWER as i64;
    assert_eq!(failures(&written(&mut server)), [(1, Code::Protocol, length)]);
    assert_eq!(server.send_queue().written(), None);
    assert!(server.send_queue().is_empty(), "no array follows");
    assert!(matches!(server.step(&input), Ok(Step::Event(_, Some(ServerEvent::Call(1, _))))));
}

#[test]
fn a_client_does_not_send_what_ends_the_connection() {
    let (mut client, mut out) = (Client::new(), Vec::new());
    for name in ["", &"x".repeat(MOST_NAME + 1), "f\u{1b}[2J"] {
        assert_eq!(client.interface(name, &mut out), Err(RequestTooLong(name.len())));
        let head = CallHead { routine: name.to_owned(), ..CallHead::default() };
        assert_eq!(client.call(&head, &[], &mut out), Err(RequestTooLong(name.len())));
    }
    let long = "x".repeat(MOST_REQUEST + 1);
    assert_eq!(client.list(&long, &mut out), Err(RequestTooLong(long.len())));
    assert!(out.is_empty());
    assert_eq!(client.interface(&long[..MOST_NAME], &mut out), Ok(1));
    assert_eq!(client.list(&long[1..], &mut out), Ok(2));
    let mut server = served(4);
    let mut at = 0;
    while let Step::Event(count, event) = server.step(&out[at..]).expect("it takes both") {
        assert!(event.is_some());
        at += count;
    }
    assert_eq!(at, out.len());
}

#[test]
fn a_version_that_a_client_does_not_speak_is_a_refusal() {
    let hello = ServerHello {
        version: Ok(7),
        highest: 9,
        name: "s".into(),
        streams: 1,
        bytes: 1,
        role: kumi_rpc::Role::Server,
        shares_memory: false,
        local: None,
        vouchers: kumi_rpc::VoucherSupport::Unknown,
        gives_resources: false,
        binds_calls: false,
        holds_arrays: false,
        shows_logs: false,
    };
    match Client::new().step(&hello.encode()) {
        Ok(Step::Event(_, Some(ClientEvent::Hello(hello)))) => {
            assert_eq!(hello.version, Err(Failure::version(9)));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn lengths_that_are_fixed() {
    let lengths =
        [(5, 1, 1, DecodeError::Long), (6, 0, 7, DecodeError::Short), (7, 0, 9, DecodeError::Long)];
    for (kind, stream, length, why) in lengths {
        let bytes = frame(kind, stream, &vec![0; length]);
        let expected = ProtocolError::Body { kind, why };
        assert_eq!(served(1).step(&bytes).expect_err("refused"), expected);
        assert_eq!(greeted().step(&bytes).expect_err("refused"), expected);
        // Its header says enough.
        assert_eq!(served(1).step(&bytes[..HEADER]).expect_err("refused"), expected);
    }
}

#[test]
fn pings_of_a_server_are_answered() {
    let mut client = greeted();
    let ping = frame(6, 0, b"12345678");
    for _ in 0..100 {
        assert_eq!(client.step(&ping), Ok(Step::Event(ping.len(), None)));
    }
    let mut out = Vec::new();
    client.answer_pings(&mut out);
    assert_eq!(out, frame(7, 0, b"12345678").repeat(16), "but not without end");
    client.answer_pings(&mut out);
    assert_eq!(out.len(), 16 * ping.len());
    out.clear();
    client.ping(&mut out);
    let mut server = served(1);
    assert_eq!(server.step(&out), Ok(Step::Event(out.len(), None)));
    let pong = written(&mut server);
    assert_eq!(client.step(&pong), Ok(Step::Event(pong.len(), Some(ClientEvent::Pong))));
}

#[test]
fn texts_do_nothing_to_a_terminal() {
    let failure = Failure::new(Code::Crashed, 1, "a\u{1b}[2J\u{9b}b\r\n\tc");
    let mut bytes = Vec::new();
    failure.encode(&mut bytes);
    let came = Failure::decode(&bytes).expect("well-formed");
    assert_eq!(came.text, "a\\u{1b}[2J\\u{9b}b\\r\n\tc");
    let long = [&bytes[..10], &[b'x'; 4000]].concat();
    assert_eq!(Failure::decode(&long).expect("it is cut").text.len(), 2048);
    let hello = ServerHello {
        version: Ok(1),
        highest: 1,
        name: "\u{7}".into(),
        shares_memory: false,
        local: None,
        streams: 1,
        bytes: 1,
        role: kumi_rpc::Role::Server,
        vouchers: kumi_rpc::VoucherSupport::Unknown,
        gives_resources: false,
        binds_calls: false,
        holds_arrays: false,
        shows_logs: false,
    };
    let (came, _) = ServerHello::decode(&hello.encode()).expect("a hello").expect("whole");
    assert_eq!(came.name, "\\u{7}");

    for names in [&b"\0\0"[..], b"\x01\0\x1b", b"\x01\0f\0\0", b"\x02\0f"] {
        let (mut client, mut out) = (greeted(), Vec::new());
        client.list("", &mut out).expect("short");
        assert!(client.step(&frame(9, 1, names)).is_err(), "{names:?}");
    }
    let mut server = served(1);
    assert!(server.step(&frame(1, 1, b"f\x1b")).is_err());
}

fn head() -> CallHead {
    CallHead { hash: 1, routine: "talk".into(), ..CallHead::default() }
}

#[test]
fn who_listens_gets_what_a_routine_prints() {
    let (mut server, mut client) = (served(4), greeted());
    let mut out = Vec::new();
    let stream = client.call(&head(), &[], &mut out).expect("a name");
    client.listen(stream, &mut out);
    assert_eq!(out[..HEADER], frame(131, stream, b""));
    let mut events = Vec::new();
    while let Ok(Step::Event(count, event)) = server.step(&out) {
        out.drain(..count);
        events.extend(event);
    }
    assert_eq!(events, [ServerEvent::Listen(stream), ServerEvent::Call(stream, head())]);
    server.accept(stream, &[]);
    assert_eq!(server.step(&[]), Ok(Step::Event(0, Some(ServerEvent::Ready(stream)))));
    let long = vec![b'x'; (64 << 10) + 1];
    server.printed(stream, b"", false);
    server.printed(stream, b"one", false);
    server.printed(stream, &long, true);
    server.printed(stream + 1, b"nobody's", true);
    server.finish(stream, &ResultHead { waited_ns: 0, ran_ns: 0, values: vec![] }, &[]);
    let mut input = written(&mut server);
    let mut events = Vec::new();
    while let Ok(Step::Event(count, event)) = client.step(&input) {
        input.drain(..count);
        events.extend(event);
    }
    let expected = [
        ClientEvent::Output(stream, b"one".to_vec(), false),
        ClientEvent::Output(stream, long[1..].to_vec(), false),
        ClientEvent::Output(stream, b"x".to_vec(), true),
    ];
    assert_eq!(events[..3], expected);
    assert!(matches!(events[3..], [ClientEvent::Result(..), ClientEvent::Done(_)]), "{events:?}");
}

#[test]
fn output_is_for_those_who_listen_and_as_it_should_be() {
    let unasked = |listens: bool, body: &[u8]| {
        let (mut client, mut out) = (greeted(), Vec::new());
        let stream = client.call(&head(), &[], &mut out).expect("a name");
        if listens {
            client.listen(stream, &mut out);
        }
        client.step(&frame(132, stream, body)).is_err()
    };
    assert!(!unasked(true, b"\0text") && !unasked(true, b"\x01"));
    assert!(unasked(false, b"\0text"));
    let long = vec![0; (64 << 10) + 2];
    for body in [&b""[..], b"\x02text", &long] {
        assert!(unasked(true, body));
    }
    // A request to listen says nothing else.
    assert!(served(4).step(&frame(131, 1, b"?")).is_err());
}
