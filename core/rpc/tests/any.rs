//! Any bytes, any cutting, any interleaving.

use std::collections::BTreeMap;

use kumi_rpc::{
    ArraySize, CallHead, Client, ClientEvent, ClientHello, Code, Failure, HEADER, MOST_ANSWER,
    MOST_REQUEST, ResultHead, SendPiece, Server, ServerEvent, ServerHello, Step, Value,
    chunk_header, chunks,
};
use proptest::prelude::*;

/// The byte of an array at an offset: different for every stream, parameter and place.
fn byte(stream: u32, argument: u16, offset: u64) -> u8 {
    (u64::from(stream) * 31 + u64::from(argument) * 7 + offset * 3 + offset / 251) as u8
}

fn hello() -> ClientHello {
    ClientHello {
        versions: 1..=3,
        token: "t".into(),
        program: "p".into(),
        site: String::new(),
        maps_memory: false,
    }
}

/// What a client writes for calls with these arrays: heads, then chunks of the calls in turn.
fn requests(client: &mut Client, calls: &[Vec<u64>]) -> Vec<u8> {
    let mut out = hello().encode();
    let mut left = Vec::new();
    for sizes in calls {
        let head = CallHead {
            hash: 1,
            timeout_ms: 2,
            routine: "f".into(),
            values: values(),
            ..CallHead::default()
        };
        let sizes = arrays(sizes);
        let stream = client.call(&head, &sizes, &mut out).expect("short");
        let pieces: Vec<_> = chunks(&sizes).collect();
        left.push((stream, pieces.into_iter()));
    }
    while !left.is_empty() {
        left.retain_mut(|(stream, pieces)| {
            let Some((argument, offset, length)) = pieces.next() else { return false };
            out.extend_from_slice(&chunk_header(*stream, argument, length));
            out.extend((offset..offset + u64::from(length)).map(|at| byte(*stream, argument, at)));
            true
        });
    }
    out
}

fn values() -> Vec<(u16, Value)> {
    vec![(0, Value::I64(3)), (4, Value::Complex(1.0, 2.0)), (9, Value::Text("é".into()))]
}

fn arrays(sizes: &[u64]) -> Vec<ArraySize> {
    (1_u16..).zip(sizes).map(|(argument, bytes)| ArraySize { argument, bytes: *bytes }).collect()
}

/// A server's driver: keeps arrays, answers each call with what came.
#[derive(Default)]
struct Served {
    arrays: BTreeMap<(u32, u16), Vec<u8>>,
    ready: Vec<u32>,
}

