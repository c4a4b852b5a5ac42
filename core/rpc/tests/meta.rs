//! Frames of clients, servers and metaservers: as docs/reference/call-protocol.md describes them, and any bytes at all.

use kumi_rpc::{
    AttemptState, CallHead, Client, ClientEvent, ClientHello, Code, DecodeError, Failure,
    FrameStep, InputLocation, LoadReport, Metaserver, MetaserverEvent, Placement, PlacementRequest,
    RegisteredServer, RegisteredServerEvent, RequestTooLong, Role, Server, ServerEvent,
    ServerHello, ServerRegistration, SigningKey, Step,
};
use proptest::prelude::*;

use crate::samples::{TICKET, over, placed, placing, register};

/// Everything that a metaserver makes of these bytes, however they are cut.
fn all(desk: &mut Metaserver, bytes: &[u8], cut: usize) -> Vec<MetaserverEvent> {
    let (mut events, mut input) = (Vec::new(), Vec::new());
    for piece in bytes.chunks(cut.max(1)) {
        input.extend_from_slice(piece);
        while let Ok(FrameStep::Event(count, event)) = desk.step(&input) {
            input.drain(..count);
            events.extend(event);
        }
    }
    events
}

/// A metaserver and a client that know each other.
fn pair() -> (Metaserver, Client) {
    let (mut desk, mut client) = (Metaserver::new(4), Client::new());
    let hello = ClientHello {
        versions: 1..=1,
        token: String::new(),
        program: String::new(),
        site: "here".into(),
        maps_memory: false,
    };
    assert_eq!(all(&mut desk, &hello.encode(), 5), [MetaserverEvent::Hello(hello.clone())]);
    assert!(desk.welcome(&hello, "m"));
    match answer(&mut desk, &mut client).pop() {
        Some(ClientEvent::Hello(hello)) => assert_eq!(hello.role, Role::Metaserver),
        other => panic!("{other:?}"),
    }
    (desk, client)
}

fn answer(desk: &mut Metaserver, client: &mut Client) -> Vec<ClientEvent> {
    let mut input = std::mem::take(desk.out());
    let mut events = Vec::new();
    while let Ok(Step::Event(count, event)) = client.step(&input) {
        input.drain(..count);
        events.extend(event);
    }
    assert!(input.is_empty());
    events
}

#[test]
fn a_call_is_placed_and_over() {
    let (mut desk, mut client) = pair();
    let mut out = Vec::new();
    let stream = client.request_placement(&placing(), &mut out).expect("a name");
    let mut expected = b"\x3d\0\0\0\x01\0\0\0\x20\0\0\0".to_vec();
    for word in 1_u64..=5 {
        expected.extend_from_slice(&word.to_le_bytes());
    }
    expected.extend_from_slice(b"\0\0\0\0\0\0\xf0\x3f\x06\0\0\0\x07\0\0\0\x08\x01\x01\0f");
    assert_eq!(out, expected);
    assert_eq!(all(&mut desk, &out, 7), [MetaserverEvent::Place(stream, placing())]);
    let placed = placed("");
    desk.placed(stream, &placed);
    let expected =
        b"\x14\0\0\0\x01\0\0\0\x21\0\0\0\x08\x07\x06\x05\x04\x03\x02\x01\x03\0\0\0\x03\0h:1\x01\0s";
    assert_eq!(desk.out(), expected);
    assert_eq!(answer(&mut desk, &mut client), [ClientEvent::Placed(stream, placed)]);
    desk.placed(stream, &self::placed("pass"));
    assert!(desk.out().ends_with(b"\x04\0pass"));
    let shown = [ClientEvent::Placed(stream, self::placed("pass"))];
    assert_eq!(answer(&mut desk, &mut client), shown);
    out.clear();
    client.report_attempt(stream, &over(), &mut out);
    assert_eq!(out[..12], *b"\x3d\0\0\0\x01\0\0\0\x22\0\0\0");
    assert_eq!(all(&mut desk, &out, 64), [MetaserverEvent::AttemptReport(stream, over())]);
    assert_eq!(desk.open(), 1, "the stream goes on");
    desk.close(stream);
    assert_eq!(answer(&mut desk, &mut client), [ClientEvent::Closed(stream)]);
    assert_eq!(desk.open(), 0);
    out.clear();
    let stream = client.request_placement(&placing(), &mut out).expect("a name");
    client.cancel(stream, &mut out);
    client.report_attempt(0, &over(), &mut out);
    let cancelled = MetaserverEvent::Cancel(stream);
    let expected = [
        MetaserverEvent::Place(stream, placing()),
        cancelled,
        MetaserverEvent::AttemptReport(0, over()),
    ];
    assert_eq!(all(&mut desk, &out, 1000), expected);
    let failure = Failure::new(Code::NoServer, 1, "gone");
    desk.fail(stream, &failure);
    desk.fail(stream, &failure);
    assert_eq!(answer(&mut desk, &mut client), [ClientEvent::Failed(stream, failure)]);
}

