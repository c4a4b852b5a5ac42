//! Objects: the frames by which they are made, called and let go, and what neither side takes from the other.

use kumi_rpc::{
    ArraySize, CallHead, CallMetadata, Client, ClientEvent, ClientHello, Code, Failure, HEADER,
    Placement, ProtocolError, Resources, Server, ServerEvent, ServerHello, Step, Ticket,
    TraceContext, chunk_header,
};

/// Feeds a side with bytes; what happened.
fn feed<S, E>(
    side: &mut S,
    step: impl Fn(&mut S, &[u8]) -> Result<Step<E>, ProtocolError>,
    mut bytes: &[u8],
) -> Result<Vec<E>, ProtocolError> {
    let mut events = Vec::new();
    loop {
        match step(side, bytes)? {
            Step::More(_) if bytes.is_empty() => return Ok(events),
            Step::Event(count, event) => {
                bytes = &bytes[count..];
                events.extend(event);
            }
            _ => panic!("{} bytes are left", bytes.len()),
        }
    }
}

fn serve(server: &mut Server, bytes: &[u8]) -> Result<Vec<ServerEvent>, ProtocolError> {
    feed(server, Server::step, bytes)
}

fn ask(client: &mut Client, bytes: &[u8]) -> Result<Vec<ClientEvent>, ProtocolError> {
    feed(client, Client::step, bytes)
}

/// All that a server has to say.
fn said(server: &mut Server) -> Vec<u8> {
    let mut all = Vec::new();
    for piece in server.send_queue().pieces() {
        match piece {
            kumi_rpc::SendPiece::Bytes(bytes) => all.extend_from_slice(bytes),
            kumi_rpc::SendPiece::Data(..) => panic!("no arrays were sent"),
        }
    }
    let count = all.len();
    server.send_queue().wrote(count);
    all
}

/// Both ends, greeted.
fn pair() -> (Client, Server) {
    let (mut client, mut server) = (Client::new(), Server::new(4));
    let hello = ClientHello::default();
    serve(&mut server, &hello.encode()).expect("a hello");
    assert!(server.welcome(&hello, "s", 1));
    ask(&mut client, &said(&mut server)).expect("a hello");
    (client, server)
}

fn on(object: u32) -> CallHead {
    CallHead { hash: 1, routine: "c.f".to_owned(), object, ..CallHead::default() }
}

/// A frame by hand.
fn frame(kind: u8, stream: u32, body: &[u8]) -> Vec<u8> {
    let mut frame = u32::try_from(body.len()).expect("short").to_le_bytes().to_vec();
    frame.extend_from_slice(&stream.to_le_bytes());
    frame.extend_from_slice(&[kind, 0, 0, 0]);
    frame.extend_from_slice(body);
    frame
}

#[test]
fn all_that_is_said_of_an_object_goes_before_its_ticket() {
    let (mut client, mut server) = pair();
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let trace = TraceContext::parse(parent.as_bytes()).expect("a traceparent");
    let resources = Resources::new(2, 0).expect("threads");
    let ticket = Ticket { call: 7, attempt: 1 };
    let placed = Placement { ticket, address: "h:1".into(), server: "s".into(), pass: "p".into() };
    let mut out = Vec::new();
    let stream = client.create_with(Some(&placed), "c", &mut out).expect("a name");
    let bare = out.clone();
    let metadata = CallMetadata { listens: false, trace: Some(trace), resources: Some(resources) };
    client.metadata(stream, &metadata, &mut out);
    let traced = [&b"\x37\0\0\0\x01\0\0\0\x85\0\0\0"[..], parent.as_bytes()].concat();
    assert!(out.starts_with(&traced) && out.ends_with(&bare));
    let events = serve(&mut server, &out).expect("well-formed");
    let expected = [
        ServerEvent::Trace(stream, trace),
        ServerEvent::Resources(stream, resources),
        ServerEvent::Ticket(stream, ticket, "p".into()),
        ServerEvent::Create(stream, "c".into()),
    ];
    assert_eq!(events, expected);
}

#[test]
fn an_object_is_made_called_and_let_go() {
    let (mut client, mut server) = pair();
    let mut out = Vec::new();
    let object = client.create("c", &mut out).expect("a name");
    assert_eq!(out, frame(16, object, b"c"));
    let events = serve(&mut server, &out).expect("well-formed");
    assert_eq!(events, [ServerEvent::Create(object, "c".to_owned())]);
    server.created(object);
    let answer = said(&mut server);
    assert_eq!(answer, frame(17, object, b""));
    let events = ask(&mut client, &answer).expect("asked for");
    assert_eq!(events, [ClientEvent::Created(object)]);

    let mut out = Vec::new();
    let call = client.call(&on(object), &[], &mut out).expect("short");
    let mut body = object.to_le_bytes().to_vec();
    on(0).encode(&mut body);
    assert_eq!(out, frame(18, call, &body));
    let events = serve(&mut server, &out).expect("well-formed");
    assert_eq!(events, [ServerEvent::Call(call, on(object))]);

    let mut out = Vec::new();
    client.cancel(object, &mut out);
    assert_eq!(serve(&mut server, &out), Ok(vec![ServerEvent::Cancel(object)]));
    let failure = Failure::new(Code::Cancelled, 0, "it was let go");
    server.fail(object, &failure);
    let events = ask(&mut client, &said(&mut server)).expect("its end");
    assert_eq!(events, [ClientEvent::Failed(object, failure)]);
    // What was under way when it ended means nothing more.
    server.created(object);
    assert!(said(&mut server).is_empty());
    assert_eq!(serve(&mut server, &out), Ok(vec![]));
}

