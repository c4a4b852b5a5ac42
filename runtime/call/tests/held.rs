//! Arrays that stay at servers, and go from one to the other.
#![forbid(unsafe_code)]

mod common;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use common::{TestServer, config, eventually, served};
use kumi_call::server::{Config, Peers};
use kumi_call::{Arg, Array, CallError, Client, HeldNames, RemoteArray, Traffic};
use kumi_rpc::{HeldArrayName, HeldArrayPart, HeldResult};

const MINUTE: Duration = Duration::from_secs(60);

/// A server and its counters.
fn counted(change: impl FnOnce(&mut Config)) -> (TestServer, Arc<Traffic>) {
    let mut config = config();
    change(&mut config);
    let traffic = Arc::clone(&config.traffic);
    (served(config), traffic)
}

fn names() -> HeldNames {
    HeldNames::new().expect("random bytes")
}

fn stays(name: HeldArrayName) -> Arg<'static> {
    Arg::Remote(Box::new(RemoteArray::stays(name, MINUTE)))
}

fn held(name: HeldArrayName, bytes: u64, server: &str) -> Arg<'static> {
    Arg::Remote(Box::new(RemoteArray::held(name, bytes, server)))
}

/// Makes a server hold an array of this many numbers.
fn fill(client: &Client, count: i32, x: f64, y: Arg<'_>) -> Result<(), CallError> {
    client.call("fill", vec![count.into(), 0.into(), x.into(), y]).map(|_| ())
}

#[test]
fn results_stay_and_are_arguments_of_the_next_call() {
    let (server, traffic) = counted(|_| {});
    let client = server.client();
    let mut names = names();
    let (one, two) = (names.fresh(), names.fresh());
    let (a, b) = ([1.0, 2.0, 3.0, 4.0], [0.0, 1.0, 1.0, 0.0]);
    let product = |a: Arg<'_>, c: Arg<'_>| {
        client.call("dmmul", vec![2.into(), a, b.as_slice().into(), c]).expect("it runs");
    };
    product(a.as_slice().into(), stays(one));
    let mut c = [0.0; 4];
    product(held(one, 32, ""), c.as_mut_slice().into());
    assert_eq!(c, a, "columns were exchanged twice");
    // Held and sent; also by the server's own address.
    let keep = Some(HeldResult { name: two, lifetime_ms: 60_000, sent: true, survives: false });
    let to = Some(kumi_call::ArrayMut::flat(&mut c));
    let address = server.address.to_string();
    product(
        held(one, 32, &address),
        Arg::Remote(Box::new(RemoteArray { to, keep, ..RemoteArray::default() })),
    );
    assert_eq!(c, a);
    let mut fetched = [0.0; 2];
    client.fetch(two, 16, &mut fetched).expect("it is held");
    assert_eq!(fetched, [3.0, 4.0]);
    assert_eq!(Traffic::of(&traffic.from_clients), 4 * 32);
    eventually("the last byte", || Traffic::of(&traffic.to_clients) == 2 * 32);
    assert_eq!(Traffic::of(&traffic.copied), 32);
    assert_eq!(Traffic::of(&traffic.from_servers), 32);
    eventually("the last byte", || Traffic::of(&traffic.fetched) == 32 + 16);
    client.let_go(&[one, two]).expect("it is told");
    let gone = client.fetch(one, 0, &mut fetched);
    assert!(matches!(gone, Err(CallError::NotHeld { yet: false, .. })), "{gone:?}");
}