#[test]
fn clients_say_why_attempts_failed() {
    let (mut desk, mut client) = pair();
    let mut out = Vec::new();
    client.attempt_reason(1, TICKET, "it crashed", &mut out);
    assert_eq!(out[..12], *b"\x16\0\0\0\x01\0\0\0\x82\0\0\0");
    let expected = MetaserverEvent::AttemptReason(TICKET, "it crashed".into());
    assert_eq!(all(&mut desk, &out, 5), [expected]);
    // What a metaserver would refuse is cut, or not sent.
    out.clear();
    client.attempt_reason(1, TICKET, "", &mut out);
    assert!(out.is_empty());
    let long = format!("{}ä\nmore", "a".repeat(509));
    client.attempt_reason(1, TICKET, &long, &mut out);
    let cut = format!("{}ä ", "a".repeat(509));
    assert_eq!(all(&mut desk, &out, 64), [MetaserverEvent::AttemptReason(TICKET, cut)]);
    let frame = |text: &[u8]| {
        let length = u32::try_from(12 + text.len()).expect("short");
        [&length.to_le_bytes()[..], &[1, 0, 0, 0, 130, 0, 0, 0], &[0; 12], text].concat()
    };
    for text in [&b""[..], b"a\n", b"\xff", &[b'a'; 513]] {
        let (mut desk, _) = pair();
        assert!(desk.step(&frame(text)).is_err(), "{text:?}");
    }
}

#[test]
fn a_server_registers() {
    let (mut desk, _) = pair();
    let mut member = RegisteredServer::new();
    member.register(&register());
    member.offer(9, "{}");
    member.report_running(&[TICKET; 6000]);
    let report = LoadReport { load: 0.5, running: 1, waiting: 2, elsewhere: 3 };
    member.report(&report);
    let fates = [
        AttemptState::Accepted,
        AttemptState::Unknown,
        AttemptState::Completed(5),
        AttemptState::Crashed,
    ];
    fates.into_iter().for_each(|fate| member.report_attempt(TICKET, fate));
    member.leave();
    let bytes = std::mem::take(member.out());
    assert_eq!(bytes[..12], *b"\x1f\0\0\0\0\0\0\0\x24\0\0\0");
    let expected = [
        MetaserverEvent::Register(register()),
        MetaserverEvent::Offer(9, "{}".into()),
        MetaserverEvent::RunningTickets(vec![TICKET; 5461]),
        MetaserverEvent::RunningTickets(vec![TICKET; 539]),
        MetaserverEvent::Report(report),
        MetaserverEvent::TicketState(TICKET, AttemptState::Accepted),
        MetaserverEvent::TicketState(TICKET, AttemptState::Unknown),
        MetaserverEvent::TicketState(TICKET, AttemptState::Completed(5)),
        MetaserverEvent::TicketState(TICKET, AttemptState::Crashed),
        MetaserverEvent::Leave,
    ];
    assert_eq!(all(&mut desk, &bytes, 1000), expected);
    let hello = ClientHello::default();
    desk.welcome(&hello, "m");
    desk.registered(500);
    desk.stop(TICKET);
    desk.ask(TICKET);
    desk.expire(TICKET);
    desk.ping();
    let mut input = std::mem::take(desk.out());
    let mut events = Vec::new();
    while let Ok(FrameStep::Event(count, event)) = member.step(&input) {
        input.drain(..count);
        events.extend(event);
    }
    assert!(
        matches!(&events[0], RegisteredServerEvent::Hello(hello) if hello.role == Role::Metaserver)
    );
    let expected = [
        RegisteredServerEvent::Registered(500),
        RegisteredServerEvent::Stop(TICKET),
        RegisteredServerEvent::Ask(TICKET),
        RegisteredServerEvent::Expire(TICKET),
    ];
    assert_eq!(events[1..], expected);
    let pong = std::mem::take(member.out());
    assert_eq!(all(&mut desk, &pong, 3), [MetaserverEvent::Pong]);
}

