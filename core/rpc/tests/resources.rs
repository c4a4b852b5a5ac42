//! Threads and memory that a client asks for a call. Bytes are as docs/reference/call-protocol.md has them.

use kumi_rpc::{
    CallHead, CallMetadata, Client, ClientHello, FrameStep, Metaserver, Resources, Server,
    ServerEvent, ServerHello, Step, TraceContext,
};

/// 3 threads and 256 MiB.
const FRAME: &[u8] = b"\x0c\0\0\0\x01\0\0\0\x86\0\0\0\x03\0\0\0\0\0\0\x10\0\0\0\0";

fn resources() -> Resources {
    Resources::new(3, 256 << 20).expect("something")
}

/// A frame with this body, on stream 3.
fn frame(body: &[u8]) -> Vec<u8> {
    let length = u8::try_from(body.len()).expect("short");
    [&[length, 0, 0, 0, 3, 0, 0, 0, 134, 0, 0, 0], body].concat()
}

fn greeted_server() -> (Server, Vec<u8>) {
    let mut server = Server::new(4);
    let hello = ClientHello::default();
    server.step(&hello.encode()).expect("well-formed");
    assert!(server.welcome(&hello, "s", 3));
    let greeting = server.send_queue().pieces().map(|piece| match piece {
        kumi_rpc::SendPiece::Bytes(bytes) => bytes.to_vec(),
        kumi_rpc::SendPiece::Data(..) => panic!("no array comes with a hello"),
    });
    let greeting = greeting.collect::<Vec<_>>().concat();
    (server, greeting)
}

#[test]
fn nothing_is_no_request() {
    assert_eq!(Resources::new(0, 0), None);
    let threads = Resources::new(2, 0).expect("threads");
    assert_eq!((threads.threads().map(u32::from), threads.memory()), (Some(2), None));
    let memory = Resources::new(0, 7).expect("memory");
    assert_eq!((memory.threads(), memory.memory().map(u64::from)), (None, Some(7)));
}

#[test]
fn the_frame_goes_before_a_call() {
    let (mut client, mut out) = (Client::new(), Vec::new());
    let head = CallHead { routine: "f".into(), ..CallHead::default() };
    let stream = client.call(&head, &[], &mut out).expect("short");
    let call = out.clone();
    Client::ask_resources(stream, &resources(), &mut out);
    assert_eq!(out, [FRAME, &call].concat());
    let (mut server, _) = greeted_server();
    let asked = ServerEvent::Resources(1, resources());
    assert_eq!(server.step(&out), Ok(Step::Event(FRAME.len(), Some(asked))));
    let step = server.step(&out[FRAME.len()..]);
    assert!(matches!(step, Ok(Step::Event(_, Some(ServerEvent::Call(1, _))))), "{step:?}");
}

#[test]
fn all_that_is_said_of_a_call_goes_before_it() {
    let (mut client, mut out) = (Client::new(), Vec::new());
    let head = CallHead { routine: "f".into(), ..CallHead::default() };
    let stream = client.call(&head, &[], &mut out).expect("short");
    let parent = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let trace = TraceContext::parse(parent).expect("a traceparent");
    let metadata = CallMetadata { listens: true, trace: Some(trace), resources: Some(resources()) };
    client.metadata(stream, &metadata, &mut out);
    let ((mut server, _), mut events) = (greeted_server(), Vec::new());
    let mut at = 0;
    while at < out.len() {
        match server.step(&out[at..]).expect("well-formed") {
            Step::Event(length, Some(event)) => {
                at += length;
                events.push(event);
            }
            other => panic!("{other:?}"),
        }
    }
    let expected = [
        ServerEvent::Trace(1, trace),
        ServerEvent::Resources(1, resources()),
        ServerEvent::Listen(1),
        ServerEvent::Call(1, head),
    ];
    assert_eq!(events, expected);
}

#[test]
fn other_bodies_are_refused() {
    for body in [&[0; 12][..], &[1; 11], &[1; 13], b""] {
        let (mut server, _) = greeted_server();
        assert!(server.step(&frame(body)).is_err(), "{body:?}");
        assert!(greeted_metaserver().step(&frame(body)).is_err(), "{body:?}");
    }
}

fn greeted_metaserver() -> Metaserver {
    let mut meta = Metaserver::new(4);
    let hello = ClientHello::default();
    meta.step(&hello.encode()).expect("well-formed");
    assert!(meta.welcome(&hello, "m"));
    meta
}

#[test]
fn a_metaserver_reads_on_behind_the_frame() {
    assert_eq!(greeted_metaserver().step(FRAME), Ok(FrameStep::Event(FRAME.len(), None)));
}

#[test]
fn a_server_says_that_it_gives_resources() {
    let (_, mut greeting) = greeted_server();
    // Tag 13, one byte. It goes to the end, where a test can change it.
    let tag = b"\x0d\0\x01\0\x01";
    let at = greeting.windows(tag.len()).position(|bytes| bytes == tag).expect("the tag");
    greeting.drain(at..at + tag.len());
    greeting.extend_from_slice(tag);
    let (hello, _) = ServerHello::decode(&greeting).expect("a hello").expect("whole");
    assert!(hello.gives_resources);
    let mut other = greeting.clone();
    *other.last_mut().expect("a byte") = 2;
    let (hello, _) = ServerHello::decode(&other).expect("a hello").expect("whole");
    assert!(!hello.gives_resources, "another value is of another version");
    // The hello of a version that does not know the tag.
    let mut old = greeting[..greeting.len() - 5].to_vec();
    old[12] -= 5;
    let (hello, _) = ServerHello::decode(&old).expect("a hello").expect("whole");
    assert!(!hello.gives_resources);
}
