//! Keep-alive, shutdown, and requests that cannot be sent.
#![forbid(unsafe_code)]

mod common;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use common::{config, param, read_some, routine, served, served_by};
use kumi_call::server::Registry;
use kumi_call::{Arg, CallError, Client, Options};
use kumi_idl::{Element, Expr, Mode, Param, Type};
use kumi_rpc::{ClientHello, Failure, HEADER, ServerHello};

#[test]
fn a_server_that_ends_says_so() {
    let mut server = served(config());
    let client = server.client();
    client.call("noop", vec![]).expect("it runs");
    let mut idle = TcpStream::connect(server.address).expect("a connection");
    let hello = ClientHello::default();
    idle.write_all(&hello.encode()).expect("it is sent");
    // The server reads the hello before it ends, so that this is a client by then.
    let mut said = vec![0; 16];
    idle.read_exact(&mut said).expect("a hello");
    let mut call = client.call_async("nap", vec![Arg::from(600_000)], None).expect("it is sent");
    // The server has seen the call once it has handled a later one.
    client.call("noop", vec![]).expect("it runs");
    server.stop();
    match call.wait(&|| false) {
        Err(CallError::Lost(text)) => assert!(text.contains("the server ends"), "{text}"),
        other => panic!("{other:?}"),
    }
    idle.read_to_end(&mut said).expect("an end");
    let (_, length) = ServerHello::decode(&said).expect("a hello").expect("whole");
    let failure = Failure::decode(&said[length + HEADER..]).expect("well-formed");
    assert_eq!((failure.code.number(), &said[length + 4..length + 8]), (12, &[0; 4][..]));
}

#[test]
fn a_client_that_waits_answers_pings() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address").to_string();
    let server = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().expect("a client");
        socket.set_read_timeout(Some(Duration::from_secs(60))).expect("a limit");
        let mut head = [0; 16];
        socket.read_exact(&mut head).expect("a hello");
        let fields = u32::from_le_bytes([head[12], head[13], head[14], head[15]]);
        socket.read_exact(&mut vec![0; fields as usize]).expect("its fields");
        let hello = ServerHello {
            version: Ok(1),
            highest: 1,
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
        socket.write_all(&hello.encode()).expect("it is sent");
        let mut list = [0; HEADER];
        socket.read_exact(&mut list).expect("a question");
        assert_eq!((list[4], list[8]), (1, 2));
        for ping in [b"12345678", b"abcdefgh"] {
            socket.write_all(b"\x08\0\0\0\0\0\0\0\x06\0\0\0").expect("it is sent");
            socket.write_all(ping).expect("it is sent");
            let mut pong = [0; 20];
            socket.read_exact(&mut pong).expect("an answer");
            assert_eq!(&pong[..HEADER], b"\x08\0\0\0\0\0\0\0\x07\0\0\0");
            assert_eq!(&pong[HEADER..], ping);
        }
        socket.write_all(b"\x03\0\0\0\x01\0\0\0\x09\0\0\0\x01\0f").expect("it is sent");
        // Until the client leaves.
        let _end = read_some(&mut socket, &mut [0; 1]);
    });
    let client = Client::connect(&address, &Options::default()).expect("a connection");
    assert_eq!(client.names("").expect("names"), ["f"]);
    drop(client);
    server.join().expect("it is answered");
}

#[test]
fn what_cannot_be_asked_is_not_sent() {
    let server = served(config());
    let client = server.client();
    for name in ["", "f\n", &"x".repeat(513)] {
        match client.call(name, vec![]) {
            Err(CallError::RoutineNotFound(text)) => {
                assert!(text.starts_with("no routine can have the name `"), "{text}");
                assert!(!text.contains('\n'), "{text}");
            }
            other => panic!("{other:?}"),
        }
    }
    let long = client.names(&"x".repeat((64 << 10) + 1));
    assert!(matches!(long, Err(CallError::TooLarge(_))), "{long:?}");
    client.call("noop", vec![]).expect("the connection is there still");
}

#[test]
fn texts_that_could_not_be_sent_back_are_refused_before_the_call() {
    let mut registry = Registry::default();
    let text =
        Param { ty: Type::String, ..param("answer", Mode::Out, Element::U8, &[Expr::Param(0)]) };
    let size = param("size", Mode::In, Element::I64, &[]);
    registry.add(routine("shout", vec![size, text]), &[common::library()]).expect("a routine");
    let server = served_by(config(), registry);
    match server.client().call("shout", vec![(2_i64 << 20).into()]) {
        Err(error @ CallError::TooLarge(_)) => {
            assert!(error.has_not_run() && error.to_string().contains("2097152"), "{error}");
        }
        other => panic!("{other:?}"),
    }
}