#[test]
fn a_ticket_is_shown_before() {
    let (mut client, mut server) = pair();
    let ticket = Ticket { call: 1, attempt: 2 };
    let (address, name, pass) = ("h:1".to_owned(), "s".to_owned(), "pass_0".to_owned());
    let placed = Placement { ticket, address, server: name, pass: pass.clone() };
    let mut out = Vec::new();
    let object = client.create_with(Some(&placed), "c", &mut out).expect("a name");
    let events = serve(&mut server, &out).expect("well-formed");
    let create = ServerEvent::Create(object, "c".to_owned());
    assert_eq!(events, [ServerEvent::Ticket(object, ticket, pass), create]);
    assert!(client.create_with(Some(&placed), "", &mut Vec::new()).is_err());
}

#[test]
fn a_server_takes_nothing_else() {
    let chunk = [&chunk_header(1, 0, 4)[..], &[0; 4]].concat();
    let again = frame(16, 1, b"c");
    for wrong in [chunk, again, frame(21, 1, b""), frame(13, 1, &[1])] {
        let (_, mut server) = pair();
        serve(&mut server, &frame(16, 1, b"c")).expect("well-formed");
        assert!(serve(&mut server, &wrong).is_err(), "{wrong:?}");
        server.created(1);
        assert!(String::from_utf8_lossy(&said(&mut server)).contains("stream 1"), "it is told");
    }
    let mut head = Vec::new();
    on(0).encode(&mut head);
    let of = |object: u32| [&object.to_le_bytes()[..], &head].concat();
    let (short, none) = (frame(18, 2, &of(1)[..4]), frame(18, 2, &of(0)));
    for wrong in [short, none, frame(16, 0, b"c"), frame(16, 1, b""), frame(17, 1, b"")] {
        let (_, mut server) = pair();
        assert!(serve(&mut server, &wrong).is_err(), "{wrong:?}");
    }
    // Whether there is such an object is the driver's to say.
    let (_, mut server) = pair();
    let events = serve(&mut server, &frame(18, 2, &of(9)));
    assert_eq!(events, Ok(vec![ServerEvent::Call(2, on(9))]));
    server.accept(2, &[ArraySize { argument: 0, bytes: 4 }]);
}

#[test]
fn objects_count_as_streams() {
    let (_, mut server) = pair();
    for stream in 1..=4 {
        assert_eq!(serve(&mut server, &frame(16, stream, b"c")).expect("well-formed").len(), 1);
    }
    assert_eq!(serve(&mut server, &frame(16, 5, b"c")), Ok(vec![]));
    let answer = said(&mut server);
    assert_eq!((answer[8], &answer[HEADER..HEADER + 2]), (11, &[5, 0][..]));
}

#[test]
fn a_client_takes_nothing_else() {
    let hello =
        ServerHello { name: String::new(), streams: 4, bytes: 1, ..ServerHello::new(Ok(1), 1) };
    let created = frame(17, 1, b"");
    let result = frame(10, 1, &[0; 18]);
    let twice = [&created[..], &created].concat();
    let described = frame(8, 1, b"\x01\0\0\0\0\0\0\0{}");
    for wrong in [twice, result, frame(17, 1, b"x"), frame(17, 2, b""), described] {
        let mut client = Client::new();
        client.create("c", &mut Vec::new()).expect("a name");
        let bytes = [&hello.encode()[..], &wrong].concat();
        assert!(ask(&mut client, &bytes).is_err(), "{wrong:?}");
    }
    // One for which nobody waits is not told of.
    let mut client = Client::new();
    let object = client.create("c", &mut Vec::new()).expect("a name");
    client.abandon(object);
    let failure = Failure::new(Code::Cancelled, 0, "");
    let mut body = Vec::new();
    failure.encode(&mut body);
    let bytes = [&hello.encode()[..], &created, &frame(11, object, &body)].concat();
    assert_eq!(ask(&mut client, &bytes).expect("well-formed").len(), 1, "the hello");
    assert!(client.create("", &mut Vec::new()).is_err());
}
