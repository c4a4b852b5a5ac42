//! Headers and bodies at their bounds: the longest that is taken, and the first beyond it.

use kumi_rpc::{
    CallHead, Client, ClientEvent, ClientHello, Code, DecodeError, Failure, HEADER, HeldArrayName,
    MOST_ANSWER, MOST_CHUNK, MOST_NAME, MOST_REQUEST, ProtocolError, RequestTooLong, Role, Server,
    ServerEvent, ServerHello, SharedDirections, Step, Value, VoucherSupport,
};

/// The header of a frame.
fn header(kind: u8, stream: u32, length: usize) -> Vec<u8> {
    let mut bytes = u32::try_from(length).expect("32 bits").to_le_bytes().to_vec();
    bytes.extend_from_slice(&stream.to_le_bytes());
    bytes.extend_from_slice(&[kind, 0, 0, 0]);
    bytes
}

fn hello() -> ServerHello {
    ServerHello {
        version: Ok(1),
        highest: 1,
        name: "s".into(),
        streams: 9,
        bytes: 9,
        role: Role::Server,
        shares_memory: false,
        local: None,
        vouchers: VoucherSupport::Unknown,
        gives_resources: false,
        binds_calls: false,
        holds_arrays: false,
        shows_logs: false,
    }
}

fn client() -> Client {
    let mut client = Client::new();
    client.step(&hello().encode()).expect("a hello");
    client
}

fn server() -> Server {
    let mut server = Server::new(4);
    server.step(&ClientHello::default().encode()).expect("a hello");
    server
}

/// Bytes of the bodies that have one length only.
fn length_of(kind: u8) -> usize {
    match kind {
        23 => 4,
        6 | 7 => 8,
        _ => 0,
    }
}

#[test]
fn frames_of_the_connection_have_no_stream_and_all_others_one() {
    let of_connection = [6, 7, 15, 23, 36, 37, 38, 39, 40, 41, 42, 43, 47];
    let of_streams: Vec<u8> = (1..=5)
        .chain([8, 9, 10, 12, 13, 14, 16, 17, 18, 20, 21, 24, 25, 32, 33, 35, 44, 45, 46])
        .collect();
    for (kinds, wrong) in [(&of_connection[..], 1), (&of_streams, 0)] {
        for &kind in kinds {
            let bytes = header(kind, wrong, length_of(kind));
            let expected = ProtocolError::Header { kind, stream: wrong };
            assert_eq!(server().step(&bytes), Err(expected), "{kind}");
            assert_eq!(client().step(&bytes), Err(expected), "{kind}");
            let right = header(kind, 1 - wrong, length_of(kind));
            assert_ne!(
                server().step(&right),
                Err(ProtocolError::Header { kind, stream: 1 - wrong })
            );
        }
    }
    for kind in [0, 19, 22, 26, 31, 48, 127] {
        assert_eq!(server().step(&header(kind, 1, 0)), Err(ProtocolError::Kind(kind)));
        assert_eq!(client().step(&header(kind, 0, 0)), Err(ProtocolError::Kind(kind)));
    }
}

#[test]
fn flags_and_arguments_are_for_extensions_and_chunks() {
    for (kind, at, fits) in [
        (5, 9, false),
        (5, 10, false),
        (5, 11, false),
        (200, 9, true),
        (200, 11, true),
        (4, 9, false),
    ] {
        let mut bytes = header(kind, 1, 0);
        bytes[at] = 1;
        let expected = Err(ProtocolError::Header { kind, stream: 1 });
        assert_eq!(server().step(&bytes) == expected, !fits, "{kind} {at}");
    }
    let mut chunk = header(4, 1, 0);
    chunk[10] = 7;
    assert_eq!(server().step(&chunk), Ok(Step::Event(HEADER, None)));
}

#[test]
fn bodies_have_their_greatest_lengths() {
    let too_long = |kind, length, most| ProtocolError::Length { kind, length, most };
    // A list to a server, names to a client, a chunk and an extension to either.
    assert_eq!(server().step(&header(2, 1, MOST_REQUEST)), Ok(Step::More(HEADER + MOST_REQUEST)));
    let long = server().step(&header(2, 1, MOST_REQUEST + 1));
    assert_eq!(long, Err(too_long(2, MOST_REQUEST + 1, MOST_REQUEST)));
    assert_eq!(client().step(&header(9, 1, MOST_ANSWER)), Ok(Step::More(HEADER + MOST_ANSWER)));
    let long = client().step(&header(9, 1, MOST_ANSWER + 1));
    assert_eq!(long, Err(too_long(9, MOST_ANSWER + 1, MOST_ANSWER)));
    for kind in [4, 200] {
        assert_eq!(server().step(&header(kind, 1, MOST_CHUNK)), Ok(Step::Event(HEADER, None)));
        let long = server().step(&header(kind, 1, MOST_CHUNK + 1));
        assert_eq!(long, Err(too_long(kind, MOST_CHUNK + 1, MOST_CHUNK)));
    }
    for (kind, length) in [(5, 1), (21, 1), (23, 3), (23, 5), (6, 7), (6, 9), (7, 7), (7, 9)] {
        let stream = u32::from(kind == 5 || kind == 21);
        let why = if length < length_of(kind) { DecodeError::Short } else { DecodeError::Long };
        let refused = server().step(&header(kind, stream, length));
        assert_eq!(refused, Err(ProtocolError::Body { kind, why }));
    }
}