#[test]
fn servers_ask_for_addresses() {
    let (mut desk, _) = pair();
    let mut member = RegisteredServer::new();
    member.ask_address("a:1");
    member.ask_address(&"a".repeat(513));
    let bytes = std::mem::take(member.out());
    assert_eq!(all(&mut desk, &bytes, 5), [MetaserverEvent::AskAddress("a:1".into())]);
    desk.welcome(&ClientHello::default(), "m");
    desk.address_state("a:1", true);
    desk.address_state("b:1", false);
    let mut input = std::mem::take(desk.out());
    let mut events = Vec::new();
    while let Ok(FrameStep::Event(count, event)) = member.step(&input) {
        input.drain(..count);
        events.extend(event);
    }
    let [known, unknown] = [("a:1", true), ("b:1", false)]
        .map(|(address, is)| RegisteredServerEvent::AddressState(address.into(), is));
    assert_eq!(events[1..], [known, unknown]);
}

#[test]
fn questions_for_addresses_are_checked() {
    let frame = |kind: u8, body: &[u8]| {
        let length = u32::try_from(body.len()).expect("short");
        [&length.to_le_bytes()[..], &[0, 0, 0, 0, kind, 0, 0, 0], body].concat()
    };
    let long = vec![b'a'; 513];
    for body in [&b""[..], b"a\n:1", b"\xff:1", &long] {
        let (mut desk, _) = pair();
        assert!(desk.step(&frame(128, body)).is_err(), "{body:?}");
        let mut member = RegisteredServer::new();
        let (mut other, _) = pair();
        other.welcome(&ClientHello::default(), "m");
        let hello = std::mem::take(other.out());
        assert!(matches!(member.step(&hello), Ok(FrameStep::Event(..))));
        for state in [0, 1] {
            let answer = frame(129, &[&[state], body].concat());
            assert!(member.step(&answer).is_err(), "{answer:?}");
        }
        assert!(member.step(&frame(129, b"\x02a:1")).is_err());
        assert!(member.step(&frame(129, b"")).is_err());
    }
}

#[test]
fn a_key_is_registered_and_not_printed() {
    let (mut desk, _) = pair();
    let mut member = RegisteredServer::new();
    let register = ServerRegistration { key: Some(SigningKey([7; 32])), ..register() };
    assert!(!format!("{register:?}").contains('7'), "a key is nowhere printed");
    member.register(&register);
    let bytes = std::mem::take(member.out());
    assert_eq!((bytes[0], &bytes[bytes.len() - 32..]), (0x1f + 32, &[7; 32][..]));
    assert_eq!(all(&mut desk, &bytes, 9), [MetaserverEvent::Register(register)]);
}

