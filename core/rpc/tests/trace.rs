//! Traces that calls are parts of.

use kumi_rpc::{
    CallHead, Client, ClientHello, FrameStep, Metaserver, MetaserverEvent, PlacementRequest,
    Server, ServerEvent, Step, TraceContext, TraceContextError,
};

const TEXT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn context() -> TraceContext {
    TraceContext::parse(TEXT.as_bytes()).expect("a traceparent")
}

#[test]
fn a_traceparent_is_read_and_written() {
    let context = context();
    assert_eq!(context.to_string(), TEXT);
    assert_eq!(context.trace().to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_eq!(context.span().to_string(), "00f067aa0ba902b7");
    let next = context.in_span([0xab; 8]).expect("a span");
    assert_eq!(next.to_string(), TEXT.replace("00f067aa0ba902b7", "abababababababab"));
    assert_eq!(context.in_span([0; 8]), None);
    // Later versions may have more behind what this one has.
    for more in ["", "-", "-what is to come"] {
        let later = TEXT.replacen("00", "cc", 1) + more;
        assert_eq!(TraceContext::parse(later.as_bytes()), Ok(context), "{later}");
    }
}

#[test]
fn what_is_no_traceparent_is_refused() {
    let mut wrong: Vec<String> =
        vec![String::new(), "-".into(), TEXT.into(), TEXT[1..].into(), TEXT.to_uppercase()];
    wrong[2].push('-');
    wrong.extend([TEXT.replacen("00", "ff", 1), TEXT.replacen("00", "cc", 1) + "00"]);
    for at in 0..TEXT.len() {
        let mut text = TEXT.as_bytes().to_vec();
        for letter in [b'g', b' ', 0, 0xff] {
            text[at] = letter;
            assert_eq!(TraceContext::parse(&text), Err(TraceContextError::Form), "{at}");
        }
        assert_eq!(TraceContext::parse(&text[..at]), Err(TraceContextError::Form));
    }
    for text in wrong {
        assert_eq!(TraceContext::parse(text.as_bytes()), Err(TraceContextError::Form), "{text}");
    }
    for number in [&TEXT[3..35], &TEXT[36..52]] {
        let zero = TEXT.replace(number, &"0".repeat(number.len()));
        assert_eq!(TraceContext::parse(zero.as_bytes()), Err(TraceContextError::Zero), "{zero}");
    }
}

/// A frame as docs/reference/call-protocol.md has it.
fn frame(stream: u8, body: &[u8]) -> Vec<u8> {
    let length = u8::try_from(body.len()).expect("short");
    [&[length, 0, 0, 0, stream, 0, 0, 0, 133, 0, 0, 0], body].concat()
}

fn greeted_server() -> Server {
    let mut server = Server::new(4);
    let hello = ClientHello::default();
    server.step(&hello.encode()).expect("well-formed");
    assert!(server.welcome(&hello, "s", 3));
    server
}

#[test]
fn the_frame_goes_before_a_call() {
    let (mut client, mut out) = (Client::new(), Vec::new());
    let head = CallHead { routine: "f".into(), ..CallHead::default() };
    let stream = client.call(&head, &[], &mut out).expect("short");
    let call = out.clone();
    Client::trace(stream, &context(), 0, &mut out);
    assert_eq!(out, [frame(1, TEXT.as_bytes()), call].concat());
    let mut server = greeted_server();
    let step = server.step(&out).expect("well-formed");
    let traced = ServerEvent::Trace(1, context());
    assert_eq!(step, Step::Event(12 + TEXT.len(), Some(traced)));
    // Another version may be sent by nobody, since a frame has the length of this one.
    for body in [&TEXT.as_bytes()[1..], &[b'0'; 55], &[b'0'; 56], b""] {
        let mut server = greeted_server();
        assert!(server.step(&frame(3, body)).is_err(), "{body:?}");
    }
}

#[test]
fn the_frame_goes_before_a_request_for_a_place() {
    let (mut client, mut out) = (Client::new(), b"before".to_vec());
    let placing = PlacementRequest {
        key: (1, 2),
        hash: 3,
        bytes_out: 4,
        bytes_back: 5,
        operations: 6.0,
        time_ms: 7,
        attempts: 0,
        priority: 0,
        idempotent: false,
        routine: "f".into(),
        bound: false,
        input_locations: vec![],
    };
    let stream = client.request_placement(&placing, &mut out).expect("short");
    Client::trace(stream, &context(), b"before".len(), &mut out);
    assert_eq!(out[..6], *b"before");
    let mut meta = Metaserver::new(4);
    let hello = ClientHello::default();
    meta.step(&hello.encode()).expect("well-formed");
    assert!(meta.welcome(&hello, "m"));
    let traced = MetaserverEvent::Trace(stream, context());
    let length = 12 + TEXT.len();
    assert_eq!(out[6..6 + length], frame(1, TEXT.as_bytes()));
    assert_eq!(meta.step(&out[6..]), Ok(FrameStep::Event(length, Some(traced))));
    let placed = meta.step(&out[6 + length..]).expect("well-formed");
    assert!(
        matches!(placed, FrameStep::Event(_, Some(MetaserverEvent::Place(1, _)))),
        "{placed:?}"
    );
    assert!(meta.step(&frame(3, &[b'0'; 55])).is_err());
}
