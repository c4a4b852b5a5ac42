//! Functions of the client that a routine calls: the frames, and what neither side takes from the other.

use kumi_rpc::{
    ArraySize, CallHead, CallbackHead, CallbackReturn, Client, ClientEvent, ClientHello, Code,
    Failure, FetchRequest, HEADER, HeldArrayName, HeldArrays, ProtocolError, ResultHead, Role,
    SendPiece, Server, ServerEvent, ServerHello, Step, Value, chunk_header,
};

/// A server with a call that runs on stream 1.
fn running() -> Server {
    let mut server = Server::new(8);
    let hello = ClientHello::default();
    let mut bytes = hello.encode();
    let head = CallHead {
        hash: 7,
        timeout_ms: 0,
        routine: "f".to_owned(),
        values: Vec::new(),
        held: HeldArrays::default(),
        shared: Vec::new(),
        object: 0,
    };
    Client::new().call(&head, &[], &mut bytes).expect("short");
    let events = feed(&mut server, &bytes, |server, event| match event {
        ServerEvent::Hello(hello) => assert!(server.welcome(hello, "s", 1 << 20)),
        ServerEvent::Call(stream, _) => server.accept(*stream, &[]),
        _ => {}
    });
    assert!(matches!(events.last(), Some(ServerEvent::Ready(1))), "{events:?}");
    written(&mut server);
    server
}

/// What a server makes of these bytes; panics where it breaks off.
fn feed(
    server: &mut Server,
    bytes: &[u8],
    then: impl FnMut(&mut Server, &ServerEvent),
) -> Vec<ServerEvent> {
    try_feed(server, bytes, then).expect("it is the protocol")
}

fn try_feed(
    server: &mut Server,
    bytes: &[u8],
    then: impl FnMut(&mut Server, &ServerEvent),
) -> Result<Vec<ServerEvent>, ProtocolError> {
    drive(server, Server::step, Server::placed, bytes, then).map(|(events, _)| events)
}

/// Where pieces of arrays were to go: parameter and first byte.
type Places = Vec<Option<(u16, u64)>>;

/// Feeds a side with bytes; what happened, and where arrays were to go.
fn drive<S, E>(
    side: &mut S,
    step: impl Fn(&mut S, &[u8]) -> Result<Step<E>, ProtocolError>,
    placed: impl Fn(&mut S, usize),
    mut bytes: &[u8],
    mut then: impl FnMut(&mut S, &E),
) -> Result<(Vec<E>, Places), ProtocolError> {
    let (mut events, mut places) = (Vec::new(), Vec::new());
    loop {
        match step(side, bytes)? {
            Step::More(_) => return Ok((events, places)),
            Step::Event(count, event) => {
                bytes = &bytes[count..];
                if let Some(event) = event {
                    then(side, &event);
                    events.push(event);
                }
            }
            Step::Data(place, length) => {
                let count = length.min(bytes.len());
                if count == 0 {
                    return Ok((events, places));
                }
                places.push(place.map(|place| (place.argument, place.offset)));
                bytes = &bytes[count..];
                placed(side, count);
            }
        }
    }
}

/// Writes everything; arrays are bytes of 9.
fn written(server: &mut Server) -> Vec<u8> {
    let mut all = Vec::new();
    while !server.send_queue().is_empty() {
        let mut out = Vec::new();
        for piece in server.send_queue().pieces() {
            match piece {
                SendPiece::Bytes(bytes) => out.extend_from_slice(bytes),
                SendPiece::Data(_, length) => out.resize(out.len() + length, 9),
            }
        }
        server.send_queue().wrote(out.len());
        all.append(&mut out);
        while let Some(stream) = server.send_queue().written() {
            server.ended(stream);
        }
    }
    while let Some(stream) = server.send_queue().written() {
        server.ended(stream);
    }
    all
}

fn frame(stream: u32, kind: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; HEADER];
    bytes[..4].copy_from_slice(&u32::try_from(body.len()).expect("short").to_le_bytes());
    bytes[4..8].copy_from_slice(&stream.to_le_bytes());
    bytes[8] = kind;
    bytes.extend_from_slice(body);
    bytes
}

fn back(stream: u32, back: &CallbackReturn) -> Vec<u8> {
    let mut body = Vec::new();
    back.encode(&mut body);
    frame(stream, 13, &body)
}

fn chunk(stream: u32, argument: u16, length: u32) -> Vec<u8> {
    let mut bytes = chunk_header(stream, argument, length).to_vec();
    bytes.resize(HEADER + length as usize, 9);
    bytes
}

