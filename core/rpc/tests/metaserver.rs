//! Both ends of a connection to a metaserver: its answers, refusals and limits.

use kumi_rpc::{
    Client, ClientEvent, ClientHello, Code, Failure, FrameStep, HEADER, MOST_ANSWER, MOST_REQUEST,
    Metaserver, MetaserverEvent, ProtocolError, RegisteredServer, RegisteredServerEvent, Role,
    ServerHello, Step, Ticket, VoucherSupport, chunk_header,
};

use crate::samples::{TICKET, placing};

/// A frame by hand.
fn frame(kind: u8, stream: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = u32::try_from(body.len()).expect("short").to_le_bytes().to_vec();
    bytes.extend_from_slice(&stream.to_le_bytes());
    bytes.extend_from_slice(&[kind, 0, 0, 0]);
    bytes.extend_from_slice(body);
    bytes
}

/// A metaserver and a client that know each other; two streams may be open.
fn pair() -> (Metaserver, Client) {
    let (mut metaserver, mut client) = (Metaserver::new(2), Client::new());
    let hello = ClientHello::default();
    let bytes = hello.encode();
    let taken = FrameStep::Event(bytes.len(), Some(MetaserverEvent::Hello(hello.clone())));
    assert_eq!(metaserver.step(&bytes), Ok(taken));
    assert!(metaserver.welcome(&hello, "m"));
    let [ClientEvent::Hello(hello)] = &answers(&mut metaserver, &mut client)[..] else {
        panic!("a hello comes first")
    };
    let told = (hello.version.clone(), &hello.name[..], hello.streams, hello.bytes, hello.role);
    assert_eq!(told, (Ok(1), "m", 2, (1 << 63) - 1, Role::Metaserver));
    (metaserver, client)
}

/// What the client makes of all that the metaserver says.
fn answers(metaserver: &mut Metaserver, client: &mut Client) -> Vec<ClientEvent> {
    let input = std::mem::take(metaserver.out());
    let (mut at, mut events) = (0, Vec::new());
    while at < input.len() {
        match client.step(&input[at..]).expect("it is what the protocol says") {
            Step::Event(count, event) => {
                at += count;
                events.extend(event);
            }
            other => panic!("{other:?}"),
        }
    }
    events
}

/// One frame of the client, taken whole.
fn event(metaserver: &mut Metaserver, bytes: &[u8]) -> Option<MetaserverEvent> {
    match metaserver.step(bytes).expect("it is what the protocol says") {
        FrameStep::Event(count, event) => {
            assert_eq!(count, bytes.len());
            event
        }
        FrameStep::More(more) => panic!("it wants {more} bytes"),
    }
}

#[test]
fn questions_are_answered_once() {
    let (mut metaserver, mut client) = pair();
    let mut out = Vec::new();
    let one = client.interface("f", &mut out).unwrap();
    assert_eq!(event(&mut metaserver, &out), Some(MetaserverEvent::Interface(one, "f".into())));
    out.clear();
    let two = client.list("f", &mut out).unwrap();
    assert_eq!(event(&mut metaserver, &out), Some(MetaserverEvent::List(two, "f".into())));
    assert_eq!(metaserver.open(), 2);
    metaserver.describe(one, 0x0102_0304_0506_0708, "{}");
    assert_eq!(metaserver.open(), 1);
    assert_eq!(*metaserver.out(), frame(8, one, b"\x08\x07\x06\x05\x04\x03\x02\x01{}"));
    metaserver.names(two, ["f", "fg"]);
    assert_eq!(metaserver.open(), 0);
    let names = ClientEvent::Names(two, vec!["f".into(), "fg".into()]);
    let described = ClientEvent::Description(one, 0x0102_0304_0506_0708, "{}".into());
    assert_eq!(answers(&mut metaserver, &mut client), [described, names]);
    out.clear();
    let three = client.status(&mut out);
    assert_eq!(event(&mut metaserver, &out), Some(MetaserverEvent::Status(three)));
    metaserver.state(three, "{}");
    assert_eq!(metaserver.open(), 0);
    let state = ClientEvent::State(three, "{}".into());
    assert_eq!(answers(&mut metaserver, &mut client), [state]);
    // Nothing is open any more.
    metaserver.close(three);
    metaserver.fail(three, &Failure::new(Code::Busy, 1, "late"));
    assert!(metaserver.out().is_empty());
}