#[test]
fn arrays_are_sent_once_and_are_arguments_of_many_calls() {
    let (server, traffic) = counted(|_| {});
    let (client, other) = (server.client(), served(config()));
    let mut names = names();
    let (matrix, empty, large) = (names.fresh(), names.fresh(), names.fresh());
    let (a, b) = ([1.0, 2.0, 3.0, 4.0], [0.0, 1.0, 1.0, 0.0]);
    client.hold(matrix, &a, MINUTE).expect("there is room");
    for _ in 0..3 {
        let mut c = [0.0; 4];
        let args =
            vec![2.into(), held(matrix, 32, ""), b.as_slice().into(), c.as_mut_slice().into()];
        client.call("dmmul", args).expect("it runs");
        assert_eq!(c, [2.0, 1.0, 4.0, 3.0]);
    }
    assert_eq!(Traffic::of(&traffic.from_clients), 32 + 3 * 32, "the matrix, and b each time");
    // An array without numbers, and one of many chunks, also at another server.
    client.hold::<f64>(empty, &[], MINUTE).expect("there is room");
    client.fetch::<f64>(empty, 0, &mut []).expect("it is held");
    let mut nothing: [f64; 0] = [];
    let sum = vec![0.into(), held(empty, 0, ""), nothing.as_mut_slice().into()];
    client.call("add", sum).expect("it runs");
    let numbers: Vec<f64> = (0..300_000).map(f64::from).collect();
    client.hold(large, &numbers, MINUTE).expect("there is room");
    let mut y = vec![1.0; numbers.len()];
    let x = held(large, numbers.len() as u64 * 8, &server.address.to_string());
    other.client().call("add", vec![300_000.into(), x, (&mut y).into()]).expect("it runs");
    assert!(y.iter().zip(&numbers).all(|(y, x)| *y == x + 1.0));
    client.let_go(&[matrix]).expect("it is told");
    let gone = client.fetch(matrix, 0, &mut [0.0; 4]);
    assert!(matches!(gone, Err(CallError::NotHeld { yet: false, .. })), "{gone:?}");
}

#[test]
fn arrays_that_are_sent_have_the_bounds_of_those_that_stay() {
    let (server, _) = counted(|config| {
        // One array of 80,000 numbers, and a small one.
        (config.held_bytes, config.call_bytes) = ((1 << 20) + (64 << 10), 2 << 20);
    });
    let client = server.client();
    let mut names = names();
    let [first, second] = std::array::from_fn(|_| names.fresh());
    let numbers = vec![1.0; 80_000];
    client.hold(first, &numbers, MINUTE).expect("there is room");
    let error = client.hold(first, &[1.0], MINUTE).expect_err("the name is in use");
    assert!(error.to_string().contains("take another name"), "{error}");
    let error = client.hold(second, &numbers, MINUTE).expect_err("there is no room");
    assert!(matches!(error, CallError::HeldFull(_)), "{error:?}");
    let error = client.hold(second, &vec![1.0; 300_000], MINUTE).expect_err("it is too large");
    assert!(matches!(error, CallError::TooLarge(_)), "{error:?}");
    client.let_go(&[first]).expect("it is told");
    // What was refused took nothing, and the connection goes on.
    client.hold(second, &numbers, MINUTE).expect("there is room again");
    let mut y = [0.0; 2];
    client.fetch(second, 16, &mut y).expect("it is held");
    assert_eq!(y, [1.0, 1.0]);
    // It ends with its time.
    client.let_go(&[second]).expect("it is told");
    client.hold(first, &numbers, Duration::from_millis(1)).expect("there is room");
    eventually("its end", || client.fetch(first, 0, &mut y).is_err());
    client.hold(second, &numbers, MINUTE).expect("its room is free");
}

/// A connection on which half of an array of 1 MiB was sent to be held, and maybe the end of its stream.
fn half_sent(server: &TestServer, name: HeldArrayName, is_cancelled: bool) -> TcpStream {
    let mut raw = TcpStream::connect(server.address).expect("it listens");
    let mut sent = kumi_rpc::ClientHello::default().encode();
    let head = kumi_rpc::HoldRequest { name, lifetime_ms: 60_000, bytes: 1 << 20 };
    let stream = kumi_rpc::Client::new().hold(&head, &mut sent);
    sent.extend_from_slice(&kumi_rpc::chunk_header(stream, 0, 1 << 19));
    sent.resize(sent.len() + (1 << 19), 0);
    if is_cancelled {
        sent.extend_from_slice(&[0, 0, 0, 0, 1, 0, 0, 0, 5, 0, 0, 0]);
    }
    raw.write_all(&sent).expect("it is sent");
    raw
}

#[test]
fn an_array_that_is_given_up_on_the_way_leaves_nothing() {
    let (server, _) = counted(|config| config.held_bytes = 1 << 20);
    let mut names = names();
    let (name, kept) = (names.fresh(), names.fresh());
    // Of an array that takes all the room, half comes, and then the end of the connection or of the stream.
    for is_cancelled in [false, true] {
        let raw = half_sent(&server, name, is_cancelled);
        let client = server.client();
        let mut y = [0.0; 2];
        eventually("the begin, or the end", || match client.fetch(name, 0, &mut y) {
            Err(CallError::NotHeld { yet, .. }) => yet != is_cancelled,
            other => panic!("{other:?}"),
        });
        if !is_cancelled {
            drop(raw);
        }
        eventually("its room", || client.hold(kept, &[1.0; 100_000], MINUTE).is_ok());
        client.let_go(&[kept]).expect("it is told");
    }
}