#[test]
fn a_ticket_goes_before_its_call() {
    let mut client = Client::new();
    let head = CallHead {
        hash: 1,
        timeout_ms: 0,
        routine: "f".into(),
        values: vec![],
        ..CallHead::default()
    };
    let mut out = Vec::new();
    let stream = client.call_with(Some(&placed("pass")), &head, &[], &mut out).expect("short");
    let mut server = Server::new(4);
    let hello = ClientHello::default();
    let mut input = hello.encode();
    input.extend_from_slice(&out);
    let mut events = Vec::new();
    while let Ok(Step::Event(count, event)) = server.step(&input) {
        input.drain(..count);
        events.extend(event);
    }
    let ticket = ServerEvent::Ticket(stream, TICKET, "pass".into());
    let expected = [ticket, ServerEvent::Call(stream, head)];
    assert_eq!(events[1..], expected);
}

#[test]
fn what_breaks_the_protocol_is_said() {
    let (mut desk, mut client) = pair();
    let mut chunk = kumi_rpc::chunk_header(1, 0, 4).to_vec();
    chunk.extend_from_slice(b"data");
    assert!(desk.step(&chunk).is_err());
    let mut out = Vec::new();
    client.request_placement(&placing(), &mut out).expect("a name");
    assert!(matches!(desk.step(&out), Ok(FrameStep::Event(..))));
    assert!(desk.step(&out).is_err(), "a stream begins once");
    let last = out.len() - 4;
    out[last] = 2;
    assert!(desk.step(&out).is_err(), "a flag that is none");
    desk.end(Failure::new(Code::Protocol, 0, "broken"));
    assert!(matches!(answer(&mut desk, &mut client)[..], [ClientEvent::Ended(_)]));
    let mut many = Vec::new();
    (0..5).for_each(|_| {
        client.request_placement(&placing(), &mut many).expect("a name");
    });
    assert!(all(&mut Metaserver::new(4), &many, 9).is_empty(), "no hello");
}

#[test]
fn what_lies_at_servers_is_told_with_a_call() {
    let lying = |bytes| InputLocation { server: "s".into(), address: "h:1".into(), bytes };
    let one = PlacementRequest { input_locations: vec![lying(7)], ..placing() };
    let (mut bytes, mut bare) = (Vec::new(), Vec::new());
    one.encode(&mut bytes);
    placing().encode(&mut bare);
    let tail = b"\x01\x07\0\0\0\0\0\0\0\x01\0s\x03\0h:1";
    assert_eq!(bytes, [bare.as_slice(), tail].concat());
    assert_eq!(PlacementRequest::decode(&bytes), Ok(one));
    for end in bare.len() + 1..bytes.len() {
        assert_eq!(PlacementRequest::decode(&bytes[..end]), Err(DecodeError::Short));
    }
    let with = |tail: &[u8]| PlacementRequest::decode(&[bare.as_slice(), tail].concat());
    assert_eq!(with(&[tail.as_slice(), b"\0"].concat()), Err(DecodeError::Long));
    assert_eq!(with(b"\0"), Err(DecodeError::Long), "none is said by nothing");
    assert_eq!(with(&[33]), Err(DecodeError::Long), "before anything is allocated");
    let mut control = tail.to_vec();
    control[11] = b'\n';
    assert_eq!(with(&control), Err(DecodeError::Name));
    let long = [b"\x01\0\0\0\0\0\0\0\0\x01\x02".as_slice(), &[b'a'; 0x201]].concat();
    assert_eq!(with(&long), Err(DecodeError::Name));
    // Of more than may be told the first are.
    let many = PlacementRequest { input_locations: (0..40).map(lying).collect(), ..placing() };
    bytes.clear();
    many.encode(&mut bytes);
    let read = PlacementRequest::decode(&bytes).expect("it is as long as it may be");
    assert_eq!(read.input_locations, many.input_locations[..32]);
}

