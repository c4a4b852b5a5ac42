//! Limits on memory: clients that do not read or do not send, and memory reused between clients.
#![forbid(unsafe_code)]

mod common;

use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use common::{config, read_some, served};
use kumi_call::{CallError, Client};
use kumi_rpc::{CallHead, ClientEvent, ClientHello, Code, Step, Value};

#[test]
fn results_of_one_client_are_never_seen_by_another() {
    let server = served(config());
    let (client, other) = (server.client(), server.client());
    let (n, secret) = (64, vec![7.0; 64 * 64]);
    let mut product = vec![0.0; 64 * 64];
    let args = vec![n.into(), (&secret).into(), (&secret).into(), (&mut product).into()];
    client.call("dmmul", args).expect("it runs");
    let mut kept = vec![1.0; 3 * 64 * 64];
    other.call("keep", vec![(3 * 64 * 64).into(), (&mut kept).into()]).expect("it runs");
    assert!(kept.iter().all(|cell| *cell == 0.0), "what another has left");
}

#[test]
fn memory_that_a_process_cannot_map_is_its_calls_failure() {
    let mut limited = config();
    limited.process_bytes = 256 << 20;
    limited.call_bytes = 1 << 30;
    limited.bytes = 1 << 30;
    let server = served(limited);
    let client = server.client();
    let keep = |client: &Client, n: i32| {
        let mut x = vec![0.0; n as usize];
        client.call("keep", vec![n.into(), (&mut x).into()])
    };
    match keep(&client, 64 << 20) {
        Err(CallError::NotRunnable(text)) => assert!(text.contains("cannot be mapped"), "{text}"),
        other => panic!("{other:?}"),
    }
    keep(&client, 16).expect("it runs");
}

/// A raw client.
struct RawClient {
    socket: TcpStream,
    rpc: kumi_rpc::Client,
    input: Vec<u8>,
}

impl RawClient {
    fn new(address: std::net::SocketAddr) -> RawClient {
        let mut socket = TcpStream::connect(address).expect("a connection");
        let hello = ClientHello::default().encode();
        socket.write_all(&hello).expect("it is sent");
        let limit = Some(Duration::from_secs(60));
        socket.set_read_timeout(limit).expect("a limit");
        let mut raw_client = RawClient { socket, rpc: kumi_rpc::Client::new(), input: Vec::new() };
        assert!(matches!(raw_client.event(), ClientEvent::Hello(_)));
        raw_client
    }

    /// The next event from the server.
    fn event(&mut self) -> ClientEvent {
        loop {
            match self.rpc.step(&self.input).expect("the protocol") {
                Step::Event(consumed, event) => {
                    self.input.drain(..consumed);
                    if let Some(event) = event {
                        return event;
                    }
                }
                Step::More(_) => {
                    let mut buffer = [0; 4096];
                    let count = read_some(&mut self.socket, &mut buffer).expect("something");
                    assert!(count > 0, "the server closed the connection");
                    self.input.extend_from_slice(&buffer[..count]);
                }
                Step::Data(..) => panic!("no array was asked for"),
            }
        }
    }
}

#[test]
fn a_client_that_does_not_read_is_not_read_either() {
    const ASKED: usize = 60_000;
    let server = served(config());
    let mut raw_client = RawClient::new(server.address);
    let mut bytes = Vec::new();
    let streams: Vec<u32> = (0..ASKED)
        .map(|_| raw_client.rpc.interface("dmmul", &mut bytes).expect("a name"))
        .collect();
    let mut socket = raw_client.socket.try_clone().expect("a descriptor");
    // Together they exceed the limit, so the rest waits at the client.
    let writes = std::thread::spawn(move || socket.write_all(&bytes).expect("it is sent"));
    server.client().call("noop", vec![]).expect("others are served meanwhile");
    let mut length = 0;
    for stream in streams {
        let event = raw_client.event();
        let ClientEvent::Description(answered, _, json) = event else { panic!("{event:?}") };
        assert_eq!(answered, stream);
        length += json.len();
    }
    writes.join().expect("all was taken");
    assert!(length > kumi_rpc::MOST_UNREAD, "too few were asked: {length}");
}

#[test]
fn arguments_that_do_not_come_hold_memory_for_the_calls_time_only() {
    let mut limited = config();
    limited.call_time = Some(Duration::from_millis(300));
    limited.bytes = 1 << 20;
    limited.call_bytes = 1 << 20;
    let server = served(limited);
    let client = server.client();
    let known = client.interface("dmmul").expect("a description");
    let json = known.to_json().expect("its text");
    let head = CallHead {
        hash: twox_hash::XxHash3_64::oneshot(json.as_bytes()),
        timeout_ms: 0,
        routine: "dmmul".to_owned(),
        values: vec![(0, Value::I64(200))],
        ..CallHead::default()
    };
    let mut raw_client = RawClient::new(server.address);
    let mut bytes = Vec::new();
    let stream = raw_client.rpc.call(&head, &[], &mut bytes).expect("short");
    raw_client.socket.write_all(&bytes).expect("it is sent");
    match raw_client.event() {
        ClientEvent::Failed(failed, failure) => {
            assert_eq!((failed, failure.code), (stream, Code::TimedOut));
            assert!(failure.text.contains("arguments came too late"), "{}", failure.text);
        }
        other => panic!("{other:?}"),
    }
    // Its memory was another client's.
    let (a, mut c) = (vec![0.0; 200 * 200], vec![0.0; 200 * 200]);
    loop {
        let args = vec![200.into(), (&a).into(), (&a).into(), (&mut c).into()];
        match client.call("dmmul", args) {
            // On a busy machine this takes longer than the call's limit.
            Err(CallError::TimedOut(_)) => {}
            ended => break ended.map(|_| ()).expect("it runs"),
        }
    }
}
