//! TLS: trust, error messages, and secrecy on the network.
#![forbid(unsafe_code)]

#[path = "common/authority.rs"]
mod authority;
mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use authority::Authority;
use common::{TestServer, config, read_some, served};
use kumi_call::server::Config;
use kumi_call::users::{NewToken, Users, add};
use kumi_call::{CallError, Client, Options, Tls};

fn secured(tls: Tls) -> TestServer {
    let mut config = config();
    config.tls = Some(tls);
    served(config)
}

fn connect(address: SocketAddr, ca: &Path, token: &str) -> Result<Client, CallError> {
    let ca = Some(ca.to_owned());
    let options = Options { ca, token: token.to_owned(), ..Options::default() };
    Client::connect(&format!("tls://{address}"), &options)
}

fn multiply(client: &Client, n: i32, seed: i32) {
    let count = (n * n) as usize;
    let a: Vec<f64> = (0..count).map(|index| f64::from(index as i32 % 7 + seed)).collect();
    let mut unit = vec![0.0; count];
    (0..n as usize).for_each(|row| unit[row * n as usize + row] = 2.0);
    let mut c = vec![0.0; count];
    let args = vec![n.into(), (&a).into(), (&unit).into(), (&mut c).into()];
    client.call("dmmul", args).expect("it runs");
    assert!(a.iter().zip(&c).all(|(was, is)| 2.0 * was == *is), "n = {n}");
}

#[test]
fn calls_over_tls_are_calls() {
    let authority = Authority::new();
    let server = secured(authority.server("127.0.0.1"));
    let client = connect(server.address, &authority.file(), "").expect("a connection");
    assert!(client.names("").expect("names").contains(&"dmmul".to_owned()));
    // From less than a record to more than the output buffer.
    for n in [0, 1, 3, 45, 46, 300] {
        multiply(&client, n, 1);
    }
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let client = &client;
            scope.spawn(move || (0..10).for_each(|round| multiply(client, 20 + 9 * round, thread)));
        }
    });
    let nap = client.call_within("nap", vec![60_000.into()], Some(Duration::from_millis(50)));
    assert!(matches!(nap, Err(CallError::TimedOut(_))), "{nap:?}");
    match client.call("crash", vec![]) {
        Err(CallError::Crashed { detail: 6, .. }) => {}
        other => panic!("{other:?}"),
    }
    multiply(&client, 10, 3);
}

/// The message of a failed connection.
fn refused(result: Result<Client, CallError>) -> String {
    match result {
        Err(error @ CallError::Tls { .. }) => {
            assert!(error.has_not_run());
            error.to_string()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn who_is_not_who_it_should_be_is_not_spoken_to() {
    let (authority, other) = (Authority::new(), Authority::new());
    let server = secured(authority.server("127.0.0.1"));
    let said = refused(connect(server.address, &other.file(), ""));
    assert!(said.contains("not trusted here") && said.contains("--ca"), "{said}");
    // The system's authorities do not know it either.
    let said = Client::connect(&format!("tls://{}", server.address), &Options::default());
    assert!(matches!(said, Err(CallError::Tls { .. })), "{said:?}");
    let elsewhere = secured(authority.server("elsewhere.example"));
    let said = refused(connect(elsewhere.address, &authority.file(), ""));
    assert!(said.contains("another name") && said.contains("elsewhere.example"), "{said}");
    let said = refused(connect(server.address, Path::new("/nowhere/ca.pem"), ""));
    assert!(said.contains("/nowhere/ca.pem cannot be read"), "{said}");
    let empty = authority.folder.path().join("empty.pem");
    std::fs::write(&empty, "nothing").expect("written");
    let said = refused(connect(server.address, &empty, ""));
    assert!(said.contains("contains no certificate"), "{said}");
    multiply(&connect(server.address, &authority.file(), "").expect("a connection"), 2, 1);
}

#[test]
fn one_side_alone_has_tls() {
    let authority = Authority::new();
    let with = secured(authority.server("127.0.0.1"));
    let without = served(config());
    let said = refused(Client::connect(&with.address.to_string(), &Options::default()));
    assert!(said.contains("tls://HOST:PORT"), "{said}");
    let said = refused(connect(without.address, &authority.file(), ""));
    assert!(said.contains("does not speak TLS"), "{said}");
    // Noise harms nobody.
    for noise in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0x16, 3, 1, 0xff, 0xff], &[0; 100], b"k"] {
        let mut raw_client = TcpStream::connect(with.address).expect("a connection");
        raw_client.write_all(noise).expect("it is sent");
        raw_client.shutdown(std::net::Shutdown::Write).expect("its end");
        let _end = raw_client.read_to_end(&mut Vec::new());
    }
    multiply(&connect(with.address, &authority.file(), "").expect("a connection"), 2, 1);
    multiply(&without.client(), 2, 1);
}

#[test]
fn a_server_that_says_nothing_is_not_waited_for() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("its address");
    let authority = Authority::new();
    let options = Options {
        ca: Some(authority.file()),
        connect_time: Duration::from_millis(50),
        ..Options::default()
    };
    let said = refused(Client::connect(&format!("tls://{address}"), &options));
    assert!(said.contains("timed out"), "{said}");
}