#[test]
fn a_call_that_is_bound_names_its_server() {
    let at = |bound, places: &[&str]| PlacementRequest {
        idempotent: true,
        bound,
        input_locations: places
            .iter()
            .map(|server| InputLocation {
                server: (*server).into(),
                address: "h:1".into(),
                bytes: 7,
            })
            .collect(),
        ..placing()
    };
    let encoded = |placing: &PlacementRequest| {
        let mut bytes = Vec::new();
        placing.encode(&mut bytes);
        bytes
    };
    let (bytes, free) = (encoded(&at(true, &["s"])), encoded(&at(false, &["s"])));
    // Behind key, hash, two numbers of bytes, operations, time, attempts and priority.
    assert_eq!((bytes[57], free[57]), (3, 1));
    assert_eq!([&bytes[..57], &bytes[58..]].concat(), [&free[..57], &free[58..]].concat());
    assert_eq!(PlacementRequest::decode(&bytes), Ok(at(true, &["s"])));
    assert_eq!(PlacementRequest::decode(&free), Ok(at(false, &["s"])));
    let nowhere = encoded(&at(true, &[]));
    assert_eq!(PlacementRequest::decode(&nowhere), Err(DecodeError::Tag));
    let mut other = bytes;
    other[57] = 4;
    assert_eq!(PlacementRequest::decode(&other), Err(DecodeError::Tag));
}

#[test]
fn a_metaserver_says_that_it_binds_calls() {
    let mut desk = Metaserver::new(4);
    let hello = ClientHello::default();
    assert_eq!(all(&mut desk, &hello.encode(), 5), [MetaserverEvent::Hello(hello.clone())]);
    assert!(desk.welcome(&hello, "m"));
    let mut greeting = desk.out().clone();
    // Tag 14, one byte, is the last field.
    assert!(greeting.ends_with(b"\x0e\0\x01\0\x01"), "{greeting:?}");
    let binds = |greeting: &[u8]| {
        ServerHello::decode(greeting).expect("a hello").expect("whole").0.binds_calls
    };
    assert!(binds(&greeting));
    *greeting.last_mut().expect("a byte") = 2;
    assert!(!binds(&greeting), "another value is of another version");
    greeting.truncate(greeting.len() - 5);
    greeting[12] -= 5;
    assert!(!binds(&greeting), "a version that does not know the tag");
}

#[test]
fn names_have_no_control_characters() {
    let (mut client, mut out) = (Client::new(), Vec::new());
    for routine in ["", "a\nb", &"n".repeat(513)] {
        let place = PlacementRequest { routine: routine.into(), ..placing() };
        assert_eq!(client.request_placement(&place, &mut out), Err(RequestTooLong(routine.len())));
    }
    assert!(out.is_empty());
    let placed = Placement { server: "s\x1b[2J".into(), ..placed("") };
    let mut bytes = Vec::new();
    placed.encode(&mut bytes);
    assert_eq!(Placement::decode(&bytes), Err(DecodeError::Name));
    for register in [
        ServerRegistration { name: "s\r".into(), ..register() },
        ServerRegistration { site: "\0".into(), ..register() },
    ] {
        let mut bytes = Vec::new();
        register.encode(&mut bytes);
        assert_eq!(ServerRegistration::decode(&bytes), Err(DecodeError::Name));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, rng_seed: proptest::test_runner::RngSeed::Fixed(7), failure_persistence: None, ..ProptestConfig::default() })]

    /// Any bytes end in frames, in a wish for more, or in an error; never in a panic, and never in another
    /// result because they were cut differently.
    #[test]
    fn any_bytes(kind in 0_u8..140, stream in 0_u32..3, body in prop::collection::vec(any::<u8>(), 0..90), cut in 1_usize..30) {
        let mut frame = u32::try_from(body.len()).unwrap().to_le_bytes().to_vec();
        frame.extend_from_slice(&stream.to_le_bytes());
        frame.extend_from_slice(&[kind, 0, 0, 0]);
        frame.extend_from_slice(&body);
        let (mut one, _) = pair();
        let (mut other, mut client) = pair();
        prop_assert_eq!(all(&mut one, &frame, cut), all(&mut other, &frame, usize::MAX));
        let mut member = RegisteredServer::new();
        let mut input = frame.clone();
        while let Ok(FrameStep::Event(count, _)) = member.step(&input) {
            input.drain(..count);
        }
        let _any = client.step(&frame);
    }
}