/// A limit of calls is one of arrays that are sent; without one, they have as long as an array is held.
#[test]
fn an_array_that_does_not_arrive_in_time_leaves_nothing_and_is_refused() {
    let short = Duration::from_millis(300);
    for (call_time, held_time) in [(Some(short), MINUTE), (None, short)] {
        let (server, _) = counted(|config| {
            (config.held_bytes, config.call_time, config.held_time) =
                (1 << 20, call_time, held_time);
        });
        let mut names = names();
        let (name, kept) = (names.fresh(), names.fresh());
        let mut raw = half_sent(&server, name, false);
        let mut said = Vec::new();
        while !String::from_utf8_lossy(&said).contains("its bytes came too late") {
            let mut part = [0; 4096];
            let count = raw.read(&mut part).expect("an answer");
            assert!(count > 0, "the connection has ended");
            said.extend_from_slice(&part[..count]);
        }
        let client = server.client();
        let gone = client.fetch(name, 0, &mut [0.0]);
        assert!(matches!(gone, Err(CallError::NotHeld { yet: false, .. })), "{gone:?}");
        // On a slow machine this may take longer than it may, too.
        eventually("its room", || client.hold(kept, &[1.0; 100_000], MINUTE).is_ok());
    }
}

#[test]
fn a_server_of_an_earlier_version_is_not_sent_arrays() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address").to_string();
    let earlier = std::thread::spawn(move || {
        let hello = kumi_rpc::ServerHello {
            version: Ok(1),
            highest: 1,
            name: "old".to_owned(),
            streams: 1,
            bytes: 1,
            role: kumi_rpc::Role::default(),
            shares_memory: false,
            local: None,
            vouchers: kumi_rpc::VoucherSupport::Known,
            holds_arrays: false,
            shows_logs: false,
            gives_resources: false,
            binds_calls: false,
        };
        let (mut socket, _) = listener.accept().expect("a connection");
        socket.write_all(&hello.encode()).expect("it is sent");
        // The client's hello, and nothing more.
        let mut all = Vec::new();
        std::io::Read::read_to_end(&mut socket, &mut all).expect("it is read");
        let (_, length) = kumi_rpc::ClientHello::decode(&all).expect("a hello").expect("whole");
        assert_eq!(all.len(), length);
    });
    let client = Client::connect(&address, &kumi_call::Options::default()).expect("it answers");
    let error = client.hold(names().fresh(), &[1.0], MINUTE).expect_err("it cannot");
    assert!(error.to_string().contains("`old` is of a version that holds only results"), "{error}");
    drop(client);
    earlier.join().expect("it has ended");
}

#[test]
fn arrays_go_from_server_to_server() {
    let ((first, sent), (second, taken)) = (counted(|_| {}), counted(|_| {}));
    let (one, two) = (first.client(), second.client());
    let name = names().fresh();
    // Longer than a chunk; kept in a part of the call's memory.
    let count = 300_000;
    fill(&one, count, 2.5, stays(name)).expect("it runs");
    let (mut y, bytes) = (vec![1.0; count as usize], count as u64 * 8);
    let x = held(name, bytes, &first.address.to_string());
    two.call("add", vec![count.into(), x, (&mut y).into()]).expect("it runs");
    assert!(y.iter().all(|y| *y == 3.5));
    eventually("the last byte", || Traffic::of(&sent.fetched) == bytes);
    assert_eq!(Traffic::of(&sent.to_clients), 0);
    assert_eq!(Traffic::of(&taken.from_servers), bytes);
    assert_eq!(Traffic::of(&taken.from_clients), bytes, "of y");
}