#[test]
fn a_call_may_fill_a_request() {
    // Hash, time, name with its length, how many entries; then one of a parameter, a tag and a text with its length.
    let around = 8 + 4 + 2 + 1 + 2 + 2 + 1 + 4;
    let head = |length: usize| CallHead {
        routine: "f".into(),
        values: vec![(0, Value::Text("x".repeat(length)))],
        ..CallHead::default()
    };
    let (mut client, mut out) = (client(), b"before".to_vec());
    let long = client.call(&head(MOST_REQUEST - around + 1), &[], &mut out);
    assert_eq!((long, &out[..]), (Err(RequestTooLong(MOST_REQUEST + 1)), &b"before"[..]));
    out.clear();
    let stream = client.call(&head(MOST_REQUEST - around), &[], &mut out).expect("it fits");
    assert_eq!(out.len(), HEADER + MOST_REQUEST);
    let taken = server().step(&out).expect("a call");
    let call = ServerEvent::Call(stream, head(MOST_REQUEST - around));
    assert_eq!(taken, Step::Event(out.len(), Some(call)));
}

#[test]
fn many_held_arrays_are_dropped_in_several_frames() {
    let name = |index| HeldArrayName { secret: [3; 16], index };
    let most = (MOST_REQUEST / HeldArrayName::LENGTH) as u32;
    let names: Vec<_> = (0..most + 1).map(name).collect();
    let mut out = Vec::new();
    client().drop_held(&names, &mut out);
    assert_eq!(out.len(), 2 * HEADER + names.len() * HeldArrayName::LENGTH);
    let (mut server, mut at, mut dropped) = (server(), 0, Vec::new());
    while let Step::Event(count, Some(ServerEvent::Drop(names))) =
        server.step(&out[at..]).expect("names")
    {
        at += count;
        dropped.push(names.len() as u32);
    }
    assert_eq!(dropped, [most, 1]);
    assert!(!format!("{:?}", name(7)).contains('3'), "the secret is not printed");
}

#[test]
fn texts_are_cut_between_letters() {
    let failure = |text: &str| {
        let mut bytes = Vec::new();
        Failure::new(Code::Raised, -5, text).encode(&mut bytes);
        (bytes.len(), Failure::decode(&bytes).expect("a failure"))
    };
    // A letter of two bytes that would end one byte too late.
    let (length, cut) = failure(&format!("{}é", "x".repeat(2047)));
    assert_eq!((length, cut.text.len(), cut.detail, cut.code), (10 + 2047, 2047, -5, Code::Raised));
    assert_eq!(failure(&format!("{}é", "x".repeat(2046))).1.text.len(), 2048);
    // Names that are too long come out as such, and are not taken for others.
    for (length, fits) in [(MOST_NAME, true), (MOST_NAME + 1, false)] {
        let mut bytes = Vec::new();
        CallHead { routine: "n".repeat(length), ..CallHead::default() }.encode(&mut bytes);
        let read = CallHead::decode(&bytes).map(|head| head.routine.len());
        assert_eq!(read, if fits { Ok(length) } else { Err(DecodeError::Name) });
    }
}

#[test]
fn every_failure_has_a_number_of_its_own() {
    let known: Vec<u16> =
        (0..100).filter(|&number| !matches!(Code::of(number), Code::Other(_))).collect();
    let expected: Vec<u16> = (1..=18).chain(20..=23).chain([25, 26]).chain(30..=33).collect();
    assert_eq!(known, expected);
    for number in [0, 19, 24, 27, 29, 34, 1_000, u16::MAX] {
        assert_eq!(Code::of(number), Code::Other(number));
    }
    for number in (0..100).chain([u16::MAX]) {
        assert_eq!(Code::of(number).number(), number);
    }
}