/// Relays and records the bytes between one client and a server.
fn tapped(server: SocketAddr) -> (SocketAddr, Arc<Mutex<Vec<u8>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    let kept = Arc::<Mutex<Vec<u8>>>::default();
    let tape = Arc::clone(&kept);
    std::thread::spawn(move || {
        let (client, _) = listener.accept().expect("a client");
        let server = TcpStream::connect(server).expect("the server");
        let pass = |mut from: TcpStream, mut to: TcpStream, tape: Arc<Mutex<Vec<u8>>>| {
            let mut buffer = vec![0; 64 << 10];
            while let Ok(count @ 1..) = read_some(&mut from, &mut buffer) {
                tape.lock().expect("the tape").extend_from_slice(&buffer[..count]);
                if to.write_all(&buffer[..count]).is_err() {
                    break;
                }
            }
            let _gone = to.shutdown(std::net::Shutdown::Write);
        };
        let back = (server.try_clone().expect("a copy"), client.try_clone().expect("a copy"));
        let other = Arc::clone(&tape);
        let answers = std::thread::spawn(move || pass(back.0, back.1, other));
        pass(client, server, tape);
        answers.join().expect("it ends well");
    });
    (address, kept)
}

fn has(tape: &Mutex<Vec<u8>>, what: &[u8]) -> bool {
    tape.lock().expect("the tape").windows(what.len()).any(|window| window == what)
}

#[test]
fn nothing_can_be_read_on_the_way() {
    let authority = Authority::new();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("users.toml");
    let new = NewToken { user: "ada".to_owned(), ..NewToken::default() };
    let token = add(&file, &new).expect("a token");
    let users = Arc::new(Users::open(&file).expect("users"));
    let serve = |tls: Option<Tls>| {
        let base = config();
        served(Config { users: Some(Arc::clone(&users)), tls, ..base })
    };
    let pattern = 1_234.567_890_123_f64;
    let call = |client: &Client| {
        let (a, mut c) = (vec![pattern; 4096], vec![0.0; 4096]);
        let mut unit = vec![0.0; 4096];
        (0..64).for_each(|row| unit[row * 65] = 1.0);
        let args = vec![64.into(), (&a).into(), (&unit).into(), (&mut c).into()];
        client.call("dmmul", args).expect("it runs");
        assert_eq!(a, c);
    };
    let secrets =
        [token.as_bytes(), &pattern.to_le_bytes()[..], b"dmmul", b"kumicall", b"KUMICALL"];
    let (open, closed) = (serve(None), serve(Some(authority.server("127.0.0.1"))));
    // Without TLS the tap reads everything, so it works.
    let (address, tape) = tapped(open.address);
    let options = Options { token: token.clone(), ..Options::default() };
    call(&Client::connect(&address.to_string(), &options).expect("a connection"));
    assert!(secrets.iter().all(|secret| has(&tape, secret)));
    let (address, tape) = tapped(closed.address);
    call(&connect(address, &authority.file(), &token).expect("a connection"));
    assert!(tape.lock().expect("the tape").len() > 3 * 4096 * 8);
    assert!(!secrets.iter().any(|secret| has(&tape, secret)));
}