#[test]
fn parts_come_from_several_places() {
    let (first, second) = (served(config()), served(config()));
    let (one, two) = (first.client(), second.client());
    let mut names = names();
    let (near, far) = (names.fresh(), names.fresh());
    fill(&one, 3, 7.0, stays(far)).expect("it runs");
    fill(&two, 3, 8.0, stays(near)).expect("it runs");
    let address = first.address.to_string();
    let part = |offset, name, from, server: &str| HeldArrayPart {
        offset,
        length: 16,
        name,
        from,
        server: server.to_owned(),
        voucher: String::new(),
    };
    let own = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0];
    let x = Arg::Remote(Box::new(RemoteArray {
        from: Some(Array::flat(&own)),
        parts: vec![part(8, far, 8, &address), part(32, near, 0, "")],
        ..RemoteArray::default()
    }));
    let mut y = [0.0; 7];
    two.call("add", vec![7.into(), x, y.as_mut_slice().into()]).expect("it runs");
    assert_eq!(y, [1.0, 7.0, 7.0, 4.0, 8.0, 8.0, 7.0]);
    // Of a section, every second element travels, is held, and is sent back.
    let name = names.fresh();
    let mut x = [1, 2, 3, 4, 5];
    let keep = HeldResult { name, lifetime_ms: 60_000, sent: false, survives: false };
    let array =
        RemoteArray { from: Some(Array::flat(&x)), keep: Some(keep), ..RemoteArray::default() };
    one.call("negate", vec![5.into(), Arg::Remote(Box::new(array))]).expect("it runs");
    let mut kept = [0_i32; 3];
    one.fetch(name, 0, &mut kept).expect("it is held");
    assert_eq!(kept, [-1, -3, -5]);
    let part = HeldArrayPart {
        offset: 0,
        length: 12,
        name,
        from: 0,
        server: address,
        voucher: String::new(),
    };
    let to = Some(kumi_call::ArrayMut::flat(&mut x));
    let array = RemoteArray { parts: vec![part], to, ..RemoteArray::default() };
    two.call("negate", vec![5.into(), Arg::Remote(Box::new(array))]).expect("it runs");
    assert_eq!(x, [1, 2, 3, 4, 5]);
}

/// The message for a sum whose first array is this.
fn refused(client: &Client, x: Arg<'_>) -> CallError {
    let mut y = [0.0; 2];
    let outcome = client.call("add", vec![2.into(), x, y.as_mut_slice().into()]);
    outcome.expect_err("it cannot run")
}

#[test]
fn strange_wishes_are_refused_and_cost_nothing() {
    let (server, traffic) =
        counted(|config| config.peers = Peers::Listed(vec!["127.0.0.1:1".to_owned()]));
    let client = server.client();
    let mut names = names();
    let (known, unknown, own) = (names.fresh(), names.fresh(), names.fresh());
    fill(&client, 2, 1.0, stays(known)).expect("it runs");
    let error = refused(&client, held(unknown, 16, ""));
    assert!(matches!(error, CallError::NotHeld { .. }) && error.has_not_run(), "{error:?}");
    let short = RemoteArray::held(known, 8, "");
    let error = refused(&client, Arg::Remote(Box::new(short)));
    assert!(error.to_string().contains("is only partly at servers"), "{error}");
    let error = refused(&client, held(known, 24, ""));
    assert!(error.to_string().contains("fewer than the parts"), "{error}");
    let mut beyond = RemoteArray::held(known, 16, "");
    beyond.parts[0].from = 1;
    let error = refused(&client, Arg::Remote(Box::new(beyond)));
    assert!(error.to_string().contains("more than the held array has"), "{error}");
    // A name that is in use; and a call that makes its own argument.
    let error = fill(&client, 2, 1.0, stays(known)).expect_err("it is held");
    assert!(error.to_string().contains("take another name"), "{error}");
    let keep = Some(HeldResult { name: own, lifetime_ms: 1000, sent: false, survives: false });
    let circle = RemoteArray { keep, ..RemoteArray::held(own, 16, "") };
    let x = [1.0, 2.0];
    let args = vec![2.into(), x.as_slice().into(), Arg::Remote(Box::new(circle))];
    let error = client.call("add", args).expect_err("it cannot run");
    assert!(matches!(error, CallError::NotHeld { .. }), "{error:?}");
    // Addresses without a listener, and forbidden ones.
    let error = refused(&client, held(unknown, 16, "127.0.0.1:1"));
    assert!(matches!(error, CallError::NoSource(_)) && error.has_not_run(), "{error:?}");
    let address = server.address.to_string();
    for other in [address.as_str(), "unix:/tmp/socket", "nonsense"] {
        let error = refused(&client, held(known, 16, other));
        assert!(error.to_string().contains("does not fetch"), "{error}");
    }
    let mut many = [0.0; 3];
    let error = client.fetch(known, 0, &mut many).expect_err("it is shorter");
    assert!(error.to_string().contains("the array has 16 bytes"), "{error}");
    assert_eq!(Traffic::of(&traffic.copied) + Traffic::of(&traffic.from_servers), 0);
    assert_eq!(Traffic::of(&traffic.fetched), 0);
    let mut y = [0.0; 2];
    client.fetch(known, 0, &mut y).expect("all is in order");
    assert_eq!(y, [1.0, 1.0]);
}