fn head() -> CallbackHead {
    CallbackHead { parameter: 2, values: vec![(0, Value::I64(-3)), (4, Value::F64(0.5))] }
}

fn done() -> CallbackReturn {
    CallbackReturn::Done(vec![(1, Value::U64(5))])
}

#[test]
fn bodies_byte_by_byte() {
    let mut bytes = Vec::new();
    head().encode(&mut bytes);
    let mut expected = vec![2, 0, 2, 0, 0, 0, 1];
    expected.extend((-3_i64).to_le_bytes());
    expected.extend([4, 0, 3]);
    expected.extend(0.5_f64.to_le_bytes());
    assert_eq!(bytes, expected);
    assert_eq!(CallbackHead::decode(&bytes), Ok(head()));
    assert!((0..bytes.len()).all(|end| CallbackHead::decode(&bytes[..end]).is_err()));
    let mut bytes = Vec::new();
    done().encode(&mut bytes);
    assert_eq!(bytes, [0, 1, 0, 1, 0, 2, 5, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(CallbackReturn::decode(&bytes), Ok(done()));
    assert!((0..bytes.len()).all(|end| CallbackReturn::decode(&bytes[..end]).is_err()));
    assert!(CallbackReturn::decode(&[2]).is_err());
    let failed = CallbackReturn::decode(b"\x01no\x1b").expect("a sentence");
    assert_eq!(failed, CallbackReturn::Failed("no\\u{1b}".to_owned()));
}

#[test]
fn a_server_gets_what_it_asked_for() {
    let mut server = running();
    let sizes = [ArraySize { argument: 1, bytes: 5 }];
    assert!(server.callback(1, &head(), &sizes));
    assert!(!server.callback(1, &head(), &sizes), "one at a time");
    assert!(!server.callback(9, &head(), &sizes), "of a call that runs");
    let bytes = written(&mut server);
    assert_eq!(bytes[8], 12);
    assert_eq!(bytes[bytes.len() - HEADER - 5..], chunk(1, 1, 5));
    let mut answer = back(1, &done());
    answer.extend(chunk(1, 3, 2));
    answer.extend(chunk(1, 3, 1));
    let events = feed(&mut server, &answer, |server, event| {
        if matches!(event, ServerEvent::Returned(..)) {
            server.accept_return(1, &[ArraySize { argument: 3, bytes: 3 }]);
        }
    });
    assert_eq!(events, [ServerEvent::Returned(1, done()), ServerEvent::ReturnReady(1)]);
    // And again: nothing goes and comes this time.
    assert!(server.callback(1, &head(), &[]));
    written(&mut server);
    let events = feed(&mut server, &back(1, &done()), |server, event| {
        if matches!(event, ServerEvent::Returned(..)) {
            server.accept_return(1, &[]);
        }
    });
    assert_eq!(events, [ServerEvent::Returned(1, done()), ServerEvent::ReturnReady(1)]);
    server.finish(1, &ResultHead { waited_ns: 1, ran_ns: 2, values: Vec::new() }, &[]);
    assert_eq!(written(&mut server)[8], 10);
}

#[test]
fn a_server_takes_nothing_that_it_did_not_ask_for() {
    let unasked = ProtocolError::Unasked { kind: 13, stream: 1 };
    let result = try_feed(&mut running(), &back(1, &done()), |_, _| {});
    assert_eq!(result, Err(unasked), "none is called");
    // Before its arguments are written nothing can have come of it, but for a failure.
    let mut server = running();
    assert!(server.callback(1, &head(), &[ArraySize { argument: 1, bytes: 5 }]));
    assert_eq!(try_feed(&mut server, &back(1, &done()), |_, _| {}), Err(unasked));
    let mut server = running();
    assert!(server.callback(1, &head(), &[ArraySize { argument: 1, bytes: 5 }]));
    let failed = CallbackReturn::Failed("no".to_owned());
    let events = feed(&mut server, &back(1, &failed), |_, _| {});
    assert_eq!(events, [ServerEvent::Returned(1, failed)]);
    // More than it returns, and what it does not return.
    for wrong in [chunk(1, 3, 4), chunk(1, 4, 1)] {
        let mut server = running();
        assert!(server.callback(1, &head(), &[]));
        written(&mut server);
        let bytes = [back(1, &done()), wrong].concat();
        let result = try_feed(&mut server, &bytes, |server, event| {
            if matches!(event, ServerEvent::Returned(..)) {
                server.accept_return(1, &[ArraySize { argument: 3, bytes: 3 }]);
            }
        });
        assert!(matches!(result, Err(ProtocolError::Excess { stream: 1, .. })), "{result:?}");
    }
    // Of calls that have ended, or never were, it says nothing.
    assert_eq!(feed(&mut running(), &back(5, &done()), |_, _| {}), []);
}

#[test]
#[cfg_attr(miri, ignore = "minutes, in code without unsafe blocks")]
fn a_stream_is_in_use_until_its_chunks_are_written() {
    let mut server = running();
    assert!(server.callback(1, &head(), &[ArraySize { argument: 1, bytes: 6 << 20 }]));
    assert!(server.send_queue().pieces().count() > 1);
    let events = feed(&mut server, &frame(1, 5, &[]), |_, _| {});
    assert_eq!(events, [ServerEvent::Cancel(1)]);
    server.fail(1, &Failure::new(Code::Cancelled, 0, "cancelled"));
    assert!(server.send_queue().refers(1), "what is decided on is written");
    // A client that takes the number again before it has read the end.
    let mut bytes = Vec::new();
    let call = CallHead {
        hash: 7,
        timeout_ms: 0,
        routine: "f".to_owned(),
        values: Vec::new(),
        held: HeldArrays::default(),
        shared: Vec::new(),
        object: 0,
    };
    Client::new().call(&call, &[], &mut bytes).expect("short");
    assert_eq!(try_feed(&mut server, &bytes, |_, _| {}), Err(ProtocolError::Reused(1)));
    // What the client had sent of the function's end is skipped.
    assert_eq!(feed(&mut server, &[back(1, &done()), chunk(1, 3, 2)].concat(), |_, _| {}), []);
    let all = written(&mut server);
    assert!(all.len() < 4 << 20, "no more chunks are begun: {}", all.len());
    assert!(!server.send_queue().refers(1));
    let events = feed(&mut server, &bytes, |_, _| {});
    assert_eq!(events.len(), 1, "the number can be used again");
}

/// A client with a call on stream 1, and a result of 4 bytes to come.
fn calling() -> Client {
    let mut client = Client::new();
    let call = CallHead {
        hash: 7,
        timeout_ms: 0,
        routine: "f".to_owned(),
        values: Vec::new(),
        held: HeldArrays::default(),
        shared: Vec::new(),
        object: 0,
    };
    let mut out = Vec::new();
    client.call(&call, &[ArraySize { argument: 0, bytes: 4 }], &mut out).expect("short");
    let hello = ServerHello {
        version: Ok(1),
        highest: 1,
        name: "s".to_owned(),
        streams: 8,
        bytes: 1,
        role: Role::Server,
        shares_memory: false,
        local: None,
        vouchers: kumi_rpc::VoucherSupport::Unknown,
        gives_resources: false,
        binds_calls: false,
        holds_arrays: false,
        shows_logs: false,
    };
    get(&mut client, &hello.encode(), |_, _| {}).expect("it is the protocol");
    client
}

/// What a client makes of these bytes, and where arrays were to go.
fn get(
    client: &mut Client,
    bytes: &[u8],
    then: impl FnMut(&mut Client, &ClientEvent),
) -> Result<(Vec<ClientEvent>, Places), ProtocolError> {
    drive(client, Client::step, Client::placed, bytes, then)
}

fn asks(stream: u32) -> Vec<u8> {
    let mut body = Vec::new();
    head().encode(&mut body);
    frame(stream, 12, &body)
}

fn accept(client: &mut Client, event: &ClientEvent) {
    if matches!(event, ClientEvent::Callback(..)) {
        client.accept_callback(1, &[ArraySize { argument: 3, bytes: 3 }]);
    }
}

fn result() -> Vec<u8> {
    let mut body = Vec::new();
    ResultHead { waited_ns: 1, ran_ns: 2, values: Vec::new() }.encode(&mut body);
    frame(1, 10, &body)
}

#[test]
fn of_a_function_that_failed_nothing_more_is_taken() {
    // What it returned does not fit, or it says itself that it failed: arrays that follow are skipped, and so is what
    // else is said to have been returned.
    let failed = CallbackReturn::Failed("no".to_owned());
    for first in [done(), failed.clone()] {
        let mut server = running();
        assert!(server.callback(1, &head(), &[]));
        written(&mut server);
        let bytes = [back(1, &first), chunk(1, 3, 2), back(1, &done()), back(1, &failed)].concat();
        let events = feed(&mut server, &bytes, |server, event| {
            assert!(matches!(event, ServerEvent::Returned(1, _)));
            server.refuse_return(1);
        });
        assert_eq!(events, [ServerEvent::Returned(1, first)]);
        // The driver ends it; then the number may be used again.
        server.fail(1, &Failure::new(Code::Callback, 2, "it failed"));
        assert_eq!(written(&mut server)[8], 11);
    }
}

#[test]
fn a_client_calls_and_answers() {
    let mut client = calling();
    for _ in 0..2 {
        let bytes = [asks(1), chunk(1, 3, 1), chunk(1, 3, 2)].concat();
        let (events, places) = get(&mut client, &bytes, accept).expect("it is the protocol");
        assert_eq!(events, [ClientEvent::Callback(1, head()), ClientEvent::CallbackReady(1)]);
        assert_eq!(places, [Some((3, 0)), Some((3, 1))]);
        let mut out = Vec::new();
        assert_eq!(client.callback_return(1, &done(), &mut out), Ok(true));
        assert_eq!(out, back(1, &done()));
        assert_eq!(client.callback_return(1, &done(), &mut out), Ok(false), "once");
    }
    let (events, places) =
        get(&mut client, &[result(), chunk(1, 0, 4)].concat(), accept).expect("it is the protocol");
    assert!(matches!(events[..], [ClientEvent::Result(1, _), ClientEvent::Done(1)]), "{events:?}");
    assert_eq!(places, [Some((0, 0))]);
}

#[test]
fn a_client_takes_nothing_that_is_not_announced() {
    let wrong = [
        asks(2),
        [asks(1), asks(1)].concat(),
        [asks(1), result()].concat(),
        [result(), asks(1)].concat(),
        [asks(1), chunk(1, 3, 4)].concat(),
        [asks(1), chunk(1, 0, 1)].concat(),
        [asks(1), chunk(1, 3, 3), chunk(1, 3, 1)].concat(),
        chunk(1, 3, 1),
    ];
    for (index, bytes) in wrong.iter().enumerate() {
        let result = get(&mut calling(), bytes, accept);
        assert!(
            matches!(result, Err(ProtocolError::Unasked { .. } | ProtocolError::Excess { .. })),
            "{index}: {result:?}"
        );
    }
}

#[test]
fn what_a_client_does_not_want_is_skipped() {
    // A function that it cannot call.
    let mut client = calling();
    let refuse = |client: &mut Client, event: &ClientEvent| {
        if matches!(event, ClientEvent::Callback(..)) {
            client.refuse_callback(1);
        }
    };
    let bytes = [asks(1), chunk(1, 3, 100), chunk(1, 77, 1)].concat();
    let (events, places) = get(&mut client, &bytes, refuse).expect("it is the protocol");
    assert_eq!((events.len(), places), (1, vec![None, None]));
    let mut out = Vec::new();
    assert_eq!(client.callback_return(1, &done(), &mut out), Ok(false), "it was not called");
    let failed = CallbackReturn::Failed("no".to_owned());
    assert_eq!(client.callback_return(1, &failed, &mut out), Ok(true));
    // A call that nobody waits for any more.
    let mut client = calling();
    client.abandon(1);
    let mut error = Vec::new();
    Failure::new(Code::Cancelled, 0, "cancelled").encode(&mut error);
    let bytes = [asks(1), chunk(1, 3, 100), frame(1, 11, &error)].concat();
    let (events, places) = get(&mut client, &bytes, accept).expect("it is the protocol");
    assert_eq!((events, places), (vec![], vec![None]));
    // One that ends while its function's arguments come.
    let mut client = calling();
    let bytes = [asks(1), chunk(1, 3, 1), frame(1, 11, &error)].concat();
    let (events, _) = get(&mut client, &bytes, accept).expect("it is the protocol");
    assert!(matches!(events[..], [_, ClientEvent::Failed(1, _)]), "{events:?}");
    assert_eq!(client.callback_return(1, &done(), &mut out), Ok(false));
}

#[test]
fn the_fetch_of_an_array_calls_no_function() {
    let mut client = calling();
    let name = HeldArrayName { secret: [7; 16], index: 1 };
    let stream = client.fetch(&FetchRequest { name, offset: 0, length: 4 }, &mut Vec::new());
    let unasked = ProtocolError::Unasked { kind: 12, stream };
    assert_eq!(get(&mut client, &asks(stream), |_, _| {}).expect_err("it runs nothing"), unasked);
}