#[test]
fn a_state_that_is_too_long_is_a_failure() {
    let (mut metaserver, mut client) = pair();
    for (length, fails) in [(MOST_ANSWER, false), (MOST_ANSWER + 1, true)] {
        let mut out = Vec::new();
        let stream = client.status(&mut out);
        event(&mut metaserver, &out);
        metaserver.state(stream, &"x".repeat(length));
        match &answers(&mut metaserver, &mut client)[..] {
            [ClientEvent::State(_, json)] => assert_eq!((fails, json.len()), (false, length)),
            [ClientEvent::Failed(_, failure)] => {
                assert_eq!((fails, failure.code), (true, Code::TooLarge));
                assert_eq!(failure.detail, length as i64);
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(metaserver.open(), 0);
    }
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn names_end_where_an_answer_does() {
    let (mut metaserver, mut client) = pair();
    let mut out = Vec::new();
    let stream = client.list("", &mut out).unwrap();
    event(&mut metaserver, &out);
    // Each takes two bytes more: 8,192 of them are as long as an answer may be.
    let name = "n".repeat(510);
    metaserver.names(stream, std::iter::repeat_n(&name[..], 10_000));
    assert_eq!(metaserver.out().len(), HEADER + MOST_ANSWER);
    let [ClientEvent::Names(_, names)] = &answers(&mut metaserver, &mut client)[..] else {
        panic!("they are names")
    };
    assert_eq!(names.len(), 8_192);
}

#[test]
fn a_stream_too_many_fails_alone() {
    let (mut metaserver, mut client) = pair();
    let mut out = Vec::new();
    for stream in 1..=3 {
        out.clear();
        assert_eq!(client.request_placement(&placing(), &mut out), Ok(stream));
        let taken = event(&mut metaserver, &out);
        assert_eq!(taken.is_some(), stream <= 2);
        assert_eq!(metaserver.open(), 2.min(stream as usize));
    }
    let [ClientEvent::Failed(3, failure)] = &answers(&mut metaserver, &mut client)[..] else {
        panic!("the third fails")
    };
    assert_eq!((failure.code, failure.detail), (Code::Busy, 2));
    // One that has ended, and one that was never open, cannot be cancelled; one that is, can.
    for (stream, open) in [(3, false), (9, false), (1, true)] {
        let cancelled = event(&mut metaserver, &frame(5, stream, &[]));
        assert_eq!(cancelled, open.then_some(MetaserverEvent::Cancel(stream)));
    }
    out.clear();
    client.request_placement(&placing(), &mut out).unwrap();
    out[4..8].copy_from_slice(&2_u32.to_le_bytes());
    assert_eq!(metaserver.step(&out), Err(ProtocolError::Reused(2)));
}

#[test]
fn a_client_of_another_version_is_refused() {
    let hello = ClientHello { versions: 2..=3, ..ClientHello::default() };
    for refuse in [false, true] {
        let mut metaserver = Metaserver::new(2);
        event(&mut metaserver, &hello.encode());
        let expected = if refuse {
            let failure = Failure::new(Code::NotPermitted, 4, "no");
            metaserver.refuse(failure.clone());
            failure
        } else {
            assert!(!metaserver.welcome(&hello, "m"));
            Failure::version(1)
        };
        let (told, length) = ServerHello::decode(metaserver.out()).unwrap().unwrap();
        assert_eq!(length, metaserver.out().len());
        assert_eq!((told.version, told.highest, told.streams), (Err(expected), 1, 0));
        assert_eq!((told.role, told.vouchers), (Role::Metaserver, VoucherSupport::Unknown));
    }
    // Before the hello a connection ends with a refusal, after it with a failure.
    let failure = Failure::new(Code::Ending, 0, "bye");
    let mut metaserver = Metaserver::new(2);
    metaserver.end(failure.clone());
    let (told, _) = ServerHello::decode(metaserver.out()).unwrap().unwrap();
    assert_eq!(told.version, Err(failure.clone()));
    let (mut metaserver, mut client) = pair();
    metaserver.end(failure.clone());
    assert_eq!(answers(&mut metaserver, &mut client), [ClientEvent::Ended(failure)]);
}

#[test]
fn pings_are_answered_and_extensions_passed_over() {
    let (mut metaserver, _) = pair();
    assert_eq!(event(&mut metaserver, &frame(6, 0, b"12345678")), None);
    assert_eq!(std::mem::take(metaserver.out()), frame(7, 0, b"12345678"));
    assert_eq!(event(&mut metaserver, &frame(7, 0, b"12345678")), Some(MetaserverEvent::Pong));
    metaserver.ping();
    assert_eq!(std::mem::take(metaserver.out()), frame(6, 0, &[0; 8]));
    // A frame of an unknown kind: its header, then its body as it comes, then the next frame.
    let unknown = frame(200, 7, b"whatever");
    assert_eq!(metaserver.step(&unknown), Ok(FrameStep::Event(HEADER, None)));
    assert_eq!(metaserver.step(b""), Ok(FrameStep::More(1)));
    assert_eq!(metaserver.step(b"what"), Ok(FrameStep::Event(4, None)));
    let rest = [&b"ever"[..], &frame(7, 0, &[0; 8])].concat();
    assert_eq!(metaserver.step(&rest), Ok(FrameStep::Event(4, None)));
    let pong = FrameStep::Event(HEADER + 8, Some(MetaserverEvent::Pong));
    assert_eq!(metaserver.step(&rest[4..]), Ok(pong));
    assert_eq!(metaserver.step(&chunk_header(1, 0, 1)), Err(ProtocolError::Kind(4)));
    assert_eq!(metaserver.step(&frame(10, 1, b"")), Err(ProtocolError::Kind(10)));
}

/// A server that its metaserver has taken in.
fn member() -> RegisteredServer {
    let (mut metaserver, mut member) = (Metaserver::new(2), RegisteredServer::new());
    metaserver.welcome(&ClientHello::default(), "m");
    let hello = std::mem::take(metaserver.out());
    assert_eq!(member.step(&hello[..20]), Ok(FrameStep::More(hello.len())));
    let taken = member.step(&hello);
    assert!(
        matches!(taken, Ok(FrameStep::Event(count, Some(RegisteredServerEvent::Hello(_)))) if count == hello.len())
    );
    member
}

#[test]
fn a_registered_server_is_asked_and_ended() {
    let mut member = member();
    let mut take = |bytes: &[u8]| match member.step(bytes) {
        Ok(FrameStep::Event(count, event)) => {
            assert_eq!(count, bytes.len());
            Ok(event)
        }
        Ok(more) => panic!("{more:?}"),
        Err(error) => Err(error),
    };
    let mut ticket = Vec::new();
    TICKET.encode(&mut ticket);
    assert_eq!(ticket.len(), Ticket::LENGTH);
    let with = |last: u8| [&ticket[..], &[last]].concat();
    let ask = take(&frame(47, 0, &ticket));
    assert_eq!(ask, Ok(Some(RegisteredServerEvent::Ask(TICKET))));
    let expire = take(&frame(47, 0, &with(1)));
    assert_eq!(expire, Ok(Some(RegisteredServerEvent::Expire(TICKET))));
    for body in [with(2), with(0), ticket[..11].to_vec()] {
        assert!(take(&frame(47, 0, &body)).is_err(), "{body:?}");
    }
    let failure = Failure::new(Code::NotPermitted, 3, "out");
    let mut body = Vec::new();
    failure.encode(&mut body);
    assert_eq!(take(&frame(11, 0, &body)), Ok(Some(RegisteredServerEvent::Ended(failure))));
    assert_eq!(take(&frame(7, 0, &[0; 8])), Ok(None));
    assert_eq!(take(&frame(6, 0, b"12345678")), Ok(None));
    assert!(take(&frame(39, 0, &[0; 5])).is_err(), "a period of four bytes");
    assert_eq!(take(&frame(8, 1, &[0; 8])), Err(ProtocolError::Kind(8)));
    assert_eq!(*member.out(), frame(7, 0, b"12345678"));
}

#[test]
fn an_offer_fits_a_request() {
    assert!(RegisteredServer::fits(&"x".repeat(MOST_REQUEST - 8)));
    assert!(!RegisteredServer::fits(&"x".repeat(MOST_REQUEST - 7)));
    let mut member = RegisteredServer::new();
    member.offer(1, &"x".repeat(MOST_REQUEST - 8));
    let (mut metaserver, _) = pair();
    let offered = event(&mut metaserver, member.out());
    assert!(
        matches!(offered, Some(MetaserverEvent::Offer(1, json)) if json.len() == MOST_REQUEST - 8)
    );
}