#[test]
fn a_hello_has_its_bounds() {
    let token = |length: usize| {
        let hello = ClientHello { token: "t".repeat(length), ..ClientHello::default() };
        ClientHello::decode(&hello.encode()).map(|hello| hello.expect("whole").0.token.len())
    };
    assert_eq!((token(0), token(1024)), (Ok(0), Ok(1024)));
    assert_eq!(token(1025), Err(ProtocolError::Hello(DecodeError::Long)));
    let cut = ClientHello {
        program: "p".repeat(600),
        site: "s".repeat(70),
        maps_memory: true,
        ..ClientHello::default()
    };
    let (read, _) = ClientHello::decode(&cut.encode()).unwrap().unwrap();
    assert_eq!((read.program.len(), read.site.len(), read.maps_memory), (512, 64, true));
    // The fields may have 4,096 bytes.
    let mut bytes = ClientHello::default().encode();
    for (length, expected) in
        [(4096_u32, Ok(Err(16 + 4096))), (4097, Err(ProtocolError::Hello(DecodeError::Long)))]
    {
        bytes[12..16].copy_from_slice(&length.to_le_bytes());
        assert_eq!(ClientHello::decode(&bytes), expected);
    }
    // A wrong byte is refused as soon as it comes, and a right one asks for more.
    assert_eq!(ClientHello::decode(b"kumic"), Ok(Err(16)));
    assert_eq!(ClientHello::decode(b"kumiC"), Err(ProtocolError::Magic));
    assert_eq!(ClientHello::decode(b""), Ok(Err(16)));
    let shown = format!("{:?}", ClientHello { token: "hush".into(), ..ClientHello::default() });
    assert!(shown.contains("given") && !shown.contains("hush"));
    assert!(format!("{:?}", ClientHello::default()).contains("none"));
}

#[test]
fn the_highest_version_of_both_is_spoken() {
    let common = |client: std::ops::RangeInclusive<u16>, ours| {
        ClientHello { versions: client, ..ClientHello::default() }.common(&ours)
    };
    assert_eq!((common(1..=3, 2..=5), common(2..=5, 1..=3)), (Some(3), Some(3)));
    assert_eq!((common(3..=3, 1..=3), common(1..=1, 1..=1)), (Some(3), Some(1)));
    assert_eq!((common(4..=5, 1..=3), common(1..=1, 2..=3)), (None, None));
    assert_eq!(common(0..=0, 0..=0), None, "0 is no version");
}

#[test]
fn what_a_server_says_of_itself_arrives() {
    let local = kumi_rpc::LocalEndpoint { secret: [8; 16], port: 0x0102 };
    for (role, shares_memory, local, vouchers) in [
        (Role::Server, true, Some(local), VoucherSupport::Known),
        (Role::Metaserver, false, None, VoucherSupport::Wanted),
        (Role::Server, false, None, VoucherSupport::Unknown),
    ] {
        let hello = ServerHello { role, shares_memory, local, vouchers, ..hello() };
        let bytes = hello.encode();
        assert_eq!(ServerHello::decode(&bytes), Ok(Ok((hello.clone(), bytes.len()))));
        let mut client = Client::new();
        let event = ClientEvent::Hello(hello);
        assert_eq!(client.step(&bytes), Ok(Step::Event(bytes.len(), Some(event))));
    }
}

/// Fields with contents of later versions say nothing, and none of them ends the connection.
#[test]
fn fields_with_unknown_contents_are_passed_over() {
    let tail = |tag: u16, content: &[u8]| {
        let mut bytes = hello().encode();
        let more = [&tag.to_le_bytes()[..], &[content.len() as u8, 0], content].concat();
        bytes.extend_from_slice(&more);
        let fields = (bytes.len() - 16) as u32;
        bytes[12..16].copy_from_slice(&fields.to_le_bytes());
        ServerHello::decode(&bytes).map(|hello| hello.expect("whole").0)
    };
    for (tag, content) in [
        (7, &[2][..]),
        (7, &[]),
        (10, &[2]),
        (11, &[0; 17]),
        (11, &[0; 19]),
        (12, &[3]),
        (12, &[1, 1]),
        (99, &[1]),
    ] {
        assert_eq!(tail(tag, content), Ok(hello()), "{tag} {content:?}");
    }
    assert_eq!(tail(7, &[1]).unwrap().role, Role::Metaserver);
    assert_eq!(tail(12, &[1]).unwrap().vouchers, VoucherSupport::Known);
    assert_eq!(tail(12, &[2]).unwrap().vouchers, VoucherSupport::Wanted);
    assert!(tail(10, &[1]).unwrap().shares_memory);
    assert!(tail(11, &[7; 18]).unwrap().local.is_some());
}

#[test]
fn directions_are_parts_of_each_other() {
    let all = [(false, false), (true, false), (false, true), (true, true)]
        .map(|(sent, returned)| SharedDirections { sent, returned });
    for (one, a) in all.iter().enumerate() {
        for (two, b) in all.iter().enumerate() {
            // As sets of bits.
            assert_eq!(a.is_part_of(*b), one & !two == 0, "{a:?} {b:?}");
        }
    }
}