#[test]
fn servers_that_are_none_and_arrays_that_do_not_come() {
    let server = served(config());
    let client = server.client();
    let name = names().fresh();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address").to_string();
    let raw_client = std::thread::spawn(move || {
        let hello = kumi_rpc::ServerHello {
            version: Ok(1),
            highest: 1,
            name: String::new(),
            streams: 1,
            bytes: 1,
            role: kumi_rpc::Role::default(),
            shares_memory: false,
            local: None,
            vouchers: kumi_rpc::VoucherSupport::Unknown,
            gives_resources: false,
            binds_calls: false,
            holds_arrays: false,
            shows_logs: false,
        };
        let mut result = Vec::new();
        kumi_rpc::ResultHead { waited_ns: 0, ran_ns: 0, values: vec![] }.encode(&mut result);
        let frame = [&[result.len() as u8, 0, 0, 0, 1, 0, 0, 0, 10, 0, 0, 0], &result[..]].concat();
        // It ends early; sends more than requested; sends something else.
        let chunk = kumi_rpc::chunk_header(1, 0, 24);
        let much = [&hello.encode()[..], &frame, &chunk, &[0; 24]].concat();
        for bytes in [hello.encode(), much, b"HTTP/1.1 400 Bad Request".to_vec()] {
            let (mut socket, _) = listener.accept().expect("a connection");
            socket.write_all(&bytes).expect("it is sent");
        }
    });
    for _ in 0..3 {
        let error = refused(&client, held(name, 16, &address));
        assert!(matches!(error, CallError::NoSource(_)), "{error:?}");
    }
    raw_client.join().expect("it has ended");
    // It is silent: the call's time limit ends it.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("its address").to_string();
    let mut y = [0.0; 2];
    let args = vec![2.into(), held(name, 16, &address), y.as_mut_slice().into()];
    let late = client.call_within("add", args, Some(Duration::from_millis(200)));
    assert!(matches!(late, Err(CallError::TimedOut(_))), "{late:?}");
    fill(&client, 2, 1.0, y.as_mut_slice().into()).expect("all is in order");
}

#[test]
fn memory_for_held_arrays_is_bounded() {
    let (server, _) = counted(|config| config.held_bytes = 1 << 20);
    let client = server.client();
    let mut names = names();
    let (first, second) = (names.fresh(), names.fresh());
    fill(&client, 80_000, 1.0, stays(first)).expect("it runs");
    let error = fill(&client, 80_000, 1.0, stays(second)).expect_err("there is no room");
    assert!(matches!(error, CallError::HeldFull(_)) && error.has_not_run(), "{error:?}");
    // A failed call, or a call whose client leaves, leaves nothing behind.
    for _ in 0..3 {
        let args = vec![80_000.into(), 60_000.into(), 1.0.into(), stays(second)];
        client.let_go(&[first]).expect("it is told");
        let time = Some(Duration::from_millis(50));
        let late = client.call_within("fill", args, time);
        assert!(matches!(late, Err(CallError::TimedOut(_))), "{late:?}");
        fill(&client, 80_000, 1.0, stays(first)).expect("there is room again");
    }
}

#[test]
fn the_smallest_array_is_charged_what_it_takes() {
    // Twice the smallest block of the server.
    let (server, _) = counted(|config| config.held_bytes = 128 << 10);
    let client = server.client();
    let mut names = names();
    for count in [0, 2] {
        let [first, second, third] = std::array::from_fn(|_| names.fresh());
        fill(&client, count, 1.0, stays(first)).expect("it runs");
        fill(&client, count, 1.0, stays(second)).expect("it runs");
        let error = fill(&client, count, 1.0, stays(third)).expect_err("there is no room");
        assert!(matches!(error, CallError::HeldFull(_)) && error.has_not_run(), "{error:?}");
        client.let_go(&[first]).expect("it is told");
        fill(&client, count, 1.0, stays(third)).expect("there is room again");
        client.let_go(&[second, third]).expect("it is told");
    }
}

