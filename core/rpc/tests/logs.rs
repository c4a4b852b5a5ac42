//! Requests for logs of calls. Bytes are as docs/reference/call-protocol.md has them.

use kumi_rpc::{
    Client, ClientEvent, ClientHello, Code, Failure, FrameStep, LogRequest, MOST_ANSWER,
    Metaserver, MetaserverEvent, SendPiece, Server, ServerEvent, ServerHello, Step, TraceContext,
    TraceId,
};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

fn trace() -> TraceId {
    TraceId::parse(TRACE.as_bytes()).expect("a trace")
}

/// A frame with this body.
fn frame(stream: u8, body: &[u8]) -> Vec<u8> {
    let length = u8::try_from(body.len()).expect("short");
    [&[length, 0, 0, 0, stream, 0, 0, 0, 216, 0, 0, 0], body].concat()
}

/// Every kind of request, with its bytes.
fn requests() -> [(LogRequest, &'static [u8]); 4] {
    [
        (LogRequest::Latest(20), b"\x01\x14\0\0\0"),
        (LogRequest::Call { call: 258, from: 3 }, b"\x02\x02\x01\0\0\0\0\0\0\x03\0\0\0\0\0\0\0"),
        (LogRequest::Placed(u64::MAX), b"\x03\xff\xff\xff\xff\xff\xff\xff\xff"),
        (
            LogRequest::Trace(trace()),
            b"\x04\x4b\xf9\x2f\x35\x77\xb3\x4d\xa6\xa3\xce\x92\x9d\x0e\x0e\x47\x36",
        ),
    ]
}

fn greeted_server() -> (Server, Vec<u8>) {
    let mut server = Server::new(1);
    let hello = ClientHello::default();
    server.step(&hello.encode()).expect("well-formed");
    assert!(server.welcome(&hello, "s", 3));
    let greeting = sent(&mut server);
    (server, greeting)
}

fn greeted_metaserver() -> Metaserver {
    let mut meta = Metaserver::new(1);
    let hello = ClientHello::default();
    meta.step(&hello.encode()).expect("well-formed");
    assert!(meta.welcome(&hello, "m"));
    meta
}

/// What a server has sent.
fn sent(server: &mut Server) -> Vec<u8> {
    let bytes = server.send_queue().pieces().map(|piece| match piece {
        SendPiece::Bytes(bytes) => bytes.to_vec(),
        SendPiece::Data(..) => panic!("no array was sent"),
    });
    let bytes = bytes.collect::<Vec<_>>().concat();
    server.send_queue().wrote(bytes.len());
    bytes
}

#[test]
fn a_trace_is_read_and_written() {
    assert_eq!(trace().to_string(), TRACE);
    let context = TraceContext::parse(format!("00-{TRACE}-00f067aa0ba902b7-01").as_bytes());
    assert_eq!(context.map(|context| context.trace_id()), Ok(trace()));
    let upper = TRACE.to_uppercase();
    for wrong in ["", &TRACE[1..], &format!("{TRACE}0"), &upper, &"0".repeat(32), &"g".repeat(32)] {
        assert!(TraceId::parse(wrong.as_bytes()).is_err(), "{wrong}");
    }
}

#[test]
fn every_request_comes_as_it_was_sent() {
    for (request, body) in requests() {
        let (mut client, mut out) = (Client::new(), Vec::new());
        assert_eq!(client.logs(&request, &mut out), 1);
        assert_eq!(out, frame(1, body));
        let (mut server, _) = greeted_server();
        let step = server.step(&out);
        assert_eq!(step, Ok(Step::Event(out.len(), Some(ServerEvent::Logs(1, request)))));
        let step = greeted_metaserver().step(&out);
        assert_eq!(step, Ok(FrameStep::Event(out.len(), Some(MetaserverEvent::Logs(1, request)))));
    }
}

#[test]
fn other_bodies_end_the_connection() {
    let mut wrong = vec![vec![], vec![0], vec![5; 9], b"\x01\0\0\0\0".to_vec()];
    wrong.push([&[4][..], &[0; 16]].concat());
    for (_, body) in requests() {
        wrong.extend((1..body.len()).map(|length| body[..length].to_vec()));
        wrong.push([body, &[0]].concat());
    }
    for body in wrong {
        let (mut server, _) = greeted_server();
        assert!(server.step(&frame(3, &body)).is_err(), "{body:?}");
        assert!(greeted_metaserver().step(&frame(3, &body)).is_err(), "{body:?}");
    }
    // A question belongs to a stream, and has one answer at a time.
    let body = requests()[0].1;
    let (mut server, _) = greeted_server();
    assert!(server.step(&frame(0, body)).is_err());
    let (mut server, _) = greeted_server();
    assert!(server.step(&frame(3, body)).is_ok());
    assert!(server.step(&frame(3, body)).is_err());
    // A client is asked nothing.
    let (_, greeting) = greeted_server();
    let mut client = Client::new();
    assert!(client.step(&greeting).is_ok());
    assert!(client.step(&frame(1, body)).is_err());
}

#[test]
fn too_many_requests_at_once_are_refused() {
    let (mut server, _) = greeted_server();
    let body = requests()[0].1;
    assert!(matches!(server.step(&frame(1, body)), Ok(Step::Event(_, Some(_)))));
    assert!(matches!(server.step(&frame(2, body)), Ok(Step::Event(_, None))));
    assert_eq!(sent(&mut server)[8], 11, "an ERROR");
    server.logs(1, "{}");
    assert!(matches!(server.step(&frame(2, body)), Ok(Step::Event(_, Some(_)))));
}

#[test]
fn the_answer_is_a_state() {
    let (mut server, greeting) = greeted_server();
    let (mut client, mut out) = (Client::new(), Vec::new());
    client.step(&greeting).expect("well-formed");
    let stream = client.logs(&LogRequest::Latest(1), &mut out);
    server.step(&out).expect("well-formed");
    server.logs(stream, "{\"calls\":[]}");
    let answer = sent(&mut server);
    assert_eq!(answer, [&b"\x0c\0\0\0\x01\0\0\0\x2d\0\0\0"[..], b"{\"calls\":[]}"].concat());
    let event = ClientEvent::State(stream, "{\"calls\":[]}".to_owned());
    assert_eq!(client.step(&answer), Ok(Step::Event(answer.len(), Some(event))));
    // The stream has ended.
    assert!(client.step(&answer).is_err());
    // An answer that no frame holds is an error, and the connection goes on.
    let stream = client.logs(&LogRequest::Latest(1), &mut Vec::new());
    server.step(&frame(2, requests()[0].1)).expect("well-formed");
    server.logs(stream, &" ".repeat(MOST_ANSWER + 1));
    let answer = sent(&mut server);
    let step = client.step(&answer).expect("well-formed");
    assert!(matches!(step, Step::Event(_, Some(ClientEvent::Failed(2, _)))), "{step:?}");
}

#[test]
fn servers_and_metaservers_say_that_they_have_logs() {
    let (_, mut greeting) = greeted_server();
    // Tag 216, one byte. It goes to the end, where a test can change it.
    let tag = b"\xd8\0\x01\0\x01";
    let at = greeting.windows(tag.len()).position(|bytes| bytes == tag).expect("the tag");
    greeting.drain(at..at + tag.len());
    greeting.extend_from_slice(tag);
    let shows = |hello: &[u8]| {
        let (hello, _) = ServerHello::decode(hello).expect("a hello").expect("whole");
        hello.shows_logs
    };
    assert!(shows(&greeting) && shows(greeted_metaserver().out()));
    let mut other = greeting.clone();
    *other.last_mut().expect("a byte") = 2;
    assert!(!shows(&other), "another value is of another version");
    // The hello of a version that does not know the tag.
    let mut old = greeting[..greeting.len() - 5].to_vec();
    old[12] -= 5;
    assert!(!shows(&old));
}

#[test]
fn texts_of_servers_neither_move_a_terminal_nor_turn_text() {
    let mut bytes = Vec::new();
    Failure::new(Code::Crashed, 0, "a\tb\x1b[2J\u{9b}\u{200f}c\u{202e}d\u{2066}é")
        .encode(&mut bytes);
    let text = Failure::decode(&bytes).expect("a failure").text;
    assert_eq!(text, "a\tb\\u{1b}[2J\\u{9b}\\u{200f}c\\u{202e}d\\u{2066}é");
}