impl Served {
    fn event(&mut self, server: &mut Server, event: ServerEvent, sizes: &[Vec<u64>]) {
        match event {
            ServerEvent::Hello(said) => {
                assert_eq!(said, hello());
                assert!(server.welcome(&said, "s", 1));
            }
            ServerEvent::Call(stream, head) => {
                assert_eq!(head.values, values());
                let sizes = arrays(&sizes[stream as usize - 1]);
                for size in &sizes {
                    self.arrays.insert((stream, size.argument), vec![0; size.bytes as usize]);
                }
                server.accept(stream, &sizes);
            }
            ServerEvent::Ready(stream) => {
                for ((_, argument), bytes) in self.arrays.range((stream, 0)..(stream + 1, 0)) {
                    let expected = (0..bytes.len()).map(|at| byte(stream, *argument, at as u64));
                    assert!(bytes.iter().copied().eq(expected));
                }
                self.ready.push(stream);
                let result = ResultHead { waited_ns: 0, ran_ns: 0, values: values() };
                server.finish(stream, &result, &arrays(&sizes[stream as usize - 1]));
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Feeds the server bytes, cut into pieces.
fn feed(server: &mut Server, bytes: &[u8], cut: usize, sizes: &[Vec<u64>]) -> Served {
    let mut served = Served::default();
    let (mut begin, mut end) = (0, 0);
    loop {
        match server.step(&bytes[begin..end]).expect("well-formed") {
            Step::More(needed) => {
                assert!(needed > end - begin);
                if end == bytes.len() {
                    return served;
                }
                end = bytes.len().min(end + cut);
            }
            Step::Event(consumed, event) => {
                begin += consumed;
                if let Some(event) = event {
                    served.event(server, event, sizes);
                }
            }
            Step::Data(place, length) => {
                if begin == end {
                    assert!(end < bytes.len(), "more is announced than sent");
                    end = bytes.len().min(end + cut);
                }
                let count = length.min(end - begin);
                let place = place.expect("all are wanted");
                let array =
                    served.arrays.get_mut(&(place.stream, place.argument)).expect("an array");
                let offset = place.offset as usize;
                array[offset..offset + count].copy_from_slice(&bytes[begin..begin + count]);
                server.placed(count);
                begin += count;
            }
        }
    }
}

/// What the server writes, taken in writes of at most `cut` bytes.
fn answers(server: &mut Server, cut: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while !server.send_queue().is_empty() {
        let mut room = cut;
        let mut count = 0;
        for piece in server.send_queue().pieces() {
            match piece {
                SendPiece::Bytes(piece) => {
                    let taken = piece.len().min(room);
                    bytes.extend_from_slice(&piece[..taken]);
                    (room, count) = (room - taken, count + taken);
                }
                SendPiece::Data(place, length) => {
                    let taken = length.min(room);
                    let range = place.offset..place.offset + taken as u64;
                    bytes.extend(range.map(|at| byte(place.stream, place.argument, at)));
                    (room, count) = (room - taken, count + taken);
                }
            }
        }
        server.send_queue().wrote(count);
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Calls with arrays of any sizes arrive whole and in their places, and so do their results, however both are cut.
    #[test]
    fn arrays_arrive(
        calls in prop::collection::vec(prop::collection::vec(0_u64..3000, 0..4), 1..6),
        long in prop::option::weighted(0.1, (1_u64 << 20)..(5 << 19)),
        cut in 1_usize..5000,
    ) {
        let mut calls = calls;
        if let Some(long) = long {
            calls[0].push(long);
        }
        let cut = if long.is_some() { cut * 50 } else { cut };
        let (mut client, mut server) = (Client::new(), Server::new(8));
        let bytes = requests(&mut client, &calls);
        let served = feed(&mut server, &bytes, cut, &calls);
        prop_assert_eq!(served.ready.len(), calls.len(), "each call is ready once");
        let bytes = answers(&mut server, cut);
        let mut written: Vec<u32> = std::iter::from_fn(|| server.send_queue().written()).collect();
        written.sort_unstable();
        prop_assert_eq!(written, (1..=calls.len() as u32).collect::<Vec<_>>());
        let (mut begin, mut end, mut done) = (0, 0, Vec::new());
        loop {
            match client.step(&bytes[begin..end]).expect("well-formed") {
                Step::More(_) if end == bytes.len() => break,
                Step::More(_) => end = bytes.len().min(end + cut),
                Step::Event(consumed, event) => {
                    begin += consumed;
                    if let Some(ClientEvent::Done(stream)) = event {
                        done.push(stream);
                    }
                }
                Step::Data(place, length) => {
                    if begin == end {
                        end = bytes.len().min(end + cut);
                    }
                    let count = length.min(end - begin);
                    let place = place.expect("all are wanted");
                    for at in 0..count {
                        let expected = byte(place.stream, place.argument, place.offset + at as u64);
                        prop_assert_eq!(bytes[begin + at], expected);
                    }
                    client.placed(count);
                    begin += count;
                }
            }
        }
        prop_assert_eq!(done.len(), calls.len());
    }

    /// Whatever comes, nothing panics, more is asked for than there is, and the wish stays within the limit.
    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..400), greeted: bool, kind in 1_u8..12) {
        let mut input = if greeted { hello().encode() } else { Vec::new() };
        if greeted && bytes.len() > 12 {
            // A header that is nearly right gets further.
            let length = (bytes.len() - 12) as u32;
            input.extend_from_slice(&length.to_le_bytes());
            input.extend_from_slice(&[bytes[0], 0, 0, 0, kind, 0, 0, 0]);
            input.extend_from_slice(&bytes[12..]);
        }
        input.extend_from_slice(&bytes);
        let mut server = Server::new(2);
        let mut begin = 0;
        while let Ok(step) = server.step(&input[begin..]) {
            match step {
                Step::More(needed) => {
                    prop_assert!(needed > input.len() - begin && needed <= MOST_REQUEST + 12);
                    break;
                }
                Step::Event(consumed, event) => {
                    begin += consumed;
                    match event {
                        Some(ServerEvent::Hello(said)) if !server.welcome(&said, "s", 1) => break,
                        Some(ServerEvent::Call(stream, _)) => {
                            server.accept(stream, &[ArraySize { argument: 0, bytes: 9 }]);
                        }
                        Some(ServerEvent::Interface(stream, _) | ServerEvent::List(stream, _) | ServerEvent::Cancel(stream)) => {
                            server.fail(stream, &Failure::new(Code::Busy, 0, "no"));
                        }
                        _ => {}
                    }
                }
                Step::Data(_, length) => {
                    let count = length.min(input.len() - begin);
                    if count == 0 {
                        break;
                    }
                    server.placed(count);
                    begin += count;
                }
            }
        }
    }

    /// Whatever a server says to a client that waits for answers of every kind, nothing panics, no stream ends twice,
    /// and the wish for more stays within the limit.
    #[test]
    fn any_answers(frames in prop::collection::vec(answer(), 0..12), rest in prop::collection::vec(any::<u8>(), 0..40)) {
        let (mut client, mut out) = (Client::new(), Vec::new());
        let head = CallHead { hash: 1, timeout_ms: 2, routine: "f".into(), values: values(), ..CallHead::default() };
        client.interface("f", &mut out).expect("a name");
        client.list("", &mut out).expect("short");
        client.call(&head, &arrays(&[9, 20]), &mut out).expect("short");
        client.call(&head, &[], &mut out).expect("short");
        let hello = ServerHello { version: Ok(1), highest: 1, name: "s".into(), streams: 9, bytes: 9, role: kumi_rpc::Role::Server, shares_memory: false, local: None, vouchers: kumi_rpc::VoucherSupport::Unknown, gives_resources: false, binds_calls: false, holds_arrays: false, shows_logs: false };
        let mut input = hello.encode();
        for (kind, stream, argument, body) in &frames {
            input.extend_from_slice(&(body.len() as u32).to_le_bytes());
            input.extend_from_slice(&stream.to_le_bytes());
            input.extend_from_slice(&[*kind, 0, *argument, 0]);
            input.extend_from_slice(body);
        }
        input.extend_from_slice(&rest);
        let (mut begin, mut greeted, mut over) = (0, false, Vec::new());
        while let Ok(step) = client.step(&input[begin..]) {
            match step {
                Step::More(needed) => {
                    prop_assert!(needed > input.len() - begin && needed <= MOST_ANSWER + HEADER);
                    break;
                }
                Step::Event(consumed, event) => {
                    begin += consumed;
                    match event {
                        Some(ClientEvent::Hello(_)) => greeted = true,
                        Some(
                            ClientEvent::Description(stream, ..)
                            | ClientEvent::Names(stream, _)
                            | ClientEvent::Done(stream)
                            | ClientEvent::Failed(stream, _),
                        ) => over.push(stream),
                        _ => {}
                    }
                }
                Step::Data(place, length) => {
                    let sizes = [(1, 9), (2, 20)];
                    if let Some(place) = place {
                        let fits = |(argument, bytes)| place.argument == argument && place.offset + length as u64 <= bytes;
                        prop_assert!(sizes.into_iter().any(fits), "{place:?} {length}");
                    }
                    let count = length.min(input.len() - begin);
                    if count == 0 {
                        break;
                    }
                    client.placed(count);
                    begin += count;
                }
            }
        }
        prop_assert!(greeted);
        let ended = over.len();
        over.sort_unstable();
        over.dedup();
        prop_assert_eq!(over.len(), ended);
    }
}

/// A frame of a server that is nearly right: kind, stream, argument and body.
fn answer() -> impl Strategy<Value = (u8, u32, u8, Vec<u8>)> {
    let bytes = prop::collection::vec(any::<u8>(), 0..24);
    let frames = (prop::sample::select(vec![6_u8, 7, 11, 200]), 0..6_u32, bytes.clone());
    prop_oneof![
        (Just(4), 3..5_u32, 0..4_u8, bytes.clone()),
        (Just(8), 0..3_u32, Just(0), bytes.clone()),
        (Just(9), 1..3_u32, Just(0), prop_oneof![bytes, Just(b"\x01\0f".to_vec())]),
        // A head without values is well-formed.
        (Just(10), 3..5_u32, Just(0), (16..20_usize).prop_map(|length| vec![0; length])),
        frames.prop_map(|(kind, stream, body)| (kind, stream, 0, body)),
    ]
}

#[test]
fn a_call_that_was_refused_early_leaves_the_connection_in_order() {
    let mut server = Server::new(4);
    let mut client = Client::new();
    let bytes = requests(&mut client, &[vec![100], vec![]]);
    let mut begin = 0;
    let mut ready = Vec::new();
    loop {
        match server.step(&bytes[begin..]).expect("well-formed") {
            Step::More(_) => break,
            Step::Event(consumed, event) => {
                begin += consumed;
                match event {
                    Some(ServerEvent::Hello(said)) => assert!(server.welcome(&said, "s", 1)),
                    Some(ServerEvent::Call(1, _)) => {
                        server.fail(1, &Failure::new(Code::TooLarge, 100, "too large"));
                    }
                    Some(ServerEvent::Call(stream, _)) => server.accept(stream, &[]),
                    Some(ServerEvent::Ready(stream)) => ready.push(stream),
                    _ => {}
                }
            }
            Step::Data(place, length) => {
                assert_eq!((place, length), (None, 100), "nobody wants it");
                server.placed(length);
                begin += length;
            }
        }
    }
    assert_eq!((begin, ready), (bytes.len(), vec![2]));
}

#[test]
fn what_is_abandoned_is_skipped() {
    let (mut client, mut server) = (Client::new(), Server::new(4));
    let sizes = [vec![2000], vec![10]];
    let bytes = requests(&mut client, &sizes);
    feed(&mut server, &bytes, 100, &sizes);
    let bytes = answers(&mut server, 1 << 20);
    client.abandon(1);
    let (mut begin, mut done, mut skipped) = (0, Vec::new(), 0);
    loop {
        match client.step(&bytes[begin..]).expect("well-formed") {
            Step::More(_) => break,
            Step::Event(consumed, event) => {
                begin += consumed;
                if let Some(ClientEvent::Done(stream)) = event {
                    done.push(stream);
                }
            }
            Step::Data(place, length) => {
                skipped += if place.is_none() { length } else { 0 };
                client.placed(length);
                begin += length;
            }
        }
    }
    assert_eq!((done, skipped), (vec![2], 2000));
}