#[test]
fn a_declined_result_neither_comes_back_nor_stays() {
    // There is no room to hold anything.
    let (server, traffic) = counted(|config| config.held_bytes = 0);
    let client = server.client();
    let declined = |from| {
        let array = RemoteArray::declined(from).expect("random bytes");
        Arg::Remote(Box::new(array))
    };
    for _ in 0..3 {
        fill(&client, 50_000, 1.0, declined(None)).expect("it runs");
    }
    // What the routine reads is sent.
    let x = [1, 2, 3];
    let args = vec![3.into(), declined(Some(Array::flat(&x)))];
    client.call("negate", args).expect("it runs");
    assert_eq!(Traffic::of(&traffic.from_clients), 8, "of every second number");
    let mut y = [0.0; 2];
    fill(&client, 2, 2.0, y.as_mut_slice().into()).expect("it runs");
    assert_eq!(y, [2.0, 2.0]);
    eventually("the last byte", || Traffic::of(&traffic.to_clients) >= 16);
    assert_eq!(Traffic::of(&traffic.to_clients), 16, "only what was wanted");
    let sent = fill(&client, 2, 1.0, declined(Some(Array::flat(&[1.0, 2.0]))));
    assert!(matches!(sent, Err(CallError::Argument { .. })), "the routine does not read it");
}

#[test]
fn a_name_let_go_while_its_call_runs_is_free() {
    let server = served(config());
    let client = server.client();
    let name = names().fresh();
    let slow = vec![2.into(), 300.into(), 1.0.into(), stays(name)];
    let mut slow = client.call_async("fill", slow, None).expect("it begins");
    let mut y = [0.0; 2];
    eventually("the begin of the call", || {
        matches!(client.fetch(name, 0, &mut y), Err(CallError::NotHeld { yet: true, .. }))
    });
    client.let_go(&[name]).expect("it is told");
    fill(&client, 2, 2.0, stays(name)).expect("it runs");
    slow.wait(&|| false).expect("it runs");
    client.fetch(name, 0, &mut y).expect("it is held");
    assert_eq!(y, [2.0, 2.0], "of the later call");
}

#[test]
fn arrays_end_with_their_time_or_their_client() {
    let (server, _) = counted(|config| config.held_grace = Duration::from_millis(1));
    let (client, other) = (server.client(), server.client());
    let mut names = names();
    let [short, lost, survivor, late] = std::array::from_fn(|_| names.fresh());
    let keep = |name, lifetime_ms, survives| {
        let keep = HeldResult { name, lifetime_ms, sent: false, survives };
        Arg::Remote(Box::new(RemoteArray { keep: Some(keep), ..RemoteArray::default() }))
    };
    // Each time by another connection: the one that asks for an abandoned array takes it over.
    let missing = |name| {
        let mut y = [0.0; 2];
        matches!(server.client().fetch(name, 0, &mut y), Err(CallError::NotHeld { yet: false, .. }))
    };
    fill(&client, 2, 1.0, keep(short, 1, false)).expect("it runs");
    eventually("the end of its lifetime", || missing(short));
    fill(&client, 2, 1.0, keep(lost, 60_000, false)).expect("it runs");
    fill(&client, 2, 3.0, keep(survivor, 60_000, true)).expect("it runs");
    assert!(!missing(lost), "whoever knows the name may have it");
    // A call that goes on after its client has left.
    let args = vec![2.into(), 300.into(), 4.0.into(), keep(late, 60_000, true)];
    let call = client.call_async("fill", args, None).expect("it begins");
    let mut y = [0.0; 2];
    eventually("the begin of the call", || {
        matches!(other.fetch(late, 0, &mut y), Err(CallError::NotHeld { yet: true, .. }))
    });
    std::mem::forget(call);
    client.disconnect();
    eventually("the end of the client's arrays", || missing(lost));
    assert!(!missing(survivor));
    eventually("the result of the lost client", || other.fetch(late, 0, &mut y).is_ok());
    assert_eq!(y, [4.0, 4.0]);
}
